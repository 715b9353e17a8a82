//! Shared receive queues.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use adverb_engine::{PdId, PostError, QpState, RecvWqe, RecvWr, Srq as Queue, SrqAttr};

use crate::async_events::{AsyncKind, Source};
use crate::context::Context;
use crate::cq::{Cq, CqCell};
use crate::error::NicError;
use crate::ledger::Ledger;
use crate::pd::PdUse;
use crate::sync::LockExt;
use crate::xrc::{Domain, XrcdUse};

/// A shared receive queue (man ibv_create_srq).
pub struct Srq {
    pub(crate) cell: Arc<SrqCell>,
    closed: AtomicBool,
    /// Given back at destroy; see the same field of a queue pair.
    pd: Mutex<Option<PdUse>>,
    xrcd: Mutex<Option<XrcdUse>>,
}

pub(crate) struct SrqCell {
    context: Arc<Context>,
    user: u64,
    queue: Mutex<Queue>,
    pub(crate) pd: PdId,
    pub(crate) users: AtomicU64,
    async_events: Arc<Ledger>,
    xrc: Option<Xrc>,
}

/// What an SRQ of an XRC domain has besides.
struct Xrc {
    number: u32,
    domain: Arc<Domain>,
    cq: Arc<CqCell>,
}

impl Srq {
    pub(crate) fn new(
        context: &Arc<Context>,
        pd: PdUse,
        max_wr: u32,
        max_sge: u32,
        user: u64,
    ) -> Result<Arc<Self>, NicError> {
        check_size(context, max_wr, max_sge)?;
        context
            .quotas
            .srqs
            .claim("SRQ", context.device().limits().max_srq)?;
        let cell = Arc::new(SrqCell::new(context, pd.id, max_wr, max_sge, user, None));
        Ok(Self::with(cell, pd, None))
    }

    pub(crate) fn new_xrc(
        context: &Arc<Context>,
        pd: PdUse,
        xrcd: XrcdUse,
        cq: &Arc<Cq>,
        max_wr: u32,
        max_sge: u32,
        user: u64,
    ) -> Result<Arc<Self>, NicError> {
        check_size(context, max_wr, max_sge)?;
        context
            .quotas
            .srqs
            .claim("SRQ", context.device().limits().max_srq)?;
        let nic = context.nic();
        let cell = nic
            .xrc
            .insert(nic.qps.slot(), |number| {
                let domain = Arc::clone(&xrcd.domain);
                let xrc = Xrc {
                    number,
                    domain,
                    cq: Arc::clone(&cq.cell),
                };
                Arc::new(SrqCell::new(
                    context,
                    pd.id,
                    max_wr,
                    max_sge,
                    user,
                    Some(xrc),
                ))
            })
            .inspect_err(|_| context.quotas.srqs.release())?;
        cq.cell.users.fetch_add(1, Ordering::AcqRel);
        Ok(Self::with(cell, pd, Some(xrcd)))
    }

    fn with(cell: Arc<SrqCell>, pd: PdUse, xrcd: Option<XrcdUse>) -> Arc<Self> {
        Arc::new(Self {
            cell,
            closed: AtomicBool::new(false),
            pd: Mutex::new(Some(pd)),
            xrcd: Mutex::new(xrcd),
        })
    }

    /// The number by which senders name it; only an SRQ of an XRC domain has one.
    pub fn number(&self) -> Option<u32> {
        self.cell.xrc.as_ref().map(|xrc| xrc.number)
    }

    /// Fails in a forked child, where the locks of the SRQ may be held for ever.
    pub fn usable(&self) -> Result<(), NicError> {
        self.cell.context.usable()
    }

    pub fn post(&self, wr: &RecvWr<'_>) -> Result<(), PostError> {
        if self.usable().is_err() {
            return Err(PostError::WrongState {
                state: QpState::Err,
            });
        }
        self.cell.queue.acquire().post(wr)
    }

    /// Changes the capacity, and arms the limit event. Nothing changes on an error.
    pub fn modify(&self, max_wr: Option<u32>, limit: Option<u32>) -> Result<(), NicError> {
        self.cell.context.usable()?;
        let most = self.cell.context.device().limits().max_srq_wr;
        if let Some(wr) = max_wr
            && (wr == 0 || wr > most)
        {
            return Err(NicError::Invalid {
                what: "srq max_wr",
                value: wr.into(),
                limit: most.into(),
            });
        }
        let mut queue = self.cell.queue.acquire();
        let size = max_wr.unwrap_or_else(|| queue.attrs().max_wr);
        queue.modify(max_wr, limit).map_err(|_| NicError::Invalid {
            what: "srq max_wr or srq_limit (against what is posted)",
            value: limit.unwrap_or(size).into(),
            limit: size.into(),
        })
    }

    pub fn attrs(&self) -> SrqAttr {
        self.cell.queue.acquire().attrs()
    }

    /// Refuses while queue pairs use it, then waits for its events to be acknowledged.
    pub fn destroy(&self) -> Result<(), NicError> {
        self.cell.context.usable()?;
        match self.cell.users.load(Ordering::Acquire) {
            0 => {}
            count => return Err(NicError::Busy { what: "SRQ", count }),
        }
        self.release();
        self.cell.async_events.wait_settled();
        self.cell.context.forget(Source::Srq(self.cell.user));
        Ok(())
    }

    fn release(&self) {
        if !self.closed.swap(true, Ordering::AcqRel) {
            if let Some(xrc) = &self.cell.xrc {
                self.cell.context.nic().xrc.remove(xrc.number);
                xrc.cq.users.fetch_sub(1, Ordering::AcqRel);
            }
            self.cell.context.untrack(Source::Srq(self.cell.user));
            self.cell.context.quotas.srqs.release();
            self.pd.acquire().take();
            self.xrcd.acquire().take();
        }
    }
}

impl Drop for Srq {
    fn drop(&mut self) {
        if self.cell.context.nic().alive() {
            self.release();
        }
    }
}

fn check_size(context: &Context, max_wr: u32, max_sge: u32) -> Result<(), NicError> {
    let limits = context.device().limits();
    if max_wr == 0 || max_wr > limits.max_srq_wr {
        return Err(NicError::Invalid {
            what: "srq max_wr",
            value: max_wr.into(),
            limit: limits.max_srq_wr.into(),
        });
    }
    if max_sge > limits.max_srq_sge {
        return Err(NicError::Invalid {
            what: "srq max_sge",
            value: max_sge.into(),
            limit: limits.max_srq_sge.into(),
        });
    }
    Ok(())
}

impl SrqCell {
    fn new(
        context: &Arc<Context>,
        pd: PdId,
        max_wr: u32,
        max_sge: u32,
        user: u64,
        xrc: Option<Xrc>,
    ) -> Self {
        Self {
            context: Arc::clone(context),
            user,
            queue: Mutex::new(Queue::new(max_wr, max_sge)),
            pd,
            users: AtomicU64::new(0),
            async_events: context.track(Source::Srq(user)),
            xrc,
        }
    }

    pub(crate) fn is_in(&self, domain: &Arc<Domain>) -> bool {
        self.xrc
            .as_ref()
            .is_some_and(|xrc| Arc::ptr_eq(&xrc.domain, domain))
    }

    /// Where receives from it are reported, if not on the CQ of the queue pair.
    pub(crate) fn cq(&self) -> Option<&CqCell> {
        self.xrc.as_ref().map(|xrc| &*xrc.cq)
    }

    pub(crate) fn pd_id(&self) -> PdId {
        self.pd
    }

    /// Takes the oldest entry for a queue pair; announces the limit when this crossed it.
    pub(crate) fn take(&self, into: &mut RecvWqe) -> bool {
        match self.queue.acquire().take(into) {
            None => false,
            Some(limit_reached) => {
                if limit_reached {
                    self.context
                        .raise(AsyncKind::SrqLimitReached, Source::Srq(self.user));
                }
                true
            }
        }
    }
}
