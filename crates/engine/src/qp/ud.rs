//! UD: one packet per message, to and from anybody with the right Q_Key.

use adverb_wire::{Bth, Deth, Opcode, Operation, Packet, Transport, grh};

use super::receive::ScatterError;
use super::requester::to_psn;
use super::{Dest, PacketMeta, Qp, Transmit};
use crate::completion::WcStatus;
use crate::error::DropReason;
use crate::memory::Host;
use crate::time::Instant;
use crate::wr::SendOp;

/// A remote Q_Key with this bit stands for the sender's own.
const OWN_QKEY: u32 = 1 << 31;

impl Qp {
    pub(super) fn poll_datagram(
        &mut self,
        now: Instant,
        host: &mut dyn Host,
        buf: &mut [u8],
    ) -> Option<Transmit> {
        loop {
            let at = self.sq.cursor;
            if at == self.sq.started {
                if !self.start_next(now, host) {
                    return None;
                }
                continue;
            }
            let wqe = *self.sq.at(at);
            if wqe.len as usize > self.pmtu {
                // "If the message is longer than the MTU the send is completed and no packet is
                // sent" (C10-93.1.1).
                self.requester.una = wqe.end();
                self.requester.next = wqe.end();
                self.requester.sent = wqe.end();
                self.retire(now, host);
                continue;
            }
            let to = *self.sq.datagram(at);
            let (op, imm) = match wqe.op {
                SendOp::SendImm(imm) => (Operation::SendOnlyImm, Some(imm)),
                _ => (Operation::SendOnly, None),
            };
            let bth = Bth::new(
                Opcode::Roce(Transport::Ud, op),
                to.remote_qpn,
                to_psn(wqe.first),
            );
            let mut packet = Packet::new(bth);
            packet.bth.solicited = wqe.solicited;
            packet.imm = imm;
            let qkey = if to.remote_qkey & OWN_QKEY != 0 {
                self.attr.qkey
            } else {
                to.remote_qkey
            };
            packet.deth = Some(Deth {
                qkey,
                src_qp: self.config.num.0,
            });
            return match self.finish_data(at, &wqe, &packet, 0, wqe.len as usize, host, buf) {
                Ok(len) => {
                    self.note_sent(now, 1, host);
                    Some(Transmit {
                        len,
                        dest: Dest::Datagram(to),
                    })
                }
                Err(status) => {
                    self.fail_later(now, at, status, host);
                    None
                }
            };
        }
    }

    pub(super) fn handle_datagram(
        &mut self,
        now: Instant,
        meta: &PacketMeta,
        op: Operation,
        packet: &Packet<'_>,
        host: &mut dyn Host,
    ) -> Result<(), DropReason> {
        let deth = packet.deth.ok_or(DropReason::Malformed)?;
        if deth.qkey != self.attr.qkey {
            return Err(DropReason::QKey);
        }
        let payload = packet.payload;
        if payload.len() > self.pmtu {
            return Err(DropReason::TooLong);
        }
        if !self.take_receive(host) {
            return Err(DropReason::NoReceive);
        }
        let byte_len = grh::LEN + payload.len();
        if byte_len as u64 > self.receiving.capacity() {
            // The entry stays for the next datagram.
            return Err(DropReason::TooLong);
        }
        let below_ip = packet.emitted_len();
        let header = grh::Grh::for_packet(
            meta.src,
            meta.dst,
            meta.traffic_class,
            meta.hop_limit,
            below_ip,
        );
        let (area, sl) = (header.to_bytes(), header.packet_type());
        let placed = self
            .scatter(&area, host)
            .and_then(|()| self.scatter(payload, host));
        match placed {
            Ok(()) => {
                self.complete_receive(now, op, packet, (byte_len as u32, Some(sl)), host);
                Ok(())
            }
            Err(ScatterError::TooLong) => Err(DropReason::TooLong),
            Err(ScatterError::Protection) => {
                self.fail_receive(now, WcStatus::LocProtErr, host);
                self.enter_error(now, host);
                Err(DropReason::Access)
            }
        }
    }
}
