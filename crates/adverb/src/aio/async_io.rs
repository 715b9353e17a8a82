//! The reactor of async-io, which smol and others use.

use std::io;
use std::task::{Context, Poll, ready};

use async_io::Async;

use super::{Descriptor, Readiness};

/// Watches by the reactor of async-io, a thread that starts when it is first needed.
#[derive(Debug)]
pub struct AsyncIo(Async<Descriptor>);

impl AsyncIo {
    /// Watches from now on.
    ///
    /// # Errors
    /// The operating system's.
    pub fn new(descriptor: Descriptor) -> io::Result<Self> {
        Ok(Self(Async::new_nonblocking(descriptor)?))
    }
}

impl Readiness for AsyncIo {
    fn poll_io(
        &self,
        cx: &mut Context<'_>,
        attempt: &mut dyn FnMut() -> io::Result<()>,
    ) -> Poll<io::Result<()>> {
        loop {
            match attempt() {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
            ready!(self.0.poll_readable(cx))?;
        }
    }
}
