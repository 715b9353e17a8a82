//! A connection that stands.

use std::fmt;
use std::net::SocketAddr;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Mutex;
use std::time::Duration;

use super::connecting::Pair;
use super::event::ConnectionEvent;
use super::id::Id;
use crate::batch::Batch;
use crate::cq::CompletionQueue;
use crate::error::Result;
use crate::qp::QueuePair;
use crate::sync::{deadline, left, lock};
use crate::sys;
use crate::transport::Rc;
use crate::wait::{Notify, Repolled};
use crate::wc::Completion;

/// How far its end has come.
#[derive(Default)]
struct End {
    /// We have said that it is over, or answered the peer.
    told: bool,
    /// It is over for both.
    over: bool,
}

/// A connection: a queue pair, and the line to the peer that tells when it is over.
///
/// Everything a [`QueuePair`] can do works on it, by `Deref`; made from a queue pair of
/// [`aio`](crate::aio), its operations are futures. Whoever only waits for completions
/// does not hear that the peer has hung up: what the peer has not sent by then never completes.
/// Look for events too ([`next_event`](Self::next_event), or watch the descriptor); when the end
/// is heard of, the queue pair goes into the error state, and everything outstanding completes.
///
/// Dropping it hangs up, and then drops the queue pair.
#[doc(alias = "rdma_cm_id")]
pub struct Connection<Q: Pair = QueuePair<Rc>> {
    // Dropped in this order.
    qp: Q,
    pub(super) id: Id,
    end: Mutex<End>,
    private_data: Vec<u8>,
}

impl<Q: Pair> Connection<Q> {
    pub(super) fn new(qp: Q, id: Id) -> Self {
        Self {
            qp,
            id,
            end: Mutex::default(),
            private_data: Vec::new(),
        }
    }

    pub(super) fn established(mut self, private_data: Vec<u8>) -> Self {
        self.private_data = private_data;
        self
    }

    /// What the peer sent along when it accepted, filled up with zeros; empty on the side that
    /// accepted.
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// The address and port on this side.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.id.local_addr()
    }

    /// The peer's address and port.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.id.peer_addr()
    }

    /// The queue pair.
    pub fn qp(&self) -> &Q {
        &self.qp
    }

    /// Waits for something to happen to the connection; `None` when the time is up first, and no
    /// timeout waits for ever. Once it is over, the answer is [`ConnectionEvent::Disconnected`], as
    /// often as asked.
    ///
    /// # Errors
    /// [`Error::Verb`](crate::Error::Verb), [`Error::Io`](crate::Error::Io).
    #[doc(alias = "rdma_get_cm_event")]
    pub fn next_event(&self, timeout: Option<Duration>) -> Result<Option<ConnectionEvent>> {
        let until = deadline(timeout);
        loop {
            if let Some(event) = self.try_event()? {
                return Ok(Some(event));
            }
            if !self.id.wait(until)? {
                return Ok(None);
            }
        }
    }

    /// What has happened to the connection, without waiting. When there is nothing, watch the
    /// descriptor.
    ///
    /// # Errors
    /// [`Error::Verb`](crate::Error::Verb).
    pub fn try_event(&self) -> Result<Option<ConnectionEvent>> {
        if lock(&self.end).over {
            return Ok(Some(ConnectionEvent::Disconnected));
        }
        while let Some(event) = self.id.try_event()? {
            let event = event.of_connection();
            if event == Some(ConnectionEvent::Disconnected) {
                // Which also answers the peer.
                self.disconnect()?;
                lock(&self.end).over = true;
            }
            if event.is_some() {
                return Ok(event);
            }
        }
        Ok(None)
    }

    /// Hangs up: the queue pair goes into the error state, everything outstanding completes as
    /// flushed, and the peer is told. That it has heard is an event. Again does nothing.
    ///
    /// # Errors
    /// [`Error::Verb`](crate::Error::Verb).
    #[doc(alias = "rdma_disconnect")]
    pub fn disconnect(&self) -> Result<()> {
        let mut end = lock(&self.end);
        if end.told {
            return Ok(());
        }
        self.qp.borrow().abort()?;
        match self.id.disconnect() {
            // The peer was faster.
            Err(error) if matches!(error.errno(), Some(libc::EINVAL | libc::ENOTCONN)) => {}
            told => told?,
        }
        end.told = true;
        Ok(())
    }

    /// Waits for completions, or for the end of the connection; then what it has flushed completes.
    /// Appends them to `out` and says how many: 0 when the connection is over and nothing is left,
    /// or when the time is up; no timeout waits for ever. It sleeps when there is nothing.
    ///
    /// # Errors
    /// [`Error::NoChannel`](crate::Error::NoChannel) when the completion queue has no channel of its
    /// own; as [`CompletionQueue::poll`] and [`next_event`](Self::next_event).
    pub fn wait(
        &self,
        cq: &CompletionQueue,
        out: &mut Vec<Completion>,
        timeout: Option<Duration>,
    ) -> Result<usize> {
        let until = deadline(timeout);
        loop {
            // In this order: what the end has flushed is there when it has been heard of.
            let over = self.try_event()? == Some(ConnectionEvent::Disconnected);
            cq.take_events()?;
            let sleep = match cq.arm(Notify::Any)?.repoll(out)? {
                Repolled::Found(found) => return Ok(found),
                Repolled::Empty(sleep) => sleep,
            };
            let left = left(until);
            if over || left.is_some_and(|left| left.is_zero()) {
                return Ok(0);
            }
            sys::wait_any_readable([self.as_fd(), sleep.fd()?], left)?;
        }
    }
}

impl Connection {
    /// As [`QueuePair::batch`].
    pub fn batch(&mut self) -> Batch<'_, Rc> {
        self.qp.batch()
    }

    /// Hangs up, waits until the peer's program has heard of it or the time is up, closes the queue
    /// pair, and returns the completions that nobody has polled ([`QueuePair::close`]). Without the
    /// wait a peer behind a network that loses packets may hear of it late.
    ///
    /// # Errors
    /// As [`disconnect`](Self::disconnect) and [`QueuePair::close`].
    pub fn close(mut self, timeout: Option<Duration>) -> Result<Vec<Completion>> {
        self.disconnect()?;
        let until = deadline(timeout);
        while self.try_event()? != Some(ConnectionEvent::Disconnected) && self.id.wait(until)? {}
        self.qp.end()
    }
}

impl<Q: Pair> Drop for Connection<Q> {
    fn drop(&mut self) {
        // There is nobody to tell about an error, and what follows does the same more roughly.
        let _ = self.disconnect();
    }
}

impl<Q: Pair> Deref for Connection<Q> {
    type Target = Q;

    fn deref(&self) -> &Q {
        &self.qp
    }
}

impl<Q: Pair> AsFd for Connection<Q> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.id.as_fd()
    }
}

impl<Q: Pair> fmt::Debug for Connection<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("peer", &self.peer_addr())
            .field("local", &self.local_addr())
            .field("qp", self.qp.borrow())
            .finish_non_exhaustive()
    }
}
