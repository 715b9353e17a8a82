//! A train: consecutive packets of one message, on links that keep a payload in one piece.
//!
//! Inside a host nothing forces a message into packets but the protocol itself. So a run of them travels as the headers
//! of its first and its last packet and the payload of all. What stands in between follows from these two, and
//! [`Train::packet`] says it: packets are what a train means, never more and never less.
//!
//! In bytes, all that is not payload is the *head*: the number of packets and the payload bytes of each but the last
//! (two bytes each, in the order of this host, which trains do not leave), the headers of the first packet and, if
//! there are several, those of the last, as on a cable but with pad counts of zero.

use std::ops::Range;

use crate::{Bth, Opcode, Operation, Packet, ParseError, Transport};

/// A run of packets: consecutive sequence numbers, and each but the last with `piece` bytes of payload.
///
/// The payload is elsewhere; those of `first` and `last` are empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Train {
    first: Packet<'static>,
    last: Packet<'static>,
    packets: u32,
    piece: u32,
    len: u32,
}

/// Why bytes are not the head of a train. Whoever receives such bytes drops them and counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrainError {
    #[error("{have} bytes where the head of a train takes {need}")]
    Length { have: usize, need: usize },
    #[error("a packet of the train: {0}")]
    Packet(#[from] ParseError),
    #[error("{packets} packets of {piece} bytes each (at most 4096) have not {len} bytes in all")]
    Sizes { packets: u32, piece: u32, len: u32 },
    #[error("{first:?} and {last:?} are not the ends of a run of packets")]
    Ends { first: Opcode, last: Opcode },
    #[error("first and last packet do not fit each other")]
    Apart,
}

impl Train {
    /// The most packets of a train.
    pub const MOST: u32 = u16::MAX as u32;
    /// The most payload of a packet: the largest path MTU.
    pub const MAX_PIECE: u32 = 4096;
    /// The longest head: a WRITE over XRC that ends with immediate data.
    pub const MAX_HEAD: usize = 4
        + Opcode::Roce(Transport::Xrc, Operation::WriteOnlyImm).header_len()
        + Opcode::Roce(Transport::Xrc, Operation::SendLastImm).header_len();

    /// A run from `first` to `last`, which differ only in what their opcodes carry, with `len` bytes of payload.
    ///
    /// `None` if there is no such run.
    #[must_use]
    pub fn new(
        first: Packet<'static>,
        last: Packet<'static>,
        piece: u32,
        len: u32,
    ) -> Option<Self> {
        let packets = last.bth.psn.diff(first.bth.psn).checked_add(1)?;
        let train = Self {
            first,
            last,
            packets: u32::try_from(packets).ok()?,
            piece,
            len,
        };
        train.check().ok()?;
        Some(train)
    }

    /// Parses a head; the payload that belongs to it has `len` bytes.
    pub fn parse(head: &[u8], len: u32) -> Result<Self, TrainError> {
        let have = head.len();
        let (counts, rest) = head
            .split_first_chunk::<4>()
            .ok_or(TrainError::Length { have, need: 4 })?;
        let [a, b, c, d] = *counts;
        let packets = u32::from(u16::from_ne_bytes([a, b]));
        let (first, rest) = headers(rest)?;
        let (last, rest) = if packets > 1 {
            headers(rest)?
        } else {
            (first, rest)
        };
        if !rest.is_empty() {
            return Err(TrainError::Length {
                have,
                need: have - rest.len(),
            });
        }
        let train = Self {
            first,
            last,
            packets,
            piece: u32::from(u16::from_ne_bytes([c, d])),
            len,
        };
        train.check()?;
        Ok(train)
    }

    /// Writes the head; returns its length, at most [`Train::MAX_HEAD`].
    ///
    /// # Panics
    /// When `out` is shorter.
    pub fn emit(&self, out: &mut [u8]) -> usize {
        out[..2].copy_from_slice(&(self.packets as u16).to_ne_bytes());
        out[2..4].copy_from_slice(&(self.piece as u16).to_ne_bytes());
        let mut at = 4 + self.first.emit_header(0, &mut out[4..]);
        if self.packets > 1 {
            at += self.last.emit_header(0, &mut out[at..]);
        }
        at
    }

    fn check(&self) -> Result<(), TrainError> {
        let Self {
            first,
            last,
            packets,
            piece,
            len,
        } = *self;
        let most = u64::from(packets) * u64::from(piece);
        let fits = match packets {
            0 => false,
            1 => len == piece,
            _ => most - u64::from(piece) < u64::from(len) && u64::from(len) <= most,
        };
        if !fits || packets > Self::MOST || piece > Self::MAX_PIECE {
            return Err(TrainError::Sizes {
                packets,
                piece,
                len,
            });
        }
        let ends = TrainError::Ends {
            first: first.bth.opcode,
            last: last.bth.opcode,
        };
        let (Opcode::Roce(transport, from), Opcode::Roce(same, to)) =
            (first.bth.opcode, last.bth.opcode)
        else {
            return Err(ends);
        };
        let is_run = match (middle_of(from), middle_of(to)) {
            (Some(_), Some(_)) if packets == 1 => from == to,
            (Some(a), Some(b)) => {
                a == b && (from.is_first() || from.is_middle()) && (to.is_middle() || to.is_last())
            }
            _ => false,
        };
        if !is_run || transport != same || transport == Transport::Ud {
            return Err(ends);
        }
        let follows = last.bth.psn.diff(first.bth.psn) == packets as i32 - 1;
        if !follows
            || first.bth.dest_qp != last.bth.dest_qp
            || first.bth.pkey != last.bth.pkey
            || first.xrc_srqn != last.xrc_srqn
        {
            return Err(TrainError::Apart);
        }
        Ok(())
    }

    #[must_use]
    pub const fn first(&self) -> &Packet<'static> {
        &self.first
    }

    /// The same as the first, if it is alone.
    #[must_use]
    pub const fn last(&self) -> &Packet<'static> {
        &self.last
    }

    #[must_use]
    pub const fn packets(&self) -> u32 {
        self.packets
    }

    /// Payload bytes of each packet but the last.
    #[must_use]
    pub const fn piece(&self) -> u32 {
        self.piece
    }

    /// Payload bytes of all packets.
    #[must_use]
    #[expect(
        clippy::len_without_is_empty,
        reason = "what is asked for is a number of bytes"
    )]
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// Packet `n`, from 0 on and less than [`Train::packets`], and where its payload is in that of the train.
    #[must_use]
    pub fn packet(&self, n: u32) -> (Packet<'static>, Range<u32>) {
        let payload = n.saturating_mul(self.piece).min(self.len)
            ..(n + 1).saturating_mul(self.piece).min(self.len);
        let packet = match n {
            0 => self.first,
            _ if n + 1 >= self.packets => self.last,
            _ => self.middle(n),
        };
        (packet, payload)
    }

    /// Packet `n`, which is neither the first nor the last.
    fn middle(&self, n: u32) -> Packet<'static> {
        let opcode = match self.first.bth.opcode {
            Opcode::Roce(transport, op) => Opcode::Roce(transport, middle_of(op).unwrap_or(op)),
            Opcode::Cnp => Opcode::Cnp,
        };
        let bth = Bth {
            opcode,
            psn: self.first.bth.psn.add(n),
            ack_req: false,
            solicited: false,
            ..self.first.bth
        };
        Packet {
            xrc_srqn: self.first.xrc_srqn,
            ..Packet::new(bth)
        }
    }

    /// The train from packet `n` on, which is less than [`Train::packets`]. Its payload begins where
    /// [`Train::packet`] says.
    #[must_use]
    pub fn rest(&self, n: u32) -> Self {
        let (first, payload) = self.packet(n);
        let packets = self.packets - n;
        let len = self.len - payload.start;
        Self {
            first,
            packets,
            len,
            piece: if packets == 1 { len } else { self.piece },
            ..*self
        }
    }
}

/// Headers without a payload at the front of some bytes, and what is behind them.
fn headers(bytes: &[u8]) -> Result<(Packet<'static>, &[u8]), TrainError> {
    let have = bytes.len();
    let code = *bytes.first().ok_or(TrainError::Length { have, need: 1 })?;
    let need = Opcode::from_u8(code)
        .ok_or(ParseError::UnknownOpcode(code))?
        .header_len();
    let (headers, rest) = bytes
        .split_at_checked(need)
        .ok_or(TrainError::Length { have, need })?;
    Ok((Packet::parse(headers)?.without_payload(), rest))
}

/// The operation of the packets between the first and the last of a message that this one belongs to.
const fn middle_of(op: Operation) -> Option<Operation> {
    if op.is_send() {
        Some(Operation::SendMiddle)
    } else if op.is_write() {
        Some(Operation::WriteMiddle)
    } else if op.is_read_response() {
        Some(Operation::ReadResponseMiddle)
    } else {
        None
    }
}
