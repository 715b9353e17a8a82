//! The ring of send work: entries, their pieces and inline bytes, each in one flat array that is
//! never grown.

use adverb_wire::Transport;

use super::QpCaps;
use crate::completion::{WcOpcode, WcStatus};
use crate::ids::Key;
use crate::wr::{MAX_SGE, SendOp, Sge, UdAddress};

/// One send work request while it is in the queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendWqe {
    pub(super) wr_id: u64,
    pub(super) op: SendOp,
    pub(super) len: u32,
    pub(super) sge_count: u8,
    pub(super) inline: bool,
    pub(super) signaled: bool,
    pub(super) fence: bool,
    pub(super) solicited: bool,
    /// XRC: the SRQ at the peer.
    pub(super) xrc_srqn: u32,
    /// Known to fail with this status once everything before it has completed.
    pub(super) failed: Option<WcStatus>,
    /// First sequence number, and how many; set when the entry starts.
    pub(super) first: u64,
    pub(super) packets: u64,
    /// READ: responses up to here have been asked for.
    pub(super) requested: u64,
}

impl SendWqe {
    pub(super) const EMPTY: Self = Self {
        wr_id: 0,
        op: SendOp::Send,
        len: 0,
        sge_count: 0,
        inline: false,
        signaled: false,
        fence: false,
        solicited: false,
        xrc_srqn: 0,
        failed: None,
        first: 0,
        packets: 0,
        requested: 0,
    };

    pub(super) const fn end(&self) -> u64 {
        self.first + self.packets
    }

    pub(super) const fn is_read(&self) -> bool {
        matches!(self.op, SendOp::Read { .. })
    }

    pub(super) const fn is_atomic(&self) -> bool {
        matches!(
            self.op,
            SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. }
        )
    }

    /// FLUSH and ATOMIC_WRITE are answered as a READ of nothing would be.
    pub(super) const fn wants_empty_answer(&self) -> bool {
        matches!(self.op, SendOp::AtomicWrite { .. } | SendOp::Flush(_))
    }

    /// Work of this side alone: it sends nothing.
    pub(super) const fn is_local(&self) -> bool {
        matches!(self.op, SendOp::LocalInv(_) | SendOp::BindMw(_))
    }

    /// Whether only a response of its own completes it, not an acknowledgement.
    pub(super) const fn wants_response(&self) -> bool {
        self.is_read() || self.is_atomic() || self.wants_empty_answer()
    }

    pub(super) const fn opcode(&self) -> WcOpcode {
        match self.op {
            SendOp::Send | SendOp::SendImm(_) | SendOp::SendInv(_) => WcOpcode::Send,
            SendOp::Write { .. } | SendOp::WriteImm { .. } => WcOpcode::RdmaWrite,
            SendOp::Read { .. } => WcOpcode::RdmaRead,
            SendOp::CompareSwap { .. } => WcOpcode::CompSwap,
            SendOp::FetchAdd { .. } => WcOpcode::FetchAdd,
            SendOp::LocalInv(_) => WcOpcode::LocalInv,
            SendOp::BindMw(_) => WcOpcode::BindMw,
            SendOp::AtomicWrite { .. } => WcOpcode::AtomicWrite,
            SendOp::Flush(_) => WcOpcode::Flush,
        }
    }
}

/// Free-running positions: `tail` ≤ `cursor` ≤ `started` ≤ `head`.
#[derive(Debug)]
pub(super) struct SendQueue {
    entries: Vec<SendWqe>,
    sges: Vec<Sge>,
    inline: Vec<u8>,
    datagrams: Vec<UdAddress>,
    capacity: u32,
    max_sge: usize,
    max_inline: usize,
    /// Inline room of an entry: that of an ATOMIC_WRITE at least.
    inline_room: usize,
    /// Oldest entry that has not completed.
    pub(super) tail: u64,
    /// Entry whose packets are being sent; goes back on a retry.
    pub(super) cursor: u64,
    /// First entry that has never been started.
    pub(super) started: u64,
    /// Where the next entry is posted.
    pub(super) head: u64,
}

impl SendQueue {
    pub(super) fn new(caps: &QpCaps, transport: Transport) -> Self {
        // A power of two, so that finding an entry costs a mask and not a division.
        let n = (caps.max_send_wr as usize).next_power_of_two();
        let max_sge = (caps.max_send_sge as usize).min(MAX_SGE);
        let max_inline = caps.max_inline as usize;
        let inline_room = max_inline.max(8);
        let datagrams = if transport == Transport::Ud { n } else { 0 };
        Self {
            entries: vec![SendWqe::EMPTY; n],
            sges: vec![
                Sge {
                    addr: 0,
                    len: 0,
                    lkey: Key(0)
                };
                n * max_sge
            ],
            inline: vec![0; n * inline_room],
            datagrams: vec![UdAddress::default(); datagrams],
            capacity: caps.max_send_wr,
            max_sge,
            max_inline,
            inline_room,
            tail: 0,
            cursor: 0,
            started: 0,
            head: 0,
        }
    }

    pub(super) const fn len(&self) -> u32 {
        (self.head - self.tail) as u32
    }

    pub(super) const fn capacity(&self) -> u32 {
        self.capacity
    }

    pub(super) const fn max_sge(&self) -> usize {
        self.max_sge
    }

    pub(super) const fn max_inline(&self) -> usize {
        self.max_inline
    }

    pub(super) fn at(&self, n: u64) -> &SendWqe {
        &self.entries[self.index(n)]
    }

    pub(super) fn at_mut(&mut self, n: u64) -> &mut SendWqe {
        let i = self.index(n);
        &mut self.entries[i]
    }

    pub(super) fn sges(&self, n: u64) -> &[Sge] {
        let from = self.index(n) * self.max_sge;
        &self.sges[from..from + usize::from(self.at(n).sge_count)]
    }

    pub(super) fn inline(&self, n: u64) -> &[u8] {
        let from = self.index(n) * self.inline_room;
        &self.inline[from..from + self.at(n).len as usize]
    }

    pub(super) fn datagram(&self, n: u64) -> &UdAddress {
        &self.datagrams[self.index(n)]
    }

    /// Appends an entry; the caller has checked room and sizes.
    pub(super) fn push(
        &mut self,
        wqe: SendWqe,
        sges: &[Sge],
        inline: &[u8],
        ud: Option<&UdAddress>,
    ) {
        let i = self.index(self.head);
        self.entries[i] = wqe;
        self.sges[i * self.max_sge..][..sges.len()].copy_from_slice(sges);
        self.inline[i * self.inline_room..][..inline.len()].copy_from_slice(inline);
        if let (Some(slot), Some(ud)) = (self.datagrams.get_mut(i), ud) {
            *slot = *ud;
        }
        self.head += 1;
    }

    pub(super) fn clear(&mut self) {
        self.tail = self.head;
        self.cursor = self.head;
        self.started = self.head;
    }

    fn index(&self, n: u64) -> usize {
        n as usize & (self.entries.len() - 1)
    }
}
