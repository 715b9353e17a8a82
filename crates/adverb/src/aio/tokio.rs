//! The reactor of tokio.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::task::{Context, Poll, ready};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;
use tokio::task::unconstrained;

use super::{Descriptor, Readiness};

/// Watches by the reactor of the tokio runtime in which it was made.
#[derive(Debug)]
pub struct Tokio(AsyncFd<Descriptor>);

impl Tokio {
    /// Whether there is a runtime of tokio here.
    pub(crate) fn is_here() -> bool {
        Handle::try_current().is_ok()
    }

    /// Watches from now on.
    ///
    /// # Errors
    /// The operating system's.
    ///
    /// # Panics
    /// Outside of a runtime of tokio, or if it was built without `enable_io`.
    pub fn new(descriptor: Descriptor) -> io::Result<Self> {
        // SAFETY: a `Descriptor` holds its owner, which keeps the same descriptor open all the time.
        let watched = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) };
        Ok(Self(watched?))
    }
}

impl Readiness for Tokio {
    fn poll_io(
        &self,
        cx: &mut Context<'_>,
        attempt: &mut dyn FnMut() -> io::Result<()>,
    ) -> Poll<io::Result<()>> {
        loop {
            // A task whose budget is used up would be told to come again at once, although nothing is readable.
            let ready = pin!(unconstrained(poll_fn(|cx| self.0.poll_read_ready(cx))));
            let mut guard = ready!(ready.poll(cx))?;
            match guard.try_io(|_| attempt()) {
                Ok(result) => return Poll::Ready(result),
                Err(_would_block) => {}
            }
        }
    }
}
