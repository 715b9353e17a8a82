//! Posting: buffers move in, and come back with the completion or with the refusal.
//!
//! ```compile_fail,E0382
//! # use adverb::{Buf, QueuePair, transport::Rc};
//! fn reuse(qp: &QueuePair<Rc>, mut buf: Buf) {
//!     let _ = qp.post_send(buf);
//!     buf[0] = 1; // the device may be reading it: the compiler says no
//! }
//! ```

use std::iter;
use std::ptr;
use std::sync::Arc;

use adverb_abi::inline;
use adverb_abi::types as c;

use crate::ah::Destination;
use crate::buffer::Buffer;
use crate::error::{Error, Result};
use crate::poster::{Poster, Submit, sealed};
use crate::qp::{QpInner, QueuePair, Receives};
use crate::receive::{ReceiveQueue, Receiver, check_list};
use crate::remote::RemoteRegion;
use crate::request::{BatchError, Memory, PostFlags, Posted, Rejected, Request, Staged};
use crate::slab::{Named, Op, Reserved, Slab};
use crate::source::{Inline, Load, Source, Target};
use crate::sync::lock;
use crate::sys;
use crate::transport::{Connected, Rc, Transport, Ud};
use crate::wc::{OpId, OpKind};

/// At once.
struct Now<'a>(&'a QpInner);

impl sealed::Sealed for Now<'_> {}

impl Submit for Now<'_> {
    type Outcome = Posted;

    fn submit(self, request: Result<Request, Rejected>) -> Posted {
        self.0.post_send(request?)
    }
}

impl QpInner {
    /// Checks the request and takes a slot for it; nothing is committed yet.
    pub(crate) fn claim(&self, slab: &mut Slab, request: Request) -> Result<Staged, Rejected> {
        let Request {
            op,
            flags,
            mut wr,
            sge,
        } = request;
        let lent = op.buffer.is_none() && sge.length > 0;
        let refuse = |error, op: Op| {
            Err(Rejected {
                error,
                buffer: op.buffer,
            })
        };
        let foreign = |what| Error::Foreign {
            what,
            owner: "protection domain",
        };
        let mut memory = match lent {
            true => Memory::Lent,
            false => Memory::One,
        };
        let mut num_sge = libc::c_int::from(sge.length > 0);
        if let Some(buffer) = &op.buffer {
            if !buffer.is_of(&self.pd) {
                return refuse(foreign("the buffer"), op);
            }
            if let Buffer::Pieces(pieces) = buffer {
                let filled = pieces.iter().filter(|p| p.len() > 0).count();
                let written = op.kind == OpKind::Read;
                if let Err(e) = check_list(pieces, filled, self.max_send_sge, written) {
                    return refuse(e, op);
                }
                memory = Memory::List;
                num_sge = filled as libc::c_int;
            }
        }
        let named = match &op.named {
            None => None,
            Some(Named::Address(address)) => Some((address.pd(), "the address handle")),
            Some(Named::Window(window)) => Some((window.pd(), "the memory window")),
        };
        if let Some((pd, what)) = named
            && !Arc::ptr_eq(pd, &self.pd)
        {
            return refuse(foreign(what), op);
        }
        if sge.length > self.longest {
            let error = Error::Value {
                what: "length of a datagram",
                value: sge.length.into(),
                limit: self.longest.into(),
            };
            return refuse(error, op);
        }
        if flags.contains(PostFlags::INLINE) && sge.length > self.max_inline {
            let error = Error::InlineTooLong {
                len: sge.length as usize,
                max: self.max_inline,
            };
            return refuse(error, op);
        }
        for (flag, bit) in [
            (PostFlags::SOLICITED, c::IBV_SEND_SOLICITED),
            (PostFlags::FENCE, c::IBV_SEND_FENCE),
            (PostFlags::INLINE, c::IBV_SEND_INLINE),
        ] {
            if flags.contains(flag) {
                wr.send_flags |= bit;
            }
        }
        match slab.reserve(op) {
            Ok(slot) => {
                wr.wr_id = slot.wr_id();
                wr.num_sge = num_sge;
                let signaled = !flags.contains(PostFlags::UNSIGNALED);
                Ok(Staged {
                    slot,
                    signaled,
                    wr,
                    sge,
                    memory,
                })
            }
            Err(op) => refuse(
                Error::QueueFull {
                    queue: "send",
                    capacity: slab.capacity(),
                },
                op,
            ),
        }
    }

    pub(crate) fn post_send(&self, request: Request) -> Posted {
        self.post_locked(&mut lock(&self.send.slab), request)
    }

    /// Takes the request and posts it, if there is room for it now.
    pub(crate) fn post_if_room(&self, request: &mut Option<Request>) -> Option<Posted> {
        let mut slab = lock(&self.send.slab);
        if slab.is_full() {
            return None;
        }
        Some(self.post_locked(&mut slab, request.take()?))
    }

    /// The lock spans slot and post, so that both queues have the same order.
    fn post_locked(&self, slab: &mut Slab, request: Request) -> Posted {
        let mut staged = self.claim(slab, request)?;
        staged.commit(slab);
        staged.wr.sg_list = match staged.memory {
            Memory::One | Memory::Lent => &raw mut staged.sge,
            Memory::List => slab.lay_out(iter::once(staged.slot), Buffer::sge),
        };
        let mut bad = ptr::null_mut();
        // SAFETY: the queue pair is alive; the request's memory is registered and is kept by
        // the slot until the completion; `wr` and `sge` are read during the call only.
        let rc = unsafe { inline::ibv_post_send(self.raw(), &raw mut staged.wr, &raw mut bad) };
        self.accepted(rc, "ibv_post_send", slab, staged.slot)
    }

    fn accepted(&self, rc: i32, verb: &'static str, slab: &mut Slab, slot: Reserved) -> Posted {
        if let Err(error) = sys::check(rc, verb, &self.name) {
            let op = slab.retract(slot);
            return Err(Rejected {
                error,
                buffer: op.and_then(|op| op.buffer),
            });
        }
        Ok(slot.id)
    }

    /// Its own receives, or why there are none.
    pub(crate) fn receives(&self) -> Result<ReceiveQueue<'_>> {
        match &self.recv {
            Receives::Shared(..) => Err(Error::Unsupported {
                what: "receives of its own: post them to the shared receive queue",
                object: self.name.clone(),
            }),
            Receives::Own(place) => Ok(ReceiveQueue {
                to: Receiver::One(self.raw),
                slab: &place.slab,
                pd: &self.pd,
                max_sge: self.max_recv_sge,
                name: &self.name,
            }),
        }
    }

    pub(crate) fn post_recv(&self, load: Load) -> Posted {
        match self.receives() {
            Ok(queue) => queue.post(load),
            Err(error) => Err(Rejected::new(error, load)),
        }
    }
}

impl<T: Transport> QueuePair<T> {
    /// Posts with flags: `qp.with(PostFlags::UNSIGNALED).send(buf)`.
    pub fn with(&self, flags: PostFlags) -> Poster<T, impl Submit<Outcome = Posted> + use<'_, T>> {
        Poster::new(Now(&self.inner), flags)
    }

    /// Offers a buffer for one message (ibv_post_recv(3)); all of its capacity.
    ///
    /// On a datagram queue pair it needs [`GRH_LEN`](crate::GRH_LEN) bytes more than the
    /// payload.
    ///
    /// # Errors
    /// [`Rejected`], with the buffer: the queue is full, or receives are shared.
    #[doc(alias = "ibv_post_recv")]
    pub fn post_recv(&self, target: impl Target) -> Posted {
        self.inner.post_recv(target.load())
    }

    /// Offers a buffer for each of several messages, in as few calls of the device as possible
    /// (ibv_post_recv(3)), and says how many.
    ///
    /// It takes buffers from the iterator, up to 32 before it posts them, until there are no more
    /// or one is refused. What it has not taken is still in the iterator
    /// ([`by_ref`](Iterator::by_ref) keeps that).
    ///
    /// ```
    /// # fn main() -> Result<(), adverb::Error> {
    /// # if cfg!(not(feature = "soft")) { return Ok(()) }
    /// # use adverb::transport::Rc;
    /// # let ctx = adverb::open_default()?;
    /// # let pd = ctx.alloc_pd()?;
    /// # let cq = ctx.create_cq(32).build()?;
    /// let qp = pd.create_qp::<Rc>(&cq).max_recv_wr(16).build()?;
    /// let mut room = pd.alloc_buf(16 * 256)?;
    /// let parts = std::iter::from_fn(|| {
    ///     let at = room.capacity().checked_sub(256)?;
    ///     Some(room.split_off(at))
    /// });
    /// assert_eq!(qp.post_recvs(parts)?, 16);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`BatchError`], with the buffers that were taken from the iterator and not by the device.
    #[doc(alias = "ibv_post_recv")]
    pub fn post_recvs<B: Target>(
        &self,
        targets: impl IntoIterator<Item = B>,
    ) -> Result<usize, BatchError> {
        let queue = self.inner.receives().map_err(|error| BatchError {
            error,
            accepted: 0,
            buffers: Vec::new(),
        })?;
        queue.post_all(targets.into_iter().map(Source::load))
    }

    /// Posts a work request as it is: for what the safe methods do not offer. Its `wr_id` becomes
    /// the tag of the completion and its `next` is ignored; it is signaled. The completion has the
    /// id that is returned.
    ///
    /// # Safety
    /// All memory and objects that the request names stay valid, and are not used in a
    /// conflicting way, until its completion has been polled or the queue pair is gone.
    ///
    /// # Errors
    /// [`Error::QueueFull`]; [`Error::Verb`].
    #[doc(alias = "ibv_post_send")]
    pub unsafe fn post_raw(&self, wr: &c::ibv_send_wr) -> Result<OpId> {
        let mut slab = lock(&self.inner.send.slab);
        let op = Op {
            kind: OpKind::Raw,
            buffer: None,
            named: None,
            tag: wr.wr_id,
        };
        let capacity = slab.capacity();
        let slot = slab.reserve(op).map_err(|_| Error::QueueFull {
            queue: "send",
            capacity,
        })?;
        slab.commit(slot, true);
        let mut wr = *wr;
        wr.wr_id = slot.wr_id();
        wr.next = ptr::null_mut();
        wr.send_flags |= c::IBV_SEND_SIGNALED;
        let mut bad = ptr::null_mut();
        // SAFETY: the queue pair is alive, and the caller answers for the rest.
        let rc = unsafe { inline::ibv_post_send(self.inner.raw(), &raw mut wr, &raw mut bad) };
        Ok(self.inner.accepted(rc, "ibv_post_send", &mut slab, slot)?)
    }
}

impl<T: Connected> QueuePair<T> {
    /// Sends a message (ibv_post_send(3)). It arrives in the next receive of the peer.
    ///
    /// # Errors
    /// [`Rejected`], with the buffer: the queue is full ([`Rejected::is_would_block`]), the
    /// message too long, or the queue pair not connected.
    #[doc(alias = "ibv_post_send")]
    pub fn post_send(&self, source: impl Source) -> Posted {
        self.with(PostFlags::empty()).send(source)
    }

    /// Sends a message with four bytes beside it, which arrive as the same number.
    ///
    /// # Errors
    /// As [`post_send`](Self::post_send).
    pub fn post_send_imm(&self, source: impl Source, imm: u32) -> Posted {
        self.with(PostFlags::empty()).send_imm(source, imm)
    }

    /// Sends a small message that needs no registered memory: the bytes are copied before this
    /// returns. Short for a [`post_send`](Self::post_send) of [`Inline`].
    ///
    /// # Errors
    /// [`Error::InlineTooLong`] beyond [`max_inline`](Self::max_inline); [`Error::QueueFull`].
    pub fn post_send_inline(&self, bytes: &[u8]) -> Result<OpId> {
        Ok(self.post_send(Inline(bytes))?)
    }

    /// Writes into the peer's memory, at the start of `to`. The peer does not notice.
    ///
    /// # Errors
    /// As [`post_send`](Self::post_send); [`Error::OutOfRange`] when `to` is shorter than the source.
    pub fn post_write(&self, source: impl Source, to: RemoteRegion) -> Posted {
        self.with(PostFlags::empty()).write(source, to)
    }

    /// Writes into the peer's memory and uses up one of its receives to tell it, with four
    /// bytes.
    ///
    /// # Errors
    /// As [`post_write`](Self::post_write).
    pub fn post_write_imm(&self, source: impl Source, to: RemoteRegion, imm: u32) -> Posted {
        self.with(PostFlags::empty()).write_imm(source, to, imm)
    }

    /// Writes a few bytes that need no registered memory: they are copied before this returns.
    /// Short for a [`post_write`](Self::post_write) of [`Inline`].
    ///
    /// # Errors
    /// As [`post_send_inline`](Self::post_send_inline); [`Error::OutOfRange`].
    pub fn post_write_inline(&self, bytes: &[u8], to: RemoteRegion) -> Result<OpId> {
        Ok(self.post_write(Inline(bytes), to)?)
    }
}

impl QueuePair<Rc> {
    /// Reads all of `from`, which is the peer's memory, into the target, whatever counted in it
    /// before: its length becomes that of `from`. Take a [`slice`](RemoteRegion::slice) to read
    /// less. The peer does not notice.
    ///
    /// # Errors
    /// As [`post_send`](Self::post_send); [`Error::Value`] when the target has no room for it.
    pub fn post_read(&self, target: impl Target, from: RemoteRegion) -> Posted {
        self.with(PostFlags::empty()).read(target, from)
    }

    /// Adds to an 8-byte word of the peer's; what it was before comes into the target.
    ///
    /// # Errors
    /// As [`post_send`](Self::post_send); [`Error::Misaligned`], [`Error::OutOfRange`].
    pub fn post_fetch_add(&self, target: impl Target, word: RemoteRegion, add: u64) -> Posted {
        self.with(PostFlags::empty()).fetch_add(target, word, add)
    }

    /// Replaces an 8-byte word of the peer's if it is `compare`; what it was before comes into
    /// the target.
    ///
    /// # Errors
    /// As [`post_fetch_add`](Self::post_fetch_add).
    pub fn post_compare_swap(
        &self,
        target: impl Target,
        word: RemoteRegion,
        compare: u64,
        swap: u64,
    ) -> Posted {
        self.with(PostFlags::empty())
            .compare_swap(target, word, compare, swap)
    }
}

impl QueuePair<Ud> {
    /// Sends a datagram, of at most one MTU.
    ///
    /// # Errors
    /// [`Rejected`], with the buffer.
    #[doc(alias = "ibv_post_send")]
    pub fn post_send_to(&self, source: impl Source, to: &Destination) -> Posted {
        self.with(PostFlags::empty()).send_to(source, to)
    }

    /// Sends a datagram with four bytes beside it.
    ///
    /// # Errors
    /// [`Rejected`], with the buffer.
    pub fn post_send_imm_to(&self, source: impl Source, to: &Destination, imm: u32) -> Posted {
        self.with(PostFlags::empty()).send_imm_to(source, to, imm)
    }
}
