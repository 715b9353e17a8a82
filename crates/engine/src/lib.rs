//! Queue pairs, completion queues, shared receive queues, memory keys and connections as state
//! machines.
//!
//! Nothing here reads a clock, opens a socket or sees a pointer. Time comes in as an argument,
//! memory is lent through [`Host`], packets come in parsed and go out into a buffer of the caller.
//! The objects know nothing of each other: the NIC keeps each [`Qp`], [`Cq`] and [`Srq`] behind its
//! own lock and connects them with its implementation of [`Host`].
//!
//! [`cm`] stands beside them: the machines of the connection manager, which have a contract of the
//! same kind.
//!
//! The contract: after `handle_packet`, `handle_timeout`, `post_*` or `modify` the caller calls
//! [`Qp::poll_transmit`] until it returns `None`, and then [`Qp::poll_timeout`] for the next
//! deadline. A batch of inbound packets may be handled first; that is where acknowledgements
//! coalesce. A caller whose link is full just stops polling and resumes later; nothing is lost.
//!
//! A caller whose link can carry many packets in one piece asks for [`train`]s before it polls.
#![forbid(unsafe_code)]

pub mod cm;
pub mod completion;
pub mod cq;
pub mod error;
pub mod event;
pub mod ids;
pub mod memory;
pub mod mr;
pub mod qp;
mod random;
pub mod srq;
pub mod time;
pub mod train;
pub mod window;
pub mod wr;

pub use completion::{Completion, WcFlags, WcOpcode, WcStatus};
pub use cq::{Cq, Push};
pub use error::{DropReason, ModifyError, PostError};
pub use event::QpEvent;
pub use ids::{Key, PdId, QpNum};
pub use memory::{Access, Host, KeyError, MemAccess, Side};
pub use mr::{KeyTable, MrSpec};
pub use qp::state::{AttrMask, QpKind, QpState};
pub use qp::{
    Counters, Departure, Dest, DeviceLimits, NotLoaded, PacketMeta, Qp, QpAttr, QpCaps, QpConfig,
    Role, Transmit,
};
pub use random::Seed;
pub use srq::{Srq, SrqAttr, SrqError};
pub use time::Instant;
pub use train::{Load, Unload};
pub use window::WindowType;
pub use wr::{
    Av, FlushTarget, MAX_MESSAGE, MAX_SGE, MwBind, RecvWqe, RecvWr, SendData, SendFlags, SendOp,
    SendWr, Sge, UdAddress,
};
