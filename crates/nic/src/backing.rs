//! What lies behind a memory key: where its bytes are, and how they may be touched.

use std::sync::Arc;

use adverb_mem::{Block, DemandRegion, Region, Source, Target};

/// The bytes of a region.
#[derive(Clone)]
pub(crate) enum Backing {
    /// Memory of the program that was found mapped at registration.
    Mapped(Region),
    /// Addresses of the program where memory may be or not.
    OnDemand(DemandRegion),
    /// Part of a block of device memory.
    Device { block: Arc<Block>, offset: u64 },
    /// Nothing: writes vanish, reads give zeros.
    Null,
}

/// Every access answers `None` if the bytes are not there.
impl Backing {
    pub(crate) fn read(&self, offset: u64, out: &mut [u8]) -> Option<()> {
        match self {
            Self::Mapped(region) => region.read(offset, out).ok(),
            Self::OnDemand(region) => region.read(offset, out).ok(),
            Self::Device {
                block,
                offset: from,
            } => block.read(from.checked_add(offset)?, out).ok(),
            Self::Null => {
                out.fill(0);
                Some(())
            }
        }
    }

    pub(crate) fn write(&self, offset: u64, data: &[u8]) -> Option<()> {
        match self {
            Self::Mapped(region) => region.write(offset, data).ok(),
            Self::OnDemand(region) => region.write(offset, data).ok(),
            Self::Device {
                block,
                offset: from,
            } => block.write(from.checked_add(offset)?, data).ok(),
            Self::Null => Some(()),
        }
    }

    /// Copies `len` bytes to `to`, from its byte `at` on.
    pub(crate) fn read_to(
        &self,
        offset: u64,
        to: &mut Target<'_>,
        at: usize,
        len: usize,
    ) -> Option<()> {
        match self {
            Self::Mapped(region) => region.read_to(offset, to, at, len).ok(),
            Self::OnDemand(region) => region.read_to(offset, to, at, len).ok(),
            Self::Device {
                block,
                offset: from,
            } => block.read_to(from.checked_add(offset)?, to, at, len).ok(),
            Self::Null => {
                to.zero(at, len);
                Some(())
            }
        }
    }

    /// Copies `len` bytes of `from`, from its byte `at` on.
    pub(crate) fn write_from(
        &self,
        offset: u64,
        from: &Source<'_>,
        at: usize,
        len: usize,
    ) -> Option<()> {
        match self {
            Self::Mapped(region) => region.write_from(offset, from, at, len).ok(),
            Self::OnDemand(region) => region.write_from(offset, from, at, len).ok(),
            Self::Device { block, offset: to } => block
                .write_from(to.checked_add(offset)?, from, at, len)
                .ok(),
            Self::Null => Some(()),
        }
    }

    pub(crate) fn compare_swap(&self, offset: u64, compare: u64, swap: u64) -> Option<u64> {
        match self {
            Self::Mapped(region) => region.compare_swap(offset, compare, swap).ok(),
            Self::OnDemand(region) => region.compare_swap(offset, compare, swap).ok(),
            Self::Device {
                block,
                offset: from,
            } => block
                .compare_swap(from.checked_add(offset)?, compare, swap)
                .ok(),
            Self::Null => Some(0),
        }
    }

    pub(crate) fn fetch_add(&self, offset: u64, add: u64) -> Option<u64> {
        match self {
            Self::Mapped(region) => region.fetch_add(offset, add).ok(),
            Self::OnDemand(region) => region.fetch_add(offset, add).ok(),
            Self::Device {
                block,
                offset: from,
            } => block.fetch_add(from.checked_add(offset)?, add).ok(),
            Self::Null => Some(0),
        }
    }
}
