//! Counts against the limits a device advertises.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::NicError;

/// How many objects of a kind a context has, and how many it may.
#[derive(Default)]
pub(crate) struct Quota(AtomicU64);

impl Quota {
    pub(crate) fn claim(&self, what: &'static str, limit: u32) -> Result<(), NicError> {
        let limit = u64::from(limit);
        self.0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| (n < limit).then_some(n + 1))
            .map(|_| ())
            .map_err(|_| NicError::Limit { what, limit })
    }

    pub(crate) fn release(&self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The quotas of a context.
#[derive(Default)]
pub(crate) struct Quotas {
    pub(crate) pds: Quota,
    pub(crate) mrs: Quota,
    pub(crate) cqs: Quota,
    pub(crate) qps: Quota,
    pub(crate) srqs: Quota,
    pub(crate) ahs: Quota,
}
