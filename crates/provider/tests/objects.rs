//! Objects that hold each other, and what they say of themselves.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "the tests are a C program in all but syntax"
)]

mod common;

use std::ffi::c_int;
use std::ptr::null_mut;

use adverb_abi::types::*;
use adverb_provider::calls::*;
use common::{World, errno};

const EBUSY: c_int = libc::EBUSY;
const EINVAL: c_int = libc::EINVAL;

#[test]
fn a_domain_is_busy_until_the_last_object_in_it_is_gone() {
    let w = World::new();
    let mut memory = [0u64; 8];
    unsafe {
        let mr = w.register(&mut memory, IBV_ACCESS_LOCAL_WRITE);
        assert_eq!(ibv_dealloc_pd(w.pd), EBUSY);
        assert_eq!(ibv_dereg_mr(mr), 0);
        let qp = w.qp(IBV_QPT_UD);
        assert_eq!(ibv_dealloc_pd(w.pd), EBUSY);
        assert_eq!(ibv_destroy_cq(w.cq), EBUSY);
        assert_eq!(ibv_destroy_comp_channel(w.channel), EBUSY);
        assert_eq!(ibv_destroy_qp(qp), 0);
        let ah = ibv_create_ah(w.pd, &mut w.address());
        assert!(!ah.is_null());
        assert_eq!(ibv_dealloc_pd(w.pd), EBUSY);
        assert_eq!(ibv_destroy_ah(ah), 0);
        assert_eq!(ibv_dealloc_pd(w.pd), 0);
        assert_eq!(ibv_destroy_cq(w.cq), 0);
        assert_eq!(ibv_destroy_comp_channel(w.channel), 0);
        assert_eq!(ibv_close_device(w.context), 0);
    }
}

#[test]
fn a_parent_domain_holds_its_domain_and_its_thread_domain() {
    let w = World::new();
    let mut memory = [0u64; 8];
    let table = w.table();
    unsafe {
        let td = table.alloc_td.unwrap()(w.context, &mut ibv_td_init_attr { comp_mask: 0 });
        let mut attr = ibv_parent_domain_init_attr::zeroed();
        attr.pd = w.pd;
        attr.td = td;
        let parent = table.alloc_parent_domain.unwrap()(w.context, &mut attr);
        assert!(!parent.is_null());
        assert_eq!(table.dealloc_td.unwrap()(td), EBUSY);
        assert_eq!(ibv_dealloc_pd(w.pd), EBUSY);
        let mr = ibv_reg_mr(parent, memory.as_mut_ptr().cast(), 64, 0);
        assert_eq!((*mr).pd, parent);
        assert_eq!(ibv_dealloc_pd(parent), EBUSY);
        assert_eq!(ibv_dereg_mr(mr), 0);
        assert_eq!(ibv_dealloc_pd(parent), 0);
        assert_eq!(table.dealloc_td.unwrap()(td), 0);
        assert_eq!(ibv_dealloc_pd(w.pd), 0);
    }
}

#[test]
fn a_failed_rereg_leaves_the_region_as_it_was() {
    let w = World::new();
    let mut memory = [0u64; 16];
    unsafe {
        let mr = w.register(&mut memory, IBV_ACCESS_LOCAL_WRITE);
        let (addr, lkey) = ((*mr).addr, (*mr).lkey);
        let translation = IBV_REREG_MR_CHANGE_TRANSLATION as c_int;
        let access = IBV_REREG_MR_CHANGE_ACCESS as c_int;
        let (input, command) = (IBV_REREG_MR_ERR_INPUT, IBV_REREG_MR_ERR_CMD);
        let unmapped = std::ptr::without_provenance_mut(4096);
        for (flags, place, length, bits, code, why) in [
            (1 << 7, null_mut(), 0, 0, input, EINVAL),
            (translation, null_mut(), 8, 0, input, EINVAL),
            (translation, addr, 0, 0, input, EINVAL),
            (translation, addr, 8, 1, input, EINVAL),
            (0, null_mut(), 0, 0, command, EINVAL),
            (
                access,
                null_mut(),
                0,
                IBV_ACCESS_REMOTE_WRITE as c_int,
                command,
                EINVAL,
            ),
            (translation, unmapped, 8, 0, command, libc::EFAULT),
        ] {
            assert_eq!(
                ibv_rereg_mr(mr, flags, null_mut(), place, length, bits),
                code
            );
            assert_eq!(errno(), why);
        }
        assert_eq!(((*mr).addr, (*mr).length, (*mr).lkey), (addr, 128, lkey));

        let half = memory.as_mut_ptr().wrapping_add(8).cast();
        assert_eq!(ibv_rereg_mr(mr, translation, null_mut(), half, 64, 0), 0);
        assert_eq!(((*mr).addr, (*mr).length), (half, 64));
        let other = ibv_alloc_pd(w.context);
        assert_eq!(
            ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD as c_int, other, null_mut(), 0, 0),
            0
        );
        assert_eq!((*mr).pd, other);
        assert_eq!(ibv_dealloc_pd(other), EBUSY);
        assert_eq!(ibv_dereg_mr(mr), 0);
        assert_eq!(ibv_dealloc_pd(other), 0);
    }
}

#[test]
fn granted_sizes_are_written_back_and_queried() {
    let w = World::new();
    unsafe {
        let mut init = w.init_attr(IBV_QPT_RC);
        let asked = init.cap;
        let qp = ibv_create_qp(w.pd, &mut init);
        assert!(init.cap.max_send_wr >= asked.max_send_wr && init.cap.max_inline_data >= 64);
        let (mut attr, mut creation) = (ibv_qp_attr::zeroed(), ibv_qp_init_attr::zeroed());
        assert_eq!(ibv_query_qp(qp, &mut attr, 0, &mut creation), 0);
        assert_eq!(attr.qp_state, IBV_QPS_RESET);
        assert_eq!(attr.cap.max_send_wr, init.cap.max_send_wr);
        assert_eq!(
            (creation.qp_type, creation.send_cq, creation.recv_cq),
            (IBV_QPT_RC, w.cq, w.cq)
        );
        assert_eq!(creation.cap.max_recv_sge, init.cap.max_recv_sge);
    }
}

#[test]
fn a_refused_modify_changes_nothing_and_an_accepted_one_shows_in_the_struct() {
    let w = World::new();
    unsafe {
        let qp = w.qp(IBV_QPT_RC);
        let mut attr = ibv_qp_attr::zeroed();
        attr.qp_state = IBV_QPS_RTR;
        assert_eq!(ibv_modify_qp(qp, &mut attr, IBV_QP_STATE as c_int), EINVAL);
        attr.qp_state = 17;
        assert_eq!(ibv_modify_qp(qp, &mut attr, IBV_QP_STATE as c_int), EINVAL);
        assert_eq!(ibv_modify_qp(qp, &mut attr, 1 << 30), EINVAL);
        assert_eq!((*qp).state, IBV_QPS_RESET);
        w.init(qp, 0);
        assert_eq!((*qp).state, IBV_QPS_INIT);
        // An address without GRH does not exist on RoCE, and nor does a second port.
        attr = ibv_qp_attr::zeroed();
        attr.qp_state = IBV_QPS_RTR;
        attr.path_mtu = IBV_MTU_1024;
        attr.ah_attr = w.address();
        attr.ah_attr.is_global = 0;
        let rtr = IBV_QP_STATE
            | IBV_QP_AV
            | IBV_QP_PATH_MTU
            | IBV_QP_DEST_QPN
            | IBV_QP_RQ_PSN
            | IBV_QP_MAX_DEST_RD_ATOMIC
            | IBV_QP_MIN_RNR_TIMER;
        assert_eq!(ibv_modify_qp(qp, &mut attr, rtr as c_int), EINVAL);
        attr.ah_attr = w.address();
        attr.ah_attr.port_num = 2;
        assert_eq!(ibv_modify_qp(qp, &mut attr, rtr as c_int), EINVAL);
        attr.ah_attr = w.address();
        attr.ah_attr.grh.sgid_index = 200;
        assert_eq!(ibv_modify_qp(qp, &mut attr, rtr as c_int), EINVAL);
        assert_eq!((*qp).state, IBV_QPS_INIT);
    }
}

#[test]
fn an_srq_shows_its_limit_and_refuses_to_shrink_below_it() {
    let w = World::new();
    unsafe {
        let mut init = ibv_srq_init_attr::zeroed();
        init.attr = ibv_srq_attr {
            max_wr: 16,
            max_sge: 1,
            srq_limit: 0,
        };
        let srq = ibv_create_srq(w.pd, &mut init);
        assert!(!srq.is_null() && init.attr.max_wr >= 16);
        let mut attr = ibv_srq_attr {
            max_wr: 0,
            max_sge: 0,
            srq_limit: 4,
        };
        assert_eq!(ibv_modify_srq(srq, &mut attr, IBV_SRQ_LIMIT as c_int), 0);
        assert_eq!(ibv_query_srq(srq, &mut attr), 0);
        assert_eq!(attr.srq_limit, 4);
        attr.srq_limit = 1000;
        assert_eq!(
            ibv_modify_srq(srq, &mut attr, IBV_SRQ_LIMIT as c_int),
            EINVAL
        );
        assert_eq!(ibv_modify_srq(srq, &mut attr, 4), EINVAL);
        let mut with_srq = w.init_attr(IBV_QPT_UC);
        with_srq.srq = srq;
        assert!(ibv_create_qp(w.pd, &mut with_srq).is_null());
        assert_eq!(errno(), EINVAL);
        with_srq = w.init_attr(IBV_QPT_RC);
        with_srq.srq = srq;
        let qp = ibv_create_qp(w.pd, &mut with_srq);
        assert_eq!(
            (with_srq.cap.max_recv_wr, with_srq.cap.max_recv_sge),
            (0, 0)
        );
        assert_eq!(
            w.post_recv(
                qp,
                1,
                &mut ibv_sge {
                    addr: 0,
                    length: 0,
                    lkey: 0
                }
            ),
            EINVAL
        );
        assert_eq!(ibv_destroy_srq(srq), EBUSY);
        assert_eq!(ibv_destroy_qp(qp), 0);
        assert_eq!(ibv_destroy_srq(srq), 0);
    }
}

#[test]
fn extended_creation_refuses_what_the_device_has_not() {
    let w = World::new();
    let table = w.table();
    unsafe {
        let mut cq = ibv_cq_init_attr_ex::zeroed();
        cq.cqe = 4;
        cq.wc_flags = IBV_WC_EX_WITH_CVLAN;
        assert!(table.create_cq_ex.unwrap()(w.context, &mut cq).is_null());
        assert_eq!(errno(), libc::EOPNOTSUPP);
        cq.wc_flags = IBV_WC_EX_WITH_BYTE_LEN;
        cq.comp_mask = 1 << 9;
        assert!(table.create_cq_ex.unwrap()(w.context, &mut cq).is_null());
        assert_eq!(errno(), EINVAL);
        cq.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
        cq.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
        let made = table.create_cq_ex.unwrap()(w.context, &mut cq);
        assert!((*made).read_byte_len.is_some() && (*made).read_imm_data.is_none());
        assert_eq!(ibv_destroy_cq(made.cast()), 0);

        assert!(w.qp_ex(IBV_QPT_UD, IBV_QP_EX_WITH_RDMA_READ).is_null());
        assert_eq!(errno(), libc::EOPNOTSUPP);
        assert!(ibv_qp_to_qp_ex(w.qp(IBV_QPT_RC)).is_null());
        let qp = ibv_qp_to_qp_ex(w.qp_ex(IBV_QPT_RC, IBV_QP_EX_WITH_SEND));
        assert!((*qp).wr_send.is_some() && (*qp).wr_rdma_read.is_none());

        let mut srq = ibv_srq_init_attr_ex::zeroed();
        srq.attr = ibv_srq_attr {
            max_wr: 4,
            max_sge: 1,
            srq_limit: 0,
        };
        srq.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
        srq.pd = w.pd;
        srq.srq_type = IBV_SRQT_XRC;
        assert!(table.create_srq_ex.unwrap()(w.context, &mut srq).is_null());
        assert_eq!(errno(), EINVAL, "an XRC SRQ needs its domain and CQ");
        srq.srq_type = IBV_SRQT_BASIC;
        let srq = table.create_srq_ex.unwrap()(w.context, &mut srq);
        assert_eq!(ibv_destroy_srq(srq), 0);
    }
}

#[test]
fn a_queue_pair_has_no_vendor_options_and_takes_none() {
    let w = World::new();
    unsafe {
        let qp = w.qp(IBV_QPT_UD);
        let mut ece = ibv_ece::zeroed();
        ece.vendor_id = 7;
        assert_eq!(ibv_query_ece(qp, &mut ece), 0);
        assert_eq!((ece.vendor_id, ece.options), (0, 0));
        assert_eq!(ibv_set_ece(qp, &mut ece), 0);
        assert_eq!(ibv_destroy_qp(qp), 0);
    }
}
