//! Memory that the system maps: pages of any size, and files.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};

use crate::error::{Error, Result};
use crate::registrable::Registrable;

/// Memory from `mmap(2)`, unmapped when it is dropped. It becomes a [`Buf`](crate::Buf) with
/// [`reg_mr`](crate::ProtectionDomain::reg_mr).
///
/// ```
/// # fn main() -> Result<(), adverb::Error> {
/// # if cfg!(not(feature = "soft")) { return Ok(()) }
/// use adverb::Mapping;
/// let pd = adverb::open_default()?.alloc_pd()?;
/// // Huge pages if the system has some to spare, others if not.
/// let mapping = Mapping::huge(4 << 20, 2 << 20).or_else(|_| Mapping::anonymous(4 << 20))?;
/// let mut buf = pd.reg_mr(mapping)?;
/// buf.fill_from(b"in large pages")?;
/// let mapping: Mapping = buf.into_inner().unwrap();
/// assert_eq!(mapping.len(), 4 << 20);
/// # Ok(()) }
/// ```
#[doc(alias = "mmap")]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to this value alone, like a boxed slice.
unsafe impl Send for Mapping {}
// SAFETY: a shared reference gives out an address and a length, never bytes.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Zeroed pages of the usual size.
    ///
    /// # Errors
    /// [`Error::TooSmall`] for no bytes; [`Error::Io`] (ENOMEM).
    pub fn anonymous(len: usize) -> Result<Self> {
        Self::map(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, None, 0)
    }

    /// Zeroed huge pages of `page` bytes each (2 MiB and 1 GiB on x86-64), from the system's
    /// stock (`/proc/sys/vm/nr_hugepages`).
    ///
    /// # Errors
    /// [`Error::TooSmall`] for no bytes; [`Error::Misfit`] when `len` is not a multiple of
    /// `page`, or `page` not a power of two; [`Error::Io`] with ENOMEM when the stock is empty, or
    /// EINVAL when the system has no pages of this size.
    #[doc(alias = "MAP_HUGETLB")]
    pub fn huge(len: usize, page: usize) -> Result<Self> {
        if !page.is_power_of_two() || !len.is_multiple_of(page) {
            return Err(Error::Misfit {
                what: "length in huge pages",
                value: len as u64,
                multiple_of: page as u64,
            });
        }
        let size = (page.trailing_zeros() << libc::MAP_HUGE_SHIFT) as libc::c_int;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB | size;
        Self::map(len, flags, None, 0)
    }

    /// `len` bytes of a file from `offset` on, shared with it: a memfd, a file of a huge page file
    /// system, a device's memory.
    ///
    /// # Safety
    /// As long as the mapping exists nobody changes these bytes otherwise, nor makes the file shorter.
    ///
    /// # Errors
    /// [`Error::TooSmall`] for no bytes; [`Error::Misfit`] when `offset` is no multiple of the
    /// page size; [`Error::OutOfRange`] beyond the end of a regular file or memfd; [`Error::Io`].
    #[doc(alias = "memfd_create")]
    pub unsafe fn file(file: BorrowedFd<'_>, offset: u64, len: usize) -> Result<Self> {
        // SAFETY: all zeros are a valid `stat`.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: the descriptor is open and the place valid.
        if unsafe { libc::fstat(file.as_raw_fd(), &raw mut stat) } != 0 {
            return Err(io::Error::last_os_error().into());
        }
        let size = stat.st_size as u64;
        let regular = stat.st_mode & libc::S_IFMT == libc::S_IFREG;
        if regular && offset.saturating_add(len as u64) > size {
            return Err(Error::OutOfRange {
                offset,
                wanted: len as u64,
                len: size,
            });
        }
        Self::map(len, libc::MAP_SHARED, Some(file), offset)
    }

    fn map(
        len: usize,
        flags: libc::c_int,
        file: Option<BorrowedFd<'_>>,
        offset: u64,
    ) -> Result<Self> {
        if len == 0 {
            return Err(Error::TooSmall {
                what: "length of a mapping",
                value: 0,
                least: 1,
            });
        }
        let misfit = Error::Misfit {
            what: "offset in the file",
            value: offset,
            multiple_of: 4096,
        };
        let Ok(from) = libc::off_t::try_from(offset) else {
            return Err(misfit);
        };
        if !offset.is_multiple_of(4096) {
            return Err(misfit);
        }
        // SAFETY: a new mapping, at a place that the system chooses.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                file.map_or(-1, |f| f.as_raw_fd()),
                from,
            )
        };
        match NonNull::new(base.cast::<u8>()) {
            Some(place) if base != libc::MAP_FAILED => Ok(Self { base: place, len }),
            _ => Err(io::Error::last_os_error().into()),
        }
    }

    /// Bytes.
    #[allow(clippy::len_without_is_empty, reason = "a mapping is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }
}

// SAFETY: the mapping is good for reads and writes, initialised by the system, and nobody else's: of
// files the caller promised that.
unsafe impl Registrable for Mapping {
    fn bytes(&mut self) -> *mut [u8] {
        ptr::slice_from_raw_parts_mut(self.base.as_ptr(), self.len)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and this is its last use.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mapping")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}
