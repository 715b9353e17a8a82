//! Asking for a connection: the way to an address, then the request.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use adverb_abi::types as c;

use super::connecting::{self, Connecting, Pair, Progress};
use super::connection::Connection;
use super::id::Id;
use super::library;
use super::listener::addresses;
use super::params::{MAX_REQUEST_DATA, Params};
use crate::context::Context;
use crate::device::Origin;
use crate::error::{Error, Result};
use crate::failure::Failure;
use crate::sync::deadline;

/// Asks for connections.
///
/// ```
/// # fn main() -> Result<(), adverb::Error> {
/// # if cfg!(not(feature = "soft")) { return Ok(()) }
/// use adverb::cm::{Connector, Listener};
/// use std::time::Duration;
/// let listener = Listener::bind("127.0.0.1:0")?;
/// let route = Connector::new()
///     .tos(0x20)
///     .resolve(listener.local_addr()?, Some(Duration::from_secs(20)))?;
/// println!("through {}", route.context()?.device().name());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing happens before `resolve`"]
pub struct Connector {
    origin: Origin,
    source: Option<SocketAddr>,
    tos: Option<u8>,
}

impl Connector {
    /// Through the software NIC if it is linked in, else through the system's devices.
    pub fn new() -> Self {
        Self {
            origin: library::DEFAULT,
            source: None,
            tos: None,
        }
    }

    /// Through the devices of this origin.
    pub fn origin(mut self, origin: Origin) -> Self {
        self.origin = origin;
        self
    }

    /// From this address and port of our own; port 0 is any that is free.
    pub fn source(mut self, address: SocketAddr) -> Self {
        self.source = Some(address);
        self
    }

    /// Type of service, IPv6: traffic class, of the packets to come: DSCP and ECN bits.
    pub fn tos(mut self, tos: u8) -> Self {
        self.tos = Some(tos);
        self
    }

    /// Finds the device and the way that lead to an address. A name is looked up, which may take its
    /// time beyond the timeout; of several addresses the first that can be reached is taken. No
    /// timeout waits for ever.
    ///
    /// # Errors
    /// [`Error::Connection`] when there is no way or no answer in time; [`Error::Verb`]
    /// (EHOSTUNREACH, EADDRINUSE); [`Error::TooSmall`] for port 0; [`Error::Unsupported`] when there
    /// is no librdmacm; [`Error::Io`] for a name that does not resolve.
    #[doc(alias = "rdma_resolve_addr")]
    #[doc(alias = "rdma_resolve_route")]
    pub fn resolve(self, to: impl ToSocketAddrs, timeout: Option<Duration>) -> Result<Route> {
        let mut failure = None;
        for address in addresses(to)? {
            match self
                .clone()
                .begin(address, timeout)
                .and_then(|r| r.wait(timeout))
            {
                Ok(route) => return Ok(route),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or_else(super::listener::no_address))
    }

    /// As [`resolve`](Self::resolve), without waiting.
    ///
    /// # Errors
    /// As there.
    pub fn start(self, to: SocketAddr) -> Result<Resolving> {
        self.begin(to, None)
    }

    fn begin(self, to: SocketAddr, timeout: Option<Duration>) -> Result<Resolving> {
        if to.port() == 0 {
            return Err(Error::TooSmall {
                what: "port to connect to",
                value: 0,
                least: 1,
            });
        }
        let id = Id::new(self.origin, format!("the connection to {to}"))?;
        if let Some(tos) = self.tos {
            id.set_option(c::RDMA_OPTION_ID_TOS, tos)?;
        }
        if let Some(source) = self.source {
            id.bind(source)?;
        }
        let patience = timeout.map_or(i32::MAX, |t| {
            i32::try_from(t.as_millis().max(1)).unwrap_or(i32::MAX)
        });
        id.resolve_addr(to, patience)?;
        Ok(Resolving { id, patience })
    }
}

impl Default for Connector {
    fn default() -> Self {
        Self::new()
    }
}

/// The way to a peer, while it is looked for. It can be awaited.
#[must_use = "dropping it ends the search"]
pub struct Resolving {
    pub(super) id: Id,
    /// What the library is told, in ms.
    patience: i32,
}

impl Resolving {
    /// Goes as far as it can without waiting. When it is not there yet, watch the descriptor.
    ///
    /// # Errors
    /// As [`Connector::resolve`].
    pub fn try_finish(self) -> Result<Progress<Self, Route>> {
        Ok(match self.look()? {
            Some(()) => Progress::Done(Route { id: self.id }),
            None => Progress::Pending(self),
        })
    }

    pub(super) fn look(&self) -> Result<Option<()>> {
        while let Some(event) = self.id.try_event()? {
            match event.kind {
                c::RDMA_CM_EVENT_ADDR_RESOLVED => self.id.resolve_route(self.patience)?,
                c::RDMA_CM_EVENT_ROUTE_RESOLVED => return Ok(Some(())),
                _ => {
                    if let Some(failure) = event.failure() {
                        return Err(self.id.failed(failure));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Waits for the end of it; no timeout waits for ever.
    ///
    /// # Errors
    /// As [`Connector::resolve`].
    pub fn wait(mut self, timeout: Option<Duration>) -> Result<Route> {
        let until = deadline(timeout);
        loop {
            self = match self.try_finish()? {
                Progress::Done(route) => return Ok(route),
                Progress::Pending(pending) => pending,
            };
            if !self.id.wait(until)? {
                return Err(self.id.failed(Failure::TimedOut {
                    step: "finding the way",
                    limit: timeout.unwrap_or_default(),
                }));
            }
        }
    }
}

impl AsFd for Resolving {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.id.as_fd()
    }
}

impl fmt::Debug for Resolving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolving")
            .field("peer", &self.id.peer_addr())
            .finish_non_exhaustive()
    }
}

/// The way to a peer. It says which device leads there, and a queue pair on that device can be
/// connected.
#[must_use = "nobody is asked before `connect`"]
pub struct Route {
    pub(super) id: Id,
}

impl Route {
    /// The device that leads to the peer, open. It is the same for all connections of the process
    /// on that device, as long as somebody holds it.
    ///
    /// # Errors
    /// As [`Device::open`](crate::Device::open).
    pub fn context(&self) -> Result<Context> {
        self.id.context()
    }

    /// The address and port on this side.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.id.local_addr()
    }

    /// The peer's address and port.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.id.peer_addr()
    }

    /// Asks whoever listens there for a connection, and waits for the answer; no timeout waits for
    /// ever. The queue pair is as its builder left it, on any context of the device; post receives
    /// before, if the peer may send at once.
    ///
    /// # Errors
    /// [`Error::Connection`], which says whether the peer rejected, nobody answered or the time was
    /// up; the queue pair is closed then. [`Error::Value`] for parameters that do not exist;
    /// [`Error::OtherDevice`], [`Error::Transition`] for a queue pair that does not suit;
    /// [`Error::Verb`].
    #[doc(alias = "rdma_connect")]
    pub fn connect<Q: Pair>(
        self,
        qp: Q,
        params: &Params,
        timeout: Option<Duration>,
    ) -> Result<Connection<Q>> {
        self.start(qp, params)?.wait(timeout)
    }

    /// As [`connect`](Self::connect), without waiting.
    ///
    /// # Errors
    /// As there.
    pub fn start<Q: Pair>(self, qp: Q, params: &Params) -> Result<Connecting<Q>> {
        let depths = params.check(qp.borrow(), None, MAX_REQUEST_DATA)?;
        connecting::prepare(&self.id, qp.borrow(), params)?;
        let mut raw = params.raw(qp.borrow(), depths);
        // SAFETY: the private data is borrowed from `params`.
        unsafe { self.id.connect(&mut raw)? };
        Ok(Connecting::asking(qp, self.id, params.min_rnr_timer))
    }
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Route")
            .field("device", &self.id.device_name())
            .field("local", &self.local_addr())
            .field("peer", &self.peer_addr())
            .finish_non_exhaustive()
    }
}
