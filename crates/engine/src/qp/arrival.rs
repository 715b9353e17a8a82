//! Trains, receiving side: what their packets would do, in one go where all is as it should be.
//!
//! Only the ordinary case is known here: in order, of the message under way or the next one, with a key and a range that
//! allow all of it. Whatever else a train holds is taken apart, and its packets go where packets go. So nothing is
//! refused, repeated or reported here, and a train cannot mean anything that its packets do not.

use adverb_wire::{Opcode, Operation, Packet, Train, Transport, pkeys_match};

use super::requester::PSN_BASE;
use super::responder::Message;
use super::state::QpState;
use super::{PacketMeta, Qp, Role};
use crate::memory::{Access, Host};
use crate::time::Instant;
use crate::train::Unload;
use crate::wr::MAX_MESSAGE;

/// Packets at the front of a train that need no more than one look.
struct Run<'a> {
    first: &'a Packet<'static>,
    /// The last packet of the run.
    last: Packet<'static>,
    from: Operation,
    to: Operation,
    packets: u64,
    /// Where the payload begins in that of the train, and how long it is.
    base: u64,
    len: u64,
}

impl Qp {
    /// A train for this queue pair has arrived: as [`Qp::handle_packet`] with each of its packets. Says how many of them
    /// were dropped.
    pub fn handle_train(
        &mut self,
        now: Instant,
        meta: &PacketMeta,
        train: &Train,
        host: &mut dyn Host,
        payload: &mut dyn Unload,
    ) -> u32 {
        let mut dropped = 0;
        let mut at = 0;
        while at < train.packets() {
            let taken = self.take_run(
                now,
                &train.rest(at),
                train.packet(at).1.start,
                host,
                payload,
            );
            self.counters.packets_received += u64::from(taken);
            at += taken;
            if at < train.packets() {
                dropped += u32::from(!self.take_one(now, meta, train, at, host, payload));
                at += 1;
            }
        }
        dropped
    }

    /// Packet `n` of a train by itself; false if it was dropped.
    fn take_one(
        &mut self,
        now: Instant,
        meta: &PacketMeta,
        train: &Train,
        n: u32,
        host: &mut dyn Host,
        payload: &mut dyn Unload,
    ) -> bool {
        let (packet, range) = train.packet(n);
        let mut bytes = [0; Train::MAX_PIECE as usize];
        let bytes = &mut bytes[..range.len()];
        payload.look(range.start.into(), bytes);
        let packet = Packet {
            payload: bytes,
            ..packet
        };
        self.handle_packet(now, meta, &packet, host).is_ok()
    }

    /// Does what the packets at the front of the train would do, and says of how many it did so. Of none, nothing has
    /// changed that their handling one by one would notice.
    fn take_run(
        &mut self,
        now: Instant,
        train: &Train,
        base: u32,
        host: &mut dyn Host,
        payload: &mut dyn Unload,
    ) -> u32 {
        let Some(run) = Run::of(train, base, self.pmtu as u64) else {
            return 0;
        };
        let bth = &run.first.bth;
        let open = match self.state {
            QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe => true,
            QpState::Reset | QpState::Init | QpState::Err => false,
        };
        if !open
            || bth.opcode.transport() != Some(self.config.transport)
            || !pkeys_match(bth.pkey, adverb_wire::DEFAULT_PKEY)
        {
            return 0;
        }
        let answers = run.from.is_response();
        let taken = match (self.config.transport, self.config.role) {
            (Transport::Rc, _) | (Transport::Xrc, Role::Initiator) if answers => {
                self.take_answers(now, &run, host, payload)
            }
            (Transport::Rc | Transport::Uc, _) | (Transport::Xrc, Role::Target) if !answers => {
                self.take_requests(now, &run, host, payload)
            }
            _ => false,
        };
        if taken { run.packets as u32 } else { 0 }
    }

    fn take_requests(
        &mut self,
        now: Instant,
        run: &Run<'_>,
        host: &mut dyn Host,
        payload: &mut dyn Unload,
    ) -> bool {
        if run.first.bth.psn != self.responder.expected_psn() {
            return false;
        }
        let continues = match self.responder.message {
            Message::None => false,
            Message::Send if run.from.is_send() => true,
            Message::Write { .. } if run.from.is_write() => true,
            _ => return false,
        };
        if continues == run.from.starts_message()
            || self.select_srq(run.from, run.first, host).is_err()
        {
            return false;
        }
        let placed = if run.from.is_send() {
            self.place_send_run(run, host, payload)
        } else {
            self.place_write_run(run, host, payload)
        };
        let Some(message) = placed else {
            return false;
        };
        self.note_established(host);
        self.responder.message = message;
        if self.config.transport == Transport::Uc {
            let next = run.last.bth.psn.next();
            self.responder.expected = PSN_BASE + u64::from(next.value());
        } else {
            self.go_on_after(run);
        }
        if run.from.is_send() && run.to.ends_message() {
            let received = self.receiving.received as u32;
            self.complete_receive(now, run.to, &run.last, (received, None), host);
        }
        true
    }

    /// What the packets of a run do to the answers.
    fn go_on_after(&mut self, run: &Run<'_>) {
        self.note_in_order();
        self.responder.expected += run.packets;
        if run.to.ends_message() {
            self.end_message();
        }
        if run.first.bth.ack_req || run.last.bth.ack_req {
            self.responder.answers.ack = true;
        }
    }

    /// Puts the payload of a SEND where it belongs; the message under way then.
    fn place_send_run(
        &mut self,
        run: &Run<'_>,
        host: &mut dyn Host,
        payload: &mut dyn Unload,
    ) -> Option<Message> {
        if run.from.starts_message() && !self.take_receive(host) {
            return None;
        }
        let through = self.receiving.received + run.len;
        if through > MAX_MESSAGE || through > self.receiving.capacity() {
            return None;
        }
        let before = self.receiving.mark();
        let placed = self.place(run.len as usize, |access, range| {
            payload.unload(host, access, run.base + range.start as u64)
        });
        if placed.is_err() {
            self.receiving.go_back_to(before);
            return None;
        }
        Some(match run.to.ends_message() {
            true => Message::None,
            false => Message::Send,
        })
    }

    /// Puts the payload of a WRITE where it belongs; the message under way then.
    fn place_write_run(
        &self,
        run: &Run<'_>,
        host: &mut dyn Host,
        payload: &mut dyn Unload,
    ) -> Option<Message> {
        let right = Access::REMOTE_WRITE;
        let (va, rkey, len, done) = match self.responder.message {
            Message::Write {
                va,
                rkey,
                len,
                done,
            } => (va, rkey, len, done),
            _ => {
                let reth = run.first.reth?;
                (reth.va, reth.rkey, reth.len, 0)
            }
        };
        let through = u64::from(done) + run.len;
        let fits = match run.to.ends_message() {
            true => through == u64::from(len),
            false => through < u64::from(len),
        };
        if !fits || u64::from(len) > MAX_MESSAGE || !self.attr.access.contains(right) {
            return None;
        }
        if run.from.is_first() {
            let whole = self.remote_access(rkey, va, len.into(), right);
            host.check(&whole).ok()?;
        }
        if run.len > 0 {
            let part = self.remote_access(rkey, va.wrapping_add(done.into()), run.len, right);
            payload.unload(host, &part, run.base).ok()?;
        }
        Some(match run.to.ends_message() {
            true => Message::None,
            false => Message::Write {
                va,
                rkey,
                len,
                done: through as u32,
            },
        })
    }

    /// Answers to the oldest READ, the next ones that are missing.
    fn take_answers(
        &mut self,
        now: Instant,
        run: &Run<'_>,
        host: &mut dyn Host,
        payload: &mut dyn Unload,
    ) -> bool {
        let psn = self.requester.una;
        let end = psn + run.packets;
        if !matches!(self.state, QpState::Rts | QpState::Sqd)
            || self.requester.expand(run.first.bth.psn) != psn
            || end > self.requester.sent
            || self.sq.tail == self.sq.started
        {
            return false;
        }
        let at = self.sq.tail;
        let wqe = *self.sq.at(at);
        if !wqe.is_read() || wqe.failed.is_some() || psn < wqe.first || end > wqe.end() {
            return false;
        }
        let pmtu = self.pmtu as u64;
        let offset = (psn - wqe.first) * pmtu;
        if run.len != (u64::from(wqe.len) - offset).min(run.packets * pmtu) {
            return false;
        }
        let right = Access::LOCAL_WRITE;
        let placed = self.each_piece(at, offset, run.len, right, |access, range| {
            let unloaded = payload.unload(host, access, run.base + range.start as u64);
            unloaded.map_err(|_| ())
        });
        if placed.is_err() {
            return false;
        }
        self.progress(now, end, host);
        true
    }
}

impl<'a> Run<'a> {
    /// The packets of a train that fill their path MTU as they should. Immediate data and invalidation, which come with a
    /// last packet, are left to it.
    fn of(train: &'a Train, base: u32, pmtu: u64) -> Option<Self> {
        let all = train.packets();
        let plain = |packet: &Packet<'_>| packet.imm.is_none() && packet.ieth.is_none();
        let packets = if plain(train.last()) { all } else { all - 1 };
        let (last, payload) = train.packet(packets.checked_sub(1)?);
        let (Opcode::Roce(_, from), Opcode::Roce(_, to)) =
            (train.first().bth.opcode, last.bth.opcode)
        else {
            return None;
        };
        let full = packets == 1 || u64::from(train.piece()) == pmtu;
        if !full || !to.payload_fits(payload.len(), pmtu as usize) {
            return None;
        }
        Some(Self {
            first: train.first(),
            last,
            from,
            to,
            packets: packets.into(),
            base: base.into(),
            len: payload.end.into(),
        })
    }
}
