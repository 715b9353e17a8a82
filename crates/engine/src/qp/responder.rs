//! RC, receiving side: each request packet goes through the checks in the specification's order,
//! and is executed, answered, or refused.

use adverb_wire::{Feth, NakCode, Operation, Packet, Placement, Psn, Reth, Selectivity, Syndrome};

use super::receive::ScatterError;
use super::requester::{PSN_BASE, expand, to_psn};
use super::responses::{Answers, Saved};
use super::state::QpState;
use super::{Qp, Role};
use crate::completion::WcStatus;
use crate::error::DropReason;
use crate::event::QpEvent;
use crate::ids::{Key, PdId};
use crate::memory::{Access, Host, KeyError};
use crate::time::Instant;
use crate::wr::MAX_MESSAGE;

/// The message whose packets are arriving.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Message {
    #[default]
    None,
    Send,
    Write {
        va: u64,
        rkey: u32,
        len: u32,
        done: u32,
    },
}

/// The receive side of a connection.
#[derive(Debug, Default)]
pub(super) struct Responder {
    /// The sequence number that comes next.
    pub(super) expected: u64,
    /// Messages completed, modulo 2^24.
    pub(super) msn: u32,
    pub(super) message: Message,
    /// A NAK for the expected packet is out; further packets beyond it get none.
    complained: bool,
    pub(super) established: bool,
    /// XRC: the SRQ that the message under way names.
    pub(super) srqn: u32,
    pub(super) answers: Answers,
}

impl Responder {
    pub(super) fn expected_psn(&self) -> Psn {
        to_psn(self.expected)
    }

    pub(super) fn set_slots(&mut self, n: usize) {
        self.answers.resize(n);
    }

    pub(super) fn forget_answers(&mut self) {
        self.answers.forget();
    }

    pub(super) fn reset(&mut self) {
        self.answers.clear();
        *self = Self {
            answers: std::mem::take(&mut self.answers),
            ..Self::default()
        };
    }
}

/// A request the QP dies of: what the peer is told, and what is reported here.
pub(super) struct Refusal {
    nak: NakCode,
    /// Status of the receive entry under way, if there is one.
    receive: WcStatus,
    /// Raised when there is none.
    event: QpEvent,
}

impl Refusal {
    const fn sequence() -> Self {
        Self {
            nak: NakCode::InvalidRequest,
            receive: WcStatus::LocQpOpErr,
            event: QpEvent::RequestError,
        }
    }

    const fn invalid() -> Self {
        Self {
            nak: NakCode::InvalidRequest,
            receive: WcStatus::LocQpOpErr,
            event: QpEvent::AccessError,
        }
    }

    const fn access() -> Self {
        Self {
            nak: NakCode::RemoteAccess,
            receive: WcStatus::LocAccessErr,
            event: QpEvent::AccessError,
        }
    }
}

/// Why a request was not executed.
pub(super) enum Stop {
    Refused(Refusal),
    NotReady,
    Malformed,
}

impl From<Refusal> for Stop {
    fn from(r: Refusal) -> Self {
        Self::Refused(r)
    }
}

impl From<ScatterError> for Stop {
    fn from(e: ScatterError) -> Self {
        let (nak, receive) = match e {
            ScatterError::TooLong => (NakCode::InvalidRequest, WcStatus::LocLenErr),
            ScatterError::Protection => (NakCode::RemoteOperational, WcStatus::LocProtErr),
        };
        Self::Refused(Refusal {
            nak,
            receive,
            event: QpEvent::RequestError,
        })
    }
}

impl Qp {
    pub(super) fn start_receiving(&mut self) {
        self.responder.reset();
        self.responder.expected = PSN_BASE + u64::from(self.attr.rq_psn);
    }

    /// The first valid request while in RTR says that the peer is there.
    pub(super) fn note_established(&mut self, host: &mut dyn Host) {
        if self.state == QpState::Rtr && !self.responder.established {
            self.responder.established = true;
            host.event(QpEvent::CommEst);
        }
    }

    pub(super) fn handle_request(
        &mut self,
        now: Instant,
        op: Operation,
        packet: &Packet<'_>,
        host: &mut dyn Host,
    ) -> Result<(), DropReason> {
        let expected = self.responder.expected;
        let psn = expand(expected, packet.bth.psn);
        if psn > expected {
            if !self.responder.complained {
                self.responder.complained = true;
                self.counters.sequence_naks_sent += 1;
                self.responder
                    .answers
                    .refuse(Syndrome::Nak(NakCode::PsnSequence), expected);
            }
            return Err(DropReason::Gap);
        }
        if psn < expected {
            return self.handle_duplicate(op, psn, packet);
        }
        self.note_in_order();
        self.note_established(host);

        let executed = self
            .select_srq(op, packet, host)
            .and_then(|()| self.execute(now, op, packet, host));
        match executed {
            Ok(packets) => {
                self.responder.expected += packets;
                if packet.bth.ack_req {
                    self.responder.answers.ack = true;
                }
                Ok(())
            }
            Err(Stop::NotReady) => {
                self.responder.complained = true;
                self.counters.rnr_naks_sent += 1;
                let timer = self.attr.min_rnr_timer;
                self.responder
                    .answers
                    .refuse(Syndrome::Rnr { timer }, expected);
                Err(DropReason::NoReceive)
            }
            Err(Stop::Refused(r)) => {
                self.responder
                    .answers
                    .refuse(Syndrome::Nak(r.nak), expected);
                if !self.fail_receive(now, r.receive, host) {
                    host.event(r.event);
                }
                self.die(now, host);
                Err(DropReason::Access)
            }
            Err(Stop::Malformed) => Err(DropReason::Malformed),
        }
    }

    /// The packet that was missing is there.
    pub(super) fn note_in_order(&mut self) {
        self.responder.complained = false;
        self.responder.answers.withdraw_nak();
    }

    /// XRC: notes the SRQ that a request is for, whose protection domain is also that of the keys.
    pub(super) fn select_srq(
        &mut self,
        op: Operation,
        packet: &Packet<'_>,
        host: &mut dyn Host,
    ) -> Result<(), Stop> {
        if self.config.role != Role::Target {
            return Ok(());
        }
        let number = packet.xrc_srqn.ok_or(Stop::Malformed)?;
        let continues = (op.is_send() || op.is_write()) && !op.starts_message();
        if continues {
            // A message stays with one SRQ; of one under way there is always a number.
            return match number == self.responder.srqn {
                true => Ok(()),
                false => Err(Refusal::sequence().into()),
            };
        }
        let pd = host.xrc_srq(number).ok_or_else(Refusal::sequence)?;
        self.responder.srqn = number;
        self.responder.answers.pd = pd;
        Ok(())
    }

    /// The protection domain that the peer's keys are checked against.
    pub(super) fn responder_pd(&self) -> PdId {
        match self.config.role {
            Role::Target => self.responder.answers.pd,
            _ => self.config.pd,
        }
    }

    /// Executes the expected packet; says how many sequence numbers it takes.
    fn execute(
        &mut self,
        now: Instant,
        op: Operation,
        packet: &Packet<'_>,
        host: &mut dyn Host,
    ) -> Result<u64, Stop> {
        let in_order = match self.responder.message {
            Message::None => op.starts_message() || !(op.is_send() || op.is_write()),
            Message::Send => op.is_send() && !op.starts_message(),
            Message::Write { .. } => op.is_write() && !op.starts_message(),
        };
        if !in_order {
            return Err(Refusal::sequence().into());
        }
        if op.is_send() {
            return self.execute_send(now, op, packet, host);
        }
        if op.is_write() {
            return self.execute_write(now, op, packet, host);
        }
        match op {
            Operation::ReadRequest => self.execute_read(packet, host),
            Operation::CompareSwap | Operation::FetchAdd => self.execute_atomic(op, packet, host),
            Operation::AtomicWrite => self.execute_atomic_write(packet, host),
            Operation::Flush => self.execute_flush(packet, host),
            _ => Err(Refusal::sequence().into()),
        }
    }

    fn execute_send(
        &mut self,
        now: Instant,
        op: Operation,
        packet: &Packet<'_>,
        host: &mut dyn Host,
    ) -> Result<u64, Stop> {
        if op.starts_message() && !self.take_receive(host) {
            return Err(Stop::NotReady);
        }
        if !op.payload_fits(packet.payload.len(), self.pmtu) {
            return Err(Refusal::invalid().into());
        }
        if self.receiving.received + packet.payload.len() as u64 > MAX_MESSAGE {
            return Err(Refusal::invalid().into());
        }
        self.scatter(packet.payload, host)?;
        if !op.ends_message() {
            self.responder.message = Message::Send;
            return Ok(1);
        }
        if let Some(rkey) = packet.ieth
            && host
                .invalidate(Key(rkey), self.responder_pd(), self.config.num)
                .is_err()
        {
            return Err(Refusal {
                nak: NakCode::RemoteOperational,
                receive: WcStatus::LocQpOpErr,
                event: QpEvent::AccessError,
            }
            .into());
        }
        self.end_message();
        let received = self.receiving.received as u32;
        self.complete_receive(now, op, packet, (received, None), host);
        Ok(1)
    }

    fn execute_write(
        &mut self,
        now: Instant,
        op: Operation,
        packet: &Packet<'_>,
        host: &mut dyn Host,
    ) -> Result<u64, Stop> {
        if !self.attr.access.contains(Access::REMOTE_WRITE) {
            return Err(Refusal::sequence().into());
        }
        if op.has_imm() && !self.take_receive(host) {
            return Err(Stop::NotReady);
        }
        let len = self.place_write(op, packet, host)?;
        if !op.ends_message() {
            return Ok(1);
        }
        self.end_message();
        if op.has_imm() {
            self.complete_receive(now, op, packet, (len, None), host);
        }
        Ok(1)
    }

    /// Checks and places one packet of a WRITE; returns the length of the whole message.
    fn place_write(
        &mut self,
        op: Operation,
        packet: &Packet<'_>,
        host: &mut dyn Host,
    ) -> Result<u32, Stop> {
        let n = packet.payload.len() as u32;
        let (va, rkey, len, done) = match self.responder.message {
            Message::Write {
                va,
                rkey,
                len,
                done,
            } => (va, rkey, len, done),
            _ => {
                let Reth { va, rkey, len } = packet.reth.ok_or(Stop::Malformed)?;
                (va, rkey, len, 0)
            }
        };
        let through = u64::from(done) + u64::from(n);
        let total_fits = if op.ends_message() {
            through == u64::from(len)
        } else {
            through < u64::from(len)
        };
        if !op.payload_fits(packet.payload.len(), self.pmtu)
            || !total_fits
            || u64::from(len) > MAX_MESSAGE
        {
            return Err(Refusal::invalid().into());
        }
        // The key is checked for the whole message at its start, and again for each packet.
        if op.is_first() {
            let whole = self.remote_access(rkey, va, len.into(), Access::REMOTE_WRITE);
            host.check(&whole).map_err(|_| Refusal::access())?;
        }
        if n > 0 {
            let part = self.remote_access(
                rkey,
                va.wrapping_add(done.into()),
                n.into(),
                Access::REMOTE_WRITE,
            );
            host.write(&part, packet.payload)
                .map_err(|_| Refusal::access())?;
        }
        if !op.ends_message() {
            self.responder.message = Message::Write {
                va,
                rkey,
                len,
                done: done + n,
            };
        }
        Ok(len)
    }

    fn execute_read(&mut self, packet: &Packet<'_>, host: &mut dyn Host) -> Result<u64, Stop> {
        let Reth { va, rkey, len } = packet.reth.ok_or(Stop::Malformed)?;
        if !self.attr.access.contains(Access::REMOTE_READ) {
            return Err(Refusal::sequence().into());
        }
        if !self.responder.answers.has_room()
            || u64::from(len) > MAX_MESSAGE
            || !packet.payload.is_empty()
        {
            return Err(Refusal::invalid().into());
        }
        // A READ of nothing touches nothing, whatever its key says.
        if len > 0 {
            let whole = self.remote_access(rkey, va, len.into(), Access::REMOTE_READ);
            host.check(&whole).map_err(|_| Refusal::access())?;
        }
        let packets = u64::from(len).div_ceil(self.pmtu as u64).max(1);
        self.end_message();
        let (first, msn) = (self.responder.expected, self.responder.msn);
        self.responder
            .answers
            .accept(Saved::Read { va, rkey, len }, first, packets, msn);
        Ok(packets)
    }

    fn execute_atomic(
        &mut self,
        op: Operation,
        packet: &Packet<'_>,
        host: &mut dyn Host,
    ) -> Result<u64, Stop> {
        let atomic = packet.atomic.ok_or(Stop::Malformed)?;
        if !self.attr.access.contains(Access::REMOTE_ATOMIC) {
            return Err(Refusal::sequence().into());
        }
        if !self.responder.answers.has_room() || !packet.payload.is_empty() {
            return Err(Refusal::invalid().into());
        }
        let access = self.remote_access(atomic.rkey, atomic.va, 8, Access::REMOTE_ATOMIC);
        // A bad key is worse than a bad address, so it is looked at first.
        if !atomic.va.is_multiple_of(8) {
            host.check(&access).map_err(|_| Refusal::access())?;
            return Err(Refusal::invalid().into());
        }
        let result = if op == Operation::CompareSwap {
            host.compare_swap(&access, atomic.compare, atomic.swap_or_add)
        } else {
            host.fetch_add(&access, atomic.swap_or_add)
        };
        let value = result.map_err(|e| match e {
            KeyError::Misaligned { .. } => Refusal::invalid(),
            _ => Refusal::access(),
        })?;
        self.end_message();
        let (first, msn) = (self.responder.expected, self.responder.msn);
        self.responder
            .answers
            .accept(Saved::Atomic { value }, first, 1, msn);
        Ok(1)
    }

    /// Eight bytes that appear as one.
    fn execute_atomic_write(
        &mut self,
        packet: &Packet<'_>,
        host: &mut dyn Host,
    ) -> Result<u64, Stop> {
        let Reth { va, rkey, len } = packet.reth.ok_or(Stop::Malformed)?;
        if !self.attr.access.contains(Access::REMOTE_WRITE) {
            return Err(Refusal::sequence().into());
        }
        if !self.responder.answers.has_room() || len != 8 || packet.payload.len() != 8 {
            return Err(Refusal::invalid().into());
        }
        let access = self.remote_access(rkey, va, 8, Access::REMOTE_WRITE);
        if !va.is_multiple_of(8) {
            host.check(&access).map_err(|_| Refusal::access())?;
            return Err(Refusal::invalid().into());
        }
        host.write(&access, packet.payload)
            .map_err(|_| Refusal::access())?;
        Ok(self.accept_done())
    }

    /// What came before is in memory already, so only the right to ask is checked.
    fn execute_flush(&mut self, packet: &Packet<'_>, host: &mut dyn Host) -> Result<u64, Stop> {
        let Reth { va, rkey, len } = packet.reth.ok_or(Stop::Malformed)?;
        let Feth {
            placement,
            selectivity,
        } = packet.feth.ok_or(Stop::Malformed)?;
        let mut need = Access::empty();
        need.set(Access::FLUSH_GLOBAL, placement.contains(Placement::GLOBAL));
        need.set(
            Access::FLUSH_PERSISTENT,
            placement.contains(Placement::PERSISTENT),
        );
        let unknown = !(placement - (Placement::GLOBAL | Placement::PERSISTENT)).is_empty();
        if unknown || need.is_empty() || !self.attr.access.contains(need) {
            return Err(Refusal::sequence().into());
        }
        if !self.responder.answers.has_room() {
            return Err(Refusal::invalid().into());
        }
        let len = match selectivity {
            Selectivity::Range => len,
            Selectivity::MemoryRegion => 0,
            Selectivity::Reserved(_) => return Err(Refusal::sequence().into()),
        };
        let access = self.remote_access(rkey, va, len.into(), need);
        host.check(&access).map_err(|_| Refusal::access())?;
        Ok(self.accept_done())
    }

    fn accept_done(&mut self) -> u64 {
        self.end_message();
        let (first, msn) = (self.responder.expected, self.responder.msn);
        self.responder.answers.accept(Saved::Done, first, 1, msn);
        1
    }

    pub(super) fn end_message(&mut self) {
        self.responder.message = Message::None;
        self.responder.msn = (self.responder.msn + 1) & Psn::MASK;
    }

    /// A request that was executed before. It must not disturb the message under way.
    fn handle_duplicate(
        &mut self,
        op: Operation,
        psn: u64,
        packet: &Packet<'_>,
    ) -> Result<(), DropReason> {
        self.counters.duplicates += 1;
        let pmtu = self.pmtu as u64;
        let answers = &mut self.responder.answers;
        if op.is_send() || op.is_write() {
            // Its acknowledgement may have been lost; without another one the connection dies.
            answers.ack = true;
            return Ok(());
        }
        let slot = *answers.find(psn).ok_or(DropReason::DuplicateUnknown)?;
        let packets = match (slot.saved, packet.reth, packet.atomic) {
            (Saved::Read { va, rkey, len }, Some(again), _) => {
                // It may ask for the end of the original only.
                let offset = (psn - slot.first) * pmtu;
                let rest = u64::from(len).saturating_sub(offset);
                if again.rkey != rkey
                    || again.va != va.wrapping_add(offset)
                    || u64::from(again.len) > rest
                {
                    return Err(DropReason::DuplicateUnknown);
                }
                u64::from(again.len).div_ceil(pmtu).max(1)
            }
            (Saved::Atomic { .. }, _, Some(_)) => 1,
            (Saved::Done, Some(_), _) if op != Operation::ReadRequest => 1,
            _ => return Err(DropReason::DuplicateUnknown),
        };
        answers.repeat(psn, packets);
        Ok(())
    }
}
