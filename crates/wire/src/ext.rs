//! The extension headers of requests: RETH, AtomicETH, DETH, FETH. (AETH: `aeth`.)

use bitflags::bitflags;

use crate::bytes::{Reader, Writer};

/// RDMA extended transport header: the remote memory a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Reth {
    pub va: u64,
    pub rkey: u32,
    /// Length of the whole message, not of this packet.
    pub len: u32,
}

impl Reth {
    #[inline]
    pub(crate) fn parse(r: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            va: r.u64()?,
            rkey: r.u32()?,
            len: r.u32()?,
        })
    }

    #[inline]
    pub(crate) fn emit(&self, out: &mut Writer<'_>) {
        out.put(self.va.to_be_bytes());
        out.put(self.rkey.to_be_bytes());
        out.put(self.len.to_be_bytes());
    }
}

/// Atomic extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct AtomicEth {
    pub va: u64,
    pub rkey: u32,
    /// What COMPARE_SWAP stores, or what FETCH_ADD adds.
    pub swap_or_add: u64,
    /// What COMPARE_SWAP compares with; FETCH_ADD leaves it 0.
    pub compare: u64,
}

impl AtomicEth {
    #[inline]
    pub(crate) fn parse(r: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            va: r.u64()?,
            rkey: r.u32()?,
            swap_or_add: r.u64()?,
            compare: r.u64()?,
        })
    }

    #[inline]
    pub(crate) fn emit(&self, out: &mut Writer<'_>) {
        out.put(self.va.to_be_bytes());
        out.put(self.rkey.to_be_bytes());
        out.put(self.swap_or_add.to_be_bytes());
        out.put(self.compare.to_be_bytes());
    }
}

/// Datagram extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Deth {
    pub qkey: u32,
    /// Source queue pair, 24 bits.
    pub src_qp: u32,
}

impl Deth {
    #[inline]
    pub(crate) fn parse(r: &mut Reader<'_>) -> Option<Self> {
        let qkey = r.u32()?;
        let _reserved = r.u8()?;
        Some(Self {
            qkey,
            src_qp: r.u24()?,
        })
    }

    #[inline]
    pub(crate) fn emit(&self, out: &mut Writer<'_>) {
        out.put(self.qkey.to_be_bytes());
        out.put_u24(0, self.src_qp);
    }
}

bitflags! {
    /// How far a FLUSH pushes the data.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct Placement: u8 {
        /// Visible to everyone.
        const GLOBAL = 1;
        /// Survives power loss.
        const PERSISTENT = 2;
        // Bits without a meaning yet are kept, so that the responder can refuse them.
        const _ = 0x0F;
    }
}

/// What a FLUSH applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Selectivity {
    /// The range that the RETH names.
    #[default]
    Range,
    /// The whole memory region.
    MemoryRegion,
    /// 2 or 3, which mean nothing.
    Reserved(u8),
}

/// Flush extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Feth {
    pub placement: Placement,
    pub selectivity: Selectivity,
}

impl Feth {
    #[inline]
    pub(crate) fn parse(r: &mut Reader<'_>) -> Option<Self> {
        let [_, _, _, bits] = r.take()?;
        let selectivity = match bits >> 4 & 3 {
            0 => Selectivity::Range,
            1 => Selectivity::MemoryRegion,
            other => Selectivity::Reserved(other),
        };
        Some(Self {
            placement: Placement::from_bits_truncate(bits),
            selectivity,
        })
    }

    #[inline]
    pub(crate) fn emit(&self, out: &mut Writer<'_>) {
        let selectivity = match self.selectivity {
            Selectivity::Range => 0,
            Selectivity::MemoryRegion => 1,
            Selectivity::Reserved(bits) => bits & 3,
        };
        out.put([0, 0, 0, selectivity << 4 | self.placement.bits() & 0x0F]);
    }
}
