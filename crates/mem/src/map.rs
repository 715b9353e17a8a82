//! Shared mappings of files, unmapped when dropped.

use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

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
        // SAFETY: no address is demanded, so nothing that exists is replaced.
        let at = unsafe {
            mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::POPULATE,
                file,
                0,
            )?
        };
        let at = NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { at, len })
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
