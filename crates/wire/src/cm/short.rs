//! The messages that say little more than their name: MRA, REJ, RTU, DREQ, DREP.

use std::fmt;

use crate::bytes::{Reader, Writer};

/// Which message a REJ rejects, or an MRA acknowledges.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Concerning {
    #[default]
    Req,
    Rep,
    /// REJ: none in particular. MRA: a LAP.
    Other,
    Reserved,
}

impl Concerning {
    const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::Req,
            1 => Self::Rep,
            2 => Self::Other,
            _ => Self::Reserved,
        }
    }

    const fn to_bits(self) -> u8 {
        self as u8
    }
}

/// Message receipt acknowledged: the answer will take longer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mra {
    pub local_id: u32,
    pub remote_id: u32,
    pub concerning: Concerning,
    /// Timer code (5 bits): how much longer.
    pub service_timeout: u8,
    pub private: [u8; Self::PRIVATE],
}

impl Mra {
    pub(super) const ATTRIBUTE: u16 = 0x11;
    pub const PRIVATE: usize = 222;

    pub(super) fn parse(r: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            local_id: r.u32()?,
            remote_id: r.u32()?,
            concerning: Concerning::from_bits(r.u8()? >> 6),
            service_timeout: r.u8()? >> 3,
            private: r.take()?,
        })
    }

    pub(super) fn emit(&self, out: &mut Writer<'_>) {
        out.put(self.local_id.to_be_bytes());
        out.put(self.remote_id.to_be_bytes());
        out.put([self.concerning.to_bits() << 6, self.service_timeout << 3]);
        out.put(self.private);
    }
}

impl Default for Mra {
    fn default() -> Self {
        Self {
            local_id: 0,
            remote_id: 0,
            concerning: Concerning::Req,
            service_timeout: 0,
            private: [0; Self::PRIVATE],
        }
    }
}

/// Why a connection is refused. Numbers without a name here stay what they are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct RejReason(pub u16);

impl RejReason {
    pub const NO_QP: Self = Self(1);
    pub const NO_EEC: Self = Self(2);
    pub const NO_RESOURCES: Self = Self(3);
    pub const TIMEOUT: Self = Self(4);
    pub const UNSUPPORTED: Self = Self(5);
    pub const INVALID_COMM_ID: Self = Self(6);
    pub const INVALID_COMM_INSTANCE: Self = Self(7);
    /// Nobody listens.
    pub const INVALID_SERVICE_ID: Self = Self(8);
    pub const INVALID_TRANSPORT: Self = Self(9);
    /// The queue pair that asks is still connected, as far as the other side knows.
    pub const STALE_CONNECTION: Self = Self(10);
    pub const RDC_DOES_NOT_EXIST: Self = Self(11);
    pub const INVALID_GID: Self = Self(12);
    pub const INVALID_LID: Self = Self(13);
    pub const INVALID_SL: Self = Self(14);
    pub const INVALID_TRAFFIC_CLASS: Self = Self(15);
    pub const INVALID_HOP_LIMIT: Self = Self(16);
    pub const INVALID_PACKET_RATE: Self = Self(17);
    pub const INVALID_ALT_GID: Self = Self(18);
    pub const INVALID_ALT_LID: Self = Self(19);
    pub const INVALID_ALT_SL: Self = Self(20);
    pub const INVALID_ALT_TRAFFIC_CLASS: Self = Self(21);
    pub const INVALID_ALT_HOP_LIMIT: Self = Self(22);
    pub const INVALID_ALT_PACKET_RATE: Self = Self(23);
    pub const PORT_CM_REDIRECT: Self = Self(24);
    pub const PORT_REDIRECT: Self = Self(25);
    pub const INVALID_MTU: Self = Self(26);
    pub const INSUFFICIENT_RESPONDER_RESOURCES: Self = Self(27);
    /// The application refused.
    pub const CONSUMER_DEFINED: Self = Self(28);
    pub const INVALID_RNR_RETRY: Self = Self(29);
    pub const DUPLICATE_COMM_ID: Self = Self(30);
    pub const INVALID_CLASS_VERSION: Self = Self(31);
    pub const INVALID_FLOW_LABEL: Self = Self(32);
    pub const INVALID_ALT_FLOW_LABEL: Self = Self(33);
    pub const VENDOR_OPTION: Self = Self(35);

    /// The reason in words, if it is one of the specification's.
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::NO_QP => "no queue pair",
            Self::NO_EEC => "no end-to-end context",
            Self::NO_RESOURCES => "no resources",
            Self::TIMEOUT => "timeout",
            Self::UNSUPPORTED => "unsupported request",
            Self::INVALID_COMM_ID => "invalid communication ID",
            Self::INVALID_COMM_INSTANCE => "invalid communication instance",
            Self::INVALID_SERVICE_ID => "invalid service ID",
            Self::INVALID_TRANSPORT => "invalid transport service type",
            Self::STALE_CONNECTION => "stale connection",
            Self::RDC_DOES_NOT_EXIST => "reliable datagram channel does not exist",
            Self::INVALID_GID => "invalid GID",
            Self::INVALID_LID => "invalid LID",
            Self::INVALID_SL => "invalid service level",
            Self::INVALID_TRAFFIC_CLASS => "invalid traffic class",
            Self::INVALID_HOP_LIMIT => "invalid hop limit",
            Self::INVALID_PACKET_RATE => "invalid packet rate",
            Self::INVALID_ALT_GID => "invalid alternate GID",
            Self::INVALID_ALT_LID => "invalid alternate LID",
            Self::INVALID_ALT_SL => "invalid alternate service level",
            Self::INVALID_ALT_TRAFFIC_CLASS => "invalid alternate traffic class",
            Self::INVALID_ALT_HOP_LIMIT => "invalid alternate hop limit",
            Self::INVALID_ALT_PACKET_RATE => "invalid alternate packet rate",
            Self::PORT_CM_REDIRECT => "port and connection manager redirection",
            Self::PORT_REDIRECT => "port redirection",
            Self::INVALID_MTU => "invalid path MTU",
            Self::INSUFFICIENT_RESPONDER_RESOURCES => "insufficient responder resources",
            Self::CONSUMER_DEFINED => "consumer defined",
            Self::INVALID_RNR_RETRY => "invalid RNR retry count",
            Self::DUPLICATE_COMM_ID => "duplicate communication ID",
            Self::INVALID_CLASS_VERSION => "invalid class version",
            Self::INVALID_FLOW_LABEL => "invalid flow label",
            Self::INVALID_ALT_FLOW_LABEL => "invalid alternate flow label",
            Self::VENDOR_OPTION => "vendor option not supported",
            _ => return None,
        })
    }
}

impl fmt::Debug for RejReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RejReason({self})")
    }
}

impl fmt::Display for RejReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.0, self.name().unwrap_or("unknown"))
    }
}

/// Reject: there is no connection, or not any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rej {
    /// 0 if the sender has none.
    pub local_id: u32,
    /// 0 if the sender does not know it.
    pub remote_id: u32,
    pub concerning: Concerning,
    /// How many bytes of `info` count, 7 bits.
    pub info_length: u8,
    pub reason: RejReason,
    /// Additional reject information; what it holds depends on the reason.
    pub info: [u8; Self::INFO],
    pub private: [u8; Self::PRIVATE],
}

impl Rej {
    pub(super) const ATTRIBUTE: u16 = 0x12;
    pub const INFO: usize = 72;
    pub const PRIVATE: usize = 148;

    /// The GUID of a sender who gave up waiting for an answer and so may not know any ID but his own. Such a REJ is
    /// found by this and by [`Rej::local_id`].
    #[must_use]
    pub const fn gives_up(&self) -> Option<u64> {
        match (self.reason, self.info.first_chunk()) {
            (RejReason::TIMEOUT, Some(guid)) => Some(u64::from_be_bytes(*guid)),
            _ => None,
        }
    }

    pub(super) fn parse(r: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            local_id: r.u32()?,
            remote_id: r.u32()?,
            concerning: Concerning::from_bits(r.u8()? >> 6),
            info_length: r.u8()? >> 1,
            reason: RejReason(r.u16()?),
            info: r.take()?,
            private: r.take()?,
        })
    }

    pub(super) fn emit(&self, out: &mut Writer<'_>) {
        out.put(self.local_id.to_be_bytes());
        out.put(self.remote_id.to_be_bytes());
        out.put([self.concerning.to_bits() << 6, self.info_length << 1]);
        out.put(self.reason.0.to_be_bytes());
        out.put(self.info);
        out.put(self.private);
    }
}

impl Default for Rej {
    fn default() -> Self {
        Self {
            local_id: 0,
            remote_id: 0,
            concerning: Concerning::Req,
            info_length: 0,
            reason: RejReason::default(),
            info: [0; Self::INFO],
            private: [0; Self::PRIVATE],
        }
    }
}

/// Ready to use: the REP has arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rtu {
    pub local_id: u32,
    pub remote_id: u32,
    pub private: [u8; Self::PRIVATE],
}

impl Rtu {
    pub(super) const ATTRIBUTE: u16 = 0x14;
    pub const PRIVATE: usize = 224;

    pub(super) fn parse(r: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            local_id: r.u32()?,
            remote_id: r.u32()?,
            private: r.take()?,
        })
    }

    pub(super) fn emit(&self, out: &mut Writer<'_>) {
        out.put(self.local_id.to_be_bytes());
        out.put(self.remote_id.to_be_bytes());
        out.put(self.private);
    }
}

impl Default for Rtu {
    fn default() -> Self {
        Self {
            local_id: 0,
            remote_id: 0,
            private: [0; Self::PRIVATE],
        }
    }
}

/// Disconnection request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dreq {
    pub local_id: u32,
    pub remote_id: u32,
    /// The receiver's queue pair, 24 bits; of XRC the one that was in the EECN field.
    pub remote_qpn: u32,
    pub private: [u8; Self::PRIVATE],
}

impl Dreq {
    pub(super) const ATTRIBUTE: u16 = 0x15;
    pub const PRIVATE: usize = 220;

    pub(super) fn parse(r: &mut Reader<'_>) -> Option<Self> {
        let (local_id, remote_id) = (r.u32()?, r.u32()?);
        let remote_qpn = r.u24()?;
        let _reserved = r.u8()?;
        Some(Self {
            local_id,
            remote_id,
            remote_qpn,
            private: r.take()?,
        })
    }

    pub(super) fn emit(&self, out: &mut Writer<'_>) {
        out.put(self.local_id.to_be_bytes());
        out.put(self.remote_id.to_be_bytes());
        out.put_u24_then(self.remote_qpn, 0);
        out.put(self.private);
    }
}

impl Default for Dreq {
    fn default() -> Self {
        Self {
            local_id: 0,
            remote_id: 0,
            remote_qpn: 0,
            private: [0; Self::PRIVATE],
        }
    }
}

/// Disconnection reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Drep {
    pub local_id: u32,
    pub remote_id: u32,
    pub private: [u8; Self::PRIVATE],
}

impl Drep {
    pub(super) const ATTRIBUTE: u16 = 0x16;
    pub const PRIVATE: usize = 224;

    pub(super) fn parse(r: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            local_id: r.u32()?,
            remote_id: r.u32()?,
            private: r.take()?,
        })
    }

    pub(super) fn emit(&self, out: &mut Writer<'_>) {
        out.put(self.local_id.to_be_bytes());
        out.put(self.remote_id.to_be_bytes());
        out.put(self.private);
    }
}

impl Default for Drep {
    fn default() -> Self {
        Self {
            local_id: 0,
            remote_id: 0,
            private: [0; Self::PRIVATE],
        }
    }
}
