//! Completion channels: file descriptors that become readable when an armed queue has news.

use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use adverb_abi::types as c;

use crate::context::{Context, ContextInner};
use crate::cq::{CompletionQueue, CqInner};
use crate::error::Result;
use crate::sync::{deadline, lock};
use crate::sys;

pub(crate) struct ChannelInner {
    raw: NonNull<c::ibv_comp_channel>,
    ctx: Arc<ContextInner>,
    members: Mutex<Vec<(usize, Weak<CqInner>)>>,
    /// Whether somebody is getting events. One at a time: two sleepers on one descriptor would
    /// each be woken for the other's event.
    busy: Mutex<bool>,
    free: Condvar,
}

// SAFETY: every verb may be called from any thread, and the pointer is owned by this value.
unsafe impl Send for ChannelInner {}
// SAFETY: as above.
unsafe impl Sync for ChannelInner {}

impl ChannelInner {
    pub(crate) fn new(ctx: &Arc<ContextInner>) -> Result<Arc<Self>> {
        // SAFETY: the context is open.
        let raw = unsafe { (ctx.verbs.create_comp_channel)(ctx.raw()) };
        let raw = sys::non_null(raw, "ibv_create_comp_channel", &ctx.name)?;
        Ok(Arc::new(Self {
            raw,
            ctx: Arc::clone(ctx),
            members: Mutex::default(),
            busy: Mutex::new(false),
            free: Condvar::new(),
        }))
    }

    pub(crate) fn raw(&self) -> *mut c::ibv_comp_channel {
        self.raw.as_ptr()
    }

    pub(crate) fn join(&self, cq: *mut c::ibv_cq, handle: Weak<CqInner>) {
        lock(&self.members).push((cq as usize, handle));
    }

    pub(crate) fn leave(&self, cq: *mut c::ibv_cq) {
        lock(&self.members).retain(|(addr, _)| *addr != cq as usize);
    }

    pub(crate) fn member(&self, cq: *mut c::ibv_cq) -> Option<CompletionQueue> {
        let members = lock(&self.members);
        let (_, handle) = members.iter().find(|(addr, _)| *addr == cq as usize)?;
        handle.upgrade().map(|inner| CompletionQueue { inner })
    }

    /// From now on getting an event never sleeps.
    pub(crate) fn set_nonblocking(&self) -> Result<()> {
        sys::set_nonblocking(self.as_fd())?;
        Ok(())
    }

    /// An event that is there, acknowledged, for whoever has made the descriptor non-blocking; the pointer only says
    /// which queue it was.
    pub(crate) fn try_event(&self) -> Result<Option<*mut c::ibv_cq>> {
        let mut cq = ptr::null_mut();
        let mut user = ptr::null_mut();
        // SAFETY: the channel is alive and both places are valid.
        let rc = unsafe { (self.ctx.verbs.get_cq_event)(self.raw(), &raw mut cq, &raw mut user) };
        if rc != 0 {
            return match sys::last_errno() {
                libc::EINTR | libc::EAGAIN => Ok(None),
                errno => Err(sys::failure("ibv_get_cq_event", &self.ctx.name, errno)),
            };
        }
        // SAFETY: the queue of an event that is not acknowledged yet exists, because destroying
        // it waits for that.
        unsafe { (self.ctx.verbs.ack_cq_events)(cq, 1) };
        Ok(Some(cq))
    }

    /// The right to get events, or `None` when the time is up first.
    pub(crate) fn turn(&self, deadline: Option<Instant>) -> Option<Turn<'_>> {
        let mut busy = lock(&self.busy);
        while *busy {
            busy = match deadline {
                None => self.free.wait(busy).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return None;
                    }
                    self.free
                        .wait_timeout(busy, left)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
            };
        }
        *busy = true;
        Some(Turn { channel: self })
    }
}

impl AsFd for ChannelInner {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel is alive, and its descriptor with it.
        unsafe { BorrowedFd::borrow_raw((*self.raw.as_ptr()).fd) }
    }
}

impl Drop for ChannelInner {
    fn drop(&mut self) {
        // SAFETY: every completion queue on the channel holds an `Arc` of this value. An error
        // means that one of them was leaked, and leaks the channel.
        unsafe { (self.ctx.verbs.destroy_comp_channel)(self.raw.as_ptr()) };
    }
}

/// The right to get events of a channel.
pub(crate) struct Turn<'a> {
    channel: &'a ChannelInner,
}

impl Turn<'_> {
    /// The next event, acknowledged; the pointer only says which queue it was. `None` when the
    /// time is up, or after a signal.
    pub(crate) fn next(&self, timeout: Option<Duration>) -> Result<Option<*mut c::ibv_cq>> {
        let ctx = &self.channel.ctx;
        // Where the library does the waiting, the software NIC needs one context switch less.
        if let Some(timeout) = timeout.filter(|timeout| !timeout.is_zero())
            && let Some(next) = self.next_of_soft(timeout)
        {
            return next;
        }
        if timeout.is_some() && !sys::wait_readable(self.channel.as_fd().as_raw_fd(), timeout)? {
            return Ok(None);
        }
        let mut cq = ptr::null_mut();
        let mut user = ptr::null_mut();
        // SAFETY: the channel is alive and both places are valid.
        let rc =
            unsafe { (ctx.verbs.get_cq_event)(self.channel.raw(), &raw mut cq, &raw mut user) };
        if rc != 0 {
            return match sys::last_errno() {
                libc::EINTR => Ok(None),
                // The descriptor was made non-blocking: wait here instead.
                libc::EAGAIN => {
                    sys::wait_readable(self.channel.as_fd().as_raw_fd(), timeout)?;
                    Ok(None)
                }
                errno => Err(sys::failure("ibv_get_cq_event", &ctx.name, errno)),
            };
        }
        // SAFETY: the queue of an event that is not acknowledged yet exists, because destroying
        // it waits for that.
        unsafe { (ctx.verbs.ack_cq_events)(cq, 1) };
        Ok(Some(cq))
    }
}

impl Turn<'_> {
    /// The same from the software NIC, which knows how to wait for a while. `None` on other devices, and where
    /// the descriptor was made non-blocking.
    #[cfg(feature = "soft")]
    fn next_of_soft(&self, timeout: Duration) -> Option<Result<Option<*mut c::ibv_cq>>> {
        let ctx = &self.channel.ctx;
        if !ptr::eq(ctx.verbs, adverb_provider::verbs()) {
            return None;
        }
        // SAFETY: the channel is alive, and one of the software NIC's.
        match unsafe { adverb_provider::next_cq_event(self.channel.raw(), timeout) } {
            Ok(cq) => {
                if let Some(cq) = cq {
                    // SAFETY: as in `next`.
                    unsafe { (ctx.verbs.ack_cq_events)(cq, 1) };
                }
                Some(Ok(cq))
            }
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN) => None,
                errno => Some(Err(sys::failure(
                    "ibv_get_cq_event",
                    &ctx.name,
                    errno.unwrap_or(libc::EIO),
                ))),
            },
        }
    }

    #[cfg(not(feature = "soft"))]
    fn next_of_soft(&self, _timeout: Duration) -> Option<Result<Option<*mut c::ibv_cq>>> {
        None
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *lock(&self.channel.busy) = false;
        self.channel.free.notify_one();
    }
}

/// A channel that tells which of several completion queues has news. Clones are handles to the
/// same one.
///
/// Arm the queues ([`CompletionQueue::arm`]), poll them once more, then wait here.
#[derive(Clone)]
#[doc(alias = "ibv_comp_channel")]
pub struct CompletionChannel {
    pub(crate) inner: Arc<ChannelInner>,
}

impl Context {
    /// A completion channel that several completion queues can share
    /// (ibv_create_comp_channel(3)). A queue that waits alone gets its own by default.
    ///
    /// # Errors
    /// [`Error::Verb`](crate::Error::Verb).
    #[doc(alias = "ibv_create_comp_channel")]
    pub fn create_channel(&self) -> Result<CompletionChannel> {
        Ok(CompletionChannel {
            inner: ChannelInner::new(&self.inner)?,
        })
    }
}

impl CompletionChannel {
    /// Waits for the next event and says whose it is (ibv_get_cq_event(3)); it is acknowledged
    /// at once. The queue is no longer armed then. `None` when the time is up first; no timeout
    /// waits for ever.
    ///
    /// # Errors
    /// [`Error::Verb`](crate::Error::Verb), [`Error::Io`](crate::Error::Io).
    #[doc(alias = "ibv_get_cq_event")]
    #[doc(alias = "ibv_ack_cq_events")]
    pub fn next_event(&self, timeout: Option<Duration>) -> Result<Option<CompletionQueue>> {
        let deadline = deadline(timeout);
        let Some(turn) = self.inner.turn(deadline) else {
            return Ok(None);
        };
        loop {
            let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            // An event of a queue that is gone by now is nobody's.
            if let Some(cq) = turn.next(left)?.and_then(|cq| self.inner.member(cq)) {
                return Ok(Some(cq));
            }
            if left.is_some_and(|l| l.is_zero()) {
                return Ok(None);
            }
        }
    }

    /// The C object; valid while this handle lives; must not be destroyed.
    pub fn as_raw(&self) -> *mut c::ibv_comp_channel {
        self.inner.raw()
    }
}

/// Readable when [`CompletionChannel::next_event`] has something.
impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

crate::sync::equal_by_identity!(CompletionChannel);

impl fmt::Debug for CompletionChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionChannel")
            .field("fd", &self.as_fd())
            .finish_non_exhaustive()
    }
}
