//! Counts against the limits a device advertises.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::NicError;

/// How many objects of a kind a context has, and how many it may.
#[derive(Default)]
pub(crate) struct Quota(AtomicU64);

impl Quota {
    pub(crate) fn claim(&self, what: &'static str, limit: u32) -> Result<(), NicError> {
        self.claim_many(1, what, limit.into())
    }

    pub(crate) fn release(&self) {
        self.release_many(1);
    }

    /// As `claim`, for things that count by size; a limit that the sum would pass is reached.
    pub(crate) fn claim_many(
        &self,
        n: u64,
        what: &'static str,
        limit: u64,
    ) -> Result<(), NicError> {
        self.0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |used| {
                used.checked_add(n).filter(|sum| *sum <= limit)
            })
            .map(|_| ())
            .map_err(|_| NicError::Limit { what, limit })
    }

    pub(crate) fn release_many(&self, n: u64) {
        self.0.fetch_sub(n, Ordering::AcqRel);
    }
}

/// The quotas of a context.
#[derive(Default)]
pub(crate) struct Quotas {
    pub(crate) pds: Quota,
    pub(crate) mrs: Quota,
    pub(crate) mws: Quota,
    pub(crate) dm_bytes: Quota,
    pub(crate) cqs: Quota,
    pub(crate) qps: Quota,
    pub(crate) srqs: Quota,
    pub(crate) ahs: Quota,
}
