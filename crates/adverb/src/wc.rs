//! Completions: how an operation ended, and its buffer back.

use adverb_abi::flags::WcFlags;
use adverb_abi::types as c;

use crate::buffer::Buffer;
use crate::grh::{GRH_LEN, sender_of_grh};
use crate::mr::Buf;
use crate::status::WcError;
use crate::values::{Gid, RKey};

/// Names one posted operation; no other of the process ever has the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpId(pub(crate) u64);

/// What kind of operation a completion is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OpKind {
    /// A message sent.
    Send,
    /// Bytes written to a peer's memory.
    Write,
    /// Bytes read from a peer's memory.
    Read,
    /// A word of the peer's compared and swapped.
    CompareSwap,
    /// A number added to a word of the peer's.
    FetchAdd,
    /// A message received.
    Recv,
    /// A memory window bound.
    Bind,
    /// The key of a memory window taken back.
    Invalidate,
    /// Posted by the unsafe escape hatch.
    Raw,
}

/// The end of one operation.
///
/// Every operation that was accepted yields exactly one completion. One posted with
/// [`PostFlags::UNSIGNALED`](crate::PostFlags::UNSIGNALED) yields it together with the next signaled one.
#[derive(Debug)]
#[doc(alias = "ibv_wc")]
pub struct Completion {
    /// Which operation, as returned when it was posted.
    pub id: OpId,
    /// What it was.
    pub kind: OpKind,
    /// The number of our queue pair; tells receives of a shared receive queue apart.
    pub qp_num: u32,
    /// The number it was posted with ([`Tagged`](crate::Tagged)), or 0.
    pub tag: u64,
    /// How it ended.
    pub result: Result<Info, WcError>,
    /// The buffer that was posted. After a receive its length is what arrived.
    pub buffer: Option<Buffer>,
}

impl Completion {
    /// The buffer, if it was a [`Buf`].
    pub fn into_buf(self) -> Option<Buf> {
        match self.buffer {
            Some(Buffer::Owned(buf)) => Some(buf),
            _ => None,
        }
    }

    /// The buffer, or the error if the operation failed.
    ///
    /// # Errors
    /// The [`WcError`]; the buffer is dropped then.
    pub fn ok(self) -> Result<Option<Buffer>, WcError> {
        self.result.map(|_| self.buffer)
    }

    /// What was received, without the header in front of a datagram. `None` when this is no
    /// successful receive into a [`Buf`].
    pub fn payload(&self) -> Option<&[u8]> {
        let (OpKind::Recv, Ok(info), Some(Buffer::Owned(buf))) =
            (self.kind, &self.result, &self.buffer)
        else {
            return None;
        };
        if info.has_grh {
            buf.get(GRH_LEN..)
        } else {
            Some(buf)
        }
    }

    /// The GID of a datagram's sender, for a reply.
    pub fn sender(&self) -> Option<Gid> {
        let (OpKind::Recv, Ok(info), Some(Buffer::Owned(buf))) =
            (self.kind, &self.result, &self.buffer)
        else {
            return None;
        };
        if !info.has_grh {
            return None;
        }
        sender_of_grh(buf.first_chunk()?)
    }
}

/// What the device tells about a successful operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Info {
    /// Bytes received or read. For a receive on a UD queue pair this includes the [`GRH_LEN`]
    /// bytes in front; 0 for sends and writes.
    pub byte_len: u32,
    /// Immediate data that came with the message, as the number the sender gave.
    pub imm: Option<u32>,
    /// The key of ours that the sender invalidated.
    pub invalidated: Option<RKey>,
    /// Whether a datagram came with its route header, as it always does on RoCE.
    pub has_grh: bool,
    /// A datagram's sending queue pair.
    pub src_qp: u32,
    /// Whether the receive was used up by a write with immediate data: `byte_len` is the length
    /// of the write then, and nothing was put into the receive's buffer.
    pub by_write: bool,
}

impl Info {
    /// `datagram`: whether it came through a queue pair for datagrams.
    pub(crate) fn from_wc(wc: &c::ibv_wc, kind: OpKind, datagram: bool) -> Self {
        let flags = WcFlags::from_bits_retain(wc.wc_flags);
        // SAFETY: both members of the union are 32-bit integers.
        let (imm, rkey) = unsafe { (wc.imm_or_rkey.imm_data, wc.imm_or_rkey.rkey) };
        let receive = kind == OpKind::Recv;
        let sized = matches!(
            kind,
            OpKind::Recv | OpKind::Read | OpKind::FetchAdd | OpKind::CompareSwap
        );
        Self {
            // Undefined for sends and writes, so it does not get out.
            byte_len: if sized { wc.byte_len } else { 0 },
            imm: (receive && flags.contains(WcFlags::WITH_IMM)).then(|| u32::from_be(imm)),
            invalidated: (receive && flags.contains(WcFlags::WITH_INV)).then_some(RKey(rkey)),
            has_grh: receive && datagram && flags.contains(WcFlags::GRH),
            src_qp: if receive { wc.src_qp } else { 0 },
            by_write: receive && wc.opcode == c::IBV_WC_RECV_RDMA_WITH_IMM,
        }
    }
}
