//! Receives on their way to a queue: one, or as many as there are in few calls.

use std::array;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex};

use adverb_abi::inline;
use adverb_abi::types::{self as c, Zeroed};

use crate::buffer::Buffer;
use crate::error::{Error, Result};
use crate::pd::PdInner;
use crate::request::{BatchError, Posted, Rejected};
use crate::slab::{Op, Reserved, Slab};
use crate::source::Load;
use crate::sync::lock;
use crate::sys;
use crate::wc::OpKind;

/// Receives in one call of the device.
const LIST: usize = 32;

/// Who receives.
#[derive(Clone, Copy)]
pub(crate) enum Receiver {
    One(NonNull<c::ibv_qp>),
    Shared(NonNull<c::ibv_srq>),
}

/// A queue of receives, which is alive.
pub(crate) struct ReceiveQueue<'a> {
    pub(crate) to: Receiver,
    pub(crate) slab: &'a Mutex<Slab>,
    pub(crate) pd: &'a Arc<PdInner>,
    pub(crate) max_sge: u32,
    /// For messages.
    pub(crate) name: &'a str,
}

/// A receive in its slot.
#[derive(Clone, Copy)]
struct Receive {
    slot: Reserved,
    /// Its memory, if it is in one piece.
    sge: c::ibv_sge,
    /// The number of pieces, if it is a list.
    list: Option<usize>,
}

impl Receive {
    const NONE: Self = Self {
        slot: Reserved::NONE,
        sge: c::ibv_sge {
            addr: 0,
            length: 0,
            lkey: 0,
        },
        list: None,
    };
}

impl ReceiveQueue<'_> {
    pub(crate) fn post(&self, load: Load) -> Posted {
        let mut slab = lock(self.slab);
        let receive = self.claim(&mut slab, load)?;
        let id = receive.slot.id;
        match self.hand_over(&mut slab, &[receive], 1) {
            Ok(()) => Ok(id),
            Err((error, _)) => Err(Rejected {
                error,
                buffer: slab.retract(receive.slot).and_then(|op| op.buffer),
            }),
        }
    }

    pub(crate) fn post_all(
        &self,
        mut loads: impl Iterator<Item = Load>,
    ) -> Result<usize, BatchError> {
        let mut accepted = 0;
        loop {
            // Where they come from is the caller's affair, and not to be asked under the lock.
            let mut next: [Option<Load>; LIST] = array::from_fn(|_| None);
            for (place, load) in next.iter_mut().zip(&mut loads) {
                *place = Some(load);
            }
            let last = next[LIST - 1].is_none();
            accepted += self
                .post_some(next.into_iter().flatten())
                .map_err(|stopped| BatchError {
                    accepted: accepted + stopped.accepted,
                    ..stopped
                })?;
            if last {
                return Ok(accepted);
            }
        }
    }

    /// At most [`LIST`] of them.
    fn post_some(&self, mut loads: impl Iterator<Item = Load>) -> Result<usize, BatchError> {
        let mut slab = lock(self.slab);
        let mut claimed = [Receive::NONE; LIST];
        let mut count = 0;
        let mut refused = None;
        for load in &mut loads {
            match self.claim(&mut slab, load) {
                Ok(receive) => {
                    claimed[count] = receive;
                    count += 1;
                }
                Err(e) => {
                    refused = Some(e);
                    break;
                }
            }
        }
        let (accepted, error) = match self.hand_over(&mut slab, &claimed, count) {
            Ok(()) => (count, None),
            Err((error, accepted)) => (accepted, Some(error)),
        };
        let mut buffers: Vec<_> = claimed[accepted..count]
            .iter()
            .filter_map(|receive| slab.retract(receive.slot)?.buffer)
            .collect();
        let error = match (error, refused) {
            (None, None) => return Ok(accepted),
            (error, refused) => {
                let (reason, buffer) = refused.map(|r| (r.error, r.buffer)).unzip();
                buffers.extend(buffer.flatten());
                buffers.extend(loads.filter_map(|load| load.buffer));
                error.or(reason)
            }
        };
        match error {
            None => Ok(accepted),
            Some(error) => Err(BatchError {
                error,
                accepted,
                buffers,
            }),
        }
    }

    /// Checks it and takes a slot for it.
    fn claim(&self, slab: &mut Slab, load: Load) -> Result<Receive, Rejected> {
        let Load { buffer, tag, .. } = load;
        let (sge, list) = match &buffer {
            Some(Buffer::Pieces(pieces)) => (c::ibv_sge::zeroed(), Some(&**pieces)),
            Some(one) => (one.room(), None),
            None => (c::ibv_sge::zeroed(), None),
        };
        let mut checked = Ok(());
        if let Some(buffer) = &buffer
            && !buffer.is_of(self.pd)
        {
            checked = Err(Error::Foreign {
                what: "the buffer",
                owner: "protection domain",
            });
        }
        let list = list.map(|pieces| {
            let filled = pieces.iter().filter(|p| p.capacity() > 0).count();
            if checked.is_ok() {
                checked = check_list(pieces, filled, self.max_sge, true);
            }
            filled
        });
        if let Err(error) = checked {
            return Err(Rejected { error, buffer });
        }
        let op = Op {
            kind: OpKind::Recv,
            buffer,
            named: None,
            tag,
        };
        match slab.reserve(op) {
            Ok(slot) => Ok(Receive { slot, sge, list }),
            Err(op) => Err(Rejected {
                error: Error::QueueFull {
                    queue: "receive",
                    capacity: slab.capacity(),
                },
                buffer: op.buffer,
            }),
        }
    }

    /// Gives the device the first `count` of them; or says why it stopped, and after how many.
    fn hand_over<const N: usize>(
        &self,
        slab: &mut Slab,
        claimed: &[Receive; N],
        count: usize,
    ) -> Result<(), (Error, usize)> {
        let claimed = &claimed[..count];
        if count == 0 {
            return Ok(());
        }
        let mut sges: [c::ibv_sge; N] = array::from_fn(|_| c::ibv_sge::zeroed());
        let mut wrs: [c::ibv_recv_wr; N] = array::from_fn(|_| c::ibv_recv_wr::zeroed());
        let lists = claimed.iter().filter(|r| r.list.is_some());
        let mut pieces = slab.lay_out(lists.map(|r| r.slot), Buffer::room);
        let (first, sge) = (wrs.as_mut_ptr(), sges.as_mut_ptr());
        for (i, receive) in claimed.iter().enumerate() {
            // SAFETY: `i`, and `i + 1` where it is used, are inside the arrays.
            unsafe {
                let wr = first.add(i);
                (*wr).wr_id = receive.slot.wr_id();
                (*wr).next = match i + 1 < count {
                    true => first.add(i + 1),
                    false => ptr::null_mut(),
                };
                match receive.list {
                    Some(n) => {
                        (*wr).sg_list = pieces;
                        (*wr).num_sge = n as libc::c_int;
                        pieces = pieces.wrapping_add(n);
                    }
                    None => {
                        *sge.add(i) = receive.sge;
                        (*wr).sg_list = sge.add(i);
                        (*wr).num_sge = libc::c_int::from(receive.sge.length > 0);
                    }
                }
            }
        }
        let mut bad = ptr::null_mut();
        // SAFETY: the queue is alive, the list is linked and ends; the memory is registered and
        // kept by the slots until the completions; the requests are read during the call only.
        let (rc, verb) = unsafe {
            match self.to {
                Receiver::One(qp) => (
                    inline::ibv_post_recv(qp.as_ptr(), first, &raw mut bad),
                    "ibv_post_recv",
                ),
                Receiver::Shared(srq) => (
                    inline::ibv_post_srq_recv(srq.as_ptr(), first, &raw mut bad),
                    "ibv_post_srq_recv",
                ),
            }
        };
        sys::check(rc, verb, self.name).map_err(|error| {
            let accepted = (0..count).find(|i| ptr::eq(first.wrapping_add(*i), bad));
            (error, accepted.unwrap_or_default())
        })
    }
}

/// Whether a list can be posted: `filled` of its pieces have bytes.
pub(crate) fn check_list(
    pieces: &[Buffer],
    filled: usize,
    limit: u32,
    written: bool,
) -> Result<()> {
    let shared = |piece: &Buffer| matches!(piece, Buffer::Shared(_));
    if written && let Some(index) = pieces.iter().position(shared) {
        return Err(Error::SharedTarget { index });
    }
    if filled > limit as usize {
        return Err(Error::Value {
            what: "pieces of memory in one operation (ask for more with max_send_sge, max_recv_sge)",
            value: filled as u64,
            limit: limit.into(),
        });
    }
    Ok(())
}
