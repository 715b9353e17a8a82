//! Requests for the send queue: each operation of each transport, turned into a work request.
//! Whether it goes to the device at once, into a batch or into a future is the [`Submit`]'s business.

use std::marker::PhantomData;
use std::sync::Arc;

use adverb_abi::flags::AccessFlags;
use adverb_abi::types as c;

use crate::ah::Destination;
use crate::buffer::{Buffer, check_len};
use crate::error::Error;
use crate::exposed::ExposedSlice;
use crate::remote::RemoteRegion;
use crate::request::{PostFlags, Rejected, Request, fits};
use crate::slab::Named;
use crate::source::{Load, Source, Target};
use crate::transport::{Connected, Rc, Transport, Ud};
use crate::values::RKey;
use crate::wc::OpKind;
use crate::window::MemoryWindow;

/// Where a [`Poster`]'s requests go: at once to the device, into a batch, or into a future.
pub trait Submit: sealed::Sealed {
    /// What posting returns.
    type Outcome;

    /// Bytes that the request has inline are lent for the time of the call.
    #[doc(hidden)]
    fn submit(self, request: Result<Request, Rejected>) -> Self::Outcome;
}

pub(crate) mod sealed {
    #[allow(unnameable_types, reason = "nobody else is to implement it")]
    pub trait Sealed {}
}

/// Posts with flags; made by [`QueuePair::with`](crate::QueuePair::with) and [`Batch::with`](crate::Batch::with).
#[must_use = "nothing is posted yet"]
pub struct Poster<T: Transport, S: Submit> {
    to: S,
    flags: PostFlags,
    transport: PhantomData<T>,
}

impl<T: Transport, S: Submit> Poster<T, S> {
    pub(crate) fn new(to: S, flags: PostFlags) -> Self {
        Self {
            to,
            flags,
            transport: PhantomData,
        }
    }
}

impl<T: Connected, S: Submit> Poster<T, S> {
    /// Sends a message.
    ///
    /// # Errors
    /// [`Rejected`], with the buffer: the queue is full, the message too long, the state wrong.
    pub fn send(self, source: impl Source) -> S::Outcome {
        self.message(source.load(), c::IBV_WR_SEND, None)
    }

    /// Sends a message with four bytes beside it, which arrive as the same number.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_imm(self, source: impl Source, imm: u32) -> S::Outcome {
        self.message(source.load(), c::IBV_WR_SEND_WITH_IMM, Some(imm))
    }

    /// Writes into the peer's memory, at the start of `to`. The peer does not notice.
    ///
    /// # Errors
    /// As [`send`](Self::send); [`Error::OutOfRange`] when `to` is shorter than the source.
    pub fn write(self, source: impl Source, to: RemoteRegion) -> S::Outcome {
        self.rdma_write(source.load(), to, None)
    }

    /// Writes into the peer's memory and uses up one of its receives to tell it, with four
    /// bytes.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_imm(self, source: impl Source, to: RemoteRegion, imm: u32) -> S::Outcome {
        self.rdma_write(source.load(), to, Some(imm))
    }

    fn message(self, source: Load, opcode: c::ibv_wr_opcode, imm: Option<u32>) -> S::Outcome {
        let request = match check_len(source.len()) {
            Ok(()) => Ok(Request::new(OpKind::Send, opcode, source, self.flags).imm(imm)),
            Err(error) => Err(Rejected::new(error, source)),
        };
        self.to.submit(request)
    }

    fn rdma_write(self, source: Load, to: RemoteRegion, imm: Option<u32>) -> S::Outcome {
        if let Err(error) = check_len(source.len()).and_then(|()| fits(source.len(), &to)) {
            return self.to.submit(Err(Rejected::new(error, source)));
        }
        let opcode = if imm.is_some() {
            c::IBV_WR_RDMA_WRITE_WITH_IMM
        } else {
            c::IBV_WR_RDMA_WRITE
        };
        let mut request = Request::new(OpKind::Write, opcode, source, self.flags).imm(imm);
        request.wr.wr.rdma = c::ibv_send_wr_rdma {
            remote_addr: to.addr,
            rkey: to.rkey.0,
        };
        self.to.submit(Ok(request))
    }
}

impl<S: Submit> Poster<Rc, S> {
    /// Reads all of `from`, which is the peer's memory, into the target, whatever counted in it
    /// before: its length becomes that of `from`. Take a [`slice`](RemoteRegion::slice) to read
    /// less. The peer does not notice.
    ///
    /// # Errors
    /// As [`send`](Self::send); [`Error::Value`] when the target has no room for it.
    pub fn read(self, target: impl Target, from: RemoteRegion) -> S::Outcome {
        let mut target = target.load();
        let len = usize::try_from(from.len).unwrap_or(usize::MAX);
        let fill = |target: &mut Load| match &mut target.buffer {
            Some(buffer) => buffer.count(len),
            None => Ok(()),
        };
        if let Err(error) = check_len(len).and_then(|()| fill(&mut target)) {
            return self.to.submit(Err(Rejected::new(error, target)));
        }
        let mut request = Request::new(OpKind::Read, c::IBV_WR_RDMA_READ, target, self.flags);
        request.sge.length = len as u32;
        request.wr.wr.rdma = c::ibv_send_wr_rdma {
            remote_addr: from.addr,
            rkey: from.rkey.0,
        };
        self.to.submit(Ok(request))
    }

    /// Adds to the 8-byte word at the start of `word`, in the peer's byte order; what it was
    /// before comes into the first 8 bytes of the target.
    ///
    /// # Errors
    /// As [`send`](Self::send); [`Error::Misaligned`], [`Error::OutOfRange`].
    pub fn fetch_add(self, target: impl Target, word: RemoteRegion, add: u64) -> S::Outcome {
        self.atomic(
            OpKind::FetchAdd,
            c::IBV_WR_ATOMIC_FETCH_AND_ADD,
            target.load(),
            word,
            add,
            0,
        )
    }

    /// Replaces the 8-byte word at the start of `word` by `swap` if it is `compare`; what it was
    /// before comes into the first 8 bytes of the target.
    ///
    /// # Errors
    /// As [`fetch_add`](Self::fetch_add).
    pub fn compare_swap(
        self,
        target: impl Target,
        word: RemoteRegion,
        compare: u64,
        swap: u64,
    ) -> S::Outcome {
        let opcode = c::IBV_WR_ATOMIC_CMP_AND_SWP;
        self.atomic(
            OpKind::CompareSwap,
            opcode,
            target.load(),
            word,
            compare,
            swap,
        )
    }

    /// Sends a message and takes the right to the peer's own key `key`, that of a
    /// [`MemoryWindow`], away from everybody. The peer's receive says which
    /// ([`Info::invalidated`](crate::Info::invalidated)).
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_invalidate(self, source: impl Source, key: RKey) -> S::Outcome {
        let source = source.load();
        if let Err(error) = check_len(source.len()) {
            return self.to.submit(Err(Rejected::new(error, source)));
        }
        let mut request = Request::new(OpKind::Send, c::IBV_WR_SEND_WITH_INV, source, self.flags);
        request.wr.imm_or_rkey = c::ibv_imm_or_rkey { rkey: key.0 };
        self.to.submit(Ok(request))
    }

    /// Lets the peer of this queue pair into `memory` through the window: any of `REMOTE_READ`,
    /// `REMOTE_WRITE`, `REMOTE_ATOMIC` in `access`. A window that is bound has to be invalidated
    /// before. What comes after it in the queue, such as a message with
    /// [`remote`](MemoryWindow::remote), begins when it is over.
    ///
    /// # Errors
    /// As [`send`](Self::send); [`Error::Foreign`].
    #[doc(alias = "IBV_WR_BIND_MW")]
    pub fn bind(
        self,
        window: &MemoryWindow,
        memory: ExposedSlice,
        access: AccessFlags,
    ) -> S::Outcome {
        if !Arc::ptr_eq(&memory.registration().pd, window.inner.pd()) {
            let error = Error::Foreign {
                what: "the memory of the window",
                owner: "protection domain",
            };
            return self.to.submit(Err(Rejected::new(error, memory.load())));
        }
        let bind = window.bind(&memory, access);
        let mut request = self.about(OpKind::Bind, c::IBV_WR_BIND_MW, window);
        request.wr.extra = c::ibv_send_wr_extra { bind_mw: bind };
        self.to.submit(Ok(request))
    }

    /// Takes the window's key away from everybody: what comes in with it from then on is refused.
    ///
    /// # Errors
    /// As [`send`](Self::send); [`Error::Foreign`].
    #[doc(alias = "IBV_WR_LOCAL_INV")]
    pub fn invalidate(self, window: &MemoryWindow) -> S::Outcome {
        let mut request = self.about(OpKind::Invalidate, c::IBV_WR_LOCAL_INV, window);
        let rkey = window.remote().rkey.0;
        request.wr.imm_or_rkey = c::ibv_imm_or_rkey { rkey };
        self.to.submit(Ok(request))
    }

    fn about(&self, kind: OpKind, opcode: c::ibv_wr_opcode, window: &MemoryWindow) -> Request {
        let nothing = Load {
            buffer: None,
            inline: None,
            tag: 0,
        };
        let mut request = Request::new(kind, opcode, nothing, self.flags);
        request.op.named = Some(Named::Window(Arc::clone(&window.inner)));
        request
    }

    fn atomic(
        self,
        kind: OpKind,
        opcode: c::ibv_wr_opcode,
        target: Load,
        word: RemoteRegion,
        compare_add: u64,
        swap: u64,
    ) -> S::Outcome {
        let aligned = match word.addr % 8 {
            0 => Ok(()),
            _ => Err(Error::Misaligned {
                addr: word.addr,
                len: word.len,
            }),
        };
        let word_of_ours = target.buffer.as_ref().map_or(Ok(()), Buffer::check_word);
        if let Err(error) = word_of_ours.and(aligned).and_then(|()| fits(8, &word)) {
            return self.to.submit(Err(Rejected::new(error, target)));
        }
        let mut request = Request::new(kind, opcode, target, self.flags);
        request.sge.length = 8;
        request.wr.wr.atomic = c::ibv_send_wr_atomic {
            remote_addr: word.addr,
            compare_add,
            swap,
            rkey: word.rkey.0,
        };
        self.to.submit(Ok(request))
    }
}

impl<S: Submit> Poster<Ud, S> {
    /// Sends a datagram, of at most one MTU.
    ///
    /// # Errors
    /// [`Rejected`], with the buffer: the queue is full, the state wrong.
    pub fn send_to(self, source: impl Source, to: &Destination) -> S::Outcome {
        self.datagram(source.load(), to, None)
    }

    /// Sends a datagram with four bytes beside it.
    ///
    /// # Errors
    /// As [`send_to`](Self::send_to).
    pub fn send_imm_to(self, source: impl Source, to: &Destination, imm: u32) -> S::Outcome {
        self.datagram(source.load(), to, Some(imm))
    }

    fn datagram(self, source: Load, to: &Destination, imm: Option<u32>) -> S::Outcome {
        if let Err(error) = check_len(source.len()) {
            return self.to.submit(Err(Rejected::new(error, source)));
        }
        let opcode = if imm.is_some() {
            c::IBV_WR_SEND_WITH_IMM
        } else {
            c::IBV_WR_SEND
        };
        let mut request = Request::new(OpKind::Send, opcode, source, self.flags).imm(imm);
        request.op.named = Some(Named::Address(Arc::clone(&to.ah.inner)));
        request.wr.wr.ud = c::ibv_send_wr_ud {
            ah: to.ah.as_raw(),
            remote_qpn: to.qpn,
            remote_qkey: to.qkey,
        };
        self.to.submit(Ok(request))
    }
}
