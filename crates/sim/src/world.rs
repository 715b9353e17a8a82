//! A world: nodes, wire, time, and the order in which things happen.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use adverb_engine::{Counters, Dest, Instant, PacketMeta, Qp, Transmit};
use adverb_wire::{Packet, Train, Transport};

use crate::fabric::{Fabric, Fate, Harm, Parcel};
use crate::node::{Node, View, ip_of};
use crate::oracle::{Conn, Endpoint};
use crate::profile::Profile;
use crate::random::Random;
use crate::trace::Trace;

/// What a world has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Work requests that completed well.
    pub messages: u64,
    pub packets: u64,
    /// Queue pairs built anew after they failed or were made to.
    pub rebuilt: u64,
    pub retries: u64,
    pub rnr_naks: u64,
    pub duplicates: u64,
    /// Memory windows bound and unbound, and work that went through one.
    pub binds: u64,
    pub unbinds: u64,
    pub through_windows: u64,
    /// Work requests of XRC that completed well.
    pub xrc: u64,
    /// Completion queues that overran.
    pub overruns: u64,
    pub trains: u64,
    pub virtual_ns: u64,
}

impl Stats {
    pub const fn add(&mut self, other: &Self) {
        self.messages += other.messages;
        self.packets += other.packets;
        self.rebuilt += other.rebuilt;
        self.retries += other.retries;
        self.rnr_naks += other.rnr_naks;
        self.duplicates += other.duplicates;
        self.binds += other.binds;
        self.unbinds += other.unbinds;
        self.through_windows += other.through_windows;
        self.xrc += other.xrc;
        self.overruns += other.overruns;
        self.trains += other.trains;
        self.virtual_ns += other.virtual_ns;
    }
}

/// The next train of a queue pair, its payload in `out`.
fn load(
    qp: &mut Qp,
    now: Instant,
    view: &mut View<'_>,
    most: u32,
    out: &mut Vec<u8>,
) -> Option<Train> {
    let departure = qp.next_train(now, view, 1, most)?;
    let train = *departure.train();
    out.resize(out.len().max(train.len() as usize), 0);
    qp.depart(now, &departure, view, out).ok()?;
    let mut head = [0; Train::MAX_HEAD];
    let len = train.emit(&mut head);
    assert_eq!(Train::parse(&head[..len], train.len()), Ok(train));
    Some(train)
}

/// Queue pairs are numbered from here on, and no number is used twice.
pub(crate) const FIRST_NUM: u32 = 0x100;

/// Events without any progress of the program after which a world is stuck.
const PATIENCE: u64 = 3_000_000;

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) profile: Profile,
    pub(crate) random: Random,
    pub(crate) now: u64,
    pub(crate) fabric: Fabric,
    pub(crate) nodes: Vec<Node>,
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) conns: Vec<Conn>,
    /// Endpoint of each queue pair number, while it lives.
    pub(crate) directory: Vec<Option<usize>>,
    pub(crate) stats: Stats,
    pub(crate) trace: Trace,
    /// Messages still to be posted.
    pub(crate) budget: u64,
    /// Values that adders of each node's counter have seen, and adds posted and completed.
    pub(crate) counter_seen: Vec<BTreeSet<u64>>,
    pub(crate) counter_posted: Vec<u64>,
    /// Counters of queue pairs that are gone, and packets that found nobody.
    pub(crate) ledger: Counters,
    pub(crate) nowhere: u64,
    timers: BinaryHeap<Reverse<(u64, u32)>>,
    dirty: Vec<usize>,
    packet: Vec<u8>,
    steps: u64,
}

impl World {
    pub(crate) fn new(seed: u64, trace: Trace) -> Self {
        let mut random = Random::new(seed);
        let profile = Profile::of(&mut random);
        let mut world = Self {
            fabric: Fabric::new(profile.nodes, profile.faults),
            budget: profile.messages,
            counter_seen: vec![BTreeSet::new(); profile.nodes],
            counter_posted: vec![0; profile.nodes],
            profile,
            random,
            now: 0,
            nodes: Vec::new(),
            endpoints: Vec::new(),
            conns: Vec::new(),
            directory: Vec::new(),
            stats: Stats::default(),
            trace,
            ledger: Counters::default(),
            nowhere: 0,
            timers: BinaryHeap::new(),
            dirty: Vec::new(),
            packet: vec![0; 8192],
            steps: 0,
        };
        world.populate();
        world
    }

    /// Lives to the end: everything posted, everything done, everything compared.
    pub(crate) fn run(&mut self) -> Stats {
        while self.budget > 0 {
            self.act();
            self.steps += 1;
            // Datagrams are posted without waiting for anything, so the wire has to keep up.
            let more = if self.fabric.in_flight() > 200 { 12 } else { 0 };
            for _ in 0..self.random.below(4) + more {
                if !self.step() {
                    break;
                }
            }
        }
        self.wind_down();
        self.check_end();
        self.stats.packets = self.fabric.counters.sent;
        self.stats.retries = self.ledger.retries;
        self.stats.rnr_naks = self.ledger.rnr_naks_received;
        self.stats.duplicates = self.ledger.duplicates;
        self.stats.virtual_ns = self.now;
        self.stats
    }

    pub(crate) const fn instant(&self) -> Instant {
        Instant::from_nanos(self.now)
    }

    /// Calls into a queue pair; what it has to say is sent at the next [`World::pump`].
    pub(crate) fn with<R>(
        &mut self,
        e: usize,
        f: impl FnOnce(&mut Qp, &mut View<'_>, Instant) -> R,
    ) -> Option<R> {
        let now = self.instant();
        let ep = &mut self.endpoints[e];
        let cell = ep.cell.as_mut()?;
        if !cell.listed {
            cell.listed = true;
            self.dirty.push(e);
        }
        let (qp, mut view) = cell.split(&mut self.nodes[ep.node].common);
        let result = f(qp, &mut view, now);
        if cell.port.failing {
            self.settle_queues(e);
        }
        Some(result)
    }

    /// Sends what the queue pairs touched have to say.
    pub(crate) fn pump(&mut self) {
        let mut dirty = std::mem::take(&mut self.dirty);
        for e in dirty.drain(..) {
            self.pump_one(e);
        }
        self.dirty = dirty;
    }

    fn pump_one(&mut self, e: usize) {
        let now = self.instant();
        let room = if self.random.chance(self.profile.choke) {
            self.random.between(1, 6)
        } else {
            u64::MAX
        };
        let starved = self.is_starved(e);
        let ep = &mut self.endpoints[e];
        let Some(cell) = ep.cell.as_mut() else { return };
        cell.listed = false;
        let common = &mut self.nodes[ep.node].common;
        let mut sent = 0;
        let mut choked = false;
        loop {
            let peer_node = cell.peer_node;
            let (qp, mut view) = cell.split(common);
            if sent >= room {
                choked = true;
                break;
            }
            let train = match self.profile.train {
                0 => None,
                most => load(qp, now, &mut view, most, &mut self.packet),
            };
            let tx = match &train {
                Some(train) => Transmit {
                    len: train.len() as usize,
                    dest: Dest::Connected,
                },
                None => match qp.poll_transmit(now, &mut view, &mut self.packet) {
                    Some(tx) => tx,
                    None => break,
                },
            };
            sent += 1;
            self.stats.trains += u64::from(train.is_some());
            assert!(
                sent < 1_000_000,
                "queue pair {:#x} sends without end",
                ep.num
            );
            let to = match tx.dest {
                Dest::Connected => peer_node,
                Dest::Datagram(to) => usize::from(to.av.dgid.0[15]) - 1,
            };
            let bytes = &self.packet[..tx.len];
            let mut untouchable = Harm::PEACE;
            // Who starves makes no progress, and must not be hurt again before it does.
            let harm = if starved {
                &mut untouchable
            } else {
                &mut self.conns[ep.conn].harm
            };
            let fate = self.fabric.send(
                self.now,
                &mut self.random,
                (ep.node, to),
                harm,
                self.profile.recovery(),
                (bytes, train.as_ref()),
            );
            if self.trace.is_on() {
                let packet = match &train {
                    Some(train) => format!("{} ... x{}", train.first(), train.packets()),
                    None => Packet::parse(bytes)
                        .expect("what we send can be parsed")
                        .to_string(),
                };
                let mark = match fate {
                    Fate::Sent => String::new(),
                    other => format!("  ({other:?})").to_lowercase(),
                };
                self.trace.note(
                    self.now,
                    format_args!("{}:{:#x} -> {to} {packet}{mark}", ep.node, ep.num),
                );
            }
        }
        assert!(
            cell.qp.sends_pending() > 0 || cell.qp.poll_timeout().is_none(),
            "{:#x} has nothing under way, but a timer",
            ep.num
        );
        if choked {
            self.timers.push(Reverse((self.now + 2_000, ep.num)));
        }
        if let Some(at) = cell.qp.poll_timeout() {
            let at = at.as_nanos();
            if cell.registered.is_none_or(|r| at < r) {
                cell.registered = Some(at);
                self.timers.push(Reverse((at, ep.num)));
            }
        }
        // Work that needs no packet is done here, too.
        if cell.port.failing {
            self.settle_queues(e);
        }
    }

    /// One thing happens: packets arrive at a node, or a timer goes off. False: nothing ever will.
    pub(crate) fn step(&mut self) -> bool {
        self.steps += 1;
        assert!(self.steps < PATIENCE, "no end in sight");
        let arrival = self.fabric.next_arrival();
        let timer = self.timers.peek().map(|Reverse((at, _))| *at);
        match (arrival, timer) {
            (None, None) => {
                // Time passes even when everybody stands still.
                let stalls = self.nodes.iter().map(|n| n.stalled_until);
                let Some(until) = stalls.filter(|t| *t > self.now).min() else {
                    return false;
                };
                self.now = until;
            }
            (Some(at), timer) if timer.is_none_or(|t| at <= t) => {
                self.now = self.now.max(at);
                self.arrive();
            }
            _ => {
                if let Some(Reverse((at, num))) = self.timers.pop() {
                    self.now = self.now.max(at);
                    self.ring(at, num);
                }
            }
        }
        self.pump();
        true
    }

    fn arrive(&mut self) {
        let Some(node) = self.fabric.next_by(self.now) else {
            return;
        };
        let stalled = self.nodes[node].stalled_until;
        if self.now < stalled {
            self.fabric.postpone(stalled);
            return;
        }
        // What arrives together is handled together; that is where acknowledgements coalesce.
        let (most, window) = if self.random.chance(5000) {
            (1, 0)
        } else {
            (self.random.between(2, 32), 300)
        };
        for _ in 0..most {
            let Some(parcel) = self.fabric.pop() else {
                break;
            };
            self.deliver(&parcel);
            self.fabric.give_back(parcel);
            if self.fabric.next_by(self.now + window) != Some(node) {
                break;
            }
        }
    }

    fn deliver(&mut self, parcel: &Parcel) {
        let num = parcel.destination().unwrap_or(0);
        let found = num
            .checked_sub(FIRST_NUM)
            .and_then(|i| *self.directory.get(i as usize)?)
            .filter(|e| self.endpoints[*e].node == parcel.to);
        let Some(e) = found else {
            self.nowhere += parcel.packets();
            return;
        };
        let ep = &self.endpoints[e];
        let wrong_peer = ep.transport != Transport::Ud
            && ep.cell.as_ref().is_none_or(|c| c.peer_node != parcel.from);
        if wrong_peer {
            self.nowhere += parcel.packets();
            return;
        }
        let meta = PacketMeta {
            src: ip_of(parcel.from),
            dst: ip_of(parcel.to),
            traffic_class: 0,
            hop_limit: 64,
        };
        if let Some(train) = &parcel.train {
            let mut payload = parcel.bytes.clone();
            let dropped = self.with(e, |qp, view, now| {
                qp.handle_train(now, &meta, train, view, &mut payload)
            });
            if dropped > Some(0) && self.trace.is_on() {
                self.trace.note(
                    self.now,
                    format_args!("{num:#x} drops {dropped:?} of {} ...", train.first()),
                );
            }
            return;
        }
        let packet = match Packet::parse(&parcel.bytes) {
            Ok(packet) => packet,
            Err(e) => panic!("what was sent cannot be parsed: {e}"),
        };
        let outcome = self.with(e, |qp, view, now| {
            qp.handle_packet(now, &meta, &packet, view)
        });
        if let Some(Err(reason)) = outcome
            && self.trace.is_on()
        {
            self.trace
                .note(self.now, format_args!("{num:#x} drops {packet}: {reason}"));
        }
    }

    fn ring(&mut self, at: u64, num: u32) {
        let Some(e) = self.directory[(num - FIRST_NUM) as usize] else {
            return;
        };
        let ep = &mut self.endpoints[e];
        let stalled = self.nodes[ep.node].stalled_until;
        if self.now < stalled {
            self.timers.push(Reverse((stalled, num)));
            if let Some(cell) = &mut ep.cell
                && cell.registered == Some(at)
            {
                cell.registered = Some(stalled);
            }
            return;
        }
        if let Some(cell) = &mut ep.cell
            && cell.registered.is_some_and(|r| r <= self.now)
        {
            cell.registered = None;
        }
        let trace = self.trace.is_on();
        let rang = self.with(e, |qp, view, now| {
            let due = qp.poll_timeout().is_some_and(|t| t <= now);
            if due {
                qp.handle_timeout(now, view);
            }
            due
        });
        if trace && rang == Some(true) {
            self.trace
                .note(self.now, format_args!("{num:#x} timer goes off"));
        }
    }

    /// Whether a message to either end of the connection waits for a receive buffer.
    fn is_starved(&self, e: usize) -> bool {
        if !self.profile.faults.fair {
            return false;
        }
        let conn = &self.conns[self.endpoints[e].conn];
        [conn.a, conn.b].into_iter().any(|e| {
            let ep = &self.endpoints[e];
            if ep.arriving.is_empty() {
                return false;
            }
            let mut shared = self.nodes[ep.node].common.shared.iter();
            match &ep.cell {
                Some(cell) if cell.port.srq || cell.port.target => shared.any(|shared| {
                    shared.xrc.is_some() == cell.port.target && shared.srq.is_empty()
                }),
                _ => ep.arriving.len() > ep.posted.len(),
            }
        })
    }

    /// Forgets how long nothing has happened; called when the program moves on.
    pub(crate) const fn note_progress(&mut self) {
        self.steps = 0;
    }

    /// Nothing is on its way, and nothing is waited for.
    pub(crate) fn is_idle(&self) -> bool {
        self.fabric.next_arrival().is_none()
            && self.endpoints.iter().all(|ep| {
                ep.cell
                    .as_ref()
                    .is_none_or(|c| c.qp.poll_timeout().is_none())
            })
    }
}
