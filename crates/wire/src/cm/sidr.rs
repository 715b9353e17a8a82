//! Service ID resolution: which queue pair serves datagrams for a service?

use super::ServiceId;
use crate::DEFAULT_PKEY;
use crate::bytes::{Reader, Writer};

/// Asks for the queue pair of a service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SidrReq {
    pub request_id: u32,
    pub pkey: u16,
    pub service_id: ServiceId,
    pub private: [u8; Self::PRIVATE],
}

impl SidrReq {
    pub(super) const ATTRIBUTE: u16 = 0x17;
    /// Bytes of private data. librdmacm's header takes 36 of them.
    pub const PRIVATE: usize = 216;

    pub(super) fn parse(r: &mut Reader<'_>) -> Option<Self> {
        let request_id = r.u32()?;
        let pkey = r.u16()?;
        let _reserved = r.u16()?;
        Some(Self {
            request_id,
            pkey,
            service_id: ServiceId(r.u64()?),
            private: r.take()?,
        })
    }

    pub(super) fn emit(&self, out: &mut Writer<'_>) {
        out.put(self.request_id.to_be_bytes());
        out.put(self.pkey.to_be_bytes());
        out.put([0; 2]);
        out.put(self.service_id.0.to_be_bytes());
        out.put(self.private);
    }
}

impl Default for SidrReq {
    /// Zeros, in the default partition.
    fn default() -> Self {
        Self {
            request_id: 0,
            pkey: DEFAULT_PKEY,
            service_id: ServiceId::default(),
            private: [0; Self::PRIVATE],
        }
    }
}

/// How a lookup ended. Numbers without a name here stay what they are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct SidrStatus(pub u8);

impl SidrStatus {
    pub const SUCCESS: Self = Self(0);
    /// Nobody listens.
    pub const UNSUPPORTED: Self = Self(1);
    pub const REJECT: Self = Self(2);
    pub const NO_QP: Self = Self(3);
    pub const REDIRECT: Self = Self(4);
    pub const UNSUPPORTED_VERSION: Self = Self(5);
}

/// Answers a [`SidrReq`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SidrRep {
    pub request_id: u32,
    pub status: SidrStatus,
    /// How many bytes of `info` count.
    pub info_length: u8,
    /// The queue pair that serves, 24 bits.
    pub qpn: u32,
    pub service_id: ServiceId,
    pub qkey: u32,
    pub info: [u8; Self::INFO],
    pub private: [u8; Self::PRIVATE],
}

impl SidrRep {
    pub(super) const ATTRIBUTE: u16 = 0x18;
    pub const INFO: usize = 72;
    pub const PRIVATE: usize = 136;

    pub(super) fn parse(r: &mut Reader<'_>) -> Option<Self> {
        let request_id = r.u32()?;
        let [status, info_length, _, _] = r.take()?;
        let qpn = r.u24()?;
        let _reserved = r.u8()?;
        Some(Self {
            request_id,
            status: SidrStatus(status),
            info_length,
            qpn,
            service_id: ServiceId(r.u64()?),
            qkey: r.u32()?,
            info: r.take()?,
            private: r.take()?,
        })
    }

    pub(super) fn emit(&self, out: &mut Writer<'_>) {
        out.put(self.request_id.to_be_bytes());
        out.put([self.status.0, self.info_length, 0, 0]);
        out.put_u24_then(self.qpn, 0);
        out.put(self.service_id.0.to_be_bytes());
        out.put(self.qkey.to_be_bytes());
        out.put(self.info);
        out.put(self.private);
    }
}

impl Default for SidrRep {
    fn default() -> Self {
        Self {
            request_id: 0,
            status: SidrStatus::SUCCESS,
            info_length: 0,
            qpn: 0,
            service_id: ServiceId::default(),
            qkey: 0,
            info: [0; Self::INFO],
            private: [0; Self::PRIVATE],
        }
    }
}
