//! The names of libmlx5. No device here is one of theirs, and `mlx5dv_is_supported` says so.

macro_rules! mlx5 {
    ($row:ident) => {
        $row!(mlx5dv_query_device, errno, "MLX5_1.0");
        $row!(mlx5dv_create_cq, pointer, "MLX5_1.1");
        $row!(mlx5dv_init_obj, errno, "MLX5_1.2", "MLX5_1.0");
        $row!(mlx5dv_set_context_attr, errno, "MLX5_1.2");
        $row!(mlx5dv_create_qp, pointer, "MLX5_1.3");
        $row!(mlx5dv_create_wq, pointer, "MLX5_1.3");
        $row!(mlx5dv_get_clock_info, errno, "MLX5_1.4");
        $row!(mlx5dv_create_flow_action_esp, pointer, "MLX5_1.5");
        $row!(mlx5dv_create_flow, pointer, "MLX5_1.6");
        $row!(mlx5dv_create_flow_matcher, pointer, "MLX5_1.6");
        $row!(mlx5dv_destroy_flow_matcher, errno, "MLX5_1.6");
        $row!(mlx5dv_create_flow_action_modify_header, pointer, "MLX5_1.7");
        $row!(
            mlx5dv_create_flow_action_packet_reformat,
            pointer,
            "MLX5_1.7"
        );
        $row!(mlx5dv_devx_alloc_uar, pointer, "MLX5_1.7");
        $row!(mlx5dv_devx_free_uar, nothing, "MLX5_1.7");
        $row!(mlx5dv_devx_general_cmd, errno, "MLX5_1.7");
        $row!(mlx5dv_devx_obj_create, pointer, "MLX5_1.7");
        $row!(mlx5dv_devx_obj_destroy, errno, "MLX5_1.7");
        $row!(mlx5dv_devx_obj_modify, errno, "MLX5_1.7");
        $row!(mlx5dv_devx_obj_query, errno, "MLX5_1.7");
        $row!(mlx5dv_devx_query_eqn, errno, "MLX5_1.7");
        $row!(mlx5dv_devx_umem_dereg, errno, "MLX5_1.7");
        $row!(mlx5dv_devx_umem_reg, pointer, "MLX5_1.7");
        $row!(mlx5dv_open_device, pointer, "MLX5_1.7");
        $row!(mlx5dv_devx_cq_modify, errno, "MLX5_1.8");
        $row!(mlx5dv_devx_cq_query, errno, "MLX5_1.8");
        $row!(mlx5dv_devx_ind_tbl_modify, errno, "MLX5_1.8");
        $row!(mlx5dv_devx_ind_tbl_query, errno, "MLX5_1.8");
        $row!(mlx5dv_devx_qp_modify, errno, "MLX5_1.8");
        $row!(mlx5dv_devx_qp_query, errno, "MLX5_1.8");
        $row!(mlx5dv_devx_srq_modify, errno, "MLX5_1.8");
        $row!(mlx5dv_devx_srq_query, errno, "MLX5_1.8");
        $row!(mlx5dv_devx_wq_modify, errno, "MLX5_1.8");
        $row!(mlx5dv_devx_wq_query, errno, "MLX5_1.8");
        $row!(mlx5dv_is_supported, nothing, "MLX5_1.8");
        $row!(mlx5dv_devx_create_cmd_comp, pointer, "MLX5_1.9");
        $row!(mlx5dv_devx_destroy_cmd_comp, nothing, "MLX5_1.9");
        $row!(mlx5dv_devx_get_async_cmd_comp, errno, "MLX5_1.9");
        $row!(mlx5dv_devx_obj_query_async, errno, "MLX5_1.9");
        $row!(mlx5dv_alloc_dm, pointer, "MLX5_1.10");
        $row!(mlx5dv_create_mkey, pointer, "MLX5_1.10");
        $row!(mlx5dv_destroy_mkey, errno, "MLX5_1.10");
        $row!(mlx5dv_dr_action_create_dest_ibv_qp, pointer, "MLX5_1.10");
        $row!(mlx5dv_dr_action_create_dest_table, pointer, "MLX5_1.10");
        $row!(mlx5dv_dr_action_create_dest_vport, pointer, "MLX5_1.10");
        $row!(mlx5dv_dr_action_create_drop, pointer, "MLX5_1.10");
        $row!(mlx5dv_dr_action_create_flow_counter, pointer, "MLX5_1.10");
        $row!(mlx5dv_dr_action_create_modify_header, pointer, "MLX5_1.10");
        $row!(
            mlx5dv_dr_action_create_packet_reformat,
            pointer,
            "MLX5_1.10"
        );
        $row!(mlx5dv_dr_action_create_tag, pointer, "MLX5_1.10");
        $row!(mlx5dv_dr_action_destroy, errno, "MLX5_1.10");
        $row!(mlx5dv_dr_domain_create, pointer, "MLX5_1.10");
        $row!(mlx5dv_dr_domain_destroy, errno, "MLX5_1.10");
        $row!(mlx5dv_dr_domain_sync, errno, "MLX5_1.10");
        $row!(mlx5dv_dr_matcher_create, pointer, "MLX5_1.10");
        $row!(mlx5dv_dr_matcher_destroy, errno, "MLX5_1.10");
        $row!(mlx5dv_dr_rule_create, pointer, "MLX5_1.10");
        $row!(mlx5dv_dr_rule_destroy, errno, "MLX5_1.10");
        $row!(mlx5dv_dr_table_create, pointer, "MLX5_1.10");
        $row!(mlx5dv_dr_table_destroy, errno, "MLX5_1.10");
        $row!(mlx5dv_qp_ex_from_ibv_qp_ex, pointer, "MLX5_1.10");
        $row!(mlx5dv_devx_create_event_channel, pointer, "MLX5_1.11");
        $row!(mlx5dv_devx_destroy_event_channel, nothing, "MLX5_1.11");
        $row!(mlx5dv_devx_get_event, minus_one, "MLX5_1.11");
        $row!(mlx5dv_devx_subscribe_devx_event, errno, "MLX5_1.11");
        $row!(mlx5dv_devx_subscribe_devx_event_fd, errno, "MLX5_1.11");
        $row!(mlx5dv_alloc_var, pointer, "MLX5_1.12");
        $row!(mlx5dv_dr_action_create_flow_meter, pointer, "MLX5_1.12");
        $row!(mlx5dv_dr_action_modify_flow_meter, errno, "MLX5_1.12");
        $row!(mlx5dv_dump_dr_domain, errno, "MLX5_1.12");
        $row!(mlx5dv_dump_dr_matcher, errno, "MLX5_1.12");
        $row!(mlx5dv_dump_dr_rule, errno, "MLX5_1.12");
        $row!(mlx5dv_dump_dr_table, errno, "MLX5_1.12");
        $row!(mlx5dv_free_var, nothing, "MLX5_1.12");
        $row!(mlx5dv_pp_alloc, pointer, "MLX5_1.13");
        $row!(mlx5dv_pp_free, nothing, "MLX5_1.13");
        $row!(mlx5dv_dr_action_create_default_miss, pointer, "MLX5_1.14");
        $row!(
            mlx5dv_dr_domain_set_reclaim_device_memory,
            nothing,
            "MLX5_1.14"
        );
        $row!(mlx5dv_modify_qp_lag_port, errno, "MLX5_1.14");
        $row!(mlx5dv_query_qp_lag_port, errno, "MLX5_1.14");
        $row!(mlx5dv_dr_action_create_dest_devx_tir, pointer, "MLX5_1.15");
        $row!(mlx5dv_dr_action_create_dest_array, pointer, "MLX5_1.16");
        $row!(mlx5dv_dr_action_create_flow_sampler, pointer, "MLX5_1.16");
        $row!(mlx5dv_dr_action_create_aso, pointer, "MLX5_1.17");
        $row!(mlx5dv_dr_action_create_pop_vlan, pointer, "MLX5_1.17");
        $row!(mlx5dv_dr_action_create_push_vlan, pointer, "MLX5_1.17");
        $row!(mlx5dv_dr_action_modify_aso, errno, "MLX5_1.17");
        $row!(mlx5dv_modify_qp_sched_elem, errno, "MLX5_1.17");
        $row!(mlx5dv_modify_qp_udp_sport, errno, "MLX5_1.17");
        $row!(mlx5dv_sched_leaf_create, pointer, "MLX5_1.17");
        $row!(mlx5dv_sched_leaf_destroy, errno, "MLX5_1.17");
        $row!(mlx5dv_sched_leaf_modify, errno, "MLX5_1.17");
        $row!(mlx5dv_sched_node_create, pointer, "MLX5_1.17");
        $row!(mlx5dv_sched_node_destroy, errno, "MLX5_1.17");
        $row!(mlx5dv_sched_node_modify, errno, "MLX5_1.17");
        $row!(mlx5dv_reserved_qpn_alloc, errno, "MLX5_1.18");
        $row!(mlx5dv_reserved_qpn_dealloc, errno, "MLX5_1.18");
        $row!(_mlx5dv_query_port, errno, "MLX5_1.19");
        $row!(mlx5dv_devx_umem_reg_ex, pointer, "MLX5_1.19");
        $row!(mlx5dv_dm_map_op_addr, pointer, "MLX5_1.19");
        $row!(_mlx5dv_mkey_check, errno, "MLX5_1.20");
        $row!(mlx5dv_dr_domain_allow_duplicate_rules, nothing, "MLX5_1.20");
        $row!(mlx5dv_map_ah_to_qp, errno, "MLX5_1.20");
        $row!(mlx5dv_qp_cancel_posted_send_wrs, errno, "MLX5_1.20");
        $row!(mlx5dv_crypto_login, errno, "MLX5_1.21");
        $row!(mlx5dv_crypto_login_query_state, errno, "MLX5_1.21");
        $row!(mlx5dv_crypto_logout, errno, "MLX5_1.21");
        $row!(mlx5dv_dci_stream_id_reset, errno, "MLX5_1.21");
        $row!(mlx5dv_dek_create, pointer, "MLX5_1.21");
        $row!(mlx5dv_dek_destroy, errno, "MLX5_1.21");
        $row!(mlx5dv_dek_query, errno, "MLX5_1.21");
        $row!(mlx5dv_dr_action_create_dest_ib_port, pointer, "MLX5_1.21");
        $row!(mlx5dv_dr_matcher_set_layout, errno, "MLX5_1.21");
        $row!(mlx5dv_get_vfio_device_list, pointer, "MLX5_1.21");
        $row!(mlx5dv_vfio_get_events_fd, minus_one, "MLX5_1.21");
        $row!(mlx5dv_vfio_process_events, errno, "MLX5_1.21");
        $row!(mlx5dv_dr_aso_other_domain_link, errno, "MLX5_1.22");
        $row!(mlx5dv_dr_aso_other_domain_unlink, errno, "MLX5_1.22");
        $row!(mlx5dv_devx_alloc_msi_vector, pointer, "MLX5_1.23");
        $row!(mlx5dv_devx_create_eq, pointer, "MLX5_1.23");
        $row!(mlx5dv_devx_destroy_eq, errno, "MLX5_1.23");
        $row!(mlx5dv_devx_free_msi_vector, errno, "MLX5_1.23");
        $row!(mlx5dv_create_steering_anchor, pointer, "MLX5_1.24");
        $row!(mlx5dv_crypto_login_create, pointer, "MLX5_1.24");
        $row!(mlx5dv_crypto_login_destroy, errno, "MLX5_1.24");
        $row!(mlx5dv_crypto_login_query, errno, "MLX5_1.24");
        $row!(mlx5dv_destroy_steering_anchor, errno, "MLX5_1.24");
        $row!(
            mlx5dv_dr_action_create_dest_root_table,
            pointer,
            "MLX5_1.24"
        );
        $row!(mlx5dv_get_data_direct_sysfs_path, errno, "MLX5_1.25");
        $row!(mlx5dv_reg_dmabuf_mr, pointer, "MLX5_1.25");
        $row!(__mlx5dv_create_flow, pointer, "MLX5_1.25.1");
        $row!(mlx5dv_devx_uar_export_dmabuf_fd, minus_one, "MLX5_1.26");
        $row!(_mlx5dv_get_export_sizes, nothing, "MLX5_1.27");
        $row!(mlx5dv_devx_obj_export, errno, "MLX5_1.27");
        $row!(mlx5dv_devx_obj_import, pointer, "MLX5_1.27");
        $row!(mlx5dv_devx_obj_unimport, nothing, "MLX5_1.27");
        $row!(mlx5dv_devx_umem_export, errno, "MLX5_1.27");
        $row!(mlx5dv_devx_umem_import, pointer, "MLX5_1.27");
        $row!(mlx5dv_devx_umem_unimport, nothing, "MLX5_1.27");
        $row!(mlx5dv_var_export, errno, "MLX5_1.27");
        $row!(mlx5dv_var_import, pointer, "MLX5_1.27");
        $row!(mlx5dv_var_unimport, nothing, "MLX5_1.27");
    };
}
pub(crate) use mlx5;
