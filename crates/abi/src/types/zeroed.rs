//! Zeroed values: how C programs start every argument structure.

use super::*;

/// Types for which all-zero bytes are a valid value.
///
/// # Safety
/// The implementor holds nothing but integers, raw pointers, `Option`s of function pointers,
/// C mutexes and conditions, and arrays or unions of these.
pub unsafe trait Zeroed: Sized {
    /// The value whose bytes are all zero.
    fn zeroed() -> Self {
        // SAFETY: the implementor promises that zero bytes are a valid value.
        unsafe { std::mem::zeroed() }
    }
}

macro_rules! zeroed {
    ($($name:ident),* $(,)?) => {
        $(
            // SAFETY: the structure has only fields of the kinds the trait lists.
            unsafe impl Zeroed for $name {}
        )*
    };
}

zeroed! {
    ibv_gid, ibv_gid_global, ibv_gid_entry, ibv_device, PaddedDevice, ibv_device_attr,
    ibv_query_device_ex_input, ibv_odp_caps, ibv_odp_transport_caps, ibv_tso_caps, ibv_rss_caps,
    ibv_packet_pacing_caps, ibv_tm_caps, ibv_cq_moderation_caps, ibv_pci_atomic_caps,
    ibv_device_attr_ex, ibv_port_attr, ibv_values_ex, ibv_context, ibv_context_ops,
    verbs_context, ibv_pd, ibv_mr, ibv_mr_init_attr, ibv_mw, ibv_mw_bind_info, ibv_mw_bind,
    ibv_td_init_attr, ibv_td, ibv_parent_domain_init_attr, ibv_xrcd_init_attr, ibv_xrcd,
    ibv_alloc_dm_attr, ibv_dm, ibv_dmah_init_attr, ibv_dmah, ibv_comp_channel, ibv_cq, ibv_wc,
    ibv_imm_or_rkey, ibv_cq_init_attr_ex, ibv_poll_cq_attr, ibv_wc_tm_info, ibv_cq_ex,
    ibv_moderate_cq, ibv_modify_cq_attr, ibv_comp_cntr_caps, ibv_comp_cntr,
    ibv_comp_cntr_init_attr, ibv_qp_attach_comp_cntr_attr, ibv_qp, ibv_qp_cap, ibv_qp_init_attr,
    ibv_rx_hash_conf, ibv_qp_init_attr_ex, ibv_qp_open_attr, ibv_qp_attr, ibv_qp_rate_limit_attr,
    ibv_qp_ex, ibv_ece, ibv_sge, ibv_data_buf, ibv_recv_wr, ibv_send_wr, ibv_send_wr_target,
    ibv_send_wr_rdma, ibv_send_wr_atomic, ibv_send_wr_ud, ibv_send_wr_qp_type, ibv_send_wr_xrc,
    ibv_send_wr_extra, ibv_send_wr_bind_mw, ibv_send_wr_tso, ibv_ops_wr, ibv_ops_wr_tm,
    ibv_ops_wr_tm_add, ibv_srq, ibv_srq_attr, ibv_srq_init_attr, ibv_tm_cap,
    ibv_srq_init_attr_ex, ibv_global_route, ibv_grh, ibv_ah_attr, ibv_ah, ibv_async_event,
    ibv_async_event_element, ibv_wq, ibv_wq_init_attr, ibv_wq_attr, ibv_rwq_ind_table,
    ibv_rwq_ind_table_init_attr, ibv_flow_attr, ibv_flow, ibv_flow_action,
    ibv_flow_action_esp_attr, ibv_counters, ibv_counters_init_attr, ibv_counter_attach_attr,
    ibv_sa_path_rec, ibv_sa_mcmember_rec, ibv_path_record, ibv_path_data, rdma_ib_addr,
    rdma_addr, rdma_sockaddr, rdma_addr_transport, rdma_route, rdma_event_channel, rdma_cm_id,
    rdma_conn_param, rdma_ud_param, rdma_cm_event, rdma_cm_event_param, rdma_addrinfo,
    rdma_cm_join_mc_attr_ex,
}
