//! Operations on their way to the device: flags, work requests in their slots, and refusals.

use std::fmt;

use adverb_abi::types::{self as c, Zeroed};

use crate::buffer::Buffer;
use crate::error::{Error, Result};
use crate::mr::Buf;
use crate::remote::RemoteRegion;
use crate::slab::{Op, Reserved, Slab};
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
    pub(crate) fn new(error: Error, buffer: Buffer) -> Self {
        Self {
            error,
            buffer: Some(buffer),
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
        buffer: Buffer,
        flags: PostFlags,
    ) -> Self {
        let mut wr = c::ibv_send_wr::zeroed();
        wr.opcode = opcode;
        let sge = buffer.sge();
        Self {
            op: Op {
                kind,
                buffer: Some(buffer),
                address: None,
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

    /// A request whose bytes are copied while it is posted.
    pub(crate) fn bare(kind: OpKind, opcode: c::ibv_wr_opcode) -> Self {
        let mut wr = c::ibv_send_wr::zeroed();
        wr.opcode = opcode;
        Self {
            op: Op {
                kind,
                buffer: None,
                address: None,
            },
            flags: PostFlags::INLINE,
            wr,
            sge: c::ibv_sge::zeroed(),
        }
    }
}

// SAFETY: the pointers inside are null, or lead to an address handle that the operation keeps alive;
// an address of inline bytes is only read while posting, by whoever borrows them.
unsafe impl Send for Request {}
// SAFETY: as above.
unsafe impl Sync for Request {}

/// A staged request of a batch. Its pointers are set when the batch is posted.
pub(crate) struct Staged {
    pub(crate) slot: Reserved,
    /// Whether a completion of its own was asked for.
    pub(crate) signaled: bool,
    pub(crate) wr: c::ibv_send_wr,
    pub(crate) sge: c::ibv_sge,
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

// SAFETY: the pointers inside are null, or lead to address handles that the operation's slot
// keeps alive; nothing is read through them before the batch is posted.
unsafe impl Send for Staged {}
// SAFETY: as above.
unsafe impl Sync for Staged {}

/// A receive in its slot.
pub(crate) struct Receive {
    pub(crate) slot: Reserved,
    wr: c::ibv_recv_wr,
    sge: c::ibv_sge,
}

impl Receive {
    pub(crate) fn claim(slab: &mut Slab, buffer: Buffer) -> Result<Self, Rejected> {
        let sge = buffer.room();
        let op = Op {
            kind: OpKind::Recv,
            buffer: Some(buffer),
            address: None,
        };
        let slot = slab.reserve(op).map_err(|op| Rejected {
            error: Error::QueueFull {
                queue: "receive",
                capacity: slab.capacity(),
            },
            buffer: op.buffer,
        })?;
        let mut wr = c::ibv_recv_wr::zeroed();
        wr.wr_id = slot.wr_id();
        wr.num_sge = libc::c_int::from(sge.length > 0);
        Ok(Self { slot, wr, sge })
    }

    /// The work request, with its pointers set; valid while `self` stays where it is.
    pub(crate) fn wr(&mut self) -> *mut c::ibv_recv_wr {
        self.wr.sg_list = &raw mut self.sge;
        &raw mut self.wr
    }
}

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
