//! The receive entry under way: taking it, filling it, completing it. Common to all transports.

use std::ops::Range;

use adverb_wire::{Operation, Packet};

use super::{Qp, Role};
use crate::completion::{Completion, WcFlags, WcOpcode, WcStatus};
use crate::ids::Key;
use crate::memory::{Access, Host, KeyError, MemAccess, Side};
use crate::time::Instant;
use crate::wr::RecvWqe;

/// The entry that the current message fills, and how far.
#[derive(Debug, Default)]
pub(super) struct Receiving {
    wqe: RecvWqe,
    /// Whether `wqe` holds an entry that has been taken and not completed.
    taken: bool,
    /// Where the next byte goes: piece, offset in it, offset in the message.
    piece: usize,
    offset: u32,
    pub(super) received: u64,
}

impl Receiving {
    /// Starts over with the same entry, for a message that was dropped half-way.
    pub(super) fn rewind(&mut self) {
        self.piece = 0;
        self.offset = 0;
        self.received = 0;
    }

    /// How far the entry under way is filled.
    pub(super) const fn mark(&self) -> Mark {
        Mark(self.piece, self.offset, self.received)
    }

    pub(super) const fn go_back_to(&mut self, mark: Mark) {
        Mark(self.piece, self.offset, self.received) = mark;
    }

    /// Gives up the entry under way; returns its id if there was one.
    pub(super) fn abandon(&mut self) -> Option<u64> {
        std::mem::take(&mut self.taken).then_some(self.wqe.wr_id)
    }

    /// Bytes the entry under way can take in all.
    pub(super) fn capacity(&self) -> u64 {
        self.wqe.capacity()
    }
}

/// How far an entry was filled.
#[derive(Clone, Copy)]
pub(super) struct Mark(usize, u32, u64);

/// Why bytes could not be placed.
pub(super) enum ScatterError {
    /// The entry's buffers are full.
    TooLong,
    /// A key or a range of the entry is bad.
    Protection,
}

impl Qp {
    /// Makes sure an entry is under way, taking the next one if need be; false when there is none.
    pub(super) fn take_receive(&mut self, host: &mut dyn Host) -> bool {
        let r = &mut self.receiving;
        r.rewind();
        if !r.taken {
            r.taken = if self.config.role == Role::Target {
                host.take_xrc_srq(self.responder.srqn, &mut r.wqe)
            } else if self.config.uses_srq {
                host.take_srq(&mut r.wqe)
            } else {
                self.rq.pop_into(&mut r.wqe)
            };
        }
        r.taken
    }

    /// Appends `data` to the entry under way.
    pub(super) fn scatter(&mut self, data: &[u8], host: &mut dyn Host) -> Result<(), ScatterError> {
        self.place(data.len(), |access, range| host.write(access, &data[range]))
    }

    /// Appends `count` bytes to the entry under way; `write` puts some of them into one of its pieces.
    pub(super) fn place(
        &mut self,
        count: usize,
        mut write: impl FnMut(&MemAccess, Range<usize>) -> Result<(), KeyError>,
    ) -> Result<(), ScatterError> {
        let pd = if self.config.role == Role::Target {
            self.responder_pd()
        } else if self.config.uses_srq {
            self.config.srq_pd.unwrap_or(self.config.pd)
        } else {
            self.config.pd
        };
        let qp = self.config.num;
        let r = &mut self.receiving;
        let mut done = 0;
        while done < count {
            let sge = r.wqe.sges().get(r.piece).ok_or(ScatterError::TooLong)?;
            let room = sge.len - r.offset;
            if room == 0 {
                r.piece += 1;
                r.offset = 0;
                continue;
            }
            let n = (count - done).min(room as usize);
            let access = MemAccess {
                key: sge.lkey,
                pd,
                qp,
                va: sge.addr.wrapping_add(u64::from(r.offset)),
                len: n as u64,
                need: Access::LOCAL_WRITE,
                remote: false,
            };
            write(&access, done..done + n).map_err(|_| ScatterError::Protection)?;
            r.offset += n as u32;
            done += n;
        }
        r.received += count as u64;
        Ok(())
    }

    /// Reports the entry under way as received. Who sent a datagram, and how it came (`sl`), only the datagram says.
    pub(super) fn complete_receive(
        &mut self,
        now: Instant,
        op: Operation,
        packet: &Packet<'_>,
        (byte_len, sl): (u32, Option<u8>),
        host: &mut dyn Host,
    ) {
        let Some(wr_id) = self.receiving.abandon() else {
            return;
        };
        let opcode = if op.is_write() {
            WcOpcode::RecvRdmaWithImm
        } else {
            WcOpcode::Recv
        };
        let mut c = Completion::success(wr_id, opcode, self.config.num, now);
        c.byte_len = byte_len;
        c.solicited = packet.bth.solicited;
        c.src_qp = self.attr.dest_qpn;
        c.sl = sl.unwrap_or(self.attr.av.sl);
        if let Some(imm) = packet.imm {
            c.imm = imm;
            c.flags = WcFlags::WITH_IMM;
        }
        if let Some(rkey) = packet.ieth {
            c.invalidated_rkey = rkey;
            c.flags = WcFlags::WITH_INV;
        }
        if let Some(deth) = packet.deth {
            c.src_qp = deth.src_qp;
            c.flags |= WcFlags::GRH;
        }
        host.complete(self.receive_side(), &c);
    }

    /// Reports the entry under way, if any, as failed. Returns whether there was one.
    pub(super) fn fail_receive(
        &mut self,
        now: Instant,
        status: WcStatus,
        host: &mut dyn Host,
    ) -> bool {
        let Some(wr_id) = self.receiving.abandon() else {
            return false;
        };
        self.complete_receive_error(now, wr_id, status, host);
        true
    }

    /// Where receives are reported.
    pub(super) fn receive_side(&self) -> Side {
        match self.config.role {
            Role::Target => Side::XrcSrq(self.responder.srqn),
            _ => Side::Recv,
        }
    }

    /// The access a remote request asks for.
    pub(super) fn remote_access(&self, rkey: u32, va: u64, len: u64, need: Access) -> MemAccess {
        MemAccess {
            key: Key(rkey),
            pd: self.responder_pd(),
            qp: self.config.num,
            va,
            len,
            need,
            remote: true,
        }
    }
}
