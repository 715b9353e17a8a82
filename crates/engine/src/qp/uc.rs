//! UC: no acknowledgement and no repetition. A message arrives whole or not at all.

use adverb_wire::{Operation, Packet, Reth};

use super::receive::ScatterError;
use super::requester::PSN_BASE;
use super::responder::Message;
use super::send_queue::SendWqe;
use super::{Dest, Qp, Transmit};
use crate::completion::WcStatus;
use crate::error::DropReason;
use crate::memory::{Access, Host};
use crate::time::Instant;
use crate::wr::MAX_MESSAGE;

impl Qp {
    /// The next packet. A message is complete when its last packet is handed over.
    pub(super) fn poll_uc(
        &mut self,
        now: Instant,
        host: &mut dyn Host,
        buf: &mut [u8],
    ) -> Option<Transmit> {
        let (at, wqe) = self.next_uc(now, host)?;
        let psn = self.requester.next;
        match self.build_data(at, &wqe, psn, false, host, buf) {
            Ok(len) => {
                self.note_sent(now, 1, host);
                Some(Transmit {
                    len,
                    dest: Dest::Connected,
                })
            }
            Err(status) => {
                self.fail_later(now, at, status, host);
                None
            }
        }
    }

    /// The work request whose packet comes next. Asked again, it says the same.
    pub(super) fn next_uc(&mut self, now: Instant, host: &mut dyn Host) -> Option<(u64, SendWqe)> {
        loop {
            let at = self.sq.cursor;
            if at != self.sq.started {
                return Some((at, *self.sq.at(at)));
            }
            if !self.start_next(now, host) {
                return None;
            }
        }
    }

    /// Packets that nobody acknowledges are on their way.
    pub(super) fn note_sent(&mut self, now: Instant, packets: u64, host: &mut dyn Host) {
        let r = &mut self.requester;
        r.next += packets;
        r.sent = r.next;
        r.una = r.next;
        self.retire(now, host);
    }

    pub(super) fn handle_uc(
        &mut self,
        now: Instant,
        op: Operation,
        packet: &Packet<'_>,
        host: &mut dyn Host,
    ) -> Result<(), DropReason> {
        if !op.is_send() && !op.is_write() {
            return Err(DropReason::Sequence);
        }
        let in_sequence = packet.bth.psn == self.responder.expected_psn();
        let fits_message = match self.responder.message {
            Message::None => op.starts_message(),
            Message::Send => op.is_send() && !op.starts_message(),
            Message::Write { .. } => op.is_write() && !op.starts_message(),
        };
        if !in_sequence || !fits_message {
            // The message under way is lost; its receive entry is filled anew by the next one. A
            // first packet starts over at whatever number it has.
            self.responder.message = Message::None;
            if !op.starts_message() {
                return Err(if in_sequence {
                    DropReason::Sequence
                } else {
                    DropReason::Gap
                });
            }
        }
        // From the number itself: those that a peer makes up can jump back for ever.
        self.responder.expected = PSN_BASE + u64::from(packet.bth.psn.next().value());
        self.note_established(host);
        let result = if op.is_send() {
            self.receive_uc_send(now, op, packet, host)
        } else {
            self.receive_uc_write(now, op, packet, host)
        };
        if result.is_err() || op.ends_message() {
            self.responder.message = Message::None;
        }
        result
    }

    fn receive_uc_send(
        &mut self,
        now: Instant,
        op: Operation,
        packet: &Packet<'_>,
        host: &mut dyn Host,
    ) -> Result<(), DropReason> {
        if op.starts_message() && !self.take_receive(host) {
            return Err(DropReason::NoReceive);
        }
        if !op.payload_fits(packet.payload.len(), self.pmtu) {
            return Err(DropReason::TooLong);
        }
        match self.scatter(packet.payload, host) {
            Ok(()) => {}
            Err(ScatterError::TooLong) => return Err(DropReason::TooLong),
            Err(ScatterError::Protection) => {
                self.fail_receive(now, WcStatus::LocProtErr, host);
                self.enter_error(now, host);
                return Err(DropReason::Access);
            }
        }
        if op.ends_message() {
            let received = self.receiving.received as u32;
            self.complete_receive(now, op, packet, (received, None), host);
        } else {
            self.responder.message = Message::Send;
        }
        Ok(())
    }

    fn receive_uc_write(
        &mut self,
        now: Instant,
        op: Operation,
        packet: &Packet<'_>,
        host: &mut dyn Host,
    ) -> Result<(), DropReason> {
        if !self.attr.access.contains(Access::REMOTE_WRITE) {
            return Err(DropReason::Access);
        }
        let (va, rkey, len, done) = match self.responder.message {
            Message::Write {
                va,
                rkey,
                len,
                done,
            } => (va, rkey, len, done),
            _ => {
                let Reth { va, rkey, len } = packet.reth.ok_or(DropReason::Malformed)?;
                (va, rkey, len, 0)
            }
        };
        let n = packet.payload.len() as u32;
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
            return Err(DropReason::TooLong);
        }
        if op.has_imm() && !self.take_receive(host) {
            return Err(DropReason::NoReceive);
        }
        if op.is_first() {
            let whole = self.remote_access(rkey, va, len.into(), Access::REMOTE_WRITE);
            host.check(&whole).map_err(|_| DropReason::Access)?;
        }
        if n > 0 {
            let part = self.remote_access(
                rkey,
                va.wrapping_add(done.into()),
                n.into(),
                Access::REMOTE_WRITE,
            );
            host.write(&part, packet.payload)
                .map_err(|_| DropReason::Access)?;
        }
        if !op.ends_message() {
            self.responder.message = Message::Write {
                va,
                rkey,
                len,
                done: done + n,
            };
        } else if op.has_imm() {
            self.complete_receive(now, op, packet, (len, None), host);
        }
        Ok(())
    }
}
