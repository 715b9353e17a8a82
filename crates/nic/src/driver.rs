//! Progress: whoever calls, drives.
//!
//! A pass takes what the links hold, runs the queue pairs concerned, and sends what they have to
//! say. Application threads make passes inside the verbs they call; the NIC thread makes them
//! when nobody else does. The locks held for long are those of one queue pair and one inbound queue. Shared by all are the
//! lists of who waits (blocked, owed, timers), each held for a few instructions, and the key table, which a copy holds
//! for reading: only registering, deregistering, binding and invalidating wait for it.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use adverb_engine::{Dest, Instant, PacketMeta};
use adverb_link::{Arrival, MAX_PACKET, Meta, SendError};
use adverb_wire::{GSI_QPN, Packet, Transport};

use crate::fabric::{self, Way, Woken, same_peer};
use crate::nic::Nic;
use crate::qp::{LAST_WORDS_NS, QpCell, State, Stuck};
use crate::sync::LockExt;
use crate::{clock, multicast, owed, thread};

/// Packets taken from one link before what they caused is sent: acknowledgements coalesce over a
/// batch, and a peer that sends without end cannot keep its answers from going out.
const BATCH: usize = 32;

/// One is a pass of so many posts, and of so many looks that find nothing.
const FULL_LOOK: u32 = 8;

/// After so many packets of one queue pair the process says again that it is awake.
const SENDING_NOTE: u32 = 16;

/// And with each packet that is as long as this.
const LONG: usize = 2048;

/// How often a pass looks for more, so that a flood does not keep an application thread for ever.
const ROUNDS: usize = 8;

thread_local! {
    /// The packet under construction and the queue pairs to pump, kept from pass to pass.
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch::default());
}

#[derive(Default)]
struct Scratch {
    packet: Vec<u8>,
    dirty: Vec<Arc<QpCell>>,
    due: Vec<u32>,
}

/// How sockets are looked into.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    /// By a thread that will look again in a moment: not each of them each time.
    Quick,
    Thorough,
}

impl Nic {
    /// A pass on behalf of an application thread, which thereby tells the NIC thread and the
    /// peers that somebody is awake here.
    pub(crate) fn drive_for_user(&self) -> bool {
        self.drive_for_user_at(clock::now())
    }

    fn drive_for_user_at(&self, now: Instant) -> bool {
        self.fabric.note_user(now);
        self.pass(now, Look::Quick)
    }

    /// As [`Nic::drive_for_user`], for a thread that found its queue empty. Most of its looks find nothing anywhere and
    /// cost a few loads: only each [`FULL_LOOK`]th reads the clock, without which no timer and no peer needs it.
    /// False if it made no pass.
    pub(crate) fn drive_for_poll(&self) -> bool {
        let looks = self.idle_looks.load(Ordering::Relaxed).wrapping_add(1);
        // Not counted exactly when several threads poll; nothing depends on it.
        self.idle_looks.store(looks, Ordering::Relaxed);
        let passes = looks.is_multiple_of(FULL_LOOK) || !self.is_quiet();
        if passes {
            self.drive_for_user();
        }
        passes
    }

    /// As [`Nic::drive_for_user`], for a thread that has posted. It will poll, and a pass for each of its posts would
    /// take one acknowledgement at a time. What it said to its own process is nobody else's to find, though.
    pub(crate) fn drive_for_post(&self, now: Instant) {
        let posts = self.posts.load(Ordering::Relaxed).wrapping_add(1);
        self.posts.store(posts, Ordering::Relaxed);
        if posts.is_multiple_of(FULL_LOOK) || self.fabric.has_own() {
            self.drive_for_user_at(now);
        }
    }

    /// Whether a pass would find nothing but perhaps the time of something.
    fn is_quiet(&self) -> bool {
        self.fabric.is_quiet()
            && !self.owed.any()
            && !self.cm.has_work()
            && self.blocked_count.load(Ordering::Relaxed) == 0
    }

    /// A pass that looks everywhere. True when there was anything to do.
    pub(crate) fn drive(&self, now: Instant) -> bool {
        self.fabric.look_everywhere();
        self.pass(now, Look::Thorough)
    }

    /// In the middle of a pass that takes long: this thread does not look for a while, and will. Peers ring for a process
    /// that has not looked for ten microseconds, and its NIC thread looks in the place of an application that has not for
    /// some more; both would find nothing but the locks of the thread that is at work.
    pub(crate) fn note_going_on(&self) {
        let now = clock::now();
        self.fabric.note_drive(now);
        if !thread::is_this() {
            self.fabric.note_user(now);
        }
    }

    fn pass(&self, now: Instant, look: Look) -> bool {
        self.fabric.note_drive(now);
        self.fabric.remind(now);
        with_scratch(|scratch| {
            let Scratch { dirty, due, packet } = scratch;
            let mut worked = false;
            let mut renewed = false;
            // While another thread leads, the NIC's own one does not tick: nobody would see to it that an acknowledgement
            // leaves if this thread calls nothing more.
            let may_owe = look == Look::Quick && !self.fabric.is_led();
            let mut ask_sockets = self.fabric.has_sockets();
            for round in 1.. {
                let (mut taken, mut more) = self.take_inbound(now, may_owe, dirty);
                let (datagrams, full) = match ask_sockets {
                    true => self.take_datagrams(now, look, dirty),
                    false => (0, false),
                };
                taken += datagrams;
                more |= full;
                // Asking an empty socket costs a system call. Whoever polls does so again in a
                // moment anyway; whoever would go to sleep had better be sure.
                ask_sockets = full || (look == Look::Thorough && datagrams > 0);
                if self.fabric.renew_sleep() {
                    renewed = true;
                    more = true;
                    taken += 1;
                }
                self.owed.take(dirty, may_owe);
                if self.fabric.is_due(now) {
                    self.take_timers(now, due, dirty);
                    taken += 1;
                }
                if self.cm.has_work() {
                    self.work_cm(now);
                    taken += 1;
                }
                if self.blocked_count.load(Ordering::Relaxed) > 0 {
                    // The count changes under the lock, or one that another thread adds just now
                    // would be forgotten.
                    let mut blocked = self.blocked.acquire();
                    for cell in blocked.drain(..) {
                        list(dirty, &cell);
                    }
                    self.blocked_count.store(0, Ordering::Relaxed);
                }
                let sent = taken > 0 || !dirty.is_empty();
                for cell in dirty.drain(..) {
                    cell.listed.store(false, Ordering::Release);
                    let mut state = cell.state.acquire();
                    self.pump_into(&cell, &mut state, now, packet);
                }
                if sent {
                    self.fabric.flush();
                }
                worked |= taken > 0;
                // Whoever looks again in a moment looks once more now only for what is known to be there. A pass that only
                // retried blocked queue pairs would find them blocked again.
                more |= look == Look::Thorough && taken > 0;
                more |= self.fabric.has_own();
                if more && round < ROUNDS {
                    continue;
                }
                // What is left is somebody's who sleeps, and whoever sent it has rung already, or
                // saw a process that was awake.
                if more || renewed {
                    self.fabric.ring_own_bell_for_sleepers();
                }
                break;
            }
            worked
        })
    }

    /// Sends what one queue pair has to say; the caller's [`crate::pass::Pass`] ends the batch.
    pub(crate) fn pump_locked(&self, cell: &Arc<QpCell>, state: &mut State, now: Instant) {
        with_scratch(|s| self.pump_into(cell, state, now, &mut s.packet));
    }

    fn pump_into(&self, cell: &Arc<QpCell>, state: &mut State, now: Instant, buf: &mut Vec<u8>) {
        if state.destroyed {
            return;
        }
        buf.resize(MAX_PACKET, 0);
        if let Some(stuck) = state.stuck.take() {
            match self.send_alone(&stuck.way, &stuck.meta, &stuck.packet, now) {
                Err(SendError::Full) => {
                    self.block(cell, &stuck.way, now);
                    state.stuck = Some(stuck);
                    self.register_timer(cell, state);
                    return;
                }
                // Sent, or lost: retries answer for what is lost.
                Ok(()) | Err(SendError::Unreachable) => {}
            }
        }
        let mut sent = self.send_trains(cell, state, now);
        while let Some(tx) = state.machine.poll_transmit(now, &mut cell.view(), buf) {
            sent += 1;
            if sent.is_multiple_of(SENDING_NOTE) {
                self.note_going_on();
            }
            let target = match tx.dest {
                Dest::Connected => state.way.as_ref().zip(state.meta),
                Dest::Datagram(to) => cell.datagram_way(state, &to),
            };
            let Some((way, meta)) = target else { continue };
            let Some(packet) = buf.get(..tx.len) else {
                continue;
            };
            let taken = self.send(way, &meta, packet, now);
            if matches!(tx.dest, Dest::Datagram(_)) {
                self.fabric.wake(way, now);
            }
            if taken == Err(SendError::Full) {
                self.block(cell, way, now);
                state.stuck = Some(Stuck {
                    way: way.clone(),
                    meta,
                    packet: packet.to_vec(),
                });
                break;
            }
            state.last_sent = now;
            sent += self.send_trains(cell, state, now);
        }
        if sent > 0
            && let Some(way) = &state.way
        {
            self.fabric.wake(way, now);
        }
        self.owed.paid(state);
        cell.settle(state, now);
        self.register_timer(cell, state);
    }

    fn block(&self, cell: &Arc<QpCell>, way: &Way, now: Instant) {
        if matches!(way, Way::Udp { .. }) {
            // No bell says that a socket or its reader has room again.
            self.fabric
                .look_again(now.plus_nanos(fabric::RETRY_NS), cell.number);
        }
        let mut blocked = self.blocked.acquire();
        if !blocked.iter().any(|c| Arc::ptr_eq(c, cell)) {
            blocked.push(Arc::clone(cell));
        }
        self.blocked_count.store(blocked.len(), Ordering::Relaxed);
    }

    fn register_timer(&self, cell: &QpCell, state: &mut State) {
        if let Some(at) = state.machine.poll_timeout()
            && state.registered.is_none_or(|r| at < r)
        {
            state.registered = Some(at);
            self.fabric.look_again(at, cell.number);
        }
    }

    /// Takes what waits in memory: how many packets, and whether there may be more.
    fn take_inbound(
        &self,
        now: Instant,
        may_owe: bool,
        dirty: &mut Vec<Arc<QpCell>>,
    ) -> (usize, bool) {
        let mut sink = |meta: &Meta, what: Arrival<'_>| {
            self.handle(now, meta, what, may_owe, dirty);
        };
        self.fabric.receive(BATCH, &mut sink)
    }

    /// Takes what the sockets hold: how many packets, and whether a socket may hold more.
    fn take_datagrams(
        &self,
        now: Instant,
        look: Look,
        dirty: &mut Vec<Arc<QpCell>>,
    ) -> (usize, bool) {
        let may_owe = look == Look::Quick && !self.fabric.is_led();
        let mut sink = |meta: &Meta, what: Arrival<'_>| {
            self.handle(now, meta, what, may_owe, dirty);
        };
        self.fabric
            .receive_datagrams(BATCH, look == Look::Quick, &mut sink)
    }

    /// Brings what has arrived to its queue pair, which is listed if it has something to say. With `may_owe`, an
    /// acknowledgement that can wait for the application's answer does.
    fn handle(
        &self,
        now: Instant,
        meta: &Meta,
        what: Arrival<'_>,
        may_owe: bool,
        dirty: &mut Vec<Arc<QpCell>>,
    ) {
        match what {
            Arrival::Packet(bytes) => self.handle_packet(now, meta, bytes, may_owe, dirty),
            Arrival::Train { head, payload } => {
                self.handle_train(now, meta, head, payload, may_owe, dirty);
            }
        }
    }

    fn handle_packet(
        &self,
        now: Instant,
        meta: &Meta,
        bytes: &[u8],
        may_owe: bool,
        dirty: &mut Vec<Arc<QpCell>>,
    ) {
        let count = |c: &std::sync::atomic::AtomicU64| {
            c.fetch_add(1, Ordering::Relaxed);
        };
        let Ok(packet) = Packet::parse(bytes) else {
            return count(&self.counters.malformed);
        };
        if bytes.len() >= LONG {
            self.note_going_on();
        }
        let number = packet.bth.dest_qp;
        if number == multicast::ALL_MEMBERS {
            return self.handle_group(now, meta, &packet, dirty);
        }
        if number == GSI_QPN {
            return self.take_mad(meta, &packet);
        }
        let Some(cell) = self.qps.get(number) else {
            // The port is shared among the processes of a user: what is another's goes there. What comes by memory is for us.
            if !meta.outside || !self.fabric.hand_over(number, meta, bytes, now) {
                count(&self.counters.no_such_qp);
            }
            return;
        };
        let mut state = cell.state.acquire();
        if state.destroyed {
            return count(&self.counters.no_such_qp);
        }
        if cell.transport != Transport::Ud {
            let expected = state.meta.map(|m| m.dst);
            if !expected.is_some_and(|ip| same_peer(cell.context.device(), meta.src, ip)) {
                return count(&self.counters.wrong_peer);
            }
            // Who talks by memory is a process of this user; a socket anybody can write to.
            if meta.outside && matches!(state.way, Some(Way::Loopback | Way::Shm(_))) {
                return count(&self.counters.wrong_way);
            }
        }
        let peer = packet.deth.map_or(state.remote_qpn, |deth| deth.src_qp);
        self.fabric.note_arrival(peer);
        let from = PacketMeta {
            src: meta.src,
            dst: meta.dst,
            traffic_class: meta.traffic_class,
            hop_limit: meta.hop_limit,
        };
        if state
            .machine
            .handle_packet(now, &from, &packet, &mut cell.view())
            .is_err()
        {
            count(&self.counters.refused);
        }
        cell.settle(&mut state, now);
        if self.has_to_say(&cell, &mut state, may_owe) {
            drop(state);
            list_owned(dirty, cell);
        }
    }

    /// Whether what has arrived gives a queue pair something to say that cannot wait.
    pub(crate) fn has_to_say(&self, cell: &Arc<QpCell>, state: &mut State, may_owe: bool) -> bool {
        if state.machine.is_silent() {
            self.register_timer(cell, state);
            return false;
        }
        if may_owe && owed::may_wait(cell, state) {
            self.owed.note(cell, state);
            return false;
        }
        true
    }

    fn take_timers(&self, now: Instant, due: &mut Vec<u32>, dirty: &mut Vec<Arc<QpCell>>) {
        self.fabric.take_due(now, due);
        for number in due.drain(..) {
            if number == fabric::HELD_BACK {
                self.release_held_back(now);
                continue;
            }
            if number == fabric::CONNECTIONS {
                self.cm.note_work();
                continue;
            }
            let Some(cell) = self.qps.get(number) else {
                continue;
            };
            let mut state = cell.state.acquire();
            if state.destroyed {
                continue;
            }
            if state.registered.is_some_and(|at| at <= now) {
                state.registered = None;
            }
            if state.fails_at.is_some_and(|at| at <= now) {
                state.fails_at = None;
                state.machine.peer_lost(now, &mut cell.view());
            }
            if state.machine.poll_timeout().is_some_and(|at| at <= now)
                && state
                    .way
                    .as_ref()
                    .is_some_and(|way| self.fabric.has_not_looked(way, state.last_sent, now))
            {
                state.machine.defer_timeout(now);
            }
            if state.machine.poll_timeout().is_some_and(|at| at <= now) {
                state.machine.handle_timeout(now, &mut cell.view());
                // A link that stays full may belong to a peer that is gone.
                if let Some(Stuck {
                    way: Way::Shm(route),
                    ..
                }) = &state.stuck
                {
                    self.fabric.probe(route.slot());
                }
            }
            cell.settle(&mut state, now);
            drop(state);
            list(dirty, &cell);
        }
    }

    /// Gives a packet to the link that its way says; [`Fabric::wake`] must follow.
    ///
    /// [`Fabric::wake`]: crate::fabric::Fabric::wake
    fn send(&self, way: &Way, meta: &Meta, packet: &[u8], now: Instant) -> Result<(), SendError> {
        match way {
            Way::Group(group) => self.send_to_group(*group, meta, packet, now),
            way => self.fabric.send(way, meta, packet, now),
        }
    }

    /// As [`Nic::send`], for a packet that no batch follows.
    pub(crate) fn send_alone(
        &self,
        way: &Way,
        meta: &Meta,
        packet: &[u8],
        now: Instant,
    ) -> Result<(), SendError> {
        let sent = self.send(way, meta, packet, now);
        self.fabric.wake(way, now);
        sent
    }

    /// Looks at what woke somebody. True when there was anything; a pass must follow then.
    pub(crate) fn service_wakeups(&self) -> bool {
        self.fabric.take_wakeups(|woken| match woken {
            Woken::Interfaces => self.interfaces_changed(),
            Woken::Death(slot) => self.peer_died(slot),
        })
    }

    /// Drives what may have woken somebody. True when the pass found work.
    pub(crate) fn work_on_waking(&self) -> bool {
        self.service_wakeups();
        self.drive(clock::now())
    }

    /// Before a thread falls asleep: nobody may wait for what we owe meanwhile.
    pub(crate) fn pay(&self) {
        if self.owed.any() {
            self.drive(clock::now());
        }
    }

    /// What was said last may lie in a socket that this process shares with the peer, and the process can be over before
    /// anybody else looks, or before another thread of ours has handed out what it has taken.
    pub(crate) fn empty_sockets(&self, now: Instant) {
        if !self.fabric.has_sockets() {
            return;
        }
        let until = now.plus_nanos(LAST_WORDS_NS);
        loop {
            let shared = self.fabric.reads_sockets();
            self.drive(clock::now());
            let more = shared || self.fabric.reads_sockets();
            if !more || clock::now() >= until {
                return;
            }
            self.fabric.nap();
        }
    }

    /// Gives another process a moment, and then makes a pass.
    pub(crate) fn nap_and_drive(&self) {
        self.fabric.nap();
        self.drive(clock::now());
    }

    /// The process at `slot` has ended: its queue pairs' peers get what they would get from
    /// hardware after their retries, even those that were only waiting.
    fn peer_died(&self, slot: u16) {
        self.fabric.bury(slot);
        let now = clock::now();
        self.qps.for_each(|cell| cell.peer_died(self, slot, now));
        self.cm_peer_died(slot, now);
    }
}

/// Lends this thread's scratch. A thread that ends can drop queue pairs after its scratch has gone;
/// those passes get one of their own.
fn with_scratch<R>(work: impl FnOnce(&mut Scratch) -> R) -> R {
    let mut work = Some(work);
    let done = SCRATCH.try_with(|scratch| {
        let work = work.take()?;
        Some(work(&mut scratch.borrow_mut()))
    });
    match (done, work) {
        (Ok(Some(result)), _) => result,
        (_, Some(work)) => work(&mut Scratch::default()),
        (_, None) => unreachable!("the work is taken only to be done"),
    }
}

pub(crate) fn list(dirty: &mut Vec<Arc<QpCell>>, cell: &Arc<QpCell>) {
    if !cell.listed.swap(true, Ordering::AcqRel) {
        dirty.push(Arc::clone(cell));
    }
}

pub(crate) fn list_owned(dirty: &mut Vec<Arc<QpCell>>, cell: Arc<QpCell>) {
    if !cell.listed.swap(true, Ordering::AcqRel) {
        dirty.push(cell);
    }
}
