//! What answers and deadlines do to the requester: acknowledging, going back, giving up.

use adverb_wire::{NakCode, Operation, Packet, Syndrome, rnr_timer_ns};

use super::Qp;
use super::requester::ack_deadline;
use super::state::QpState;
use crate::completion::WcStatus;
use crate::error::DropReason;
use crate::memory::Host;
use crate::time::Instant;

/// "7 means infinite" holds for RNR retries only.
const RNR_FOREVER: u8 = 7;

impl Qp {
    /// A response to one of our requests.
    pub(super) fn handle_response(
        &mut self,
        now: Instant,
        op: Operation,
        packet: &Packet<'_>,
        host: &mut dyn Host,
    ) -> Result<(), DropReason> {
        if !matches!(self.state, QpState::Rts | QpState::Sqd) {
            return Err(DropReason::State);
        }
        let psn = self.requester.expand(packet.bth.psn);
        // Older than the oldest outstanding, or never sent. A sequence NAK may name the packet
        // after the newest: then everything has arrived.
        if psn < self.requester.una || psn > self.requester.sent {
            return Err(DropReason::Ghost);
        }
        let sequence_nak = packet
            .aeth
            .is_some_and(|a| a.syndrome == Syndrome::Nak(NakCode::PsnSequence))
            && op == Operation::Acknowledge;
        if psn == self.requester.sent && !sequence_nak {
            return Err(DropReason::Ghost);
        }
        match op {
            Operation::Acknowledge => {
                let aeth = packet.aeth.ok_or(DropReason::Malformed)?;
                self.on_acknowledge(now, psn, aeth.syndrome, host)
            }
            Operation::AtomicAcknowledge => {
                let value = packet.atomic_ack.ok_or(DropReason::Malformed)?;
                self.on_atomic_answer(now, psn, value, host);
                Ok(())
            }
            _ => {
                self.on_read_answer(now, psn, packet.payload, host);
                Ok(())
            }
        }
    }

    fn on_acknowledge(
        &mut self,
        now: Instant,
        psn: u64,
        syndrome: Syndrome,
        host: &mut dyn Host,
    ) -> Result<(), DropReason> {
        let status = match syndrome {
            Syndrome::Ack { .. } => {
                self.acknowledge(now, psn + 1, host);
                return Ok(());
            }
            Syndrome::Rnr { timer } => {
                self.on_rnr(now, psn, timer, host);
                return Ok(());
            }
            Syndrome::Nak(NakCode::PsnSequence) => {
                self.counters.sequence_naks_received += 1;
                if self.acknowledge(now, psn, host) && psn < self.requester.sent {
                    self.retry(now, host);
                }
                return Ok(());
            }
            Syndrome::Nak(NakCode::InvalidRequest) => WcStatus::RemInvReqErr,
            Syndrome::Nak(NakCode::RemoteAccess) => WcStatus::RemAccessErr,
            Syndrome::Nak(NakCode::RemoteOperational) => WcStatus::RemOpErr,
            Syndrome::Nak(NakCode::InvalidRdRequest) => WcStatus::RemInvRdReqErr,
            Syndrome::Nak(NakCode::Other(_)) | Syndrome::Reserved(_) => {
                return Err(DropReason::Reserved);
            }
        };
        // The NAK acknowledges everything before it and ends the request it names.
        if self.acknowledge(now, psn, host) {
            self.fail_send(now, status, host);
        }
        Ok(())
    }

    /// Everything before `upto` has arrived. Returns false when that cannot be, because a READ or
    /// atomic before it has not been answered: the answer was lost, and it is asked for again. It
    /// also returns false when the queue pair died of it.
    fn acknowledge(&mut self, now: Instant, upto: u64, host: &mut dyn Host) -> bool {
        if upto <= self.requester.una {
            return true;
        }
        let mut reached = upto;
        let mut complete = true;
        if self.requester.reads > 0 {
            let mut at = self.sq.tail;
            while at < self.sq.started {
                let wqe = self.sq.at(at);
                if wqe.first >= upto {
                    break;
                }
                if wqe.wants_response() {
                    reached = wqe.first;
                    complete = false;
                    break;
                }
                at += 1;
            }
        }
        if reached > self.requester.una {
            self.progress(now, reached, host);
        }
        if !complete && self.state != QpState::Err {
            self.retry(now, host);
        }
        complete && self.state != QpState::Err
    }

    /// Moves the oldest outstanding packet forward and completes what that finishes.
    pub(super) fn progress(&mut self, now: Instant, una: u64, host: &mut dyn Host) {
        let r = &mut self.requester;
        r.widen(una - r.una);
        r.una = una;
        r.next = r.next.max(una);
        r.reload(&self.attr);
        r.retrying = None;
        r.rnr_until = None;
        r.ack_deadline = if una == r.sent {
            None
        } else {
            ack_deadline(now, &self.attr)
        };
        self.retire(now, host);
    }

    /// The answer to a READ. It acknowledges everything before it, but must itself be the very
    /// next one missing: with a gap before it, something was lost.
    fn on_read_answer(&mut self, now: Instant, psn: u64, payload: &[u8], host: &mut dyn Host) {
        if !self.acknowledge(now, psn, host) {
            return;
        }
        let at = self.sq.tail;
        let wqe = *self.sq.at(at);
        let offset = psn.wrapping_sub(wqe.first).wrapping_mul(self.pmtu as u64);
        let expected = u64::from(wqe.len)
            .saturating_sub(offset)
            .min(self.pmtu as u64);
        // Whether a repeated answer begins with FIRST or goes on with MIDDLE depends on the peer,
        // so the length decides, and not which of the four opcodes came.
        let fits = if wqe.wants_empty_answer() {
            payload.is_empty()
        } else {
            wqe.is_read() && payload.len() as u64 == expected
        };
        if at == self.sq.started || !fits {
            return self.fail_send(now, WcStatus::BadRespErr, host);
        }
        match self.scatter_answer(at, offset, payload, host) {
            Ok(()) => self.progress(now, psn + 1, host),
            Err(()) => self.fail_send(now, WcStatus::LocProtErr, host),
        }
    }

    fn on_atomic_answer(&mut self, now: Instant, psn: u64, value: u64, host: &mut dyn Host) {
        if !self.acknowledge(now, psn, host) {
            return;
        }
        let at = self.sq.tail;
        if at == self.sq.started || !self.sq.at(at).is_atomic() {
            return self.fail_send(now, WcStatus::BadRespErr, host);
        }
        // Operands travel big-endian; in memory they are numbers of this host.
        match self.scatter_answer(at, 0, &value.to_ne_bytes(), host) {
            Ok(()) => self.progress(now, psn + 1, host),
            Err(()) => self.fail_send(now, WcStatus::LocProtErr, host),
        }
    }

    fn on_rnr(&mut self, now: Instant, psn: u64, timer: u8, host: &mut dyn Host) {
        self.counters.rnr_naks_received += 1;
        // A second NAK while we wait is an echo of the first.
        if !self.acknowledge(now, psn, host) || self.requester.rnr_until.is_some() {
            return;
        }
        if self.attr.rnr_retry != RNR_FOREVER {
            if self.requester.rnr_left == 0 {
                return self.fail_send(now, WcStatus::RnrRetryExcErr, host);
            }
            self.requester.rnr_left -= 1;
        }
        self.go_back();
        // The wait does not count as waiting for an acknowledgement.
        self.requester.ack_deadline = None;
        self.requester.rnr_until = Some(now.plus_nanos(rnr_timer_ns(timer)));
    }

    /// Something was lost: sends again from the oldest outstanding packet, or gives up. Further
    /// signs of the same loss change nothing until there is progress or the timer fires.
    fn retry(&mut self, now: Instant, host: &mut dyn Host) {
        if self.requester.retrying == Some(self.requester.una) || self.requester.rnr_until.is_some()
        {
            return;
        }
        if self.requester.retries_left == 0 {
            return self.fail_send(now, WcStatus::RetryExcErr, host);
        }
        self.requester.retries_left -= 1;
        self.counters.retries += 1;
        self.requester.retrying = Some(self.requester.una);
        self.requester.narrow(self.window / 2);
        self.go_back();
        self.requester.ack_deadline = ack_deadline(now, &self.attr);
    }

    fn go_back(&mut self) {
        self.requester.next = self.requester.una;
        self.sq.cursor = self.sq.tail;
    }

    /// The acknowledgement that is overdue cannot have been lost: the peer has not looked yet. Waits as long again,
    /// which costs no retry. A wait for receive buffers (RNR) goes on as it was.
    pub fn defer_timeout(&mut self, now: Instant) {
        if self.requester.ack_deadline.is_some_and(|t| now >= t) {
            self.requester.ack_deadline = ack_deadline(now, &self.attr);
        }
    }

    /// A deadline may have passed.
    pub fn handle_timeout(&mut self, now: Instant, host: &mut dyn Host) {
        if self.requester.rnr_until.is_some_and(|t| now >= t) {
            self.requester.rnr_until = None;
        }
        if self.requester.ack_deadline.is_some_and(|t| now >= t) {
            self.requester.ack_deadline = None;
            if self.requester.una < self.requester.sent {
                self.counters.timeouts += 1;
                self.requester.narrow(0);
                self.requester.retrying = None;
                self.retry(now, host);
            }
        }
    }
}
