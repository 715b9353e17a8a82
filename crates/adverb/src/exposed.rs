//! Memory that peers may read, write or change atomically.
//!
//! A peer acts when it likes, so these bytes are never visible as a slice: the accessors copy
//! in and out and load and store single words. Handing out the [`RemoteRegion`] descriptor is
//! what lets a peer in.

use std::fmt;
use std::ops::RangeBounds;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use adverb_abi::flags::AccessFlags;
use adverb_abi::types as c;

use crate::error::{Error, Result};
use crate::mr::{MemoryRegion, Registration};
use crate::pd::ProtectionDomain;
use crate::remote::{RemoteRegion, bounds};
use crate::values::RKey;

/// Registered memory with remote rights. Clones are handles to the same memory.
///
/// All accesses are atomic per aligned word of 8 bytes, not per call: what a peer writes meanwhile
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

impl ProtectionDomain {
    /// Allocates and registers zeroed memory that peers may reach, aligned to a page. `access`
    /// says what they may do: any of `REMOTE_READ`, `REMOTE_WRITE`, `REMOTE_ATOMIC`; the right
    /// to write locally is always included.
    ///
    /// # Errors
    /// [`Error::Verb`].
    #[doc(alias = "ibv_reg_mr")]
    pub fn expose(&self, len: usize, access: AccessFlags) -> Result<Exposed> {
        let access = access | AccessFlags::LOCAL_WRITE;
        Ok(Exposed::new(
            Registration::pages(&self.inner, len, access)?,
            len,
        ))
    }

    /// Like [`expose`](Self::expose), beginning with a copy of `bytes`. A copy, because exposed
    /// memory is accessed by whole words, to the end of the last one.
    ///
    /// # Errors
    /// As [`expose`](Self::expose).
    pub fn expose_bytes(&self, bytes: impl AsRef<[u8]>, access: AccessFlags) -> Result<Exposed> {
        let bytes = bytes.as_ref();
        let exposed = self.expose(bytes.len(), access)?;
        exposed.write_at(0, bytes)?;
        Ok(exposed)
    }
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
        let mut at = offset;
        let mut out = out;
        while !out.is_empty() {
            let skip = at % 8;
            let (now, rest) = out.split_at_mut(out.len().min(8 - skip));
            let word = self.word(at).load(Ordering::Relaxed).to_ne_bytes();
            now.copy_from_slice(&word[skip..skip + now.len()]);
            at += now.len();
            out = rest;
        }
        Ok(())
    }

    /// Copies `bytes` to `offset`.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    pub fn write_at(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        self.check(offset, bytes.len())?;
        let mut at = offset;
        let mut bytes = bytes;
        while !bytes.is_empty() {
            let (now, rest) = bytes.split_at(bytes.len().min(8 - at % 8));
            match now.try_into() {
                Ok(word) => self
                    .word(at)
                    .store(u64::from_ne_bytes(word), Ordering::Relaxed),
                Err(_) => self.replace(at, now, Ordering::Relaxed),
            }
            at += now.len();
            bytes = rest;
        }
        Ok(())
    }

    /// Loads one byte.
    ///
    /// # Errors
    /// [`Error::OutOfRange`]; [`Error::Ordering`] for an order that stores have.
    pub fn load_u8(&self, offset: usize, order: Ordering) -> Result<u8> {
        self.check(offset, 1)?;
        check_load(order)?;
        Ok(self.word(offset).load(order).to_ne_bytes()[offset % 8])
    }

    /// Stores one byte.
    ///
    /// # Errors
    /// [`Error::OutOfRange`]; [`Error::Ordering`] for an order that loads have.
    pub fn store_u8(&self, offset: usize, value: u8, order: Ordering) -> Result<()> {
        self.check(offset, 1)?;
        check_store(order)?;
        self.replace(offset, &[value], order);
        Ok(())
    }

    /// Loads the word at `offset`, a multiple of 8, in host byte order.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::Misaligned`]; [`Error::Ordering`] for an order that stores
    /// have.
    pub fn load_u64(&self, offset: usize, order: Ordering) -> Result<u64> {
        check_load(order)?;
        Ok(self.checked_word(offset)?.load(order))
    }

    /// Stores the word at `offset`, a multiple of 8, in host byte order.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::Misaligned`]; [`Error::Ordering`] for an order that loads
    /// have.
    pub fn store_u64(&self, offset: usize, value: u64, order: Ordering) -> Result<()> {
        check_store(order)?;
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

    /// The aligned word that byte `offset` is in.
    #[allow(
        clippy::cast_ptr_alignment,
        reason = "the memory starts at a page, and the offset is rounded down to a word"
    )]
    fn word(&self, offset: usize) -> &AtomicU64 {
        debug_assert!(offset < self.len);
        let at = self.region.at(offset & !7);
        debug_assert!((at as usize).is_multiple_of(8));
        // SAFETY: the byte is inside the registration, which lives as long as `self`; the whole
        // word is inside its pages, of which only whole words are ever accessed here. All else
        // that accesses them is a device.
        unsafe { AtomicU64::from_ptr(at.cast()) }
    }

    /// Replaces some bytes of one word; what a peer stores in the others meanwhile stays.
    fn replace(&self, offset: usize, bytes: &[u8], order: Ordering) {
        let word = self.word(offset);
        let mut before = word.load(Ordering::Relaxed);
        loop {
            let mut after = before.to_ne_bytes();
            after[offset % 8..][..bytes.len()].copy_from_slice(bytes);
            let after = u64::from_ne_bytes(after);
            match word.compare_exchange_weak(before, after, order, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => before = now,
            }
        }
    }

    /// The C object. It is valid while this handle lives; it must not be deregistered.
    pub fn as_raw(&self) -> *mut c::ibv_mr {
        self.region.raw()
    }
}

fn check_load(order: Ordering) -> Result<()> {
    if matches!(order, Ordering::Release | Ordering::AcqRel) {
        return Err(Error::Ordering {
            access: "load",
            order,
        });
    }
    Ok(())
}

fn check_store(order: Ordering) -> Result<()> {
    if matches!(order, Ordering::Acquire | Ordering::AcqRel) {
        return Err(Error::Ordering {
            access: "store",
            order,
        });
    }
    Ok(())
}

impl fmt::Debug for Exposed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exposed")
            .field("remote", &self.remote())
            .finish_non_exhaustive()
    }
}

/// A part of [`Exposed`] memory, or of a [`RawRegion`](crate::RawRegion), on its way through an operation.
#[derive(Clone)]
pub struct ExposedSlice {
    region: Arc<Registration>,
    offset: usize,
    len: usize,
}

impl ExposedSlice {
    /// The caller keeps the range within the registration, of which no slice of Rust exists.
    pub(crate) fn of(region: &Arc<Registration>, offset: usize, len: usize) -> Self {
        Self {
            region: Arc::clone(region),
            offset,
            len,
        }
    }

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
