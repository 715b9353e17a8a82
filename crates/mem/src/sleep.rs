//! Doorbells are rung only for sleepers: the flag by which a sender learns that the receiver sleeps.
//!
//! # Why no wake-up is lost
//!
//! The receiver does, in this order: set `asleep`, fence (SeqCst), look into its rings once more, sleep if
//! they are all empty. The sender does: publish a record, fence (SeqCst), load the flag. Both fences take part
//! in the one total order of SeqCst operations, so one of them comes first.
//!
//! - Receiver's fence first: the change before it is visible to the load after the sender's fence. The sender
//!   sees a sleeper and rings.
//! - Sender's fence first: the record before it is visible to the look after the receiver's fence. The receiver
//!   finds the record and does not sleep.
//!
//! Every change of the flag is a swap: of several senders one rings, and each change knows the one before it. (A plain
//! store would do for the receiver; but loom then takes a store and a swap that do not know of each other to have no
//! order, and reports wake-ups as lost that are not.) Between the swap of a sender and its bell
//! the sender can be killed, and then nobody rings: that is the one hole in the scheme, and the reason for the
//! second rule in [`crate::ProcessPage::should_ring`], which goes by the time that the receiver last looked.

use crate::primitive::{AtomicU32, Ordering, fence};

/// Tells senders whether the process that owns it sleeps. Lives in shared memory; any value may be found in it.
#[derive(Debug)]
#[repr(transparent)]
pub struct SleepFlag(AtomicU32);

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;

impl Default for SleepFlag {
    fn default() -> Self {
        Self::new()
    }
}

impl SleepFlag {
    /// A flag that says "awake". Flags in shared memory are not made but found: zeroed memory is one.
    #[must_use]
    pub fn new() -> Self {
        Self(AtomicU32::new(AWAKE))
    }

    /// The receiver is about to sleep. It must look into all its rings after this and before it sleeps.
    pub fn announce_sleep(&self) {
        self.0.swap(ASLEEP, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

    /// The receiver is awake again, or found something after [`Self::announce_sleep`].
    ///
    /// No fence: a sender that still sees a sleeper rings once too often, which costs time and nothing else.
    pub fn announce_awake(&self) {
        self.0.swap(AWAKE, Ordering::AcqRel);
    }

    /// The sender has published its records: is it this sender who must wake the receiver?
    #[must_use]
    pub fn take_sleeper(&self) -> bool {
        fence(Ordering::SeqCst);
        self.take_sleeper_after_fence()
    }

    /// As [`Self::take_sleeper`], when a SeqCst fence has followed the publishing already.
    #[must_use]
    pub(crate) fn take_sleeper_after_fence(&self) -> bool {
        self.0.load(Ordering::Relaxed) != AWAKE && self.0.swap(AWAKE, Ordering::AcqRel) != AWAKE
    }

    /// Whether the flag says "asleep" just now, without any ordering.
    #[must_use]
    pub fn is_asleep(&self) -> bool {
        self.0.load(Ordering::Relaxed) != AWAKE
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// A receiver that sleeps only after a fruitless look, and two senders: whatever the order, either the
    /// receiver saw both records or somebody rings for it.
    #[test]
    fn a_record_is_seen_or_the_bell_is_rung() {
        loom::model(|| {
            let flag = Arc::new(SleepFlag::new());
            let record = Arc::new(AtomicU32::new(0));
            let bell = Arc::new(AtomicU32::new(0));
            let senders: Vec<_> = (0..2)
                .map(|_| {
                    let (flag, record, bell) = (flag.clone(), record.clone(), bell.clone());
                    thread::spawn(move || {
                        record.fetch_add(1, Ordering::Release);
                        if flag.take_sleeper() {
                            bell.fetch_add(1, Ordering::Relaxed);
                        }
                    })
                })
                .collect();
            flag.announce_sleep();
            let seen = record.load(Ordering::Acquire);
            for sender in senders {
                sender.join().unwrap();
            }
            let rung = bell.load(Ordering::Relaxed);
            assert!(seen == 2 || rung > 0, "saw {seen} records and nobody rang");
            assert!(rung <= 1, "one sleeper, {rung} bells");
        });
    }

    /// Waking up and falling asleep again must not swallow the bell for the second sleep.
    #[test]
    fn the_second_sleep_is_announced_too() {
        loom::model(|| {
            let flag = Arc::new(SleepFlag::new());
            let record = Arc::new(AtomicU32::new(0));
            let sender = {
                let (flag, record) = (flag.clone(), record.clone());
                thread::spawn(move || {
                    record.store(1, Ordering::Release);
                    flag.take_sleeper()
                })
            };
            flag.announce_sleep();
            let mut seen = record.load(Ordering::Acquire);
            flag.announce_awake();
            if seen == 0 {
                flag.announce_sleep();
                seen = record.load(Ordering::Acquire);
            }
            let rung = sender.join().unwrap();
            assert!(seen == 1 || rung);
        });
    }
}
