//! Memory that peers may read, write or change atomically.
//!
//! A peer acts when it likes, so these bytes are never visible as a slice: the accessors copy
//! in and out and load and store single words. Handing out the [`RemoteRegion`] descriptor is
//! what lets a peer in.

use std::fmt;
use std::ops::RangeBounds;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use adverb_abi::types as c;

use crate::error::{Error, Result};
use crate::mr::{MemoryRegion, Registration};
use crate::remote::{RemoteRegion, bounds};
use crate::values::RKey;

/// Registered memory with remote rights. Clones are handles to the same memory.
///
/// All accesses are atomic per byte or aligned word, not per call: what a peer writes meanwhile
/// may show in part. [`load_u64`](Self::load_u64) with `Acquire` is the way to wait for a flag
/// that a peer writes last.
///
/// ```
/// # fn main() -> Result<(), adverb::Error> {
/// # if cfg!(not(feature = "soft")) { return Ok(()) }
/// use adverb::AccessFlags;
/// let pd = adverb::open_default()?.alloc_pd()?;
/// let counters = pd.expose(64, AccessFlags::REMOTE_ATOMIC)?;
/// counters.write_at(8, &7u64.to_ne_bytes())?;
/// assert_eq!(counters.fetch_add_u64(8, 1, std::sync::atomic::Ordering::SeqCst)?, 7);
/// let for_the_peer: [u8; 20] = counters.remote().to_bytes();
/// # let _ = for_the_peer;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Exposed {
    region: Arc<Registration>,
    len: usize,
}

impl Exposed {
    pub(crate) fn new(region: Arc<Registration>, len: usize) -> Self {
        debug_assert!(len <= region.len());
        Self { region, len }
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The descriptor to send to peers.
    pub fn remote(&self) -> RemoteRegion {
        RemoteRegion {
            addr: self.region.at(0) as u64,
            len: self.len as u64,
            rkey: RKey(self.region.rkey),
        }
    }

    /// The registration below.
    pub fn region(&self) -> MemoryRegion {
        MemoryRegion(Arc::clone(&self.region))
    }

    /// A part of it as source or destination of an operation of our own.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] when the range is not inside.
    pub fn slice(&self, range: impl RangeBounds<u64>) -> Result<ExposedSlice> {
        let (offset, len) = bounds(range, self.len as u64)?;
        Ok(ExposedSlice {
            region: Arc::clone(&self.region),
            offset: offset as usize,
            len: len as usize,
        })
    }

    /// Copies bytes from `offset` on into `out`.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    pub fn read_at(&self, offset: usize, out: &mut [u8]) -> Result<()> {
        self.check(offset, out.len())?;
        let head = self.to_word(offset, out.len());
        let (first, rest) = out.split_at_mut(head);
        let (words, last) = rest.as_chunks_mut::<8>();
        let mut at = offset;
        for byte in first {
            *byte = self.byte(at).load(Ordering::Relaxed);
            at += 1;
        }
        for word in words {
            *word = self.word(at).load(Ordering::Relaxed).to_ne_bytes();
            at += 8;
        }
        for byte in last {
            *byte = self.byte(at).load(Ordering::Relaxed);
            at += 1;
        }
        Ok(())
    }

    /// Copies `bytes` to `offset`.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    pub fn write_at(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        self.check(offset, bytes.len())?;
        let head = self.to_word(offset, bytes.len());
        let (first, rest) = bytes.split_at(head);
        let (words, last) = rest.as_chunks::<8>();
        let mut at = offset;
        for byte in first {
            self.byte(at).store(*byte, Ordering::Relaxed);
            at += 1;
        }
        for word in words {
            self.word(at)
                .store(u64::from_ne_bytes(*word), Ordering::Relaxed);
            at += 8;
        }
        for byte in last {
            self.byte(at).store(*byte, Ordering::Relaxed);
            at += 1;
        }
        Ok(())
    }

    /// Loads one byte.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    pub fn load_u8(&self, offset: usize, order: Ordering) -> Result<u8> {
        self.check(offset, 1)?;
        Ok(self.byte(offset).load(order))
    }

    /// Stores one byte.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    pub fn store_u8(&self, offset: usize, value: u8, order: Ordering) -> Result<()> {
        self.check(offset, 1)?;
        self.byte(offset).store(value, order);
        Ok(())
    }

    /// Loads the word at `offset`, a multiple of 8, in host byte order.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::Misaligned`].
    pub fn load_u64(&self, offset: usize, order: Ordering) -> Result<u64> {
        Ok(self.checked_word(offset)?.load(order))
    }

    /// Stores the word at `offset`, a multiple of 8, in host byte order.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::Misaligned`].
    pub fn store_u64(&self, offset: usize, value: u64, order: Ordering) -> Result<()> {
        self.checked_word(offset)?.store(value, order);
        Ok(())
    }

    /// Adds to the word at `offset` and returns what it was.
    ///
    /// It is atomic with a peer's atomics only where the device says so
    /// ([`DeviceAttr::atomics_are_global`](crate::DeviceAttr::atomics_are_global)).
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::Misaligned`].
    pub fn fetch_add_u64(&self, offset: usize, add: u64, order: Ordering) -> Result<u64> {
        Ok(self.checked_word(offset)?.fetch_add(add, order))
    }

    /// Replaces the word at `offset` if it is `current`, and returns what it was.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::Misaligned`].
    pub fn compare_swap_u64(&self, offset: usize, current: u64, new: u64) -> Result<u64> {
        let word = self.checked_word(offset)?;
        Ok(
            match word.compare_exchange(current, new, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(before) | Err(before) => before,
            },
        )
    }

    fn check(&self, offset: usize, wanted: usize) -> Result<()> {
        if offset > self.len || wanted > self.len - offset {
            return Err(Error::OutOfRange {
                offset: offset as u64,
                wanted: wanted as u64,
                len: self.len as u64,
            });
        }
        Ok(())
    }

    fn checked_word(&self, offset: usize) -> Result<&AtomicU64> {
        self.check(offset, 8)?;
        let addr = self.region.at(offset) as u64;
        if !addr.is_multiple_of(8) {
            return Err(Error::Misaligned { addr, len: 8 });
        }
        Ok(self.word(offset))
    }

    /// How many of `len` bytes lie before the first aligned word.
    fn to_word(&self, offset: usize, len: usize) -> usize {
        ((self.region.at(offset) as usize).wrapping_neg() % 8).min(len)
    }

    fn byte(&self, offset: usize) -> &AtomicU8 {
        debug_assert!(offset < self.len);
        // SAFETY: the byte is inside the registration, which lives as long as `self`, and is only
        // ever accessed atomically or by a device.
        unsafe { AtomicU8::from_ptr(self.region.at(offset)) }
    }

    #[allow(
        clippy::cast_ptr_alignment,
        reason = "all callers check or arrange the alignment"
    )]
    fn word(&self, offset: usize) -> &AtomicU64 {
        debug_assert!(
            offset + 8 <= self.len && (self.region.at(offset) as usize).is_multiple_of(8)
        );
        // SAFETY: as for `byte`, and the callers made sure that the word is inside and aligned.
        // Accesses of different sizes may meet here; the processors we run on give each byte of
        // them a defined value, and no promise beyond that is made.
        unsafe { AtomicU64::from_ptr(self.region.at(offset).cast()) }
    }

    /// The C object. It is valid while this handle lives; it must not be deregistered.
    pub fn as_raw(&self) -> *mut c::ibv_mr {
        self.region.raw()
    }
}

impl fmt::Debug for Exposed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exposed")
            .field("remote", &self.remote())
            .finish_non_exhaustive()
    }
}

/// A part of [`Exposed`] memory on its way through an operation.
#[derive(Clone)]
pub struct ExposedSlice {
    region: Arc<Registration>,
    offset: usize,
    len: usize,
}

impl ExposedSlice {
    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn registration(&self) -> &Arc<Registration> {
        &self.region
    }

    pub(crate) fn addr(&self) -> u64 {
        self.region.at(self.offset) as u64
    }
}

impl fmt::Debug for ExposedSlice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExposedSlice")
            .field("offset", &self.offset)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}
