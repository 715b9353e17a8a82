//! Every call with arguments it must refuse: the documented errno, nothing changed, no crash.
//!
//! One table. After each row the state of every object is compared with what it was before. A last test looks that no
//! exported function of libibverbs is without a row.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "the tests are a C program in all but syntax"
)]

mod common;
mod scene;

use std::collections::BTreeSet;
use std::ffi::c_int;
use std::fs;
use std::path::Path;
use std::ptr::{null, null_mut};

use adverb_abi::inline;
use adverb_abi::types::*;
use adverb_provider::calls::*;
use common::{errno, send_wr, sge};
use scene::{Refused, Scene};

use libc::{EBUSY, EFAULT, EINVAL, ENOENT, EOPNOTSUPP, EPERM};

struct Row {
    export: &'static str,
    what: &'static str,
    errno: c_int,
    call: fn(&Scene) -> c_int,
}

/// Rows as `function, "what is wrong", ERRNO => |s| expression;`, where the expression is a pointer, or an errno, or -1.
macro_rules! rows {
    ($($export:ident, $what:literal, $errno:expr => |$s:ident| $call:expr;)*) => {
        &[$(Row {
            export: stringify!($export),
            what: $what,
            errno: $errno,
            call: |$s| {
                #[allow(unused_unsafe, reason = "some rows call nothing that is unsafe")]
                let result = unsafe { $call };
                result.refused()
            },
        },)*]
    };
}

const HUGE: usize = usize::MAX;

/// A pointer to nowhere that is not looked at, because something else is wrong first.
const fn nowhere<T>() -> *mut T {
    std::ptr::without_provenance_mut(0x10)
}

const ROWS: &[Row] = rows! {
    // Devices and their attributes.
    ibv_get_device_name, "NULL", EINVAL => |s| { let _ = s; ibv_get_device_name(null_mut()).cast_mut() };
    ibv_get_device_index, "a name that no device has", EINVAL => |s| { let _ = s; ibv_get_device_index(&mut ibv_device::zeroed()) };
    ibv_get_device_index, "NULL", EINVAL => |s| { let _ = s; ibv_get_device_index(null_mut()) };
    ibv_get_device_guid, "NULL", EINVAL => |s| { let _ = s; if ibv_get_device_guid(null_mut()) == 0 { errno() } else { 0 } };
    ibv_open_device, "NULL", EINVAL => |s| { let _ = s; ibv_open_device(null_mut()) };
    ibv_open_device, "a CQ", EINVAL => |s| ibv_open_device(s.a.cq.cast());
    ibv_close_device, "NULL", EINVAL => |s| { let _ = s; ibv_close_device(null_mut()) };
    ibv_query_device, "NULL", EINVAL => |s| { let _ = s; ibv_query_device(null_mut(), nowhere()) };
    ibv_query_device, "nowhere to write", EINVAL => |s| ibv_query_device(s.a.context, null_mut());
    ibv_query_port, "no port 0", EINVAL => |s| ibv_query_port(s.a.context, 0, nowhere());
    ibv_query_port, "no port 255", EINVAL => |s| ibv_query_port(s.a.context, 255, nowhere());
    ibv_query_port, "nowhere to write", EINVAL => |s| ibv_query_port(s.a.context, 1, null_mut());
    ibv_query_port_speed, "no port 2", EINVAL => |s| ibv_query_port_speed(s.a.context, 2, nowhere());
    ibv_query_gid, "a negative index", EINVAL => |s| ibv_query_gid(s.a.context, 1, -1, nowhere());
    ibv_query_gid, "a huge index", EINVAL => |s| ibv_query_gid(s.a.context, 1, c_int::MAX, nowhere());
    ibv_query_gid, "no port 0", EINVAL => |s| ibv_query_gid(s.a.context, 0, 0, nowhere());
    ibv_query_gid, "nowhere to write", EINVAL => |s| ibv_query_gid(s.a.context, 1, 0, null_mut());
    ibv_query_gid_type, "a huge index", EINVAL => |s| ibv_query_gid_type(s.a.context, 1, u32::MAX, nowhere());
    _ibv_query_gid_ex, "unknown flags", EINVAL => |s| _ibv_query_gid_ex(s.a.context, 1, 0, nowhere(), 8, 32);
    _ibv_query_gid_ex, "a huge index", EINVAL => |s| _ibv_query_gid_ex(s.a.context, 1, u32::MAX, nowhere(), 0, 32);
    _ibv_query_gid_ex, "a huge port", EINVAL => |s| _ibv_query_gid_ex(s.a.context, u32::MAX, 0, nowhere(), 0, 32);
    _ibv_query_gid_table, "unknown flags", EINVAL => |s| -(_ibv_query_gid_table(s.a.context, nowhere(), 9, 1, 32) as c_int);
    _ibv_query_gid_table, "too little room", EINVAL => |s| -(_ibv_query_gid_table(s.a.context, nowhere(), 0, 0, 32) as c_int);
    ibv_query_pkey, "a negative index", EINVAL => |s| ibv_query_pkey(s.a.context, 1, -1, nowhere());
    ibv_query_pkey, "a huge index", EINVAL => |s| ibv_query_pkey(s.a.context, 1, c_int::MAX, nowhere());
    ibv_get_pkey_index, "a key that is not there", EINVAL => |s| ibv_get_pkey_index(s.a.context, 1, 0x1234);
    ibv_read_sysfs_file, "NULL", EINVAL => |s| { let _ = s; ibv_read_sysfs_file(null(), null(), null_mut(), 0) };
    ibv_read_sysfs_file, "no such file", ENOENT => |s| {
        let _ = s;
        let mut text = [0; 8];
        ibv_read_sysfs_file(c"/sys/class/infiniband/adverb0".as_ptr(), c"nothing".as_ptr(), text.as_mut_ptr(), 8)
    };
    query_device_ex, "unknown input bits", EINVAL => |s| {
        s.table().query_device_ex.unwrap()(s.a.context, &ibv_query_device_ex_input { comp_mask: 1 }, nowhere(), 400)
    };
    query_device_ex, "no size", EINVAL => |s| s.table().query_device_ex.unwrap()(s.a.context, null(), nowhere(), 0);
    query_rt_values, "nowhere to write", EINVAL => |s| s.table().query_rt_values.unwrap()(s.a.context, null_mut());
    ibv_import_device, "no descriptor", libc::EBADF => |s| { let _ = s; ibv_import_device(-1) };
    ibv_import_device, "a descriptor of something else", EOPNOTSUPP => |s| ibv_import_device((*s.a.channel).fd);
    ibv_get_async_event, "nowhere to write", EINVAL => |s| ibv_get_async_event(s.a.context, null_mut());

    // Protection domains.
    ibv_alloc_pd, "NULL", EINVAL => |s| { let _ = s; ibv_alloc_pd(null_mut()) };
    ibv_alloc_pd, "a PD", EINVAL => |s| ibv_alloc_pd(s.wide.cast());
    ibv_dealloc_pd, "NULL", EINVAL => |s| { let _ = s; ibv_dealloc_pd(null_mut()) };
    ibv_dealloc_pd, "a domain in use", EBUSY => |s| ibv_dealloc_pd(s.a.pd);
    ibv_dealloc_pd, "an altered handle", ENOENT => |s| s.altered(&raw mut (*s.a.pd).handle, || ibv_dealloc_pd(s.a.pd));
    ibv_dealloc_pd, "another context put in", EINVAL => |s| s.elsewhere(&raw mut (*s.a.pd).context, || ibv_dealloc_pd(s.a.pd));
    ibv_import_pd, "no such number", ENOENT => |s| ibv_import_pd(s.a.context, 0x7fff_ffff);
    alloc_td, "unknown attributes", EOPNOTSUPP => |s| s.table().alloc_td.unwrap()(s.a.context, &mut ibv_td_init_attr { comp_mask: 1 });
    dealloc_td, "NULL", EINVAL => |s| s.table().dealloc_td.unwrap()(null_mut());
    dealloc_td, "a domain in use", EBUSY => |s| s.table().dealloc_td.unwrap()(s.td);
    alloc_parent_domain, "no PD", EINVAL => |s| s.parent(null_mut(), null_mut(), 0);
    alloc_parent_domain, "unknown attributes", EOPNOTSUPP => |s| s.parent(s.a.pd, null_mut(), 1 << 30);
    alloc_parent_domain, "a PD of another context", EINVAL => |s| s.parent(s.b.pd, null_mut(), 0);
    alloc_parent_domain, "a TD that is a PD", EINVAL => |s| s.parent(s.a.pd, s.a.pd.cast(), 0);

    // Memory regions.
    ibv_reg_mr, "no PD", EINVAL => |s| ibv_reg_mr(null_mut(), s.at(), 8, 0);
    ibv_reg_mr, "huge", EINVAL => |s| ibv_reg_mr(s.a.pd, s.at(), HUGE, 0);
    ibv_reg_mr, "wraps around", EINVAL => |s| ibv_reg_mr(s.a.pd, std::ptr::without_provenance_mut(HUGE - 100), 4096, 0);
    ibv_reg_mr, "not mapped", EFAULT => |s| ibv_reg_mr(s.a.pd, nowhere(), 8, 0);
    ibv_reg_mr, "unknown access", EINVAL => |s| ibv_reg_mr(s.a.pd, s.at(), 8, 1 << 15);
    ibv_reg_mr, "remote write alone", EINVAL => |s| ibv_reg_mr(s.a.pd, s.at(), 8, IBV_ACCESS_REMOTE_WRITE as c_int);
    ibv_reg_mr, "remote atomic alone", EINVAL => |s| ibv_reg_mr(s.a.pd, s.at(), 8, IBV_ACCESS_REMOTE_ATOMIC as c_int);
    ibv_reg_mr, "persistent flush", EOPNOTSUPP => |s| ibv_reg_mr(s.a.pd, s.at(), 8, IBV_ACCESS_FLUSH_PERSISTENT as c_int);
    ibv_reg_mr, "an altered PD handle", ENOENT => |s| s.altered(&raw mut (*s.a.pd).handle, || ibv_reg_mr(s.a.pd, s.at(), 8, 0).refused());
    ibv_reg_mr, "another context put in", EINVAL => |s| s.elsewhere(&raw mut (*s.a.pd).context, || ibv_reg_mr(s.a.pd, s.at(), 8, 0).refused());
    ibv_reg_mr_iova, "keys that wrap around", EINVAL => |s| ibv_reg_mr_iova(s.a.pd, s.at(), 64, u64::MAX - 8, 0);
    ibv_reg_mr_iova2, "no PD", EINVAL => |s| ibv_reg_mr_iova2(null_mut(), s.at(), 8, 0, 0);
    ibv_reg_mr_iova2, "unknown mandatory access", EINVAL => |s| ibv_reg_mr_iova2(s.a.pd, s.at(), 8, 0, 1 << 30);
    ibv_reg_dmabuf_mr, "never", EOPNOTSUPP => |s| ibv_reg_dmabuf_mr(s.a.pd, 0, 8, 0, 0, 0);
    ibv_dereg_mr, "NULL", EINVAL => |s| { let _ = s; ibv_dereg_mr(null_mut()) };
    ibv_dereg_mr, "a QP", EINVAL => |s| ibv_dereg_mr(s.qp.cast());
    ibv_dereg_mr, "an altered handle", ENOENT => |s| s.altered(&raw mut (*s.mr).handle, || ibv_dereg_mr(s.mr));
    ibv_dereg_mr, "another context put in", EINVAL => |s| s.elsewhere(&raw mut (*s.mr).context, || ibv_dereg_mr(s.mr));
    ibv_rereg_mr, "unknown flags", EINVAL => |s| ibv_rereg_mr(s.mr, 8, null_mut(), s.at(), 8, 0);
    ibv_rereg_mr, "no flags", EINVAL => |s| ibv_rereg_mr(s.mr, 0, null_mut(), s.at(), 8, 0);
    ibv_rereg_mr, "no bytes", EINVAL => |s| ibv_rereg_mr(s.mr, 1, null_mut(), s.at(), 0, 0);
    ibv_rereg_mr, "no address", EINVAL => |s| ibv_rereg_mr(s.mr, 1, null_mut(), null_mut(), 8, 0);
    ibv_rereg_mr, "not mapped", EFAULT => |s| ibv_rereg_mr(s.mr, 1, null_mut(), nowhere(), 8, 0);
    ibv_rereg_mr, "no PD", EINVAL => |s| ibv_rereg_mr(s.mr, 2, null_mut(), null_mut(), 0, 0);
    ibv_rereg_mr, "a PD of another context", EINVAL => |s| ibv_rereg_mr(s.mr, 2, s.b.pd, null_mut(), 0, 0);
    ibv_rereg_mr, "unknown access", EINVAL => |s| ibv_rereg_mr(s.mr, 4, null_mut(), null_mut(), 0, 1 << 15);
    ibv_rereg_mr, "access without its flag", EINVAL => |s| ibv_rereg_mr(s.mr, 1, null_mut(), s.at(), 8, 1);
    ibv_rereg_mr, "an altered handle", ENOENT => |s| s.altered(&raw mut (*s.mr).handle, || ibv_rereg_mr(s.mr, 4, null_mut(), null_mut(), 0, 1).refused());
    ibv_rereg_mr, "another context put in", EINVAL => |s| s.elsewhere(&raw mut (*s.mr).context, || ibv_rereg_mr(s.mr, 4, null_mut(), null_mut(), 0, 1).refused());
    ibv_import_mr, "no such number", ENOENT => |s| ibv_import_mr(s.a.pd, 0x7fff_ffff);
    ibv_import_mr, "NULL", EINVAL => |s| { let _ = s; ibv_import_mr(null_mut(), 0) };
    ibv_import_dm, "no such number", ENOENT => |s| ibv_import_dm(s.a.context, 0x7fff_ffff);
    advise_mr, "no ranges", EINVAL => |s| s.table().advise_mr.unwrap()(s.a.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, nowhere(), 0);
    advise_mr, "huge", EINVAL => |s| s.table().advise_mr.unwrap()(s.a.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, nowhere(), u32::MAX);
    advise_mr, "unknown advice", EOPNOTSUPP => |s| s.table().advise_mr.unwrap()(s.a.pd, 77, 0, nowhere(), 1);
    advise_mr, "unknown flags", EINVAL => |s| s.table().advise_mr.unwrap()(s.a.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 1 << 9, nowhere(), 1);

    // Device memory and windows.
    alloc_dm, "no bytes", EINVAL => |s| s.device_memory(0, 0, 0);
    alloc_dm, "huge", EINVAL => |s| s.device_memory(HUGE, 0, 0);
    alloc_dm, "huge alignment", EINVAL => |s| s.device_memory(64, 63, 0);
    free_dm, "NULL", EINVAL => |s| s.table().free_dm.unwrap()(null_mut());
    free_dm, "an altered handle", ENOENT => |s| s.altered(&raw mut (*s.dm).handle, || s.table().free_dm.unwrap()(s.dm));
    free_dm, "another context put in", EINVAL => |s| s.elsewhere(&raw mut (*s.dm).context, || s.table().free_dm.unwrap()(s.dm));
    reg_dm_mr, "beyond its end", EINVAL => |s| s.table().reg_dm_mr.unwrap()(s.a.pd, s.dm, 60, 64, IBV_ACCESS_ZERO_BASED);
    reg_dm_mr, "not zero based", EINVAL => |s| s.table().reg_dm_mr.unwrap()(s.a.pd, s.dm, 0, 64, IBV_ACCESS_LOCAL_WRITE);
    reg_dm_mr, "a PD of another context", EINVAL => |s| s.table().reg_dm_mr.unwrap()(s.b.pd, s.dm, 0, 64, IBV_ACCESS_ZERO_BASED);
    memcpy_to_dm, "beyond its end", EFAULT => |s| (*s.dm).memcpy_to_dm.unwrap()(s.dm, 60, s.at(), 8);
    memcpy_to_dm, "wraps around", EFAULT => |s| (*s.dm).memcpy_to_dm.unwrap()(s.dm, u64::MAX, s.at(), 8);
    memcpy_from_dm, "beyond its end", EFAULT => |s| (*s.dm).memcpy_from_dm.unwrap()(s.at(), s.dm, 64, 8);
    alloc_mw, "no PD", EINVAL => |s| (*s.a.context).ops.alloc_mw.unwrap()(null_mut(), IBV_MW_TYPE_1);
    alloc_mw, "unknown type", EINVAL => |s| inline::ibv_alloc_mw(s.a.pd, 3);
    dealloc_mw, "an altered handle", ENOENT => |s| s.altered(&raw mut (*s.mw).handle, || inline::ibv_dealloc_mw(s.mw));
    dealloc_mw, "another context put in", EINVAL => |s| s.elsewhere(&raw mut (*s.mw).context, || s.a.context.as_ref().unwrap().ops.dealloc_mw.unwrap()(s.mw));
    bind_mw, "a window of type 2", EINVAL => |s| s.bind(s.mw2, s.mr, 8);
    bind_mw, "a range without a region", EINVAL => |s| s.bind(s.mw, null_mut(), 8);
    bind_mw, "a region of another PD", EPERM => |s| s.bind(s.mw, s.other_mr, 8);
    bind_mw, "nothing to bind", EINVAL => |s| (*s.a.context).ops.bind_mw.unwrap()(s.qp, s.mw, null_mut());

    // Channels and CQs.
    ibv_create_comp_channel, "NULL", EINVAL => |s| { let _ = s; ibv_create_comp_channel(null_mut()) };
    ibv_destroy_comp_channel, "NULL", EINVAL => |s| { let _ = s; ibv_destroy_comp_channel(null_mut()) };
    ibv_destroy_comp_channel, "a channel in use", EBUSY => |s| ibv_destroy_comp_channel(s.a.channel);
    ibv_get_cq_event, "nowhere to write", EINVAL => |s| ibv_get_cq_event(s.a.channel, null_mut(), null_mut());
    ibv_create_cq, "no entries", EINVAL => |s| ibv_create_cq(s.a.context, 0, null_mut(), null_mut(), 0);
    ibv_create_cq, "negative", EINVAL => |s| ibv_create_cq(s.a.context, -1, null_mut(), null_mut(), 0);
    ibv_create_cq, "huge", EINVAL => |s| ibv_create_cq(s.a.context, c_int::MAX, null_mut(), null_mut(), 0);
    ibv_create_cq, "a negative vector", EINVAL => |s| ibv_create_cq(s.a.context, 1, null_mut(), null_mut(), -1);
    ibv_create_cq, "a huge vector", EINVAL => |s| ibv_create_cq(s.a.context, 1, null_mut(), null_mut(), c_int::MAX);
    ibv_create_cq, "a channel of another context", EINVAL => |s| ibv_create_cq(s.a.context, 1, null_mut(), s.b.channel, 0);
    ibv_create_cq, "a channel that is a CQ", EINVAL => |s| ibv_create_cq(s.a.context, 1, null_mut(), s.a.cq.cast(), 0);
    ibv_resize_cq, "no entries", EINVAL => |s| ibv_resize_cq(s.a.cq, 0);
    ibv_resize_cq, "huge", EINVAL => |s| ibv_resize_cq(s.a.cq, c_int::MAX);
    ibv_resize_cq, "an altered handle", ENOENT => |s| s.altered(&raw mut (*s.a.cq).handle, || ibv_resize_cq(s.a.cq, 128));
    ibv_resize_cq, "another context put in", EINVAL => |s| s.elsewhere(&raw mut (*s.a.cq).context, || ibv_resize_cq(s.a.cq, 128));
    ibv_destroy_cq, "a CQ in use", EBUSY => |s| ibv_destroy_cq(s.a.cq);
    ibv_destroy_cq, "an altered handle", ENOENT => |s| s.altered(&raw mut (*s.a.cq).handle, || ibv_destroy_cq(s.a.cq));
    ibv_destroy_cq, "another context put in", EINVAL => |s| s.elsewhere(&raw mut (*s.a.cq).context, || ibv_destroy_cq(s.a.cq));
    create_cq_ex, "unknown attributes", EINVAL => |s| s.cq_ex(|attr| attr.comp_mask = 1 << 30);
    create_cq_ex, "unknown fields", EOPNOTSUPP => |s| s.cq_ex(|attr| attr.wc_flags = 1 << 60);
    create_cq_ex, "no entries", EINVAL => |s| s.cq_ex(|attr| attr.cqe = 0);
    create_cq_ex, "unknown flags", EOPNOTSUPP => |s| s.cq_ex(|attr| {
        attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
        attr.flags = 1 << 30;
    });
    modify_cq, "unknown attributes", EINVAL => |s| {
        let mut attr = ibv_modify_cq_attr::zeroed();
        attr.attr_mask = 1 << 30;
        s.table().modify_cq.unwrap()(s.a.cq, &mut attr)
    };
    poll_cq, "a negative count", EINVAL => |s| inline::ibv_poll_cq(s.a.cq, -1, nowhere());
    poll_cq, "nowhere to write", EINVAL => |s| inline::ibv_poll_cq(s.a.cq, 1, null_mut());

    // SRQs and XRC domains.
    ibv_create_srq, "no PD", EINVAL => |s| s.srq_of(null_mut(), 4, 1);
    ibv_create_srq, "no entries", EINVAL => |s| s.srq_of(s.a.pd, 0, 1);
    ibv_create_srq, "huge", EINVAL => |s| s.srq_of(s.a.pd, u32::MAX, 1);
    ibv_create_srq, "huge pieces", EINVAL => |s| s.srq_of(s.a.pd, 4, u32::MAX);
    create_srq_ex, "unknown attributes", EINVAL => |s| s.srq_ex(|attr| attr.comp_mask = 1 << 30);
    create_srq_ex, "no PD", EINVAL => |s| s.srq_ex(|attr| attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE);
    create_srq_ex, "a PD of another context", EINVAL => |s| { let pd = s.b.pd; s.srq_ex(move |attr| attr.pd = pd) };
    create_srq_ex, "tag matching", EOPNOTSUPP => |s| s.srq_ex(|attr| attr.srq_type = IBV_SRQT_TM);
    create_srq_ex, "unknown type", EINVAL => |s| s.srq_ex(|attr| attr.srq_type = 99);
    ibv_modify_srq, "unknown bits", EINVAL => |s| ibv_modify_srq(s.srq, &mut ibv_srq_attr::zeroed(), 1 << 8);
    ibv_modify_srq, "NULL", EINVAL => |s| ibv_modify_srq(s.srq, null_mut(), 1);
    ibv_modify_srq, "a limit beyond its size", EINVAL => |s| {
        let mut attr = ibv_srq_attr::zeroed();
        attr.srq_limit = u32::MAX;
        ibv_modify_srq(s.srq, &mut attr, IBV_SRQ_LIMIT as c_int)
    };
    ibv_modify_srq, "huge", EINVAL => |s| {
        let mut attr = ibv_srq_attr::zeroed();
        attr.max_wr = u32::MAX;
        ibv_modify_srq(s.srq, &mut attr, IBV_SRQ_MAX_WR as c_int)
    };
    ibv_query_srq, "nowhere to write", EINVAL => |s| ibv_query_srq(s.srq, null_mut());
    ibv_query_srq, "an altered handle", ENOENT => |s| s.altered(&raw mut (*s.srq).handle, || ibv_query_srq(s.srq, nowhere()));
    ibv_query_srq, "another context put in", EINVAL => |s| s.elsewhere(&raw mut (*s.srq).context, || ibv_query_srq(s.srq, nowhere()));
    ibv_destroy_srq, "an SRQ in use", EBUSY => |s| ibv_destroy_srq(s.srq);
    ibv_destroy_srq, "an altered handle", ENOENT => |s| s.altered(&raw mut (*s.srq).handle, || ibv_destroy_srq(s.srq));
    ibv_destroy_srq, "another context put in", EINVAL => |s| s.elsewhere(&raw mut (*s.srq).context, || ibv_destroy_srq(s.srq));
    get_srq_num, "not XRC", EINVAL => |s| s.table().get_srq_num.unwrap()(s.srq, &mut 0);
    open_xrcd, "half of the attributes", EINVAL => |s| s.xrcd(IBV_XRCD_INIT_ATTR_FD, -1);
    open_xrcd, "unknown attributes", EINVAL => |s| s.xrcd(1 << 9, -1);
    open_xrcd, "no descriptor", libc::EBADF => |s| s.xrcd(IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, 9999);
    close_xrcd, "NULL", EINVAL => |s| s.table().close_xrcd.unwrap()(null_mut());
    open_qp, "no attributes", EINVAL => |s| s.table().open_qp.unwrap()(s.a.context, &mut ibv_qp_open_attr::zeroed());
    post_srq_recv, "too many pieces", EINVAL => |s| s.srq_recv(s.srq, 99);

    // Queue pairs.
    ibv_create_qp, "no PD", EINVAL => |s| ibv_create_qp(null_mut(), &mut s.a.init_attr(IBV_QPT_RC));
    ibv_create_qp, "NULL", EINVAL => |s| ibv_create_qp(s.a.pd, null_mut());
    ibv_create_qp, "no send CQ", EINVAL => |s| s.create(|init| init.send_cq = null_mut());
    ibv_create_qp, "no receive CQ", EINVAL => |s| s.create(|init| init.recv_cq = null_mut());
    ibv_create_qp, "a CQ of another context", EINVAL => |s| { let cq = s.b.cq; s.create(move |init| init.recv_cq = cq) };
    ibv_create_qp, "an SRQ of another context", EINVAL => |s| { let srq = s.other_srq; s.create(move |init| init.srq = srq) };
    ibv_create_qp, "a PD of another context", EINVAL => |s| ibv_create_qp(s.b.pd, &mut s.a.init_attr(IBV_QPT_RC));
    ibv_create_qp, "an altered CQ handle", ENOENT => |s| s.altered(&raw mut (*s.a.cq).handle, || s.create(|_| ()));
    ibv_create_qp, "another context put in", EINVAL => |s| s.elsewhere(&raw mut (*s.a.cq).context, || s.create(|_| ()));
    ibv_create_qp, "an SRQ on UC", EINVAL => |s| { let srq = s.srq; s.create(move |init| { init.qp_type = IBV_QPT_UC; init.srq = srq }) };
    ibv_create_qp, "a huge send queue", EINVAL => |s| s.create(|init| init.cap.max_send_wr = u32::MAX);
    ibv_create_qp, "a huge receive queue", EINVAL => |s| s.create(|init| init.cap.max_recv_wr = u32::MAX);
    ibv_create_qp, "huge pieces to send", EINVAL => |s| s.create(|init| init.cap.max_send_sge = u32::MAX);
    ibv_create_qp, "huge pieces to receive", EINVAL => |s| s.create(|init| init.cap.max_recv_sge = u32::MAX);
    ibv_create_qp, "huge inline data", EINVAL => |s| s.create(|init| init.cap.max_inline_data = u32::MAX);
    ibv_create_qp, "raw packets", EOPNOTSUPP => |s| s.create(|init| init.qp_type = IBV_QPT_RAW_PACKET);
    ibv_create_qp, "no type", EINVAL => |s| s.create(|init| init.qp_type = 0);
    ibv_create_qp, "unknown type", EINVAL => |s| s.create(|init| init.qp_type = 99);
    create_qp_ex, "unknown attributes", EOPNOTSUPP => |s| s.create_ex(|init| init.comp_mask |= 1 << 30);
    create_qp_ex, "no PD", EINVAL => |s| s.create_ex(|init| init.comp_mask = 0);
    create_qp_ex, "a PD of another context", EINVAL => |s| { let pd = s.b.pd; s.create_ex(move |init| init.pd = pd) };
    create_qp_ex, "unknown flags", EOPNOTSUPP => |s| s.create_ex(|init| {
        init.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
        init.create_flags = 1 << 31;
    });
    create_qp_ex, "unknown operations", EOPNOTSUPP => |s| s.create_ex(|init| {
        init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        init.send_ops_flags = 1 << 60;
    });
    ibv_modify_qp, "NULL", EINVAL => |s| ibv_modify_qp(s.qp, null_mut(), 1);
    ibv_modify_qp, "unknown bits", EINVAL => |s| s.modify(1 << 28, |_| ());
    ibv_modify_qp, "no such state", EINVAL => |s| s.modify(IBV_QP_STATE, |attr| attr.qp_state = 99);
    ibv_modify_qp, "a wrong current state", EINVAL => |s| s.modify(IBV_QP_STATE | IBV_QP_CUR_STATE, |attr| {
        attr.qp_state = IBV_QPS_ERR;
        attr.cur_qp_state = IBV_QPS_RTS;
    });
    ibv_modify_qp, "a step left out", EINVAL => |s| s.modify(IBV_QP_STATE, |attr| attr.qp_state = IBV_QPS_RTS);
    ibv_modify_qp, "no address", EINVAL => |s| s.modify(IBV_QP_STATE, |attr| attr.qp_state = IBV_QPS_RTR);
    ibv_modify_qp, "a huge GID index", EINVAL => |s| s.to_rtr(|attr| attr.ah_attr.grh.sgid_index = 255);
    ibv_modify_qp, "an address without a GRH", EINVAL => |s| s.to_rtr(|attr| attr.ah_attr.is_global = 0);
    ibv_modify_qp, "an address of another port", EINVAL => |s| s.to_rtr(|attr| attr.ah_attr.port_num = 2);
    ibv_modify_qp, "MTU 0", EINVAL => |s| s.to_rtr(|attr| attr.path_mtu = 0);
    ibv_modify_qp, "a huge MTU", EINVAL => |s| s.to_rtr(|attr| attr.path_mtu = 99);
    ibv_modify_qp, "a huge RNR timer", EINVAL => |s| s.to_rtr(|attr| attr.min_rnr_timer = 32);
    ibv_modify_qp, "too many reads", EINVAL => |s| s.to_rtr(|attr| attr.max_dest_rd_atomic = 255);
    ibv_modify_qp, "a P_Key index that is not there", EINVAL => |s| s.modify(IBV_QP_STATE | IBV_QP_PKEY_INDEX, |attr| {
        attr.qp_state = IBV_QPS_INIT;
        attr.pkey_index = 9;
    });
    ibv_modify_qp, "an alternate path", EOPNOTSUPP => |s| s.to_rtr_with(IBV_QP_ALT_PATH, |_| ());
    ibv_modify_qp, "an altered handle", ENOENT => |s| s.altered(&raw mut (*s.qp).handle, || s.modify(IBV_QP_STATE, |attr| attr.qp_state = IBV_QPS_ERR));
    ibv_modify_qp, "another context put in", EINVAL => |s| s.elsewhere(&raw mut (*s.qp).context, || s.modify(IBV_QP_STATE, |attr| attr.qp_state = IBV_QPS_ERR));
    ibv_query_qp, "nowhere to write", EINVAL => |s| ibv_query_qp(s.qp, null_mut(), 0, null_mut());
    ibv_query_qp, "an altered handle", ENOENT => |s| s.altered(&raw mut (*s.qp).handle, || ibv_query_qp(s.qp, nowhere(), 0, nowhere()));
    ibv_query_qp, "another context put in", EINVAL => |s| s.elsewhere(&raw mut (*s.qp).context, || ibv_query_qp(s.qp, nowhere(), 0, nowhere()));
    ibv_destroy_qp, "NULL", EINVAL => |s| { let _ = s; ibv_destroy_qp(null_mut()) };
    ibv_destroy_qp, "a CQ", EINVAL => |s| ibv_destroy_qp(s.a.cq.cast());
    ibv_destroy_qp, "an altered handle", ENOENT => |s| s.altered(&raw mut (*s.qp).handle, || ibv_destroy_qp(s.qp));
    ibv_destroy_qp, "another context put in", EINVAL => |s| s.elsewhere(&raw mut (*s.qp).context, || ibv_destroy_qp(s.qp));
    ibv_destroy_qp, "a member of a group", EBUSY => |s| ibv_destroy_qp(s.member);
    ibv_qp_to_qp_ex, "a plain queue pair", EINVAL => |s| ibv_qp_to_qp_ex(s.qp);
    ibv_set_ece, "options of a vendor", EOPNOTSUPP => |s| { let mut ece = ibv_ece::zeroed(); ece.vendor_id = 0x2c9; ibv_set_ece(s.qp, &mut ece) };
    ibv_set_ece, "no options", EINVAL => |s| ibv_set_ece(s.qp, null_mut());
    ibv_query_ece, "nowhere to write", EINVAL => |s| ibv_query_ece(s.qp, null_mut());
    ibv_query_ece, "NULL", EINVAL => |s| { let _ = s; ibv_query_ece(null_mut(), &mut ibv_ece::zeroed()) };
    ibv_attach_mcast, "no GID", EINVAL => |s| ibv_attach_mcast(s.ud, null(), 0);
    ibv_attach_mcast, "no group", EINVAL => |s| ibv_attach_mcast(s.ud, &s.a.gid, 0);
    ibv_attach_mcast, "RC", EINVAL => |s| ibv_attach_mcast(s.qp, &s.group, 0);
    ibv_detach_mcast, "no member", EINVAL => |s| ibv_detach_mcast(s.ud, &s.group, 0);
    post_send, "wrong state", EINVAL => |s| s.send(s.qp, |_| ());
    post_send, "too many pieces", EINVAL => |s| s.send(s.rts, |wr| wr.num_sge = 99);
    post_send, "negative pieces", EINVAL => |s| s.send(s.rts, |wr| wr.num_sge = -1);
    post_send, "unknown opcode", EINVAL => |s| s.send(s.rts, |wr| wr.opcode = 99);
    post_send, "segmentation offload", EOPNOTSUPP => |s| s.send(s.rts, |wr| wr.opcode = IBV_WR_TSO);
    post_send, "unknown flags", EINVAL => |s| s.send(s.rts, |wr| wr.send_flags = 1 << 20);
    post_send, "inline data that is too long", EINVAL => |s| s.send_long_inline();
    post_send, "a short atomic", EINVAL => |s| s.send(s.rts, |wr| wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD);
    post_send, "a datagram without an address", EINVAL => |s| s.send(s.ud_rts, |_| ());
    post_send, "a datagram that writes", EINVAL => |s| s.send_datagram(IBV_WR_RDMA_WRITE, s.ah);
    post_send, "an address that is a PD", EINVAL => |s| s.send_datagram(IBV_WR_SEND, s.a.pd.cast());
    post_recv, "wrong state", EINVAL => |s| s.recv(s.reset, 1);
    post_recv, "too many pieces", EINVAL => |s| s.recv(s.qp, 99);
    post_recv, "negative pieces", EINVAL => |s| s.recv(s.qp, -1);
    post_recv, "an SRQ", EINVAL => |s| s.recv(s.with_srq, 1);

    // Address handles.
    ibv_create_ah, "no PD", EINVAL => |s| ibv_create_ah(null_mut(), &mut s.a.address());
    ibv_create_ah, "NULL", EINVAL => |s| ibv_create_ah(s.a.pd, null_mut());
    ibv_create_ah, "no GRH", EINVAL => |s| s.address(|attr| attr.is_global = 0);
    ibv_create_ah, "a huge GID index", EINVAL => |s| s.address(|attr| attr.grh.sgid_index = 255);
    ibv_create_ah, "no port 2", EINVAL => |s| s.address(|attr| attr.port_num = 2);
    ibv_create_ah, "nobody's GID", EINVAL => |s| s.address(|attr| attr.grh.dgid = ibv_gid { raw: [0; 16] });
    ibv_destroy_ah, "NULL", EINVAL => |s| { let _ = s; ibv_destroy_ah(null_mut()) };
    ibv_destroy_ah, "an altered handle", ENOENT => |s| s.altered(&raw mut (*s.ah).handle, || ibv_destroy_ah(s.ah));
    ibv_destroy_ah, "another context put in", EINVAL => |s| s.elsewhere(&raw mut (*s.ah).context, || ibv_destroy_ah(s.ah));
    ibv_init_ah_from_wc, "no completion", EINVAL => |s| ibv_init_ah_from_wc(s.a.context, 1, null_mut(), nowhere(), &mut ibv_ah_attr::zeroed());
    ibv_init_ah_from_wc, "no header where one is announced", EINVAL => |s| {
        let mut wc = ibv_wc::zeroed();
        wc.wc_flags = IBV_WC_GRH;
        ibv_init_ah_from_wc(s.a.context, 1, &mut wc, null_mut(), &mut ibv_ah_attr::zeroed())
    };
    ibv_create_ah_from_wc, "a header of zeros", EINVAL => |s| {
        let mut wc = ibv_wc::zeroed();
        wc.wc_flags = IBV_WC_GRH;
        ibv_create_ah_from_wc(s.a.pd, &mut wc, [0_u64; 5].as_mut_ptr().cast(), 1)
    };
};

/// These have nothing to refuse: they take any number, or return nothing.
const NO_ROWS: &[&str] = &[
    "ibv_get_sysfs_path",
    "ibv_fork_init",
    "ibv_is_fork_initialized",
    "ibv_rate_to_mult",
    "mult_to_ibv_rate",
    "ibv_rate_to_mbps",
    "mbps_to_ibv_rate",
    "ibv_node_type_str",
    "ibv_port_state_str",
    "ibv_event_type_str",
    "ibv_wc_status_str",
    "ibv_ack_async_event",
    "ibv_ack_cq_events",
    "ibv_free_device_list",
    "ibv_unimport_pd",
    "ibv_unimport_mr",
    "ibv_unimport_dm",
    // Where to write the number of devices may be NULL.
    "ibv_get_device_list",
    // Answers 0, "in no order", to whatever it is asked.
    "ibv_query_qp_data_in_order",
];

#[test]
fn each_bad_argument_has_its_errno_and_changes_nothing() {
    let scene = Scene::new();
    let mut wrong = Vec::new();
    for row in ROWS {
        let before = scene.state();
        let errno = (row.call)(&scene);
        if errno != row.errno {
            wrong.push(format!(
                "{} with {}: errno {errno} instead of {}",
                row.export, row.what, row.errno
            ));
        }
        let after = scene.state();
        if before != after {
            wrong.push(format!(
                "{} with {}: {before}\n  became {after}",
                row.export, row.what
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} rows:\n{}",
        wrong.len(),
        ROWS.len(),
        wrong.join("\n")
    );
}

#[test]
fn calls_that_return_nothing_come_back_from_nothing() {
    unsafe {
        ibv_free_device_list(null_mut());
        ibv_ack_cq_events(null_mut(), u32::MAX);
        ibv_ack_async_event(null_mut());
        ibv_unimport_pd(null_mut());
        ibv_unimport_mr(null_mut());
        ibv_unimport_dm(null_mut());
        assert_eq!(ibv_rate_to_mult(u32::MAX), -1);
        assert_eq!(ibv_rate_to_mbps(u32::MAX), -1);
        for text in [
            ibv_wc_status_str(u32::MAX),
            ibv_event_type_str(u32::MAX),
            ibv_node_type_str(c_int::MIN),
        ] {
            assert!(!text.is_null());
        }
    }
}

#[test]
fn a_list_is_posted_up_to_the_request_that_is_refused() {
    let s = Scene::new();
    let mut piece = sge(s.mr, 0, 8);
    let mut second = send_wr(2, IBV_WR_SEND, &mut piece);
    second.num_sge = 99;
    let mut first = send_wr(1, IBV_WR_SEND, &mut piece);
    first.next = &mut second;
    let mut bad = null_mut();
    assert_eq!(
        unsafe { inline::ibv_post_send(s.rts, &mut first, &mut bad) },
        EINVAL
    );
    assert_eq!(bad, &raw mut second);
}

#[test]
fn every_exported_function_has_a_row() {
    let table = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dropin/src/table/ibverbs.rs");
    let text = fs::read_to_string(table).expect("the table of exports");
    let have: BTreeSet<&str> = ROWS
        .iter()
        .map(|row| row.export)
        .chain(NO_ROWS.iter().copied())
        .collect();
    let exported = text.lines().filter_map(|line| {
        let (name, rest) = line.trim().strip_prefix("$row!(")?.split_once(", ")?;
        rest.starts_with("code").then_some(name)
    });
    let without: Vec<&str> = exported.filter(|name| !have.contains(name)).collect();
    assert!(without.is_empty(), "{without:?}");
}

/// Cards look up neither number nor context on the data path, and programs that keep copies of objects rely on it.
#[test]
fn posting_and_polling_read_no_handle() {
    let s = Scene::new();
    unsafe {
        let mut handles = [
            &raw mut (*s.rts).handle,
            &raw mut (*s.qp).handle,
            &raw mut (*s.srq).handle,
            &raw mut (*s.ah).handle,
            &raw mut (*s.a.cq).handle,
        ];
        for handle in &mut handles {
            **handle ^= 0x5a5a;
        }
        let mut bad = null_mut();
        let mut piece = ibv_sge::zeroed();
        let mut wr = send_wr(1, IBV_WR_SEND, &mut piece);
        assert_eq!(inline::ibv_post_send(s.rts, &mut wr, &mut bad), 0);
        wr.wr.ud = ibv_send_wr_ud {
            ah: s.ah,
            remote_qpn: 1,
            remote_qkey: 1,
        };
        assert_eq!(inline::ibv_post_send(s.ud_rts, &mut wr, &mut bad), 0);
        let (mut bad, mut wr) = (null_mut(), ibv_recv_wr::zeroed());
        assert_eq!(inline::ibv_post_recv(s.qp, &mut wr, &mut bad), 0);
        assert_eq!(inline::ibv_post_srq_recv(s.srq, &mut wr, &mut bad), 0);
        assert_eq!(inline::ibv_req_notify_cq(s.a.cq, 0), 0);
        assert!(inline::ibv_poll_cq(s.a.cq, 1, &mut ibv_wc::zeroed()) >= 0);
        for handle in &mut handles {
            **handle ^= 0x5a5a;
        }
    }
}
