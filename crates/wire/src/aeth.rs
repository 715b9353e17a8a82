//! The acknowledge header: syndrome, message sequence number, credit codes.

use crate::bytes::{Reader, Writer};

/// ACK extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aeth {
    pub syndrome: Syndrome,
    /// Messages the responder has completed, modulo 2^24.
    pub msn: u32,
}

/// What a response says about the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Syndrome {
    /// Received. The credit code (5 bits, see [`credits_of`]) tells how many more messages the
    /// receive queue can take.
    Ack { credits: u8 },
    /// Receiver not ready; the code (5 bits) is for [`crate::rnr_timer_ns`].
    Rnr { timer: u8 },
    /// Refused.
    Nak(NakCode),
    /// A value the specification keeps for itself, as received.
    Reserved(u8),
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NakCode {
    PsnSequence,
    InvalidRequest,
    RemoteAccess,
    RemoteOperational,
    InvalidRdRequest,
    /// 5 to 31, which mean nothing.
    Other(u8),
}

/// The credit code that says "credits are not used". Mandatory with a shared receive queue.
pub const UNLIMITED_CREDITS: u8 = 31;

impl Syndrome {
    /// An acknowledgement without flow control.
    pub const ACK: Self = Self::Ack {
        credits: UNLIMITED_CREDITS,
    };

    #[inline]
    #[must_use]
    pub const fn from_u8(byte: u8) -> Self {
        let low = byte & 0x1F;
        match byte >> 5 {
            0 => Self::Ack { credits: low },
            1 => Self::Rnr { timer: low },
            3 => Self::Nak(NakCode::from_low_bits(low)),
            _ => Self::Reserved(byte),
        }
    }

    #[inline]
    #[must_use]
    pub const fn to_u8(self) -> u8 {
        match self {
            Self::Ack { credits } => credits & 0x1F,
            Self::Rnr { timer } => 0x20 | timer & 0x1F,
            Self::Nak(code) => 0x60 | code.to_low_bits(),
            Self::Reserved(byte) => byte,
        }
    }
}

impl NakCode {
    const fn from_low_bits(low: u8) -> Self {
        match low {
            0 => Self::PsnSequence,
            1 => Self::InvalidRequest,
            2 => Self::RemoteAccess,
            3 => Self::RemoteOperational,
            4 => Self::InvalidRdRequest,
            other => Self::Other(other),
        }
    }

    const fn to_low_bits(self) -> u8 {
        match self {
            Self::PsnSequence => 0,
            Self::InvalidRequest => 1,
            Self::RemoteAccess => 2,
            Self::RemoteOperational => 3,
            Self::InvalidRdRequest => 4,
            Self::Other(low) => low & 0x1F,
        }
    }
}

impl Aeth {
    #[inline]
    pub(crate) fn parse(r: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            syndrome: Syndrome::from_u8(r.u8()?),
            msn: r.u24()?,
        })
    }

    #[inline]
    pub(crate) fn emit(&self, out: &mut Writer<'_>) {
        out.put_u24(self.syndrome.to_u8(), self.msn);
    }
}

/// How many messages a credit code allows; `None` for [`UNLIMITED_CREDITS`].
#[must_use]
pub fn credits_of(code: u8) -> Option<u32> {
    CREDITS.get(usize::from(code & 0x1F)).copied()
}

/// The largest credit code that promises no more than `available` messages.
#[must_use]
pub fn credit_code(available: u32) -> u8 {
    // The first entry is 0, so at least one is not above `available`.
    (CREDITS.partition_point(|&credits| credits <= available) - 1) as u8
}

const CREDITS: [u32; 31] = [
    0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_syndrome_byte_survives_the_round_trip() {
        for byte in 0..=u8::MAX {
            assert_eq!(Syndrome::from_u8(byte).to_u8(), byte);
        }
    }

    #[test]
    fn syndromes_have_the_values_of_the_specification() {
        assert_eq!(Syndrome::ACK.to_u8(), 0x1F);
        assert_eq!(Syndrome::from_u8(0x2C), Syndrome::Rnr { timer: 12 });
        assert_eq!(Syndrome::from_u8(0x60), Syndrome::Nak(NakCode::PsnSequence));
        assert_eq!(Syndrome::Nak(NakCode::RemoteOperational).to_u8(), 0x63);
        assert_eq!(Syndrome::from_u8(0x45), Syndrome::Reserved(0x45));
        assert_eq!(Syndrome::from_u8(0x80), Syndrome::Reserved(0x80));
    }

    #[test]
    fn credit_codes_never_promise_more_than_there_is() {
        for available in [0, 1, 4, 5, 6, 7, 100, 32767, 32768, u32::MAX] {
            let code = credit_code(available);
            assert!(credits_of(code).unwrap() <= available);
            assert!(credits_of(code + 1).is_none_or(|next| next > available));
        }
        assert_eq!(credits_of(UNLIMITED_CREDITS), None);
    }
}
