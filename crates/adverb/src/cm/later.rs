//! The steps as futures, on any runtime or none ([`aio`](crate::aio)).
//!
//! Dropped, a future has taken nothing: a request, an event, an answer goes to whoever looks next.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Poll};

use super::connecting::{Connecting, Pair};
use super::connection::Connection;
use super::connector::{Resolving, Route};
use super::event::ConnectionEvent;
use super::id::Id;
use super::listener::Listener;
use super::request::Request;
use crate::aio::{Place, Watched};
use crate::error::Result;

/// Waits until `step` has something.
struct Until<'a, F> {
    watched: &'a Watched,
    place: Place,
    step: F,
}

impl<T, F: FnMut() -> Result<Option<T>> + Unpin> Future for Until<'_, F> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self {
            watched,
            place,
            step,
        } = &mut *self;
        watched.poll(cx, place, step)
    }
}

impl<F> Drop for Until<'_, F> {
    fn drop(&mut self) {
        self.watched.leave(&mut self.place);
    }
}

async fn until<T>(id: &Id, step: impl FnMut() -> Result<Option<T>> + Unpin) -> Result<T> {
    let until = Until {
        watched: id.watched()?,
        place: None,
        step,
    };
    until.await
}

/// What `.await` makes of a step.
type Later<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

impl IntoFuture for Resolving {
    type Output = Result<Route>;
    type IntoFuture = Later<Route>;

    fn into_future(self) -> Later<Route> {
        Box::pin(async move {
            until(&self.id, || self.look()).await?;
            Ok(Route { id: self.id })
        })
    }
}

impl<Q: Pair> IntoFuture for Connecting<Q> {
    type Output = Result<Connection<Q>>;
    type IntoFuture = Later<Connection<Q>>;

    fn into_future(self) -> Later<Connection<Q>> {
        Box::pin(async move {
            let data = until(&self.connection.id, || self.look()).await?;
            Ok(self.connection.established(data))
        })
    }
}

impl Listener {
    /// The next request, as a future.
    ///
    /// ```
    /// # fn main() -> Result<(), adverb::Error> {
    /// # if cfg!(not(feature = "soft")) { return Ok(()) }
    /// use adverb::aio;
    /// use adverb::cm::{Connector, Listener, Params};
    /// use adverb::transport::Rc;
    ///
    /// aio::block_on(async {
    ///     let listener = Listener::bind("127.0.0.1:0")?;
    ///     let route = Connector::new().start(listener.local_addr()?)?.await?;
    ///     let ctx = route.context()?;
    ///     let pd = ctx.alloc_pd()?;
    ///     let queue = aio::Queue::new(ctx.create_cq(64).build()?)?;
    ///     let qp = || queue.attach(pd.create_qp::<Rc>(queue.cq()).build()?);
    ///
    ///     // Usually in two processes.
    ///     let asking = route.start(qp()?, &Params::default())?;
    ///     let accepting = listener.next_request().await?.start(qp()?, &Params::default())?;
    ///     let (a, b) = (asking.await?, accepting.await?);
    ///
    ///     b.post_recv(pd.alloc_buf(64)?)?;
    ///     a.send(pd.reg_mr(b"hello, futures".to_vec())?).await?;
    ///     let message = b.inbox().next().await?;
    ///     assert_eq!(message.payload(), Some(&b"hello, futures"[..]));
    ///     drop(a);
    ///     b.event().await?; // the peer has hung up
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    pub async fn next_request(&self) -> Result<Request> {
        until(&self.id, || self.try_accept()).await
    }
}

impl<Q: Pair> Connection<Q> {
    /// What happens to the connection next, as a future. Once it is over it says so as often as asked.
    ///
    /// # Errors
    /// As [`next_event`](Self::next_event).
    pub async fn event(&self) -> Result<ConnectionEvent> {
        until(&self.id, || self.try_event()).await
    }
}
