//! A completion queue whose completions go to futures.

use std::fmt;
use std::io;
use std::sync::Arc;

use super::desk::Desk;
use super::inbox::Inbox;
use super::pace::Pace;
use super::qp::QueuePair;
use super::readiness::{Descriptor, Readiness, watch};
use crate::cq::CompletionQueue;
use crate::error::Result;
use crate::transport::Transport;
use crate::wait::Wait;

/// A completion queue whose completions go to futures. Clones are handles to the same one.
///
/// While there is one, or something attached to it, the completion queue itself refuses to be polled, armed and waited for
/// ([`Error::Driven`](crate::Error::Driven)). Afterwards it has what no future has taken.
#[derive(Clone)]
pub struct Queue(Arc<Desk>);

impl Queue {
    /// Takes over a queue, which has a channel of its own, and has its descriptor watched as [`watch`] says.
    ///
    /// # Errors
    /// [`Error::NoChannel`](crate::Error::NoChannel); [`Error::Driven`](crate::Error::Driven) when it has been taken
    /// over already; [`Error::Io`](crate::Error::Io).
    ///
    /// # Panics
    /// Inside a runtime of tokio that was built without `enable_io`, with feature `tokio`.
    pub fn new(cq: CompletionQueue) -> Result<Self> {
        Ok(Self(Desk::new(cq, watch)?))
    }

    /// Takes over a queue, with another watcher:
    ///
    /// ```
    /// # fn main() -> Result<(), adverb::Error> {
    /// # if cfg!(not(feature = "soft")) { return Ok(()) }
    /// use adverb::aio::{Queue, Thread};
    /// let cq = adverb::open_default()?.create_cq(16).build()?;
    /// let queue = Queue::with(cq, Thread::new)?;
    /// # let _ = queue;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`new`](Self::new), and what `watch` returns.
    pub fn with<R: Readiness>(
        cq: CompletionQueue,
        watch: impl FnOnce(Descriptor) -> io::Result<R>,
    ) -> Result<Self> {
        let boxed =
            |descriptor| -> io::Result<Box<dyn Readiness>> { Ok(Box::new(watch(descriptor)?)) };
        Ok(Self(Desk::new(cq, boxed)?))
    }

    /// The completion queue, to make queue pairs on.
    pub fn cq(&self) -> &CompletionQueue {
        &self.0.cq
    }

    /// How tasks wait that find nothing: adaptively ([`Wait::default`]) unless set. The first queue of a process takes
    /// 10 ms more, in which a wake-up is measured. Those that still look are polled again by their
    /// runtime, after others had their turn.
    ///
    /// | | |
    /// |---|---|
    /// | `Busy` | they look for ever, and never sleep |
    /// | `Event` | they sleep at once |
    /// | `Adaptive` | they look for as long as pays, within its limits; naps until a message is due are left out |
    pub fn set_wait(&self, how: Wait) {
        self.0.with(|state| {
            state.pace = Pace::new(how);
            // Whoever sleeps sleeps otherwise from now on.
            state.table.wake_all();
        });
    }

    /// Makes the operations of a queue pair futures. Both of its queues complete on this completion queue.
    ///
    /// # Errors
    /// [`Error::Foreign`](crate::Error::Foreign) when they do not.
    pub fn attach<T: Transport>(&self, qp: crate::QueuePair<T>) -> Result<QueuePair<T>> {
        QueuePair::attach(qp, &self.inbox())
    }

    /// The same with an inbox that it shares with others, such as those of one shared receive queue.
    ///
    /// # Errors
    /// As [`attach`](Self::attach); the inbox is of this queue.
    pub fn attach_to<T: Transport>(
        &self,
        qp: crate::QueuePair<T>,
        inbox: &Inbox,
    ) -> Result<QueuePair<T>> {
        QueuePair::attach(qp, inbox)
    }

    /// An inbox for several queue pairs.
    pub fn inbox(&self) -> Inbox {
        Inbox::open(&self.0)
    }

    /// What no future waits for: completions of `post_*` methods and batches, and receives of queue pairs that are not
    /// attached. They stay here until they are taken.
    pub fn rest(&self) -> Inbox {
        Inbox::rest(&self.0)
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("cq", &self.0.cq)
            .finish_non_exhaustive()
    }
}
