//! Shared mappings of files, unmapped when dropped.

use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

/// Bytes of a file, mapped shared, readable and writable.
#[derive(Debug)]
pub struct Mapping {
    at: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and stays in place until the drop. The type hands
// out a pointer only; what is done through it is the business of the (unsafe) code that does it.
unsafe impl Send for Mapping {}
// SAFETY: as above; no method changes the value itself.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes of `file` and touches every page, because a fault on the data path costs
    /// microseconds. The caller has checked that the file is that long and, for a peer's memfd, that it cannot
    /// shrink: a page beyond the end would raise SIGBUS.
    pub fn new(file: impl AsFd, len: usize) -> io::Result<Self> {
        Self::with(file, len, MapFlags::POPULATE)
    }

    /// As [`Mapping::new`], but touches only the first `front` bytes (whole pages): the rest costs no memory before it is
    /// used.
    pub fn sparse(file: impl AsFd, len: usize, front: usize) -> io::Result<Self> {
        let mapping = Self::with(file, len, MapFlags::empty())?;
        let front = front.min(len);
        // SAFETY: the range is the beginning of the mapping, whose content this advice does not change. A kernel that
        // does not know it brings the pages in when they are used.
        let _ = unsafe { madvise(mapping.as_ptr().cast(), front, Advice::LinuxPopulateWrite) };
        Ok(mapping)
    }

    fn with(file: impl AsFd, len: usize, flags: MapFlags) -> io::Result<Self> {
        // SAFETY: no address is demanded, so nothing that exists is replaced.
        let at = unsafe {
            mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | flags,
                file,
                0,
            )?
        };
        let at = NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { at, len })
    }

    /// Gives the memory of the whole pages in `from..to` back to the system, for all who map the file. They read as zeros
    /// then, until somebody writes to them.
    ///
    /// # Panics
    /// When the range is not in the mapping.
    pub fn give_back(&self, from: usize, to: usize) {
        assert!(from <= to && to <= self.len, "{from}..{to} of {}", self.len);
        let page = rustix::param::page_size();
        let (from, to) = (from.next_multiple_of(page), to - to % page);
        if from < to {
            // SAFETY: the range lies in the mapping, which is shared; what happens to its content is documented. Locked
            // memory stays as it is.
            let _ = unsafe {
                madvise(
                    self.as_ptr().add(from).cast(),
                    to - from,
                    Advice::LinuxRemove,
                )
            };
        }
    }

    /// Where the mapping begins; page aligned, valid for [`Self::len`] bytes as long as `self` lives.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.at.as_ptr()
    }

    /// Length in bytes, as demanded when mapping.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Always false: the kernel maps no empty ranges.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `new` mapped exactly this range, and whoever points into it borrows or owns `self`.
        // An error would mean that the range was never mapped; there is nothing to do about it in a drop.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), self.len) };
    }
}
