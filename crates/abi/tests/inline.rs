//! The inline verbs against a provider made of a few functions that note how they were called.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};

use adverb_abi::Verbs;
use adverb_abi::inline::*;
use adverb_abi::types::*;

/// A context in its table, of the size a library of that age would state.
fn context(sz: usize) -> Box<verbs_context> {
    let mut table = Box::new(verbs_context::zeroed());
    table.sz = sz;
    table.context.abi_compat = std::ptr::without_provenance_mut(VERBS_ABI_IS_EXTENDED);
    table
}

/// The pointer a program would hold: derived from the whole table, as the library's own is.
fn inner(table: &mut verbs_context) -> *mut ibv_context {
    let table: *mut verbs_context = table;
    // SAFETY: the table is live; only the address of its last member is taken.
    unsafe { &raw mut (*table).context }
}

const NEWEST: usize = size_of::<verbs_context>();
/// What rdma-core 44 states: six slots fewer.
const OF_44: usize = NEWEST - 6 * size_of::<usize>();

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

unsafe extern "C" fn sized_query_port(
    _context: *mut ibv_context,
    port_num: u8,
    attr: *mut ibv_port_attr,
    size: usize,
) -> c_int {
    assert_eq!(size, 56);
    // SAFETY: the caller hands over a port attribute of that size.
    unsafe { (*attr).lid = u16::from(port_num) };
    0
}

unsafe extern "C" fn old_query_port(
    _context: *mut ibv_context,
    _port_num: u8,
    attr: *mut ibv_port_attr,
) -> c_int {
    // SAFETY: as in the exported function: only the first 48 bytes are touched.
    unsafe { (*attr).sm_lid = 77 };
    0
}

unsafe extern "C" fn query_device(_: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int {
    // SAFETY: the caller hands over a device attribute.
    unsafe { (*attr).max_qp = 5 };
    0
}

unsafe extern "C" fn query_device_ex_unsupported(
    _: *mut ibv_context,
    _: *const ibv_query_device_ex_input,
    attr: *mut ibv_device_attr_ex,
    size: usize,
) -> c_int {
    assert_eq!(size, 400);
    // SAFETY: the caller hands over an extended device attribute.
    unsafe { (*attr).hca_core_clock = 9 };
    libc::EOPNOTSUPP
}

unsafe extern "C" fn create_qp(_: *mut ibv_pd, _: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    std::ptr::without_provenance_mut(0x10)
}

unsafe extern "C" fn create_qp_ex(_: *mut ibv_context, _: *mut ibv_qp_init_attr_ex) -> *mut ibv_qp {
    std::ptr::without_provenance_mut(0x20)
}

unsafe extern "C" fn create_srq(_: *mut ibv_pd, _: *mut ibv_srq_init_attr) -> *mut ibv_srq {
    std::ptr::without_provenance_mut(0x30)
}

static PLAIN_ACCESS: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn reg_mr(
    _: *mut ibv_pd,
    _: *mut c_void,
    _: usize,
    access: c_int,
) -> *mut ibv_mr {
    PLAIN_ACCESS.store(access as usize, Ordering::Relaxed);
    std::ptr::without_provenance_mut(0x40)
}

unsafe extern "C" fn reg_mr_iova2(
    _: *mut ibv_pd,
    addr: *mut c_void,
    _: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    assert_eq!(iova, addr.addr() as u64);
    assert_ne!(access & IBV_ACCESS_OPTIONAL_RANGE, 0);
    std::ptr::without_provenance_mut(0x50)
}

/// A table whose other functions must not be called.
fn verbs() -> Verbs {
    macro_rules! never {
        ($($name:ident($($ty:ty),*) $(-> $ret:ty)?),* $(,)?) => {
            $(unsafe extern "C" fn $name($(_: $ty),*) $(-> $ret)? {
                unreachable!("{} must not be called", stringify!($name))
            })*
        };
    }
    never! {
        get_device_list(*mut c_int) -> *mut *mut ibv_device,
        free_device_list(*mut *mut ibv_device),
        get_device_name(*mut ibv_device) -> *const c_char,
        get_device_guid(*mut ibv_device) -> u64,
        node_type_str(ibv_node_type) -> *const c_char,
        text(c_uint) -> *const c_char,
        open_device(*mut ibv_device) -> *mut ibv_context,
        of_context(*mut ibv_context) -> c_int,
        get_async_event(*mut ibv_context, *mut ibv_async_event) -> c_int,
        ack_async_event(*mut ibv_async_event),
        query_gid(*mut ibv_context, u8, c_int, *mut ibv_gid) -> c_int,
        query_pkey(*mut ibv_context, u8, c_int, *mut u16) -> c_int,
        alloc_pd(*mut ibv_context) -> *mut ibv_pd,
        dealloc_pd(*mut ibv_pd) -> c_int,
        rereg_mr(*mut ibv_mr, c_int, *mut ibv_pd, *mut c_void, usize, c_int) -> c_int,
        dereg_mr(*mut ibv_mr) -> c_int,
        create_comp_channel(*mut ibv_context) -> *mut ibv_comp_channel,
        destroy_comp_channel(*mut ibv_comp_channel) -> c_int,
        create_cq(*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq,
        resize_cq(*mut ibv_cq, c_int) -> c_int,
        destroy_cq(*mut ibv_cq) -> c_int,
        get_cq_event(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int,
        ack_cq_events(*mut ibv_cq, c_uint),
        modify_qp(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int,
        query_qp(*mut ibv_qp, *mut ibv_qp_attr, c_int, *mut ibv_qp_init_attr) -> c_int,
        destroy_qp(*mut ibv_qp) -> c_int,
        modify_srq(*mut ibv_srq, *mut ibv_srq_attr, c_int) -> c_int,
        query_srq(*mut ibv_srq, *mut ibv_srq_attr) -> c_int,
        destroy_srq(*mut ibv_srq) -> c_int,
        create_ah(*mut ibv_pd, *mut ibv_ah_attr) -> *mut ibv_ah,
        init_ah_from_wc(*mut ibv_context, u8, *mut ibv_wc, *mut ibv_grh, *mut ibv_ah_attr) -> c_int,
        create_ah_from_wc(*mut ibv_pd, *mut ibv_wc, *mut ibv_grh, u8) -> *mut ibv_ah,
        destroy_ah(*mut ibv_ah) -> c_int,
        mcast(*mut ibv_qp, *const ibv_gid, u16) -> c_int,
        fork_init() -> c_int,
    }
    Verbs {
        get_device_list,
        free_device_list,
        get_device_name,
        get_device_guid,
        node_type_str,
        port_state_str: text,
        event_type_str: text,
        wc_status_str: text,
        open_device,
        close_device: of_context,
        get_async_event,
        ack_async_event,
        query_device,
        query_port: old_query_port,
        query_gid,
        query_pkey,
        alloc_pd,
        dealloc_pd,
        reg_mr,
        rereg_mr,
        dereg_mr,
        create_comp_channel,
        destroy_comp_channel,
        create_cq,
        resize_cq,
        destroy_cq,
        get_cq_event,
        ack_cq_events,
        create_qp,
        modify_qp,
        query_qp,
        destroy_qp,
        create_srq,
        modify_srq,
        query_srq,
        destroy_srq,
        create_ah,
        init_ah_from_wc,
        create_ah_from_wc,
        destroy_ah,
        attach_mcast: mcast,
        detach_mcast: mcast,
        fork_init,
        get_pkey_index: None,
        qp_to_qp_ex: None,
        reg_mr_iova: None,
        reg_mr_iova2: None,
        read_sysfs_file: None,
        get_device_index: None,
        query_ece: None,
        set_ece: None,
        import_device: None,
        import_pd: None,
        unimport_pd: None,
        import_mr: None,
        unimport_mr: None,
        query_gid_ex: None,
        query_gid_table: None,
        reg_dmabuf_mr: None,
        is_fork_initialized: None,
        import_dm: None,
        unimport_dm: None,
        query_qp_data_in_order: None,
        alloc_dmah: None,
        dealloc_dmah: None,
        reg_mr_ex: None,
        dm_export_dmabuf_fd: None,
        query_port_speed: None,
        alloc_buf: None,
        free_buf: None,
    }
}

#[test]
fn query_port_takes_the_sized_slot_and_hands_over_the_full_size() {
    let mut table = context(OF_44);
    table.query_port = Some(sized_query_port);
    let mut attr = ibv_port_attr::zeroed();
    // SAFETY: all pointers are to live values of this test.
    let status = unsafe { ibv_query_port(&verbs(), inner(&mut table), 3, &mut attr) };
    assert_eq!(status, 0);
    assert_eq!((attr.lid, attr.sm_lid), (3, 0));
}

#[test]
fn query_port_without_the_slot_zeroes_what_the_old_function_does_not_know() {
    // One slot short: the table ends where `query_port` would be, whatever bytes lie there.
    let mut table = context(OF_44 - size_of::<usize>());
    table.query_port = Some(sized_query_port);
    let mut attr = ibv_port_attr::zeroed();
    attr.lid = 1;
    attr.active_speed_ex = 1;
    // SAFETY: all pointers are to live values of this test.
    let status = unsafe { ibv_query_port(&verbs(), inner(&mut table), 3, &mut attr) };
    assert_eq!(status, 0);
    assert_eq!((attr.lid, attr.sm_lid, attr.active_speed_ex), (0, 77, 0));
}

#[test]
fn a_context_without_a_table_has_no_slots() {
    let mut table = context(NEWEST);
    table.query_port = Some(sized_query_port);
    table.context.abi_compat = null_mut();
    let context = inner(&mut table);
    let mut attr = ibv_port_attr::zeroed();
    // SAFETY: all pointers are to live values of this test.
    unsafe {
        assert!(verbs_get_ctx(context).is_null());
        assert_eq!(ibv_query_port(&verbs(), context, 3, &mut attr), 0);
        set_errno(0);
        assert!(ibv_create_cq_ex(context, null_mut()).is_null());
    }
    assert_eq!((attr.sm_lid, errno()), (77, libc::EOPNOTSUPP));
}

#[test]
fn missing_slots_are_eopnotsupp_as_value_or_as_null_with_errno() {
    let mut table = context(NEWEST);
    let context = inner(&mut table);
    let mut pd = ibv_pd { context, handle: 0 };
    // SAFETY: all pointers are to live values of this test; absent functions read no arguments.
    unsafe {
        for null in [
            ibv_alloc_td(context, null_mut()).is_null(),
            ibv_alloc_parent_domain(context, null_mut()).is_null(),
            ibv_open_xrcd(context, null_mut()).is_null(),
            ibv_alloc_mw(&mut pd, IBV_MW_TYPE_1).is_null(),
        ] {
            assert!(null);
            assert_eq!(errno(), libc::EOPNOTSUPP);
        }
        assert_eq!(
            ibv_advise_mr(&mut pd, 0, 0, null_mut(), 0),
            libc::EOPNOTSUPP
        );
        assert_eq!(
            ibv_query_rt_values_ex(context, null_mut()),
            libc::EOPNOTSUPP
        );
        let mut cq = ibv_cq::zeroed();
        cq.context = context;
        assert_eq!(ibv_req_notify_cq(&mut cq, 0), libc::EOPNOTSUPP);
        assert_eq!(ibv_poll_cq(&mut cq, 1, null_mut()), -libc::EOPNOTSUPP);
        let mut qp = ibv_qp_ex::zeroed();
        assert_eq!(ibv_wr_send(&mut qp), libc::EOPNOTSUPP);
        assert_eq!(ibv_wr_complete(&mut qp), libc::EOPNOTSUPP);
        let entry = null_mut();
        assert_eq!(
            ibv_query_gid_ex(&verbs(), context, 1, 0, entry, 0),
            libc::EOPNOTSUPP
        );
        assert_eq!(
            ibv_query_gid_table(&verbs(), context, entry, 0, 0),
            -(libc::EOPNOTSUPP as isize)
        );
    }
}

#[test]
fn query_device_ex_falls_back_on_the_plain_query_and_refuses_unknown_input() {
    let mut table = context(NEWEST);
    table.query_device_ex = Some(query_device_ex_unsupported);
    let mut attr = ibv_device_attr_ex::zeroed();
    let input = ibv_query_device_ex_input { comp_mask: 1 };
    // SAFETY: all pointers are to live values of this test.
    unsafe {
        assert_eq!(
            ibv_query_device_ex(&verbs(), inner(&mut table), null(), &mut attr),
            0
        );
        assert_eq!((attr.orig_attr.max_qp, attr.hca_core_clock), (5, 0));
        let status = ibv_query_device_ex(&verbs(), inner(&mut table), &input, &mut attr);
        assert_eq!(status, libc::EINVAL);
    }
}

#[test]
fn creation_takes_the_plain_call_when_nothing_extended_is_asked_for() {
    let mut table = context(NEWEST);
    table.create_qp_ex = Some(create_qp_ex);
    let context = inner(&mut table);
    let verbs = verbs();
    let mut qp = ibv_qp_init_attr_ex::zeroed();
    let mut srq = ibv_srq_init_attr_ex::zeroed();
    // SAFETY: all pointers are to live values of this test.
    unsafe {
        qp.comp_mask = IBV_QP_INIT_ATTR_PD;
        assert_eq!(ibv_create_qp_ex(&verbs, context, &mut qp).addr(), 0x10);
        qp.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        assert_eq!(ibv_create_qp_ex(&verbs, context, &mut qp).addr(), 0x20);

        srq.comp_mask = IBV_SRQ_INIT_ATTR_PD;
        assert_eq!(ibv_create_srq_ex(&verbs, context, &mut srq).addr(), 0x30);
        srq.comp_mask |= IBV_SRQ_INIT_ATTR_TYPE;
        srq.srq_type = IBV_SRQT_BASIC;
        assert_eq!(ibv_create_srq_ex(&verbs, context, &mut srq).addr(), 0x30);
        srq.srq_type = IBV_SRQT_XRC;
        assert!(ibv_create_srq_ex(&verbs, context, &mut srq).is_null());
    }
}

#[test]
fn registration_with_hints_takes_the_call_that_knows_them_or_drops_the_hints() {
    let access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING;
    let mut verbs = verbs();
    let addr: *mut c_void = std::ptr::without_provenance_mut(0x1000);
    // SAFETY: the functions of this test look at no memory.
    unsafe {
        assert_eq!(ibv_reg_mr(&verbs, null_mut(), addr, 1, access).addr(), 0x40);
        assert_eq!(
            PLAIN_ACCESS.load(Ordering::Relaxed),
            IBV_ACCESS_LOCAL_WRITE as usize
        );
        verbs.reg_mr_iova2 = Some(reg_mr_iova2);
        assert_eq!(ibv_reg_mr(&verbs, null_mut(), addr, 1, access).addr(), 0x50);
        let plain = IBV_ACCESS_LOCAL_WRITE;
        assert_eq!(ibv_reg_mr(&verbs, null_mut(), addr, 1, plain).addr(), 0x40);
    }
}

#[test]
fn bind_mw_checks_window_type_domain_and_range_before_the_provider() {
    unsafe extern "C" fn bind(_: *mut ibv_qp, _: *mut ibv_mw, _: *mut ibv_mw_bind) -> c_int {
        0
    }
    let mut table = context(NEWEST);
    table.context.ops.bind_mw = Some(bind);
    let context = inner(&mut table);
    let mut pd = ibv_pd { context, handle: 0 };
    let mut other = ibv_pd { context, handle: 1 };
    let mut mr = ibv_mr::zeroed();
    mr.pd = &mut pd;
    mr.addr = std::ptr::without_provenance_mut(0x1000);
    mr.length = 0x100;
    let mut mw = ibv_mw::zeroed();
    mw.context = context;
    mw.pd = &mut pd;
    mw.r#type = IBV_MW_TYPE_1;
    let mut request = ibv_mw_bind::zeroed();
    let mr: *mut ibv_mr = &mut mr;
    let mut bind = |mw: &mut ibv_mw, mr: *mut ibv_mr, addr: u64, length: u64| {
        request.bind_info.mr = mr;
        request.bind_info.addr = addr;
        request.bind_info.length = length;
        // SAFETY: all pointers are to live values of this test.
        unsafe { ibv_bind_mw(null_mut(), mw, &mut request) }
    };
    assert_eq!(bind(&mut mw, mr, 0x1000, 0x100), 0);
    assert_eq!(bind(&mut mw, mr, 0x1000, 0x101), libc::EINVAL);
    assert_eq!(bind(&mut mw, mr, 0xfff, 1), libc::EINVAL);
    assert_eq!(bind(&mut mw, mr, 0x1001, u64::MAX), libc::EINVAL);
    assert_eq!(bind(&mut mw, null_mut(), 0, 0), 0);
    assert_eq!(bind(&mut mw, null_mut(), 0, 1), libc::EINVAL);
    mw.pd = &mut other;
    assert_eq!(bind(&mut mw, mr, 0x1000, 1), libc::EPERM);
    mw.r#type = IBV_MW_TYPE_2;
    assert_eq!(bind(&mut mw, mr, 0x1000, 1), libc::EINVAL);
}

#[test]
fn keys_and_ports_are_computed_as_c_does() {
    assert_eq!(ibv_inc_rkey(0x1234_56ff), 0x1234_5600);
    assert_eq!(ibv_inc_rkey(0xffff_ffff), 0xffff_ff00);
    assert_eq!(ibv_flow_label_to_udp_sport(0), 0xc000);
    assert_eq!(ibv_flow_label_to_udp_sport(0x4_0001), 0xc000 | (1 ^ 0x10));
    assert_eq!(
        ibv_flow_label_to_udp_sport(0xf_ffff),
        0xc000 | (0x3fff ^ 0x3f)
    );
}
