//! What operations move in and completions give back.

use std::slice;
use std::sync::Arc;

use adverb_abi::types as c;

use crate::error::{Error, Result};
use crate::exposed::ExposedSlice;
use crate::mr::{Buf, Registration};
use crate::pd::PdInner;

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
    /// Several pieces that are one message, in order.
    Pieces(Vec<Self>),
}

impl Buffer {
    /// The [`Buf`], if it is one.
    pub fn into_buf(self) -> Option<Buf> {
        match self {
            Self::Owned(buf) => Some(buf),
            _ => None,
        }
    }

    /// The bytes that count, unless peers may change them meanwhile, or they are in
    /// [`pieces`](Self::pieces).
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Owned(buf) => Some(buf),
            Self::Shared(buf) => Some(buf),
            Self::Exposed(_) | Self::Pieces(_) => None,
        }
    }

    /// Its pieces, in the order of the message; of what is no list, itself.
    pub fn pieces(&self) -> &[Self] {
        match self {
            Self::Pieces(pieces) => pieces,
            one => slice::from_ref(one),
        }
    }

    /// Its pieces, to be posted again or looked at; of what is no list, itself.
    pub fn into_pieces(self) -> Vec<Self> {
        match self {
            Self::Pieces(pieces) => pieces,
            one => vec![one],
        }
    }

    /// The same without lists inside a list.
    pub(crate) fn flat(self) -> Self {
        let nested = |piece: &Self| matches!(piece, Self::Pieces(_));
        match self {
            Self::Pieces(pieces) if pieces.iter().any(nested) => Self::Pieces(
                pieces
                    .into_iter()
                    .flat_map(|piece| piece.flat().into_pieces())
                    .collect(),
            ),
            flat => flat,
        }
    }

    /// The registration below it, unless it has several.
    fn registration(&self) -> Option<&Arc<Registration>> {
        match self {
            Self::Owned(buf) => Some(buf.registration()),
            Self::Shared(buf) => Some(buf.registration()),
            Self::Exposed(slice) => Some(slice.registration()),
            Self::Pieces(_) => None,
        }
    }

    /// Whether all of it is registered in this protection domain.
    pub(crate) fn is_of(&self, pd: &Arc<PdInner>) -> bool {
        self.pieces().iter().all(|piece| {
            piece
                .registration()
                .is_some_and(|region| Arc::ptr_eq(&region.pd, pd))
        })
    }

    /// The bytes that count, as the device wants them named; of a list only how many.
    pub(crate) fn sge(&self) -> c::ibv_sge {
        let addr = match self {
            Self::Owned(buf) => buf.addr(),
            Self::Shared(buf) => buf.addr(),
            Self::Exposed(slice) => slice.addr(),
            Self::Pieces(_) => 0,
        };
        c::ibv_sge {
            addr,
            length: self.len() as u32,
            lkey: self.registration().map_or(0, |region| region.lkey),
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
            Self::Pieces(pieces) => pieces.iter().map(Self::capacity).sum(),
            other => other.len(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Owned(buf) => buf.len(),
            Self::Shared(buf) => buf.len(),
            Self::Exposed(slice) => slice.len(),
            Self::Pieces(pieces) => pieces.iter().map(Self::len).sum(),
        }
    }

    /// Whether it is a word that an atomic operation can return its value in.
    pub(crate) fn check_word(&self) -> Result<()> {
        if self.registration().is_none()
            || self.capacity() < 8
            || !self.sge().addr.is_multiple_of(8)
        {
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

    /// What the device wrote counts: of a list the pieces are filled in order.
    pub(crate) fn received(&mut self, len: usize) {
        match self {
            Self::Owned(buf) => buf.received(len),
            Self::Pieces(pieces) => {
                let mut left = len;
                for piece in pieces {
                    let here = left.min(piece.capacity());
                    piece.received(here);
                    left -= here;
                }
            }
            Self::Shared(_) | Self::Exposed(_) => {}
        }
    }

    /// Gives the memory up for good.
    pub(crate) fn leak(self) {
        match self {
            Self::Owned(buf) => buf.leak(),
            Self::Pieces(pieces) => pieces.into_iter().for_each(Self::leak),
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
