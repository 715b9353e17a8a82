//! Listening for requests.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use adverb_abi::types as c;

use super::id::Id;
use super::library;
use super::params::at_most;
use super::request::Request;
use crate::context::Context;
use crate::device::Origin;
use crate::error::{Error, Result};
use crate::failure::Failure;
use crate::sync::deadline;

/// Makes a [`Listener`].
///
/// ```
/// # fn main() -> Result<(), adverb::Error> {
/// # if cfg!(not(feature = "soft")) { return Ok(()) }
/// use adverb::Origin;
/// use adverb::cm::Listener;
/// let listener = Listener::builder()
///     .origin(Origin::Software)
///     .backlog(16)
///     .bind("127.0.0.1:0")?;
/// # let _ = listener;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing happens before `bind`"]
pub struct ListenerBuilder {
    origin: Origin,
    backlog: u32,
    reuse: bool,
    only_v6: bool,
}

impl ListenerBuilder {
    /// On the devices of this origin (default: the software NIC if it is linked in, else the
    /// system's devices).
    pub fn origin(mut self, origin: Origin) -> Self {
        self.origin = origin;
        self
    }

    /// Requests that wait to be accepted, 1 to 2³¹ − 1 (default 128). The system may allow fewer;
    /// peers beyond that ask again, and in the end hear nothing.
    pub fn backlog(mut self, requests: u32) -> Self {
        self.backlog = requests;
        self
    }

    /// Shares the port with others that do so too, as long as none of them listens.
    pub fn reuse_address(mut self) -> Self {
        self.reuse = true;
        self
    }

    /// A listener on `[::]` leaves IPv4 alone.
    pub fn only_v6(mut self) -> Self {
        self.only_v6 = true;
        self
    }

    /// Claims address and port and listens there. Port 0 is any that is free; an unspecified address
    /// is all devices. Of several addresses that a name has the first that works is taken.
    ///
    /// # Errors
    /// [`Error::Verb`] (EADDRINUSE, EADDRNOTAVAIL, ENODEV: no device has the address);
    /// [`Error::TooSmall`], [`Error::Value`] for the backlog; [`Error::Unsupported`] when there is
    /// no librdmacm; [`Error::Io`] for a name that does not resolve.
    #[doc(alias = "rdma_bind_addr")]
    #[doc(alias = "rdma_listen")]
    pub fn bind(self, to: impl ToSocketAddrs) -> Result<Listener> {
        if self.backlog == 0 {
            return Err(Error::TooSmall {
                what: "backlog",
                value: 0,
                least: 1,
            });
        }
        at_most("backlog", self.backlog.into(), i32::MAX as u64)?;
        let mut failure = None;
        for address in addresses(to)? {
            match self.listen(address) {
                Ok(listener) => return Ok(listener),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or_else(no_address))
    }

    fn listen(&self, to: SocketAddr) -> Result<Listener> {
        let id = Id::new(self.origin, format!("the listener on {to}"))?;
        if self.reuse {
            id.set_option::<libc::c_int>(c::RDMA_OPTION_ID_REUSEADDR, 1)?;
        }
        if self.only_v6 {
            id.set_option::<libc::c_int>(c::RDMA_OPTION_ID_AFONLY, 1)?;
        }
        id.bind(to)?;
        id.listen(self.backlog as libc::c_int)?;
        Ok(Listener { id })
    }
}

/// The addresses behind a name.
pub(super) fn addresses(to: impl ToSocketAddrs) -> Result<impl Iterator<Item = SocketAddr>> {
    Ok(to.to_socket_addrs()?)
}

/// What is wrong with an empty list of them.
pub(super) fn no_address() -> Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        "the list of addresses is empty",
    )
    .into()
}

/// Takes requests for connections on a port. Several threads may accept; each request goes to one of
/// them. Dropping it refuses those that wait, and leaves connections alone.
///
/// ```
/// # fn main() -> Result<(), adverb::Error> {
/// # if cfg!(not(feature = "soft")) { return Ok(()) }
/// use adverb::cm::Listener;
/// use std::time::Duration;
/// let listener = Listener::bind("127.0.0.1:0")?;
/// println!("listening on {}", listener.local_addr()?);
/// assert!(listener.accept(Some(Duration::from_millis(1)))?.is_none());
/// # Ok(()) }
/// ```
pub struct Listener {
    pub(super) id: Id,
}

impl Listener {
    /// Listens with the usual options: [`ListenerBuilder::bind`].
    ///
    /// # Errors
    /// As there.
    pub fn bind(to: impl ToSocketAddrs) -> Result<Self> {
        Self::builder().bind(to)
    }

    /// Options.
    pub fn builder() -> ListenerBuilder {
        ListenerBuilder {
            origin: library::DEFAULT,
            backlog: 128,
            reuse: false,
            only_v6: false,
        }
    }

    /// Where it listens, with the port that it got.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when the address is not one of IP.
    pub fn local_addr(&self) -> Result<SocketAddr> {
        self.id.local_addr().ok_or_else(|| Error::Unsupported {
            what: "an address of IP",
            object: self.id.name.clone(),
        })
    }

    /// The device of its address, open: the same as that of the requests to come, as long as somebody
    /// holds it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when it listens on an unspecified address, and so on all devices; what
    /// [`Device::open`](crate::Device::open) returns.
    pub fn context(&self) -> Result<Context> {
        self.id.context()
    }

    /// The next request, or `None` when the time is up first; no timeout waits for ever.
    ///
    /// # Errors
    /// [`Error::Connection`] when the device goes away; [`Error::Verb`] (EMFILE: a request needs a
    /// descriptor; this one was refused).
    #[doc(alias = "rdma_get_request")]
    pub fn accept(&self, timeout: Option<Duration>) -> Result<Option<Request>> {
        let until = deadline(timeout);
        loop {
            if let Some(request) = self.try_accept()? {
                return Ok(Some(request));
            }
            if !self.id.wait(until)? {
                return Ok(None);
            }
        }
    }

    /// The next request that is there, without waiting. When there is none, watch the descriptor.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    pub fn try_accept(&self) -> Result<Option<Request>> {
        while let Some((event, id)) = self.id.try_request()? {
            if let Some(id) = id {
                return Ok(Some(Request::new(id, event)));
            }
            if event.kind == c::RDMA_CM_EVENT_DEVICE_REMOVAL {
                return Err(self.id.failed(Failure::Event {
                    event: "RDMA_CM_EVENT_DEVICE_REMOVAL",
                    errno: libc::ENODEV,
                }));
            }
        }
        Ok(None)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.id.as_fd()
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener")
            .field("local", &self.id.local_addr())
            .field("fd", &self.as_fd())
            .finish_non_exhaustive()
    }
}
