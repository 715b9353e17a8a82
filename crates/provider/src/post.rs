//! Posting work: `ibv_post_send(3)`, `ibv_post_recv(3)`, `ibv_post_srq_recv(3)`.
//!
//! A list is posted up to the first request that is refused; `bad_wr` says which. What was posted goes out either way.
//! Nothing here allocates.

use std::ffi::c_int;
use std::fmt;
use std::mem::MaybeUninit;
use std::{ptr, slice};

use adverb_abi::types::*;
use adverb_engine::{
    Key, MAX_SGE, PostError, RecvWr, SendData, SendFlags, SendOp, SendWr, Sge, UdAddress,
};
use adverb_nic::Posting;

use crate::ah::Ah;
use crate::errno::{self, Error};
use crate::handle::{Object, find_for_work};
use crate::mw;
use crate::qp::Qp;
use crate::srq::Srq;

/// Most inline bytes that a queue pair of ours can be created for.
pub(crate) const MAX_INLINE: usize = 1024;

const NO_SGE: Sge = Sge {
    addr: 0,
    len: 0,
    lkey: Key(0),
};

const FLAGS: u32 = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE;

/// The pieces of one request, converted.
struct Pieces {
    sges: [Sge; MAX_SGE],
}

impl Pieces {
    const fn new() -> Self {
        Self {
            sges: [NO_SGE; MAX_SGE],
        }
    }

    /// # Safety
    /// `list` is good for reading `count` entries.
    unsafe fn take(&mut self, list: *const ibv_sge, count: c_int) -> Result<&[Sge], PostError> {
        // A negative count is as wrong as a large one.
        let count = count as u32 as usize;
        if count > MAX_SGE {
            return Err(PostError::TooManySges {
                given: count,
                limit: MAX_SGE as u32,
            });
        }
        for (index, piece) in self.sges[..count].iter_mut().enumerate() {
            // SAFETY: below `count`, which the caller vouches for.
            *piece = sge(unsafe { &*list.add(index) });
        }
        Ok(&self.sges[..count])
    }
}

pub(crate) const fn sge(from: &ibv_sge) -> Sge {
    Sge {
        addr: from.addr,
        len: from.length,
        lkey: Key(from.lkey),
    }
}

/// Sends of one request, gathered.
struct Inline {
    bytes: [MaybeUninit<u8>; MAX_INLINE],
}

impl Inline {
    const fn new() -> Self {
        Self {
            bytes: [MaybeUninit::uninit(); MAX_INLINE],
        }
    }

    /// Copies the pieces one behind the other. No key is needed for them.
    ///
    /// # Safety
    /// `list` is good for reading `count` entries, and these for reading their bytes.
    unsafe fn gather(
        &mut self,
        list: *const ibv_sge,
        count: c_int,
        limit: u32,
    ) -> Result<&[u8], PostError> {
        let count = count as u32 as usize;
        if count > MAX_SGE {
            return Err(PostError::TooManySges {
                given: count,
                limit: MAX_SGE as u32,
            });
        }
        let mut length = 0;
        for index in 0..count {
            // SAFETY: below `count`, which the caller vouches for.
            let piece = unsafe { *list.add(index) };
            let end = length + piece.length as usize;
            if end > MAX_INLINE || end > limit as usize {
                return Err(PostError::InlineTooLong { given: end, limit });
            }
            let from = ptr::with_exposed_provenance::<u8>(piece.addr as usize);
            // SAFETY: the caller vouches for the source; `end` is within the buffer.
            unsafe {
                ptr::copy_nonoverlapping(
                    from,
                    self.bytes.as_mut_ptr().add(length).cast(),
                    piece.length as usize,
                )
            };
            length = end;
        }
        // SAFETY: the first `length` bytes have just been written.
        Ok(unsafe { slice::from_raw_parts(self.bytes.as_ptr().cast(), length) })
    }
}

/// What a request asks for.
///
/// # Safety
/// The window of a bind is NULL or alive, and its region.
unsafe fn operation(wr: &ibv_send_wr) -> Result<SendOp, Error> {
    // SAFETY: both members of the union are four plain bytes.
    let (imm, key) = unsafe {
        (
            wr.imm_or_rkey.imm_data.to_ne_bytes(),
            Key(wr.imm_or_rkey.rkey),
        )
    };
    // SAFETY: all members of the union are plain numbers; which of them count depends on the opcode.
    let (rdma, atomic) = unsafe { (wr.wr.rdma, wr.wr.atomic) };
    let (remote_addr, rkey) = (rdma.remote_addr, Key(rdma.rkey));
    Ok(match wr.opcode {
        IBV_WR_SEND => SendOp::Send,
        IBV_WR_SEND_WITH_IMM => SendOp::SendImm(imm),
        IBV_WR_SEND_WITH_INV => SendOp::SendInv(key),
        IBV_WR_RDMA_WRITE => SendOp::Write { remote_addr, rkey },
        IBV_WR_RDMA_WRITE_WITH_IMM => SendOp::WriteImm {
            remote_addr,
            rkey,
            imm,
        },
        IBV_WR_RDMA_READ => SendOp::Read { remote_addr, rkey },
        IBV_WR_ATOMIC_CMP_AND_SWP => SendOp::CompareSwap {
            remote_addr: atomic.remote_addr,
            rkey: Key(atomic.rkey),
            compare: atomic.compare_add,
            swap: atomic.swap,
        },
        IBV_WR_ATOMIC_FETCH_AND_ADD => SendOp::FetchAdd {
            remote_addr: atomic.remote_addr,
            rkey: Key(atomic.rkey),
            add: atomic.compare_add,
        },
        IBV_WR_LOCAL_INV => SendOp::LocalInv(key),
        IBV_WR_ATOMIC_WRITE => SendOp::AtomicWrite { remote_addr, rkey },
        IBV_WR_BIND_MW => {
            // SAFETY: with this opcode, this member of the union counts; it is plain data.
            let bind = unsafe { wr.extra.bind_mw };
            // SAFETY: as our caller promises.
            unsafe { mw::operation(bind.mw, bind.rkey, &bind.bind_info) }?
        }
        // A work request has no room for what a FLUSH is about; `ibv_wr_flush` has.
        IBV_WR_TSO | IBV_WR_FLUSH | IBV_WR_DRIVER1 => {
            return Err(Error::Unsupported("the opcode"));
        }
        other => {
            return Err(Error::Value {
                what: "opcode",
                value: other.into(),
                limit: IBV_WR_ATOMIC_WRITE.into(),
            });
        }
    })
}

pub(crate) fn send_flags(bits: u32) -> Result<SendFlags, Error> {
    if bits & !FLAGS != 0 {
        return Err(Error::Bits {
            what: "send_flags",
            bits: u64::from(bits & !FLAGS),
        });
    }
    let mut flags = SendFlags::empty();
    flags.set(SendFlags::FENCE, bits & IBV_SEND_FENCE != 0);
    flags.set(SendFlags::SIGNALED, bits & IBV_SEND_SIGNALED != 0);
    flags.set(SendFlags::SOLICITED, bits & IBV_SEND_SOLICITED != 0);
    Ok(flags)
}

/// Where a datagram goes. What is in the address handle is copied, so the handle may go at once.
///
/// # Safety
/// `ah` is NULL or an address handle.
pub(crate) unsafe fn datagram(
    ah: *mut ibv_ah,
    remote_qpn: u32,
    remote_qkey: u32,
) -> Result<UdAddress, Error> {
    // SAFETY: as our caller promises.
    let ah = unsafe { find_for_work::<Ah>(ah) }?;
    Ok(UdAddress {
        av: *ah.nic.av(),
        remote_qpn,
        remote_qkey,
    })
}

/// # Safety
/// As the manual has it: what the request points to is alive.
unsafe fn send_one(
    qp: &Object<Qp>,
    wr: &ibv_send_wr,
    posting: &mut Posting<'_>,
) -> Result<(), Error> {
    // SAFETY: as our caller promises.
    let op = unsafe { operation(wr) }?;
    let flags = send_flags(wr.send_flags)?;
    let ud = if qp.is_datagram {
        // SAFETY: on such a queue pair this member of the union counts; it is plain data.
        let to = unsafe { wr.wr.ud };
        // SAFETY: as our caller promises.
        Some(unsafe { datagram(to.ah, to.remote_qpn, to.remote_qkey) }?)
    } else {
        None
    };
    let xrc_srqn = match qp.is_xrc {
        // SAFETY: on such a queue pair this union counts; it has one member.
        true => unsafe { wr.qp_type.xrc.remote_srqn },
        false => 0,
    };
    if wr.send_flags & IBV_SEND_INLINE != 0 {
        let mut inline = Inline::new();
        // SAFETY: as our caller promises.
        let bytes = unsafe { inline.gather(wr.sg_list, wr.num_sge, qp.caps.max_inline) }?;
        return Ok(posting.send(&SendWr {
            wr_id: wr.wr_id,
            op,
            flags,
            data: SendData::Inline(bytes),
            ud,
            xrc_srqn,
        })?);
    }
    if wr.num_sge == 1 {
        // SAFETY: as our caller promises.
        let one = [sge(unsafe { &*wr.sg_list })];
        return Ok(posting.send(&SendWr {
            wr_id: wr.wr_id,
            op,
            flags,
            data: SendData::Sges(&one),
            ud,
            xrc_srqn,
        })?);
    }
    let mut pieces = Pieces::new();
    // SAFETY: as our caller promises.
    let sges = unsafe { pieces.take(wr.sg_list, wr.num_sge) }?;
    Ok(posting.send(&SendWr {
        wr_id: wr.wr_id,
        op,
        flags,
        data: SendData::Sges(sges),
        ud,
        xrc_srqn,
    })?)
}

/// # Safety
/// As for [`send_one`].
unsafe fn receive_one(
    wr: &ibv_recv_wr,
    post: impl FnOnce(&RecvWr<'_>) -> Result<(), PostError>,
) -> Result<(), Error> {
    if wr.num_sge == 1 {
        // SAFETY: as our caller promises.
        let one = [sge(unsafe { &*wr.sg_list })];
        return Ok(post(&RecvWr {
            wr_id: wr.wr_id,
            sges: &one,
        })?);
    }
    let mut pieces = Pieces::new();
    // SAFETY: as our caller promises.
    let sges = unsafe { pieces.take(wr.sg_list, wr.num_sge) }?;
    Ok(post(&RecvWr {
        wr_id: wr.wr_id,
        sges,
    })?)
}

/// Walks a list of requests until one is refused, which `bad` then names.
///
/// # Safety
/// `first` is NULL or the head of a list that ends in NULL; `bad` is NULL or can be written.
unsafe fn walk<T>(
    first: *mut T,
    bad: *mut *mut T,
    mut one: impl FnMut(&T) -> Result<*mut T, Error>,
) -> Result<(), Error> {
    let mut at = first;
    // SAFETY: `at` is NULL or a request of the list.
    while let Some(wr) = unsafe { at.as_ref() } {
        match one(wr) {
            Ok(next) => at = next,
            Err(error) => {
                if !bad.is_null() {
                    // SAFETY: the caller says that it can be written.
                    unsafe { *bad = at };
                }
                return Err(error);
            }
        }
    }
    Ok(())
}

/// A call and the queue pair it was made on, to be read if it is refused.
struct Call(&'static str, *mut ibv_qp);

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)?;
        // SAFETY: NULL or a queue pair, says the caller of the call.
        match unsafe { find_for_work::<Qp>(self.1.cast()) } {
            Ok(qp) => write!(f, " on QP {:#08x}", qp.nic.number()),
            Err(_) => Ok(()),
        }
    }
}

/// `ibv_post_send(3)`, behind the context's table.
///
/// # Safety
/// `qp` is NULL or a queue pair, `wr` a list, `bad` can be written.
pub(crate) unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: as our caller promises.
    let posted = match unsafe { find_for_work::<Qp>(qp.cast()) } {
        Ok(qp) => {
            let mut posting = qp.nic.posting();
            let one = |wr: &ibv_send_wr| {
                // SAFETY: likewise.
                unsafe { send_one(qp, wr, &mut posting) }.map(|()| wr.next)
            };
            // SAFETY: likewise.
            unsafe { walk(wr, bad, one) }
        }
        Err(error) => Err(refuse_all(error, wr, bad)),
    };
    errno::status(Call("ibv_post_send", qp), posted)
}

/// `ibv_post_recv(3)`, behind the context's table.
///
/// # Safety
/// As [`post_send`].
pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: as our caller promises.
    let posted = match unsafe { find_for_work::<Qp>(qp.cast()) } {
        Ok(qp) => {
            let mut posting = qp.nic.posting();
            let one = |wr: &ibv_recv_wr| {
                // SAFETY: likewise.
                unsafe { receive_one(wr, |wr| posting.recv(wr)) }.map(|()| wr.next)
            };
            // SAFETY: likewise.
            unsafe { walk(wr, bad, one) }
        }
        Err(error) => Err(refuse_all(error, wr, bad)),
    };
    errno::status(Call("ibv_post_recv", qp), posted)
}

/// `ibv_post_srq_recv(3)`, behind the context's table.
///
/// # Safety
/// As [`post_send`].
pub(crate) unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: as our caller promises.
    let posted = match unsafe { find_for_work::<Srq>(srq) } {
        // SAFETY: likewise.
        Ok(srq) => unsafe {
            walk(wr, bad, |wr| {
                receive_one(wr, |wr| srq.nic.post(wr)).map(|()| wr.next)
            })
        },
        Err(error) => Err(refuse_all(error, wr, bad)),
    };
    errno::status("ibv_post_srq_recv", posted)
}

/// Nothing was posted, so the first request is the bad one.
fn refuse_all<T>(error: Error, first: *mut T, bad: *mut *mut T) -> Error {
    if !bad.is_null() {
        // SAFETY: a pointer that is not NULL can be written, as for every caller here.
        unsafe { *bad = first };
    }
    error
}
