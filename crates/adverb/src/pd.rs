//! Protection domains: what belongs together, and where memory is registered.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use adverb_abi::flags::AccessFlags;
use adverb_abi::types as c;

use crate::ah::{AddressHandle, AhAttr};
use crate::builder::QueuePairBuilder;
use crate::context::{Context, ContextInner};
use crate::cq::CompletionQueue;
use crate::error::{Error, Result};
use crate::exposed::Exposed;
use crate::mr::{Buf, MemoryRegion, Registration};
use crate::srq::SharedReceiveQueue;
use crate::sys;
use crate::transport::Transport;

pub(crate) struct PdInner {
    raw: NonNull<c::ibv_pd>,
    pub(crate) ctx: Arc<ContextInner>,
}

// SAFETY: every verb may be called from any thread, and the pointer is owned by this value.
unsafe impl Send for PdInner {}
// SAFETY: as above.
unsafe impl Sync for PdInner {}

impl PdInner {
    pub(crate) fn raw(&self) -> *mut c::ibv_pd {
        self.raw.as_ptr()
    }
}

impl Drop for PdInner {
    fn drop(&mut self) {
        // An error can only mean that an object of the domain was leaked; the domain follows it.
        // SAFETY: everything made in the domain holds an `Arc` of this value.
        unsafe { (self.ctx.verbs.dealloc_pd)(self.raw.as_ptr()) };
    }
}

/// A protection domain: memory, queue pairs and address handles of one domain work together.
/// Clones are handles to the same one.
#[derive(Clone)]
#[doc(alias = "ibv_pd")]
pub struct ProtectionDomain {
    pub(crate) inner: Arc<PdInner>,
}

impl ProtectionDomain {
    pub(crate) fn new(ctx: &Context) -> Result<Self> {
        // SAFETY: the context is open.
        let raw = unsafe { (ctx.inner.verbs.alloc_pd)(ctx.as_raw()) };
        let raw = sys::non_null(raw, "ibv_alloc_pd", &ctx.inner.name)?;
        Ok(Self {
            inner: Arc::new(PdInner {
                raw,
                ctx: Arc::clone(&ctx.inner),
            }),
        })
    }

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

    /// Starts a queue pair whose sends and receives complete on `cq`; finish with
    /// [`build`](QueuePairBuilder::build).
    ///
    /// ```
    /// # fn main() -> Result<(), adverb::Error> {
    /// # if cfg!(not(feature = "soft")) { return Ok(()) }
    /// use adverb::transport::Rc;
    /// let ctx = adverb::open_default()?;
    /// let cq = ctx.create_cq(64).build()?;
    /// let qp = ctx.alloc_pd()?.create_qp::<Rc>(&cq).max_send_wr(16).build()?;
    /// println!("{}", qp.endpoint());
    /// # Ok(()) }
    /// ```
    #[doc(alias = "ibv_create_qp")]
    pub fn create_qp<T: Transport>(&self, cq: &CompletionQueue) -> QueuePairBuilder<T> {
        QueuePairBuilder::new(self, cq)
    }

    /// A queue of receives that several queue pairs share (ibv_create_srq(3)), for up to
    /// `max_wr` receives.
    ///
    /// # Errors
    /// [`Error::Verb`], [`Error::Value`].
    #[doc(alias = "ibv_create_srq")]
    pub fn create_srq(&self, max_wr: u32) -> Result<SharedReceiveQueue> {
        SharedReceiveQueue::new(self, max_wr)
    }

    /// The way to a peer for datagrams (ibv_create_ah(3)).
    ///
    /// # Errors
    /// [`Error::Verb`].
    #[doc(alias = "ibv_create_ah")]
    pub fn create_ah(&self, attr: &AhAttr) -> Result<AddressHandle> {
        AddressHandle::new(self, attr)
    }

    /// The C object; valid while this handle lives; must not be deallocated.
    pub fn as_raw(&self) -> *mut c::ibv_pd {
        self.inner.raw()
    }
}

impl fmt::Debug for ProtectionDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProtectionDomain")
            .field("device", &self.inner.ctx.name)
            .finish_non_exhaustive()
    }
}
