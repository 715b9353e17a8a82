//! The software NIC: tables, locks, progress, timers and asynchronous events.
//!
//! This is the one place where protocol ([`adverb_engine`]), packets ([`adverb_link`]) and memory
//! ([`adverb_mem`]) meet. It knows no C type; `adverb-provider` makes the verbs from it.
//!
//! | question | file |
//! |---|---|
//! | who makes progress | `driver.rs` |
//! | how do packets travel, and who is woken by what | `fabric/` |
//! | what does the NIC thread do | `thread.rs` |
//! | how does a thread wait for an event | `waiter.rs` |
//! | what does the engine see of all this | `host.rs` |
//! | what is behind a memory key | `backing.rs` |
//! | what is shared by the contexts of a process | `nic.rs` |
//! | how do queue pairs find each other | `cm/` |
//! | where is time read | `clock.rs`, nowhere else |

mod ah;
mod async_events;
mod backing;
mod channel;
mod clock;
pub mod cm;
mod config;
mod context;
mod cq;
mod device;
mod dm;
mod driver;
mod error;
mod event_queue;
mod fabric;
mod fork;
mod host;
mod ledger;
mod mr;
mod multicast;
mod mw;
mod nic;
mod owed;
mod pass;
mod pd;
mod ports;
mod qp;
mod qp_table;
mod quota;
mod random;
mod srq;
mod sync;
mod thread;
mod train;
mod waiter;
mod xrc;

pub use adverb_engine::{
    Access, AttrMask, Av, Completion, FlushTarget, Instant, Key, KeyError, MAX_SGE, ModifyError,
    MwBind, PostError, QpAttr, QpCaps, QpNum, QpState, RecvWr, SendData, SendFlags, SendOp, SendWr,
    Sge, SrqAttr, UdAddress, WcFlags, WcOpcode, WcStatus, WindowType,
};
pub use adverb_mem::{Sleep, Uncancelled, cancellation_point, setting};
pub use adverb_wire::{Gid, Mtu, Transport, grh};
pub use ah::{Ah, AhSpec};
pub use async_events::{AsyncEvent, AsyncKind, Source};
pub use channel::Channel;
pub use clock::now;
pub use config::{Config, Links};
pub use context::Context;
pub use cq::Cq;
pub use device::{Device, Limits, PKEYS, PortInfo, devices};
pub use dm::Dm;
pub use error::NicError;
pub use mr::{Advice, Mr};
pub use mw::Mw;
pub use pd::Pd;
pub use qp::{Posting, Qp, QpSpec};
pub use srq::Srq;
pub use waiter::{Step, Waiter, wait};
pub use xrc::{FileId, Xrcd};
