//! A parent that has used the library forks. The child uses it afresh; what it has inherited fails.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "the tests are a C program in all but syntax"
)]

mod common;

use std::ptr::null_mut;

use adverb_abi::inline;
use adverb_abi::types::*;
use adverb_provider::calls::*;
use common::*;

/// A message from one queue pair to another of the same process.
fn message(w: &World) -> bool {
    let mut memory = [7u64; 64];
    unsafe {
        let mr = w.register(&mut memory, IBV_ACCESS_LOCAL_WRITE);
        let (a, b) = (w.qp(IBV_QPT_RC), w.qp(IBV_QPT_RC));
        w.pair(a, b);
        assert_eq!(w.post_recv(b, 1, &mut sge(mr, 256, 64)), 0);
        let (mut piece, mut bad) = (sge(mr, 0, 24), null_mut());
        let mut wr = send_wr(2, IBV_WR_SEND, &mut piece);
        assert_eq!(inline::ibv_post_send(a, &mut wr, &mut bad), 0);
        let done = w.completions(w.cq, 2);
        done.iter().all(|wc| wc.status == IBV_WC_SUCCESS)
            && ibv_destroy_qp(a) + ibv_destroy_qp(b) + ibv_dereg_mr(mr) == 0
    }
}

/// What a child does; its answer is its exit code.
fn child(w: &World, qp: *mut ibv_qp, srq: *mut ibv_srq) -> i32 {
    unsafe {
        // A hang must not outlive the test.
        libc::alarm(20);
        let mut wc = ibv_wc::zeroed();
        if inline::ibv_poll_cq(w.cq, 1, &mut wc) >= 0 {
            return 1;
        }
        let mut bad = null_mut();
        let mut wr = send_wr(1, IBV_WR_SEND, null_mut());
        if inline::ibv_post_send(qp, &mut wr, &mut bad) == 0 {
            return 2;
        }
        let (mut recv, mut bad_recv) = (ibv_recv_wr::zeroed(), null_mut());
        if inline::ibv_post_srq_recv(srq, &mut recv, &mut bad_recv) == 0 {
            return 3;
        }
        let (mut attr, mut init) = (ibv_qp_attr::zeroed(), ibv_qp_init_attr::zeroed());
        if ibv_query_qp(qp, &mut attr, 0, &mut init) == 0 || ibv_destroy_qp(qp) == 0 {
            return 4;
        }
        if !ibv_alloc_pd(w.context).is_null() {
            return 5;
        }
        let afresh = World::new();
        if message(&afresh) { 0 } else { 6 }
    }
}

#[test]
fn a_child_of_a_parent_in_use_starts_afresh() {
    let w = World::new();
    assert!(message(&w));
    unsafe {
        let qp = w.qp(IBV_QPT_RC);
        let mut init = ibv_srq_init_attr::zeroed();
        init.attr.max_wr = 4;
        init.attr.max_sge = 1;
        let srq = ibv_create_srq(w.pd, &mut init);
        assert!(!srq.is_null());
        for _ in 0..3 {
            match libc::fork() {
                0 => libc::_exit(child(&w, qp, srq)),
                pid => {
                    assert!(message(&w), "the parent goes on meanwhile");
                    let mut status = 0;
                    assert_eq!(libc::waitpid(pid, &mut status, 0), pid);
                    assert!(
                        libc::WIFEXITED(status),
                        "ended by signal {}",
                        libc::WTERMSIG(status)
                    );
                    assert_eq!(libc::WEXITSTATUS(status), 0);
                }
            }
        }
        assert_eq!(ibv_destroy_qp(qp), 0);
        assert_eq!(ibv_destroy_srq(srq), 0);
    }
}
