//! The names of libefa. No device here is one of theirs.

macro_rules! efa {
    ($row:ident) => {
        $row!(efadv_create_driver_qp, pointer, "EFA_1.0");
        $row!(efadv_create_qp_ex, pointer, "EFA_1.1");
        $row!(efadv_query_ah, errno, "EFA_1.1");
        $row!(efadv_query_device, errno, "EFA_1.1");
        $row!(efadv_cq_from_ibv_cq_ex, pointer, "EFA_1.2");
        $row!(efadv_create_cq, pointer, "EFA_1.2");
        $row!(efadv_query_mr, errno, "EFA_1.3");
        $row!(efadv_query_cq, errno, "EFA_1.4");
        $row!(efadv_query_qp_wqs, errno, "EFA_1.4");
        $row!(efadv_get_max_rq_depth, minus_one, "EFA_1.5");
        $row!(efadv_get_max_sq_depth, minus_one, "EFA_1.5");
        $row!(efadv_qp_from_ibv_qp_ex, pointer, "EFA_1.6");
        $row!(efadv_create_comp_cntr, pointer, "EFA_1.7");
    };
}
pub(crate) use efa;
