//! Memory of the device itself: a block that belongs to the NIC and that programs reach by copies only.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use crate::region::{Region, RegionError};
use crate::span::{Source, Target};

/// An owned block of memory, zero at first.
#[derive(Debug)]
pub struct Block {
    at: NonNull<u8>,
    layout: Layout,
    len: u64,
}

// SAFETY: the block is plain memory that stays in place until the drop; all access goes through `Region`, which is
// made for memory that several threads touch.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    /// `len` bytes at a multiple of `align`, which is a power of two. `None` if there is no such memory.
    #[must_use]
    pub fn zeroed(len: u64, align: u64) -> Option<Self> {
        let size = usize::try_from(len).ok()?.max(1);
        let layout = Layout::from_size_align(size, usize::try_from(align).ok()?.max(8)).ok()?;
        // SAFETY: the size is not zero.
        let at = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Self { at, layout, len })
    }

    /// Length in bytes.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether the block has no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// As [`Region::read`].
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), RegionError> {
        self.region().read(offset, into)
    }

    /// As [`Region::write`].
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), RegionError> {
        self.region().write(offset, bytes)
    }

    /// As [`Region::read_to`].
    pub fn read_to(
        &self,
        offset: u64,
        to: &mut Target<'_>,
        at: usize,
        len: usize,
    ) -> Result<(), RegionError> {
        self.region().read_to(offset, to, at, len)
    }

    /// As [`Region::write_from`].
    pub fn write_from(
        &self,
        offset: u64,
        from: &Source<'_>,
        at: usize,
        len: usize,
    ) -> Result<(), RegionError> {
        self.region().write_from(offset, from, at, len)
    }

    /// As [`Region::compare_swap`].
    pub fn compare_swap(&self, offset: u64, compare: u64, swap: u64) -> Result<u64, RegionError> {
        self.region().compare_swap(offset, compare, swap)
    }

    /// As [`Region::fetch_add`].
    pub fn fetch_add(&self, offset: u64, add: u64) -> Result<u64, RegionError> {
        self.region().fetch_add(offset, add)
    }

    fn region(&self) -> Region {
        // SAFETY: the range is ours, readable and writable, and the region does not outlive this borrow. No reference
        // to its inside is ever made.
        unsafe { Region::new(self.at.as_ptr().expose_provenance() as u64, self.len) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated by `zeroed` with this layout.
        unsafe { dealloc(self.at.as_ptr(), self.layout) };
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_zero_aligned_and_bounded() {
        let block = Block::zeroed(100, 64).unwrap();
        assert_eq!(block.at.addr().get() % 64, 0);
        let mut bytes = [1; 100];
        block.read(0, &mut bytes).unwrap();
        assert_eq!(bytes, [0; 100]);
        block.write(96, &[5; 4]).unwrap();
        assert!(block.write(97, &[5; 4]).is_err());
        assert_eq!(block.fetch_add(8, 3), Ok(0));
        assert_eq!(block.compare_swap(8, 3, 1), Ok(3));
        assert!(Block::zeroed(u64::MAX, 8).is_none());
        assert!(Block::zeroed(0, 8).unwrap().is_empty());
    }
}
