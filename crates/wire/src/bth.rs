//! The base transport header, which every packet starts with.

use crate::bytes::Writer;
use crate::number::DEFAULT_PKEY;
use crate::{Opcode, ParseError, Psn};

/// The base transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bth {
    pub opcode: Opcode,
    /// Solicited event: the receiver's completion may wake whoever asked for solicited ones only.
    pub solicited: bool,
    /// Path migration state "migrated", which is what a queue pair without an alternate path has.
    pub mig_req: bool,
    /// Bytes of padding after the payload. Emitting works it out from the payload instead.
    pub pad: u8,
    pub pkey: u16,
    pub fecn: bool,
    pub becn: bool,
    /// Destination queue pair, 24 bits.
    pub dest_qp: u32,
    pub ack_req: bool,
    pub psn: Psn,
}

impl Bth {
    pub const LEN: usize = 12;

    const SOLICITED: u8 = 0x80;
    const MIG_REQ: u8 = 0x40;
    const PAD: u8 = 0x30;
    const PAD_SHIFT: u32 = 4;
    const TVER: u8 = 0x0F;
    const FECN: u8 = 0x80;
    const BECN: u8 = 0x40;
    const ACK_REQ: u8 = 0x80;

    /// A header with nothing set that could be left out: full-member default P_Key, migrated.
    #[must_use]
    pub const fn new(opcode: Opcode, dest_qp: u32, psn: Psn) -> Self {
        Self {
            opcode,
            solicited: false,
            mig_req: true,
            pad: 0,
            pkey: DEFAULT_PKEY,
            fecn: false,
            becn: false,
            dest_qp,
            ack_req: false,
            psn,
        }
    }

    #[inline]
    pub(crate) const fn parse(bytes: &[u8; Self::LEN]) -> Result<Self, ParseError> {
        let [
            code,
            flags,
            pkey0,
            pkey1,
            congestion,
            qp0,
            qp1,
            qp2,
            ack,
            psn0,
            psn1,
            psn2,
        ] = *bytes;
        let Some(opcode) = Opcode::from_u8(code) else {
            return Err(ParseError::UnknownOpcode(code));
        };
        if flags & Self::TVER != 0 {
            return Err(ParseError::Version(flags & Self::TVER));
        }
        Ok(Self {
            opcode,
            solicited: flags & Self::SOLICITED != 0,
            mig_req: flags & Self::MIG_REQ != 0,
            pad: (flags & Self::PAD) >> Self::PAD_SHIFT,
            pkey: u16::from_be_bytes([pkey0, pkey1]),
            fecn: congestion & Self::FECN != 0,
            becn: congestion & Self::BECN != 0,
            dest_qp: u32::from_be_bytes([0, qp0, qp1, qp2]),
            ack_req: ack & Self::ACK_REQ != 0,
            psn: Psn::new(u32::from_be_bytes([0, psn0, psn1, psn2])),
        })
    }

    #[inline]
    pub(crate) fn emit(&self, pad: u8, out: &mut Writer<'_>) {
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        let [pkey0, pkey1] = self.pkey.to_be_bytes();
        let [_, qp0, qp1, qp2] = self.dest_qp.to_be_bytes();
        let [_, psn0, psn1, psn2] = self.psn.value().to_be_bytes();
        out.put([
            self.opcode.to_u8(),
            flag(self.solicited, Self::SOLICITED)
                | flag(self.mig_req, Self::MIG_REQ)
                | pad << Self::PAD_SHIFT,
            pkey0,
            pkey1,
            flag(self.fecn, Self::FECN) | flag(self.becn, Self::BECN),
            qp0,
            qp1,
            qp2,
            flag(self.ack_req, Self::ACK_REQ),
            psn0,
            psn1,
            psn2,
        ]);
    }
}
