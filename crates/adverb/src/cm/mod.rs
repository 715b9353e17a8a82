//! The connection manager: who listens where, and connections between queue pairs by address and
//! port.
//!
//! It is librdmacm behind the scenes: the software NIC's own, or the system's for cards. What it
//! says on the wire is what every program that uses librdmacm says, so the peer may be one in C.
//!
//! ```
//! use adverb::cm::{Connector, Listener, Params};
//! use adverb::transport::Rc;
//! use adverb::{Completion, Wait};
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), adverb::Error> {
//! # if cfg!(not(feature = "soft")) { return Ok(()) }
//! # let timeout = Some(Duration::from_secs(20));
//! let listener = Listener::bind("127.0.0.1:0")?; // port 0: any that is free
//! let address = listener.local_addr()?;
//!
//! // The other side: usually another process, often another host.
//! let client = std::thread::spawn(move || -> Result<Vec<u8>, adverb::Error> {
//!     let route = Connector::new().resolve(address, timeout)?;
//!     let ctx = route.context()?; // the device that leads there
//!     let (pd, cq) = (ctx.alloc_pd()?, ctx.create_cq(64).build()?);
//!     let qp = pd.create_qp::<Rc>(&cq).build()?;
//!     qp.post_recv(pd.alloc_buf(64)?)?; // before the peer can send
//!     let connection = route.connect(qp, &Params::default(), timeout)?;
//!     let mut done = Vec::new();
//!     cq.wait(&mut done, Wait::default(), timeout)?;
//!     let text = done.iter().find_map(Completion::payload).unwrap_or_default().to_vec();
//!     connection.close(timeout)?;
//!     Ok(text)
//! });
//!
//! let request = listener.accept(timeout)?.expect("somebody comes in time");
//! let ctx = request.context()?;
//! let (pd, cq) = (ctx.alloc_pd()?, ctx.create_cq(64).build()?);
//! let qp = pd.create_qp::<Rc>(&cq).build()?;
//! let connection = request.accept(qp, &Params::default(), timeout)?;
//! connection.post_send(pd.reg_mr(b"hello".to_vec())?)?;
//! while connection.next_event(timeout)?.is_none() {} // the peer hangs up
//! # let text = client.join().unwrap()?;
//! # assert_eq!(text, b"hello");
//! # Ok(()) }
//! ```
//!
//! # Ways through it
//!
//! | side | steps |
//! |---|---|
//! | asks | [`Connector`] → [`Route`] → a queue pair on its device → [`Connection`] |
//! | is asked | [`Listener`] → [`Request`] → a queue pair on its device → [`Connection`], or [`Request::reject`] |
//! | without blocking | [`Connector::start`], [`Route::start`], [`Request::start`], [`Listener::try_accept`], [`Connection::try_event`]; each object is a descriptor to watch ([`AsFd`](std::os::fd::AsFd)) |
//! | as futures | `.await` what `start` returns; [`Listener::next_request`], [`Connection::event`]; with queue pairs of [`aio`](crate::aio) |
//!
//! A [`Connection`] owns its queue pair and its end of the line; dropping it at any time takes both
//! down, in the right order, and so does dropping any of the steps before. Each of these objects has
//! a file descriptor of its own while it lives, and works from any thread.
//!
//! Reliable connections only: datagrams have [`AddressHandle`](crate::AddressHandle), and for unreliable connections
//! there is [`QueuePair::connect`](crate::QueuePair::connect).

mod address;
mod connecting;
mod connection;
mod connector;
mod event;
mod id;
mod later;
mod library;
mod listener;
mod params;
mod request;

pub use connecting::{Connecting, Pair, Progress};
pub use connection::Connection;
pub use connector::{Connector, Resolving, Route};
pub use event::ConnectionEvent;
pub use listener::{Listener, ListenerBuilder};
pub use params::{MAX_ACCEPT_DATA, MAX_REJECT_DATA, MAX_REQUEST_DATA, Params};
pub use request::Request;

pub use crate::failure::{Failure, RejectReason};
