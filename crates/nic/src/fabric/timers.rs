//! The deadlines of all QPs, and the one kernel timer behind them.
//!
//! A QP's deadline moves with every acknowledgement. Moving it in a shared structure each time
//! would cost a lock per packet, so the structure keeps for each QP one entry that is *at most*
//! as late as the true deadline: an entry that comes up early finds that out and is put back.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use adverb_engine::Instant;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::sync::LockExt;

const NEVER: u64 = u64::MAX;

/// In place of a QP: the CQs whose events wait. No QP of a process has this number.
pub(crate) const HELD_BACK: u32 = 0;

/// In place of a QP: the connection manager.
pub(crate) const CONNECTIONS: u32 = 1;

/// In place of a QP: whether all those still live whom this process has met. A number above those of queue pairs.
pub(super) const ROLL_CALL: u32 = u32::MAX;

pub(super) struct Timers {
    heap: Mutex<BinaryHeap<Reverse<(u64, u32)>>>,
    /// The earliest entry, so that a poll costs one load.
    next: AtomicU64,
    /// Becomes readable at `next`, for whoever sleeps.
    alarm: Alarm,
}

impl Timers {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self {
            heap: Mutex::new(BinaryHeap::new()),
            next: AtomicU64::new(NEVER),
            alarm: Alarm::new()?,
        })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.alarm.fd()
    }

    /// Asks for `qp` to be looked at by `at`.
    pub(super) fn register(&self, at: Instant, qp: u32) {
        let at = at.as_nanos();
        let mut heap = self.heap.acquire();
        heap.push(Reverse((at, qp)));
        if at < self.next.load(Ordering::Relaxed) {
            self.next.store(at, Ordering::Relaxed);
            self.alarm.set_ns(at);
        }
    }

    pub(super) fn due(&self, now: Instant) -> bool {
        self.next.load(Ordering::Relaxed) <= now.as_nanos()
    }

    /// Takes the QPs whose entries have come up.
    pub(super) fn take_due(&self, now: Instant, into: &mut Vec<u32>) {
        let mut heap = self.heap.acquire();
        while let Some(Reverse((at, qp))) = heap.peek().copied() {
            if at > now.as_nanos() {
                break;
            }
            heap.pop();
            into.push(qp);
        }
        let next = heap.peek().map_or(NEVER, |Reverse((at, _))| *at);
        self.next.store(next, Ordering::Relaxed);
        self.alarm.set_ns(next);
    }
}

/// A descriptor that becomes readable at a moment.
pub(super) struct Alarm(OwnedFd);

impl Alarm {
    pub(super) fn new() -> std::io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        Ok(Self(timerfd_create(TimerfdClockId::Monotonic, flags)?))
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    pub(super) fn set(&self, at: Instant) {
        self.set_ns(at.as_nanos());
    }

    pub(super) fn clear(&self) {
        self.set_ns(NEVER);
    }

    /// Setting also clears the readiness, so nobody needs to read the descriptor.
    fn set_ns(&self, at: u64) {
        let value = if at == NEVER {
            Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            }
        } else {
            // A zero value would disarm; an instant in the past fires at once.
            let at = at.max(1);
            Timespec {
                tv_sec: (at / 1_000_000_000) as i64,
                tv_nsec: (at % 1_000_000_000) as i64,
            }
        };
        let spec = Itimerspec {
            it_interval: Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: value,
        };
        // The arguments are valid by construction; a failure could only be a kernel without
        // timers, and then `Timers::due` still works for whoever polls.
        let _ = timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &spec);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_up_in_order_and_the_rest_stay() {
        let timers = Timers::new().unwrap();
        for (at, qp) in [(30, 3), (10, 1), (20, 2), (10_000_000_000_000_000, 9)] {
            timers.register(Instant::from_nanos(at), qp);
        }
        assert!(!timers.due(Instant::from_nanos(9)));
        assert!(timers.due(Instant::from_nanos(10)));
        let mut due = Vec::new();
        timers.take_due(Instant::from_nanos(20), &mut due);
        assert_eq!(due, [1, 2]);
        assert!(!timers.due(Instant::from_nanos(29)));
    }
}
