//! How futures learn that a descriptor has become readable.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::task::{Context, Poll};

/// A descriptor of this library. It stays open as long as this value lives, and is non-blocking.
pub struct Descriptor(Arc<dyn AsFd + Send + Sync>);

impl Descriptor {
    pub(crate) fn new(owner: Arc<dyn AsFd + Send + Sync>) -> Self {
        Self(owner)
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl fmt::Debug for Descriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Descriptor").field(&self.as_fd()).finish()
    }
}

/// Watches one descriptor: what an event loop has to offer.
///
/// Only the waker of the latest call is woken, and it may be woken for nothing. Waking it does work of this library,
/// which calls [`poll_io`](Self::poll_io) again: locks that this needs must not be held then.
pub trait Readiness: Send + Sync + 'static {
    /// Calls `attempt` until it succeeds, or says `WouldBlock` and the descriptor is not readable: then the
    /// waker of `cx` is woken as soon as it is.
    ///
    /// # Errors
    /// What `attempt` returns but `WouldBlock`; any other when the event loop is gone. The library's own thread watches
    /// then.
    fn poll_io(
        &self,
        cx: &mut Context<'_>,
        attempt: &mut dyn FnMut() -> io::Result<()>,
    ) -> Poll<io::Result<()>>;
}

/// The usual watcher here: tokio's reactor (feature `tokio`) inside a runtime of tokio, else async-io's (feature
/// `async-io`), else a thread of this library.
///
/// # Errors
/// The operating system's.
///
/// # Panics
/// As `tokio::io::unix::AsyncFd` does inside a runtime of tokio that was built without `enable_io`.
pub fn watch(descriptor: Descriptor) -> io::Result<Box<dyn Readiness>> {
    #[cfg(feature = "tokio")]
    if super::Tokio::is_here() {
        return Ok(Box::new(super::Tokio::new(descriptor)?));
    }
    #[cfg(feature = "async-io")]
    return Ok(Box::new(super::AsyncIo::new(descriptor)?));
    #[cfg(not(feature = "async-io"))]
    Ok(Box::new(super::Thread::new(descriptor)?))
}
