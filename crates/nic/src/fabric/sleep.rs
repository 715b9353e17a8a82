//! Sleep: who watches for the process, and how nothing that comes is slept over.
//!
//! Everything that can wake the NIC is in one epoll set. The NIC thread sleeps on it, or one
//! thread of the application does, the leader. Peers learn from the flag in the process page
//! whether they must ring. Why no wake-up is lost is written in `crates/mem/src/sleep.rs` for one
//! sleeper, and in `sleepers.rs` there for several.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use adverb_engine::Instant;
use adverb_link::Link;
use adverb_mem::{EventFd, Leadership, Sleep, Sleepers};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};

use super::Fabric;
use super::timers::Alarm;
use crate::clock;
use crate::error::NicError;

/// The threads of this process that sleep, and what wakes them.
pub(super) struct Watch {
    /// Everything that can wake the NIC: the bell, the timer, sockets, the deaths of peers.
    wakeups: OwnedFd,
    /// The threads that sleep on `wakeups`.
    sleepers: Sleepers,
    /// Which thread sleeps on everything the NIC waits for: this NIC's own, or one of the application's.
    leadership: Leadership,
    /// Wakes the NIC thread and nobody else.
    kick: EventFd,
    /// Wakes the NIC thread when an application thread has stood in for it for a while.
    relief: Alarm,
    /// When an application thread last drove, in nanoseconds.
    last_user_drive: AtomicU64,
    /// CQs that are armed and have a channel: somebody may be asleep for them.
    armed: AtomicU64,
    /// Whether a datagram makes `wakeups` readable. Not while a thread polls: it finds them itself.
    sockets_watched: AtomicBool,
    /// Until then threads that poll are not relied upon to find datagrams, in nanoseconds.
    pollers_pause_until: AtomicU64,
}

/// What else than packets woke somebody.
pub(crate) enum Woken {
    /// Some interface has changed.
    Interfaces,
    /// The process at this slot has ended.
    Death(u16),
}

/// Keys of `wakeups`.
mod wake {
    pub(super) const BELL: u64 = 1;
    pub(super) const TIMER: u64 = 2;
    pub(super) const UDP: u64 = 3;
    pub(super) const INTERFACES: u64 = 4;
    pub(super) const RELIEF: u64 = 5;
    /// Plus the slot of the peer.
    pub(super) const PEER: u64 = 1 << 32;
}

impl Watch {
    pub(super) fn new() -> Result<Self, NicError> {
        let wakeups = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| NicError::Io {
            what: "making the epoll set",
            source: e.into(),
        })?;
        let watch = Self {
            wakeups,
            sleepers: Sleepers::default(),
            leadership: Leadership::new(),
            kick: EventFd::semaphore().map_err(NicError::io("making an eventfd"))?,
            relief: Alarm::new().map_err(NicError::io("making the timer"))?,
            last_user_drive: AtomicU64::new(0),
            armed: AtomicU64::new(0),
            sockets_watched: AtomicBool::new(true),
            pollers_pause_until: AtomicU64::new(0),
        };
        watch.first(watch.relief.fd(), wake::RELIEF)?;
        Ok(watch)
    }

    pub(super) fn bell(&self, fd: BorrowedFd<'_>) -> Result<(), NicError> {
        self.first(fd, wake::BELL)
    }

    pub(super) fn timer(&self, fd: BorrowedFd<'_>) -> Result<(), NicError> {
        self.first(fd, wake::TIMER)
    }

    pub(super) fn socket(&self, fd: BorrowedFd<'_>) -> std::io::Result<()> {
        self.add(fd, wake::UDP)
    }

    pub(super) fn death(&self, fd: &OwnedFd, slot: u16) -> std::io::Result<()> {
        self.add(fd.as_fd(), wake::PEER + u64::from(slot))
    }

    pub(super) fn forget(&self, fd: &OwnedFd) {
        let _ = epoll::delete(&self.wakeups, fd);
    }

    fn first(&self, fd: BorrowedFd<'_>, key: u64) -> Result<(), NicError> {
        self.add(fd, key)
            .map_err(NicError::io("filling the epoll set"))
    }

    fn add(&self, fd: BorrowedFd<'_>, key: u64) -> std::io::Result<()> {
        let data = epoll::EventData::new_u64(key);
        epoll::add(&self.wakeups, fd, data, epoll::EventFlags::IN).map_err(Into::into)
    }
}

impl Fabric {
    /// A change of some interface makes `fd` readable, and from now on wakes who sleeps.
    pub(crate) fn watch_interfaces(&self, fd: &OwnedFd) -> std::io::Result<()> {
        self.watch.add(fd.as_fd(), wake::INTERFACES)
    }

    /// Looks at what woke somebody: takes bells and ring hand-overs, tells of the rest. True when
    /// there was anything; packets and timers are found by the pass that must follow then.
    pub(crate) fn take_wakeups(&self, mut tell: impl FnMut(Woken)) -> bool {
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; 16];
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let Ok(n) = epoll::wait(&self.watch.wakeups, &mut events, Some(&at_once)) else {
            return false;
        };
        for event in events.iter().take(n) {
            match event.data.u64() {
                wake::BELL => {
                    // An error would come again at the next bell.
                    let _ = self.shm.drain_bell();
                }
                wake::RELIEF => self.watch.relief.clear(),
                wake::INTERFACES => tell(Woken::Interfaces),
                key if key >= wake::PEER => tell(Woken::Death((key - wake::PEER) as u16)),
                _ => {}
            }
        }
        n > 0
    }

    /// Puts the sleep flag up again if bells were taken since the last look, and says so: then a
    /// look for packets must follow.
    pub(crate) fn renew_sleep(&self) -> bool {
        let taken = self.shm.bells_taken();
        self.watch
            .sleepers
            .renew(self.shm.page().sleep_flag(), taken)
    }

    /// Announces that a thread of this process sleeps and looks once more: what it sleeps on, if
    /// there is nothing to do. In either case [`Fabric::wake_up`] must follow.
    pub(crate) fn fall_asleep(&self, on: BorrowedFd<'_>) -> Option<Sleep> {
        // Before the flag goes up, because whoever sees it up may take both down.
        self.watch_sockets(true);
        self.watch.sleepers.enter(self.shm.page().sleep_flag());
        let idle = !self.has_inbound();
        if idle && !self.timers.due(clock::now()) {
            Some(Sleep::on_either(on, self.watch.wakeups.as_fd()))
        } else {
            None
        }
    }

    /// As [`Fabric::fall_asleep`], for the NIC thread, which a kick wakes.
    pub(crate) fn fall_asleep_for_kick(&self) -> Option<Sleep> {
        self.fall_asleep(self.watch.kick.as_fd())
    }

    /// The thread sleeps no longer.
    pub(crate) fn wake_up(&self) {
        self.watch.sleepers.leave(self.shm.page().sleep_flag());
    }

    /// The NIC thread has found work. If no thread of the application had looked for a while, it polls only now and then,
    /// as programs do that wait for bytes in their memory; for them sockets stay watched, because no sender can ask
    /// whether its datagram was seen.
    pub(crate) fn note_neglect(&self, now: Instant) {
        let silent_for = now.as_nanos().saturating_sub(self.last_user_drive());
        if silent_for > NEGLECT_NS {
            self.watch
                .pollers_pause_until
                .store(now.plus_nanos(DISTRUST_NS).as_nanos(), Ordering::Relaxed);
        }
    }

    /// Whether such work has been found lately.
    pub(crate) fn is_neglected(&self, now: Instant) -> bool {
        now.as_nanos() < self.watch.pollers_pause_until.load(Ordering::Relaxed)
    }

    /// Has datagrams wake who sleeps, or nobody. What lies in a socket already wakes at once.
    fn watch_sockets(&self, watched: bool) {
        if !self.has_sockets()
            || self.watch.sockets_watched.swap(watched, Ordering::AcqRel) == watched
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
                    &self.watch.wakeups,
                    fd,
                    epoll::EventData::new_u64(wake::UDP),
                    interest,
                );
            });
        });
    }

    /// Gives another process a moment.
    pub(crate) fn nap(&self) {
        // A signal only makes the moment shorter.
        let _ = NAP.uncancelled();
    }

    /// An application thread drives, which tells the NIC thread and the peers that somebody is awake here.
    pub(crate) fn note_user(&self, now: Instant) {
        self.watch
            .last_user_drive
            .store(now.as_nanos(), Ordering::Relaxed);
        if self.shm.page().sleep_flag().is_asleep() {
            self.take_over(now);
        }
    }

    /// An application thread is awake while the process says that it sleeps: then only the NIC
    /// thread sleeps, and peers would ring for it, at some ten microseconds a time and on the
    /// core of the very thread that is polling. So the flag goes down, and sockets wake nobody.
    /// What the NIC thread was watching for is watched by this thread now, and the alarm wakes the
    /// NIC thread soon to see whether that is still so.
    fn take_over(&self, now: Instant) {
        let watch = &self.watch;
        if self.someone_is_armed() || self.is_led() {
            // Somebody else is asleep, or about to be, for what a peer may send.
            return;
        }
        watch.sleepers.take_over(self.shm.page().sleep_flag(), || {
            let alone = !self.is_led();
            if alone {
                if !self.is_neglected(now) {
                    self.watch_sockets(false);
                }
                watch.relief.set(now.plus_nanos(RELIEF_NS));
            }
            alone
        });
    }

    /// Whether a pass would find nothing here but perhaps the time of something. A socket can only be asked, and whoever
    /// sleeps must be stood in for, which takes a pass.
    pub(crate) fn is_quiet(&self) -> bool {
        !self.has_sockets()
            && !self.shm.page().sleep_flag().is_asleep()
            && !self.loopback.has_inbound()
            && !self.shm.has_inbound()
            && self.watch.sleepers.are_renewed(self.shm.bells_taken())
    }

    /// For work that is left while somebody sleeps nobody else will ring.
    pub(crate) fn ring_own_bell_for_sleepers(&self) {
        if self.has_inbound() && self.watch.sleepers.any() {
            self.shm.ring_own_bell();
        }
    }

    /// When an application thread last drove, in nanoseconds.
    pub(crate) fn last_user_drive(&self) -> u64 {
        self.watch.last_user_drive.load(Ordering::Relaxed)
    }

    /// A CQ with a channel has been armed.
    pub(crate) fn note_armed(&self) {
        self.watch.armed.fetch_add(1, Ordering::Relaxed);
    }

    /// A CQ with a channel is armed no longer.
    pub(crate) fn note_disarmed(&self) {
        self.watch.armed.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn someone_is_armed(&self) -> bool {
        self.watch.armed.load(Ordering::Relaxed) > 0
    }

    /// Whether a thread of the application watches for all.
    pub(crate) fn is_led(&self) -> bool {
        self.watch.leadership.is_led()
    }

    /// A thread of the application begins to wait: whether it leads.
    pub(crate) fn lead(&self) -> bool {
        self.watch.leadership.enter()
    }

    /// The thread waits no longer. Somebody else must watch now: at once if others wait, soon otherwise.
    pub(crate) fn stop_leading(&self, leads: bool) {
        if self.watch.leadership.leave(leads) {
            let _ = self.watch.kick.signal(1);
        }
    }

    /// The NIC thread leaves the field to the leader until it is kicked.
    pub(crate) fn park(&self) {
        self.watch.leadership.park(|| self.wait_for_kick(None));
    }

    /// Until somebody kicks the NIC thread, or `timeout`.
    pub(crate) fn wait_for_kick(&self, timeout: Option<&Timespec>) {
        let mut fds = [PollFd::new(&self.watch.kick, PollFlags::IN)];
        let _ = poll(&mut fds, timeout);
        self.take_kick();
    }

    /// As [`Fabric::wait_for_kick`], or until a peer rings, which it says.
    pub(crate) fn wait_for_kick_or_bell(&self, timeout: &Timespec) -> bool {
        let mut fds = [
            PollFd::new(&self.watch.kick, PollFlags::IN),
            PollFd::from_borrowed_fd(self.shm.bell_fd(), PollFlags::IN),
        ];
        let rung = poll(&mut fds, Some(timeout)).is_ok_and(|n| n > 0);
        self.take_kick();
        rung
    }

    pub(crate) fn take_kick(&self) {
        while self.watch.kick.try_take().unwrap_or(false) {}
    }
}

/// A program that polls has looked more recently than this, unless the machine is busy.
const NEGLECT_NS: u64 = 300_000;

/// How long a program that was found not to poll is taken to be one that does not.
const DISTRUST_NS: u64 = 20_000_000;

/// How long a thread that drives stands in for the NIC thread before that looks.
const RELIEF_NS: u64 = 1_000_000;

/// A moment for another process to take what we have for it.
const NAP: Sleep = Sleep::moment(Duration::from_micros(200));
