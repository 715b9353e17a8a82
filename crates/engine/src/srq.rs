//! The shared receive queue: a bounded FIFO with a one-shot low-water event.

use crate::error::PostError;
use crate::qp::recv_queue::RecvQueue;
use crate::wr::{RecvWqe, RecvWr};

/// What a query of an SRQ shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SrqAttr {
    pub max_wr: u32,
    pub max_sge: u32,
    /// Zero when no event is armed.
    pub limit: u32,
}

/// Why a modify was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SrqError {
    #[error("{posted} receive requests do not fit a queue of {wanted}")]
    TooSmall { posted: u32, wanted: u32 },
    #[error("limit {limit} is above the queue's size {max_wr}")]
    Limit { limit: u32, max_wr: u32 },
}

/// A shared receive queue.
#[derive(Debug)]
pub struct Srq {
    queue: RecvQueue,
    limit: u32,
}

impl Srq {
    pub fn new(max_wr: u32, max_sge: u32) -> Self {
        Self {
            queue: RecvQueue::new(max_wr, max_sge),
            limit: 0,
        }
    }

    pub fn post(&mut self, wr: &RecvWr<'_>) -> Result<(), PostError> {
        self.queue.push(wr)
    }

    /// Moves the oldest entry into `into`. `Some(true)` says that the fill has just dropped below
    /// the armed limit: raise the event. That happens once per arming.
    pub fn take(&mut self, into: &mut RecvWqe) -> Option<bool> {
        if !self.queue.pop_into(into) {
            return None;
        }
        let reached = self.queue.len() < self.limit;
        if reached {
            self.limit = 0;
        }
        Some(reached)
    }

    /// Changes size and limit, both or neither.
    pub fn modify(&mut self, max_wr: Option<u32>, limit: Option<u32>) -> Result<(), SrqError> {
        let size = max_wr.unwrap_or_else(|| self.queue.capacity());
        if size < self.queue.len() || size == 0 {
            return Err(SrqError::TooSmall {
                posted: self.queue.len(),
                wanted: size,
            });
        }
        if let Some(limit) = limit
            && limit > size
        {
            return Err(SrqError::Limit {
                limit,
                max_wr: size,
            });
        }
        if size != self.queue.capacity() {
            self.queue.resize(size);
        }
        if let Some(limit) = limit {
            self.limit = limit;
        }
        Ok(())
    }

    pub fn attrs(&self) -> SrqAttr {
        SrqAttr {
            max_wr: self.queue.capacity(),
            max_sge: self.queue.max_sge(),
            limit: self.limit,
        }
    }

    pub fn len(&self) -> u32 {
        self.queue.len()
    }

    pub fn is_empty(&self) -> bool {
        self.queue.len() == 0
    }
}
