//! The connection manager: the functions of librdmacm over `adverb_nic::cm`.
//!
//! An id is a socket of RDMA. Calls on it send messages of the connection manager, whose answers arrive as events on a
//! channel; getting an event is also where the queue pair of an id takes its next step. What rsockets would be is not
//! built.
//!
//! | question | file |
//! |---|---|
//! | how far has an id come, what does C see of it | `id.rs` |
//! | where do an address and a route come from, what is listened to | `resolve.rs` |
//! | what does a request or an answer say | `connect.rs` |
//! | which parameter ends up in which attribute of the queue pair | `params.rs` |
//! | which event does the program get, with what in it | `events.rs` |
//! | who waits for it, and how | `get_event.rs` |
//! | who makes the completion queues of an id | `qp.rs` |
//! | one call instead of five | `endpoint.rs`, `addrinfo.rs` |

mod address;
mod addrinfo;
mod channel;
mod connect;
mod device;
mod endpoint;
mod events;
mod get_event;
mod id;
mod multicast;
mod option;
mod params;
mod path;
mod qp;
mod resolve;

pub use addrinfo::*;
pub use channel::*;
pub use connect::*;
pub use device::*;
pub use endpoint::*;
pub use get_event::*;
pub use id::*;
pub use multicast::*;
pub use option::*;
pub use qp::*;
pub use resolve::*;
