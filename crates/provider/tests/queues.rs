//! XRC, multicast, moderation and asynchronous events, through the C calls.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "the tests are a C program in all but syntax"
)]

mod common;

use std::ffi::c_int;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::ptr::null_mut;

use adverb_abi::inline;
use adverb_abi::types::*;
use adverb_provider::calls::*;
use common::*;

const ALL: u32 = IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC;

fn open_xrcd(w: &World, fd: c_int, oflags: c_int) -> *mut ibv_xrcd {
    let mut attr = ibv_xrcd_init_attr {
        comp_mask: IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
        fd,
        oflags,
    };
    unsafe { w.table().open_xrcd.expect("slot")(w.context, &mut attr) }
}

fn close_xrcd(w: &World, xrcd: *mut ibv_xrcd) -> c_int {
    unsafe { w.table().close_xrcd.expect("slot")(xrcd) }
}

fn xrc_srq(w: &World, xrcd: *mut ibv_xrcd) -> *mut ibv_srq {
    let mut init = ibv_srq_init_attr_ex::zeroed();
    init.attr.max_wr = 4;
    init.attr.max_sge = 1;
    init.comp_mask = IBV_SRQ_INIT_ATTR_TYPE
        | IBV_SRQ_INIT_ATTR_PD
        | IBV_SRQ_INIT_ATTR_XRCD
        | IBV_SRQ_INIT_ATTR_CQ;
    init.srq_type = IBV_SRQT_XRC;
    init.pd = w.pd;
    init.xrcd = xrcd;
    init.cq = w.cq;
    unsafe { w.table().create_srq_ex.expect("slot")(w.context, &mut init) }
}

fn number(w: &World, srq: *mut ibv_srq) -> u32 {
    let mut number = 0;
    let got = unsafe { w.table().get_srq_num.expect("slot")(srq, &mut number) };
    assert_eq!(got, 0);
    number
}

fn receiver(w: &World, xrcd: *mut ibv_xrcd) -> *mut ibv_qp {
    let mut init = ibv_qp_init_attr_ex::zeroed();
    init.qp_type = IBV_QPT_XRC_RECV;
    init.comp_mask = IBV_QP_INIT_ATTR_XRCD;
    init.xrcd = xrcd;
    let qp = unsafe { w.table().create_qp_ex.expect("slot")(w.context, &mut init) };
    assert!(!qp.is_null(), "errno {}", errno());
    qp
}

fn opened(w: &World, xrcd: *mut ibv_xrcd, qp_num: u32) -> *mut ibv_qp {
    let mut attr = ibv_qp_open_attr {
        comp_mask: IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
        qp_num,
        xrcd,
        qp_context: null_mut(),
        qp_type: IBV_QPT_XRC_RECV,
    };
    unsafe { w.table().open_qp.expect("slot")(w.context, &mut attr) }
}

/// Kinds of event of one queue pair, CQ or SRQ, until `last` comes.
unsafe fn events_until(w: &World, last: ibv_event_type) -> Vec<(ibv_event_type, usize)> {
    let mut all = Vec::new();
    loop {
        let mut poll = libc::pollfd {
            fd: unsafe { (*w.context).async_fd },
            events: libc::POLLIN,
            revents: 0,
        };
        let ready = unsafe { libc::poll(&mut poll, 1, 20_000) };
        assert_eq!(ready, 1, "{last} did not come, only {all:?}");
        let mut event = ibv_async_event::zeroed();
        unsafe {
            assert_eq!(ibv_get_async_event(w.context, &mut event), 0);
            all.push((event.event_type, event.element.qp as usize));
            ibv_ack_async_event(&mut event);
        }
        if event.event_type == last {
            return all;
        }
    }
}

#[test]
fn a_domain_is_that_of_its_file() {
    let w = World::new();
    let file = File::open(".").unwrap();
    let fd = file.as_raw_fd();
    let none: *mut ibv_xrcd = null_mut();
    assert_eq!(open_xrcd(&w, fd, 0), none);
    assert_eq!(
        errno(),
        libc::EAGAIN,
        "not there, and O_CREAT was not given"
    );
    assert_eq!(open_xrcd(&w, 1_000_000, libc::O_CREAT), none);
    assert_eq!(errno(), libc::EBADF);
    assert_eq!(open_xrcd(&w, -1, 0), none);
    let first = open_xrcd(&w, fd, libc::O_CREAT);
    let second = open_xrcd(&w, fd, 0);
    assert!(!first.is_null() && !second.is_null());
    assert_eq!(open_xrcd(&w, fd, libc::O_CREAT | libc::O_EXCL), none);
    assert_eq!(errno(), libc::EINVAL);
    let private = open_xrcd(&w, -1, libc::O_CREAT);

    // A queue pair of one opening is found through the other, but not through another domain.
    let qp = receiver(&w, first);
    let qpn = unsafe { (*qp).qp_num };
    assert!(opened(&w, private, qpn).is_null());
    assert_eq!(errno(), libc::EINVAL);
    let again = opened(&w, second, qpn);
    assert!(!again.is_null());
    assert_eq!(close_xrcd(&w, first), libc::EBUSY);
    assert_eq!(close_xrcd(&w, second), libc::EBUSY);
    unsafe {
        assert_eq!(ibv_destroy_qp(qp), 0);
        assert_eq!(close_xrcd(&w, first), 0);
        // The queue pair lives on in its second handle.
        let mut attr = ibv_qp_attr::zeroed();
        let mut init = ibv_qp_init_attr::zeroed();
        assert_eq!(ibv_query_qp(again, &mut attr, 0, &mut init), 0);
        assert_eq!(init.qp_type, IBV_QPT_XRC_RECV);
        assert_eq!(ibv_destroy_qp(again), 0);
    }
    assert!(opened(&w, second, qpn).is_null());
    assert_eq!(close_xrcd(&w, second), 0);
    assert_eq!(close_xrcd(&w, private), 0);
}

#[test]
fn an_xrc_message_arrives_in_the_srq_it_names() {
    let w = World::new();
    let mut memory = [9u64; 64];
    let xrcd = open_xrcd(&w, -1, libc::O_CREAT);
    let (one, two) = (xrc_srq(&w, xrcd), xrc_srq(&w, xrcd));
    assert!(!one.is_null() && !two.is_null());
    let (first, second) = (number(&w, one), number(&w, two));
    assert!(first != second && first < 1 << 24);
    unsafe {
        let mr = w.register(&mut memory, ALL);
        let mut init = w.init_attr(IBV_QPT_XRC_SEND);
        init.recv_cq = null_mut();
        let sender = ibv_create_qp(w.pd, &mut init);
        assert!(!sender.is_null(), "errno {}", errno());
        assert_eq!((init.cap.max_recv_wr, init.cap.max_recv_sge), (0, 0));
        let receiver = receiver(&w, xrcd);
        w.pair(sender, receiver);
        assert_eq!(w.post_recv(sender, 1, &mut sge(mr, 0, 8)), libc::EINVAL);
        assert_eq!(w.post_recv(receiver, 1, &mut sge(mr, 0, 8)), libc::EINVAL);
        for (srq, wr_id) in [(one, 1), (two, 2)] {
            let mut piece = sge(mr, 256, 64);
            let mut recv = ibv_recv_wr::zeroed();
            recv.wr_id = wr_id;
            recv.sg_list = &mut piece;
            recv.num_sge = 1;
            let mut bad = null_mut();
            assert_eq!(inline::ibv_post_srq_recv(srq, &mut recv, &mut bad), 0);
        }
        let (mut piece, mut bad) = (sge(mr, 0, 24), null_mut());
        for (srqn, wr_id) in [(second, 10), (first, 11)] {
            let mut wr = send_wr(wr_id, IBV_WR_SEND, &mut piece);
            wr.qp_type.xrc.remote_srqn = srqn;
            assert_eq!(inline::ibv_post_send(sender, &mut wr, &mut bad), 0);
            let mut done = w.completions(w.cq, 2);
            done.sort_by_key(|wc| wc.wr_id);
            let expected = [12 - wr_id, wr_id];
            assert_eq!([done[0].wr_id, done[1].wr_id], expected);
            assert_eq!(done[0].status, IBV_WC_SUCCESS);
            assert_eq!((done[0].opcode, done[0].byte_len), (IBV_WC_RECV, 24));
            assert_eq!(done[0].qp_num, (*receiver).qp_num);
        }
        assert_eq!(ibv_destroy_cq(w.cq), libc::EBUSY, "the SRQs report there");
        // No such SRQ: the sender is told, and the receiver's side hears of it as an event.
        let mut wr = send_wr(12, IBV_WR_SEND, &mut piece);
        wr.qp_type.xrc.remote_srqn = 5;
        assert_eq!(inline::ibv_post_send(sender, &mut wr, &mut bad), 0);
        assert_eq!(w.completions(w.cq, 1)[0].status, IBV_WC_REM_INV_REQ_ERR);
        let events = events_until(&w, IBV_EVENT_QP_LAST_WQE_REACHED);
        assert!(events.contains(&(IBV_EVENT_QP_REQ_ERR, receiver as usize)));
        assert_eq!(ibv_destroy_qp(sender) + ibv_destroy_qp(receiver), 0);
        assert_eq!(ibv_destroy_srq(one) + ibv_destroy_srq(two), 0);
    }
    assert_eq!(close_xrcd(&w, xrcd), 0);
}

#[test]
fn groups_are_for_datagrams_and_hold_their_members() {
    let w = World::new();
    let group = |last: u8| {
        let mut raw = [0u8; 16];
        raw[10..].copy_from_slice(&[0xff, 0xff, 239, 9, 9, last]);
        ibv_gid { raw }
    };
    unsafe {
        let (ud, rc) = (w.qp(IBV_QPT_UD), w.qp(IBV_QPT_RC));
        assert_eq!(ibv_attach_mcast(rc, &group(1), 0), libc::EINVAL);
        assert_eq!(ibv_attach_mcast(ud, &w.gid, 0), libc::EINVAL);
        assert_eq!(ibv_attach_mcast(ud, std::ptr::null(), 0), libc::EINVAL);
        assert_eq!(ibv_attach_mcast(null_mut(), &group(1), 0), libc::EINVAL);
        assert_eq!(ibv_detach_mcast(ud, &group(1), 0), libc::EINVAL);
        for _ in 0..2 {
            assert_eq!(ibv_attach_mcast(ud, &group(1), 0), 0);
        }
        assert_eq!(ibv_attach_mcast(ud, &group(2), 0), 0);
        assert_eq!(ibv_destroy_qp(ud), libc::EBUSY);
        assert_eq!(ibv_detach_mcast(ud, &group(1), 0), 0);
        assert_eq!(ibv_detach_mcast(ud, &group(1), 0), libc::EINVAL);
        assert_eq!(ibv_detach_mcast(ud, &group(2), 0), 0);
        assert_eq!(ibv_destroy_qp(ud) + ibv_destroy_qp(rc), 0);
    }
}

#[test]
fn a_moderated_queue_raises_its_event_in_the_end() {
    let w = World::new();
    let mut memory = [5u64; 64];
    let modify = w.table().modify_cq.expect("slot");
    unsafe {
        let mr = w.register(&mut memory, ALL);
        let (a, b) = (w.qp(IBV_QPT_RC), w.qp(IBV_QPT_RC));
        w.pair(a, b);
        let mut attr = ibv_modify_cq_attr {
            attr_mask: IBV_CQ_ATTR_MODERATE | 0x10,
            moderate: ibv_moderate_cq {
                cq_count: 100,
                cq_period: 20_000,
            },
        };
        assert_eq!(modify(w.cq, &mut attr), libc::EINVAL);
        attr.attr_mask = IBV_CQ_ATTR_MODERATE;
        assert_eq!(modify(w.cq, &mut attr), 0);
        assert_eq!(inline::ibv_req_notify_cq(w.cq, 0), 0);
        assert_eq!(w.post_recv(b, 1, &mut sge(mr, 256, 64)), 0);
        let (mut piece, mut bad) = (sge(mr, 0, 24), null_mut());
        let mut wr = send_wr(2, IBV_WR_SEND, &mut piece);
        assert_eq!(inline::ibv_post_send(a, &mut wr, &mut bad), 0);
        // Far fewer completions than asked for; nobody polls.
        let (mut fired, mut context) = (null_mut(), null_mut());
        let mut poll = libc::pollfd {
            fd: (*w.channel).fd,
            events: libc::POLLIN,
            revents: 0,
        };
        assert_eq!(libc::poll(&mut poll, 1, 20_000), 1, "the event is lost");
        assert_eq!(ibv_get_cq_event(w.channel, &mut fired, &mut context), 0);
        assert_eq!(fired, w.cq);
        ibv_ack_cq_events(w.cq, 1);
        assert_eq!(w.completions(w.cq, 2).len(), 2);
        assert_eq!(ibv_destroy_qp(a) + ibv_destroy_qp(b), 0);
    }
}

/// One RDMA write of `a` into the memory behind `rkey`.
unsafe fn write(a: *mut ibv_qp, mr: *mut ibv_mr, rkey: u32) {
    let (mut piece, mut bad) = (sge(mr, 0, 8), null_mut());
    let mut wr = send_wr(1, IBV_WR_RDMA_WRITE, &mut piece);
    unsafe {
        wr.wr.rdma.remote_addr = (*mr).addr as u64;
        wr.wr.rdma.rkey = rkey;
        assert_eq!(inline::ibv_post_send(a, &mut wr, &mut bad), 0);
    }
}

#[test]
fn what_happens_beside_completions_is_told_as_events() {
    let w = World::new();
    let mut memory = [3u64; 16];
    unsafe {
        let mr = w.register(&mut memory, ALL);
        // A key that does not exist.
        let (a, b) = (w.qp(IBV_QPT_RC), w.qp(IBV_QPT_RC));
        w.pair(a, b);
        write(a, mr, (*mr).rkey ^ 0x55);
        assert_eq!(w.completions(w.cq, 1)[0].status, IBV_WC_REM_ACCESS_ERR);
        let at_b = events_until(&w, IBV_EVENT_QP_ACCESS_ERR);
        assert_eq!(at_b, [(IBV_EVENT_QP_ACCESS_ERR, b as usize)]);
        assert_eq!(ibv_destroy_qp(a) + ibv_destroy_qp(b), 0);

        // An operation that the queue pair does not allow, while it has never sent: RTR.
        let (a, b) = (w.qp(IBV_QPT_RC), w.qp(IBV_QPT_RC));
        w.init(a, ALL);
        w.init(b, 0);
        w.connect(a, (*b).qp_num);
        let mut attr = ibv_qp_attr::zeroed();
        attr.qp_state = IBV_QPS_RTR;
        attr.path_mtu = IBV_MTU_1024;
        attr.dest_qp_num = (*a).qp_num;
        attr.rq_psn = 77;
        attr.min_rnr_timer = 12;
        attr.ah_attr = w.address();
        let rtr = IBV_QP_STATE
            | IBV_QP_AV
            | IBV_QP_PATH_MTU
            | IBV_QP_DEST_QPN
            | IBV_QP_RQ_PSN
            | IBV_QP_MAX_DEST_RD_ATOMIC
            | IBV_QP_MIN_RNR_TIMER;
        assert_eq!(ibv_modify_qp(b, &mut attr, rtr as c_int), 0);
        write(a, mr, (*mr).rkey);
        assert_eq!(w.completions(w.cq, 1)[0].status, IBV_WC_REM_INV_REQ_ERR);
        let at_b = events_until(&w, IBV_EVENT_QP_REQ_ERR);
        let b_as = b as usize;
        assert_eq!(
            at_b,
            [(IBV_EVENT_COMM_EST, b_as), (IBV_EVENT_QP_REQ_ERR, b_as)]
        );

        // Draining, asked for.
        assert_eq!(ibv_destroy_qp(a) + ibv_destroy_qp(b), 0);
        let (a, b) = (w.qp(IBV_QPT_RC), w.qp(IBV_QPT_RC));
        w.pair(a, b);
        attr.qp_state = IBV_QPS_SQD;
        attr.en_sqd_async_notify = 1;
        let sqd = IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY;
        assert_eq!(ibv_modify_qp(a, &mut attr, sqd as c_int), 0);
        let at_a = events_until(&w, IBV_EVENT_SQ_DRAINED);
        assert_eq!(at_a, [(IBV_EVENT_SQ_DRAINED, a as usize)]);
        assert_eq!(ibv_destroy_qp(a) + ibv_destroy_qp(b), 0);
    }
}

#[test]
fn a_queue_that_overruns_takes_its_queue_pairs_along() {
    let w = World::new();
    let mut memory = [3u64; 16];
    unsafe {
        let mr = w.register(&mut memory, ALL);
        let small = ibv_create_cq(w.context, 1, null_mut(), null_mut(), 0);
        let mut init = w.init_attr(IBV_QPT_RC);
        init.send_cq = small;
        let (a, b) = (ibv_create_qp(w.pd, &mut init), w.qp(IBV_QPT_RC));
        w.pair(a, b);
        for _ in 0..2 {
            write(a, mr, (*mr).rkey);
        }
        let events = events_until(&w, IBV_EVENT_QP_FATAL);
        assert_eq!(
            events,
            [
                (IBV_EVENT_CQ_ERR, small as usize),
                (IBV_EVENT_QP_FATAL, a as usize)
            ]
        );
        let (mut attr, mut init) = (ibv_qp_attr::zeroed(), ibv_qp_init_attr::zeroed());
        assert_eq!(ibv_query_qp(a, &mut attr, 0, &mut init), 0);
        assert_eq!(attr.qp_state, IBV_QPS_ERR);
        assert_eq!(
            w.completions(small, 1).len(),
            1,
            "what was there can be read"
        );
        assert_eq!(ibv_destroy_qp(a) + ibv_destroy_qp(b), 0);
        assert_eq!(ibv_destroy_cq(small), 0);
    }
}
