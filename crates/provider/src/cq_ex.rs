//! Completion queues that are read in place: `ibv_create_cq_ex(3)`.
//!
//! Between `start_poll` and `end_poll` the queue is one thread's; the mutex in the public part is that turn.

use std::ffi::{c_int, c_uint};
use std::sync::atomic::Ordering;

use adverb_abi::types::*;
use adverb_engine::{Completion, WcFlags};

use crate::call;
use crate::context::together;
use crate::cq::{self, Cq};
use crate::errno::{self, Error};
use crate::handle::{Object, find, find_for_work, not_null};
use crate::misc;
use crate::pd::Pd;

/// The readers there are. VLAN tags, flow tags and tag matching belong to other kinds of device.
const READERS: u64 = IBV_WC_STANDARD_FLAGS
    | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP
    | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;

const ATTRS: u32 = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;

/// `ibv_create_cq_ex(3)`, behind the context's table.
///
/// # Safety
/// `context` is NULL or a context, `attr` NULL or readable, and the objects in it NULL or alive.
pub(crate) unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    let create = || -> Result<*mut ibv_cq_ex, Error> {
        not_null(attr, "attribute")?;
        // SAFETY: not NULL, so the caller says that it can be read. The last member is read only if it is announced:
        // older programs do not have it.
        let (attr, mask) = unsafe { (attr, (*attr).comp_mask) };
        if mask & !ATTRS != 0 {
            return Err(Error::Bits {
                what: "comp_mask",
                bits: u64::from(mask & !ATTRS),
            });
        }
        // SAFETY: as above, member by member.
        let (cqe, vector, wc_flags) =
            unsafe { ((*attr).cqe, (*attr).comp_vector, (*attr).wc_flags) };
        if wc_flags & !READERS != 0 {
            return Err(Error::Unsupported(
                "a completion field that was asked for (wc_flags)",
            ));
        }
        let flags = match mask & IBV_CQ_INIT_ATTR_MASK_FLAGS {
            0 => 0,
            // SAFETY: announced, so it is there.
            _ => unsafe { (*attr).flags },
        };
        if flags & !IBV_CREATE_CQ_ATTR_SINGLE_THREADED != 0 {
            return Err(Error::Unsupported(
                "a CQ creation flag other than SINGLE_THREADED",
            ));
        }
        let domain = match mask & IBV_CQ_INIT_ATTR_MASK_PD {
            0 => None,
            // SAFETY: announced, so it is there; the caller vouches for the object.
            _ => unsafe {
                let domain = find::<Pd>((*attr).parent_domain)?;
                together(context, (*domain.public()).context, "parent domain")?;
                Some(domain.share())
            },
        };
        let takes_turns = flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED == 0;
        // SAFETY: the caller vouches for the objects.
        let (cq_context, channel) = unsafe { ((*attr).cq_context, (*attr).channel) };
        // SAFETY: likewise.
        let cq = unsafe {
            cq::create(
                context,
                cqe,
                cq_context,
                channel,
                vector,
                takes_turns,
                domain,
            )
        }?;
        // SAFETY: nobody else knows the CQ yet.
        offer(unsafe { &mut *cq.public() }, wc_flags);
        Ok(cq.public())
    };
    call::pointer("ibv_create_cq_ex", create)
}

/// Fills in the readers that were asked for. The others stay NULL.
fn offer(cq: &mut ibv_cq_ex, wc_flags: u64) {
    cq.start_poll = Some(start_poll);
    cq.next_poll = Some(next_poll);
    cq.end_poll = Some(end_poll);
    cq.read_opcode = Some(read_opcode);
    cq.read_vendor_err = Some(read_vendor_err);
    cq.read_wc_flags = Some(read_wc_flags);
    macro_rules! offer {
        ($($bit:ident: $slot:ident = $reader:ident),* $(,)?) => {
            $(if wc_flags & $bit != 0 { cq.$slot = Some($reader); })*
        };
    }
    offer! {
        IBV_WC_EX_WITH_BYTE_LEN: read_byte_len = read_byte_len,
        IBV_WC_EX_WITH_IMM: read_imm_data = read_imm_data,
        IBV_WC_EX_WITH_QP_NUM: read_qp_num = read_qp_num,
        IBV_WC_EX_WITH_SRC_QP: read_src_qp = read_src_qp,
        IBV_WC_EX_WITH_SLID: read_slid = read_slid,
        IBV_WC_EX_WITH_SL: read_sl = read_sl,
        IBV_WC_EX_WITH_DLID_PATH_BITS: read_dlid_path_bits = read_dlid_path_bits,
        IBV_WC_EX_WITH_COMPLETION_TIMESTAMP: read_completion_ts = read_completion_ts,
        IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK: read_completion_wallclock_ns = read_completion_wallclock,
    }
}

/// Moves to the next completion; false when there is none.
fn advance(cq: &Object<Cq>) -> Result<bool, Error> {
    // SAFETY: it is this thread's turn, so nobody else touches it.
    let current = unsafe { &mut *cq.current.get() };
    if cq.nic.poll(std::slice::from_mut(current))? == 0 {
        return Ok(false);
    }
    let public = cq.public();
    // SAFETY: the CQ is alive, and these two fields are for the thread whose turn it is.
    unsafe {
        (*public).wr_id = current.wr_id;
        (*public).status = current.status as u32;
    }
    Ok(true)
}

fn take_turn(cq: &Object<Cq>) {
    if cq.takes_turns {
        // SAFETY: the mutex was zeroed at creation, which is its initial state, and has not moved.
        unsafe { libc::pthread_mutex_lock(&raw mut (*cq.public()).base.mutex) };
    }
}

fn give_turn(cq: &Object<Cq>) {
    if cq.takes_turns {
        // SAFETY: `take_turn` of this thread has locked it.
        unsafe { libc::pthread_mutex_unlock(&raw mut (*cq.public()).base.mutex) };
    }
}

/// `ibv_start_poll`: 0, or ENOENT when the queue is empty, and then `ibv_end_poll` must not be called.
unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    // SAFETY: the function was reached through the CQ.
    let cq = match unsafe { find_for_work::<Cq>(cq) } {
        Ok(cq) => cq,
        Err(error) => return errno::status("ibv_start_poll", Err(error)),
    };
    // SAFETY: NULL or readable, says the caller.
    if let Some(attr) = unsafe { attr.as_ref() }
        && attr.comp_mask != 0
    {
        return errno::status(
            "ibv_start_poll",
            Err(Error::Bits {
                what: "comp_mask",
                bits: attr.comp_mask.into(),
            }),
        );
    }
    take_turn(cq);
    match advance(cq) {
        Ok(true) => {
            cq.reading.store(true, Ordering::Relaxed);
            0
        }
        Ok(false) => {
            give_turn(cq);
            libc::ENOENT
        }
        Err(error) => {
            give_turn(cq);
            errno::status("ibv_start_poll", Err(error))
        }
    }
}

/// `ibv_next_poll`: 0, or ENOENT when there is no further one; `ibv_end_poll` is due in either case.
unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: the function was reached through the CQ.
    match unsafe { find_for_work::<Cq>(cq) } {
        Ok(cq) if !cq.reading.load(Ordering::Relaxed) => errno::status(
            "ibv_next_poll",
            Err(Error::Argument(
                "ibv_start_poll has not been called, or found nothing",
            )),
        ),
        Ok(cq) => match advance(cq) {
            Ok(true) => 0,
            Ok(false) => libc::ENOENT,
            Err(error) => errno::status("ibv_next_poll", Err(error)),
        },
        Err(error) => errno::status("ibv_next_poll", Err(error)),
    }
}

unsafe extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    // SAFETY: the function was reached through the CQ.
    match unsafe { find_for_work::<Cq>(cq) } {
        Ok(cq) => {
            if cq.reading.swap(false, Ordering::Relaxed) {
                give_turn(cq);
            }
        }
        Err(error) => errno::report("ibv_end_poll", &error),
    }
}

/// The completion that is being read; a blank one for a pointer to something else.
///
/// # Safety
/// As [`find_for_work`].
unsafe fn current(cq: *mut ibv_cq_ex) -> Completion {
    // SAFETY: as our caller promises, and it is this thread's turn.
    unsafe { find_for_work::<Cq>(cq).map_or(cq::BLANK, |cq| *cq.current.get()) }
}

macro_rules! readers {
    ($($(#[$doc:meta])* $name:ident: $type:ty = |$completion:ident| $value:expr;)*) => {
        $(
            $(#[$doc])*
            unsafe extern "C" fn $name(cq: *mut ibv_cq_ex) -> $type {
                // SAFETY: the function was reached through the CQ.
                let $completion = unsafe { current(cq) };
                $value
            }
        )*
    };
}

readers! {
    read_opcode: ibv_wc_opcode = |c| c.opcode as u32;
    read_vendor_err: u32 = |c| c.vendor_err;
    read_byte_len: u32 = |c| c.byte_len;
    /// Immediate data as it came over the wire, or the key that was invalidated: one reader serves both.
    read_imm_data: u32 = |c| if c.flags.contains(WcFlags::WITH_INV) {
        c.invalidated_rkey
    } else {
        u32::from_ne_bytes(c.imm)
    };
    read_qp_num: u32 = |c| c.qp_num.0;
    read_src_qp: u32 = |c| c.src_qp;
    read_wc_flags: c_uint = |c| c.flags.bits();
    read_slid: u32 = |_c| 0;
    read_sl: u8 = |c| c.sl;
    read_dlid_path_bits: u8 = |_c| 0;
    read_completion_ts: u64 = |c| c.timestamp.as_nanos();
    read_completion_wallclock: u64 = |c| misc::wall_clock(c.timestamp.as_nanos());
}
