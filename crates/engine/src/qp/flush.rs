//! How a queue pair dies, stops sending, or starts over: ERR, SQE, RESET.

use super::Qp;
use super::receive::Receiving;
use super::requester::Requester;
use super::state::QpState;
use crate::completion::{Completion, WcOpcode, WcStatus};
use crate::event::QpEvent;
use crate::memory::{Host, Side};
use crate::time::Instant;

impl Qp {
    /// Forces the queue pair into ERR for a reason no completion can express, such as its CQ in error.
    pub fn fail(&mut self, now: Instant, host: &mut dyn Host) {
        if !matches!(self.state, QpState::Reset | QpState::Err) {
            host.event(QpEvent::Fatal);
            self.enter_error(now, host);
        }
    }

    /// The peer is known to be gone, by other means than its silence: the oldest send ends as if its
    /// retries were used up, everything else is flushed, and so is a side that only waited to receive.
    pub fn peer_lost(&mut self, now: Instant, host: &mut dyn Host) {
        if matches!(self.state, QpState::Rtr | QpState::Rts | QpState::Sqd) {
            self.fail_send(now, WcStatus::RetryExcErr, host);
        }
    }

    /// Moves to ERR and flushes both queues. Answers not sent yet are forgotten.
    pub(super) fn enter_error(&mut self, now: Instant, host: &mut dyn Host) {
        self.responder.forget_answers();
        self.die(now, host);
    }

    /// Moves to ERR because of what the peer asked; the NAK that says so still goes out.
    pub(super) fn die(&mut self, now: Instant, host: &mut dyn Host) {
        if self.state == QpState::Err {
            return;
        }
        self.state = QpState::Err;
        self.drain_event_due = false;
        self.requester.stop();
        self.flush_sends(now, host);
        self.flush_receives(now, host);
        if self.config.uses_srq {
            host.event(QpEvent::LastWqeReached);
        }
    }

    /// A send failed on UC or UD: the send queue stops, receiving goes on.
    pub(super) fn stop_sending(&mut self, now: Instant, host: &mut dyn Host) {
        self.state = QpState::Sqe;
        self.requester.stop();
        self.flush_sends(now, host);
    }

    /// Back to the beginning without a single completion.
    pub(super) fn reset(&mut self) {
        self.state = QpState::Reset;
        self.sq.clear();
        self.rq.clear();
        self.receiving = Receiving::default();
        self.requester = Requester::default();
        self.responder.reset();
        self.drain_event_due = false;
        self.attr = super::QpAttr::default();
    }

    fn flush_sends(&mut self, now: Instant, host: &mut dyn Host) {
        while self.sq.tail < self.sq.head {
            let wqe = self.sq.at(self.sq.tail);
            let c = Completion::error(
                wqe.wr_id,
                WcStatus::WrFlushErr,
                wqe.opcode(),
                self.config.num,
                now,
            );
            self.sq.tail += 1;
            host.complete(Side::Send, &c);
        }
        self.sq.clear();
    }

    /// The half-filled receive first, then those never touched. An SRQ keeps its own.
    fn flush_receives(&mut self, now: Instant, host: &mut dyn Host) {
        if let Some(wr_id) = self.receiving.abandon() {
            self.complete_receive_error(now, wr_id, WcStatus::WrFlushErr, host);
        }
        while let Some(wr_id) = self.rq.pop_id() {
            self.complete_receive_error(now, wr_id, WcStatus::WrFlushErr, host);
        }
    }

    pub(super) fn complete_receive_error(
        &mut self,
        now: Instant,
        wr_id: u64,
        status: WcStatus,
        host: &mut dyn Host,
    ) {
        let c = Completion::error(wr_id, status, WcOpcode::Recv, self.config.num, now);
        host.complete(self.receive_side(), &c);
    }
}
