//! Our functions as the tables through which the Rust API reaches any provider of verbs.

use std::ffi::{c_int, c_void};

use adverb_abi::table::{Rdmacm, Verbs};
use adverb_abi::types::*;
use adverb_nic::Uncancelled;

use crate::calls::*;

/// The software NIC's verbs. What is not built is `None`, as with a library too old to have it.
pub fn verbs() -> &'static Verbs {
    static VERBS: Verbs = Verbs {
        get_device_list: ibv_get_device_list,
        free_device_list: ibv_free_device_list,
        get_device_name: ibv_get_device_name,
        get_device_guid: ibv_get_device_guid,
        node_type_str: ibv_node_type_str,
        port_state_str: ibv_port_state_str,
        event_type_str: ibv_event_type_str,
        wc_status_str: ibv_wc_status_str,
        open_device: ibv_open_device,
        close_device: ibv_close_device,
        get_async_event,
        ack_async_event: ibv_ack_async_event,
        query_device: ibv_query_device,
        query_port: ibv_query_port,
        query_gid: ibv_query_gid,
        query_pkey: ibv_query_pkey,
        alloc_pd: ibv_alloc_pd,
        dealloc_pd: ibv_dealloc_pd,
        reg_mr: ibv_reg_mr,
        rereg_mr: ibv_rereg_mr,
        dereg_mr: ibv_dereg_mr,
        create_comp_channel: ibv_create_comp_channel,
        destroy_comp_channel: ibv_destroy_comp_channel,
        create_cq: ibv_create_cq,
        resize_cq: ibv_resize_cq,
        destroy_cq: ibv_destroy_cq,
        get_cq_event,
        ack_cq_events: ibv_ack_cq_events,
        create_qp: ibv_create_qp,
        modify_qp: ibv_modify_qp,
        query_qp: ibv_query_qp,
        destroy_qp: ibv_destroy_qp,
        create_srq: ibv_create_srq,
        modify_srq: ibv_modify_srq,
        query_srq: ibv_query_srq,
        destroy_srq: ibv_destroy_srq,
        create_ah: ibv_create_ah,
        init_ah_from_wc: ibv_init_ah_from_wc,
        create_ah_from_wc: ibv_create_ah_from_wc,
        destroy_ah: ibv_destroy_ah,
        attach_mcast: ibv_attach_mcast,
        detach_mcast: ibv_detach_mcast,
        fork_init: ibv_fork_init,
        get_pkey_index: Some(ibv_get_pkey_index),
        qp_to_qp_ex: Some(ibv_qp_to_qp_ex),
        reg_mr_iova: Some(ibv_reg_mr_iova),
        reg_mr_iova2: Some(ibv_reg_mr_iova2),
        read_sysfs_file: Some(ibv_read_sysfs_file),
        get_device_index: Some(ibv_get_device_index),
        query_ece: Some(ibv_query_ece),
        set_ece: Some(ibv_set_ece),
        import_device: Some(ibv_import_device),
        import_pd: Some(ibv_import_pd),
        unimport_pd: Some(ibv_unimport_pd),
        import_mr: Some(ibv_import_mr),
        unimport_mr: Some(ibv_unimport_mr),
        query_gid_ex: Some(_ibv_query_gid_ex),
        query_gid_table: Some(_ibv_query_gid_table),
        reg_dmabuf_mr: Some(ibv_reg_dmabuf_mr),
        is_fork_initialized: Some(ibv_is_fork_initialized),
        import_dm: Some(ibv_import_dm),
        unimport_dm: Some(ibv_unimport_dm),
        query_qp_data_in_order: Some(ibv_query_qp_data_in_order),
        alloc_dmah: None,
        dealloc_dmah: None,
        reg_mr_ex: None,
        dm_export_dmabuf_fd: None,
        query_port_speed: Some(ibv_query_port_speed),
        alloc_buf: None,
        free_buf: None,
    };
    &VERBS
}

/// The software NIC's connection manager.
pub fn rdmacm() -> &'static Rdmacm {
    static RDMACM: Rdmacm = Rdmacm {
        create_event_channel: rdma_create_event_channel,
        destroy_event_channel: rdma_destroy_event_channel,
        create_id: rdma_create_id,
        destroy_id: rdma_destroy_id,
        migrate_id: rdma_migrate_id,
        bind_addr: rdma_bind_addr,
        resolve_addr: rdma_resolve_addr,
        resolve_route: rdma_resolve_route,
        listen: rdma_listen,
        get_request: rdma_get_request,
        connect: rdma_connect,
        accept: rdma_accept,
        reject: rdma_reject,
        notify: rdma_notify,
        disconnect: rdma_disconnect,
        get_cm_event,
        ack_cm_event: rdma_ack_cm_event,
        event_str: rdma_event_str,
        get_src_port: rdma_get_src_port,
        get_dst_port: rdma_get_dst_port,
        set_option: rdma_set_option,
        create_qp: rdma_create_qp,
        create_qp_ex: rdma_create_qp_ex,
        destroy_qp: rdma_destroy_qp,
        create_srq: rdma_create_srq,
        create_srq_ex: rdma_create_srq_ex,
        destroy_srq: rdma_destroy_srq,
        getaddrinfo: rdma_getaddrinfo,
        freeaddrinfo: rdma_freeaddrinfo,
        create_ep: rdma_create_ep,
        destroy_ep: rdma_destroy_ep,
        join_multicast: rdma_join_multicast,
        leave_multicast: rdma_leave_multicast,
        get_devices: rdma_get_devices,
        free_devices: rdma_free_devices,
        establish: rdma_establish,
        init_qp_attr: rdma_init_qp_attr,
        join_multicast_ex: Some(rdma_join_multicast_ex),
        reject_ece: Some(rdma_reject_ece),
        set_local_ece: Some(rdma_set_local_ece),
        get_remote_ece: Some(rdma_get_remote_ece),
        write_cm_event: Some(rdma_write_cm_event),
    };
    &RDMACM
}

// The Rust API's callers must not be unwound, so for them the calls that wait are no cancellation points.

unsafe extern "C" fn get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    let _uncancelled = Uncancelled::new();
    // SAFETY: as our caller promises.
    unsafe { ibv_get_async_event(context, event) }
}

unsafe extern "C" fn get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    let _uncancelled = Uncancelled::new();
    // SAFETY: as our caller promises.
    unsafe { ibv_get_cq_event(channel, cq, cq_context) }
}

unsafe extern "C" fn get_cm_event(
    channel: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> c_int {
    let _uncancelled = Uncancelled::new();
    // SAFETY: as our caller promises.
    unsafe { rdma_get_cm_event(channel, event) }
}
