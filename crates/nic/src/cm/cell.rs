//! The part of an identifier that tables and timers keep alive: they need it longer than the program.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use adverb_engine::Instant;
use adverb_wire::cm::Mad;

use super::channel::{CmChannel, CmEventKind, Entry};
use super::gsi::{Arrival, count};
use super::ports::Claim;
use super::strangers::Standing;
use super::talk::{Machine, Talk};
use crate::device::Device;
use crate::error::NicError;
use crate::fabric::same_peer;
use crate::ledger::Ledger;
use crate::nic::Nic;
use crate::sync::LockExt;

pub(super) struct Cell {
    pub(super) nic: Arc<Nic>,
    user: AtomicU64,
    /// Where events go; none once the program has destroyed the identifier.
    channel: Mutex<Option<Arc<CmChannel>>>,
    events: Ledger,
    /// Requests that nobody has fetched yet.
    waiting: AtomicU32,
    /// Taken before the channel's lock and before those of links; never two at a time.
    pub(super) state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    /// The program has no use for it any more. What the protocol still has to say, it says.
    pub(super) closed: bool,
    pub(super) claim: Option<Claim>,
    pub(super) listening: Option<Listening>,
    pub(super) talk: Option<Box<Talk>>,
}

pub(super) struct Listening {
    pub(super) devices: Vec<Arc<Device>>,
    pub(super) backlog: u32,
}

impl Cell {
    pub(super) fn new(nic: &Arc<Nic>, channel: &Arc<CmChannel>, user: u64, state: State) -> Self {
        Self {
            nic: Arc::clone(nic),
            user: AtomicU64::new(user),
            channel: Mutex::new(Some(Arc::clone(channel))),
            events: Ledger::default(),
            waiting: AtomicU32::new(0),
            state: Mutex::new(state),
        }
    }

    pub(super) fn user(&self) -> u64 {
        self.user.load(Ordering::Acquire)
    }

    pub(super) fn set_user(&self, user: u64) {
        self.user.store(user, Ordering::Release);
    }

    pub(super) fn channel(&self) -> Option<Arc<CmChannel>> {
        self.channel.acquire().clone()
    }

    /// Queues an event. The caller holds the state's lock and has seen that the cell is not closed.
    pub(super) fn push(self: &Arc<Self>, kind: CmEventKind) {
        if is_request(&kind) {
            self.waiting.fetch_add(1, Ordering::AcqRel);
        }
        if let Some(channel) = self.channel.acquire().as_ref() {
            channel.events.push(Entry {
                of: Arc::clone(self),
                kind,
            });
        }
    }

    pub(super) fn note_delivery(&self, kind: &CmEventKind) {
        if is_request(kind) {
            self.waiting.fetch_sub(1, Ordering::AcqRel);
        }
        self.events.delivered();
    }

    pub(super) fn requests_waiting(&self) -> u32 {
        self.waiting.load(Ordering::Acquire)
    }

    pub(super) fn ack_events(&self, n: u64) {
        self.events.acked(n);
    }

    pub(super) fn wait_for_acks(&self) {
        self.events.wait_settled();
    }

    /// Changes the channel, and takes along what nobody has fetched. Requests among that take their
    /// new identifiers along. False if the cell is closed.
    pub(super) fn move_to(self: &Arc<Self>, to: &Arc<CmChannel>) -> bool {
        let mut channel = self.channel.acquire();
        let Some(from) = channel.replace(Arc::clone(to)) else {
            *channel = None;
            return false;
        };
        if Arc::ptr_eq(&from, to) {
            return true;
        }
        // Under our channel's lock, so that no newer event gets ahead.
        for entry in from.events.extract(|e| Arc::ptr_eq(&e.of, self)) {
            if let CmEventKind::Request { id, .. } | CmEventKind::LookupRequest { id, .. } =
                &entry.kind
            {
                *id.cell().channel.acquire() = Some(Arc::clone(to));
            }
            to.events.push(entry);
        }
        true
    }

    /// Ends the program's part in it.
    pub(super) fn close(self: &Arc<Self>, now: Instant) {
        let mut state = self.state.acquire();
        if std::mem::replace(&mut state.closed, true) {
            return;
        }
        let claim = state.claim.take();
        if state.listening.take().is_some()
            && let Some(claim) = &claim
        {
            self.nic.cm.table.unlisten(claim.port, self);
        }
        if let Some(talk) = &mut state.talk {
            match &mut talk.machine {
                Machine::Connection(m) => m.close(now),
                // Forgetting is all there is to it.
                Machine::Lookup(_) => self.nic.cm.table.leave(&talk.keys, self),
                Machine::Inquiry(m) => {
                    // An error says that it has been answered, and may have to be again.
                    let _ = m.answer(now, super::id::REFUSED_LOOKUP);
                }
            }
            if matches!(talk.machine, Machine::Lookup(_)) {
                state.talk = None;
            }
        }
        self.settle(&mut state, now);
        drop(state);
        drop(claim);
        let channel = self.channel.acquire().take();
        if let Some(channel) = channel {
            // Dropped here and not under the queue's lock: requests among it are refused by that.
            drop(channel.events.extract(|e| Arc::ptr_eq(&e.of, self)));
        }
        self.nic.fabric.flush();
    }

    /// What follows each step of the machine: messages, events, keys and the next deadline.
    pub(super) fn settle(self: &Arc<Self>, state: &mut State, now: Instant) {
        let Some(talk) = state.talk.as_mut() else {
            return;
        };
        while let Some(mad) = talk.machine.poll_transmit(now) {
            self.nic.say(talk, &mad, now);
        }
        while let Some(event) = talk.machine.poll_event() {
            if talk.heard && !state.closed {
                self.push(event);
            }
        }
        self.nic.mind_peer(self, talk, now);
        let table = &self.nic.cm.table;
        let connected = talk.connected_key();
        if connected != talk.keys.connected {
            if let Some(key) = talk.keys.connected {
                table.disconnect(key, self);
            }
            if let Some(key) = connected {
                table.connect(key, self);
            }
            talk.keys.connected = connected;
        }
        let standing = talk.standing();
        if talk.machine.is_over() {
            table.leave(&talk.keys, self);
            return;
        }
        if talk.standing_noted != standing {
            talk.standing_noted = standing;
            table.note_standing(talk.keys.number, standing);
        }
        if let Some(at) = talk.machine.poll_timeout()
            && talk.reminded.is_none_or(|earlier| at < earlier)
        {
            talk.reminded = Some(at);
            self.nic.remind_cm(at, talk.keys.number);
        }
    }

    /// A message for this exchange.
    pub(super) fn handle(self: &Arc<Self>, now: Instant, arrival: &Arrival, mad: &Mad) {
        let dropped = &self.nic.cm.gsi.dropped;
        let mut state = self.state.acquire();
        let Some(talk) = state.talk.as_mut() else {
            return count(&dropped.nobody);
        };
        if !same_peer(&talk.device, arrival.meta.src, talk.path.dgid.to_ip()) {
            return count(&dropped.wrong_peer);
        }
        if talk.machine.handle(now, mad).is_err() {
            count(&dropped.refused);
        }
        self.settle(&mut state, now);
    }

    pub(super) fn handle_timeout(self: &Arc<Self>, now: Instant) {
        let mut state = self.state.acquire();
        let Some(talk) = state.talk.as_mut() else {
            return;
        };
        if talk.reminded.is_some_and(|at| at <= now) {
            talk.reminded = None;
        }
        if talk.machine.poll_timeout().is_some_and(|at| at <= now) {
            talk.machine.handle_timeout(now);
        }
        self.settle(&mut state, now);
    }

    /// Forgets what was answered: its place is needed. Whoever asks again is a new one.
    pub(super) fn forget(self: &Arc<Self>) {
        let mut state = self.state.acquire();
        if let Some(talk) = state.talk.as_ref()
            && talk.standing() == Standing::Answered
        {
            self.nic.cm.table.leave(&talk.keys, self);
            state.talk = None;
        }
    }

    /// Whether the peer is in the process at `slot`.
    pub(super) fn talks_to(&self, slot: u16) -> bool {
        let state = self.state.acquire();
        state
            .talk
            .as_ref()
            .is_some_and(|talk| talk.peer_slot == Some(slot))
    }

    /// The peer's process has ended.
    pub(super) fn peer_gone(self: &Arc<Self>, now: Instant) {
        self.step(now, |c| {
            c.peer_gone(now);
            Ok(())
        })
        .unwrap_or_default();
    }

    /// One step of a connection's machine, and what follows.
    pub(super) fn step(
        self: &Arc<Self>,
        now: Instant,
        step: impl FnOnce(&mut adverb_engine::cm::Connection) -> Result<(), NicError>,
    ) -> Result<(), NicError> {
        let mut state = self.state.acquire();
        let Some(Machine::Connection(machine)) = state.talk.as_mut().map(|t| &mut t.machine) else {
            return Ok(());
        };
        step(machine)?;
        self.settle(&mut state, now);
        Ok(())
    }
}

fn is_request(kind: &CmEventKind) -> bool {
    matches!(
        kind,
        CmEventKind::Request { .. } | CmEventKind::LookupRequest { .. }
    )
}
