//! RDMA verbs in Rust, on any machine.
//!
//! A verb says what is done; an adverb says how: busily, quietly, adaptively. This crate is the
//! safe way to both. It runs on a software NIC that is linked in (feature `soft`, on by default:
//! no kernel module, no privileges, no card) and, through the system's libibverbs, on real ones.
//! The same program runs on either.
//!
//! ```
//! use adverb::transport::Rc;
//! use adverb::{Completion, Wait};
//!
//! # fn main() -> Result<(), adverb::Error> {
//! # if cfg!(not(feature = "soft")) { return Ok(()) }
//! let ctx = adverb::open_default()?;
//! let pd = ctx.alloc_pd()?;
//! let cq = ctx.create_cq(64).build()?;
//!
//! // Two ends of one connection; usually they live in two processes.
//! let a = pd.create_qp::<Rc>(&cq).build()?;
//! let b = pd.create_qp::<Rc>(&cq).build()?;
//! a.connect(&b.endpoint())?;
//! b.connect(&a.endpoint())?;
//!
//! // Buffers move into the operations ...
//! b.post_recv(pd.alloc_buf(64)?)?;
//! a.post_send(pd.reg_mr(b"hello, verbs".to_vec())?)?;
//!
//! // ... and come back with their completions.
//! let mut done: Vec<Completion> = Vec::new();
//! while done.len() < 2 {
//!     cq.wait(&mut done, Wait::default(), None)?;
//! }
//! let received = done.iter().find_map(Completion::payload).unwrap();
//! assert_eq!(received, b"hello, verbs");
//! # Ok(()) }
//! ```
//!
//! # Where things are
//!
//! | you want to | look at |
//! |---|---|
//! | find and open a device | [`devices`], [`open_default`], [`open`], [`Context`] |
//! | have memory that only you touch | [`ProtectionDomain::alloc_buf`], [`ProtectionDomain::reg_mr`], [`Buf`], [`Mapping`] |
//! | have memory that peers touch | [`ProtectionDomain::expose`], [`Exposed`], [`RemoteRegion`] |
//! | take back what peers may touch | [`ProtectionDomain::alloc_mw`], [`MemoryWindow`] |
//! | connect by address and port | [`cm`] |
//! | connect otherwise | [`ProtectionDomain::create_qp`], [`QueuePair::connect`], [`Endpoint`], [`Introduction`] |
//! | send, receive, write, read, count | [`QueuePair`]'s `post_*` methods, [`QueuePair::batch`] |
//! | send bytes without registering, pieces, numbers of your own | [`Source`], [`Target`], [`Inline`], [`Tagged`] |
//! | wait | [`CompletionQueue::wait`], [`Wait`]; for event loops [`CompletionQueue::arm`] |
//! | await | [`aio`], on any runtime or none |
//! | know why it failed | [`Error`] (at once), [`WcStatus`] (later, with the completion) |
//! | use memory of others | [`ProtectionDomain::reg_mr_raw`], [`RawRegion`] |
//! | do what is missing here | `as_raw`, [`QueuePair::post_raw`], [`ffi`] |
//!
//! # Rules that the types keep
//!
//! - Memory that a device may touch cannot be touched, freed or reused by safe code: it is
//!   inside the operation until the completion gives it back.
//! - Memory that peers may touch is never a slice.
//! - Every operation that was accepted yields exactly one completion.
//! - A completion queue cannot overflow: whoever uses it has reserved room.
//! - Whoever sleeps has polled after arming.
//! - A dropped queue pair is drained and destroyed before its buffers are freed.
//!
//! A child process must not use objects that it inherited across `fork`; it opens its own.

#![warn(missing_docs)]

mod ah;
pub mod aio;
mod attr;
mod batch;
mod buffer;
mod builder;
mod by_number;
mod channel;
pub mod cm;
mod context;
mod cq;
mod device;
mod endpoint;
mod error;
mod event;
mod exposed;
mod failure;
mod grh;
mod mapping;
mod mr;
mod pace;
mod pd;
mod post;
mod poster;
mod qp;
mod raw;
mod receive;
mod registrable;
mod remote;
mod request;
mod slab;
mod source;
mod srq;
mod state;
mod status;
mod sync;
mod sys;
mod transitions;
pub mod transport;
mod values;
mod wait;
mod wc;
mod window;

pub use adverb_abi as ffi;
pub use adverb_abi::flags::{AccessFlags, DeviceCaps, QpAttrMask};

pub use adverb_wait::Counters as WaitCounters;
pub use ah::{AddressHandle, AhAttr, DEFAULT_QKEY, Destination};
pub use attr::{ConnectOptions, QpAttr};
pub use batch::Batch;
pub use buffer::Buffer;
pub use builder::QueuePairBuilder;
pub use channel::CompletionChannel;
pub use context::{Context, DeviceAttr, GidEntry, GidKind, PortAttr, open, open_default};
pub use cq::{CompletionQueue, CompletionQueueBuilder};
pub use device::{Device, Origin, devices};
pub use endpoint::{Endpoint, Introduction};
pub use error::{Error, Result};
pub use event::{AsyncEvent, AsyncEventKind, EventSource};
pub use exposed::{Exposed, ExposedSlice};
pub use grh::GRH_LEN;
pub use mapping::Mapping;
pub use mr::{Buf, MemoryRegion, leaked_bytes};
pub use pd::ProtectionDomain;
pub use poster::{Poster, Submit};
pub use qp::QueuePair;
pub use raw::RawRegion;
pub use registrable::{Numbers, Registrable};
pub use remote::RemoteRegion;
pub use request::{BatchError, PostFlags, Posted, Rejected};
pub use source::{Inline, Source, Tagged, Target};
pub use srq::SharedReceiveQueue;
pub use state::QpState;
pub use status::{WcError, WcStatus};
pub use transport::Transport;
pub use values::{Gid, Guid, LKey, Mtu, RKey};
pub use wait::{Armed, Limits, Notify, Repolled, Sleep, Wait};
pub use wc::{Completion, Info, OpId, OpKind};
pub use window::MemoryWindow;
