//! The operations of one queue that a device may still be working on.
//!
//! Every slot is allocated when the queue is made; posting moves a buffer into a free slot and
//! its completion moves it out. The id given to the device names queue, slot and generation, so
//! a completion that comes too late, or twice, finds nothing. The number of slots is the size of
//! the queue: running out of them is how a full queue is noticed, before the device is asked.
//! Nothing here knows how somebody waits, so futures can be put on top.

use std::collections::VecDeque;
use std::sync::Arc;

use adverb_abi::types as c;

use crate::ah::AhInner;
use crate::buffer::Buffer;
use crate::wc::{Completion, Info, OpId, OpKind, WcError, WcStatus};

/// Most operations one queue can have outstanding.
pub(crate) const MAX_SLOTS: u32 = 1 << 16;
const GENERATION_BITS: u32 = 24;
const SLOT_BITS: u32 = 16;
const KEY_BITS: u32 = 23;
const GENERATION_MASK: u32 = (1 << GENERATION_BITS) - 1;
const SHARED: u64 = 1 << 63;

/// Which queue an id belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueKey {
    /// The queue of this number at its completion queue.
    Own(u32),
    /// The shared receive queue of this number.
    Shared(u32),
}

impl QueueKey {
    pub(crate) const MAX: u32 = (1 << KEY_BITS) - 1;

    fn bits(self) -> u64 {
        match self {
            Self::Own(key) => u64::from(key) << (SLOT_BITS + GENERATION_BITS),
            Self::Shared(key) => SHARED | u64::from(key) << (SLOT_BITS + GENERATION_BITS),
        }
    }

    pub(crate) fn of(wr_id: u64) -> Self {
        let key = ((wr_id & !SHARED) >> (SLOT_BITS + GENERATION_BITS)) as u32;
        if wr_id & SHARED == 0 {
            Self::Own(key)
        } else {
            Self::Shared(key)
        }
    }
}

/// One operation and what must stay alive until it is over.
#[derive(Debug)]
pub(crate) struct Op {
    pub(crate) kind: OpKind,
    pub(crate) buffer: Option<Buffer>,
    /// The address handle a datagram is sent through.
    pub(crate) address: Option<Arc<AhInner>>,
}

struct Slot {
    generation: u32,
    op: Option<Op>,
}

/// The slots of a send queue, a receive queue or a shared receive queue.
pub(crate) struct Slab {
    key: QueueKey,
    slots: Box<[Slot]>,
    free: Vec<u16>,
    /// Slots in the order of posting; only for send queues, where operations without a
    /// completion of their own are over when a later one is.
    order: Option<VecDeque<u16>>,
    /// Unsignaled operations since the last signaled one.
    unsignaled: u32,
    /// The datagram queue pairs that receive from here. Kernel software RoCE says of every
    /// receive that it begins with a route header, which is so for these alone.
    datagram_qps: Vec<u32>,
}

impl Slab {
    /// `first_generation` must be beyond any generation used under this key before.
    pub(crate) fn new(key: QueueKey, capacity: u32, ordered: bool, first_generation: u32) -> Self {
        debug_assert!(capacity <= MAX_SLOTS);
        Self {
            key,
            slots: (0..capacity)
                .map(|_| Slot {
                    generation: first_generation & GENERATION_MASK,
                    op: None,
                })
                .collect(),
            free: (0..capacity).rev().map(|i| i as u16).collect(),
            order: ordered.then(|| VecDeque::with_capacity(capacity as usize)),
            unsignaled: 0,
            datagram_qps: Vec::new(),
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

    pub(crate) fn outstanding(&self) -> u32 {
        (self.slots.len() - self.free.len()) as u32
    }

    /// A generation that no id of this slab has used.
    pub(crate) fn next_generation(&self) -> u32 {
        self.slots
            .iter()
            .map(|s| s.generation)
            .max()
            .unwrap_or(0)
            .wrapping_add(1)
            & GENERATION_MASK
    }

    /// Whether the next operation needs a completion of its own even if nobody asked for one:
    /// without one now and then a queue of unsignaled operations would never empty.
    pub(crate) fn must_signal(&self) -> bool {
        self.unsignaled + 1 >= self.capacity().div_ceil(2)
    }

    /// Puts an operation into a free slot, or gives it back when there is none.
    pub(crate) fn insert(&mut self, op: Op, signaled: bool) -> Result<OpId, Op> {
        let Some(index) = self.free.pop() else {
            return Err(op);
        };
        self.slots[usize::from(index)].op = Some(op);
        if let Some(order) = &mut self.order {
            order.push_back(index);
        }
        self.unsignaled = if signaled { 0 } else { self.unsignaled + 1 };
        Ok(self.id(index))
    }

    /// Takes back the operation posted last, which the device did not accept.
    pub(crate) fn retract(&mut self, id: OpId) -> Option<Op> {
        let index = self.find(id.0)?;
        if let Some(order) = &mut self.order {
            debug_assert_eq!(
                order.back(),
                Some(&index),
                "only the newest operation is retracted"
            );
            order.pop_back();
        }
        self.unsignaled = self.unsignaled.saturating_sub(1);
        self.take(index)
    }

    /// Moves the completed operation, and those in front of it that completed without a word,
    /// into `out`. `false` when the id names nothing: the completion is a stale one.
    pub(crate) fn complete(&mut self, wc: &c::ibv_wc, out: &mut Vec<Completion>) -> bool {
        let Some(index) = self.find(wc.wr_id) else {
            return false;
        };
        while let Some(silent) = self.order.as_mut().and_then(VecDeque::pop_front) {
            if silent == index {
                break;
            }
            let id = self.id(silent);
            if let Some(op) = self.take(silent) {
                out.push(Completion {
                    id,
                    kind: op.kind,
                    qp_num: wc.qp_num,
                    result: Ok(Info::default()),
                    buffer: op.buffer,
                });
            }
        }
        let Some(mut op) = self.take(index) else {
            return false;
        };
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
        if let (OpKind::Recv, Ok(info), Some(buffer)) = (op.kind, &result, &mut op.buffer) {
            // The length of a write with immediate is that of the write, which went elsewhere.
            let here = if info.by_write { 0 } else { info.byte_len };
            buffer.received(here as usize);
        }
        out.push(Completion {
            id: OpId(wc.wr_id),
            kind: op.kind,
            qp_num: wc.qp_num,
            result,
            buffer: op.buffer,
        });
        true
    }

    /// Takes everything that is left, for a queue the device no longer knows.
    pub(crate) fn drain(&mut self) -> Vec<(OpId, Op)> {
        let posted = self.order.as_mut().map(std::mem::take);
        let indices: Vec<u16> = match posted {
            Some(order) => order.into(),
            None => (0..self.slots.len()).map(|i| i as u16).collect(),
        };
        indices
            .into_iter()
            .filter_map(|i| Some((self.id(i), self.take(i)?)))
            .collect()
    }

    fn id(&self, index: u16) -> OpId {
        let generation = self.slots[usize::from(index)].generation;
        OpId(self.key.bits() | u64::from(index) << GENERATION_BITS | u64::from(generation))
    }

    fn find(&self, wr_id: u64) -> Option<u16> {
        let index = (wr_id >> GENERATION_BITS) as u16;
        let slot = self.slots.get(usize::from(index))?;
        let current = slot.op.is_some()
            && slot.generation == wr_id as u32 & GENERATION_MASK
            && QueueKey::of(wr_id) == self.key;
        current.then_some(index)
    }

    fn take(&mut self, index: u16) -> Option<Op> {
        let slot = &mut self.slots[usize::from(index)];
        let op = slot.op.take()?;
        slot.generation = slot.generation.wrapping_add(1) & GENERATION_MASK;
        self.free.push(index);
        Some(op)
    }
}

#[cfg(test)]
mod tests {
    use adverb_abi::types::Zeroed;

    use super::*;

    fn op() -> Op {
        Op {
            kind: OpKind::Send,
            buffer: None,
            address: None,
        }
    }

    fn wc(id: OpId, status: WcStatus) -> c::ibv_wc {
        let mut wc = c::ibv_wc::zeroed();
        wc.wr_id = id.0;
        wc.status = status.0;
        wc.qp_num = 7;
        wc
    }

    #[test]
    fn ids_name_queue_slot_and_generation() {
        for key in [
            QueueKey::Own(0),
            QueueKey::Own(QueueKey::MAX),
            QueueKey::Shared(5),
        ] {
            let mut slab = Slab::new(key, 2, false, GENERATION_MASK);
            let first = slab.insert(op(), true).unwrap();
            assert_eq!(QueueKey::of(first.0), key);
            let mut out = Vec::new();
            assert!(slab.complete(&wc(first, WcStatus::SUCCESS), &mut out));
            assert!(
                !slab.complete(&wc(first, WcStatus::SUCCESS), &mut out),
                "twice"
            );
            let second = slab.insert(op(), true).unwrap();
            assert_ne!(first, second);
            assert_eq!(out.len(), 1);
        }
    }

    #[test]
    fn a_route_header_is_in_front_of_datagrams_only() {
        let mut slab = Slab::new(QueueKey::Shared(1), 4, false, 0);
        slab.serve_datagrams(8);
        let has_header = |slab: &mut Slab, qp_num| {
            let receive = Op {
                kind: OpKind::Recv,
                ..op()
            };
            let mut wc = wc(slab.insert(receive, true).unwrap(), WcStatus::SUCCESS);
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
        let mut slab = Slab::new(QueueKey::Own(1), 2, true, 0);
        assert!(slab.insert(op(), true).is_ok());
        assert!(slab.insert(op(), true).is_ok());
        assert!(slab.insert(op(), true).is_err());
        assert_eq!(slab.outstanding(), 2);
    }

    #[test]
    fn silent_operations_end_with_the_next_signaled_one() {
        let mut slab = Slab::new(QueueKey::Own(1), 8, true, 0);
        let ids: Vec<_> = (0..4).map(|i| slab.insert(op(), i == 2).unwrap()).collect();
        let mut out = Vec::new();
        assert!(slab.complete(&wc(ids[2], WcStatus::WR_FLUSH_ERR), &mut out));
        assert_eq!(out.iter().map(|c| c.id).collect::<Vec<_>>(), ids[..3]);
        assert_eq!(
            out.iter().map(|c| c.result.is_ok()).collect::<Vec<_>>(),
            [true, true, false]
        );
        assert_eq!(slab.outstanding(), 1);
    }

    #[test]
    fn unsignaled_runs_are_broken_before_the_queue_is_stuck() {
        for capacity in [1, 2, 3, 16] {
            let mut slab = Slab::new(QueueKey::Own(1), capacity, true, 0);
            let mut signaled = 0;
            while slab.outstanding() < capacity {
                let signal = slab.must_signal();
                signaled += u32::from(signal);
                slab.insert(op(), signal).unwrap();
            }
            assert!(signaled > 0, "capacity {capacity}");
        }
    }

    #[test]
    fn a_refused_operation_leaves_no_trace() {
        let mut slab = Slab::new(QueueKey::Own(1), 2, true, 0);
        let kept = slab.insert(op(), true).unwrap();
        let refused = slab.insert(op(), true).unwrap();
        assert!(slab.retract(refused).is_some());
        assert!(slab.retract(refused).is_none());
        let mut out = Vec::new();
        assert!(slab.complete(&wc(kept, WcStatus::SUCCESS), &mut out));
        assert_eq!((out.len(), slab.outstanding()), (1, 0));
    }

    #[test]
    fn completions_of_another_queue_or_of_no_slot_are_stale() {
        let mut slab = Slab::new(QueueKey::Own(1), 2, false, 0);
        let id = slab.insert(op(), true).unwrap();
        let mut out = Vec::new();
        let other = OpId(id.0 ^ (1 << (SLOT_BITS + GENERATION_BITS)));
        for bad in [
            other,
            OpId(id.0 | SHARED),
            OpId(id.0 | 0xffff << GENERATION_BITS),
        ] {
            assert!(!slab.complete(&wc(bad, WcStatus::SUCCESS), &mut out));
        }
        assert!(out.is_empty());
    }
}
