//! Trains, sending side: which packets of SEND, WRITE and answers to READ travel as one.
//!
//! A train is what the next calls of `poll_transmit` would write, and ends where a packet asks for an acknowledgement,
//! where the message ends, and where the window does. What is not worth it, or not to be had in one go, is left to them.

use adverb_wire::{Packet, Train, Transport};

use super::Qp;
use super::requester::{Turn, wants_ack};
use super::responses::{Saved, Slot};
use super::send_queue::SendWqe;
use crate::memory::{Access, Host};
use crate::time::Instant;
use crate::train::Load;

/// A train that is ready to be loaded.
#[derive(Clone, Copy, Debug)]
pub struct Departure {
    train: Train,
    cargo: Cargo,
}

#[derive(Clone, Copy, Debug)]
enum Cargo {
    /// Bytes of a work request's message, from `offset` on.
    Work { at: u64, offset: u64 },
    /// Bytes that a READ asked for, from `va` on.
    Answer { slot: Slot, va: u64, rkey: u32 },
}

/// The memory could not be read in one go. Nothing has changed; `poll_transmit` finds out what is wrong with which packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotLoaded;

impl Departure {
    /// What is to be sent.
    pub const fn train(&self) -> &Train {
        &self.train
    }
}

impl Qp {
    /// The train that comes next, if it has at least `least` bytes of payload; it has at most `most`.
    ///
    /// `None` says nothing about whether [`Qp::poll_transmit`] has something to send.
    pub fn next_train(
        &mut self,
        now: Instant,
        host: &mut dyn Host,
        least: u32,
        most: u32,
    ) -> Option<Departure> {
        let room = u64::from(most / self.pmtu as u32);
        let departure = if self.responder.answers.is_idle() {
            // Most of what is sent is short, and should not pay for what it is not. The entry at the cursor may be
            // finished; then the first packet of the next one goes by itself.
            let at = self.sq.cursor;
            if at == self.sq.head || self.sq.at(at).len < least {
                return None;
            }
            match self.config.transport {
                Transport::Rc | Transport::Xrc => self.train_of_requests(now, host, room),
                Transport::Uc => self.train_of_uc(now, host, room),
                Transport::Ud => None,
            }
        } else {
            self.train_of_answers(room)
        };
        departure.filter(|d| d.train.len() >= least)
    }

    /// Loads the train that [`Qp::next_train`] has just said comes next, and takes it for sent.
    pub fn depart(
        &mut self,
        now: Instant,
        departure: &Departure,
        host: &mut dyn Host,
        load: &mut dyn Load,
    ) -> Result<(), NotLoaded> {
        let train = &departure.train;
        let packets = u64::from(train.packets());
        match departure.cargo {
            Cargo::Work { at, offset } => {
                let len = u64::from(train.len());
                self.each_piece(at, offset, len, Access::empty(), |access, range| {
                    let loaded = load.load(host, access, range.start as u64);
                    loaded.map_err(|_| ())
                })
                .map_err(|()| NotLoaded)?;
                if self.config.transport == Transport::Uc {
                    self.note_sent(now, packets, host);
                } else {
                    self.note_requested(now, packets);
                }
            }
            Cargo::Answer { slot, va, rkey } => {
                let access = self.read_access(&slot, rkey, va, train.len().into());
                load.load(host, &access, 0).map_err(|_| NotLoaded)?;
                self.note_answered(slot.first, packets);
            }
        }
        self.counters.packets_sent += packets;
        Ok(())
    }

    fn train_of_requests(
        &mut self,
        now: Instant,
        host: &mut dyn Host,
        room: u64,
    ) -> Option<Departure> {
        let Turn {
            at,
            wqe,
            in_flight,
            window,
        } = self.next_request(now, host)?;
        if wqe.wants_response() {
            return None;
        }
        let next = self.requester.next;
        let most = room.min(window - in_flight).min(wqe.end() - next);
        let asks = |n: u64| wants_ack(&wqe, next + n, in_flight + n, window);
        let packets = (1..most).find(|n| asks(n - 1)).unwrap_or(most);
        let asks = packets > 0 && asks(packets - 1);
        self.train_of_work(at, &wqe, packets, asks)
    }

    fn train_of_uc(&mut self, now: Instant, host: &mut dyn Host, room: u64) -> Option<Departure> {
        let (at, wqe) = self.next_uc(now, host)?;
        let packets = room.min(wqe.end() - self.requester.next);
        self.train_of_work(at, &wqe, packets, false)
    }

    /// The next `packets` packets of a SEND or WRITE.
    fn train_of_work(&self, at: u64, wqe: &SendWqe, packets: u64, asks: bool) -> Option<Departure> {
        if wqe.inline || packets == 0 {
            return None;
        }
        let from = self.requester.next;
        let offset = (from - wqe.first) * self.pmtu as u64;
        let rest = u64::from(wqe.len) - offset;
        let first = self.data_header(wqe, from, asks && packets == 1)?;
        let last = self.data_header(wqe, from + packets - 1, asks)?;
        Some(Departure {
            train: self.couple(first, last, packets, rest)?,
            cargo: Cargo::Work { at, offset },
        })
    }

    fn train_of_answers(&self, room: u64) -> Option<Departure> {
        let slot = self.responder.answers.oldest_due()?;
        let Saved::Read { va, rkey, len } = slot.saved else {
            return None;
        };
        let from = slot.cursor;
        let packets = room.min(slot.to - from);
        if packets == 0 {
            return None;
        }
        let offset = (from - slot.first) * self.pmtu as u64;
        let rest = u64::from(len).saturating_sub(offset);
        let first = self.read_answer(&slot, from);
        let last = self.read_answer(&slot, from + packets - 1);
        Some(Departure {
            train: self.couple(first, last, packets, rest)?,
            cargo: Cargo::Answer {
                slot,
                va: va.wrapping_add(offset),
                rkey,
            },
        })
    }

    /// A train of these packets, which have the first of `rest` bytes.
    fn couple(
        &self,
        first: Packet<'static>,
        last: Packet<'static>,
        packets: u64,
        rest: u64,
    ) -> Option<Train> {
        let len = rest.min(packets * self.pmtu as u64) as u32;
        let piece = if packets == 1 { len } else { self.pmtu as u32 };
        Train::new(first, last, piece, len)
    }
}
