//! Forgetting the processes that have ended and whose death nobody tells: those that only sent or got datagrams.
//!
//! The same roll finds the rings that are not used any more, and has them give their memory back.
//!
//! A second after somebody was met, or a ring has grown, all are looked at, and again with pauses that double as long as nobody is met, so that
//! a process which waits for a day wakes a few times a day for this.

use std::sync::atomic::{AtomicU64, Ordering};

use adverb_engine::Instant;

use super::Fabric;
use super::timers::ROLL_CALL;

const FIRST_PAUSE_NS: u64 = 1_000_000_000;
const LONGEST_PAUSE_NS: u64 = 3_600_000_000_000;

const NEVER: u64 = u64::MAX;

pub(super) struct RollCall {
    /// When it is due, in nanoseconds.
    at_ns: AtomicU64,
    pause_ns: AtomicU64,
}

impl Default for RollCall {
    fn default() -> Self {
        Self {
            at_ns: AtomicU64::new(NEVER),
            pause_ns: AtomicU64::new(FIRST_PAUSE_NS),
        }
    }
}

impl Fabric {
    /// Somebody was met, who will end one day, or a ring has grown, which will rest one day.
    pub(super) fn call_roll_soon(&self, now: Instant) {
        self.roll_call
            .pause_ns
            .store(FIRST_PAUSE_NS, Ordering::Relaxed);
        self.call_roll_by(now.plus_nanos(FIRST_PAUSE_NS));
    }

    fn call_roll_by(&self, at: Instant) {
        if self
            .roll_call
            .at_ns
            .fetch_min(at.as_nanos(), Ordering::AcqRel)
            > at.as_nanos()
        {
            self.look_again(at, ROLL_CALL);
        }
    }

    /// Forgets who has ended, if it is time for that and not for an earlier request.
    pub(super) fn call_roll(&self, now: Instant) {
        if now.as_nanos() < self.roll_call.at_ns.load(Ordering::Acquire) {
            return;
        }
        self.roll_call.at_ns.store(NEVER, Ordering::Release);
        let anybody = self.shm.call_roll();
        self.forget_dead_flows();
        self.forget_dead_routes();
        if anybody {
            let pause = self.roll_call.pause_ns.load(Ordering::Relaxed);
            let next = (pause * 2).min(LONGEST_PAUSE_NS);
            self.roll_call.pause_ns.store(next, Ordering::Relaxed);
            self.call_roll_by(now.plus_nanos(pause));
        }
    }
}
