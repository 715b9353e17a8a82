//! The wire: every packet between nodes passes here, and may be lost, damaged, doubled or late.
//!
//! Packets between two nodes keep their order unless one is made late on purpose. A wire can be
//! *fair*: it then leaves a connection alone for a while after hurting it, long enough to recover,
//! so that on a fair wire no connection with seven retries may ever give up. That turns "it must
//! survive this" into something that can be checked, where pure chance would excuse everything.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use adverb_wire::Train;
use adverb_wire::icrc::{self, Addressing};

use crate::node::ip_of;
use crate::random::Random;

/// How bad the wire is; chances in ten thousand.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub loss: u32,
    pub corrupt: u32,
    pub duplicate: u32,
    pub late: u32,
    /// Nanoseconds that every packet takes, and how much that varies.
    pub latency: u64,
    pub jitter: u64,
    /// The longest that a late packet is late.
    pub lateness: u64,
    pub fair: bool,
}

impl Faults {
    pub const fn any_harm(&self) -> bool {
        self.loss > 0 || self.corrupt > 0 || self.late > 0
    }
}

/// What the wire has done to one connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Harm {
    /// Nothing happens to it before this time, on a fair wire.
    pub peace_until: u64,
    /// Harms since the last peace began.
    recent: u32,
    /// Harms in all.
    pub total: u64,
}

impl Harm {
    /// Of a connection that a fair wire leaves alone for ever.
    pub const PEACE: Self = Self {
        peace_until: u64::MAX,
        recent: 0,
        total: 0,
    };
}

/// Harms in a row on a fair wire. Each can cost more than one of the seven retries.
const BURST: u32 = 2;

/// What has passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WireCounters {
    pub sent: u64,
    pub lost: u64,
    pub corrupted: u64,
    pub duplicated: u64,
    pub late: u64,
    pub delivered: u64,
}

/// A packet that has arrived.
#[derive(Debug)]
pub struct Parcel {
    pub from: usize,
    pub to: usize,
    /// A packet from the BTH to the pad, or the payload of the train.
    pub bytes: Vec<u8>,
    pub train: Option<Train>,
}

impl Parcel {
    /// The queue pair that it is for.
    pub fn destination(&self) -> Option<u32> {
        match &self.train {
            Some(train) => Some(train.first().bth.dest_qp),
            None => destination(&self.bytes),
        }
    }

    pub fn packets(&self) -> u64 {
        packets_of(self.train.as_ref())
    }
}

/// How many packets travel: those of the train, or one.
fn packets_of(train: Option<&Train>) -> u64 {
    train.map_or(1, |train| train.packets().into())
}

#[derive(Debug, Default)]
pub struct Fabric {
    pub faults: Faults,
    pub counters: WireCounters,
    heap: BinaryHeap<Reverse<(u64, u64, u32)>>,
    parcels: Vec<Option<Parcel>>,
    empty: Vec<u32>,
    /// Buffers of packets that have arrived, to be used again.
    spare: Vec<Vec<u8>>,
    serial: u64,
    /// When the newest packet on each way arrives, for order.
    newest: Vec<u64>,
    nodes: usize,
}

/// What became of a packet given to [`Fabric::send`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    Sent,
    Lost,
    Corrupted,
    Doubled,
    Late,
}

impl Fabric {
    pub fn new(nodes: usize, faults: Faults) -> Self {
        Self {
            faults,
            newest: vec![0; nodes * nodes],
            nodes,
            ..Self::default()
        }
    }

    /// Takes a packet, or the payload of a train, which is lost, doubled or late as a whole. `recovery` is how long a connection needs to get over the worst.
    pub fn send(
        &mut self,
        now: u64,
        random: &mut Random,
        (from, to): (usize, usize),
        harm: &mut Harm,
        recovery: u64,
        (bytes, train): (&[u8], Option<&Train>),
    ) -> Fate {
        self.counters.sent += packets_of(train);
        let f = self.faults;
        let mut fate = Fate::Sent;
        let mut delay = 0;
        if f.any_harm() && (!f.fair || now >= harm.peace_until) {
            let roll = random.below(10_000) as u32;
            fate = if roll < f.loss {
                Fate::Lost
            } else if roll < f.loss + f.corrupt {
                Fate::Corrupted
            } else if roll < f.loss + f.corrupt + f.late {
                Fate::Late
            } else {
                Fate::Sent
            };
            if fate != Fate::Sent {
                harm.total += 1;
                harm.recent += 1;
                if harm.recent >= BURST {
                    harm.recent = 0;
                    harm.peace_until = now + recovery;
                }
            }
        }
        match fate {
            Fate::Lost => {
                self.counters.lost += 1;
                return fate;
            }
            Fate::Corrupted => {
                self.counters.corrupted += 1;
                let mut copy = self.buffer(bytes);
                // What the ICRC does not see is not damage. Trains have none; where they travel, nothing is damaged.
                if train.is_some() || damage(random, from, to, &mut copy) {
                    self.spare.push(copy);
                } else {
                    self.fly(now + f.latency, (from, to), copy, None);
                }
                return fate;
            }
            Fate::Late => {
                self.counters.late += 1;
                delay = 1 + random.below(f.lateness.max(1));
            }
            Fate::Sent | Fate::Doubled => {}
        }
        if f.duplicate > 0 && random.chance(f.duplicate) {
            self.counters.duplicated += 1;
            fate = Fate::Doubled;
        }
        let mut at = now + f.latency + random.below(f.jitter + 1) + delay;
        if delay == 0 {
            let newest = &mut self.newest[from * self.nodes + to];
            at = at.max(*newest);
            *newest = at;
        }
        let copy = self.buffer(bytes);
        self.fly(at, (from, to), copy, train);
        if fate == Fate::Doubled {
            // After the first, so that it does not open a gap before others.
            let again = self.buffer(bytes);
            let later = at + random.below(f.latency * 4 + 1);
            self.fly(later, (from, to), again, train);
        }
        fate
    }

    fn buffer(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(bytes);
        copy
    }

    fn fly(&mut self, at: u64, (from, to): (usize, usize), bytes: Vec<u8>, train: Option<&Train>) {
        let parcel = Some(Parcel {
            from,
            to,
            bytes,
            train: train.copied(),
        });
        let index = match self.empty.pop() {
            Some(i) => {
                self.parcels[i as usize] = parcel;
                i
            }
            None => {
                self.parcels.push(parcel);
                (self.parcels.len() - 1) as u32
            }
        };
        self.heap.push(Reverse((at, self.serial, index)));
        self.serial += 1;
    }

    pub fn in_flight(&self) -> usize {
        self.heap.len()
    }

    /// When the next packet arrives.
    pub fn next_arrival(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    /// Where the next packet goes, if it arrives by then.
    pub fn next_by(&self, until: u64) -> Option<usize> {
        let Reverse((at, _, index)) = self.heap.peek()?;
        let parcel = self.parcels[*index as usize].as_ref()?;
        (*at <= until).then_some(parcel.to)
    }

    /// The next packet.
    pub fn pop(&mut self) -> Option<Parcel> {
        let Reverse((_, _, index)) = self.heap.pop()?;
        self.empty.push(index);
        let parcel = self.parcels[index as usize].take();
        self.counters.delivered += parcel.as_ref().map_or(0, Parcel::packets);
        parcel
    }

    /// The next packet's node is not listening; it looks again at `at`.
    pub fn postpone(&mut self, at: u64) {
        if let Some(Reverse((_, serial, index))) = self.heap.pop() {
            self.heap.push(Reverse((at, serial, index)));
        }
    }

    pub fn give_back(&mut self, parcel: Parcel) {
        self.spare.push(parcel.bytes);
    }

    /// Whether a packet to this queue pair is still on its way.
    pub fn carries_for(&self, num: u32) -> bool {
        self.parcels
            .iter()
            .flatten()
            .any(|p| p.destination() == Some(num))
    }
}

/// The destination queue pair in a packet.
fn destination(bytes: &[u8]) -> Option<u32> {
    match bytes.get(5..8)? {
        [a, b, c] => Some(u32::from_be_bytes([0, *a, *b, *c])),
        _ => None,
    }
}

/// Turns up to three bits of a packet or its ICRC over; whether the receiver's check finds out.
fn damage(random: &mut Random, from: usize, to: usize, bytes: &mut [u8]) -> bool {
    let addressing =
        Addressing::new(ip_of(from), ip_of(to), 0xc000).expect("both addresses are IPv4");
    let mut crc = icrc::compute(&addressing, bytes);
    for _ in 0..random.between(1, 3) {
        let bit = random.index((bytes.len() + crc.len()) * 8);
        let byte = bytes
            .iter_mut()
            .chain(&mut crc)
            .nth(bit / 8)
            .expect("it is in the packet or the ICRC");
        *byte ^= 1 << (bit % 8);
    }
    !icrc::verify(&addressing, bytes, crc)
}
