//! What was received, in order.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::desk::Desk;
use super::line::Place;
use super::operation::{Outcome, failed, outcome};
use super::table::REST;

/// The messages of one queue pair, or of several that share it. Clones are handles to the same one.
///
/// Messages come out in the order in which they completed, each to one receiver. Whatever receivers do, none is lost:
/// a message stays here until a future is ready with it.
#[derive(Clone)]
pub struct Inbox(Arc<Mailbox>);

struct Mailbox {
    desk: Arc<Desk>,
    number: u64,
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        if self.number != REST {
            self.desk
                .with(|state| state.table.close_mailbox(self.number));
        }
    }
}

impl Inbox {
    pub(super) fn open(desk: &Arc<Desk>) -> Self {
        Self(Arc::new(Mailbox {
            desk: Arc::clone(desk),
            number: desk.with(|state| state.table.open_mailbox()),
        }))
    }

    /// What nobody waits for in particular.
    pub(super) fn rest(desk: &Arc<Desk>) -> Self {
        Self(Arc::new(Mailbox {
            desk: Arc::clone(desk),
            number: REST,
        }))
    }

    pub(super) fn number(&self) -> u64 {
        self.0.number
    }

    pub(super) fn desk(&self) -> &Arc<Desk> {
        &self.0.desk
    }

    /// The next message, in the buffer that was posted for it. A receive that failed is an error, once; after an error
    /// of the queue pair each of its receives is one.
    ///
    /// It waits for ever when no receive is posted. Dropped, it leaves the message to the next receiver.
    pub fn next(&self) -> Next<'_> {
        Next {
            inbox: self,
            place: None,
        }
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").finish_non_exhaustive()
    }
}

/// The next message; made by [`Inbox::next`].
#[must_use = "nothing is received before it is polled"]
pub struct Next<'a> {
    inbox: &'a Inbox,
    place: Place,
}

impl Future for Next<'_> {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        let Self { inbox, place } = &mut *self;
        let number = inbox.number();
        let polled = inbox.desk().poll(
            cx,
            place,
            |place, table| table.receive(number, place),
            |place, table, waker| table.wake_for_message(number, place, waker),
        );
        polled.map(|result| outcome(result.map_err(failed)?))
    }
}

impl Drop for Next<'_> {
    fn drop(&mut self) {
        let Self { inbox, place } = self;
        if place.is_some() {
            inbox
                .desk()
                .with(|state| state.table.stop_receiving(inbox.number(), place));
        }
    }
}

impl fmt::Debug for Next<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Next").finish_non_exhaustive()
    }
}
