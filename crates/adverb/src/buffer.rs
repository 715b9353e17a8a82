//! What operations move in and completions give back.

use std::sync::Arc;

use adverb_abi::types as c;

use crate::error::{Error, Result};
use crate::exposed::ExposedSlice;
use crate::mr::{Buf, Registration};

/// Longest message of the InfiniBand architecture (volume 1, section 9.7.1).
const MAX_MESSAGE: usize = 1 << 31;

/// Memory on its way through an operation.
#[derive(Debug)]
#[non_exhaustive]
pub enum Buffer {
    /// Memory of its own.
    Owned(Buf),
    /// Memory that several sends read at once.
    Shared(Arc<Buf>),
    /// Memory that peers reach as well.
    Exposed(ExposedSlice),
}

impl Buffer {
    /// The [`Buf`], if it is one.
    pub fn into_buf(self) -> Option<Buf> {
        match self {
            Self::Owned(buf) => Some(buf),
            _ => None,
        }
    }

    /// The bytes that count, unless peers may change them meanwhile.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Owned(buf) => Some(buf),
            Self::Shared(buf) => Some(buf),
            Self::Exposed(_) => None,
        }
    }

    pub(crate) fn registration(&self) -> &Arc<Registration> {
        match self {
            Self::Owned(buf) => buf.registration(),
            Self::Shared(buf) => buf.registration(),
            Self::Exposed(slice) => slice.registration(),
        }
    }

    /// The bytes that count, as the device wants them named.
    pub(crate) fn sge(&self) -> c::ibv_sge {
        let (addr, length) = match self {
            Self::Owned(buf) => (buf.addr(), buf.len()),
            Self::Shared(buf) => (buf.addr(), buf.len()),
            Self::Exposed(slice) => (slice.addr(), slice.len()),
        };
        c::ibv_sge {
            addr,
            length: length as u32,
            lkey: self.registration().lkey,
        }
    }

    /// All of its room, for what writes to it; as much of it as a message can fill.
    pub(crate) fn room(&self) -> c::ibv_sge {
        let mut sge = self.sge();
        sge.length = self.capacity().min(MAX_MESSAGE) as u32;
        sge
    }

    pub(crate) fn capacity(&self) -> usize {
        match self {
            Self::Owned(buf) => buf.capacity(),
            other => other.len(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Owned(buf) => buf.len(),
            Self::Shared(buf) => buf.len(),
            Self::Exposed(slice) => slice.len(),
        }
    }

    /// Whether it is a word that an atomic operation can return its value in.
    pub(crate) fn check_word(&self) -> Result<()> {
        if self.capacity() < 8 || !self.sge().addr.is_multiple_of(8) {
            return Err(Error::Misaligned {
                addr: self.sge().addr,
                len: self.capacity() as u64,
            });
        }
        Ok(())
    }

    /// Makes `len` bytes count.
    pub(crate) fn count(&mut self, len: usize) -> Result<()> {
        if len > self.capacity() {
            return Err(Error::Value {
                what: "bytes to read, for the room of the target,",
                value: len as u64,
                limit: self.capacity() as u64,
            });
        }
        self.received(len);
        Ok(())
    }

    pub(crate) fn received(&mut self, len: usize) {
        if let Self::Owned(buf) = self {
            buf.received(len);
        }
    }

    /// Gives the memory up for good.
    pub(crate) fn leak(self) {
        match self {
            Self::Owned(buf) => buf.leak(),
            other => {
                crate::mr::count_leak(other.len());
                std::mem::forget(other);
            }
        }
    }
}

/// Whether a message can be so long.
pub(crate) fn check_len(len: usize) -> Result<()> {
    if len > MAX_MESSAGE {
        return Err(Error::Value {
            what: "message length",
            value: len as u64,
            limit: MAX_MESSAGE as u64,
        });
    }
    Ok(())
}

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

/// Memory that an operation can read: [`Buf`], `Arc<Buf>` or [`ExposedSlice`].
pub trait Source: Into<Buffer> + sealed::Sealed {}
impl Source for Buf {}
impl Source for Arc<Buf> {}
impl Source for ExposedSlice {}
impl Source for Buffer {}

/// Memory that an operation can write: [`Buf`] or [`ExposedSlice`]. A shared buffer is none:
///
/// ```compile_fail,E0277
/// # use std::sync::Arc;
/// # use adverb::{Buf, QueuePair, transport::Rc};
/// fn receive_into_shared(qp: &QueuePair<Rc>, buf: Arc<Buf>) {
///     let _ = qp.post_recv(buf);
/// }
/// ```
pub trait Target: Into<Buffer> + sealed::Sealed {}
impl Target for Buf {}
impl Target for ExposedSlice {}

mod sealed {
    use super::*;

    #[allow(unnameable_types, reason = "nobody else is to implement it")]
    pub trait Sealed {}
    impl Sealed for Buf {}
    impl Sealed for Arc<Buf> {}
    impl Sealed for ExposedSlice {}
    impl Sealed for Buffer {}
}
