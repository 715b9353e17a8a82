//! The two processes of a measurement.
//!
//! A coordinator (`pair.rs`) starts both, gives them orders line by line (`control.rs`) and
//! collects the answers; it sleeps meanwhile. Each peer (`peer.rs`) opens a device and one
//! connected queue pair (`session.rs`), and then plays client or server: requests and replies
//! (`exchange.rs`), one-sided operations and streams (`stream.rs`), ping-pong by RDMA write
//! (`write.rs`). How they wait is in `wait.rs`, for both sides alike. For comparison, requests and replies
//! go over sockets as well (`socket.rs`); `talk.rs` is what an exchange sees of either.

pub(crate) mod control;
pub(crate) mod exchange;
pub(crate) mod pair;
pub(crate) mod peer;
pub(crate) mod session;
pub(crate) mod socket;
pub(crate) mod stream;
pub(crate) mod talk;
pub(crate) mod wait;
pub(crate) mod write;
