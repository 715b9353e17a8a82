//! Memory that others touch: the application, another process, a remote peer.
//!
//! Such memory is never a `&[u8]`, not even briefly: it can change under a reader at any moment. What lives
//! here is pointer and length with an interface of copies and atomic operations:
//!
//! - [`Region`]: registered memory of the application, and [`probe`] which tells whether it exists;
//! - [`DemandRegion`]: the same for memory that may not be there, and [`Block`]: memory of the device itself;
//! - [`ring`]: one-way queues of packets between two processes, and [`Source`] and [`Target`]: payload in them;
//! - [`ProcessPage`] and [`SleepFlag`]: who sleeps, and who must ring the doorbell; [`News`]: who has written something;
//! - [`Sleepers`]: several threads behind that one flag;
//! - [`Leadership`]: which thread of a process watches for the others;
//! - [`EventFd`]: the descriptor that programs block on;
//! - [`Uncancelled`] and [`Sleep`]: what keeps `pthread_cancel` from unwinding us, and where it may;
//! - [`memfd`], [`map`], [`sockopt`], [`datagram`]: the calls into the kernel that the crates above may not make themselves,
//!   because they forbid unsafe code.
//!
//! What does not live here: which keys and rights allow an access (the engine), what a packet means (the wire
//! crate), and who a peer is (the link crate).

pub mod datagram;
pub mod map;
pub mod memfd;
pub mod ring;
pub mod sockopt;

mod block;
mod cancellation;
mod demand;
mod environment;
mod event_fd;
mod leadership;
mod news;
mod primitive;
mod probe;
mod process_page;
mod region;
mod sleep;
mod sleepers;
mod span;

pub use block::Block;
pub use cancellation::{Sleep, Uncancelled, cancellation_point};
pub use demand::{DemandError, DemandRegion};
pub use environment::setting;
pub use event_fd::EventFd;
pub use leadership::Leadership;
pub use news::{MOST_WATCHED, News};
pub use probe::{ProbeError, probe};
pub use process_page::{PageError, ProcessPage};
pub use region::{Region, RegionError};
pub use sleep::SleepFlag;
pub use sleepers::Sleepers;
pub use span::{Source, Target};
