//! Registered memory that only its owner can touch.
//!
//! A [`Buf`] is a unique range of a registration. Posting moves it into the operation, and the
//! completion gives it back: while the device may read or write the bytes, no safe code can.
//! Peers have no right to this memory; what peers may touch is in [`exposed`](crate::exposed).

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use adverb_abi::flags::AccessFlags;
use adverb_abi::types as c;

use crate::error::{Error, Result};
use crate::pd::{PdInner, ProtectionDomain};
use crate::sys;
use crate::values::{LKey, RKey};

/// Fresh buffers start at a page, so that no other data shares a page with them.
const PAGE: usize = 4096;

/// Memory that had to be given up because a device did not let go of it.
static LEAKED: AtomicU64 = AtomicU64::new(0);

/// Bytes that this process leaked because a queue pair or region could not be destroyed while a
/// device might still touch its memory. 0 in a healthy process.
pub fn leaked_bytes() -> u64 {
    LEAKED.load(Ordering::Relaxed)
}

pub(crate) fn count_leak(bytes: usize) {
    LEAKED.fetch_add(bytes as u64, Ordering::Relaxed);
}

/// Who owns the bytes of a registration.
enum Memory {
    /// Allocated here, page aligned.
    Pages(Layout),
    /// Taken over from a boxed slice of this many bytes.
    Boxed(usize),
    /// Somebody else's; the unsafe constructor made the caller promise that it stays.
    Foreign,
}

/// One `ibv_mr` and the memory below it.
pub(crate) struct Registration {
    mr: NonNull<c::ibv_mr>,
    base: NonNull<u8>,
    len: usize,
    memory: Memory,
    access: AccessFlags,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
    pub(crate) pd: Arc<PdInner>,
}

// SAFETY: the pointers are owned by this value alone; verbs may be called from any thread
// (ibv_reg_mr(3), and the thread-safety rule of libibverbs), and the bytes are reached only
// through `Buf` (unique ranges) and `Exposed` (atomic accesses).
unsafe impl Send for Registration {}
// SAFETY: as above; a shared reference gives out addresses and keys, never bytes.
unsafe impl Sync for Registration {}

impl Registration {
    /// Zeroed memory of `len` bytes, at least one page.
    pub(crate) fn pages(pd: &Arc<PdInner>, len: usize, access: AccessFlags) -> Result<Arc<Self>> {
        let size = len
            .max(1)
            .checked_next_multiple_of(PAGE)
            .unwrap_or(usize::MAX);
        let layout = Layout::from_size_align(size, PAGE).map_err(|_| Error::Value {
            what: "buffer length",
            value: len as u64,
            limit: isize::MAX as u64,
        })?;
        // SAFETY: the layout has a size of at least one page.
        let raw = unsafe { alloc_zeroed(layout) };
        let Some(base) = NonNull::new(raw) else {
            return Err(Error::OutOfMemory { len });
        };
        // Exactly what was asked for: peers are not to reach the rest of the last page. A region
        // of no bytes is one of a byte that peers have no right to.
        let (exact, access) = match len {
            0 => (1, AccessFlags::LOCAL_WRITE),
            len => (len, access),
        };
        Self::register(pd, base, exact, Memory::Pages(layout), access)
    }

    pub(crate) fn boxed(
        pd: &Arc<PdInner>,
        bytes: Box<[u8]>,
        access: AccessFlags,
    ) -> Result<Arc<Self>> {
        let len = bytes.len();
        if len == 0 {
            return Self::pages(pd, 0, access);
        }
        // From here on the box exists only as this pointer, so that nothing claims the bytes for
        // itself while a device writes them.
        let base = NonNull::from(Box::leak(bytes)).cast();
        Self::register(pd, base, len, Memory::Boxed(len), access)
    }

    /// # Safety
    /// `len` bytes at `base` stay mapped, and are not used in a way that conflicts with what
    /// devices and peers do to them, until the registration is gone.
    pub(crate) unsafe fn foreign(
        pd: &Arc<PdInner>,
        base: NonNull<u8>,
        len: usize,
        access: AccessFlags,
    ) -> Result<Arc<Self>> {
        Self::register(pd, base, len, Memory::Foreign, access)
    }

    fn register(
        pd: &Arc<PdInner>,
        base: NonNull<u8>,
        len: usize,
        memory: Memory,
        access: AccessFlags,
    ) -> Result<Arc<Self>> {
        let verbs = pd.ctx.verbs;
        // SAFETY: the protection domain is alive, and `len` bytes at `base` are ours (or, for
        // foreign memory, promised by the caller) until `dereg_mr`.
        let mr = unsafe {
            (verbs.reg_mr)(
                pd.raw(),
                base.as_ptr().cast(),
                len,
                access.bits() as libc::c_int,
            )
        };
        let Some(mr) = NonNull::new(mr) else {
            let error = sys::last_error("ibv_reg_mr", &pd.ctx.name);
            // SAFETY: nothing was registered, so the memory is still only ours.
            unsafe { free(base, &memory) };
            return Err(error);
        };
        // SAFETY: a successful reg_mr returns a filled ibv_mr.
        let (lkey, rkey) = unsafe { ((*mr.as_ptr()).lkey, (*mr.as_ptr()).rkey) };
        Ok(Arc::new(Self {
            mr,
            base,
            len,
            memory,
            access,
            lkey,
            rkey,
            pd: Arc::clone(pd),
        }))
    }

    /// Address of byte `offset`; the caller keeps `offset` within the registration.
    pub(crate) fn at(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset <= self.len, "offset {offset} of {}", self.len);
        self.base.as_ptr().wrapping_add(offset)
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn raw(&self) -> *mut c::ibv_mr {
        self.mr.as_ptr()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: the registration is alive and no operation holds it any more, since every
        // operation holds an `Arc` of it.
        let rc = unsafe { (self.pd.ctx.verbs.dereg_mr)(self.mr.as_ptr()) };
        if rc == 0 {
            // SAFETY: after a successful dereg_mr no device touches the memory.
            unsafe { free(self.base, &self.memory) };
        } else if !matches!(self.memory, Memory::Foreign) {
            count_leak(self.len);
        }
    }
}

/// # Safety
/// The memory was made for a `Registration`, is not registered, and is not used afterwards.
unsafe fn free(base: NonNull<u8>, memory: &Memory) {
    match *memory {
        // SAFETY: `base` came from `alloc_zeroed` with this layout.
        Memory::Pages(layout) => unsafe { dealloc(base.as_ptr(), layout) },
        Memory::Boxed(len) => {
            let slice = std::ptr::slice_from_raw_parts_mut(base.as_ptr(), len);
            // SAFETY: `base` and `len` came from `Box::leak` of a boxed slice.
            drop(unsafe { Box::from_raw(slice) });
        }
        Memory::Foreign => {}
    }
}

/// A handle to a registration: its keys and its size, but not its bytes.
///
/// The memory stays registered while any handle, [`Buf`] or operation refers to it.
#[derive(Clone)]
#[doc(alias = "ibv_mr")]
pub struct MemoryRegion(pub(crate) Arc<Registration>);

impl MemoryRegion {
    /// Bytes registered.
    #[allow(clippy::len_without_is_empty, reason = "a registration is never empty")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The address of its first byte.
    pub fn addr(&self) -> u64 {
        self.0.at(0) as u64
    }

    /// The key for local use.
    pub fn lkey(&self) -> LKey {
        LKey(self.0.lkey)
    }

    /// The key for peers; without remote rights it opens nothing.
    pub fn rkey(&self) -> RKey {
        RKey(self.0.rkey)
    }

    /// The C object. It is valid while this handle lives; it must not be deregistered.
    pub fn as_raw(&self) -> *mut c::ibv_mr {
        self.0.raw()
    }
}

impl ProtectionDomain {
    /// Registers memory that this library does not own: a mapping, memory of another library.
    ///
    /// The result has keys, for [`QueuePair::post_raw`](crate::QueuePair::post_raw) and for
    /// peers; it never becomes a slice.
    ///
    /// # Safety
    /// The bytes stay mapped until the last clone of the region is gone, and nobody uses them
    /// in a way that conflicts with what the device and, with remote rights, peers do to them.
    ///
    /// # Errors
    /// [`Error::Verb`] (EFAULT: not mapped); [`Error::Value`] for a NULL address.
    #[doc(alias = "ibv_reg_mr")]
    pub unsafe fn reg_mr_raw(
        &self,
        addr: *mut u8,
        len: usize,
        access: AccessFlags,
    ) -> Result<MemoryRegion> {
        let base = NonNull::new(addr).ok_or(Error::Value {
            what: "address",
            value: 0,
            limit: u64::MAX,
        })?;
        // SAFETY: the caller promises what `foreign` asks for.
        let region = unsafe { Registration::foreign(&self.inner, base, len, access)? };
        Ok(MemoryRegion(region))
    }
}

impl fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryRegion")
            .field("addr", &format_args!("{:#x}", self.addr()))
            .field("len", &self.len())
            .field("access", &self.0.access)
            .finish_non_exhaustive()
    }
}

/// A unique range of registered memory: a vector of bytes that a device can read and write.
///
/// Like a `Vec<u8>` it has a length and a capacity; all of the capacity is initialised.
/// A send, write or read transfers [`len`](Buf::len) bytes. A receive offers the whole
/// [`capacity`](Buf::capacity), and its completion sets the length to what arrived.
///
/// ```
/// # fn main() -> Result<(), adverb::Error> {
/// # if cfg!(not(feature = "soft")) { return Ok(()) }
/// let pd = adverb::open_default()?.alloc_pd()?;
/// let mut buf = pd.alloc_buf(4096)?;
/// let tail = buf.split_off(1024);
/// buf.fill_from(b"hello")?;
/// assert_eq!((buf.len(), buf.capacity(), tail.capacity()), (5, 1024, 3072));
/// buf.unsplit(tail).unwrap();
/// assert_eq!(buf.capacity(), 4096);
/// # Ok(()) }
/// ```
pub struct Buf {
    region: Arc<Registration>,
    offset: usize,
    capacity: usize,
    len: usize,
}

impl ProtectionDomain {
    /// Allocates and registers a zeroed buffer of `len` bytes, aligned to a page. Peers cannot
    /// reach it; it serves sends, receives, and as the local side of reads, writes and atomics.
    ///
    /// # Errors
    /// [`Error::Verb`] (ENOMEM: the device's limit, or that on locked memory);
    /// [`Error::OutOfMemory`].
    #[doc(alias = "ibv_reg_mr")]
    pub fn alloc_buf(&self, len: usize) -> Result<Buf> {
        let region = Registration::pages(&self.inner, len, AccessFlags::LOCAL_WRITE)?;
        Ok(Buf::whole(region, len))
    }

    /// Registers bytes that exist already, without copying; peers cannot reach them
    /// (ibv_reg_mr(3)). They are freed with the last part of the buffer.
    ///
    /// ```
    /// # fn main() -> Result<(), adverb::Error> {
    /// # if cfg!(not(feature = "soft")) { return Ok(()) }
    /// let pd = adverb::open_default()?.alloc_pd()?;
    /// let buf = pd.reg_mr(b"ready to go".to_vec())?;
    /// assert_eq!(&buf[..5], b"ready");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Verb`]; the bytes are dropped then.
    #[doc(alias = "ibv_reg_mr")]
    pub fn reg_mr(&self, bytes: impl Into<Box<[u8]>>) -> Result<Buf> {
        let bytes = bytes.into();
        let len = bytes.len();
        let region = Registration::boxed(&self.inner, bytes, AccessFlags::LOCAL_WRITE)?;
        Ok(Buf::whole(region, len))
    }
}

impl Buf {
    /// A buffer over `len` bytes from the start of `region`. Crate-internal, because uniqueness
    /// rests on it: a registration is turned into a `Buf` exactly once.
    pub(crate) fn whole(region: Arc<Registration>, len: usize) -> Self {
        debug_assert!(len <= region.len());
        Self {
            region,
            offset: 0,
            capacity: len,
            len,
        }
    }

    /// Bytes that count: what a send transmits, or what a receive got.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no byte counts.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes there are.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Sets how many bytes count.
    ///
    /// # Errors
    /// [`Error::Value`] when `len` exceeds the capacity.
    pub fn set_len(&mut self, len: usize) -> Result<()> {
        if len > self.capacity {
            return Err(Error::Value {
                what: "length of a buffer",
                value: len as u64,
                limit: self.capacity as u64,
            });
        }
        self.len = len;
        Ok(())
    }

    /// Copies `bytes` to the start and sets the length to theirs.
    ///
    /// # Errors
    /// [`Error::Value`] when they are more than the capacity.
    pub fn fill_from(&mut self, bytes: &[u8]) -> Result<()> {
        self.set_len(bytes.len())?;
        self.copy_from_slice(bytes);
        Ok(())
    }

    /// Cuts the buffer in two at `at`; the second part is returned, with all of its bytes
    /// counting. Both share the registration, and each can be posted on its own.
    ///
    /// # Panics
    /// When `at` exceeds the capacity.
    pub fn split_off(&mut self, at: usize) -> Self {
        assert!(
            at <= self.capacity,
            "split at {at}, but the capacity is {}",
            self.capacity
        );
        let tail = Self {
            region: Arc::clone(&self.region),
            offset: self.offset + at,
            capacity: self.capacity - at,
            len: self.capacity - at,
        };
        self.capacity = at;
        self.len = self.len.min(at);
        tail
    }

    /// Joins `tail` to the end again. The length becomes the new capacity when `tail` counts to
    /// its end, and stays as it is otherwise.
    ///
    /// # Errors
    /// Gives `tail` back when it does not directly follow this buffer in the same registration.
    pub fn unsplit(&mut self, tail: Self) -> Result<(), Self> {
        if !Arc::ptr_eq(&self.region, &tail.region) || self.offset + self.capacity != tail.offset {
            return Err(tail);
        }
        if self.len == self.capacity {
            self.len += tail.len;
        }
        self.capacity += tail.capacity;
        Ok(())
    }

    /// The registration the bytes belong to.
    pub fn region(&self) -> MemoryRegion {
        MemoryRegion(Arc::clone(&self.region))
    }

    pub(crate) fn registration(&self) -> &Arc<Registration> {
        &self.region
    }

    pub(crate) fn addr(&self) -> u64 {
        self.region.at(self.offset) as u64
    }

    /// What the device wrote counts, as far as there is room for it.
    pub(crate) fn received(&mut self, len: usize) {
        self.len = len.min(self.capacity);
    }

    /// Gives the memory up for good: the device may touch it until the process ends.
    pub(crate) fn leak(self) {
        count_leak(self.capacity);
        let _ = ManuallyDrop::new(self);
    }
}

impl Deref for Buf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the range lies within the registration, is initialised, and is ours alone: two
        // `Buf`s never overlap, a posted one is out of reach of safe code, and the registration
        // gives no right to peers.
        unsafe { std::slice::from_raw_parts(self.region.at(self.offset), self.len) }
    }
}

impl DerefMut for Buf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`; the `&mut` makes the access unique.
        unsafe { std::slice::from_raw_parts_mut(self.region.at(self.offset), self.len) }
    }
}

impl AsRef<[u8]> for Buf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for Buf {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buf")
            .field("len", &self.len)
            .field("capacity", &self.capacity)
            .field("offset", &self.offset)
            .finish_non_exhaustive()
    }
}
