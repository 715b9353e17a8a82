//! The fabric: everything between the queue pairs of this process and those of others.
//!
//! It moves packets and knows whom to wake; of queue pairs it knows only their numbers. What it holds is touched in this
//! folder and nowhere else, so that what is said here about its locks can be checked here.
//!
//! | question | file |
//! |---|---|
//! | which link does a packet take | `way.rs` |
//! | which sockets are open, and who is woken by them | `sockets.rs` |
//! | how is UDP within a host paced | `flow.rs` |
//! | what if a packet belongs to another process | `hand_over.rs` |
//! | when must a queue pair be looked at again | `timers.rs` |
//! | who sleeps when, and who wakes whom | `sleep.rs` |
//! | how does the death of a peer show | `deaths.rs` |
//! | how are those forgotten whose death nobody tells | `roll_call.rs` |

mod deaths;
mod flow;
mod hand_over;
mod roll_call;
mod sleep;
mod sockets;
mod timers;
mod way;

use std::os::fd::AsRawFd;

use adverb_engine::Instant;
use adverb_link::shm::ShmRoute;
use adverb_link::{Arrival, Link, Loopback, Meta, Place, SendError, ShmLink, UdpLink, qpn};

use crate::config::{Config, Links};
use crate::error::NicError;
use crate::fork;

use deaths::Deaths;
use flow::Flows;
use hand_over::HandOver;
use roll_call::RollCall;
use sleep::Watch;
use sockets::Sockets;
use timers::{ROLL_CALL, Timers};

pub(crate) use flow::RETRY_NS;
pub(crate) use sleep::Woken;
pub(crate) use timers::{CONNECTIONS, HELD_BACK};
pub(crate) use way::{Way, path_of, same_peer};

/// The links of this process, and who watches them.
pub(crate) struct Fabric {
    /// Of this process among those of its user and host.
    slot: u16,
    links: Links,
    loopback: Loopback,
    shm: ShmLink,
    sockets: Sockets,
    flows: Flows,
    hand_over: HandOver,
    timers: Timers,
    deaths: Deaths,
    roll_call: RollCall,
    watch: Watch,
}

impl Fabric {
    pub(crate) fn new(config: &Config, place: Place) -> Result<Self, NicError> {
        fork::guard_life_lock(place.life_fd().as_raw_fd());
        let timers = Timers::new().map_err(NicError::io("making the timer"))?;
        let watch = Watch::new()?;
        watch.bell(place.bell_fd())?;
        watch.timer(timers.fd())?;
        Ok(Self {
            slot: place.slot(),
            links: config.links,
            loopback: Loopback::default(),
            shm: ShmLink::new(place),
            sockets: Sockets::new(config.udp_port),
            flows: Flows::default(),
            hand_over: HandOver::default(),
            timers,
            deaths: Deaths::default(),
            roll_call: RollCall::default(),
            watch,
        })
    }

    /// Where the processes of this user find each other.
    pub(crate) fn place(&self) -> &Place {
        self.shm.place()
    }

    /// The way to another process of this user and host, if it lives.
    pub(crate) fn process(&self, slot: u16) -> Option<ShmRoute> {
        self.shm.route(slot)
    }

    pub(crate) fn is_alive(&self, slot: u16) -> bool {
        self.shm.is_alive(slot)
    }

    /// Looks whether the process at `slot` still lives.
    pub(crate) fn probe(&self, slot: u16) {
        let _ = self.shm.probe(slot);
    }

    /// To ourselves, whatever the packet's destination.
    pub(crate) fn send_here(&self, meta: &Meta, packet: &[u8]) -> Result<(), SendError> {
        self.loopback.send(meta, packet)
    }

    pub(crate) fn send_to_process(
        &self,
        to: &ShmRoute,
        meta: &Meta,
        packet: &[u8],
        now: Instant,
    ) -> Result<(), SendError> {
        let sent = self.shm.send(to, meta, packet);
        self.shm.wake(to, now.as_nanos());
        sent
    }

    /// Hands what waits in memory, at most `budget` packets of each link, to `sink`: how many, and whether a link may have
    /// more.
    pub(crate) fn receive(
        &self,
        budget: usize,
        sink: &mut dyn FnMut(&Meta, Arrival<'_>),
    ) -> (usize, bool) {
        let (shm, own) = (
            self.shm.receive(budget, sink),
            self.loopback.receive(budget, sink),
        );
        (shm + own, shm >= budget || own >= budget)
    }

    /// Sends the datagrams that are held back for others to join them.
    pub(crate) fn flush(&self) {
        if self.has_sockets() {
            self.each_udp(UdpLink::flush);
        }
    }

    /// Before a look that no other one follows at once: finds what senders could not tell of.
    pub(crate) fn look_everywhere(&self) {
        self.shm.look_everywhere();
    }

    /// Whether there is something that a pass would take.
    pub(crate) fn has_inbound(&self) -> bool {
        self.shm.has_inbound() || self.loopback.has_inbound() || self.datagrams_wait()
    }

    /// Whether a packet from ourselves waits.
    pub(crate) fn has_own(&self) -> bool {
        self.loopback.has_inbound()
    }

    /// Tells the peers that somebody looks.
    pub(crate) fn note_drive(&self, now: Instant) {
        self.shm.page().note_drive(now.as_nanos());
        if self.shm.wants_roll_call() {
            self.call_roll_soon(now);
        }
    }

    /// Asks peers whether they have seen what they were sent a while ago.
    pub(crate) fn remind(&self, now: Instant) {
        self.shm.remind(now.as_nanos());
    }

    /// Tells the sender, if it is on this host and has to use UDP, that a packet of queue pair `peer` got here.
    pub(crate) fn note_arrival(&self, peer: u32) {
        if !self.links.shm {
            self.shm.page().note_arrival(qpn::slot_of(peer));
        }
    }

    /// Asks for `who`, a queue pair or one of [`HELD_BACK`] and [`CONNECTIONS`], to be looked at by `at`.
    pub(crate) fn look_again(&self, at: Instant, who: u32) {
        self.timers.register(at, who);
    }

    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.timers.due(now)
    }

    /// Who is to be looked at by now.
    pub(crate) fn take_due(&self, now: Instant, into: &mut Vec<u32>) {
        self.timers.take_due(now, into);
        if into.contains(&ROLL_CALL) {
            into.retain(|who| *who != ROLL_CALL);
            self.call_roll(now);
        }
    }
}
