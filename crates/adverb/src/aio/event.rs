//! Events of devices and of shared completion channels as futures.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};

use super::line::Place;
use super::readiness::Descriptor;
use super::watched::Watched;
use crate::channel::CompletionChannel;
use crate::context::Context;
use crate::cq::CompletionQueue;
use crate::error::Result;
use crate::event::AsyncEvent;

/// The events that a device raises on its own.
///
/// ```
/// # fn main() -> Result<(), adverb::Error> {
/// # if cfg!(not(feature = "soft")) { return Ok(()) }
/// use adverb::{AsyncEventKind, aio};
/// let ctx = adverb::open_default()?;
/// let events = aio::Events::new(&ctx)?;
/// # use adverb::{AccessFlags, transport::Rc};
/// # let (pd, cq) = (ctx.alloc_pd()?, ctx.create_cq(64).build()?);
/// # let (a, b) = (pd.create_qp::<Rc>(&cq).build()?, pd.create_qp::<Rc>(&cq).build()?);
/// # a.connect(&b.endpoint())?;
/// # b.connect(&a.endpoint())?;
/// # let read_only = pd.expose(8, AccessFlags::REMOTE_READ)?;
/// # a.post_write(pd.alloc_buf(8)?, read_only.remote())?;
/// // A peer tries to write where it may only read.
/// let event = aio::block_on(events.next())?;
/// assert_eq!(event.kind, AsyncEventKind::QP_ACCESS_ERR);
/// # Ok(()) }
/// ```
pub struct Events {
    ctx: Context,
    watched: Watched,
}

impl Events {
    /// Watches the device as [`watch`](super::watch) says.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io).
    ///
    /// # Panics
    /// As [`watch`](super::watch).
    pub fn new(ctx: &Context) -> Result<Self> {
        let inner = Arc::clone(&ctx.inner);
        Ok(Self {
            ctx: ctx.clone(),
            watched: Watched::new(move || {
                Descriptor::new(Arc::<crate::context::ContextInner>::clone(&inner))
            })?,
        })
    }

    /// The next event, as [`Context::next_event`] has it. Each goes to one of those who wait; dropped, it has taken none.
    pub fn next(&self) -> NextEvent<'_> {
        NextEvent {
            events: self,
            place: None,
        }
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events")
            .field("ctx", &self.ctx)
            .finish_non_exhaustive()
    }
}

/// The next event of a device; made by [`Events::next`].
#[must_use = "nothing waits before it is polled"]
#[derive(Debug)]
pub struct NextEvent<'a> {
    events: &'a Events,
    place: Place,
}

impl Future for NextEvent<'_> {
    type Output = Result<AsyncEvent>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {
        let Self { events, place } = &mut *self;
        events.watched.poll(cx, place, || events.ctx.try_event())
    }
}

impl Drop for NextEvent<'_> {
    fn drop(&mut self) {
        self.events.watched.leave(&mut self.place);
    }
}

/// A completion channel that several queues share, for programs that poll those themselves.
pub struct Channel {
    channel: CompletionChannel,
    watched: Watched,
}

impl Channel {
    /// Watches the channel as [`watch`](super::watch) says.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io).
    ///
    /// # Panics
    /// As [`watch`](super::watch).
    pub fn new(channel: &CompletionChannel) -> Result<Self> {
        channel.inner.set_nonblocking()?;
        let inner = Arc::clone(&channel.inner);
        Ok(Self {
            channel: channel.clone(),
            watched: Watched::new(move || {
                Descriptor::new(Arc::<crate::channel::ChannelInner>::clone(&inner))
            })?,
        })
    }

    /// The queue of the next event, as [`CompletionChannel::next_event`] has it: arm the queues and poll them once more
    /// before. Each event goes to one of those who wait; dropped, it has taken none.
    pub fn next(&self) -> NextQueue<'_> {
        NextQueue {
            channel: self,
            place: None,
        }
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel")
            .field("channel", &self.channel)
            .finish_non_exhaustive()
    }
}

/// The queue of the next event of a channel; made by [`Channel::next`].
#[must_use = "nothing waits before it is polled"]
#[derive(Debug)]
pub struct NextQueue<'a> {
    channel: &'a Channel,
    place: Place,
}

impl Future for NextQueue<'_> {
    type Output = Result<CompletionQueue>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {
        let Self { channel, place } = &mut *self;
        let inner = &channel.channel.inner;
        channel.watched.poll(cx, place, || {
            // An event of a queue that is gone by now is nobody's.
            while let Some(cq) = inner.try_event()? {
                if let Some(cq) = inner.member(cq) {
                    return Ok(Some(cq));
                }
            }
            Ok(None)
        })
    }
}

impl Drop for NextQueue<'_> {
    fn drop(&mut self) {
        self.channel.watched.leave(&mut self.place);
    }
}
