//! Protection domains: what belongs together.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use adverb_abi::types as c;

use crate::context::{Context, ContextInner};
use crate::error::Result;
use crate::sys;

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

impl Context {
    /// A protection domain (ibv_alloc_pd(3)): what belongs together.
    ///
    /// # Errors
    /// [`Error::Verb`](crate::Error::Verb).
    #[doc(alias = "ibv_alloc_pd")]
    pub fn alloc_pd(&self) -> Result<ProtectionDomain> {
        // SAFETY: the context is open.
        let raw = unsafe { (self.inner.verbs.alloc_pd)(self.as_raw()) };
        let raw = sys::non_null(raw, "ibv_alloc_pd", &self.inner.name)?;
        Ok(ProtectionDomain {
            inner: Arc::new(PdInner {
                raw,
                ctx: Arc::clone(&self.inner),
            }),
        })
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
    /// The C object; valid while this handle lives; must not be deallocated.
    pub fn as_raw(&self) -> *mut c::ibv_pd {
        self.inner.raw()
    }
}

crate::sync::equal_by_identity!(ProtectionDomain);

impl fmt::Debug for ProtectionDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProtectionDomain")
            .field("device", &self.inner.ctx.name)
            .finish_non_exhaustive()
    }
}
