//! What each call says to pointers that are NULL, of the wrong kind, or to values out of range.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "the tests are a C program in all but syntax"
)]

mod common;

use std::ffi::{c_char, c_int};
use std::mem::{MaybeUninit, offset_of, size_of};
use std::ptr::{null, null_mut};

use adverb_abi::inline;
use adverb_abi::types::*;
use adverb_provider::calls::*;
use common::{World, errno};

const EINVAL: c_int = libc::EINVAL;

/// Asserts that each call returns the errno value.
macro_rules! returns {
    ($value:expr; $($call:expr),* $(,)?) => {
        $(assert_eq!(unsafe { $call }, $value, "{}", stringify!($call));)*
    };
}

/// Asserts that each call returns NULL (or -1) and sets errno.
macro_rules! fails {
    ($errno:expr; null: $($pointer:expr),*; minus: $($minus:expr),* $(,)?) => {
        $(
            assert!(unsafe { $pointer }.is_null(), "{}", stringify!($pointer));
            assert_eq!(errno(), $errno, "{}", stringify!($pointer));
        )*
        $(
            assert_eq!(unsafe { $minus }, -1, "{}", stringify!($minus));
            assert_eq!(errno(), $errno, "{}", stringify!($minus));
        )*
    };
}

#[test]
fn null_is_refused_everywhere() {
    returns!(EINVAL;
        ibv_query_device(null_mut(), null_mut()),
        ibv_query_port(null_mut(), 1, null_mut()),
        ibv_query_port_speed(null_mut(), 1, null_mut()),
        _ibv_query_gid_ex(null_mut(), 1, 0, null_mut(), 0, 32),
        ibv_dealloc_pd(null_mut()),
        ibv_dereg_mr(null_mut()),
        ibv_destroy_comp_channel(null_mut()),
        ibv_destroy_cq(null_mut()),
        ibv_resize_cq(null_mut(), 1),
        ibv_modify_qp(null_mut(), null_mut(), 0),
        ibv_query_qp(null_mut(), null_mut(), 0, null_mut()),
        ibv_destroy_qp(null_mut()),
        ibv_modify_srq(null_mut(), null_mut(), 0),
        ibv_query_srq(null_mut(), null_mut()),
        ibv_destroy_srq(null_mut()),
        ibv_destroy_ah(null_mut()),
    );
    fails!(EINVAL;
        null:
        ibv_get_device_name(null_mut()).cast_mut(),
        ibv_open_device(null_mut()),
        ibv_alloc_pd(null_mut()),
        ibv_reg_mr(null_mut(), null_mut(), 1, 0),
        ibv_reg_mr_iova(null_mut(), null_mut(), 1, 0, 0),
        ibv_reg_mr_iova2(null_mut(), null_mut(), 1, 0, 0),
        ibv_create_comp_channel(null_mut()),
        ibv_create_cq(null_mut(), 1, null_mut(), null_mut(), 0),
        ibv_create_qp(null_mut(), null_mut()),
        ibv_qp_to_qp_ex(null_mut()),
        ibv_create_srq(null_mut(), null_mut()),
        ibv_create_ah(null_mut(), null_mut()),
        ibv_create_ah_from_wc(null_mut(), null_mut(), null_mut(), 1);
        minus:
        ibv_close_device(null_mut()),
        ibv_get_device_index(null_mut()),
        ibv_query_gid(null_mut(), 1, 0, null_mut()),
        ibv_query_gid_type(null_mut(), 1, 0, null_mut()),
        ibv_query_pkey(null_mut(), 1, 0, null_mut()),
        ibv_get_pkey_index(null_mut(), 1, 0xffff),
        ibv_get_cq_event(null_mut(), null_mut(), null_mut()),
        ibv_get_async_event(null_mut(), null_mut()),
        ibv_rereg_mr(null_mut(), 1, null_mut(), null_mut(), 1, 0),
        ibv_init_ah_from_wc(null_mut(), 1, null_mut(), null_mut(), null_mut()),
        ibv_read_sysfs_file(null(), null(), null_mut(), 0),
    );
    unsafe {
        assert_eq!(ibv_get_device_guid(null_mut()), 0);
        assert_eq!(
            _ibv_query_gid_table(null_mut(), null_mut(), 0, 0, 32),
            -(EINVAL as isize)
        );
        // These return nothing, and must come back.
        ibv_free_device_list(null_mut());
        ibv_ack_cq_events(null_mut(), 1);
        ibv_ack_async_event(null_mut());
    }
}

#[test]
fn null_arguments_beside_a_good_object_are_refused() {
    let w = World::new();
    let qp = w.qp(IBV_QPT_RC);
    let table = w.table();
    returns!(EINVAL;
        ibv_query_device(w.context, null_mut()),
        ibv_query_port(w.context, 1, null_mut()),
        table.query_port.unwrap()(w.context, 1, null_mut(), 56),
        table.query_device_ex.unwrap()(w.context, null(), null_mut(), 400),
        ibv_modify_qp(qp, null_mut(), IBV_QP_STATE as c_int),
        ibv_query_qp(qp, null_mut(), 0, null_mut()),
    );
    fails!(EINVAL;
        null:
        ibv_create_qp(w.pd, null_mut()),
        ibv_create_srq(w.pd, null_mut()),
        ibv_create_ah(w.pd, null_mut()),
        table.create_cq_ex.unwrap()(w.context, null_mut()),
        table.create_qp_ex.unwrap()(w.context, null_mut()),
        table.create_srq_ex.unwrap()(w.context, null_mut()),
        table.alloc_td.unwrap()(w.context, null_mut()),
        table.alloc_parent_domain.unwrap()(w.context, null_mut());
        minus:
        ibv_get_cq_event(w.channel, null_mut(), null_mut()),
        ibv_get_async_event(w.context, null_mut()),
        inline::ibv_poll_cq(w.cq, 1, null_mut()),
        inline::ibv_poll_cq(w.cq, -1, null_mut()),
    );
    unsafe {
        assert_eq!(inline::ibv_poll_cq(w.cq, 0, null_mut()), 0);
        assert_eq!(
            inline::ibv_post_send(qp, null_mut(), null_mut()),
            0,
            "an empty list is posted"
        );
    }
}

#[test]
fn an_object_of_another_kind_is_refused() {
    let w = World::new();
    let qp = w.qp(IBV_QPT_RC);
    returns!(EINVAL;
        ibv_destroy_cq(qp.cast()),
        ibv_destroy_qp(w.cq.cast()),
        ibv_dealloc_pd(w.cq.cast()),
        ibv_destroy_srq(qp.cast()),
        ibv_dereg_mr(qp.cast()),
        ibv_modify_qp(w.cq.cast(), null_mut(), 0),
        ibv_destroy_qp(qp.wrapping_byte_add(4)),
    );
    fails!(EINVAL;
        null: ibv_open_device(w.cq.cast()), ibv_alloc_pd(w.cq.cast()), ibv_create_ah(qp.cast(), &mut w.address());
        minus: ibv_get_cq_event(w.cq.cast(), null_mut(), null_mut()),
    );
}

#[test]
fn values_out_of_range_are_refused() {
    let w = World::new();
    let mut word = [0u64; 1];
    let at = word.as_mut_ptr().cast();
    let port = &mut ibv_port_attr::zeroed();
    returns!(EINVAL;
        ibv_query_port(w.context, 0, port),
        ibv_query_port(w.context, 2, port),
        ibv_resize_cq(w.cq, 0),
        ibv_resize_cq(w.cq, -1),
        ibv_resize_cq(w.cq, c_int::MAX),
    );
    fails!(EINVAL;
        null:
        ibv_create_cq(w.context, 0, null_mut(), null_mut(), 0),
        ibv_create_cq(w.context, -1, null_mut(), null_mut(), 0),
        ibv_create_cq(w.context, c_int::MAX, null_mut(), null_mut(), 0),
        ibv_create_cq(w.context, 1, null_mut(), null_mut(), -1),
        ibv_create_cq(w.context, 1, null_mut(), null_mut(), (*w.context).num_comp_vectors),
        ibv_reg_mr(w.pd, at, 8, IBV_ACCESS_REMOTE_WRITE as c_int),
        ibv_reg_mr(w.pd, at, 8, IBV_ACCESS_REMOTE_ATOMIC as c_int),
        ibv_reg_mr(w.pd, at, 8, 1 << 15),
        ibv_reg_mr(w.pd, at, usize::MAX, 0);
        minus:
        ibv_query_gid(w.context, 1, -1, &mut ibv_gid { raw: [0; 16] }),
        ibv_query_gid(w.context, 1, 1000, &mut ibv_gid { raw: [0; 16] }),
        ibv_query_pkey(w.context, 1, 1, &mut 0),
        ibv_query_pkey(w.context, 2, 0, &mut 0),
        ibv_get_pkey_index(w.context, 1, 0x1234),
    );
    fails!(libc::EFAULT;
        null: ibv_reg_mr(w.pd, std::ptr::without_provenance_mut(0x10), 8, 0);
        minus:
    );
    fails!(libc::EOPNOTSUPP;
        null:
        ibv_reg_mr(w.pd, at, 8, IBV_ACCESS_FLUSH_PERSISTENT as c_int),
        ibv_reg_dmabuf_mr(w.pd, 0, 8, 0, 0, 0),
        ibv_import_device(0),
        ibv_create_qp(w.pd, &mut w.init_attr(IBV_QPT_RAW_PACKET));
        minus:
    );
    let mut init = w.init_attr(IBV_QPT_RC);
    init.cap.max_send_sge = 1000;
    fails!(EINVAL; null: ibv_create_qp(w.pd, &mut init), ibv_create_qp(w.pd, &mut w.init_attr(99)); minus:);
    init = w.init_attr(IBV_QPT_RC);
    init.send_cq = null_mut();
    fails!(EINVAL; null: ibv_create_qp(w.pd, &mut init); minus:);
}

#[test]
fn structures_are_filled_to_the_size_that_the_program_knows() {
    let w = World::new();
    unsafe {
        // The exported query_port leaves alone what lies behind the first 48 bytes.
        let mut attr = MaybeUninit::<[u8; 64]>::new([0xaa; 64]);
        assert_eq!(ibv_query_port(w.context, 1, attr.as_mut_ptr().cast()), 0);
        let bytes = attr.assume_init();
        assert!(bytes[48..].iter().all(|b| *b == 0xaa));
        assert_eq!(
            bytes[offset_of!(ibv_port_attr, link_layer)],
            IBV_LINK_LAYER_ETHERNET
        );

        // The sized one zeroes what we do not know.
        let mut larger = [0xaa_u8; 80];
        assert_eq!(
            w.table().query_port.unwrap()(w.context, 1, larger.as_mut_ptr().cast(), 72),
            0
        );
        assert!(larger[56..72].iter().all(|b| *b == 0) && larger[72..].iter().all(|b| *b == 0xaa));

        let mut device = [0xaa_u8; 512];
        let query = w.table().query_device_ex.unwrap();
        assert_eq!(query(w.context, null(), device.as_mut_ptr().cast(), 500), 0);
        let known = size_of::<ibv_device_attr_ex>();
        assert!(
            device[known..500].iter().all(|b| *b == 0) && device[500..].iter().all(|b| *b == 0xaa)
        );
        let input = ibv_query_device_ex_input { comp_mask: 1 };
        assert_eq!(
            query(w.context, &input, device.as_mut_ptr().cast(), 500),
            EINVAL
        );
        assert_eq!(
            query(w.context, null(), device.as_mut_ptr().cast(), 100),
            EINVAL
        );

        let mut entry = [0xaa_u8; 48];
        assert_eq!(
            _ibv_query_gid_ex(w.context, 1, 0, entry.as_mut_ptr().cast(), 0, 40),
            0
        );
        assert!(entry[32..40].iter().all(|b| *b == 0) && entry[40..].iter().all(|b| *b == 0xaa));
        assert_eq!(
            _ibv_query_gid_ex(w.context, 1, 0, entry.as_mut_ptr().cast(), 1, 40),
            EINVAL
        );
    }
}

#[test]
fn the_gid_table_is_the_same_by_entry_and_at_once() {
    let w = World::new();
    unsafe {
        let mut port = ibv_port_attr::zeroed();
        assert_eq!(
            w.table().query_port.unwrap()(w.context, 1, &mut port, size_of::<ibv_port_attr>()),
            0
        );
        let length = port.gid_tbl_len as usize;
        let mut all = vec![ibv_gid_entry::zeroed(); length];
        let got = _ibv_query_gid_table(
            w.context,
            all.as_mut_ptr(),
            length,
            0,
            size_of::<ibv_gid_entry>(),
        );
        let used = got as usize;
        assert!(0 < used && used <= length);
        for index in used..length {
            let (mut gid, mut entry) = (ibv_gid { raw: [1; 16] }, ibv_gid_entry::zeroed());
            assert_eq!(ibv_query_gid(w.context, 1, index as c_int, &mut gid), 0);
            assert_eq!(gid.raw, [0; 16], "an empty place");
            let size = size_of::<ibv_gid_entry>();
            let found = _ibv_query_gid_ex(w.context, 1, index as u32, &mut entry, 0, size);
            assert_eq!(found, libc::ENODATA);
        }
        for (index, entry) in all[..used].iter().enumerate() {
            let mut gid = ibv_gid { raw: [0; 16] };
            assert_eq!(ibv_query_gid(w.context, 1, index as c_int, &mut gid), 0);
            assert_eq!((entry.gid.raw, entry.gid_index as usize), (gid.raw, index));
            assert_eq!((entry.gid_type, entry.port_num), (IBV_GID_TYPE_ROCE_V2, 1));
        }
        let small = _ibv_query_gid_table(
            w.context,
            all.as_mut_ptr(),
            1,
            0,
            size_of::<ibv_gid_entry>(),
        );
        assert_eq!(small, -(EINVAL as isize));
        assert_eq!(
            all[1].gid.raw[..12],
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]
        );
    }
}

#[test]
fn a_context_is_the_end_of_a_table_of_the_newest_size() {
    let w = World::new();
    assert_eq!(w.table().sz, size_of::<verbs_context>());
    unsafe {
        assert_eq!((*w.context).abi_compat.addr(), usize::MAX);
        assert!((*w.context).cmd_fd >= 0 && (*w.context).async_fd >= 0);
        // Behind the public part of a device libraries of vendors look for a table of theirs.
        let device = (*w.context).device;
        assert_eq!(ibv_get_device_guid(device), {
            let mut attr = ibv_device_attr::zeroed();
            ibv_query_device(w.context, &mut attr);
            attr.node_guid
        });
        assert_ne!(*device.add(1).cast::<u64>(), 0);
    }
}

/// Programs keep a device's name in a structure of their own, and ask for it there.
#[test]
fn a_device_that_a_program_has_built_by_hand_has_the_name_it_says() {
    let w = World::new();
    unsafe {
        let real = (*w.context).device;
        let mut own = ibv_device::zeroed();
        own.name = (*real).name;
        assert_eq!(
            ibv_get_device_name(&mut own),
            (&raw const own.name).cast::<c_char>()
        );
        assert_eq!(ibv_get_device_guid(&mut own), ibv_get_device_guid(real));
        assert_eq!(ibv_get_device_index(&mut own), ibv_get_device_index(real));
        own.name[0] = b'?' as c_char;
        assert_eq!(ibv_get_device_index(&mut own), -1);
        assert_eq!(ibv_get_device_guid(&mut own), 0);
    }
}
