//! Work requests built call by call: `ibv_wr_start(3)` and its family, on queue pairs created with `send_ops_flags`.
//!
//! Between `wr_start` and `wr_complete` the builder is one thread's; the mutex in the public part is that turn. Each
//! call of an operation opens a request with the `wr_id` and `wr_flags` of that moment, setters fill in the open one,
//! and `wr_complete` posts them all, or none and returns the first mistake. All room is allocated at creation.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use adverb_abi::types::*;
use adverb_engine::{
    FlushTarget, Key, PostError, QpCaps, SendData, SendFlags, SendOp, SendWr, Sge, UdAddress,
};
use adverb_wire::Transport;

use crate::errno::{self, Error};
use crate::handle::{Object, find_for_work, not_null};
use crate::mw;
use crate::post;
use crate::qp::Qp;

const SENDS: u64 = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
const WRITES: u64 = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
const RC_ONLY: u64 = IBV_QP_EX_WITH_RDMA_READ
    | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
    | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
    | IBV_QP_EX_WITH_SEND_WITH_INV
    | IBV_QP_EX_WITH_FLUSH
    | IBV_QP_EX_WITH_ATOMIC_WRITE;
const KEYS: u64 = IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW;

/// Refuses operations that queue pairs of this kind do not have.
pub(crate) fn check_operations(asked: u64, transport: Transport) -> Result<(), Error> {
    let offered = match transport {
        Transport::Rc => SENDS | WRITES | RC_ONLY | KEYS,
        Transport::Uc => SENDS | WRITES | KEYS,
        Transport::Ud => SENDS,
        Transport::Xrc => SENDS | WRITES | RC_ONLY | KEYS,
    };
    if asked & !offered == 0 {
        Ok(())
    } else {
        Err(Error::Unsupported(
            "an operation of send_ops_flags on this kind of queue pair",
        ))
    }
}

/// Fills in the functions that were asked for, and the setters. The others stay NULL.
pub(crate) fn offer(qp: &mut ibv_qp_ex, operations: u64) {
    qp.wr_start = Some(wr_start);
    qp.wr_complete = Some(wr_complete);
    qp.wr_abort = Some(wr_abort);
    qp.wr_set_ud_addr = Some(wr_set_ud_addr);
    qp.wr_set_xrc_srqn = Some(wr_set_xrc_srqn);
    qp.wr_set_inline_data = Some(wr_set_inline_data);
    qp.wr_set_inline_data_list = Some(wr_set_inline_data_list);
    qp.wr_set_sge = Some(wr_set_sge);
    qp.wr_set_sge_list = Some(wr_set_sge_list);
    macro_rules! offer {
        ($($bit:ident: $slot:ident),* $(,)?) => { $(if operations & $bit != 0 { qp.$slot = Some($slot); })* };
    }
    offer! {
        IBV_QP_EX_WITH_SEND: wr_send,
        IBV_QP_EX_WITH_SEND_WITH_IMM: wr_send_imm,
        IBV_QP_EX_WITH_SEND_WITH_INV: wr_send_inv,
        IBV_QP_EX_WITH_RDMA_WRITE: wr_rdma_write,
        IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM: wr_rdma_write_imm,
        IBV_QP_EX_WITH_RDMA_READ: wr_rdma_read,
        IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP: wr_atomic_cmp_swp,
        IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD: wr_atomic_fetch_add,
        IBV_QP_EX_WITH_LOCAL_INV: wr_local_inv,
        IBV_QP_EX_WITH_BIND_MW: wr_bind_mw,
        IBV_QP_EX_WITH_ATOMIC_WRITE: wr_atomic_write,
        IBV_QP_EX_WITH_FLUSH: wr_flush,
    }
}

/// What is being built on a queue pair.
pub(crate) struct Builder {
    /// Between `wr_start` and its end. Written by whoever's turn it is.
    open: AtomicBool,
    list: UnsafeCell<List>,
}

/// The requests so far.
struct List {
    requests: Vec<Request>,
    sges: Vec<Sge>,
    inline: Vec<u8>,
    limits: QpCaps,
    /// The first mistake; what comes after it is ignored.
    mistake: Option<Error>,
}

struct Request {
    wr_id: u64,
    op: SendOp,
    flags: SendFlags,
    data: Data,
    ud: Option<UdAddress>,
    xrc_srqn: u32,
}

/// Places in the arrays of the list.
enum Data {
    Sges(Range<usize>),
    Inline(Range<usize>),
}

/// Room for pieces that is there from the start; more is fetched when a program uses it, once.
const FIRST_SGES: usize = 4096;
const FIRST_INLINE: usize = 1 << 16;

impl Builder {
    pub(crate) fn new(limits: &QpCaps) -> Self {
        let requests = limits.max_send_wr as usize;
        let list = List {
            requests: Vec::with_capacity(requests),
            sges: Vec::with_capacity((requests * limits.max_send_sge as usize).min(FIRST_SGES)),
            inline: Vec::with_capacity((requests * limits.max_inline as usize).min(FIRST_INLINE)),
            limits: *limits,
            mistake: None,
        };
        Self {
            open: AtomicBool::new(false),
            list: UnsafeCell::new(list),
        }
    }
}

impl List {
    fn clear(&mut self) {
        self.requests.clear();
        self.sges.clear();
        self.inline.clear();
        self.mistake = None;
    }

    /// Notes a mistake if there was one; the first counts.
    fn note(&mut self, result: Result<(), Error>) {
        if let Err(error) = result {
            self.mistake.get_or_insert(error);
        }
    }

    fn begin(&mut self, wr_id: u64, flags: u32, op: SendOp) -> Result<(), Error> {
        let limit = self.limits.max_send_wr;
        if self.requests.len() >= limit as usize {
            return Err(PostError::QueueFull { limit }.into());
        }
        if let SendOp::CompareSwap {
            remote_addr: addr, ..
        }
        | SendOp::FetchAdd {
            remote_addr: addr, ..
        }
        | SendOp::AtomicWrite {
            remote_addr: addr, ..
        } = op
            && !addr.is_multiple_of(8)
        {
            return Err(PostError::AtomicMisaligned { addr }.into());
        }
        // IBV_SEND_INLINE has no meaning here: the setter says it.
        let flags = post::send_flags(flags & !IBV_SEND_INLINE)?;
        let none = self.sges.len()..self.sges.len();
        self.requests.push(Request {
            wr_id,
            op,
            flags,
            data: Data::Sges(none),
            ud: None,
            xrc_srqn: 0,
        });
        Ok(())
    }

    /// The eight bytes of the open ATOMIC_WRITE, which need no room that was asked for at creation.
    fn set_word(&mut self, word: [u8; 8]) -> Result<(), Error> {
        let from = self.inline.len();
        self.inline.extend_from_slice(&word);
        let data = Data::Inline(from..self.inline.len());
        self.last()?.data = data;
        Ok(())
    }

    fn last(&mut self) -> Result<&mut Request, Error> {
        self.requests
            .last_mut()
            .ok_or(Error::Argument("a setter was called before any operation"))
    }

    fn set_sges(&mut self, pieces: impl ExactSizeIterator<Item = Sge>) -> Result<(), Error> {
        let limit = self.limits.max_send_sge;
        if pieces.len() > limit as usize {
            return Err(PostError::TooManySges {
                given: pieces.len(),
                limit,
            }
            .into());
        }
        let from = self.sges.len();
        self.sges.extend(pieces);
        let data = Data::Sges(from..self.sges.len());
        self.last()?.data = data;
        Ok(())
    }

    /// # Safety
    /// The pieces can be read.
    unsafe fn set_inline(
        &mut self,
        pieces: impl Iterator<Item = (*const u8, usize)>,
    ) -> Result<(), Error> {
        let limit = self.limits.max_inline;
        let from = self.inline.len();
        for (bytes, length) in pieces {
            let given = self.inline.len() - from + length;
            if given > limit as usize {
                return Err(PostError::InlineTooLong { given, limit }.into());
            }
            self.inline.reserve(length);
            // SAFETY: the caller vouches for the source, and the room has just been made sure of.
            unsafe {
                ptr::copy_nonoverlapping(
                    bytes,
                    self.inline.as_mut_ptr().add(self.inline.len()),
                    length,
                );
                self.inline.set_len(self.inline.len() + length);
            }
        }
        let data = Data::Inline(from..self.inline.len());
        self.last()?.data = data;
        Ok(())
    }

    /// What only shows when a request is complete.
    fn check(&self, is_datagram: bool) -> Result<(), Error> {
        for request in &self.requests {
            if is_datagram && request.ud.is_none() {
                return Err(PostError::NoAddress.into());
            }
            let inline = matches!(request.data, Data::Inline(_));
            let may_inline = !matches!(
                request.op,
                SendOp::Read { .. } | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. }
            );
            if inline && !may_inline {
                return Err(PostError::InlineNotAllowed.into());
            }
            if let (SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. }, Data::Sges(range)) =
                (&request.op, &request.data)
            {
                let given = self.sges[range.clone()]
                    .iter()
                    .map(|piece| u64::from(piece.len))
                    .sum();
                if given < 8 {
                    return Err(PostError::AtomicLength { given, needed: 8 }.into());
                }
            }
        }
        Ok(())
    }

    fn post(&mut self, qp: &Object<Qp>) -> Result<(), Error> {
        if let Some(mistake) = self.mistake.take() {
            return Err(mistake);
        }
        self.check(qp.is_datagram)?;
        qp.nic.usable()?;
        // Other threads that post to the queue pair meanwhile do so without `wr_start`, which the manual leaves to them
        // to keep apart; so the room that is there now stays.
        if self.requests.len() > qp.nic.send_room() as usize {
            return Err(PostError::QueueFull {
                limit: qp.caps.max_send_wr,
            }
            .into());
        }
        let mut posting = qp.nic.posting();
        for request in &self.requests {
            let data = match &request.data {
                Data::Sges(range) => SendData::Sges(&self.sges[range.clone()]),
                Data::Inline(range) => SendData::Inline(&self.inline[range.clone()]),
            };
            let wr = SendWr {
                wr_id: request.wr_id,
                op: request.op,
                flags: request.flags,
                data,
                ud: request.ud,
                xrc_srqn: request.xrc_srqn,
            };
            posting.send(&wr)?;
        }
        Ok(())
    }
}

/// Runs `work` on the list of the queue pair whose turn this thread has; without a turn nothing happens.
///
/// # Safety
/// As [`find_for_work`].
unsafe fn with_list(call: &str, qp: *mut ibv_qp_ex, work: impl FnOnce(&Object<Qp>, &mut List)) {
    // SAFETY: as our caller promises.
    let found = unsafe { find_for_work::<Qp>(qp) }.and_then(|qp| match &qp.builder {
        Some(builder) if builder.open.load(Ordering::Relaxed) => Ok((qp, builder)),
        _ => Err(Error::Argument("ibv_wr_start has not been called")),
    });
    match found {
        // SAFETY: it is this thread's turn, so nobody else touches the list.
        Ok((qp, builder)) => work(qp, unsafe { &mut *builder.list.get() }),
        Err(error) => errno::report(call, &error),
    }
}

/// # Safety
/// As [`find_for_work`].
unsafe fn begin(call: &str, qp: *mut ibv_qp_ex, op: SendOp) {
    // SAFETY: as our caller promises.
    unsafe {
        with_list(call, qp, |qp, list| {
            // SAFETY: the queue pair is alive, and the program has set these for the operation it now calls.
            let (wr_id, flags) = ((*qp.public()).wr_id, (*qp.public()).wr_flags);
            if list.mistake.is_none() {
                let begun = list.begin(wr_id, flags, op);
                list.note(begun);
            }
        });
    }
}

/// # Safety
/// As [`find_for_work`].
unsafe fn set(call: &str, qp: *mut ibv_qp_ex, work: impl FnOnce(&mut List) -> Result<(), Error>) {
    // SAFETY: as our caller promises.
    unsafe {
        with_list(call, qp, |_, list| {
            if list.mistake.is_none() {
                let done = work(list);
                list.note(done);
            }
        });
    }
}

unsafe extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
    // SAFETY: the function was reached through the queue pair.
    let Ok(qp) = (unsafe { find_for_work::<Qp>(qp) }) else {
        return;
    };
    let Some(builder) = &qp.builder else { return };
    // SAFETY: the mutex was zeroed at creation, which is its initial state, and has not moved.
    unsafe { libc::pthread_mutex_lock(&raw mut (*qp.public()).qp_base.mutex) };
    builder.open.store(true, Ordering::Relaxed);
    // SAFETY: it is this thread's turn now.
    unsafe { (*builder.list.get()).clear() };
}

/// Ends the turn, after `last` has done something with the list.
///
/// # Safety
/// As [`find_for_work`].
unsafe fn finish(
    qp: *mut ibv_qp_ex,
    last: impl FnOnce(&Object<Qp>, &mut List) -> Result<(), Error>,
) -> Result<(), Error> {
    // SAFETY: as our caller promises.
    let qp = unsafe { find_for_work::<Qp>(qp) }?;
    let builder = qp.builder.as_ref().ok_or(Error::Argument(
        "the queue pair was not created with send_ops_flags",
    ))?;
    if !builder.open.load(Ordering::Relaxed) {
        return Err(Error::Argument("ibv_wr_start has not been called"));
    }
    // SAFETY: it is this thread's turn.
    let list = unsafe { &mut *builder.list.get() };
    let result = last(qp, list);
    list.clear();
    builder.open.store(false, Ordering::Relaxed);
    // SAFETY: `wr_start` of this thread has locked it.
    unsafe { libc::pthread_mutex_unlock(&raw mut (*qp.public()).qp_base.mutex) };
    result
}

unsafe extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    // SAFETY: the function was reached through the queue pair.
    errno::status("ibv_wr_complete", unsafe {
        finish(qp, |qp, list| list.post(qp))
    })
}

unsafe extern "C" fn wr_abort(qp: *mut ibv_qp_ex) {
    // SAFETY: the function was reached through the queue pair.
    if let Err(error) = unsafe { finish(qp, |_, _| Ok(())) } {
        errno::report("ibv_wr_abort", &error);
    }
}

/// Functions that open a request.
macro_rules! operations {
    ($($name:ident($($argument:ident: $type:ty),*) = $op:expr;)*) => {
        $(
            unsafe extern "C" fn $name(qp: *mut ibv_qp_ex $(, $argument: $type)*) {
                // SAFETY: the function was reached through the queue pair.
                unsafe { begin(concat!("ibv_", stringify!($name)), qp, $op) };
            }
        )*
    };
}

operations! {
    wr_send() = SendOp::Send;
    wr_send_imm(imm: u32) = SendOp::SendImm(imm.to_ne_bytes());
    wr_send_inv(rkey: u32) = SendOp::SendInv(Key(rkey));
    wr_rdma_write(rkey: u32, remote_addr: u64) = SendOp::Write { remote_addr, rkey: Key(rkey) };
    wr_rdma_write_imm(rkey: u32, remote_addr: u64, imm: u32) =
        SendOp::WriteImm { remote_addr, rkey: Key(rkey), imm: imm.to_ne_bytes() };
    wr_rdma_read(rkey: u32, remote_addr: u64) = SendOp::Read { remote_addr, rkey: Key(rkey) };
    wr_atomic_cmp_swp(rkey: u32, remote_addr: u64, compare: u64, swap: u64) =
        SendOp::CompareSwap { remote_addr, rkey: Key(rkey), compare, swap };
    wr_atomic_fetch_add(rkey: u32, remote_addr: u64, add: u64) =
        SendOp::FetchAdd { remote_addr, rkey: Key(rkey), add };
    wr_local_inv(rkey: u32) = SendOp::LocalInv(Key(rkey));
}

unsafe extern "C" fn wr_bind_mw(
    qp: *mut ibv_qp_ex,
    mw: *mut ibv_mw,
    rkey: u32,
    info: *const ibv_mw_bind_info,
) {
    let make = || {
        not_null(info, "bind information")?;
        // SAFETY: not NULL, so the program says that it can be read; window and region are alive.
        unsafe { mw::operation(mw, rkey, &*info) }
    };
    match make() {
        // SAFETY: the function was reached through the queue pair.
        Ok(op) => unsafe { begin("ibv_wr_bind_mw", qp, op) },
        // SAFETY: likewise.
        Err(error) => unsafe { set("ibv_wr_bind_mw", qp, |_| Err(error)) },
    }
}

unsafe extern "C" fn wr_atomic_write(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    remote_addr: u64,
    word: *const c_void,
) {
    let op = SendOp::AtomicWrite {
        remote_addr,
        rkey: Key(rkey),
    };
    // SAFETY: the function was reached through the queue pair; the program says that there are eight bytes.
    unsafe {
        begin("ibv_wr_atomic_write", qp, op);
        set("ibv_wr_atomic_write", qp, |list| {
            not_null(word, "eight bytes to write")?;
            list.set_word(word.cast::<[u8; 8]>().read_unaligned())
        });
    }
}

unsafe extern "C" fn wr_flush(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    remote_addr: u64,
    len: usize,
    placement: u8,
    level: u8,
) {
    let make = || {
        let known = (IBV_FLUSH_GLOBAL | IBV_FLUSH_PERSISTENT) as u8;
        if placement == 0 || placement & !known != 0 {
            return Err(Error::Bits {
                what: "placement type",
                bits: u64::from(placement & !known),
            });
        }
        let whole_region = match u32::from(level) {
            IBV_FLUSH_RANGE => false,
            IBV_FLUSH_MR => true,
            other => {
                return Err(Error::Value {
                    what: "selectivity level",
                    value: other.into(),
                    limit: IBV_FLUSH_MR.into(),
                });
            }
        };
        let len = u32::try_from(len).map_err(|_| Error::Value {
            what: "length",
            value: len as u64,
            limit: u32::MAX.into(),
        })?;
        Ok(SendOp::Flush(FlushTarget {
            remote_addr,
            len,
            rkey: Key(rkey),
            placement,
            whole_region,
        }))
    };
    match make() {
        // SAFETY: the function was reached through the queue pair.
        Ok(op) => unsafe { begin("ibv_wr_flush", qp, op) },
        // SAFETY: likewise.
        Err(error) => unsafe { set("ibv_wr_flush", qp, |_| Err(error)) },
    }
}

unsafe extern "C" fn wr_set_ud_addr(
    qp: *mut ibv_qp_ex,
    ah: *mut ibv_ah,
    remote_qpn: u32,
    remote_qkey: u32,
) {
    // SAFETY: the function was reached through the queue pair; the address handle is the program's word.
    unsafe {
        set("ibv_wr_set_ud_addr", qp, |list| {
            let address = post::datagram(ah, remote_qpn, remote_qkey)?;
            list.last()?.ud = Some(address);
            Ok(())
        });
    }
}

unsafe extern "C" fn wr_set_xrc_srqn(qp: *mut ibv_qp_ex, remote_srqn: u32) {
    // SAFETY: the function was reached through the queue pair.
    unsafe {
        set("ibv_wr_set_xrc_srqn", qp, |list| {
            list.last()?.xrc_srqn = remote_srqn;
            Ok(())
        });
    }
}

unsafe extern "C" fn wr_set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, len: u32) {
    let one = Sge {
        addr,
        len,
        lkey: Key(lkey),
    };
    // SAFETY: the function was reached through the queue pair.
    unsafe {
        set("ibv_wr_set_sge", qp, |list| {
            list.set_sges(std::iter::once(one))
        })
    };
}

unsafe extern "C" fn wr_set_sge_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_sge) {
    // SAFETY: the function was reached through the queue pair; the program says that there are `count` pieces. Of a
    // count that is too large none is read.
    unsafe {
        let pieces = (0..count).map(|index| post::sge(&*list.add(index)));
        set("ibv_wr_set_sge_list", qp, |list| list.set_sges(pieces));
    }
}

unsafe extern "C" fn wr_set_inline_data(qp: *mut ibv_qp_ex, addr: *mut c_void, length: usize) {
    // SAFETY: the function was reached through the queue pair; the program says that the bytes are there.
    unsafe {
        set("ibv_wr_set_inline_data", qp, |list| {
            list.set_inline(std::iter::once((addr.cast_const().cast::<u8>(), length)))
        });
    }
}

unsafe extern "C" fn wr_set_inline_data_list(
    qp: *mut ibv_qp_ex,
    count: usize,
    list: *const ibv_data_buf,
) {
    // SAFETY: the function was reached through the queue pair; the program says that there are `count` pieces.
    unsafe {
        let pieces = (0..count).map(|index| {
            let piece = &*list.add(index);
            (piece.addr.cast_const().cast::<u8>(), piece.length)
        });
        set("ibv_wr_set_inline_data_list", qp, |list| {
            list.set_inline(pieces)
        });
    }
}
