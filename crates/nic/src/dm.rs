//! Device memory: blocks that belong to the NIC, reached by copies and through keys.
//!
//! A block needs nothing else of the NIC. So it also works in a forked child, where programs allocate
//! it from a context they inherited.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use adverb_mem::Block;

use crate::context::Context;
use crate::error::NicError;

/// A block of device memory (man ibv_alloc_dm).
pub struct Dm {
    context: Arc<Context>,
    block: Arc<Block>,
    users: Arc<AtomicU64>,
    closed: AtomicBool,
}

/// A region's share of its block, which cannot be freed meanwhile.
pub(crate) struct DmUse(Arc<AtomicU64>);

impl Drop for DmUse {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Blocks are aligned to a page at most.
const MAX_LOG_ALIGN: u32 = 12;

/// What copies must be a multiple of, as on cards.
const COPY_UNIT: u64 = 4;

impl Dm {
    pub(crate) fn new(
        context: &Arc<Context>,
        len: u64,
        log_align: u32,
    ) -> Result<Arc<Self>, NicError> {
        let limit = context.device().limits().max_dm_size;
        if len == 0 || len > limit {
            return Err(NicError::Invalid {
                what: "length",
                value: len,
                limit,
            });
        }
        if log_align > MAX_LOG_ALIGN {
            return Err(NicError::Invalid {
                what: "log_align_req",
                value: log_align.into(),
                limit: MAX_LOG_ALIGN.into(),
            });
        }
        context
            .quotas
            .dm_bytes
            .claim_many(len, "byte of device memory", limit)?;
        let Some(block) = Block::zeroed(len, 1 << log_align) else {
            context.quotas.dm_bytes.release_many(len);
            return Err(NicError::Limit {
                what: "block of device memory",
                limit,
            });
        };
        Ok(Arc::new(Self {
            context: Arc::clone(context),
            block: Arc::new(block),
            users: Arc::default(),
            closed: AtomicBool::new(false),
        }))
    }

    pub fn len(&self) -> u64 {
        self.block.len()
    }

    pub fn is_empty(&self) -> bool {
        self.block.is_empty()
    }

    /// Copies into the block; offset and length are multiples of four.
    pub fn copy_to(&self, offset: u64, bytes: &[u8]) -> Result<(), NicError> {
        check_copy(offset, bytes.len() as u64)?;
        self.block
            .write(offset, bytes)
            .map_err(|_| outside(offset, bytes.len()))
    }

    /// Copies out of the block; offset and length are multiples of four.
    pub fn copy_from(&self, offset: u64, into: &mut [u8]) -> Result<(), NicError> {
        check_copy(offset, into.len() as u64)?;
        let len = into.len();
        self.block
            .read(offset, into)
            .map_err(|_| outside(offset, len))
    }

    /// Refuses while regions are registered on it.
    pub fn free(&self) -> Result<(), NicError> {
        match self.users.load(Ordering::Acquire) {
            0 => {
                self.release();
                Ok(())
            }
            count => Err(NicError::Busy {
                what: "device memory",
                count,
            }),
        }
    }

    pub(crate) fn block(&self) -> Arc<Block> {
        Arc::clone(&self.block)
    }

    pub(crate) fn claim(&self) -> DmUse {
        self.users.fetch_add(1, Ordering::AcqRel);
        DmUse(Arc::clone(&self.users))
    }

    fn release(&self) {
        if !self.closed.swap(true, Ordering::AcqRel) {
            self.context.quotas.dm_bytes.release_many(self.block.len());
        }
    }
}

impl Drop for Dm {
    fn drop(&mut self) {
        self.release();
    }
}

fn check_copy(offset: u64, len: u64) -> Result<(), NicError> {
    if offset.is_multiple_of(COPY_UNIT) && len.is_multiple_of(COPY_UNIT) {
        Ok(())
    } else {
        Err(NicError::BadArgument(
            "offset and length of a copy must be multiples of 4",
        ))
    }
}

fn outside(offset: u64, len: usize) -> NicError {
    NicError::Fault {
        addr: offset,
        len: len as u64,
        why: "outside the block of device memory",
    }
}
