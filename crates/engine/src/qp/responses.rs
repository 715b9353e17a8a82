//! Answers: what is saved for repetition, what is due, and in which order it goes out.
//!
//! Answers leave in the order of their sequence numbers. An acknowledgement that is due waits for
//! READs asked for before it, since it would claim that their data has gone; acknowledgements
//! coalesce to the highest number, so there is never more than one.

use adverb_wire::{Aeth, Bth, NakCode, Opcode, Operation, Packet, Syndrome, pad_of};

use super::requester::to_psn;
use super::state::QpState;
use super::{Dest, Qp, Role, Transmit};
use crate::event::QpEvent;
use crate::ids::PdId;
use crate::memory::{Access, Host, MemAccess};
use crate::time::Instant;

/// What a saved request needs to be answered again.
#[derive(Clone, Copy, Debug)]
pub(super) enum Saved {
    /// Memory is read again for each answer.
    Read { va: u64, rkey: u32, len: u32 },
    /// The value the operation found; it is never executed again.
    Atomic { value: u64 },
    /// FLUSH and ATOMIC_WRITE: done, and nothing more to say.
    Done,
}

/// One READ or atomic, kept until its slot is needed for another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) saved: Saved,
    pub(super) first: u64,
    pub(super) end: u64,
    msn: u32,
    /// What the key is checked against.
    pd: PdId,
    /// The answer packets under way: `cursor` of `from..to`. Nothing is due when `cursor == to`.
    pub(super) from: u64,
    pub(super) cursor: u64,
    pub(super) to: u64,
    /// Whether it has been answered in full before.
    answered: bool,
}

impl Slot {
    const fn is_due(&self) -> bool {
        self.cursor < self.to
    }
}

/// Everything the responder owes the peer.
#[derive(Debug, Default)]
pub(super) struct Answers {
    slots: Vec<Option<Slot>>,
    /// The slot to use next, which holds the oldest request.
    next: usize,
    /// How many slots have packets due.
    due: usize,
    pub(super) ack: bool,
    /// XRC: the domain that the request being handled works in.
    pub(super) pd: PdId,
    nak: Option<(Syndrome, u64)>,
}

impl Answers {
    /// Whether a READ or atomic can be accepted: there are slots, and the one to be reused has
    /// been answered at least once.
    pub(super) fn has_room(&self) -> bool {
        self.slots
            .get(self.next)
            .is_some_and(|s| s.is_none_or(|s| s.answered || !s.is_due()))
    }

    /// Saves an accepted request and makes its answer due.
    pub(super) fn accept(&mut self, saved: Saved, first: u64, packets: u64, msn: u32) {
        let end = first + packets;
        let slot = Slot {
            saved,
            first,
            end,
            msn,
            pd: self.pd,
            from: first,
            cursor: first,
            to: end,
            answered: false,
        };
        let next = self.next;
        let Some(place) = self.slots.get_mut(next) else {
            return;
        };
        // A repetition that is still due there was asked for by somebody who has moved on since.
        if place.is_some_and(|s| s.is_due()) {
            self.due -= 1;
        }
        *place = Some(slot);
        self.due += 1;
        self.next = (next + 1) % self.slots.len();
    }

    pub(super) fn find(&mut self, psn: u64) -> Option<&mut Slot> {
        self.slots
            .iter_mut()
            .flatten()
            .find(|s| s.first <= psn && psn < s.end)
    }

    /// The oldest request that packets are due for.
    pub(super) fn oldest_due(&self) -> Option<Slot> {
        if self.due == 0 {
            return None;
        }
        let due = self.slots.iter().flatten().filter(|s| s.is_due());
        due.min_by_key(|s| s.first).copied()
    }

    /// Makes `packets` answers of a saved request due again, from `psn` on.
    pub(super) fn repeat(&mut self, psn: u64, packets: u64) {
        let Some(slot) = self.find(psn) else { return };
        let to = (psn + packets).min(slot.end);
        if slot.is_due() {
            // What has not gone out yet will do so anyway.
            if psn < slot.cursor {
                slot.from = psn;
                slot.cursor = psn;
            }
            slot.to = slot.to.max(to);
            return;
        }
        slot.from = psn;
        slot.cursor = psn;
        slot.to = to;
        if slot.is_due() {
            self.due += 1;
        }
    }

    /// Says nothing to the repetition of a saved request.
    fn drop_repetition(&mut self, first: u64) {
        let slot = self.slots.iter_mut().flatten().find(|s| s.first == first);
        if let Some(slot) = slot.filter(|s| s.is_due()) {
            slot.cursor = slot.to;
            self.due -= 1;
        }
    }

    pub(super) fn refuse(&mut self, syndrome: Syndrome, psn: u64) {
        self.nak = Some((syndrome, psn));
    }

    /// The missing packet has come before the complaint about it went out.
    pub(super) fn withdraw_nak(&mut self) {
        self.nak = None;
    }

    pub(super) fn forget(&mut self) {
        self.slots
            .iter_mut()
            .flatten()
            .for_each(|s| s.cursor = s.to);
        self.due = 0;
        self.ack = false;
        self.nak = None;
    }

    /// Sets the number of slots; of those in use the newest stay.
    pub(super) fn resize(&mut self, n: usize) {
        let mut kept: Vec<Option<Slot>> =
            self.slots.iter().copied().filter(Option::is_some).collect();
        kept.sort_by_key(|s| s.map(|s| s.first));
        kept.drain(..kept.len().saturating_sub(n));
        self.next = if kept.len() == n { 0 } else { kept.len() };
        kept.resize(n, None);
        self.due = kept.iter().flatten().filter(|s| s.is_due()).count();
        self.slots = kept;
    }

    pub(super) fn clear(&mut self) {
        self.slots.fill(None);
        self.forget();
        self.next = 0;
    }

    /// Nothing but an acknowledgement is due.
    pub(super) const fn is_ack_only(&self) -> bool {
        self.ack && self.due == 0 && self.nak.is_none()
    }

    pub(super) const fn is_idle(&self) -> bool {
        self.due == 0 && !self.ack && self.nak.is_none()
    }
}

impl Qp {
    /// The next answer, if one is due.
    pub(super) fn poll_response(
        &mut self,
        now: Instant,
        host: &mut dyn Host,
        buf: &mut [u8],
    ) -> Option<Transmit> {
        if self.responder.answers.is_idle() {
            return None;
        }
        let len = match self.answer_saved(now, host, buf) {
            Some(len) => len,
            None => self.answer_plain(buf)?,
        };
        Some(Transmit {
            len,
            dest: Dest::Connected,
        })
    }

    /// The next packet of the oldest READ or atomic that is due.
    fn answer_saved(&mut self, now: Instant, host: &mut dyn Host, buf: &mut [u8]) -> Option<usize> {
        let slot = self.responder.answers.oldest_due()?;
        let len = match slot.saved {
            Saved::Atomic { value } => {
                let mut packet = self.response(Operation::AtomicAcknowledge, slot.cursor);
                packet.aeth = Some(Aeth {
                    syndrome: Syndrome::ACK,
                    msn: slot.msn,
                });
                packet.atomic_ack = Some(value);
                packet.emit(buf)
            }
            Saved::Done => {
                let mut packet = self.response(Operation::ReadResponseOnly, slot.cursor);
                packet.aeth = Some(Aeth {
                    syndrome: Syndrome::ACK,
                    msn: slot.msn,
                });
                packet.emit(buf)
            }
            Saved::Read { va, rkey, len } => {
                let offset = (slot.cursor - slot.first) * self.pmtu as u64;
                let n = u64::from(len).saturating_sub(offset).min(self.pmtu as u64);
                let packet = self.read_answer(&slot, slot.cursor);
                let start = packet.emit_header(n as usize, buf);
                let end = start + n as usize;
                let access = self.read_access(&slot, rkey, va.wrapping_add(offset), n);
                if n > 0 && host.read(&access, &mut buf[start..end]).is_err() {
                    if slot.answered {
                        // Asked again by a copy that was long under way, most likely: who has the answer may
                        // take the memory back, and must not die of that. Who misses it asks until it gives up.
                        self.responder.answers.drop_repetition(slot.first);
                        return self.answer_saved(now, host, buf);
                    }
                    // The region has gone since the request was accepted.
                    self.responder.answers.forget();
                    self.responder
                        .answers
                        .refuse(Syndrome::Nak(NakCode::RemoteAccess), slot.cursor);
                    // One that has died of a later request already has told so; its answers to earlier
                    // ones still go out.
                    if self.state != QpState::Err {
                        host.event(QpEvent::AccessError);
                    }
                    self.die(now, host);
                    return None;
                }
                let total = end + pad_of(n as usize);
                buf[end..total].fill(0);
                total
            }
        };
        self.note_answered(slot.first, 1);
        Some(len)
    }

    /// The headers of answer packet `psn` to a READ.
    pub(super) fn read_answer(&self, slot: &Slot, psn: u64) -> Packet<'static> {
        let op = match (psn == slot.from, psn + 1 == slot.to) {
            (true, true) => Operation::ReadResponseOnly,
            (true, false) => Operation::ReadResponseFirst,
            (false, true) => Operation::ReadResponseLast,
            (false, false) => Operation::ReadResponseMiddle,
        };
        let mut packet = self.response(op, psn);
        packet.aeth = op.has_aeth().then_some(Aeth {
            syndrome: Syndrome::ACK,
            msn: slot.msn,
        });
        packet
    }

    /// The access to `n` of the bytes that a READ asked for.
    pub(super) fn read_access(&self, slot: &Slot, rkey: u32, va: u64, n: u64) -> MemAccess {
        let mut access = self.remote_access(rkey, va, n, Access::REMOTE_READ);
        if self.config.role == Role::Target {
            access.pd = slot.pd;
        }
        access
    }

    /// So many answer packets more of this request have gone.
    pub(super) fn note_answered(&mut self, first: u64, packets: u64) {
        let expected = self.responder.expected;
        let answers = &mut self.responder.answers;
        let Some(slot) = answers
            .slots
            .iter_mut()
            .flatten()
            .find(|s| s.first == first)
        else {
            return;
        };
        slot.cursor += packets;
        if slot.cursor < slot.to {
            return;
        }
        slot.answered = true;
        answers.due -= 1;
        // The last packet of the newest request acknowledges everything there is.
        if slot.to == expected {
            answers.ack = false;
        }
    }

    /// A NAK or an acknowledgement; both speak for everything before them.
    fn answer_plain(&mut self, buf: &mut [u8]) -> Option<usize> {
        let answers = &mut self.responder.answers;
        let ack = std::mem::take(&mut answers.ack);
        let (syndrome, psn) = match answers.nak.take() {
            Some(nak) => nak,
            None if ack => (Syndrome::ACK, self.responder.expected - 1),
            None => return None,
        };
        let mut packet = self.response(Operation::Acknowledge, psn);
        packet.aeth = Some(Aeth {
            syndrome,
            msn: self.responder.msn,
        });
        Some(packet.emit(buf))
    }

    fn response(&self, op: Operation, psn: u64) -> Packet<'static> {
        Packet::new(Bth::new(
            Opcode::Roce(self.config.transport, op),
            self.attr.dest_qpn,
            to_psn(psn),
        ))
    }
}
