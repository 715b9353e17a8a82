//! Work requests: what an application posts, and the receive entry an SRQ hands out.

use adverb_wire::Gid;
use bitflags::bitflags;

use crate::ids::Key;
use crate::memory::Access;

/// Most scatter/gather entries of one work request.
pub const MAX_SGE: usize = 32;

/// Longest message, inclusive.
pub const MAX_MESSAGE: u64 = 1 << 31;

/// One piece of local memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sge {
    pub addr: u64,
    pub len: u32,
    pub lkey: Key,
}

bitflags! {
    /// Flags of a send work request. Inline is not a flag here, see [`SendData::Inline`].
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct SendFlags: u32 {
        const FENCE = 1;
        const SIGNALED = 2;
        const SOLICITED = 4;
    }
}

/// What a memory window is to cover.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MwBind {
    pub window: Key,
    /// Its low 8 bits are the window's new tag; the rest is ignored.
    pub new_key: Key,
    pub region: Key,
    pub addr: u64,
    pub len: u64,
    pub access: Access,
}

/// What a FLUSH is to make visible.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlushTarget {
    pub remote_addr: u64,
    pub len: u32,
    pub rkey: Key,
    /// 1 global visibility, 2 persistence.
    pub placement: u8,
    /// The whole region instead of the range.
    pub whole_region: bool,
}

/// The operation of a send work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendOp {
    Send,
    SendImm([u8; 4]),
    SendInv(Key),
    Write {
        remote_addr: u64,
        rkey: Key,
    },
    WriteImm {
        remote_addr: u64,
        rkey: Key,
        imm: [u8; 4],
    },
    Read {
        remote_addr: u64,
        rkey: Key,
    },
    CompareSwap {
        remote_addr: u64,
        rkey: Key,
        compare: u64,
        swap: u64,
    },
    FetchAdd {
        remote_addr: u64,
        rkey: Key,
        add: u64,
    },
    LocalInv(Key),
    BindMw(MwBind),
    AtomicWrite {
        remote_addr: u64,
        rkey: Key,
    },
    Flush(FlushTarget),
}

/// An address vector, resolved by the NIC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Av {
    pub sgid_index: u8,
    pub sgid: Gid,
    pub dgid: Gid,
    pub traffic_class: u8,
    pub hop_limit: u8,
    pub flow_label: u32,
    pub sl: u8,
    pub static_rate: u8,
}

impl Default for Av {
    fn default() -> Self {
        Self {
            sgid_index: 0,
            sgid: Gid([0; 16]),
            dgid: Gid([0; 16]),
            traffic_class: 0,
            hop_limit: 64,
            flow_label: 0,
            sl: 0,
            static_rate: 0,
        }
    }
}

/// Where a datagram goes. The address vector is copied at post, so its handle may go at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UdAddress {
    pub av: Av,
    pub remote_qpn: u32,
    pub remote_qkey: u32,
}

/// Where the bytes of a send come from (or, for READ and atomics, go to).
#[derive(Clone, Copy, Debug)]
pub enum SendData<'a> {
    Sges(&'a [Sge]),
    /// Copied at post; the buffer is the caller's again on return.
    Inline(&'a [u8]),
}

/// A send work request.
#[derive(Clone, Copy, Debug)]
pub struct SendWr<'a> {
    pub wr_id: u64,
    pub op: SendOp,
    pub flags: SendFlags,
    pub data: SendData<'a>,
    /// Needed on UD, ignored elsewhere.
    pub ud: Option<UdAddress>,
    /// XRC: the number of the peer's SRQ. Ignored elsewhere.
    pub xrc_srqn: u32,
}

/// A receive work request.
#[derive(Clone, Copy, Debug)]
pub struct RecvWr<'a> {
    pub wr_id: u64,
    pub sges: &'a [Sge],
}

/// A receive entry taken from a queue, its pieces by value.
#[derive(Clone, Debug)]
pub struct RecvWqe {
    pub wr_id: u64,
    count: usize,
    sges: [Sge; MAX_SGE],
}

impl RecvWqe {
    pub const fn empty() -> Self {
        Self {
            wr_id: 0,
            count: 0,
            sges: [Sge {
                addr: 0,
                len: 0,
                lkey: Key(0),
            }; MAX_SGE],
        }
    }

    /// Takes over an entry. Pieces beyond [`MAX_SGE`] do not exist: posting refuses them.
    pub fn set(&mut self, wr_id: u64, sges: &[Sge]) {
        let count = sges.len().min(MAX_SGE);
        self.wr_id = wr_id;
        self.count = count;
        for (to, from) in self.sges.iter_mut().zip(sges) {
            *to = *from;
        }
    }

    pub fn sges(&self) -> &[Sge] {
        &self.sges[..self.count]
    }

    /// Room for a message, in bytes.
    pub fn capacity(&self) -> u64 {
        self.sges().iter().map(|s| u64::from(s.len)).sum()
    }
}

impl Default for RecvWqe {
    fn default() -> Self {
        Self::empty()
    }
}
