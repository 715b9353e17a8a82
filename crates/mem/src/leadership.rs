//! Which of a process's threads watches for what comes from outside, when several sleep.
//!
//! A thread of the application that waits for an event may do the watching itself, which saves a context switch per
//! wake-up: the *leader*. The others sleep on their own events only. A thread of ours watches when there is no leader,
//! and parks while there is one. What must not happen is that somebody waits and nobody watches.
//!
//! # Why nobody is left alone
//!
//! - A thread that enters while there is a leader adds itself to `waiters`, then finds `led` set by a swap. The leader
//!   gives up with a swap as well, which reads that thread's value or a later one and so sees the addition: it tells
//!   its caller to kick our thread.
//! - Our thread stores `parked`, fences (SeqCst), and parks only if `led` is still set. The leader clears `led`, fences
//!   and loads `parked`. One fence is first, so either our thread sees that nobody leads, or it is kicked.

use crate::primitive::{AtomicBool, AtomicU32, Ordering, fence};

/// Who watches.
#[derive(Debug)]
pub struct Leadership {
    led: AtomicBool,
    /// Threads between entering and leaving, the leader among them.
    waiters: AtomicU32,
    parked: AtomicBool,
}

impl Default for Leadership {
    fn default() -> Self {
        Self::new()
    }
}

impl Leadership {
    /// Nobody leads and nobody waits.
    #[must_use]
    pub fn new() -> Self {
        Self {
            led: AtomicBool::new(false),
            waiters: AtomicU32::new(0),
            parked: AtomicBool::new(false),
        }
    }

    /// A thread of the application is going to wait. True: it leads, and must watch until it leaves.
    #[must_use]
    pub fn enter(&self) -> bool {
        self.waiters.fetch_add(1, Ordering::Relaxed);
        !self.led.swap(true, Ordering::AcqRel)
    }

    /// It waits no longer; `leads` is what [`Self::enter`] said. True: kick our thread, which must watch now.
    #[must_use]
    pub fn leave(&self, leads: bool) -> bool {
        self.waiters.fetch_sub(1, Ordering::Relaxed);
        if !leads {
            return false;
        }
        self.led.swap(false, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        self.parked.load(Ordering::Relaxed) || self.waiters.load(Ordering::Relaxed) > 0
    }

    /// Whether a thread of the application watches.
    #[must_use]
    pub fn is_led(&self) -> bool {
        self.led.load(Ordering::SeqCst)
    }

    /// Our thread parks: `sleep` returns when it is kicked. It is not called if nobody leads any more.
    pub fn park(&self, sleep: impl FnOnce()) {
        self.parked.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.led.load(Ordering::Relaxed) {
            sleep();
        }
        self.parked.store(false, Ordering::Relaxed);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::{Arc, Condvar, Mutex};
    use loom::thread;

    /// What the threads sleep on, as file descriptors would be: readable or not.
    #[derive(Default)]
    struct Descriptors {
        kicks: u32,
        /// Packets that nobody has handled; each is for the application thread of this number.
        packets: Vec<usize>,
        events: [u32; 2],
        over: bool,
    }

    #[derive(Default)]
    struct World {
        lead: Leadership,
        descriptors: Mutex<Descriptors>,
        changed: Condvar,
    }

    impl World {
        fn change(&self, f: impl FnOnce(&mut Descriptors)) {
            f(&mut self.descriptors.lock().unwrap());
            self.changed.notify_all();
        }

        /// `poll` without a timeout.
        fn sleep_until(&self, readable: impl Fn(&Descriptors) -> bool) {
            let mut d = self.descriptors.lock().unwrap();
            while !readable(&d) {
                d = self.changed.wait(d).unwrap();
            }
        }

        /// Handles what came: an event for whoever it is for.
        fn drive(&self) {
            self.change(|d| {
                for to in std::mem::take(&mut d.packets) {
                    d.events[to] += 1;
                }
            });
        }

        /// An application thread that waits for one event of its own.
        fn wait(&self, me: usize) {
            let leads = self.lead.enter();
            loop {
                let mut got = false;
                self.change(|d| {
                    got = d.events[me] > 0;
                    d.events[me] -= u32::from(got);
                });
                if got {
                    break;
                }
                if leads {
                    self.sleep_until(|d| d.events[me] > 0 || !d.packets.is_empty());
                    self.drive();
                } else {
                    self.sleep_until(|d| d.events[me] > 0);
                }
            }
            if self.lead.leave(leads) {
                self.change(|d| d.kicks += 1);
            }
        }

        /// Our thread, without the ticks that would rescue it after a while.
        fn run(&self) {
            loop {
                if self.lead.is_led() {
                    self.lead.park(|| self.sleep_until(|d| d.kicks > 0));
                } else {
                    self.sleep_until(|d| d.kicks > 0 || !d.packets.is_empty());
                    self.drive();
                }
                let mut over = false;
                self.change(|d| {
                    d.kicks = 0;
                    over = d.over;
                });
                if over {
                    return;
                }
            }
        }
    }

    /// The packet for each thread comes when the one before has got its own and left.
    ///
    /// `afterwards`: one more comes that nobody waits for, as one-sided traffic does.
    fn model(waiters: usize, afterwards: bool) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.max_branches = 50_000;
        builder.check(move || {
            let world = Arc::new(World::default());
            let ours = {
                let world = world.clone();
                thread::spawn(move || world.run())
            };
            let others: Vec<_> = (1..waiters)
                .map(|me| {
                    let world = world.clone();
                    thread::spawn(move || world.wait(me))
                })
                .collect();
            world.change(|d| d.packets.push(0));
            world.wait(0);
            for (me, other) in (1..).zip(others) {
                world.change(|d| d.packets.push(me));
                other.join().unwrap();
            }
            if afterwards {
                world.change(|d| d.packets.push(1));
                world.sleep_until(|d| d.events[1] > 0);
            }
            world.change(|d| {
                d.over = true;
                d.kicks += 1;
            });
            ours.join().unwrap();
        });
    }

    /// A lost hand-over is a deadlock, which loom reports.
    #[test]
    fn whoever_waits_is_watched_for_by_the_leader_or_by_our_thread() {
        model(1, false);
    }

    #[test]
    fn a_leader_that_leaves_hands_over_to_our_thread() {
        model(2, false);
    }

    #[test]
    fn our_thread_watches_when_nobody_waits_any_more() {
        model(1, true);
    }
}
