//! Being asked for a connection.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use super::connecting::{self, Connecting, Pair};
use super::connection::Connection;
use super::event::Event;
use super::id::Id;
use super::params::{Depths, MAX_ACCEPT_DATA, MAX_REJECT_DATA, Params, at_most};
use crate::context::Context;
use crate::error::Result;

/// A peer's request for a connection, to be accepted or rejected. Dropping it rejects it.
///
/// ```
/// # fn main() -> Result<(), adverb::Error> {
/// # if cfg!(not(feature = "soft")) { return Ok(()) }
/// # use adverb::cm::{Connector, Failure, Listener, Params, RejectReason};
/// # use adverb::transport::Rc;
/// # use std::time::Duration;
/// # let timeout = Some(Duration::from_secs(20));
/// # let listener = Listener::bind("127.0.0.1:0")?;
/// # let route = Connector::new().resolve(listener.local_addr()?, timeout)?;
/// # let ctx = route.context()?;
/// # let (pd, cq) = (ctx.alloc_pd()?, ctx.create_cq(64).build()?);
/// # let qp = pd.create_qp::<Rc>(&cq).build()?;
/// # let params = Params { private_data: b"version 1".to_vec(), ..Params::default() };
/// # let asking = route.start(qp, &params)?;
/// let request = listener.accept(timeout)?.expect("somebody comes in time");
/// if !request.private_data().starts_with(b"version 2") {
///     request.reject(b"version 2 only")?;
/// }
/// # let refused = asking.wait(timeout).unwrap_err();
/// # let adverb::Error::Connection { failure: Failure::Rejected { reason, private_data }, .. } = refused
/// #     else { panic!("{refused}") };
/// # assert_eq!(reason, RejectReason::CONSUMER_DEFINED);
/// # assert!(private_data.starts_with(b"version 2 only"));
/// # Ok(()) }
/// ```
#[must_use = "dropping it rejects it"]
pub struct Request {
    id: Id,
    private_data: Vec<u8>,
    asked: Depths,
}

impl Request {
    pub(super) fn new(id: Id, event: Event) -> Self {
        Self {
            id,
            private_data: event.private_data,
            asked: event.depths,
        }
    }

    /// What the peer's program sent along, filled up with zeros
    /// ([`Params::private_data`]). Anybody may send anything.
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// The peer's address and port.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.id.peer_addr()
    }

    /// The address and port of ours that it asked for.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.id.local_addr()
    }

    /// Reads and atomics that the peer wants to have outstanding: the most that
    /// [`Params::responder_resources`] makes sense for.
    pub fn responder_resources(&self) -> u8 {
        self.asked.answered
    }

    /// Reads and atomics that the peer answers at a time.
    pub fn initiator_depth(&self) -> u8 {
        self.asked.started
    }

    /// The device that it came in through, open. It is the same for all connections of the process
    /// on that device, as long as somebody holds it.
    ///
    /// # Errors
    /// As [`Device::open`](crate::Device::open).
    pub fn context(&self) -> Result<Context> {
        self.id.context()
    }

    /// Accepts, and waits until the peer says that it is ready; no timeout waits for ever. The
    /// queue pair is as its builder left it, on any context of the device; post receives before, if
    /// the peer may send at once.
    ///
    /// # Errors
    /// [`Error::Connection`](crate::Error::Connection) when the peer has given up meanwhile, or the
    /// time is up; the queue pair is closed then. [`Error::Value`](crate::Error::Value) for
    /// parameters that do not exist; [`Error::OtherDevice`](crate::Error::OtherDevice),
    /// [`Error::Transition`](crate::Error::Transition) for a queue pair that does not suit;
    /// [`Error::Verb`](crate::Error::Verb). Whatever it is, the peer is rejected.
    #[doc(alias = "rdma_accept")]
    pub fn accept<Q: Pair>(
        self,
        qp: Q,
        params: &Params,
        timeout: Option<Duration>,
    ) -> Result<Connection<Q>> {
        self.start(qp, params)?.wait(timeout)
    }

    /// As [`accept`](Self::accept), without waiting.
    ///
    /// # Errors
    /// As there.
    pub fn start<Q: Pair>(self, qp: Q, params: &Params) -> Result<Connecting<Q>> {
        let depths = params.check(qp.borrow(), Some(self.asked), MAX_ACCEPT_DATA)?;
        connecting::prepare(&self.id, qp.borrow(), params)?;
        // Ready before the peer learns that it may send.
        connecting::connect(qp.borrow(), &self.id, params.min_rnr_timer, Some(depths))?;
        let mut raw = params.raw(qp.borrow(), depths);
        // SAFETY: the private data is borrowed from `params`.
        let accepted = unsafe { self.id.accept(&mut raw) };
        accepted.map_err(|error| self.id.gone(error))?;
        Ok(Connecting::accepting(qp, self.id))
    }

    /// Rejects, with at most [`MAX_REJECT_DATA`] bytes for the peer's program. They arrive filled up
    /// with zeros.
    ///
    /// # Errors
    /// [`Error::Value`](crate::Error::Value) for more bytes, and the peer is rejected without them;
    /// [`Error::Connection`](crate::Error::Connection) when it has given up meanwhile;
    /// [`Error::Verb`](crate::Error::Verb).
    #[doc(alias = "rdma_reject")]
    pub fn reject(self, private_data: &[u8]) -> Result<()> {
        let (len, limit) = (private_data.len() as u64, MAX_REJECT_DATA as u64);
        at_most("private data, in bytes,", len, limit)?;
        self.id
            .reject(private_data)
            .map_err(|error| self.id.gone(error))
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("peer", &self.peer_addr())
            .field("local", &self.local_addr())
            .finish_non_exhaustive()
    }
}
