//! Shared receive queues: one stock of receive buffers for many queue pairs.

use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use adverb_abi::types::{self as c, Zeroed};

use crate::error::{Error, Result};
use crate::pd::{PdInner, ProtectionDomain};
use crate::receive::{ReceiveQueue, Receiver};
use crate::request::{BatchError, Posted};
use crate::slab::{MAX_SLOTS, Slab};
use crate::source::{Source, Target};
use crate::sync::lock;
use crate::sys;

pub(crate) struct SrqInner {
    raw: NonNull<c::ibv_srq>,
    pub(crate) slab: Arc<Mutex<Slab>>,
    max_sge: u32,
    pub(crate) pd: Arc<PdInner>,
}

// SAFETY: every verb may be called from any thread, and the pointer is owned by this value.
unsafe impl Send for SrqInner {}
// SAFETY: as above; posting happens under the lock of the slab.
unsafe impl Sync for SrqInner {}

impl Drop for SrqInner {
    fn drop(&mut self) {
        // SAFETY: every queue pair on the queue holds an `Arc` of this value.
        let rc = unsafe { (self.pd.ctx.verbs.destroy_srq)(self.raw.as_ptr()) };
        for (_, op) in lock(&self.slab).drain() {
            if let Some(buffer) = op.buffer
                && rc != 0
            {
                // The device still knows the queue, so it may still write into its buffers.
                buffer.leak();
            }
        }
    }
}

/// A stock of receive buffers that several queue pairs take from, in order. Clones are handles
/// to the same one.
#[derive(Clone)]
#[doc(alias = "ibv_srq")]
pub struct SharedReceiveQueue {
    pub(crate) inner: Arc<SrqInner>,
}

impl ProtectionDomain {
    /// A queue of receives that several queue pairs share (ibv_create_srq(3)), for up to
    /// `max_wr` receives.
    ///
    /// # Errors
    /// [`Error::Verb`], [`Error::Value`].
    #[doc(alias = "ibv_create_srq")]
    pub fn create_srq(&self, max_wr: u32) -> Result<SharedReceiveQueue> {
        SharedReceiveQueue::new(self, max_wr, 1)
    }

    /// The same for receives of up to `max_sge` pieces of memory each.
    ///
    /// # Errors
    /// [`Error::Verb`], [`Error::Value`].
    #[doc(alias = "ibv_create_srq")]
    pub fn create_srq_of_lists(&self, max_wr: u32, max_sge: u32) -> Result<SharedReceiveQueue> {
        SharedReceiveQueue::new(self, max_wr, max_sge)
    }
}

impl SharedReceiveQueue {
    pub(crate) fn new(pd: &ProtectionDomain, max_wr: u32, max_sge: u32) -> Result<Self> {
        let ctx = &pd.inner.ctx;
        if max_wr > MAX_SLOTS {
            return Err(Error::Value {
                what: "receives on a shared receive queue",
                value: max_wr.into(),
                limit: MAX_SLOTS.into(),
            });
        }
        let mut init = c::ibv_srq_init_attr::zeroed();
        init.attr.max_wr = max_wr;
        init.attr.max_sge = max_sge;
        // SAFETY: the domain is alive.
        let raw = unsafe { (ctx.verbs.create_srq)(pd.as_raw(), &raw mut init) };
        let raw = sys::non_null(raw, "ibv_create_srq", &ctx.name)?;
        Ok(Self {
            inner: Arc::new(SrqInner {
                raw,
                slab: Arc::new(Mutex::new(Slab::new(max_wr, false))),
                // What was granted.
                max_sge: init.attr.max_sge.max(max_sge),
                pd: Arc::clone(&pd.inner),
            }),
        })
    }

    /// Offers a buffer for one message to whichever queue pair needs it next
    /// (ibv_post_srq_recv(3)).
    ///
    /// # Errors
    /// [`Rejected`](crate::Rejected), with the buffer: the queue is full.
    #[doc(alias = "ibv_post_srq_recv")]
    pub fn post_recv(&self, target: impl Target) -> Posted {
        self.receives().post(target.load())
    }

    /// Offers a buffer for each of several messages, in as few calls of the device as possible
    /// (ibv_post_srq_recv(3)), and says how many. As
    /// [`QueuePair::post_recvs`](crate::QueuePair::post_recvs).
    ///
    /// # Errors
    /// [`BatchError`], with the buffers that the device did not take.
    #[doc(alias = "ibv_post_srq_recv")]
    pub fn post_recvs<B: Target>(
        &self,
        targets: impl IntoIterator<Item = B>,
    ) -> Result<usize, BatchError> {
        self.receives()
            .post_all(targets.into_iter().map(Source::load))
    }

    fn receives(&self) -> ReceiveQueue<'_> {
        ReceiveQueue {
            to: Receiver::Shared(self.inner.raw),
            slab: &self.inner.slab,
            pd: &self.inner.pd,
            max_sge: self.inner.max_sge,
            name: &self.inner.pd.ctx.name,
        }
    }

    /// Pieces of memory that one receive has at most.
    pub fn max_sge(&self) -> u32 {
        self.inner.max_sge
    }

    /// Asks for one [`SRQ_LIMIT_REACHED`](crate::AsyncEventKind::SRQ_LIMIT_REACHED) event when
    /// fewer than `limit` receives are left; 0 asks for none (ibv_modify_srq(3)).
    ///
    /// # Errors
    /// [`Error::Verb`] with EINVAL when the limit exceeds the size.
    #[doc(alias = "ibv_modify_srq")]
    pub fn set_limit(&self, limit: u32) -> Result<()> {
        let mut attr = c::ibv_srq_attr::zeroed();
        attr.srq_limit = limit;
        let ctx = &self.inner.pd.ctx;
        // SAFETY: the queue is alive and `attr` is filled as the mask says.
        let rc = unsafe {
            (ctx.verbs.modify_srq)(
                self.as_raw(),
                &raw mut attr,
                c::IBV_SRQ_LIMIT as libc::c_int,
            )
        };
        sys::check(rc, "ibv_modify_srq", &ctx.name)
    }

    /// Receives that are posted and not over yet.
    pub fn outstanding(&self) -> u32 {
        lock(&self.inner.slab).outstanding()
    }

    /// Receives it has room for.
    pub fn capacity(&self) -> u32 {
        lock(&self.inner.slab).capacity()
    }

    /// Its number in async events.
    pub fn handle(&self) -> u32 {
        // SAFETY: the queue is alive.
        unsafe { (*self.as_raw()).handle }
    }

    /// The C object; valid while this handle lives. It must be neither destroyed nor posted to.
    pub fn as_raw(&self) -> *mut c::ibv_srq {
        self.inner.raw.as_ptr()
    }
}

crate::sync::equal_by_identity!(SharedReceiveQueue);

impl fmt::Debug for SharedReceiveQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedReceiveQueue")
            .field("capacity", &self.capacity())
            .field("outstanding", &self.outstanding())
            .finish_non_exhaustive()
    }
}
