//! The C face: the functions of libibverbs and librdmacm over the software NIC.
//!
//! One file per family of manual pages. Each function converts at the edge, calls one function of `adverb-nic`, and ends
//! in `errno.rs`. Nothing is exported from here by name: `adverb-dropin` gives the functions of [`calls`] their symbols
//! and versions, and the Rust API reaches them through [`verbs()`] and
//! [`rdmacm()`].
//!
//! | question | file |
//! |---|---|
//! | which errno does a failure become, and who prints it | `errno.rs`, its words `diagnosis.rs` |
//! | how does a C pointer become an object | `handle.rs` |
//! | what is behind the inline calls of verbs.h | the table in `context.rs` |
//! | where does a list of work requests go | `post.rs`, `qp_ex.rs` |
//! | ids, connections and their events | `rdma/` |
//!
//! A panic that would cross into C ends the process instead; there is no way to go on.

mod ah;
mod call;
mod channel;
mod context;
mod cq;
mod cq_ex;
mod device;
mod diagnosis;
mod dm;
mod errno;
mod events;
mod handle;
mod import;
mod misc;
mod mr;
mod mw;
mod pace;
mod pd;
mod polite;
mod post;
mod qp;
mod qp_ex;
mod query;
mod rdma;
mod setting;
mod shared;
mod signals;
mod srq;
mod sysfs;
pub mod unsupported;
mod verbs;
mod waiting;
mod xrc;

pub use channel::next_cq_event;
pub use diagnosis::why;
pub use verbs::{rdmacm, verbs};

/// The functions under their C names.
pub mod calls {
    pub use crate::ah::*;
    pub use crate::channel::{
        ibv_ack_cq_events, ibv_create_comp_channel, ibv_destroy_comp_channel, ibv_get_cq_event,
    };
    pub use crate::context::*;
    pub use crate::cq::*;
    pub use crate::device::*;
    pub use crate::events::*;
    pub use crate::import::*;
    pub use crate::misc::*;
    pub use crate::mr::*;
    pub use crate::pd::*;
    pub use crate::qp::*;
    pub use crate::query::*;
    pub use crate::rdma::*;
    pub use crate::srq::*;
    pub use crate::sysfs::*;
}
