//! Memory windows: rights on a part of memory that can be taken back.

use std::fmt;
use std::mem;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use adverb_abi::flags::AccessFlags;
use adverb_abi::inline;
use adverb_abi::types as c;

use crate::error::Result;
use crate::exposed::ExposedSlice;
use crate::mr::Registration;
use crate::pd::{PdInner, ProtectionDomain};
use crate::remote::RemoteRegion;
use crate::sync::lock;
use crate::sys;
use crate::values::RKey;

pub(crate) struct MwInner {
    raw: NonNull<c::ibv_mw>,
    state: Mutex<State>,
    pd: Arc<PdInner>,
}

struct State {
    /// What the last bind covers, and its key.
    covers: RemoteRegion,
    /// All that it was ever bound to: a region stays while a window on it may.
    regions: Vec<Arc<Registration>>,
}

// SAFETY: every verb may be called from any thread, and the pointer is owned by this value. What
// would break it is a dealloc while an operation still names the window: each holds an `Arc` of it.
unsafe impl Send for MwInner {}
// SAFETY: as above; keys are counted up under the lock.
unsafe impl Sync for MwInner {}

impl MwInner {
    pub(crate) fn pd(&self) -> &Arc<PdInner> {
        &self.pd
    }
}

impl fmt::Debug for MwInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MwInner").finish_non_exhaustive()
    }
}

impl Drop for MwInner {
    fn drop(&mut self) {
        // SAFETY: no handle and no operation refers to it any more.
        let rc = unsafe { inline::ibv_dealloc_mw(self.raw.as_ptr()) };
        if rc != 0 {
            // The device may still let peers in through it.
            let state = self.state.get_mut();
            let state = state.unwrap_or_else(std::sync::PoisonError::into_inner);
            mem::forget(mem::take(&mut state.regions));
        }
    }
}

/// A key of its own to a part of [`Exposed`](crate::Exposed) memory or of a
/// [`RawRegion`](crate::RawRegion) (a window of type 2), which can be taken back: by
/// [`invalidate`](crate::Poster::invalidate), by the peer's
/// [`send_invalidate`](crate::Poster::send_invalidate), and by dropping the window, once its binds
/// are over. After that the key opens nothing.
///
/// It works through the queue pair that bound it. The memory below needs
/// [`AccessFlags::MW_BIND`], and no other remote right. It stays registered as long as the window.
///
/// ```
/// # fn main() -> Result<(), adverb::Error> {
/// # if cfg!(not(feature = "soft")) { return Ok(()) }
/// # use adverb::{AccessFlags, Inline, PostFlags, Wait, WcStatus, transport::Rc};
/// # let ctx = adverb::open_default()?;
/// # let pd = ctx.alloc_pd()?;
/// # let cq = ctx.create_cq(64).build()?;
/// # let (ours, peer) = (pd.create_qp::<Rc>(&cq).build()?, pd.create_qp::<Rc>(&cq).max_inline(8).build()?);
/// # ours.connect(&peer.endpoint())?;
/// # peer.connect(&ours.endpoint())?;
/// # let next = || -> Result<_, adverb::Error> {
/// #     let mut done = Vec::new();
/// #     while done.is_empty() { cq.wait(&mut done, Wait::default(), None)?; }
/// #     Ok(done.remove(0).result)
/// # };
/// let memory = pd.expose(4096, AccessFlags::MW_BIND)?;
/// let window = pd.alloc_mw()?;
/// ours.with(PostFlags::empty()).bind(&window, memory.slice(..8)?, AccessFlags::REMOTE_WRITE)?;
/// next()??;
/// let for_the_peer = window.remote();
/// peer.post_write(Inline(b"let in"), for_the_peer)?;
/// next()??;
/// drop(window);
/// peer.post_write(Inline(b"not now"), for_the_peer)?;
/// assert_eq!(next()?.unwrap_err().status, WcStatus::REM_ACCESS_ERR);
/// # Ok(()) }
/// ```
#[doc(alias = "ibv_mw")]
pub struct MemoryWindow {
    pub(crate) inner: Arc<MwInner>,
}

impl ProtectionDomain {
    /// A memory window that is not bound yet (ibv_alloc_mw(3)).
    ///
    /// # Errors
    /// [`Error::Verb`](crate::Error::Verb), [`Error::Unsupported`](crate::Error::Unsupported).
    #[doc(alias = "ibv_alloc_mw")]
    pub fn alloc_mw(&self) -> Result<MemoryWindow> {
        // SAFETY: the domain is alive.
        let raw = unsafe { inline::ibv_alloc_mw(self.as_raw(), c::IBV_MW_TYPE_2) };
        let raw = sys::non_null(raw, "ibv_alloc_mw", &self.inner.ctx.name)?;
        // SAFETY: a window just allocated.
        let key = unsafe { (*raw.as_ptr()).rkey };
        let state = State {
            covers: RemoteRegion {
                addr: 0,
                len: 0,
                rkey: RKey(key),
            },
            regions: Vec::new(),
        };
        Ok(MemoryWindow {
            inner: Arc::new(MwInner {
                raw,
                state: Mutex::new(state),
                pd: Arc::clone(&self.inner),
            }),
        })
    }
}

impl MemoryWindow {
    /// The descriptor to send to peers: of the last bind that was asked for, which has to be over (one
    /// that was refused opens nothing). Every bind has another key; before the first one there are
    /// no bytes.
    pub fn remote(&self) -> RemoteRegion {
        lock(&self.inner.state).covers
    }

    /// What a bind to `memory` asks the device for.
    pub(crate) fn bind(
        &self,
        memory: &ExposedSlice,
        access: AccessFlags,
    ) -> c::ibv_send_wr_bind_mw {
        let region = memory.registration();
        let mut state = lock(&self.inner.state);
        if !state.regions.iter().any(|r| Arc::ptr_eq(r, region)) {
            state.regions.push(Arc::clone(region));
        }
        state.covers = RemoteRegion {
            addr: memory.addr(),
            len: memory.len() as u64,
            rkey: RKey(inline::ibv_inc_rkey(state.covers.rkey.0)),
        };
        c::ibv_send_wr_bind_mw {
            mw: self.inner.raw.as_ptr(),
            rkey: state.covers.rkey.0,
            bind_info: c::ibv_mw_bind_info {
                mr: region.raw(),
                addr: state.covers.addr,
                length: state.covers.len,
                mw_access_flags: access.bits(),
            },
        }
    }

    /// The C object; valid while this handle lives; must be neither deallocated nor bound.
    pub fn as_raw(&self) -> *mut c::ibv_mw {
        self.inner.raw.as_ptr()
    }
}

crate::sync::equal_by_identity!(MemoryWindow);

impl fmt::Debug for MemoryWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryWindow")
            .field("remote", &self.remote())
            .finish_non_exhaustive()
    }
}
