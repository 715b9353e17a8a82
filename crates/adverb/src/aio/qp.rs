//! Queue pairs whose operations are futures.

use std::borrow::Borrow;
use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::desk::Desk;
use super::inbox::Inbox;
use super::line::Place;
use super::operation::{Later, Lent, Operation, Outcome, failed, outcome};
use crate::ah::Destination;
use crate::batch::Batch;
use crate::error::{Error, Result};
use crate::poster::{Poster, Submit};
use crate::remote::RemoteRegion;
use crate::request::PostFlags;
use crate::source::{Inline, Load, Source, Tagged, Target};
use crate::transport::{Connected, Rc, Transport, Ud};
use crate::wc::Completion;

/// A queue pair whose operations are futures. Made by [`Queue::attach`](super::Queue::attach).
///
/// It is the [`QueuePair`](crate::QueuePair) that was attached, and more. What is posted with the `post_*` methods of
/// that one completes without a future: receives in the [`inbox`](Self::inbox), the rest in
/// [`Queue::rest`](super::Queue::rest).
///
/// Operations are posted in the order in which their futures are first polled. Only one that nobody polls any more, though
/// it is its turn, is overtaken, once nothing else is in flight.
pub struct QueuePair<T: Transport> {
    /// `None` only while it is dropped or closed.
    qp: Option<crate::QueuePair<T>>,
    inbox: Inbox,
}

impl<T: Transport> QueuePair<T> {
    pub(super) fn attach(qp: crate::QueuePair<T>, inbox: &Inbox) -> Result<Self> {
        let desk = inbox.desk();
        let ours = &desk.cq.inner;
        if !Arc::ptr_eq(&qp.inner.send.cq, ours) || !Arc::ptr_eq(qp.inner.recv.cq(), ours) {
            return Err(Error::Foreign {
                what: "the queue pair",
                owner: "completion queue",
            });
        }
        desk.with(|state| state.table.open_route(qp.num(), inbox.number()));
        Ok(Self {
            qp: Some(qp),
            inbox: inbox.clone(),
        })
    }

    /// Its messages.
    pub fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    fn desk(&self) -> &Arc<Desk> {
        self.inbox.desk()
    }

    fn later(&self) -> Later<'_> {
        Later {
            desk: self.desk(),
            qp: &self.inner,
        }
    }

    /// Operations with flags: `qp.with(PostFlags::FENCE).write(buf, to).await`. All are signaled, since somebody waits:
    /// [`PostFlags::UNSIGNALED`] has no effect.
    pub fn with(
        &self,
        flags: PostFlags,
    ) -> Poster<T, impl Submit<Outcome = Operation<'_>> + use<'_, T>> {
        Poster::new(self.later(), flags)
    }

    /// Posts a receive, if there is room for one, and waits for the next message, which comes in the buffer of
    /// whichever receive was posted first. Errors as of [`Inbox::next`], and of
    /// [`post_recv`](crate::QueuePair::post_recv).
    ///
    /// Dropped, it leaves its receive posted, and the message to the next receiver.
    pub fn recv(&self, target: impl Target) -> Recv<'_, T> {
        Recv {
            qp: self,
            step: Receiving {
                target: Some(target.load()),
                place: None,
            },
        }
    }

    /// As [`QueuePair::batch`](crate::QueuePair::batch). The completions come to [`Queue::rest`](super::Queue::rest).
    pub fn batch(&mut self) -> Batch<'_, T> {
        match &mut self.qp {
            Some(qp) => qp.batch(),
            None => unreachable!("it is closed or dropped already"),
        }
    }

    /// The device has no operations of the queue pair any more. Messages that it had completed go to the inbox first.
    fn gone(&self, num: u32) {
        let desk = self.desk();
        desk.with(|state| {
            // A queue that is broken has nothing more.
            let _ = state.look(desk);
            state.table.close_route(num);
        });
    }

    /// As [`QueuePair::close`](crate::QueuePair::close): messages in an inbox are not among what it returns, but stay
    /// there.
    ///
    /// # Errors
    /// As there.
    pub fn close(mut self) -> Result<Vec<Completion>> {
        // What the device has by now goes where it belongs.
        let looked = self.desk().with(|state| state.look(self.desk()));
        let Some(qp) = self.qp.take() else {
            return Ok(Vec::new());
        };
        let num = qp.num();
        let closed = qp.close();
        self.gone(num);
        looked.and(closed)
    }
}

impl<T: Transport> Drop for QueuePair<T> {
    fn drop(&mut self) {
        if let Some(qp) = self.qp.take() {
            let num = qp.num();
            drop(qp);
            self.gone(num);
        }
    }
}

/// So that the connection manager can connect it.
impl<T: Transport> Borrow<crate::QueuePair<T>> for QueuePair<T> {
    fn borrow(&self) -> &crate::QueuePair<T> {
        self
    }
}

impl<T: Transport> Deref for QueuePair<T> {
    type Target = crate::QueuePair<T>;

    fn deref(&self) -> &Self::Target {
        match &self.qp {
            Some(qp) => qp,
            None => unreachable!("it is closed or dropped already"),
        }
    }
}

impl<T: Connected> QueuePair<T> {
    /// Sends a message. Ready when the peer has it (RC), or it has left (UC).
    pub fn send(&self, source: impl Source) -> Operation<'_> {
        self.with(PostFlags::empty()).send(source)
    }

    /// Sends a message with four bytes beside it, which arrive as the same number.
    pub fn send_imm(&self, source: impl Source, imm: u32) -> Operation<'_> {
        self.with(PostFlags::empty()).send_imm(source, imm)
    }

    /// Sends a small message that needs no registered memory, up to [`max_inline`](crate::QueuePair::max_inline): the
    /// bytes are copied when it is posted.
    pub fn send_inline<'a>(&'a self, bytes: &'a [u8]) -> Operation<'a> {
        self.lent().send(Inline(bytes))
    }

    /// Writes into the peer's memory, at the start of `to`. The peer does not notice.
    pub fn write(&self, source: impl Source, to: RemoteRegion) -> Operation<'_> {
        self.with(PostFlags::empty()).write(source, to)
    }

    /// Writes into the peer's memory and uses up one of its receives to tell it, with four bytes.
    pub fn write_imm(&self, source: impl Source, to: RemoteRegion, imm: u32) -> Operation<'_> {
        self.with(PostFlags::empty()).write_imm(source, to, imm)
    }

    /// Writes a few bytes that need no registered memory.
    pub fn write_inline<'a>(&'a self, bytes: &'a [u8], to: RemoteRegion) -> Operation<'a> {
        self.lent().write(Inline(bytes), to)
    }

    /// For bytes that the future borrows for as long as it may post.
    fn lent(&self) -> Poster<T, Lent<'_>> {
        Poster::new(Lent(self.later()), PostFlags::empty())
    }
}

impl QueuePair<Rc> {
    /// Reads all of `from`, which is the peer's memory, into the target.
    pub fn read(&self, target: impl Target, from: RemoteRegion) -> Operation<'_> {
        self.with(PostFlags::empty()).read(target, from)
    }

    /// Adds to an 8-byte word of the peer's; what it was before comes into the target.
    pub fn fetch_add(&self, target: impl Target, word: RemoteRegion, add: u64) -> Operation<'_> {
        self.with(PostFlags::empty()).fetch_add(target, word, add)
    }

    /// Replaces an 8-byte word of the peer's if it is `compare`; what it was before comes into the target.
    pub fn compare_swap(
        &self,
        target: impl Target,
        word: RemoteRegion,
        compare: u64,
        swap: u64,
    ) -> Operation<'_> {
        self.with(PostFlags::empty())
            .compare_swap(target, word, compare, swap)
    }
}

impl QueuePair<Ud> {
    /// Sends a datagram, of at most one MTU. Ready when it has left.
    pub fn send_to(&self, source: impl Source, to: &Destination) -> Operation<'_> {
        self.with(PostFlags::empty()).send_to(source, to)
    }

    /// Sends a datagram with four bytes beside it.
    pub fn send_imm_to(&self, source: impl Source, to: &Destination, imm: u32) -> Operation<'_> {
        self.with(PostFlags::empty()).send_imm_to(source, to, imm)
    }
}

impl<T: Transport> fmt::Debug for QueuePair<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("aio::QueuePair")
            .field("qp", &self.qp)
            .finish_non_exhaustive()
    }
}

/// A receive and the next message; made by [`QueuePair::recv`].
#[must_use = "nothing is received before it is polled"]
pub struct Recv<'a, T: Transport> {
    qp: &'a QueuePair<T>,
    step: Receiving,
}

struct Receiving {
    /// Not posted yet.
    target: Option<Load>,
    place: Place,
}

impl<T: Transport> Future for Recv<'_, T> {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        let Self { qp, step } = &mut *self;
        let number = qp.inbox.number();
        let polled = qp.desk().poll(
            cx,
            step,
            |step, table| {
                if let Some(target) = step.target.take() {
                    let tag = target.tag;
                    match qp.inner.post_recv(target) {
                        Ok(_) => {}
                        // One of those posted has to end first.
                        Err(full) if full.is_would_block() && qp.recvs_outstanding() > 0 => {
                            step.target = full.buffer.map(|buffer| Tagged(buffer, tag).load());
                            return None;
                        }
                        Err(refused) => return Some(Err(refused)),
                    }
                }
                Some(outcome(table.receive(number, &mut step.place)?))
            },
            |step, table, waker| table.wake_for_message(number, &mut step.place, waker),
        );
        polled.map(|result| result.unwrap_or_else(|e| Err(failed(e))))
    }
}

impl<T: Transport> Drop for Recv<'_, T> {
    fn drop(&mut self) {
        let Self { qp, step } = self;
        if step.place.is_some() {
            let number = qp.inbox.number();
            qp.desk()
                .with(|state| state.table.stop_receiving(number, &mut step.place));
        }
    }
}

impl<T: Transport> fmt::Debug for Recv<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recv").finish_non_exhaustive()
    }
}
