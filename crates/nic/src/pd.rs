//! Protection domains.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use adverb_engine::{Access, PdId, Sge, WindowType};

use crate::ah::{Ah, AhSpec};
use crate::context::Context;
use crate::dm::Dm;
use crate::error::NicError;
use crate::mr::{Advice, Mr};
use crate::mw::Mw;
use crate::qp::{Qp, QpSpec};
use crate::srq::Srq;

/// A protection domain (man ibv_alloc_pd).
pub struct Pd {
    context: Arc<Context>,
    id: PdId,
    users: Arc<AtomicU64>,
}

/// A child's share of its domain; the domain is busy while one exists.
pub(crate) struct PdUse {
    pub(crate) id: PdId,
    users: Arc<AtomicU64>,
}

impl Drop for PdUse {
    fn drop(&mut self) {
        self.users.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Pd {
    pub(crate) fn new(context: &Arc<Context>) -> Result<Arc<Self>, NicError> {
        context
            .quotas
            .pds
            .claim("PD", context.device().limits().max_pd)?;
        let id = context.nic().new_pd_id();
        Ok(Arc::new(Self {
            context: Arc::clone(context),
            id,
            users: Arc::default(),
        }))
    }

    pub(crate) fn import(context: &Arc<Context>, of: &Self) -> Result<Arc<Self>, NicError> {
        context
            .quotas
            .pds
            .claim("PD", context.device().limits().max_pd)?;
        Ok(Arc::new(Self {
            context: Arc::clone(context),
            id: of.id,
            users: Arc::clone(&of.users),
        }))
    }

    /// Whether both are names of the same domain.
    pub fn is_same(&self, other: &Self) -> bool {
        self.id == other.id
    }

    pub(crate) fn id(&self) -> PdId {
        self.id
    }

    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Refuses while regions, queue pairs, SRQs or address handles belong to it.
    pub fn dealloc(&self) -> Result<(), NicError> {
        match self.users.load(Ordering::Acquire) {
            0 => Ok(()),
            count => Err(NicError::Busy { what: "PD", count }),
        }
    }

    /// Registers memory. `iova` is the address that keys use for its first byte.
    pub fn reg_mr(
        &self,
        addr: u64,
        len: u64,
        iova: u64,
        access: Access,
    ) -> Result<Arc<Mr>, NicError> {
        self.context.usable()?;
        Mr::new(&self.context, self.claim(), addr, len, iova, access)
    }

    /// A region of no bytes: writes vanish, reads give zeros.
    pub fn alloc_null_mr(&self) -> Result<Arc<Mr>, NicError> {
        self.context.usable()?;
        Mr::null(&self.context, self.claim())
    }

    /// Registers part of a block of device memory; keys address it from zero.
    pub fn reg_dm_mr(
        &self,
        dm: &Dm,
        offset: u64,
        len: u64,
        access: Access,
    ) -> Result<Arc<Mr>, NicError> {
        self.context.usable()?;
        Mr::of_dm(&self.context, self.claim(), dm, offset, len, access)
    }

    pub fn alloc_mw(&self, kind: WindowType) -> Result<Arc<Mw>, NicError> {
        self.context.usable()?;
        Mw::new(&self.context, self.claim(), kind)
    }

    /// Acts on pages of on-demand regions before they are used (man ibv_advise_mr).
    pub fn advise(&self, advice: Advice, wait: bool, ranges: &[Sge]) -> Result<(), NicError> {
        self.context.usable()?;
        crate::mr::advise(self.context.nic(), self.id, advice, wait, ranges)
    }

    pub fn create_srq(&self, max_wr: u32, max_sge: u32, user: u64) -> Result<Arc<Srq>, NicError> {
        self.context.usable()?;
        Srq::new(&self.context, self.claim(), max_wr, max_sge, user)
    }

    pub fn create_ah(&self, spec: &AhSpec) -> Result<Arc<Ah>, NicError> {
        self.context.usable()?;
        Ah::new(&self.context, self.claim(), spec)
    }

    pub fn create_qp(&self, spec: &QpSpec<'_>) -> Result<Arc<Qp>, NicError> {
        self.context.usable()?;
        Qp::new(&self.context, self.claim(), spec)
    }

    pub(crate) fn claim(&self) -> PdUse {
        self.users.fetch_add(1, Ordering::AcqRel);
        PdUse {
            id: self.id,
            users: Arc::clone(&self.users),
        }
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        self.context.quotas.pds.release();
    }
}
