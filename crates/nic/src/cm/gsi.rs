//! QP 1, on which ports manage their connections: packets in, packets out.
//!
//! It is no queue pair of the table. What comes in is put aside by whoever drives and handled once the
//! links' locks are free again. What a full link does not take waits here and is tried again soon: the
//! next retransmission would be seconds away.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use adverb_engine::Instant;
use adverb_link::{Meta, SendError};
use adverb_wire::cm::{MAD_LEN, Mad};
use adverb_wire::{
    Bth, DEFAULT_PKEY, Deth, GSI_QKEY, GSI_QPN, Opcode, Operation, Packet, Psn, Transport,
    pkeys_match,
};

use crate::fabric::{self, Way};
use crate::nic::Nic;
use crate::sync::LockExt;

/// Messages that may wait to be handled, or to be sent. Beyond that they are lost, and said again.
const BOUND: usize = 4096;

/// What a link has no room for this long is lost.
const PATIENCE_NS: u64 = 1_000_000_000;

const OPCODE: Opcode = Opcode::Roce(Transport::Ud, Operation::SendOnly);
const PACKET_LEN: usize = OPCODE.header_len() + MAD_LEN;

/// A message as it came.
#[derive(Clone)]
pub(super) struct Arrival {
    pub(super) meta: Meta,
    /// The sender's queue pair, where answers go.
    pub(super) from_qp: u32,
    pub(super) mad: [u8; MAD_LEN],
    /// Put off already: not beyond this.
    pub(super) until: Option<Instant>,
}

struct Outgoing {
    since: Instant,
    way: Way,
    meta: Meta,
    packet: [u8; PACKET_LEN],
}

#[derive(Default)]
pub(super) struct Gsi {
    inbox: Mutex<VecDeque<Arrival>>,
    outbox: Mutex<VecDeque<Outgoing>>,
    psn: AtomicU32,
    pub(super) dropped: Dropped,
}

/// Messages that had no effect, by reason.
#[derive(Debug, Default)]
pub(super) struct Dropped {
    /// No datagram for QP 1: transport, Q_Key, P_Key or length are not those of one.
    pub(super) not_gsi: AtomicU64,
    /// Not a message of the connection manager.
    pub(super) not_cm: AtomicU64,
    /// For nobody here.
    pub(super) nobody: AtomicU64,
    /// Not from the address that the exchange is with.
    pub(super) wrong_peer: AtomicU64,
    /// The exchange is not where such a message belongs.
    pub(super) refused: AtomicU64,
    /// A listener had too many requests waiting.
    pub(super) backlog: AtomicU64,
    /// Asked for by a source that has asked for too much already.
    pub(super) crowd: AtomicU64,
    /// Asked for in the name of a queue pair that is connected.
    pub(super) stale: AtomicU64,
    /// Too many messages at a time.
    pub(super) overflow: AtomicU64,
}

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Gsi {
    pub(super) fn next(&self) -> Option<Arrival> {
        self.inbox.acquire().pop_front()
    }

    fn packet(&self, mad: &[u8; MAD_LEN], src_qp: u32, dest_qp: u32) -> [u8; PACKET_LEN] {
        let psn = Psn::new(self.psn.fetch_add(1, Ordering::Relaxed));
        let packet = Packet {
            deth: Some(Deth {
                qkey: GSI_QKEY,
                src_qp,
            }),
            payload: mad,
            ..Packet::new(Bth::new(OPCODE, dest_qp, psn))
        };
        let mut bytes = [0; PACKET_LEN];
        packet.emit(&mut bytes);
        bytes
    }
}

/// The message in a packet for QP 1, if it is a datagram that may come there.
fn mad_of<'a>(packet: &Packet<'a>) -> Option<(u32, &'a [u8; MAD_LEN])> {
    let deth = packet.deth?;
    let sound = packet.bth.opcode == OPCODE
        && deth.qkey == GSI_QKEY
        && pkeys_match(packet.bth.pkey, DEFAULT_PKEY);
    Some((deth.src_qp, packet.payload.try_into().ok()?)).filter(|_| sound)
}

/// Whether a message opens an exchange: a REQ or a SIDR_REQ, by its attribute ID.
fn begins(mad: &[u8; MAD_LEN]) -> bool {
    matches!(mad[16..18], [0x00, 0x10 | 0x17])
}

impl Nic {
    /// Takes in a packet for QP 1.
    pub(crate) fn take_mad(&self, meta: &Meta, packet: &Packet<'_>) {
        let gsi = &self.cm.gsi;
        let Some((from_qp, mad)) = mad_of(packet) else {
            return count(&gsi.dropped.not_gsi);
        };
        let mut inbox = gsi.inbox.acquire();
        // What strangers begin leaves room for what answers us.
        let bound = if begins(mad) { BOUND / 2 } else { BOUND };
        if inbox.len() >= bound {
            return count(&gsi.dropped.overflow);
        }
        inbox.push_back(Arrival {
            meta: *meta,
            from_qp,
            mad: *mad,
            until: None,
        });
        drop(inbox);
        self.cm.note_work();
    }

    /// Sends a message to QP `dest_qp`; the caller flushes.
    pub(super) fn send_mad(&self, way: &Way, meta: &Meta, dest_qp: u32, mad: &Mad, now: Instant) {
        let gsi = &self.cm.gsi;
        let packet = gsi.packet(&mad.emit(), GSI_QPN, dest_qp);
        let mut outbox = gsi.outbox.acquire();
        // Behind what waits already, or messages would overtake each other.
        if outbox.is_empty() && self.send_alone(way, meta, &packet, now) != Err(SendError::Full) {
            return;
        }
        if outbox.len() >= BOUND {
            return count(&gsi.dropped.overflow);
        }
        if outbox.is_empty() {
            self.retry_mads_soon(now);
        }
        outbox.push_back(Outgoing {
            since: now,
            way: way.clone(),
            meta: *meta,
            packet,
        });
    }

    /// Tries again what full links did not take.
    pub(super) fn resend_mads(&self, now: Instant) {
        let mut outbox = self.cm.gsi.outbox.acquire();
        if outbox.is_empty() {
            return;
        }
        outbox.retain(|o| {
            self.send_alone(&o.way, &o.meta, &o.packet, now) == Err(SendError::Full)
                && now < o.since.plus_nanos(PATIENCE_NS)
        });
        if !outbox.is_empty() {
            self.retry_mads_soon(now);
        }
    }

    fn retry_mads_soon(&self, now: Instant) {
        let at = now.plus_nanos(fabric::RETRY_NS);
        self.fabric.look_again(at, fabric::CONNECTIONS);
    }

    /// Hands a message over to the process at `slot`. False if there is none, or it is ourselves.
    pub(super) fn hand_mad_over(&self, slot: u16, arrival: &Arrival, now: Instant) -> bool {
        let packet = self.cm.gsi.packet(&arrival.mad, arrival.from_qp, GSI_QPN);
        self.fabric.hand_over_to(slot, &arrival.meta, &packet, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;
    use adverb_wire::cm::{Message, Rtu};
    use std::net::{IpAddr, Ipv4Addr};

    const META: Meta = Meta {
        src: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9)),
        dst: IpAddr::V4(Ipv4Addr::LOCALHOST),
        traffic_class: 0,
        hop_limit: 64,
        outside: false,
    };

    fn total(dropped: &Dropped) -> [u64; 3] {
        [&dropped.not_gsi, &dropped.not_cm, &dropped.nobody].map(|c| c.load(Ordering::Relaxed))
    }

    /// What a packet adds to the counters when it is taken in and handled.
    fn counted(nic: &Nic, bytes: &[u8]) -> [u64; 3] {
        let before = total(&nic.cm.gsi.dropped);
        nic.take_mad(&META, &Packet::parse(bytes).unwrap());
        nic.work_cm(clock::now());
        let after = total(&nic.cm.gsi.dropped);
        std::array::from_fn(|i| after[i] - before[i])
    }

    #[test]
    fn what_waits_to_be_handled_has_a_bound_and_half_of_it_is_not_for_strangers() {
        // Without a thread nobody handles anything.
        let nic = Nic::start(crate::fork::generation()).unwrap();
        let bytes =
            |message| Gsi::default().packet(&Mad { tid: 1, message }.emit(), GSI_QPN, GSI_QPN);
        let (asks, tells) = (
            bytes(Message::Req(adverb_wire::cm::Req::default())),
            bytes(Message::Rtu(Rtu::default())),
        );
        let waiting = |times: usize, packet: &[u8]| {
            for _ in 0..times {
                nic.take_mad(&META, &Packet::parse(packet).unwrap());
            }
            nic.cm.gsi.inbox.acquire().len()
        };
        assert_eq!(waiting(BOUND, &asks), BOUND / 2);
        assert_eq!(waiting(BOUND, &tells), BOUND);
        let lost = nic.cm.gsi.dropped.overflow.load(Ordering::Relaxed);
        assert_eq!(lost, BOUND as u64);
    }

    #[test]
    fn what_is_no_message_for_us_is_dropped_and_counted() {
        let nic = Nic::of_process().unwrap();
        let mad = Mad {
            tid: 1,
            message: Message::Rtu(Rtu::default()),
        };
        let sound = Gsi::default().packet(&mad.emit(), GSI_QPN, GSI_QPN);
        assert_eq!(sound.len(), 12 + 8 + 256);
        assert_eq!(counted(&nic, &sound), [0, 0, 1]);
        let pkey = 2;
        let qkey = Bth::LEN;
        let class = OPCODE.header_len() + 1;
        for (at, counts) in [(pkey, [1, 0, 0]), (qkey, [1, 0, 0]), (class, [0, 1, 0])] {
            let mut bytes = sound;
            bytes[at] ^= 0x55;
            assert_eq!(counted(&nic, &bytes), counts, "byte {at}");
        }
        assert_eq!(counted(&nic, &sound[..PACKET_LEN - 4]), [1, 0, 0]);
        let immediate = Opcode::Roce(Transport::Ud, Operation::SendOnlyImm);
        let mut bytes = sound;
        bytes[0] = immediate.to_u8();
        assert_eq!(counted(&nic, &bytes), [1, 0, 0]);
    }
}
