//! The operations of one queue that a device may still be working on.
//!
//! Every slot is allocated when the queue is made; posting moves a buffer into a free slot and
//! its completion moves it out. Each operation gets a number that the process never gives again,
//! and the id told to the device holds the slot and 48 bits of that number: a completion that
//! comes too late, twice, or for another queue finds nothing. The number of slots is the size of
//! the queue: running out of them is how a full queue is noticed, before the device is asked.
//! Nothing here knows how somebody waits, so futures can be put on top.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use adverb_abi::types as c;

use crate::ah::AhInner;
use crate::buffer::Buffer;
use crate::status::{WcError, WcStatus};
use crate::wc::{Completion, Info, OpId, OpKind};
use crate::window::MwInner;

/// Most operations one queue can have outstanding.
pub(crate) const MAX_SLOTS: u32 = 1 << 16;
const SLOT_BITS: u32 = 16;

/// The operations of a process are numbered through. A queue takes a block at a time, so that
/// queues do not contend for the counter.
static NEXT_BLOCK: AtomicU64 = AtomicU64::new(0);
const BLOCK: u64 = 1 << 10;

/// One operation and what must stay alive until it is over.
#[derive(Debug)]
pub(crate) struct Op {
    pub(crate) kind: OpKind,
    pub(crate) buffer: Option<Buffer>,
    pub(crate) named: Option<Named>,
    /// The caller's number for it.
    pub(crate) tag: u64,
}

/// What an operation names besides memory.
#[derive(Debug)]
pub(crate) enum Named {
    /// A datagram goes through it.
    Address(Arc<AhInner>),
    /// It is bound, or invalidated.
    Window(Arc<MwInner>),
}

struct Slot {
    id: OpId,
    op: Option<Op>,
}

/// An operation of a send queue that the device has.
struct Posted {
    index: u16,
    /// Operations without a completion of their own up to and with this one, since the last
    /// that has one.
    silent: u32,
}

/// A slot taken for an operation that the device does not have yet. Only [`Slab::commit`] makes
/// it one that completions end; one that is forgotten ends with its queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reserved {
    index: u16,
    pub(crate) id: OpId,
}

impl Reserved {
    /// Of no operation.
    pub(crate) const NONE: Self = Self {
        index: u16::MAX,
        id: OpId(u64::MAX),
    };

    /// What the device is told.
    pub(crate) fn wr_id(self) -> u64 {
        wr_id(self.id, self.index)
    }
}

fn wr_id(id: OpId, index: u16) -> u64 {
    id.0 << SLOT_BITS | u64::from(index)
}

/// The slots of a send queue, a receive queue or a shared receive queue.
pub(crate) struct Slab {
    slots: Box<[Slot]>,
    free: Vec<u16>,
    /// Numbers for the next operations.
    numbers: Range<u64>,
    /// Slots in the order of posting; only for send queues, where operations without a
    /// completion of their own are over when a later one is.
    order: Option<VecDeque<Posted>>,
    /// The datagram queue pairs that receive from here. Kernel software RoCE says of every
    /// receive that it begins with a route header, which is so for these alone.
    datagram_qps: Vec<u32>,
    /// The pieces of lists that are being posted.
    pieces: Vec<c::ibv_sge>,
    /// An operation of our own, of which nobody is told.
    mark: Option<OpId>,
}

impl Slab {
    pub(crate) fn new(capacity: u32, ordered: bool) -> Self {
        debug_assert!(capacity <= MAX_SLOTS);
        Self {
            slots: (0..capacity)
                .map(|_| Slot {
                    id: OpId(0),
                    op: None,
                })
                .collect(),
            free: (0..capacity).rev().map(|i| i as u16).collect(),
            numbers: 0..0,
            order: ordered.then(|| VecDeque::with_capacity(capacity as usize)),
            datagram_qps: Vec::new(),
            pieces: Vec::new(),
            mark: None,
        }
    }

    /// What the queue pair of this number receives has a route header in front.
    pub(crate) fn serve_datagrams(&mut self, qp_num: u32) {
        self.datagram_qps.push(qp_num);
    }

    /// The queue pair of this number is no more.
    pub(crate) fn forget(&mut self, qp_num: u32) {
        self.datagram_qps.retain(|num| *num != qp_num);
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Whether no slot is free.
    pub(crate) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// Operations that the device has.
    pub(crate) fn outstanding(&self) -> u32 {
        match &self.order {
            Some(order) => order.len() as u32,
            None => (self.slots.len() - self.free.len()) as u32,
        }
    }

    /// Operations that the device has and says nothing of when they succeed, after the last one
    /// of which it does.
    pub(crate) fn silent(&self) -> u32 {
        self.order
            .as_ref()
            .and_then(VecDeque::back)
            .map_or(0, |last| last.silent)
    }

    /// Whether the next operation needs a completion of its own even if nobody asked for one:
    /// without one now and then a queue of unsignaled operations would never empty.
    pub(crate) fn must_signal(&self) -> bool {
        self.silent() + 1 >= self.capacity().div_ceil(2)
    }

    /// Takes a slot, or gives the operation back when there is none.
    pub(crate) fn reserve(&mut self, op: Op) -> Result<Reserved, Op> {
        let Some(index) = self.free.pop() else {
            return Err(op);
        };
        if self.numbers.is_empty() {
            let start = NEXT_BLOCK.fetch_add(BLOCK, Ordering::Relaxed);
            self.numbers = start..start + BLOCK;
        }
        let id = OpId(self.numbers.start);
        self.numbers.start += 1;
        self.slots[usize::from(index)] = Slot { id, op: Some(op) };
        Ok(Reserved { index, id })
    }

    /// The device is about to get the operation, after all committed before.
    pub(crate) fn commit(&mut self, reserved: Reserved, signaled: bool) {
        let silent = if signaled { 0 } else { self.silent() + 1 };
        if let Some(order) = &mut self.order {
            order.push_back(Posted {
                index: reserved.index,
                silent,
            });
        }
    }

    /// The pieces of the lists of these operations, one list behind the other, and how many each
    /// has. They stay where they are until the next call.
    pub(crate) fn lay_out(
        &mut self,
        lists: impl Iterator<Item = Reserved>,
        piece: impl Fn(&Buffer) -> c::ibv_sge,
    ) -> *mut c::ibv_sge {
        self.pieces.clear();
        for list in lists {
            let op = self.slots[usize::from(list.index)].op.as_ref();
            let buffer = op.and_then(|op| op.buffer.as_ref());
            let pieces = buffer.map_or(&[][..], Buffer::pieces);
            // A length of 0 means 2 GiB to some devices.
            let pieces = pieces.iter().map(&piece).filter(|sge| sge.length > 0);
            self.pieces.extend(pieces);
        }
        self.pieces.as_mut_ptr()
    }

    /// The device is about to get an operation of our own, with a completion of its own. Whoever polls
    /// for it, it is not handed out.
    pub(crate) fn commit_mark(&mut self, reserved: Reserved) {
        self.commit(reserved, true);
        self.mark = Some(reserved.id);
    }

    /// Takes back an operation that the device did not get, or did not accept: of those
    /// committed, the last.
    pub(crate) fn retract(&mut self, reserved: Reserved) -> Option<Op> {
        let index = self.find(reserved.wr_id())?;
        if let Some(order) = &mut self.order
            && order.back().is_some_and(|last| last.index == index)
        {
            order.pop_back();
        }
        self.take(index)
    }

    /// Moves the completed operation, and those in front of it that completed without a word,
    /// into `out`. `false` when the id names nothing: the completion is a stale one.
    pub(crate) fn complete(&mut self, wc: &c::ibv_wc, out: &mut Vec<Completion>) -> bool {
        let Some(index) = self.find(wc.wr_id) else {
            return false;
        };
        while let Some(Posted { index: silent, .. }) =
            self.order.as_mut().and_then(VecDeque::pop_front)
        {
            if silent == index {
                break;
            }
            let id = self.slots[usize::from(silent)].id;
            if let Some(mut op) = self.take(silent) {
                let info = Info::default();
                settle(&mut op, &info);
                out.push(Completion {
                    id,
                    kind: op.kind,
                    qp_num: wc.qp_num,
                    tag: op.tag,
                    result: Ok(info),
                    buffer: op.buffer,
                });
            }
        }
        let id = self.slots[usize::from(index)].id;
        let Some(mut op) = self.take(index) else {
            return false;
        };
        if self.mark == Some(id) {
            return true;
        }
        let result = match WcStatus(wc.status) {
            WcStatus::SUCCESS => Ok(Info::from_wc(
                wc,
                op.kind,
                self.datagram_qps.contains(&wc.qp_num),
            )),
            status => Err(WcError {
                status,
                vendor_err: wc.vendor_err,
            }),
        };
        if let Ok(info) = &result {
            settle(&mut op, info);
        }
        out.push(Completion {
            id,
            kind: op.kind,
            qp_num: wc.qp_num,
            tag: op.tag,
            result,
            buffer: op.buffer,
        });
        true
    }

    /// Takes everything that the device had, for a queue it no longer knows.
    pub(crate) fn drain(&mut self) -> Vec<(OpId, Op)> {
        let mark = self.mark.take();
        let posted = self.order.as_mut().map(std::mem::take);
        let indices: Vec<u16> = match posted {
            Some(order) => order.into_iter().map(|p| p.index).collect(),
            None => (0..self.slots.len()).map(|i| i as u16).collect(),
        };
        indices
            .into_iter()
            .filter_map(|i| Some((self.slots[usize::from(i)].id, self.take(i)?)))
            .filter(|(id, _)| mark != Some(*id))
            .collect()
    }

    fn find(&self, wr_id: u64) -> Option<u16> {
        let index = wr_id as u16;
        let slot = self.slots.get(usize::from(index))?;
        (slot.op.is_some() && self::wr_id(slot.id, index) == wr_id).then_some(index)
    }

    fn take(&mut self, index: u16) -> Option<Op> {
        let op = self.slots[usize::from(index)].op.take()?;
        self.free.push(index);
        Some(op)
    }
}

/// The buffer of a successful operation that wrote to it counts what was written.
fn settle(op: &mut Op, info: &Info) {
    let Some(buffer) = &mut op.buffer else { return };
    match op.kind {
        // The length of a write with immediate is that of the write, which went elsewhere.
        OpKind::Recv if info.by_write => buffer.received(0),
        OpKind::Recv => buffer.received(info.byte_len as usize),
        OpKind::FetchAdd | OpKind::CompareSwap => buffer.received(8),
        // A read's length was set when it was posted.
        OpKind::Send
        | OpKind::Write
        | OpKind::Read
        | OpKind::Bind
        | OpKind::Invalidate
        | OpKind::Raw => {}
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use adverb_abi::types::Zeroed;

    use super::*;

    fn op() -> Op {
        Op {
            kind: OpKind::Send,
            buffer: None,
            named: None,
            tag: 0,
        }
    }

    fn post(slab: &mut Slab, op: Op, signaled: bool) -> Reserved {
        let reserved = slab.reserve(op).unwrap();
        slab.commit(reserved, signaled);
        reserved
    }

    fn wc(of: Reserved, status: WcStatus) -> c::ibv_wc {
        let mut wc = c::ibv_wc::zeroed();
        wc.wr_id = of.wr_id();
        wc.status = status.0;
        wc.qp_num = 7;
        wc
    }

    #[test]
    fn no_two_operations_of_any_queues_have_one_id() {
        let mut seen = HashSet::new();
        for _ in 0..300 {
            let mut slab = Slab::new(2, false);
            for _ in 0..5 {
                let posted = post(&mut slab, op(), true);
                assert!(seen.insert(posted.id), "{:?} was used before", posted.id);
                let mut out = Vec::new();
                let wc = wc(posted, WcStatus::SUCCESS);
                assert!(slab.complete(&wc, &mut out));
                assert!(!slab.complete(&wc, &mut out), "twice");
                assert_eq!((out.len(), out[0].id), (1, posted.id));
            }
        }
    }

    #[test]
    fn a_route_header_is_in_front_of_datagrams_only() {
        let mut slab = Slab::new(4, false);
        slab.serve_datagrams(8);
        let has_header = |slab: &mut Slab, qp_num| {
            let receive = Op {
                kind: OpKind::Recv,
                ..op()
            };
            let mut wc = wc(post(slab, receive, true), WcStatus::SUCCESS);
            wc.qp_num = qp_num;
            // As kernel software RoCE says of everything.
            wc.wc_flags = adverb_abi::flags::WcFlags::GRH.bits();
            let mut out = Vec::new();
            assert!(slab.complete(&wc, &mut out));
            out.pop().unwrap().result.unwrap().has_grh
        };
        assert!(!has_header(&mut slab, 7));
        assert!(has_header(&mut slab, 8));
        slab.forget(8);
        assert!(!has_header(&mut slab, 8), "the number is another's now");
    }

    #[test]
    fn a_full_queue_gives_the_operation_back() {
        let mut slab = Slab::new(2, true);
        post(&mut slab, op(), true);
        post(&mut slab, op(), true);
        assert!(slab.reserve(op()).is_err());
        assert_eq!(slab.outstanding(), 2);
    }

    #[test]
    fn silent_operations_end_with_the_next_signaled_one() {
        let mut slab = Slab::new(8, true);
        let posted: Vec<_> = (0..4).map(|i| post(&mut slab, op(), i == 2)).collect();
        let mut out = Vec::new();
        assert!(slab.complete(&wc(posted[2], WcStatus::WR_FLUSH_ERR), &mut out));
        assert_eq!(
            out.iter().map(|c| c.id).collect::<Vec<_>>(),
            posted[..3].iter().map(|r| r.id).collect::<Vec<_>>()
        );
        assert_eq!(
            out.iter().map(|c| c.result.is_ok()).collect::<Vec<_>>(),
            [true, true, false]
        );
        assert_eq!((slab.outstanding(), slab.silent()), (1, 1));
    }

    #[test]
    fn what_the_device_never_got_is_never_reported() {
        let mut slab = Slab::new(4, true);
        slab.reserve(op()).unwrap(); // and forgotten
        let posted = post(&mut slab, op(), true);
        let mut out = Vec::new();
        assert!(slab.complete(&wc(posted, WcStatus::SUCCESS), &mut out));
        assert_eq!((out.len(), slab.outstanding()), (1, 0));
        assert!(slab.drain().is_empty());
    }

    #[test]
    fn a_mark_ends_what_was_silent_and_is_not_seen_itself() {
        let mut slab = Slab::new(4, true);
        let silent = post(&mut slab, op(), false);
        let mark = slab.reserve(op()).unwrap();
        slab.commit_mark(mark);
        let mut out = Vec::new();
        assert!(slab.complete(&wc(mark, WcStatus::WR_FLUSH_ERR), &mut out));
        assert_eq!(out.iter().map(|c| c.id).collect::<Vec<_>>(), [silent.id]);
        assert_eq!(slab.outstanding(), 0);
        let mark = slab.reserve(op()).unwrap();
        slab.commit_mark(mark);
        assert!(slab.drain().is_empty());
    }

    #[test]
    fn unsignaled_runs_are_broken_before_the_queue_is_stuck() {
        for capacity in [1, 2, 3, 16] {
            let mut slab = Slab::new(capacity, true);
            let mut signaled = 0;
            while slab.outstanding() < capacity {
                // An operation with a completion that is not posted in the end counts for nothing.
                let refused = post(&mut slab, op(), true);
                slab.retract(refused).unwrap();
                let signal = slab.must_signal();
                signaled += u32::from(signal);
                post(&mut slab, op(), signal);
            }
            assert!(signaled > 0, "capacity {capacity}");
        }
    }

    #[test]
    fn a_refused_operation_leaves_no_trace() {
        let mut slab = Slab::new(2, true);
        let kept = post(&mut slab, op(), true);
        let refused = post(&mut slab, op(), true);
        assert!(slab.retract(refused).is_some());
        assert!(slab.retract(refused).is_none());
        let mut out = Vec::new();
        assert!(slab.complete(&wc(kept, WcStatus::SUCCESS), &mut out));
        assert_eq!((out.len(), slab.outstanding()), (1, 0));
    }

    #[test]
    fn completions_of_another_queue_or_of_no_slot_are_stale() {
        let (mut slab, mut other) = (Slab::new(2, false), Slab::new(2, false));
        let (posted, others) = (post(&mut slab, op(), true), post(&mut other, op(), true));
        let mut out = Vec::new();
        let mut no_slot = wc(posted, WcStatus::SUCCESS);
        no_slot.wr_id |= 0xffff;
        for bad in [no_slot, wc(others, WcStatus::SUCCESS)] {
            assert!(!slab.complete(&bad, &mut out));
        }
        assert!(out.is_empty());
    }
}
