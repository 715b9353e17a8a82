//! Registered memory that only its owner can touch.
//!
//! A [`Buf`] is a unique range of a registration. Posting moves it into the operation, and the
//! completion gives it back: while the device may read or write the bytes, no safe code can.
//! Peers have no right to this memory; what peers may touch is in [`exposed`](crate::exposed).

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::any::{Any, TypeId};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::os::fd::RawFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use adverb_abi::flags::AccessFlags;
use adverb_abi::types as c;

use crate::error::{Error, Result};
use crate::pd::{PdInner, ProtectionDomain};
use crate::registrable::Registrable;
use crate::sys;
use crate::values::{LKey, RKey};

/// Fresh buffers start at a page, so that no other data shares a page with them.
const PAGE: usize = 4096;

/// Registered, to be read, where there is nothing to register.
static EMPTY: u8 = 0;

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

/// A value that holds registered bytes, and whose type is forgotten.
trait Held: Any {}
impl<M: Registrable> Held for M {}

/// Who owns the bytes of a registration.
enum Memory {
    /// Allocated here, page aligned.
    Pages(Layout),
    /// A value that was registered; boxed by whoever made this.
    Held(*mut dyn Held),
    /// Somebody else's; the unsafe constructor made the caller promise that it stays.
    Foreign,
}

/// One `ibv_mr` and the memory below it.
pub(crate) struct Registration {
    mr: NonNull<c::ibv_mr>,
    base: *mut u8,
    len: usize,
    memory: Memory,
    access: AccessFlags,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
    pub(crate) pd: Arc<PdInner>,
}

// SAFETY: the pointers are owned by this value alone; verbs may be called from any thread
// (ibv_reg_mr(3), and the thread-safety rule of libibverbs), a held value is `Send` and `Sync`, and
// the bytes are reached only through `Buf` (unique ranges) and `Exposed` (atomic accesses). A second
// `Buf` over one range, or a `Buf` over memory with remote rights, would break it.
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

    /// The registration of a value's bytes, and how many they are.
    pub(crate) fn held<M: Registrable>(
        pd: &Arc<PdInner>,
        value: M,
        access: AccessFlags,
    ) -> Result<(Arc<Self>, usize)> {
        // From here on it is not moved, and exists only as this pointer, so that nothing claims the
        // bytes for itself while a device writes them.
        let value = Box::into_raw(Box::new(value));
        // SAFETY: a value that was just boxed, used by nobody else.
        let bytes = unsafe { (*value).bytes() };
        // A region of no bytes is one of a byte that nobody has a right to; it has to be some byte.
        let (base, len) = match bytes.len() {
            0 => (NonNull::from(&EMPTY).cast(), 0),
            len => (
                NonNull::new(bytes.cast()).unwrap_or(NonNull::dangling()),
                len,
            ),
        };
        let access = if len == 0 {
            AccessFlags::empty()
        } else {
            access
        };
        let region = Self::register(pd, base, len.max(1), Memory::Held(value), access)?;
        Ok((region, len))
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
            unsafe { free(base.as_ptr(), &memory) };
            return Err(error);
        };
        Ok(Self::registered(pd, mr, base.as_ptr(), len, memory, access))
    }

    /// # Safety
    /// As for [`foreign`](Self::foreign), of the bytes of the dma-buf.
    pub(crate) unsafe fn dmabuf(
        pd: &Arc<PdInner>,
        fd: RawFd,
        offset: u64,
        len: usize,
        iova: u64,
        access: AccessFlags,
    ) -> Result<Arc<Self>> {
        let ctx = &pd.ctx;
        let Some(reg) = ctx.verbs.reg_dmabuf_mr else {
            return Err(Error::Unsupported {
                what: "ibv_reg_dmabuf_mr",
                object: ctx.name.clone(),
            });
        };
        // SAFETY: the protection domain is alive; of the memory the caller promises the rest.
        let mr = unsafe {
            reg(
                pd.raw(),
                offset,
                len,
                iova,
                fd,
                access.bits() as libc::c_int,
            )
        };
        let mr = sys::non_null(mr, "ibv_reg_dmabuf_mr", &ctx.name)?;
        // An address for the device. Nothing here ever looks there.
        let base = iova as *mut u8;
        Ok(Self::registered(pd, mr, base, len, Memory::Foreign, access))
    }

    fn registered(
        pd: &Arc<PdInner>,
        mr: NonNull<c::ibv_mr>,
        base: *mut u8,
        len: usize,
        memory: Memory,
        access: AccessFlags,
    ) -> Arc<Self> {
        // SAFETY: a successful reg_mr returns a filled ibv_mr.
        let (lkey, rkey) = unsafe { ((*mr.as_ptr()).lkey, (*mr.as_ptr()).rkey) };
        Arc::new(Self {
            mr,
            base,
            len,
            memory,
            access,
            lkey,
            rkey,
            pd: Arc::clone(pd),
        })
    }

    /// The value that was registered, if it was one of this type and this is the last handle.
    fn into_held<M: Registrable>(this: Arc<Self>) -> Result<M, Arc<Self>> {
        let Memory::Held(value) = this.memory else {
            return Err(this);
        };
        // SAFETY: the value is ours, and only its type is asked for.
        if unsafe { (*value).type_id() } != TypeId::of::<M>() {
            return Err(this);
        }
        let mut region = ManuallyDrop::new(Arc::try_unwrap(this)?);
        // SAFETY: the registration is alive and this was the last handle to it.
        let rc = unsafe { (region.pd.ctx.verbs.dereg_mr)(region.mr.as_ptr()) };
        if rc != 0 {
            // The device keeps it, and so do we.
            return Err(Arc::new(ManuallyDrop::into_inner(region)));
        }
        // SAFETY: of the fields only the domain has to be dropped; it is not used afterwards.
        unsafe { ptr::drop_in_place(&raw mut region.pd) };
        // SAFETY: it was boxed, is of this type, and no device touches its bytes any more.
        Ok(*unsafe { Box::from_raw(value.cast::<M>()) })
    }

    /// Address of byte `offset`; the caller keeps `offset` within the registration.
    pub(crate) fn at(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset <= self.len, "offset {offset} of {}", self.len);
        self.base.wrapping_add(offset)
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
unsafe fn free(base: *mut u8, memory: &Memory) {
    match *memory {
        // SAFETY: `base` came from `alloc_zeroed` with this layout.
        Memory::Pages(layout) => unsafe { dealloc(base, layout) },
        // SAFETY: it came from `Box::into_raw`.
        Memory::Held(value) => drop(unsafe { Box::from_raw(value) }),
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

    /// Registers memory that exists already, without copying; peers cannot reach it
    /// (ibv_reg_mr(3)). It is dropped with the last part of the buffer, or comes back from
    /// [`into_inner`](Buf::into_inner). All of its bytes count; what a vector has room for beyond
    /// its length is left alone.
    ///
    /// ```
    /// # fn main() -> Result<(), adverb::Error> {
    /// # if cfg!(not(feature = "soft")) { return Ok(()) }
    /// let pd = adverb::open_default()?.alloc_pd()?;
    /// let buf = pd.reg_mr(b"ready to go".to_vec())?;
    /// assert_eq!(&buf[..5], b"ready");
    /// let bytes: Vec<u8> = buf.into_inner().unwrap();
    /// assert_eq!(bytes, b"ready to go");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Verb`]; the memory is dropped then.
    #[doc(alias = "ibv_reg_mr")]
    pub fn reg_mr(&self, memory: impl Registrable) -> Result<Buf> {
        let (region, len) = Registration::held(&self.inner, memory, AccessFlags::LOCAL_WRITE)?;
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

    /// Ends the registration and gives the memory back that [`reg_mr`](ProtectionDomain::reg_mr)
    /// took, all of it, however many bytes count.
    ///
    /// # Errors
    /// Gives the buffer back: it was made of something else, is only a part (or another part or
    /// handle of its registration still exists), or the device does not let go of it.
    #[doc(alias = "ibv_dereg_mr")]
    pub fn into_inner<M: Registrable>(self) -> Result<M, Self> {
        let Self {
            region,
            offset,
            capacity,
            len,
        } = self;
        // A part without bytes holds the registration, so that a whole is one by its handles too.
        Registration::into_held(region).map_err(|region| Self {
            region,
            offset,
            capacity,
            len,
        })
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
