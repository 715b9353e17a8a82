//! Sending: starting work in order, cutting it into packets, and reporting it done.
//!
//! Sequence numbers are 64 bits wide in here and cut to 24 on the wire, so that nothing but
//! [`Requester::expand`] has to know that they wrap.

use std::ops::Range;

use adverb_wire::{
    AtomicEth, Bth, Feth, Opcode, Operation, Packet, Placement, Psn, Reth, Selectivity, Transport,
    pad_of,
};

use super::send_queue::{SendQueue, SendWqe};
use super::state::QpState;
use super::{Dest, Qp, QpAttr, Transmit};
use crate::completion::{Completion, WcOpcode, WcStatus};
use crate::memory::{Access, Host, MemAccess, Side};
use crate::time::Instant;
use crate::wr::SendOp;

/// The send side of a connection.
#[derive(Debug, Default)]
pub(super) struct Requester {
    /// Oldest packet not acknowledged.
    pub(super) una: u64,
    /// Next packet to send; goes back to `una` on a retry.
    pub(super) next: u64,
    /// One past the newest packet ever sent.
    pub(super) sent: u64,
    /// READs and atomics started and not finished.
    pub(super) reads: u32,
    pub(super) retries_left: u8,
    pub(super) rnr_left: u8,
    /// `una` when the retry under way began; further hints of the same loss are ignored.
    pub(super) retrying: Option<u64>,
    pub(super) ack_deadline: Option<Instant>,
    /// The peer asked us to wait until then.
    pub(super) rnr_until: Option<Instant>,
    /// How many packets may be outstanding, as far as losses taught us; the link has a bound of its own.
    pub(super) room: u64,
}

/// What is left of the room after a timeout, too. Everything that is sent again costs a peer that has not kept up more of
/// the time that it lacks: two sides that repeat megabytes at each other never catch up.
const LEAST_ROOM: u64 = 16;

/// Added to the first number so that looking back never goes below zero.
pub(super) const PSN_BASE: u64 = 1 << 24;

/// A long message asks for an acknowledgement at least this often, so that the window moves.
const ACK_EVERY: u64 = 64;

impl Requester {
    fn starting_at(attr: &QpAttr) -> Self {
        let first = PSN_BASE + u64::from(attr.sq_psn);
        let mut r = Self {
            una: first,
            next: first,
            sent: first,
            room: super::MAX_WINDOW,
            ..Self::default()
        };
        r.reload(attr);
        r
    }

    pub(super) fn reload(&mut self, attr: &QpAttr) {
        self.retries_left = attr.retry_cnt;
        self.rnr_left = attr.rnr_retry;
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        match (self.ack_deadline, self.rnr_until) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    pub(super) fn next_psn(&self) -> Psn {
        to_psn(self.sent)
    }

    /// The full number behind one from the wire: the one closest to what is outstanding.
    pub(super) fn expand(&self, psn: Psn) -> u64 {
        expand(self.una, psn)
    }

    pub(super) fn is_drained(&self, sq: &SendQueue) -> bool {
        sq.tail == sq.started
    }

    /// So many packets have arrived: as many more may follow.
    pub(super) fn widen(&mut self, arrived: u64) {
        self.room = (self.room + arrived).min(super::MAX_WINDOW);
    }

    /// Something was lost: half of the room is left, and at most `most`.
    pub(super) fn narrow(&mut self, most: u64) {
        self.room = (self.room / 2).min(most).max(LEAST_ROOM);
    }

    /// Nothing more will be sent or awaited.
    pub(super) fn stop(&mut self) {
        self.una = self.sent;
        self.next = self.sent;
        self.reads = 0;
        self.retrying = None;
        self.ack_deadline = None;
        self.rnr_until = None;
    }
}

/// A work request that may send now.
pub(super) struct Turn {
    pub(super) at: u64,
    pub(super) wqe: SendWqe,
    /// Packets not acknowledged, of so many that may be.
    pub(super) in_flight: u64,
    pub(super) window: u64,
}

/// Whether packet `psn` of a SEND or WRITE asks for an acknowledgement, with `in_flight` packets before it.
pub(super) fn wants_ack(wqe: &SendWqe, psn: u64, in_flight: u64, window: u64) -> bool {
    let done = psn - wqe.first + 1;
    let every = ACK_EVERY.min(window.div_ceil(2));
    psn + 1 == wqe.end() || done.is_multiple_of(every) || in_flight + 1 >= window
}

/// The number closest to `near` whose low 24 bits are `psn`.
pub(super) fn expand(near: u64, psn: Psn) -> u64 {
    near.wrapping_add_signed(i64::from(psn.diff(to_psn(near))))
}

pub(super) fn to_psn(n: u64) -> Psn {
    Psn::new((n & u64::from(Psn::MASK)) as u32)
}

impl Qp {
    pub(super) fn start_sending(&mut self) {
        self.requester = Requester::starting_at(&self.attr);
    }

    /// RC and XRC: the next request packet, new or repeated.
    pub(super) fn poll_request(
        &mut self,
        now: Instant,
        host: &mut dyn Host,
        buf: &mut [u8],
    ) -> Option<Transmit> {
        let Turn {
            at,
            wqe,
            in_flight,
            window,
        } = self.next_request(now, host)?;
        let next = self.requester.next;
        let built = if wqe.wants_response() {
            self.build_fetch(at, &wqe, in_flight, host, buf)?
        } else {
            let ack_req = wants_ack(&wqe, next, in_flight, window);
            self.build_data(at, &wqe, next, ack_req, host, buf)
                .map(|len| (len, 1))
        };
        let Ok((len, packets)) = built else {
            self.fail_later(now, at, WcStatus::LocProtErr, host);
            return None;
        };
        self.note_requested(now, packets);
        Some(Transmit {
            len,
            dest: Dest::Connected,
        })
    }

    /// RC and XRC: whose packet comes next, if one may be sent now. Asked again, it says the same.
    pub(super) fn next_request(&mut self, now: Instant, host: &mut dyn Host) -> Option<Turn> {
        if self.sq.cursor == self.sq.head || !matches!(self.state, QpState::Rts | QpState::Sqd) {
            return None;
        }
        if let Some(until) = self.requester.rnr_until {
            if now < until {
                return None;
            }
            self.requester.rnr_until = None;
        }
        loop {
            if self.sq.cursor == self.sq.started {
                if !self.start_next(now, host) {
                    return None;
                }
                // Local work may be done already, and then there is nothing at the cursor.
                continue;
            }
            let at = self.sq.cursor;
            let wqe = *self.sq.at(at);
            if wqe.failed.is_some() {
                return None;
            }
            let next = self.requester.next;
            if next >= wqe.end() {
                self.sq.cursor += 1;
                continue;
            }
            let in_flight = next - self.requester.una;
            let window = self.window.min(self.requester.room);
            if in_flight >= window {
                return None;
            }
            return Some(Turn {
                at,
                wqe,
                in_flight,
                window,
            });
        }
    }

    /// So many sequence numbers more are on their way.
    pub(super) fn note_requested(&mut self, now: Instant, packets: u64) {
        let r = &mut self.requester;
        r.next += packets;
        r.sent = r.sent.max(r.next);
        if r.ack_deadline.is_none() {
            r.ack_deadline = ack_deadline(now, &self.attr);
        }
    }

    /// Starts the next posted work request if its turn has come. False: nothing to do now.
    pub(super) fn start_next(&mut self, now: Instant, host: &mut dyn Host) -> bool {
        let at = self.sq.started;
        if at == self.sq.head || self.state != QpState::Rts {
            return false;
        }
        let wqe = *self.sq.at(at);
        let fetches = wqe.wants_response();
        // A fence waits for earlier READs and atomics only. Too many of them stall the queue in order.
        if self.requester.reads > 0
            && (wqe.fence || fetches && self.requester.reads >= u32::from(self.attr.max_rd_atomic))
        {
            return false;
        }
        let failed = wqe
            .failed
            .or_else(|| self.check_start(at, &wqe, host).err());
        let carries_packets = failed.is_none() && !wqe.is_local();
        let next = self.requester.next;
        let pmtu = self.pmtu as u64;
        let wqe = self.sq.at_mut(at);
        wqe.failed = failed;
        wqe.first = next;
        wqe.requested = next;
        wqe.packets = if carries_packets {
            u64::from(wqe.len).div_ceil(pmtu).max(1)
        } else {
            0
        };
        self.sq.started += 1;
        if carries_packets && fetches {
            self.requester.reads += 1;
        }
        if !carries_packets {
            self.retire(now, host);
        }
        true
    }

    /// What is checked, and for local work done, when a work request starts.
    fn check_start(&self, at: u64, wqe: &SendWqe, host: &mut dyn Host) -> Result<(), WcStatus> {
        match wqe.op {
            SendOp::LocalInv(key) => {
                return host
                    .invalidate(key, self.config.pd, self.config.num)
                    .map_err(|_| WcStatus::LocQpOpErr);
            }
            SendOp::BindMw(bind) => {
                return host
                    .bind(&bind, self.config.pd, self.config.num)
                    .map_err(|_| WcStatus::MwBindErr);
            }
            _ => {}
        }
        let fetches = wqe.wants_response();
        if fetches && self.attr.max_rd_atomic == 0 {
            return Err(WcStatus::LocQpOpErr);
        }
        // A single packet finds a bad piece when it gathers. Longer messages look first, so that nothing
        // is sent for work that cannot succeed. Where an answer goes is looked at when it comes, as cards
        // do: what the peer refuses is reported first, and an atomic has happened whatever is here.
        if !wqe.inline && !fetches && wqe.len as usize > self.pmtu {
            for sge in self.sq.sges(at).iter().filter(|s| s.len > 0) {
                let access = self.local_access(sge.lkey, sge.addr, sge.len.into(), Access::empty());
                host.check(&access).map_err(|_| WcStatus::LocProtErr)?;
            }
        }
        Ok(())
    }

    /// Writes a request that wants a response; says how many sequence numbers it takes. `None`: not yet.
    fn build_fetch(
        &mut self,
        at: u64,
        wqe: &SendWqe,
        in_flight: u64,
        host: &mut dyn Host,
        buf: &mut [u8],
    ) -> Option<Result<(usize, u64), WcStatus>> {
        let next = self.requester.next;
        let header = |op| self.request(op, wqe, next);
        match wqe.op {
            SendOp::Read { remote_addr, rkey } => {
                let to = if next < wqe.requested {
                    // A repetition ends where the first asking did: beyond that the numbers may
                    // belong to something else by now.
                    wqe.requested
                } else {
                    // A READ longer than the window is asked for in parts, one at a time.
                    let window = self.window.min(self.requester.room);
                    let n = (wqe.end() - next).min(window);
                    let waits = next > wqe.first && in_flight > 0;
                    if waits || in_flight > 0 && in_flight + n > window {
                        return None;
                    }
                    next + n
                };
                let pmtu = self.pmtu as u64;
                let offset = (next - wqe.first) * pmtu;
                let len = (u64::from(wqe.len) - offset).min((to - next) * pmtu) as u32;
                let mut packet = header(Operation::ReadRequest);
                packet.reth = Some(Reth {
                    va: remote_addr.wrapping_add(offset),
                    rkey: rkey.0,
                    len,
                });
                self.sq.at_mut(at).requested = to;
                Some(Ok((packet.emit(buf), to - next)))
            }
            SendOp::CompareSwap {
                remote_addr,
                rkey,
                compare,
                swap,
            } => {
                let mut packet = header(Operation::CompareSwap);
                packet.atomic = Some(AtomicEth {
                    va: remote_addr,
                    rkey: rkey.0,
                    swap_or_add: swap,
                    compare,
                });
                Some(Ok((packet.emit(buf), 1)))
            }
            SendOp::FetchAdd {
                remote_addr,
                rkey,
                add,
            } => {
                let mut packet = header(Operation::FetchAdd);
                packet.atomic = Some(AtomicEth {
                    va: remote_addr,
                    rkey: rkey.0,
                    swap_or_add: add,
                    compare: 0,
                });
                Some(Ok((packet.emit(buf), 1)))
            }
            SendOp::AtomicWrite { remote_addr, rkey } => {
                let mut packet = header(Operation::AtomicWrite);
                packet.reth = Some(Reth {
                    va: remote_addr,
                    rkey: rkey.0,
                    len: 8,
                });
                Some(
                    self.finish_data(at, wqe, &packet, 0, 8, host, buf)
                        .map(|len| (len, 1)),
                )
            }
            SendOp::Flush(target) => {
                let mut packet = header(Operation::Flush);
                packet.reth = Some(Reth {
                    va: target.remote_addr,
                    rkey: target.rkey.0,
                    len: target.len,
                });
                packet.feth = Some(Feth {
                    placement: Placement::from_bits_truncate(target.placement),
                    selectivity: if target.whole_region {
                        Selectivity::MemoryRegion
                    } else {
                        Selectivity::Range
                    },
                });
                Some(Ok((packet.emit(buf), 1)))
            }
            _ => Some(Err(WcStatus::LocQpOpErr)),
        }
    }

    /// Writes packet `psn` of a SEND or WRITE, payload gathered straight into `buf`.
    pub(super) fn build_data(
        &self,
        at: u64,
        wqe: &SendWqe,
        psn: u64,
        ack_req: bool,
        host: &mut dyn Host,
        buf: &mut [u8],
    ) -> Result<usize, WcStatus> {
        let offset = (psn - wqe.first) as usize * self.pmtu;
        let len = (wqe.len as usize - offset).min(self.pmtu);
        let packet = self
            .data_header(wqe, psn, ack_req)
            .ok_or(WcStatus::LocQpOpErr)?;
        self.finish_data(at, wqe, &packet, offset, len, host, buf)
    }

    /// The headers of packet `psn` of a SEND or WRITE.
    pub(super) fn data_header(
        &self,
        wqe: &SendWqe,
        psn: u64,
        ack_req: bool,
    ) -> Option<Packet<'static>> {
        let first = psn == wqe.first;
        let last = psn + 1 == wqe.end();
        let op = data_operation(&wqe.op, first, last)?;
        let mut packet = self.request(op, wqe, psn);
        packet.bth.ack_req = ack_req;
        match wqe.op {
            SendOp::SendImm(imm) if last => packet.imm = Some(imm),
            SendOp::SendInv(key) if last => packet.ieth = Some(key.0),
            SendOp::Write { remote_addr, rkey }
            | SendOp::WriteImm {
                remote_addr, rkey, ..
            } if first => {
                packet.reth = Some(Reth {
                    va: remote_addr,
                    rkey: rkey.0,
                    len: wqe.len,
                });
            }
            _ => {}
        }
        if last {
            if let SendOp::WriteImm { imm, .. } = wqe.op {
                packet.imm = Some(imm);
            }
            packet.bth.solicited = wqe.solicited && !matches!(wqe.op, SendOp::Write { .. });
        }
        Some(packet)
    }

    /// The headers that every request to the peer has.
    pub(super) fn request(&self, op: Operation, wqe: &SendWqe, psn: u64) -> Packet<'static> {
        let transport = self.config.transport;
        let mut packet = Packet::new(Bth::new(
            Opcode::Roce(transport, op),
            self.attr.dest_qpn,
            to_psn(psn),
        ));
        packet.xrc_srqn = (transport == Transport::Xrc).then_some(wqe.xrc_srqn);
        packet
    }

    /// Headers, payload and pad of a packet with data.
    #[expect(
        clippy::too_many_arguments,
        reason = "one call each from the two that know the headers"
    )]
    pub(super) fn finish_data(
        &self,
        at: u64,
        wqe: &SendWqe,
        packet: &Packet<'_>,
        offset: usize,
        len: usize,
        host: &mut dyn Host,
        buf: &mut [u8],
    ) -> Result<usize, WcStatus> {
        let start = packet.emit_header(len, buf);
        let end = start + len;
        let total = end + pad_of(len);
        let payload = &mut buf[start..end];
        if wqe.inline {
            payload.copy_from_slice(&self.sq.inline(at)[offset..offset + len]);
        } else {
            self.gather(at, offset as u64, payload, host)
                .map_err(|()| WcStatus::LocProtErr)?;
        }
        buf[end..total].fill(0);
        Ok(total)
    }

    /// Reads message bytes from `offset` on out of the work request's pieces.
    fn gather(&self, at: u64, offset: u64, out: &mut [u8], host: &mut dyn Host) -> Result<(), ()> {
        let (len, need) = (out.len() as u64, Access::empty());
        self.each_piece(at, offset, len, need, |access, range| {
            host.read(access, &mut out[range]).map_err(|_| ())
        })
    }

    /// Writes an answer's bytes into the pieces of the work request that asked.
    pub(super) fn scatter_answer(
        &self,
        at: u64,
        offset: u64,
        data: &[u8],
        host: &mut dyn Host,
    ) -> Result<(), ()> {
        let (len, need) = (data.len() as u64, Access::LOCAL_WRITE);
        self.each_piece(at, offset, len, need, |access, range| {
            host.write(access, &data[range]).map_err(|_| ())
        })
    }

    /// Goes over the pieces of a work request that hold bytes `offset` to `offset + len` of its message; `visit` also
    /// learns which of the `len` bytes they are.
    pub(super) fn each_piece(
        &self,
        at: u64,
        offset: u64,
        len: u64,
        need: Access,
        mut visit: impl FnMut(&MemAccess, Range<usize>) -> Result<(), ()>,
    ) -> Result<(), ()> {
        let mut skip = offset;
        let mut done = 0;
        for sge in self.sq.sges(at) {
            let room = u64::from(sge.len);
            if skip >= room {
                skip -= room;
                continue;
            }
            if done == len {
                break;
            }
            let n = (room - skip).min(len - done);
            let access = self.local_access(sge.lkey, sge.addr.wrapping_add(skip), n, need);
            visit(&access, done as usize..(done + n) as usize)?;
            done += n;
            skip = 0;
        }
        Ok(())
    }

    fn local_access(&self, key: crate::ids::Key, va: u64, len: u64, need: Access) -> MemAccess {
        MemAccess {
            key,
            pd: self.config.pd,
            qp: self.config.num,
            va,
            len,
            need,
            remote: false,
        }
    }

    /// Marks a started work request as failed. It is reported when everything before it is done.
    pub(super) fn fail_later(
        &mut self,
        now: Instant,
        at: u64,
        status: WcStatus,
        host: &mut dyn Host,
    ) {
        self.sq.at_mut(at).failed = Some(status);
        self.retire(now, host);
    }

    /// Completes what is done at the front of the queue, in order.
    pub(super) fn retire(&mut self, now: Instant, host: &mut dyn Host) {
        while self.sq.tail < self.sq.started {
            let wqe = self.sq.at(self.sq.tail);
            // What failed half-way never needs its earlier packets acknowledged; only those of
            // other work requests.
            if let Some(status) = wqe.failed
                && self.requester.una >= wqe.first
            {
                self.fail_send(now, status, host);
                return;
            }
            if self.requester.una < wqe.end() {
                break;
            }
            if wqe.wants_response() {
                self.requester.reads -= 1;
            }
            let done = wqe.signaled.then(|| {
                let mut c = Completion::success(wqe.wr_id, wqe.opcode(), self.config.num, now);
                if matches!(
                    c.opcode,
                    WcOpcode::RdmaRead | WcOpcode::CompSwap | WcOpcode::FetchAdd
                ) {
                    c.byte_len = wqe.len;
                }
                c
            });
            self.sq.tail += 1;
            if let Some(c) = done {
                host.complete(Side::Send, &c);
            }
        }
        self.sq.cursor = self.sq.cursor.max(self.sq.tail);
        self.note_drained(host);
    }

    /// The oldest work request has failed: it is reported, all others are flushed.
    pub(super) fn fail_send(&mut self, now: Instant, status: WcStatus, host: &mut dyn Host) {
        if self.sq.tail < self.sq.head {
            let wqe = self.sq.at(self.sq.tail);
            let c = Completion::error(wqe.wr_id, status, wqe.opcode(), self.config.num, now);
            self.sq.tail += 1;
            host.complete(Side::Send, &c);
        }
        match self.config.transport {
            Transport::Uc | Transport::Ud => self.stop_sending(now, host),
            Transport::Rc | Transport::Xrc => self.enter_error(now, host),
        }
    }
}

/// When an acknowledgement is overdue; never, if the timeout is 0.
pub(super) fn ack_deadline(now: Instant, attr: &QpAttr) -> Option<Instant> {
    adverb_wire::ack_timeout_ns(attr.timeout).map(|ns| now.plus_nanos(ns))
}

const fn data_operation(op: &SendOp, first: bool, last: bool) -> Option<Operation> {
    use Operation as O;
    Some(match (op, first, last) {
        (SendOp::Send | SendOp::SendImm(_) | SendOp::SendInv(_), true, false) => O::SendFirst,
        (SendOp::Send | SendOp::SendImm(_) | SendOp::SendInv(_), false, false) => O::SendMiddle,
        (SendOp::Send, false, true) => O::SendLast,
        (SendOp::Send, true, true) => O::SendOnly,
        (SendOp::SendImm(_), false, true) => O::SendLastImm,
        (SendOp::SendImm(_), true, true) => O::SendOnlyImm,
        (SendOp::SendInv(_), false, true) => O::SendLastInv,
        (SendOp::SendInv(_), true, true) => O::SendOnlyInv,
        (SendOp::Write { .. } | SendOp::WriteImm { .. }, true, false) => O::WriteFirst,
        (SendOp::Write { .. } | SendOp::WriteImm { .. }, false, false) => O::WriteMiddle,
        (SendOp::Write { .. }, false, true) => O::WriteLast,
        (SendOp::Write { .. }, true, true) => O::WriteOnly,
        (SendOp::WriteImm { .. }, false, true) => O::WriteLastImm,
        (SendOp::WriteImm { .. }, true, true) => O::WriteOnlyImm,
        _ => return None,
    })
}
