//! Operations on their way to the device: flags, work requests in their slots, and refusals.

use std::fmt;

use adverb_abi::types::{self as c, Zeroed};

use crate::buffer::Buffer;
use crate::error::{Error, Result};
use crate::mr::Buf;
use crate::remote::RemoteRegion;
use crate::slab::{Op, Reserved, Slab};
use crate::source::Load;
use crate::wc::{OpId, OpKind};

bitflags::bitflags! {
    /// How a send, write, read or atomic is handled.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    #[doc(alias = "ibv_send_flags")]
    pub struct PostFlags: u32 {
        /// No completion of its own: it is reported together with the next signaled operation,
        /// which saves work. At least every half queue one is signaled all the same.
        const UNSIGNALED = 1 << 0;
        /// The receiver's completion counts as solicited ([`Notify::Solicited`](crate::Notify::Solicited)).
        const SOLICITED = 1 << 1;
        /// Starts only when all reads and atomics before it are over.
        const FENCE = 1 << 2;
        /// The device copies the bytes while posting, up to [`QueuePair::max_inline`]; saves
        /// small sends and writes a trip to memory.
        const INLINE = 1 << 3;
    }
}

/// A refused operation: the reason, and the buffer back.
///
/// `?` turns it into an [`Error`] and drops the buffer.
pub struct Rejected {
    /// Why.
    pub error: Error,
    /// What was to be posted.
    pub buffer: Option<Buffer>,
}

impl Rejected {
    pub(crate) fn new(error: Error, load: Load) -> Self {
        Self {
            error,
            buffer: load.buffer,
        }
    }

    /// Whether the queue was full: poll completions and try again.
    pub fn is_would_block(&self) -> bool {
        self.error.is_would_block()
    }

    /// The buffer, if it was a [`Buf`](crate::Buf).
    pub fn into_buf(self) -> Option<Buf> {
        self.buffer.and_then(Buffer::into_buf)
    }
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl fmt::Debug for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rejected")
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

impl std::error::Error for Rejected {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl From<Rejected> for Error {
    fn from(rejected: Rejected) -> Self {
        rejected.error
    }
}

/// What posting returns.
pub type Posted = Result<OpId, Rejected>;

/// A batch, or receives posted together, that the device took in part, or not at all.
#[derive(Debug, thiserror::Error)]
#[error("{accepted} requests of a batch were accepted, then: {error}")]
pub struct BatchError {
    /// Why it stopped.
    #[source]
    pub error: Error,
    /// How many requests the device took. They complete as usual.
    pub accepted: usize,
    /// The buffers of the others, in order.
    pub buffers: Vec<Buffer>,
}

impl From<BatchError> for Error {
    fn from(stopped: BatchError) -> Self {
        stopped.error
    }
}

/// An operation before it is posted.
#[allow(unnameable_types, reason = "seen only in a sealed trait")]
pub struct Request {
    pub(crate) op: Op,
    pub(crate) flags: PostFlags,
    pub(crate) wr: c::ibv_send_wr,
    pub(crate) sge: c::ibv_sge,
}

impl Request {
    pub(crate) fn new(
        kind: OpKind,
        opcode: c::ibv_wr_opcode,
        load: Load,
        mut flags: PostFlags,
    ) -> Self {
        let mut wr = c::ibv_send_wr::zeroed();
        wr.opcode = opcode;
        let sge = load.sge();
        if load.inline.is_some() {
            flags |= PostFlags::INLINE;
        }
        Self {
            op: Op {
                kind,
                buffer: load.buffer,
                named: None,
                tag: load.tag,
            },
            flags,
            wr,
            sge,
        }
    }

    pub(crate) fn imm(mut self, imm: Option<u32>) -> Self {
        if let Some(imm) = imm {
            self.wr.imm_or_rkey = c::ibv_imm_or_rkey {
                imm_data: imm.to_be(),
            };
        }
        self
    }

    /// With a completion of its own.
    pub(crate) fn signaled(mut self) -> Self {
        self.flags.remove(PostFlags::UNSIGNALED);
        self
    }

    /// The bytes that are lent to it for the time of a call.
    pub(crate) fn lent(&self) -> Option<&[u8]> {
        if self.op.buffer.is_some() || self.sge.length == 0 {
            return None;
        }
        // SAFETY: without a buffer they are those of an `Inline`, which whoever submits the request
        // borrows meanwhile, or a copy that the request was given together with ([`copied`]).
        Some(unsafe {
            std::slice::from_raw_parts(self.sge.addr as *const u8, self.sge.length as usize)
        })
    }

    /// Has it read these bytes instead of those lent to it: a copy that stays until it is posted.
    pub(crate) fn copied(&mut self, bytes: &[u8]) {
        self.sge.addr = bytes.as_ptr() as u64;
    }
}

// SAFETY: the pointers inside are null, or lead to an address handle, or a window and its region, that
// the operation keeps alive;
// an address of inline bytes is only read while posting, by whoever borrows them.
unsafe impl Send for Request {}
// SAFETY: as above.
unsafe impl Sync for Request {}

/// The requests of a batch, and the bytes that they have inline.
#[derive(Default)]
pub(crate) struct Stage {
    pub(crate) requests: Vec<Staged>,
    pub(crate) inline: Vec<u8>,
}

/// A staged request. Its pointers are set when it is posted.
pub(crate) struct Staged {
    pub(crate) slot: Reserved,
    /// Whether a completion of its own was asked for.
    pub(crate) signaled: bool,
    pub(crate) wr: c::ibv_send_wr,
    /// Its memory, if it is in one piece.
    pub(crate) sge: c::ibv_sge,
    pub(crate) memory: Memory,
}

/// Where the memory of a staged request is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    /// In the request.
    One,
    /// In a list, which its slot has.
    List,
    /// Bytes that are lent to it.
    Lent,
}

impl Staged {
    /// The device is about to get it, after all committed before.
    pub(crate) fn commit(&mut self, slab: &mut Slab) {
        let signaled = self.signaled || slab.must_signal();
        if signaled {
            self.wr.send_flags |= c::IBV_SEND_SIGNALED;
        }
        slab.commit(self.slot, signaled);
    }
}

// SAFETY: the pointers inside are null, or lead to address handles, windows and their regions that
// the operation's slot keeps alive; nothing is read through them before the batch is posted.
unsafe impl Send for Staged {}
// SAFETY: as above.
unsafe impl Sync for Staged {}

/// Whether `len` bytes fit into the peer's region.
pub(crate) fn fits(len: usize, remote: &RemoteRegion) -> Result<()> {
    if len as u64 > remote.len {
        return Err(Error::OutOfRange {
            offset: 0,
            wanted: len as u64,
            len: remote.len,
        });
    }
    Ok(())
}
