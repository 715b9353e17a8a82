//! Verbs as futures, on any runtime or none.
//!
//! A [`Queue`] takes the completions of one completion queue and hands each to the future that waits for it. A
//! [`QueuePair`] attached to it posts when a future is first polled, and its [`Inbox`] has what was received.
//!
//! ```
//! # fn main() -> Result<(), adverb::Error> {
//! # if cfg!(not(feature = "soft")) { return Ok(()) }
//! use adverb::aio;
//! use adverb::transport::Rc;
//!
//! let ctx = adverb::open_default()?;
//! let pd = ctx.alloc_pd()?;
//! let queue = aio::Queue::new(ctx.create_cq(64).build()?)?;
//! let a = queue.attach(pd.create_qp::<Rc>(queue.cq()).build()?)?;
//! let b = queue.attach(pd.create_qp::<Rc>(queue.cq()).build()?)?;
//! a.connect(&b.endpoint())?;
//! b.connect(&a.endpoint())?;
//!
//! aio::block_on(async {
//!     b.post_recv(pd.alloc_buf(64)?)?;
//!     a.send(pd.reg_mr(b"hello, futures".to_vec())?).await?;
//!     let message = b.inbox().next().await?;
//!     assert_eq!(message.payload(), Some(&b"hello, futures"[..]));
//!     Ok(())
//! })
//! # }
//! ```
//!
//! # Who wakes whom
//!
//! Whoever is polled looks into the completion queue, and hands out what is there, to others too. When nothing is left
//! to look for, the queue is armed and its descriptor watched: by tokio's reactor (feature `tokio`, inside a runtime),
//! by async-io's (feature `async-io`), by a thread of this library when there is neither, or by whatever implements
//! [`Readiness`]. The watcher itself hands out what came and wakes exactly those who wait for it. No future relies on
//! another one being polled, so none is stuck because of one that is not, or is dropped. If a runtime shuts down, the
//! thread takes over from its reactor.
//!
//! # Dropping futures
//!
//! Each future may be dropped at any time, by `select!`, by a timeout, with its runtime.
//!
//! - One that has posted leaves its operation to the device. The buffer stays where it is until the device is through
//!   with it, and is freed then. There is no way to take back a single operation; [`QueuePair::abort`] ends all of them.
//! - One that waits for room has posted nothing.
//! - One that waits for a message has taken none: the message goes to the next receiver. The receive that [`recv`]
//!   posted stays posted.
//!
//! [`QueuePair::abort`]: crate::QueuePair::abort
//! [`recv`]: QueuePair::recv

#[cfg(feature = "async-io")]
mod async_io;
mod block_on;
mod desk;
mod event;
mod inbox;
mod line;
mod operation;
mod pace;
mod qp;
mod queue;
mod readiness;
mod table;
mod thread;
#[cfg(feature = "tokio")]
mod tokio;
mod watched;

#[cfg(feature = "async-io")]
pub use async_io::AsyncIo;
pub use block_on::block_on;
pub use event::{Channel, Events, NextEvent, NextQueue};
pub use inbox::{Inbox, Next};
pub(crate) use line::Place;
pub use operation::{Operation, Outcome};
pub use qp::{QueuePair, Recv};
pub use queue::Queue;
pub use readiness::{Descriptor, Readiness, watch};
pub use thread::Thread;
#[cfg(feature = "tokio")]
pub use tokio::Tokio;
pub(crate) use watched::Watched;
