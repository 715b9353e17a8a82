//! Several threads of one process that sleep on the same bell, behind the one flag that peers look at.
//!
//! # Why nobody is slept over
//!
//! A bell is rung once for all who sleep, and whoever rings it takes the flag down ([`crate::SleepFlag`]). The first
//! thread that wakes takes the bells out of the socket, and they may have been meant for another one, which then
//! sleeps on behind a flag that is down. Therefore:
//!
//! - The flag goes up with the first sleeper and with every further one, and down with the last that wakes. Count and
//!   flag change together, under one lock.
//! - Whoever makes a pass asks [`Sleepers::renew`] whether bells were taken since somebody last asked. If so, the flag
//!   goes up again for those who still sleep, and the pass looks once more for what came before that.
//! - A pass that ends although there may be more, because it has a bound, rings the process's own bell if
//!   [`Sleepers::any`] sleeps: for what is left nobody else will.

use crate::SleepFlag;
use crate::primitive::{AtomicU64, Mutex, MutexGuard, Ordering};

/// The sleepers of a process.
#[derive(Debug, Default)]
pub struct Sleepers {
    /// Threads between announcing their sleep and being awake again.
    count: Mutex<u32>,
    /// Bells taken, as far as the flag has been put up again for them.
    renewed: AtomicU64,
}

impl Sleepers {
    /// This thread is about to sleep. It must look for work after this and before it sleeps, and then call
    /// [`Self::leave`].
    pub fn enter(&self, flag: &SleepFlag) {
        let mut count = self.lock();
        *count += 1;
        flag.announce_sleep();
    }

    /// This thread is awake again.
    pub fn leave(&self, flag: &SleepFlag) {
        let mut count = self.lock();
        *count -= 1;
        if *count == 0 {
            flag.announce_awake();
        }
    }

    /// Whether any thread sleeps, or is about to.
    #[must_use]
    pub fn any(&self) -> bool {
        *self.lock() > 0
    }

    /// `taken` counts the bells that were taken so far. True if there were some since the last call: then the flag is
    /// up again if anybody sleeps, and the caller must look for work once more. To be called after bells were taken
    /// and not before, or a bell that is rung for the new flag would be among them.
    #[must_use]
    pub fn renew(&self, flag: &SleepFlag, taken: u64) -> bool {
        if self.are_renewed(taken) || self.renewed.swap(taken, Ordering::AcqRel) == taken {
            return false;
        }
        let count = self.lock();
        if *count > 0 {
            flag.announce_sleep();
        }
        true
    }

    /// Whether [`Self::renew`] has nothing to do. A bell that is taken just now, by another thread, is that thread's.
    #[must_use]
    pub fn are_renewed(&self, taken: u64) -> bool {
        self.renewed.load(Ordering::Acquire) == taken
    }

    /// The caller, who is awake, stands in for the one thread that sleeps: if there is exactly one and `may` still
    /// holds under the lock, the flag goes down, and peers stop ringing. The caller must see to it that the sleeper
    /// looks again before long.
    pub fn take_over(&self, flag: &SleepFlag, may: impl FnOnce() -> bool) {
        let count = self.lock();
        if *count == 1 && may() {
            flag.announce_awake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, u32> {
        self.count
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::primitive::AtomicU32;
    use loom::sync::{Arc, Condvar};
    use loom::thread;

    /// A process: a ring of packets, a socket with bells, and who has taken what.
    #[derive(Default)]
    struct World {
        flag: SleepFlag,
        sleepers: Sleepers,
        ring: AtomicU32,
        handled: Mutex<u32>,
        all_handled: Condvar,
        /// The bells in the socket, and whether the test is over.
        bell: Mutex<(u32, bool)>,
        rung: Condvar,
        bells_taken: AtomicU64,
    }

    const PACKETS: u32 = 2;

    impl World {
        fn ring_bell(&self) {
            self.bell.lock().unwrap().0 += 1;
            self.rung.notify_all();
        }

        fn send(&self) {
            self.ring.fetch_add(1, Ordering::Release);
            if self.flag.take_sleeper() {
                self.ring_bell();
            }
        }

        /// One look: takes at most one packet, as a pass with a bound does.
        fn take_packet(&self) -> bool {
            let mut n = self.ring.load(Ordering::Acquire);
            while n > 0 {
                let taken =
                    self.ring
                        .compare_exchange(n, n - 1, Ordering::AcqRel, Ordering::Acquire);
                match taken {
                    Ok(_) => {
                        *self.handled.lock().unwrap() += 1;
                        self.all_handled.notify_all();
                        return true;
                    }
                    Err(now) => n = now,
                }
            }
            false
        }

        fn take_bells(&self) {
            let taken = std::mem::take(&mut self.bell.lock().unwrap().0);
            if taken > 0 {
                self.bells_taken.fetch_add(1, Ordering::AcqRel);
            }
        }

        /// A pass of at most `rounds` looks.
        fn drive(&self, rounds: u32) {
            let mut renewed = false;
            for round in 1.. {
                let mut more = self.take_packet();
                if self
                    .sleepers
                    .renew(&self.flag, self.bells_taken.load(Ordering::Acquire))
                {
                    renewed = true;
                    more = true;
                }
                if more && round < rounds {
                    continue;
                }
                let left = self.ring.load(Ordering::Acquire) > 0;
                if (more || renewed) && left && self.sleepers.any() {
                    self.ring_bell();
                }
                return;
            }
        }

        fn done(&self) -> bool {
            *self.handled.lock().unwrap() == PACKETS
        }

        /// A thread that watches until everything is handled.
        fn watch(&self, rounds: u32) {
            loop {
                self.sleepers.enter(&self.flag);
                if self.ring.load(Ordering::Acquire) == 0 {
                    let mut bell = self.bell.lock().unwrap();
                    while *bell == (0, false) {
                        bell = self.rung.wait(bell).unwrap();
                    }
                }
                self.sleepers.leave(&self.flag);
                if self.done() {
                    return;
                }
                self.take_bells();
                self.drive(rounds);
            }
        }

        /// A thread that wakes for another reason, makes one pass and goes away for good: an application thread whose
        /// own event has come.
        fn pass_by(&self, rounds: u32) {
            self.sleepers.enter(&self.flag);
            self.sleepers.leave(&self.flag);
            self.take_bells();
            self.drive(rounds);
        }

        /// A thread that polls: it stands in for the one that sleeps, and goes away some time without a word. The
        /// alarm that it has set comes after that.
        fn stand_in(&self, rounds: u32) {
            self.drive(rounds);
            let mut alarm = false;
            self.sleepers.take_over(&self.flag, || {
                alarm = true;
                true
            });
            self.drive(rounds);
            if alarm {
                self.ring_bell();
            }
        }

        fn wait_for_all(&self) {
            let mut handled = self.handled.lock().unwrap();
            while *handled < PACKETS {
                handled = self.all_handled.wait(handled).unwrap();
            }
        }
    }

    /// A sleeper that nobody wakes is a deadlock, which loom reports.
    fn model(rounds: u32, others: &[fn(&World, u32)]) {
        let others = others.to_vec();
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.max_branches = 50_000;
        builder.check(move || {
            let world = Arc::new(World::default());
            let threads: Vec<_> = others
                .iter()
                .map(|&other| {
                    let world = world.clone();
                    thread::spawn(move || other(&world, rounds))
                })
                .collect();
            // A thread of its own: as this one only waits, any of the others may come first without being preempted.
            let sender = {
                let world = world.clone();
                thread::spawn(move || (0..PACKETS).for_each(|_| world.send()))
            };
            world.wait_for_all();
            world.bell.lock().unwrap().1 = true;
            world.rung.notify_all();
            for thread in threads.into_iter().chain([sender]) {
                thread.join().unwrap();
            }
        });
    }

    #[test]
    fn a_bell_taken_by_one_who_leaves_is_made_good_to_one_who_stays() {
        model(8, &[World::watch, World::pass_by]);
    }

    #[test]
    fn of_two_who_watch_both_are_woken_or_one_does_all() {
        model(8, &[World::watch, World::watch]);
    }

    #[test]
    fn what_comes_after_a_stand_in_has_gone_is_found_by_the_alarm() {
        model(8, &[World::watch, World::stand_in]);
    }

    #[test]
    fn what_a_bounded_pass_leaves_is_somebody_s() {
        model(1, &[World::watch, World::pass_by]);
    }
}
