//! Events that a device raises on its own.

use std::fmt;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use adverb_abi::types::{self as c, Zeroed};

use crate::context::Context;
use crate::error::Result;
use crate::sync::{deadline, left};
use crate::sys;

/// Something happened that belongs to no operation (ibv_get_async_event(3)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "ibv_async_event")]
pub struct AsyncEvent {
    /// What.
    pub kind: AsyncEventKind,
    /// To whom.
    pub source: EventSource,
}

/// Whom an event concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EventSource {
    /// The queue pair of this number.
    QueuePair(u32),
    /// The completion queue with this handle ([`CompletionQueue::handle`](crate::CompletionQueue::handle)).
    CompletionQueue(u32),
    /// The shared receive queue with this handle ([`SharedReceiveQueue::handle`](crate::SharedReceiveQueue::handle)).
    SharedReceiveQueue(u32),
    /// The port of this number.
    Port(u8),
    /// The device.
    Device,
}

/// Kind of an event. A number, because devices may add to the list.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_event_type")]
pub struct AsyncEventKind(pub u32);

macro_rules! kinds {
    ($($name:ident = $value:expr, $text:literal;)*) => {
        impl AsyncEventKind {
            $(#[doc = $text] pub const $name: Self = Self($value);)*
        }

        impl fmt::Debug for AsyncEventKind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match *self {
                    $(Self::$name => f.write_str(stringify!($name)),)*
                    Self(other) => write!(f, "AsyncEventKind({other})"),
                }
            }
        }
    };
}

kinds! {
    CQ_ERR = c::IBV_EVENT_CQ_ERR, "A completion queue overflowed.";
    QP_FATAL = c::IBV_EVENT_QP_FATAL, "A queue pair failed for a reason that no completion tells.";
    QP_REQ_ERR = c::IBV_EVENT_QP_REQ_ERR, "A peer sent an invalid request.";
    QP_ACCESS_ERR = c::IBV_EVENT_QP_ACCESS_ERR, "A peer tried to reach memory that it may not.";
    COMM_EST = c::IBV_EVENT_COMM_EST, "The first message came in while the queue pair was ready to receive only.";
    SQ_DRAINED = c::IBV_EVENT_SQ_DRAINED, "A send queue is drained, as asked for.";
    PATH_MIG = c::IBV_EVENT_PATH_MIG, "A connection migrated to its alternate path.";
    PATH_MIG_ERR = c::IBV_EVENT_PATH_MIG_ERR, "A connection failed to migrate.";
    DEVICE_FATAL = c::IBV_EVENT_DEVICE_FATAL, "The device failed.";
    PORT_ACTIVE = c::IBV_EVENT_PORT_ACTIVE, "A port came up.";
    PORT_ERR = c::IBV_EVENT_PORT_ERR, "A port went down.";
    LID_CHANGE = c::IBV_EVENT_LID_CHANGE, "A port's local identifier changed.";
    PKEY_CHANGE = c::IBV_EVENT_PKEY_CHANGE, "A port's partition keys changed.";
    SM_CHANGE = c::IBV_EVENT_SM_CHANGE, "The subnet manager changed.";
    SRQ_ERR = c::IBV_EVENT_SRQ_ERR, "A shared receive queue failed.";
    SRQ_LIMIT_REACHED = c::IBV_EVENT_SRQ_LIMIT_REACHED, "A shared receive queue fell below its limit.";
    QP_LAST_WQE_REACHED = c::IBV_EVENT_QP_LAST_WQE_REACHED, "A failed queue pair will take nothing more from its shared receive queue.";
    CLIENT_REREGISTER = c::IBV_EVENT_CLIENT_REREGISTER, "The subnet manager wants subscriptions renewed.";
    GID_CHANGE = c::IBV_EVENT_GID_CHANGE, "A port's addresses changed.";
}

impl Context {
    /// Waits for an event of device, port, queue pair, completion queue or shared receive queue
    /// (ibv_get_async_event(3)); it is acknowledged at once. `None` when the time is up first;
    /// no timeout waits for ever.
    ///
    /// # Errors
    /// [`Error::Verb`](crate::Error::Verb), [`Error::Io`](crate::Error::Io).
    #[doc(alias = "ibv_get_async_event")]
    pub fn next_event(&self, timeout: Option<Duration>) -> Result<Option<AsyncEvent>> {
        let deadline = deadline(timeout);
        loop {
            let left = left(deadline);
            if !sys::wait_readable(self.as_fd().as_raw_fd(), left)? {
                if left.is_some_and(|l| l.is_zero()) {
                    return Ok(None);
                }
                continue;
            }
            // `None`: another thread was faster, or a signal came.
            if let Some(event) = self.try_event()? {
                return Ok(Some(event));
            }
        }
    }

    /// An event that is there, acknowledged.
    pub(crate) fn try_event(&self) -> Result<Option<AsyncEvent>> {
        let mut raw = c::ibv_async_event::zeroed();
        // SAFETY: the context is open and `raw` has room for the event.
        let rc = unsafe { (self.inner.verbs.get_async_event)(self.as_raw(), &raw mut raw) };
        if rc != 0 {
            return match sys::last_errno() {
                libc::EAGAIN | libc::EINTR => Ok(None),
                errno => Err(sys::failure("ibv_get_async_event", &self.inner.name, errno)),
            };
        }
        let kind = AsyncEventKind(raw.event_type);
        // SAFETY: the member of the union is the one of the event's type, and its object stays
        // until the event is acknowledged, because destroying it waits for that.
        let source = unsafe { source_of(kind, &raw) };
        // SAFETY: an event just got, acknowledged once.
        unsafe { (self.inner.verbs.ack_async_event)(&raw mut raw) };
        Ok(Some(AsyncEvent { kind, source }))
    }
}

/// # Safety
/// `raw` is an event of this kind that is not acknowledged yet.
unsafe fn source_of(kind: AsyncEventKind, raw: &c::ibv_async_event) -> EventSource {
    use AsyncEventKind as K;
    // SAFETY: see above.
    unsafe {
        match kind {
            K::CQ_ERR => EventSource::CompletionQueue((*raw.element.cq).handle),
            K::QP_FATAL
            | K::QP_REQ_ERR
            | K::QP_ACCESS_ERR
            | K::COMM_EST
            | K::SQ_DRAINED
            | K::PATH_MIG
            | K::PATH_MIG_ERR
            | K::QP_LAST_WQE_REACHED => EventSource::QueuePair((*raw.element.qp).qp_num),
            K::SRQ_ERR | K::SRQ_LIMIT_REACHED => {
                EventSource::SharedReceiveQueue((*raw.element.srq).handle)
            }
            K::PORT_ACTIVE
            | K::PORT_ERR
            | K::LID_CHANGE
            | K::PKEY_CHANGE
            | K::SM_CHANGE
            | K::CLIENT_REREGISTER
            | K::GID_CHANGE => EventSource::Port(raw.element.port_num as u8),
            _ => EventSource::Device,
        }
    }
}
