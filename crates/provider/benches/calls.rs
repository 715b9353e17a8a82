//! Posting and polling through the C face over loopback: `cargo bench -p adverb-provider`.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "a C program in all but syntax"
)]

#[path = "../tests/common/mod.rs"]
mod common;

use std::hint::black_box;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use adverb_abi::inline;
use adverb_abi::types::*;
use common::{World, send_wr, sge};
use criterion::Criterion;

/// Messages before one poll that finds them all: a queue of the tests' has room for eight completions of each kind.
const BATCH: usize = 4;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let world = World::new();
    let mut memory = [7_u64; 64];
    let mr = world.register(
        &mut memory,
        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
    );
    let (a, b) = (world.qp(IBV_QPT_RC), world.qp(IBV_QPT_RC));
    world.pair(a, b);
    let send = || {
        assert_eq!(world.post_recv(b, 1, &mut sge(mr, 256, 64)), 0);
        post(a, &mut send_wr(2, IBV_WR_SEND, &mut sge(mr, 0, 8)));
    };

    criterion.bench_function("empty poll", |bench| {
        bench.iter(|| assert_eq!(poll(&world, 1).0, 0));
    });
    criterion.bench_function("send, receive, both completions", |bench| {
        bench.iter(|| {
            send();
            drain(&world, 2);
        });
    });
    criterion.bench_function("write and its completion", |bench| {
        bench.iter(|| {
            let mut piece = sge(mr, 0, 8);
            let mut wr = send_wr(3, IBV_WR_RDMA_WRITE, &mut piece);
            let to = sge(mr, 256, 8);
            wr.wr.rdma.remote_addr = to.addr;
            wr.wr.rdma.rkey = unsafe { (*mr).rkey };
            post(a, &mut wr);
            drain(&world, 1);
        });
    });
    criterion.bench_function("poll that finds up to 8", |bench| {
        bench.iter_custom(|rounds| {
            let mut spent = Duration::ZERO;
            for _ in 0..rounds {
                (0..BATCH).for_each(|_| send());
                let begin = Instant::now();
                let (found, _) = black_box(poll(&world, 2 * BATCH));
                spent += begin.elapsed();
                drain(&world, 2 * BATCH - found);
            }
            spent
        });
    });
    criterion.final_summary();
}

fn post(qp: *mut ibv_qp, wr: &mut ibv_send_wr) {
    let mut bad = null_mut();
    assert_eq!(unsafe { inline::ibv_post_send(qp, wr, &mut bad) }, 0);
}

fn poll(world: &World, most: usize) -> (usize, [ibv_wc; 2 * BATCH]) {
    let mut found = [ibv_wc::zeroed(); 2 * BATCH];
    let count = unsafe { inline::ibv_poll_cq(world.cq, most as i32, found.as_mut_ptr()) };
    (usize::try_from(count).expect("a poll succeeds"), found)
}

/// Polls until so many more completions have come, each a success.
fn drain(world: &World, mut left: usize) {
    while left > 0 {
        let (count, found) = poll(world, left);
        for completion in &found[..count] {
            assert_eq!(completion.status, IBV_WC_SUCCESS);
        }
        left -= count;
    }
}
