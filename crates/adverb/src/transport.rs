//! The transports, as types: a queue pair has one for life, so wrong operations do not compile.
//!
//! ```compile_fail,E0599
//! # use adverb::{Buf, QueuePair, RemoteRegion, transport::Uc};
//! fn read_over_uc(qp: &QueuePair<Uc>, buf: Buf, from: RemoteRegion) {
//!     let _ = qp.post_read(buf, from); // only reliable connections can read
//! }
//! ```

use adverb_abi::types as c;

use crate::state::Kind;

/// One of [`Rc`], [`Uc`], [`Ud`].
pub trait Transport: sealed::Sealed + Send + Sync + 'static {
    /// Its short name.
    const NAME: &'static str;
    #[doc(hidden)]
    const QP_TYPE: u32;
    #[doc(hidden)]
    const KIND: Kind;
}

/// A transport between two queue pairs: [`Rc`] or [`Uc`].
pub trait Connected: Transport {}

/// Reliable connection: in order, exactly once, with reads and atomics.
///
/// The name is the specification's; where it clashes with [`std::rc::Rc`], write `transport::Rc`.
#[derive(Debug)]
pub enum Rc {}

/// Unreliable connection: sends and writes without acknowledgement; losses drop messages.
#[derive(Debug)]
pub enum Uc {}

/// Unreliable datagram: messages of up to one MTU to anybody.
#[derive(Debug)]
pub enum Ud {}

impl Transport for Rc {
    const NAME: &'static str = "RC";
    const QP_TYPE: u32 = c::IBV_QPT_RC;
    const KIND: Kind = Kind::Rc;
}

impl Transport for Uc {
    const NAME: &'static str = "UC";
    const QP_TYPE: u32 = c::IBV_QPT_UC;
    const KIND: Kind = Kind::Uc;
}

impl Transport for Ud {
    const NAME: &'static str = "UD";
    const QP_TYPE: u32 = c::IBV_QPT_UD;
    const KIND: Kind = Kind::Ud;
}

impl Connected for Rc {}
impl Connected for Uc {}

mod sealed {
    #[allow(unnameable_types, reason = "nobody else is to implement it")]
    pub trait Sealed {}
    impl Sealed for super::Rc {}
    impl Sealed for super::Uc {}
    impl Sealed for super::Ud {}
}
