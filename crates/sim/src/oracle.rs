//! What the program expects: per queue pair, the work posted, the messages that must arrive, and the
//! bytes that the peer may have changed.

use std::collections::VecDeque;

use adverb_engine::{Key, WcOpcode, WcStatus};
use adverb_wire::Transport;

use crate::fabric::Harm;
use crate::memory::{RegionId, change_word};
use crate::node::Cell;
use crate::window::{Change, Known};

/// Receives have this bit in their id, the number of their buffer in the low 16.
pub(crate) const RECV: u64 = 1 << 63;

/// Most pieces of a message.
pub(crate) const PIECES: usize = 4;

/// Bytes at the front of a target that atomics use; writes go behind them.
pub(crate) const WORDS: usize = 128;

/// Bytes of a message.
#[derive(Clone, Debug)]
pub(crate) enum Data {
    /// Pieces of the sender's source region, as offset and length.
    Source([(u32, u32); PIECES], u8),
    Bytes(Vec<u8>),
}

impl Data {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Source(pieces, n) => pieces[..usize::from(*n)]
                .iter()
                .map(|(_, len)| *len as usize)
                .sum(),
            Self::Bytes(b) => b.len(),
        }
    }

    pub(crate) fn copy_to(&self, source: &[u8], mut out: &mut [u8]) {
        match self {
            Self::Source(pieces, n) => {
                for (at, len) in &pieces[..usize::from(*n)] {
                    let (part, rest) = out.split_at_mut(*len as usize);
                    part.copy_from_slice(&source[*at as usize..][..*len as usize]);
                    out = rest;
                }
            }
            Self::Bytes(b) => out.copy_from_slice(b),
        }
    }

    pub(crate) fn equals(&self, source: &[u8], mut other: &[u8]) -> bool {
        match self {
            Self::Source(pieces, n) => {
                if other.len() != self.len() {
                    return false;
                }
                pieces[..usize::from(*n)].iter().all(|(at, len)| {
                    let (part, rest) = other.split_at(*len as usize);
                    other = rest;
                    part == &source[*at as usize..][..*len as usize]
                })
            }
            Self::Bytes(b) => b == other,
        }
    }
}

/// What a work request does to the peer's target.
#[derive(Clone, Debug)]
pub(crate) enum Effect {
    None,
    Write { to: usize, data: Data },
    Add { at: usize, add: u64 },
    Swap { at: usize, compare: u64, swap: u64 },
}

impl Effect {
    /// Applies it to a model of the target; returns what an atomic finds there.
    pub(crate) fn apply(&self, source: &[u8], target: &mut [u8]) -> u64 {
        match self {
            Self::None => 0,
            Self::Write { to, data } => {
                data.copy_to(source, &mut target[*to..*to + data.len()]);
                0
            }
            Self::Add { at, add } => {
                change_word(&mut target[*at..*at + 8], |v| v.wrapping_add(*add))
            }
            Self::Swap { at, compare, swap } => change_word(&mut target[*at..*at + 8], |v| {
                if v == *compare { *swap } else { v }
            }),
        }
    }
}

/// What a READ or an atomic must bring.
#[derive(Clone, Debug)]
pub(crate) enum Expect {
    Nothing,
    /// Bytes of the peer's source region.
    Source(usize),
    Bytes(Vec<u8>),
    /// What the shared counter held: a number nobody else got.
    Counter,
}

/// A work request posted to a send queue.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) id: u64,
    pub(crate) opcode: WcOpcode,
    pub(crate) signaled: bool,
    pub(crate) len: usize,
    /// It cannot succeed, and ends like this if it gets its turn.
    pub(crate) poison: Option<WcStatus>,
    /// The peer must have received this many messages before it completes.
    pub(crate) receives: Option<u64>,
    pub(crate) effect: Effect,
    pub(crate) expect: Expect,
    /// Slot of the answer region in use, and whether it is free afterwards.
    pub(crate) answer: Option<(u16, bool)>,
    /// A key of this node that must be gone afterwards.
    pub(crate) invalidates: Option<Key>,
    /// The peer's window that it goes through.
    pub(crate) through: Option<usize>,
    /// What it does to a window of either side.
    pub(crate) change: Option<Change>,
}

impl Sent {
    /// What it fetches has nowhere to go here, which is noticed when the answer comes: the peer has done its part.
    pub(crate) fn is_answered_in_vain(&self) -> bool {
        let fetches = matches!(
            self.opcode,
            WcOpcode::RdmaRead | WcOpcode::CompSwap | WcOpcode::FetchAdd
        );
        fetches && self.poison == Some(WcStatus::LocProtErr)
    }
}

/// A message that must arrive, or (UC and UD) may.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    pub(crate) from_node: usize,
    /// Bytes in the buffer; nothing for WRITE with immediate.
    pub(crate) data: Option<Data>,
    pub(crate) byte_len: usize,
    pub(crate) imm: Option<[u8; 4]>,
    pub(crate) invalidated: Option<Key>,
    pub(crate) solicited: bool,
    pub(crate) src_qp: u32,
    /// XRC: the SRQ it is for.
    pub(crate) srqn: Option<u32>,
    /// It is longer than any buffer.
    pub(crate) too_long: bool,
    /// It asks to invalidate what cannot be.
    pub(crate) refused: bool,
    /// What the peer learns from it about a window of either side.
    pub(crate) change: Option<Change>,
}

/// How this life of a queue pair was set up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Setup {
    pub(crate) pmtu: usize,
    pub(crate) endless_rnr: bool,
    pub(crate) sig_all: bool,
    pub(crate) max_inline: usize,
    pub(crate) max_sge: usize,
    pub(crate) reads: bool,
}

/// One queue pair and what is expected of it.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) node: usize,
    pub(crate) transport: Transport,
    pub(crate) conn: usize,
    /// The other end; itself for datagrams.
    pub(crate) peer: usize,
    pub(crate) cell: Option<Cell>,
    pub(crate) num: u32,
    /// XRC: which of the peer's SRQs requests go through now.
    pub(crate) lane: usize,
    pub(crate) setup: Setup,

    /// What the peer WRITEs, READs and changes, and its bytes after all that has certainly
    /// happened, and after all that was posted.
    pub(crate) target: RegionId,
    pub(crate) base: Vec<u8>,
    pub(crate) latest: Vec<u8>,
    /// The target once more, with no rights for peers: windows are bound to it.
    pub(crate) bindable: RegionId,
    pub(crate) windows: Vec<Known>,
    /// Where answers land, in slots of one size.
    pub(crate) answers: RegionId,
    pub(crate) free_answers: Vec<u16>,
    pub(crate) buffers: RegionId,
    pub(crate) free_buffers: Vec<u16>,

    pub(crate) sent: VecDeque<Sent>,
    /// Ended in an error, in order; the first may have been executed in part.
    pub(crate) doomed: Vec<Sent>,
    pub(crate) next_send: u64,
    /// Id of the newest READ of the target: what changes the target later must be fenced.
    pub(crate) target_read: Option<u64>,
    pub(crate) arriving: VecDeque<Arrival>,
    /// Messages that were to arrive, in this life of the queue pair.
    pub(crate) to_arrive: u64,
    pub(crate) posted: VecDeque<u64>,
    pub(crate) next_recv: u64,

    /// A send has failed; all later ones must be flushed.
    pub(crate) dead: bool,
    /// The program itself put it into ERR or lost its peer.
    pub(crate) killed: bool,
    /// A request that the peer refuses has been posted here.
    pub(crate) poisoned: bool,
    /// The key of its target was taken away.
    pub(crate) key_gone: bool,
    /// Stopped with a wish to be told when it has drained.
    pub(crate) draining: bool,
}

/// Two endpoints, or one for datagrams.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) a: usize,
    pub(crate) b: usize,
    pub(crate) harm: Harm,
    /// Nothing more is posted, and at this time it is taken down and built anew.
    pub(crate) closing: Option<u64>,
}
