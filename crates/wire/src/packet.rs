//! A packet from its BTH to its pad bytes: parse and emit.
//!
//! The ICRC is not part of it, because only UDP has one (see [`crate::icrc`]).

use crate::bytes::{Reader, Writer};
use crate::{Aeth, AtomicEth, Bth, Deth, Feth, Headers, Opcode, Operation, Reth, Transport};

/// A packet: what [`Packet::parse`] found, or what [`Packet::emit`] is to write.
///
/// The opcode decides which of the optional headers are there. A parsed packet has exactly those;
/// a packet to emit needs at least those, and others are not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    pub bth: Bth,
    /// XRC requests: the shared receive queue, 24 bits.
    pub xrc_srqn: Option<u32>,
    pub deth: Option<Deth>,
    pub reth: Option<Reth>,
    pub atomic: Option<AtomicEth>,
    pub aeth: Option<Aeth>,
    /// The value an atomic operation found.
    pub atomic_ack: Option<u64>,
    /// Immediate data: four bytes that nobody swaps.
    pub imm: Option<[u8; 4]>,
    /// The R_Key that a SEND with invalidate names.
    pub ieth: Option<u32>,
    pub feth: Option<Feth>,
    pub payload: &'a [u8],
}

/// Why bytes are not a packet. Whoever receives such bytes drops them and counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    #[error("{have} bytes where the headers alone take {need}")]
    TooShort { have: usize, need: usize },
    #[error("transport version {0}, only 0 exists")]
    Version(u8),
    #[error("opcode {0:#04x} is unknown")]
    UnknownOpcode(u8),
    #[error("{0} bytes, which is not a multiple of four")]
    Unaligned(usize),
    #[error("{pad} bytes of padding in {have} bytes after the headers")]
    Pad { pad: u8, have: usize },
}

/// The most bytes there can be before a payload: an XRC atomic request.
pub const MAX_HEADERS: usize = Opcode::Roce(Transport::Xrc, Operation::CompareSwap).header_len();

/// Bytes of padding after a payload of `len` bytes.
#[inline]
#[must_use]
pub const fn pad_of(len: usize) -> usize {
    len.wrapping_neg() & 3
}

impl<'a> Packet<'a> {
    /// A packet with no extension headers and no payload, to be completed.
    #[must_use]
    pub const fn new(bth: Bth) -> Self {
        Self {
            bth,
            xrc_srqn: None,
            deth: None,
            reth: None,
            atomic: None,
            aeth: None,
            atomic_ack: None,
            imm: None,
            ieth: None,
            feth: None,
            payload: &[],
        }
    }

    /// The headers alone.
    #[must_use]
    pub const fn without_payload(&self) -> Packet<'static> {
        Packet {
            bth: self.bth,
            xrc_srqn: self.xrc_srqn,
            deth: self.deth,
            reth: self.reth,
            atomic: self.atomic,
            aeth: self.aeth,
            atomic_ack: self.atomic_ack,
            imm: self.imm,
            ieth: self.ieth,
            feth: self.feth,
            payload: &[],
        }
    }

    /// Parses what is between the UDP header and the ICRC.
    ///
    /// Reserved bits and the content of pad bytes are ignored. Whether the payload's length suits
    /// the operation is left to [`Operation::payload_fits`].
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let have = bytes.len();
        let Some((bth, rest)) = bytes.split_first_chunk() else {
            return Err(ParseError::TooShort {
                have,
                need: Bth::LEN,
            });
        };
        let mut packet = Self::new(Bth::parse(bth)?);
        if !have.is_multiple_of(4) {
            return Err(ParseError::Unaligned(have));
        }
        let mut reader = Reader::new(rest);
        packet
            .parse_extensions(&mut reader)
            .ok_or_else(|| ParseError::TooShort {
                have,
                need: packet.header_len(),
            })?;

        let padded = reader.rest();
        let pad = packet.bth.pad;
        packet.payload = padded
            .len()
            .checked_sub(usize::from(pad))
            .and_then(|len| padded.get(..len))
            .ok_or(ParseError::Pad {
                pad,
                have: padded.len(),
            })?;
        Ok(packet)
    }

    #[inline]
    fn parse_extensions(&mut self, r: &mut Reader<'_>) -> Option<()> {
        let headers = self.bth.opcode.headers();
        // Most packets have none at all or one, which the order of the tests cannot tell.
        if headers.is_empty() {
            return Some(());
        }
        if headers.contains(Headers::XRCETH) {
            let _reserved = r.u8()?;
            self.xrc_srqn = Some(r.u24()?);
        }
        if headers.contains(Headers::DETH) {
            self.deth = Some(Deth::parse(r)?);
        }
        if headers.contains(Headers::FETH) {
            self.feth = Some(Feth::parse(r)?);
        }
        if headers.contains(Headers::RETH) {
            self.reth = Some(Reth::parse(r)?);
        }
        if headers.contains(Headers::ATOMIC_ETH) {
            self.atomic = Some(AtomicEth::parse(r)?);
        }
        if headers.contains(Headers::AETH) {
            self.aeth = Some(Aeth::parse(r)?);
        }
        if headers.contains(Headers::ATOMIC_ACK_ETH) {
            self.atomic_ack = Some(r.u64()?);
        }
        if headers.contains(Headers::IMM_DT) {
            self.imm = Some(r.take()?);
        }
        if headers.contains(Headers::IETH) {
            self.ieth = Some(r.u32()?);
        }
        if headers.contains(Headers::CNP_RESERVED) {
            let _reserved: [u8; 16] = r.take()?;
        }
        Some(())
    }

    /// Bytes before the payload, which the opcode alone decides.
    #[inline]
    #[must_use]
    pub const fn header_len(&self) -> usize {
        self.bth.opcode.header_len()
    }

    /// Bytes that [`Packet::emit`] writes.
    #[inline]
    #[must_use]
    pub const fn emitted_len(&self) -> usize {
        self.header_len() + self.payload.len() + pad_of(self.payload.len())
    }

    /// Writes the headers of a packet whose payload, `payload_len` bytes, the caller puts behind
    /// them (and [`pad_of`] zeros behind that); the `payload` field is not used. Returns the
    /// number of bytes written.
    ///
    /// # Panics
    /// When `out` is too short, or a header is missing that the opcode demands.
    #[inline]
    pub fn emit_header(&self, payload_len: usize, out: &mut [u8]) -> usize {
        let headers = self.bth.opcode.headers();
        let mut writer = Writer::new(out);
        let w = &mut writer;
        self.bth.emit(pad_of(payload_len) as u8, w);
        if headers.is_empty() {
            return Bth::LEN;
        }
        if headers.contains(Headers::XRCETH) {
            w.put_u24(0, needed(self.xrc_srqn));
        }
        if headers.contains(Headers::DETH) {
            needed(self.deth).emit(w);
        }
        if headers.contains(Headers::FETH) {
            needed(self.feth).emit(w);
        }
        if headers.contains(Headers::RETH) {
            needed(self.reth).emit(w);
        }
        if headers.contains(Headers::ATOMIC_ETH) {
            needed(self.atomic).emit(w);
        }
        if headers.contains(Headers::AETH) {
            needed(self.aeth).emit(w);
        }
        if headers.contains(Headers::ATOMIC_ACK_ETH) {
            w.put(needed(self.atomic_ack).to_be_bytes());
        }
        if headers.contains(Headers::IMM_DT) {
            w.put(needed(self.imm));
        }
        if headers.contains(Headers::IETH) {
            w.put(needed(self.ieth).to_be_bytes());
        }
        if headers.contains(Headers::CNP_RESERVED) {
            w.put([0; 16]);
        }
        self.header_len()
    }

    /// Writes headers, payload and pad; returns the number of bytes.
    ///
    /// # Panics
    /// When `out` is shorter than [`Packet::emitted_len`], or a header is missing that the opcode
    /// demands.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let start = self.emit_header(self.payload.len(), out);
        let end = start + self.payload.len();
        let total = end + pad_of(self.payload.len());
        out[start..end].copy_from_slice(self.payload);
        out[end..total].fill(0);
        total
    }
}

#[inline]
fn needed<T>(header: Option<T>) -> T {
    header.expect("a packet to emit has the headers of its opcode")
}
