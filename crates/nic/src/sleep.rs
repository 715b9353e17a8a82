//! Sleep: who watches for the process, and how nothing that comes is slept over.
//!
//! Everything that can wake the NIC is in one epoll set. The NIC thread sleeps on it, or one
//! thread of the application does, the leader. Peers learn from the flag in the process page
//! whether they must ring. Why no wake-up is lost is written in `crates/mem/src/sleep.rs` for one
//! sleeper, and in `sleepers.rs` there for several.

use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use adverb_engine::Instant;
use adverb_mem::Sleep;
use rustix::event::{Timespec, epoll};

use crate::clock;
use crate::nic::{Nic, wake};

impl Nic {
    /// Looks at what woke somebody: takes bells and ring hand-overs, notices deaths. True when
    /// there was anything; packets and timers are found by the pass that must follow then.
    pub(crate) fn service_wakeups(&self) -> bool {
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; 16];
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let Ok(n) = epoll::wait(&self.wakeups, &mut events, Some(&at_once)) else {
            return false;
        };
        for event in events.iter().take(n) {
            match event.data.u64() {
                wake::BELL => {
                    // An error would come again at the next bell.
                    let _ = self.shm.drain_bell();
                }
                wake::RELIEF => self.relief.clear(),
                wake::INTERFACES => self.interfaces_changed(),
                key if key >= wake::PEER => self.peer_died((key - wake::PEER) as u16),
                _ => {}
            }
        }
        n > 0
    }

    /// Puts the sleep flag up again if bells were taken since the last look, and says so: then a
    /// look for packets must follow.
    pub(crate) fn renew_sleep(&self) -> bool {
        let taken = self.shm.bells_taken();
        self.sleepers.renew(self.shm.page().sleep_flag(), taken)
    }

    /// Announces that a thread of this process sleeps and looks once more: what it sleeps on, if
    /// there is nothing to do. In either case [`Nic::wake_up`] must follow.
    pub(crate) fn fall_asleep(&self, on: [BorrowedFd<'_>; 2]) -> Option<Sleep> {
        if self.owed.any() {
            self.drive(clock::now());
        }
        // Before the flag goes up, because whoever sees it up may take both down.
        self.watch_sockets(true);
        self.sleepers.enter(self.shm.page().sleep_flag());
        let idle = !self.has_inbound();
        if self.hands_over() {
            // The sockets stay readable all the while, so sleeping on them would be spinning.
            Some(NAP)
        } else if idle && !self.timers.due(clock::now()) {
            let [one, other] = on;
            Some(Sleep::on_either(one, other))
        } else {
            None
        }
    }

    /// The NIC thread has found work. If no thread of the application had looked for a while, it polls only now and then,
    /// as programs do that wait for bytes in their memory; for them sockets stay watched, because no sender can ask
    /// whether its datagram was seen.
    pub(crate) fn note_neglect(&self, now: Instant) {
        let silent_for = now
            .as_nanos()
            .saturating_sub(self.last_user_drive.load(Ordering::Relaxed));
        if silent_for > NEGLECT_NS {
            self.pollers_pause_until
                .store(now.plus_nanos(DISTRUST_NS).as_nanos(), Ordering::Relaxed);
        }
    }

    /// Has datagrams wake who sleeps, or nobody. What lies in a socket already wakes at once.
    fn watch_sockets(&self, watched: bool) {
        if !self.udp_open.load(Ordering::Acquire)
            || self.sockets_watched.swap(watched, Ordering::AcqRel) == watched
        {
            return;
        }
        let interest = if watched {
            epoll::EventFlags::IN
        } else {
            epoll::EventFlags::empty()
        };
        self.each_udp(|link| {
            link.each_fd(|fd| {
                // Fails for a socket that is about to be closed, and then nothing depends on it.
                let _ = epoll::modify(
                    &self.wakeups,
                    fd,
                    epoll::EventData::new_u64(wake::UDP),
                    interest,
                );
            });
        });
    }

    /// The thread sleeps no longer.
    pub(crate) fn wake_up(&self) {
        self.sleepers.leave(self.shm.page().sleep_flag());
    }

    /// Drives what may have woken somebody. True when the pass found work.
    pub(crate) fn work_on_waking(&self) -> bool {
        self.service_wakeups();
        self.drive(clock::now())
    }

    /// Gives another process a moment, and then makes a pass.
    pub(crate) fn nap_and_drive(&self) {
        // A signal only makes the moment shorter.
        let _ = NAP.uncancelled();
        self.drive(clock::now());
    }

    /// An application thread is awake while the process says that it sleeps: then only the NIC
    /// thread sleeps, and peers would ring for it, at some ten microseconds a time and on the
    /// core of the very thread that is polling. So the flag goes down, and sockets wake nobody.
    /// What the NIC thread was watching for is watched by this thread now, and the alarm wakes the
    /// NIC thread soon to see whether that is still so.
    pub(crate) fn take_over(&self, now: Instant) {
        if self.armed.load(Ordering::Relaxed) > 0 || self.leadership.is_led() {
            // Somebody else is asleep, or about to be, for what a peer may send.
            return;
        }
        self.sleepers.take_over(self.shm.page().sleep_flag(), || {
            let alone = !self.leadership.is_led();
            if alone {
                if now.as_nanos() >= self.pollers_pause_until.load(Ordering::Relaxed) {
                    self.watch_sockets(false);
                }
                self.relief.set(now.plus_nanos(RELIEF_NS));
            }
            alone
        });
    }
}

/// A program that polls has looked more recently than this, unless the machine is busy.
const NEGLECT_NS: u64 = 100_000;

/// How long a program that was found not to poll is taken to be one that does not.
const DISTRUST_NS: u64 = 20_000_000;

/// How long a thread that drives stands in for the NIC thread before that looks.
const RELIEF_NS: u64 = 1_000_000;

/// A moment for another process to take what we have for it.
const NAP: Sleep = Sleep::moment(Duration::from_micros(200));
