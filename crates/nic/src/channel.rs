//! Completion channels: where a thread sleeps until a CQ has something.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::context::Context;
use crate::cq::CqCell;
use crate::error::NicError;
use crate::event_queue::EventQueue;
use crate::waiter::{Step, Waiter};

/// A completion channel (man ibv_create_comp_channel).
pub struct Channel {
    context: Arc<Context>,
    pub(crate) events: EventQueue<Arc<CqCell>>,
    pub(crate) cqs: AtomicU64,
}

impl Channel {
    pub(crate) fn new(context: &Arc<Context>) -> Result<Arc<Self>, NicError> {
        let events = EventQueue::new().map_err(NicError::io("making a completion channel"))?;
        Ok(Arc::new(Self {
            context: Arc::clone(context),
            events,
            cqs: AtomicU64::new(0),
        }))
    }

    pub fn fd(&self) -> RawFd {
        self.events.fd().as_raw_fd()
    }

    /// Looks for the next CQ that fired, by its user token. Whoever waits for it drives the NIC
    /// itself meanwhile, so that a wake-up costs one context switch.
    ///
    /// Errors: EAGAIN when the descriptor is in non-blocking mode, EBADF after a fork.
    pub fn next_event(&self, waiter: &mut Waiter) -> io::Result<Step<u64>> {
        waiter.look(
            self.context.nic(),
            self.events.fd(),
            || self.events.nonblocking(),
            || self.take(),
        )
    }

    /// The same, but if there is none the thread stays awake, and looks again soon.
    pub fn next_event_awake(&self, waiter: &mut Waiter) -> io::Result<Option<u64>> {
        waiter.look_awake(
            self.context.nic(),
            || self.events.nonblocking(),
            || self.take(),
        )
    }

    fn take(&self) -> Option<u64> {
        self.events.take().map(|cq| {
            cq.completion_events.delivered();
            cq.user
        })
    }

    /// Refuses while CQs report here.
    pub fn destroy(&self) -> Result<(), NicError> {
        match self.cqs.load(Ordering::Acquire) {
            0 => Ok(()),
            count => Err(NicError::Busy {
                what: "completion channel",
                count,
            }),
        }
    }
}
