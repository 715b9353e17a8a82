//! What operations accept: memory to read, memory to write, bytes to copy, and a tag on any of them.
//!
//! ```
//! # fn main() -> Result<(), adverb::Error> {
//! # if cfg!(not(feature = "soft")) { return Ok(()) }
//! use adverb::{Buffer, Inline, Tagged, Wait, transport::Rc};
//! let ctx = adverb::open_default()?;
//! let pd = ctx.alloc_pd()?;
//! let cq = ctx.create_cq(64).build()?;
//! # let end = || pd.create_qp::<Rc>(&cq).max_send_sge(2).max_recv_sge(2).max_inline(16).build();
//! # let (a, b) = (end()?, end()?);
//! # a.connect(&b.endpoint())?;
//! # b.connect(&a.endpoint())?;
//! // A message of two pieces, received into two others; each post has a tag.
//! b.post_recv(Tagged(vec![pd.alloc_buf(4)?, pd.alloc_buf(64)?], 1))?;
//! a.post_send(Tagged(vec![pd.reg_mr(*b"head")?, pd.reg_mr(*b"body")?], 2))?;
//! // Small ones need no registered memory.
//! b.post_recv(Tagged(pd.alloc_buf(16)?, 3))?;
//! a.post_send_imm(Inline(b"short"), 7)?;
//!
//! let mut done = Vec::new();
//! while done.len() < 4 {
//!     cq.wait(&mut done, Wait::default(), None)?;
//! }
//! let first = done.iter().find(|c| c.tag == 1).unwrap();
//! let pieces = first.buffer.as_ref().unwrap().pieces();
//! assert_eq!(pieces.iter().filter_map(Buffer::bytes).collect::<Vec<_>>(), [b"head", b"body"]);
//! # Ok(()) }
//! ```

use std::sync::Arc;

use adverb_abi::types as c;

use crate::buffer::Buffer;
use crate::exposed::ExposedSlice;
use crate::mr::Buf;

/// Memory that an operation can read: [`Buf`], `Arc<Buf>`, [`ExposedSlice`], a [`Buffer`] that came
/// back, or a `Vec` of one of these, whose pieces make one message (as many as
/// [`max_send_sge`](crate::QueuePairBuilder::max_send_sge) says); bytes that are copied at once
/// ([`Inline`]); and any of that with a tag ([`Tagged`]).
#[doc(alias = "ibv_sge")]
pub trait Source: sealed::Sealed {
    #[doc(hidden)]
    fn load(self) -> Load;
}

/// Memory that an operation can write: [`Buf`], [`ExposedSlice`], or a `Vec` of one of these, which
/// a message fills in order (as many as
/// [`max_recv_sge`](crate::QueuePairBuilder::max_recv_sge), for reads
/// [`max_send_sge`](crate::QueuePairBuilder::max_send_sge), says); and any of that with a tag
/// ([`Tagged`]). A `Vec<Buffer>` that came back is one as well, unless something shared is in it,
/// which is [`Error::SharedTarget`](crate::Error::SharedTarget). A shared buffer is none:
///
/// ```compile_fail,E0277
/// # use std::sync::Arc;
/// # use adverb::{Buf, QueuePair, transport::Rc};
/// fn receive_into_shared(qp: &QueuePair<Rc>, buf: Arc<Buf>) {
///     let _ = qp.post_recv(buf);
/// }
/// ```
#[doc(alias = "ibv_sge")]
pub trait Target: Source {}

/// Bytes that are copied while they are posted, so that they need no registered memory: up to
/// [`max_inline`](crate::QueuePair::max_inline) of them. Batches and futures copy them when they are
/// handed over. Nothing comes back with the completion.
#[derive(Clone, Copy, Debug)]
#[doc(alias = "IBV_SEND_INLINE")]
pub struct Inline<'a>(pub &'a [u8]);

/// Memory with a number of the caller's, which comes back as [`Completion::tag`](crate::Completion::tag).
#[derive(Debug)]
#[doc(alias = "wr_id")]
pub struct Tagged<B>(pub B, pub u64);

/// What an operation carries.
#[allow(unnameable_types, reason = "seen only in a sealed trait")]
pub struct Load {
    pub(crate) buffer: Option<Buffer>,
    /// Address and number of bytes that are to be read before whoever lent them has them back:
    /// [`Submit`](crate::Submit).
    pub(crate) inline: Option<(u64, usize)>,
    pub(crate) tag: u64,
}

impl Load {
    fn of(buffer: impl Into<Buffer>) -> Self {
        Self {
            buffer: Some(buffer.into().flat()),
            inline: None,
            tag: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        match (&self.buffer, self.inline) {
            (Some(buffer), _) => buffer.len(),
            (None, inline) => inline.map_or(0, |(_, len)| len),
        }
    }

    /// The bytes that count, as the device wants them named; of a list only how many.
    pub(crate) fn sge(&self) -> c::ibv_sge {
        match (&self.buffer, self.inline) {
            (Some(buffer), _) => buffer.sge(),
            (None, inline) => c::ibv_sge {
                addr: inline.map_or(0, |(addr, _)| addr),
                length: self.len() as u32,
                lkey: 0,
            },
        }
    }
}

impl Source for Inline<'_> {
    fn load(self) -> Load {
        Load {
            buffer: None,
            inline: Some((self.0.as_ptr() as u64, self.0.len())),
            tag: 0,
        }
    }
}

impl<B: Source> Source for Tagged<B> {
    fn load(self) -> Load {
        Load {
            tag: self.1,
            ..self.0.load()
        }
    }
}
impl<B: Target> Target for Tagged<B> {}

macro_rules! memory {
    ($($kind:ty),*) => {$(
        impl sealed::Sealed for $kind {}
        impl sealed::Sealed for Vec<$kind> {}
        impl Source for $kind {
            fn load(self) -> Load {
                Load::of(self)
            }
        }
        impl Source for Vec<$kind> {
            fn load(self) -> Load {
                Load::of(Buffer::Pieces(self.into_iter().map(Buffer::from).collect()))
            }
        }
    )*};
}
memory!(Buf, Arc<Buf>, ExposedSlice, Buffer);

impl Target for Buf {}
impl Target for ExposedSlice {}
impl Target for Vec<Buf> {}
impl Target for Vec<ExposedSlice> {}
impl Target for Vec<Buffer> {}

impl From<Buf> for Buffer {
    fn from(buf: Buf) -> Self {
        Self::Owned(buf)
    }
}

impl From<Arc<Buf>> for Buffer {
    fn from(buf: Arc<Buf>) -> Self {
        Self::Shared(buf)
    }
}

impl From<ExposedSlice> for Buffer {
    fn from(slice: ExposedSlice) -> Self {
        Self::Exposed(slice)
    }
}

mod sealed {
    use super::{Inline, Tagged};

    #[allow(unnameable_types, reason = "nobody else is to implement it")]
    pub trait Sealed {}
    impl Sealed for Inline<'_> {}
    impl<B: Sealed> Sealed for Tagged<B> {}
}
