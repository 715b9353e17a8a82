//! What is advertised can be created in full, one more gets ENOMEM, and what was destroyed makes room again.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "the tests are a C program in all but syntax"
)]

mod common;

use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::Mutex;

use adverb_abi::inline;
use adverb_abi::types::*;
use adverb_provider::calls::*;
use common::{World, errno};

/// One at a time: the limits are those of the process's device, whoever creates.
static ALONE: Mutex<()> = Mutex::new(());

fn limits(w: &World) -> ibv_device_attr {
    let mut attr = ibv_device_attr::zeroed();
    assert_eq!(unsafe { ibv_query_device(w.context, &mut attr) }, 0);
    attr
}

/// Creates until it is refused, then destroys everything. `there` objects of the kind exist already.
fn fill<T>(
    what: &str,
    limit: c_int,
    there: usize,
    create: impl Fn() -> *mut T,
    destroy: unsafe extern "C" fn(*mut T) -> c_int,
) {
    let limit = usize::try_from(limit).expect("a limit is positive");
    assert!(limit >= 10_000, "only {limit} {what}");
    let mut all = Vec::with_capacity(limit);
    let refused = loop {
        let one = create();
        if one.is_null() {
            break errno();
        }
        all.push(one);
        assert!(
            all.len() + there <= limit,
            "more {what} than the {limit} advertised"
        );
    };
    assert_eq!(
        (all.len() + there, refused),
        (limit, libc::ENOMEM),
        "{what}"
    );
    // One goes, one comes.
    let last = all.pop().expect("there are many");
    assert_eq!(unsafe { destroy(last) }, 0);
    let again = create();
    assert!(!again.is_null(), "{what}: errno {}", errno());
    all.push(again);
    for one in all {
        assert_eq!(unsafe { destroy(one) }, 0, "{what}");
    }
}

unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    unsafe { inline::ibv_dealloc_mw(mw) }
}

#[test]
fn what_is_advertised_can_be_created_in_full() {
    let _alone = ALONE.lock();
    let w = World::new();
    let limits = limits(&w);
    let mut memory = [0_u64; 8];
    let at = memory.as_mut_ptr().cast();
    unsafe {
        fill(
            "PDs",
            limits.max_pd,
            1,
            || ibv_alloc_pd(w.context),
            ibv_dealloc_pd,
        );
        fill(
            "MRs",
            limits.max_mr,
            0,
            || ibv_reg_mr(w.pd, at, 64, 1),
            ibv_dereg_mr,
        );
        let window = || inline::ibv_alloc_mw(w.pd, IBV_MW_TYPE_2);
        fill("windows", limits.max_mw, 0, window, dealloc_mw);
        fill(
            "AHs",
            limits.max_ah,
            0,
            || ibv_create_ah(w.pd, &mut w.address()),
            ibv_destroy_ah,
        );
        let cq = || ibv_create_cq(w.context, 1, null_mut(), null_mut(), 0);
        fill("CQs", limits.max_cq, 1, cq, ibv_destroy_cq);
        let srq = || {
            let mut init = ibv_srq_init_attr::zeroed();
            (init.attr.max_wr, init.attr.max_sge) = (1, 1);
            ibv_create_srq(w.pd, &mut init)
        };
        fill("SRQs", limits.max_srq, 0, srq, ibv_destroy_srq);
        fill("QPs", limits.max_qp, 0, || small_qp(&w), ibv_destroy_qp);
    }
}

fn small_qp(w: &World) -> *mut ibv_qp {
    let mut init = w.init_attr(IBV_QPT_RC);
    init.cap = ibv_qp_cap {
        max_send_wr: 1,
        max_recv_wr: 1,
        max_send_sge: 1,
        max_recv_sge: 1,
        max_inline_data: 0,
    };
    unsafe { ibv_create_qp(w.pd, &mut init) }
}

#[test]
fn numbers_of_queue_pairs_outlast_more_of_them_than_there_are_numbers() {
    let _alone = ALONE.lock();
    let w = World::new();
    let rounds = 2 * 16_384 + 100;
    // A few stay, so that numbers have to be found between those in use.
    let stay: Vec<_> = (0..1000).map(|_| small_qp(&w)).collect();
    for round in 0..rounds {
        let qp = small_qp(&w);
        assert!(!qp.is_null(), "round {round}: errno {}", errno());
        assert_eq!(unsafe { ibv_destroy_qp(qp) }, 0);
    }
    for qp in stay {
        assert_eq!(unsafe { ibv_destroy_qp(qp) }, 0);
    }
}
