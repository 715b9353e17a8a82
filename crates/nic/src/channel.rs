//! Completion channels: where a thread sleeps until a CQ has something.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::context::Context;
use crate::cq::CqCell;
use crate::error::NicError;
use crate::event_queue::EventQueue;

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

    /// The next CQ that fired, by its user token. Waits when the descriptor is in blocking mode,
    /// and drives the NIC itself meanwhile, so that a wake-up costs one context switch.
    ///
    /// Errors: EAGAIN in non-blocking mode, EINTR when a signal came, EBADF after a fork.
    pub fn next_event(&self) -> io::Result<u64> {
        let nic = self.context.nic();
        if !nic.alive() {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        let take = || {
            self.events.take().map(|cq| {
                cq.completion_events.delivered();
                cq.user
            })
        };
        if let Some(user) = take() {
            return Ok(user);
        }
        nic.drive_for_user();
        if let Some(user) = take() {
            return Ok(user);
        }
        if self.events.nonblocking()? {
            return Err(io::Error::from_raw_os_error(libc::EAGAIN));
        }
        nic.wait_driving(self.events.fd(), take)
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
