//! Work that goes round: both queue pairs belong to this process.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "the tests are a C program in all but syntax"
)]

mod common;

use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use adverb_abi::inline;
use adverb_abi::types::*;
use adverb_provider::calls::*;
use common::{World, errno, send_wr, sge};

const ALL: u32 = IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC;

#[test]
fn a_list_is_posted_up_to_the_first_bad_request() {
    let w = World::new();
    let mut memory = [7u64; 64];
    unsafe {
        let mr = w.register(&mut memory, ALL);
        let (a, b) = (w.qp(IBV_QPT_RC), w.qp(IBV_QPT_RC));
        w.pair(a, b);
        for wr_id in 0..2 {
            assert_eq!(w.post_recv(b, wr_id, &mut sge(mr, 256, 64)), 0);
        }
        let mut piece = sge(mr, 0, 8);
        let mut third = send_wr(12, IBV_WR_SEND, &mut piece);
        let mut second = send_wr(11, 55, &mut piece);
        second.next = &mut third;
        let mut first = send_wr(10, IBV_WR_SEND_WITH_IMM, &mut piece);
        first.imm_or_rkey.imm_data = 0x0102_0304_u32.to_be();
        first.next = &mut second;
        let mut bad = null_mut();
        assert_eq!(inline::ibv_post_send(a, &mut first, &mut bad), libc::EINVAL);
        assert!(std::ptr::eq(bad, &second));
        let done = w.completions(w.cq, 2);
        let sent = done
            .iter()
            .find(|wc| wc.opcode == IBV_WC_SEND)
            .expect("the first was sent");
        assert_eq!(
            (sent.wr_id, sent.status, sent.qp_num),
            (10, IBV_WC_SUCCESS, (*a).qp_num)
        );
        let got = done
            .iter()
            .find(|wc| wc.opcode == IBV_WC_RECV)
            .expect("and received");
        assert_eq!(
            (got.wr_id, got.byte_len, got.wc_flags),
            (0, 8, IBV_WC_WITH_IMM)
        );
        assert_eq!(got.imm_or_rkey.imm_data, 0x0102_0304_u32.to_be());
        assert_eq!(std::ptr::read_volatile(&raw const memory[32]), 7);
    }
}

#[test]
fn a_full_queue_is_enomem_and_a_queue_that_is_not_ready_einval() {
    let w = World::new();
    let mut memory = [0u64; 8];
    unsafe {
        let mr = w.register(&mut memory, ALL);
        let qp = w.qp(IBV_QPT_RC);
        assert_eq!(w.post_recv(qp, 0, &mut sge(mr, 0, 8)), libc::EINVAL);
        w.init(qp, ALL);
        let mut piece = sge(mr, 0, 8);
        let mut wr = send_wr(1, IBV_WR_SEND, &mut piece);
        let mut bad = null_mut();
        assert_eq!(inline::ibv_post_send(qp, &mut wr, &mut bad), libc::EINVAL);
        assert!(std::ptr::eq(bad, &wr));
        let (mut attr, mut init) = (ibv_qp_attr::zeroed(), ibv_qp_init_attr::zeroed());
        assert_eq!(ibv_query_qp(qp, &mut attr, 0, &mut init), 0);
        for wr_id in 0..attr.cap.max_recv_wr {
            assert_eq!(w.post_recv(qp, wr_id.into(), &mut sge(mr, 0, 8)), 0);
        }
        assert_eq!(w.post_recv(qp, 99, &mut sge(mr, 0, 8)), libc::ENOMEM);
        let mut many = [sge(mr, 0, 1); 40];
        let mut recv = ibv_recv_wr::zeroed();
        recv.sg_list = many.as_mut_ptr();
        for count in [33, 40, -1, c_int::MIN] {
            recv.num_sge = count;
            let mut bad = null_mut();
            assert_eq!(inline::ibv_post_recv(qp, &mut recv, &mut bad), libc::EINVAL);
        }
    }
}

#[test]
fn inline_data_is_copied_before_the_post_returns() {
    let w = World::new();
    let mut memory = [0u64; 8];
    let mut words = [*b"left", *b"over"];
    unsafe {
        let mr = w.register(&mut memory, ALL);
        let (a, b) = (w.qp(IBV_QPT_RC), w.qp(IBV_QPT_RC));
        w.pair(a, b);
        let mut pieces = words.each_mut().map(|word| ibv_sge {
            addr: word.as_mut_ptr() as u64,
            length: 4,
            lkey: 0xdead,
        });
        let mut wr = send_wr(1, IBV_WR_RDMA_WRITE, pieces.as_mut_ptr());
        wr.num_sge = 2;
        wr.send_flags |= IBV_SEND_INLINE;
        wr.wr.rdma = ibv_send_wr_rdma {
            remote_addr: (*mr).addr as u64,
            rkey: (*mr).rkey,
        };
        let mut bad = null_mut();
        assert_eq!(inline::ibv_post_send(a, &mut wr, &mut bad), 0);
        words = [[0; 4]; 2];
        assert_eq!(w.completions(w.cq, 1)[0].status, IBV_WC_SUCCESS);
        assert_eq!(
            &std::ptr::read_volatile(&raw const memory[0]).to_ne_bytes(),
            b"leftover"
        );
        (*wr.sg_list).length = 1 << 20;
        assert_eq!(inline::ibv_post_send(a, &mut wr, &mut bad), libc::EINVAL);
    }
    assert_eq!(words, [[0; 4]; 2]);
}

#[test]
fn atomics_return_what_was_there() {
    let w = World::new();
    let mut memory = [0u64; 8];
    memory[0] = 40;
    unsafe {
        let mr = w.register(&mut memory, ALL);
        let (a, b) = (w.qp(IBV_QPT_RC), w.qp(IBV_QPT_RC));
        w.pair(a, b);
        let mut piece = sge(mr, 32, 8);
        let mut bad = null_mut();
        let mut add = send_wr(1, IBV_WR_ATOMIC_FETCH_AND_ADD, &mut piece);
        add.wr.atomic = ibv_send_wr_atomic {
            remote_addr: (*mr).addr as u64,
            compare_add: 2,
            swap: 0,
            rkey: (*mr).rkey,
        };
        assert_eq!(inline::ibv_post_send(a, &mut add, &mut bad), 0);
        let wc = w.completions(w.cq, 1)[0];
        assert_eq!(
            (wc.status, wc.opcode, wc.byte_len),
            (IBV_WC_SUCCESS, IBV_WC_FETCH_ADD, 8)
        );
        assert_eq!(std::ptr::read_volatile(&raw const memory[4]), 40);
        add.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
        add.wr.atomic.compare_add = 42;
        add.wr.atomic.swap = 1;
        assert_eq!(inline::ibv_post_send(a, &mut add, &mut bad), 0);
        assert_eq!(w.completions(w.cq, 1)[0].opcode, IBV_WC_COMP_SWAP);
        assert_eq!(std::ptr::read_volatile(&raw const memory[4]), 42);
        assert_eq!(std::ptr::read_volatile(&raw const memory[0]), 1);
        add.wr.atomic.remote_addr += 4;
        assert_eq!(inline::ibv_post_send(a, &mut add, &mut bad), libc::EINVAL);
    }
}

#[test]
fn a_built_list_is_posted_whole_or_not_at_all() {
    let w = World::new();
    let mut memory = [5u64; 64];
    unsafe {
        let mr = w.register(&mut memory, ALL);
        let ops =
            IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
        let (a, b) = (w.qp_ex(IBV_QPT_RC, ops), w.qp(IBV_QPT_RC));
        w.pair(a, b);
        let qp = ibv_qp_to_qp_ex(a);
        let (remote, rkey, lkey) = ((*mr).addr as u64, (*mr).rkey, (*mr).lkey);
        let write = move |wr_id, length| {
            (*qp).wr_id = wr_id;
            (*qp).wr_flags = IBV_SEND_SIGNALED;
            (*qp).wr_rdma_write.unwrap()(qp, rkey, remote + 256);
            (*qp).wr_set_sge.unwrap()(qp, lkey, remote, length);
        };
        // A mistake in the second: none goes out.
        (*qp).wr_start.unwrap()(qp);
        write(1, 8);
        (*qp).wr_id = 2;
        (*qp).wr_atomic_fetch_add.unwrap()(qp, rkey, remote + 4, 1);
        assert_eq!(inline::ibv_wr_complete(qp), libc::EINVAL);
        // More than the queue holds: none goes out.
        (*qp).wr_start.unwrap()(qp);
        (0..9).for_each(|wr_id| write(wr_id, 8));
        assert_eq!(inline::ibv_wr_complete(qp), libc::ENOMEM);
        // Given up: none goes out.
        (*qp).wr_start.unwrap()(qp);
        write(3, 8);
        (*qp).wr_abort.unwrap()(qp);
        assert_eq!(
            inline::ibv_wr_complete(qp),
            libc::EINVAL,
            "nothing was started"
        );
        assert_eq!(inline::ibv_poll_cq(w.cq, 1, &mut ibv_wc::zeroed()), 0);

        (*qp).wr_start.unwrap()(qp);
        write(4, 8);
        write(5, 16);
        (*qp).wr_id = 6;
        (*qp).wr_flags = IBV_SEND_SIGNALED;
        (*qp).wr_rdma_write.unwrap()(qp, rkey, remote + 300);
        let mut text = *b"inline";
        (*qp).wr_set_inline_data.unwrap()(qp, text.as_mut_ptr().cast::<c_void>(), 6);
        text = [0; 6];
        assert_eq!(inline::ibv_wr_complete(qp), 0);
        let done = w.completions(w.cq, 3);
        assert_eq!(
            done.iter().map(|wc| wc.wr_id).collect::<Vec<_>>(),
            [4, 5, 6]
        );
        assert!(
            done.iter()
                .all(|wc| wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RDMA_WRITE)
        );
        let placed = memory.as_ptr().wrapping_byte_add(300).cast::<[u8; 6]>();
        assert_eq!(
            (&std::ptr::read_volatile(placed), text),
            (b"inline", [0; 6])
        );
    }
}

#[test]
fn a_queue_read_in_place_shows_each_completion_once() {
    let w = World::new();
    let mut memory = [5u64; 64];
    unsafe {
        let mut attr = ibv_cq_init_attr_ex::zeroed();
        attr.cqe = 16;
        attr.wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
        let cq = w.table().create_cq_ex.unwrap()(w.context, &mut attr);
        let mut poll = ibv_poll_cq_attr { comp_mask: 0 };
        assert_eq!(inline::ibv_start_poll(cq, &mut poll), libc::ENOENT);
        assert_eq!(
            inline::ibv_next_poll(cq),
            libc::EINVAL,
            "an empty queue was not started"
        );
        poll.comp_mask = 1;
        assert_eq!(inline::ibv_start_poll(cq, &mut poll), libc::EINVAL);
        poll.comp_mask = 0;

        let mr = w.register(&mut memory, ALL);
        let mut init = w.init_attr(IBV_QPT_RC);
        init.recv_cq = cq.cast();
        let (a, b) = (w.qp(IBV_QPT_RC), ibv_create_qp(w.pd, &mut init));
        w.pair(a, b);
        for wr_id in 100..102 {
            assert_eq!(w.post_recv(b, wr_id, &mut sge(mr, 256, 64)), 0);
            let mut bad = null_mut();
            let mut piece = sge(mr, 0, 24);
            let mut wr = send_wr(wr_id, IBV_WR_SEND, &mut piece);
            assert_eq!(inline::ibv_post_send(a, &mut wr, &mut bad), 0);
        }
        w.completions(w.cq, 2);
        let mut stamps = Vec::new();
        assert_eq!(inline::ibv_start_poll(cq, &mut poll), 0);
        for (wr_id, next) in [(100, 0), (101, libc::ENOENT)] {
            assert_eq!(((*cq).wr_id, (*cq).status), (wr_id, IBV_WC_SUCCESS));
            assert_eq!((*cq).read_opcode.unwrap()(cq), IBV_WC_RECV);
            assert_eq!((*cq).read_byte_len.unwrap()(cq), 24);
            assert_eq!((*cq).read_qp_num.unwrap()(cq), (*b).qp_num);
            stamps.push((*cq).read_completion_ts.unwrap()(cq));
            assert_eq!(inline::ibv_next_poll(cq), next);
        }
        inline::ibv_end_poll(cq);
        assert!(stamps[0] > 0 && stamps[0] <= stamps[1]);
        assert_eq!(inline::ibv_start_poll(cq, &mut poll), libc::ENOENT);
    }
}

#[test]
fn an_armed_queue_raises_one_event_that_holds_its_destruction() {
    let w = World::new();
    let mut memory = [5u64; 64];
    unsafe {
        let context = 0x55 as *mut c_void;
        let cq = ibv_create_cq(w.context, 8, context, w.channel, 0);
        let mr = w.register(&mut memory, ALL);
        let mut init = w.init_attr(IBV_QPT_RC);
        init.recv_cq = cq;
        let (a, b) = (w.qp(IBV_QPT_RC), ibv_create_qp(w.pd, &mut init));
        w.pair(a, b);
        let flags = libc::fcntl((*w.channel).fd, libc::F_GETFL);
        libc::fcntl((*w.channel).fd, libc::F_SETFL, flags | libc::O_NONBLOCK);
        let (mut fired, mut fired_context) = (null_mut(), null_mut());
        assert_eq!(
            ibv_get_cq_event(w.channel, &mut fired, &mut fired_context),
            -1
        );
        assert_eq!(errno(), libc::EAGAIN);

        assert_eq!(inline::ibv_req_notify_cq(cq, 0), 0);
        for wr_id in 0..2 {
            assert_eq!(w.post_recv(b, wr_id, &mut sge(mr, 256, 64)), 0);
            let mut bad = null_mut();
            let mut piece = sge(mr, 0, 24);
            let mut wr = send_wr(wr_id, IBV_WR_SEND, &mut piece);
            assert_eq!(inline::ibv_post_send(a, &mut wr, &mut bad), 0);
        }
        w.completions(w.cq, 2);
        let mut ready = libc::pollfd {
            fd: (*w.channel).fd,
            events: libc::POLLIN,
            revents: 0,
        };
        assert_eq!(
            libc::poll(&mut ready, 1, 20_000),
            1,
            "the event is not there"
        );
        libc::fcntl((*w.channel).fd, libc::F_SETFL, flags);
        assert_eq!(
            ibv_get_cq_event(w.channel, &mut fired, &mut fired_context),
            0
        );
        assert_eq!((fired, fired_context), (cq, context));
        libc::fcntl((*w.channel).fd, libc::F_SETFL, flags | libc::O_NONBLOCK);
        assert_eq!(
            ibv_get_cq_event(w.channel, &mut fired, &mut fired_context),
            -1
        );
        assert_eq!(w.completions(cq, 2).len(), 2);

        assert_eq!(ibv_destroy_qp(b), 0);
        let (acked, at) = (Arc::new(AtomicBool::new(false)), cq as usize);
        let acker = std::thread::spawn({
            let acked = Arc::clone(&acked);
            move || {
                std::thread::sleep(std::time::Duration::from_millis(50));
                acked.store(true, Ordering::SeqCst);
                ibv_ack_cq_events(at as *mut ibv_cq, 1);
            }
        });
        assert_eq!(ibv_destroy_cq(cq), 0);
        assert!(
            acked.load(Ordering::SeqCst),
            "destruction waits for the acknowledgement"
        );
        acker.join().unwrap();
    }
}

#[test]
fn a_datagram_can_be_answered_from_its_completion() {
    let w = World::new();
    let mut memory = [3u64; 128];
    unsafe {
        let mr = w.register(&mut memory, ALL);
        let (a, b) = (w.qp(IBV_QPT_UD), w.qp(IBV_QPT_UD));
        for qp in [a, b] {
            w.init(qp, 0);
            w.connect(qp, 0);
        }
        assert_eq!(w.post_recv(b, 1, &mut sge(mr, 512, 256)), 0);
        let ah = ibv_create_ah(w.pd, &mut w.address());
        let mut piece = sge(mr, 0, 16);
        let mut wr = send_wr(2, IBV_WR_SEND, &mut piece);
        let mut bad = null_mut();
        wr.wr.ud = ibv_send_wr_ud {
            ah: null_mut(),
            remote_qpn: (*b).qp_num,
            remote_qkey: 0x1111_1111,
        };
        assert_eq!(inline::ibv_post_send(a, &mut wr, &mut bad), libc::EINVAL);
        wr.wr.ud.ah = ah;
        assert_eq!(inline::ibv_post_send(a, &mut wr, &mut bad), 0);
        assert_eq!(ibv_destroy_ah(ah), 0, "the request has its copy");
        let done = w.completions(w.cq, 2);
        let mut got = *done
            .iter()
            .find(|wc| wc.opcode == IBV_WC_RECV)
            .expect("received");
        assert_eq!(
            (got.status, got.byte_len, got.src_qp),
            (IBV_WC_SUCCESS, 56, (*a).qp_num)
        );
        assert_ne!(got.wc_flags & IBV_WC_GRH, 0);
        let area = memory.as_mut_ptr().wrapping_byte_add(512).cast::<ibv_grh>();
        let mut back = ibv_ah_attr::zeroed();
        assert_eq!(
            ibv_init_ah_from_wc(w.context, 1, &mut got, area, &mut back),
            0
        );
        assert_eq!((back.grh.dgid.raw, back.is_global), (w.gid.raw, 1));
        assert_eq!(back.grh.sgid_index, common::GID_INDEX);
        let answer = ibv_create_ah_from_wc(w.pd, &mut got, area, 1);
        assert!(!answer.is_null());
        assert_eq!(ibv_destroy_ah(answer), 0);
    }
}

#[test]
fn an_async_event_comes_once_and_can_be_acknowledged() {
    let w = World::new();
    let mut memory = [3u64; 16];
    unsafe {
        let mr = w.register(&mut memory, ALL);
        let mut init = ibv_srq_init_attr::zeroed();
        init.attr = ibv_srq_attr {
            max_wr: 4,
            max_sge: 1,
            srq_limit: 0,
        };
        let srq = ibv_create_srq(w.pd, &mut init);
        let mut with_srq = w.init_attr(IBV_QPT_RC);
        with_srq.srq = srq;
        let (a, b) = (w.qp(IBV_QPT_RC), ibv_create_qp(w.pd, &mut with_srq));
        w.pair(a, b);
        let mut piece = sge(mr, 64, 64);
        let mut recv = ibv_recv_wr::zeroed();
        recv.sg_list = &mut piece;
        recv.num_sge = 1;
        let mut bad_recv = null_mut();
        assert_eq!(inline::ibv_post_srq_recv(srq, &mut recv, &mut bad_recv), 0);
        let mut limit = ibv_srq_attr {
            max_wr: 0,
            max_sge: 0,
            srq_limit: 1,
        };
        assert_eq!(ibv_modify_srq(srq, &mut limit, IBV_SRQ_LIMIT as c_int), 0);
        let mut piece = sge(mr, 0, 16);
        let mut wr = send_wr(2, IBV_WR_SEND, &mut piece);
        let mut bad = null_mut();
        assert_eq!(inline::ibv_post_send(a, &mut wr, &mut bad), 0);
        w.completions(w.cq, 2);
        // The first packet of the connection is an event too; the limit comes before or after it.
        let mut kinds = Vec::new();
        while !kinds.contains(&IBV_EVENT_SRQ_LIMIT_REACHED) {
            let mut poll = libc::pollfd {
                fd: (*w.context).async_fd,
                events: libc::POLLIN,
                revents: 0,
            };
            assert_eq!(libc::poll(&mut poll, 1, 20_000), 1, "only {kinds:?} came");
            let mut event = ibv_async_event::zeroed();
            assert_eq!(ibv_get_async_event(w.context, &mut event), 0);
            kinds.push(event.event_type);
            if event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED {
                assert_eq!(event.element.srq, srq);
            }
            ibv_ack_async_event(&mut event);
        }
        assert_eq!(ibv_destroy_qp(b), 0);
        assert_eq!(ibv_destroy_srq(srq), 0);
    }
}

#[test]
fn what_programs_read_from_sysfs_is_answered() {
    let w = World::new();
    let mut text = [0; 64];
    unsafe {
        let path = (*(*w.context).device).ibdev_path.as_ptr();
        let length = ibv_read_sysfs_file(path, c"board_id".as_ptr(), text.as_mut_ptr(), text.len());
        assert_eq!(
            CStr::from_ptr(text.as_ptr()).to_bytes().len(),
            length as usize
        );
        let kind = ibv_read_sysfs_file(
            path,
            c"ports/1/gid_attrs/types/0".as_ptr(),
            text.as_mut_ptr(),
            text.len(),
        );
        assert_eq!((kind, CStr::from_ptr(text.as_ptr())), (7, c"RoCE v2"));
        assert_eq!(
            ibv_read_sysfs_file(path, c"nothing".as_ptr(), text.as_mut_ptr(), text.len()),
            -1
        );
        assert_eq!(errno(), libc::ENOENT);
    }
}
