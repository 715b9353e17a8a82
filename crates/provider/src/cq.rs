//! Completion queues: `ibv_create_cq(3)`, `ibv_poll_cq(3)`, `ibv_req_notify_cq(3)`, `ibv_resize_cq(3)`.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use adverb_abi::types::*;
use adverb_engine::{Completion, Instant, QpNum, WcOpcode};

use crate::call;
use crate::channel::Channel;
use crate::context::together;
use crate::errno::{self, Error};
use crate::handle::{Kind, Object, find, find_context, find_for_work, find_if_any, not_null};
use crate::pd::Share;

/// A completion queue. Each can also be read in place (`cq_ex.rs`), if it was created for that.
pub(crate) struct Cq {
    pub(crate) nic: Arc<adverb_nic::Cq>,
    /// Whether threads take turns between `ibv_start_poll` and `ibv_end_poll`.
    pub(crate) takes_turns: bool,
    /// Between the two. Written by whoever's turn it is.
    pub(crate) reading: AtomicBool,
    /// The parent domain it was created with, which stays busy.
    _domain: Option<Arc<Share>>,
    /// The completion that the readers show. Touched by whoever's turn it is.
    pub(crate) current: UnsafeCell<Completion>,
}

impl Kind for Cq {
    type Public = ibv_cq_ex;
    const NAME: &'static str = "completion queue";
    const MARK: u64 = 0xadc9_0000_0000_0001;

    unsafe fn handle(public: *const Self::Public) -> u32 {
        // SAFETY: as our caller promises.
        unsafe { (*public).base.handle }
    }

    unsafe fn context(public: *const Self::Public) -> *mut ibv_context {
        // SAFETY: as our caller promises.
        unsafe { (*public).base.context }
    }
}

/// What a slot holds before a completion is put there.
pub(crate) const BLANK: Completion =
    Completion::success(0, WcOpcode::Send, QpNum(0), Instant::from_nanos(0));

/// # Safety
/// The pointers are NULL or point to objects that are alive.
pub(crate) unsafe fn create(
    context: *mut ibv_context,
    cqe: u32,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    vector: u32,
    takes_turns: bool,
    domain: Option<Arc<Share>>,
) -> Result<&'static Object<Cq>, Error> {
    // SAFETY: as our caller promises.
    let open = unsafe { find_context(context) }?;
    // SAFETY: likewise.
    let reports_to = unsafe { find_if_any::<Channel>(channel) }?;
    if !channel.is_null() {
        // SAFETY: found above, so it is alive.
        unsafe { together(context, (*channel).context, "completion channel") }?;
    }
    Object::create_with(|token| {
        let nic = open.nic.create_cq(
            cqe,
            reports_to.map(|channel| &channel.nic),
            vector,
            token as u64,
        )?;
        let mut public = ibv_cq_ex::zeroed();
        public.base.context = context;
        public.base.channel = channel;
        public.base.cq_context = cq_context;
        public.base.cqe = nic.capacity() as c_int;
        let own = Cq {
            nic,
            takes_turns,
            reading: AtomicBool::new(false),
            _domain: domain,
            current: UnsafeCell::new(BLANK),
        };
        Ok((public, own))
    })
}

/// `ibv_create_cq(3)`.
///
/// # Safety
/// The pointers are NULL or point to objects that are alive; `cq_context` is only kept.
pub unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    vector: c_int,
) -> *mut ibv_cq {
    let make = || -> Result<*mut ibv_cq, Error> {
        let cqe = u32::try_from(cqe)
            .map_err(|_| Error::Argument("the number of completions is negative"))?;
        let vector = u32::try_from(vector)
            .map_err(|_| Error::Argument("the completion vector is negative"))?;
        // SAFETY: as our caller promises.
        Ok(
            unsafe { create(context, cqe, cq_context, channel, vector, true, None) }?
                .public()
                .cast(),
        )
    };
    call::pointer("ibv_create_cq", make)
}

/// `ibv_resize_cq(3)`.
///
/// # Safety
/// `cq` is NULL or a CQ.
pub unsafe extern "C" fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    let resize = || -> Result<(), Error> {
        // SAFETY: as our caller promises.
        let cq = unsafe { find::<Cq>(cq.cast()) }?;
        let cqe = u32::try_from(cqe)
            .map_err(|_| Error::Argument("the number of completions is negative"))?;
        cq.nic.resize(cqe)?;
        // SAFETY: the CQ is alive; the manual has programs read the size after the call.
        unsafe { (*cq.public()).base.cqe = cq.nic.capacity() as c_int };
        Ok(())
    };
    call::status("ibv_resize_cq", resize)
}

/// `ibv_modify_cq(3)`, behind the context's table: moderation of events.
///
/// # Safety
/// `cq` is NULL or a CQ, `attr` is NULL or can be read.
pub(crate) unsafe extern "C" fn modify_cq(cq: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) -> c_int {
    let modify = || -> Result<(), Error> {
        // SAFETY: as our caller promises.
        let cq = unsafe { find::<Cq>(cq.cast()) }?;
        not_null(attr, "attribute")?;
        // SAFETY: not NULL, so the caller says that it can be read.
        let attr = unsafe { *attr };
        let unknown = attr.attr_mask & !IBV_CQ_ATTR_MODERATE;
        if unknown != 0 {
            return Err(Error::Bits {
                what: "attr_mask",
                bits: unknown.into(),
            });
        }
        if attr.attr_mask & IBV_CQ_ATTR_MODERATE != 0 {
            let moderate = attr.moderate;
            cq.nic.moderate(moderate.cq_count, moderate.cq_period)?;
        }
        Ok(())
    };
    call::status("ibv_modify_cq", modify)
}

/// `ibv_destroy_cq(3)`. EBUSY while a queue pair uses it; then waits until every event got from it is acknowledged.
///
/// # Safety
/// `cq` is NULL or a CQ.
pub unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    let destroy = || -> Result<(), Error> {
        // SAFETY: as our caller promises.
        let cq = unsafe { find::<Cq>(cq.cast()) }?;
        cq.nic.destroy()?;
        // SAFETY: no queue pair and no event refers to it, so this was the last use.
        unsafe { cq.free() };
        Ok(())
    };
    call::status("ibv_destroy_cq", destroy)
}

/// `ibv_req_notify_cq(3)`, behind the context's table.
///
/// # Safety
/// `cq` is NULL or a CQ.
pub(crate) unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: as our caller promises.
    let armed = unsafe { find_for_work::<Cq>(cq.cast()) }
        .and_then(|cq| cq.nic.req_notify(solicited_only != 0).map_err(Error::from));
    errno::status("ibv_req_notify_cq", armed)
}

/// `ibv_poll_cq(3)`, behind the context's table. Takes what is there, up to `count`; drives the NIC when nothing is.
///
/// # Safety
/// `cq` is NULL or a CQ; `wc` is good for `count` entries.
pub(crate) unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, count: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: as our caller promises.
    let polled = match unsafe { find_for_work::<Cq>(cq.cast()) } {
        // SAFETY: likewise.
        Ok(cq) => unsafe { poll(cq, count, wc) },
        Err(error) => Err(error),
    };
    errno::minus_one("ibv_poll_cq", polled)
}

/// # Safety
/// `wc` is NULL or good for `count` entries.
unsafe fn poll(cq: &Object<Cq>, count: c_int, wc: *mut ibv_wc) -> Result<c_int, Error> {
    let wanted =
        usize::try_from(count).map_err(|_| Error::Argument("the number of entries is negative"))?;
    if wanted == 0 {
        return Ok(0);
    }
    not_null(wc, "array of completions")?;
    let mut free = wc;
    let got = cq.nic.poll_each(wanted, |completion| {
        // SAFETY: called at most `count` times, and for so many entries the caller has room.
        unsafe {
            write_wc(free, completion);
            free = free.add(1);
        }
    })?;
    Ok(got as c_int)
}

/// # Safety
/// `to` can be written.
unsafe fn write_wc(to: *mut ibv_wc, from: &Completion) {
    let with_inv = from.flags.contains(adverb_engine::WcFlags::WITH_INV);
    let wc = ibv_wc {
        wr_id: from.wr_id,
        status: from.status as u32,
        opcode: from.opcode as u32,
        vendor_err: from.vendor_err,
        byte_len: from.byte_len,
        imm_or_rkey: match with_inv {
            true => ibv_imm_or_rkey {
                rkey: from.invalidated_rkey,
            },
            // The four bytes lie in memory as they came over the wire.
            false => ibv_imm_or_rkey {
                imm_data: u32::from_ne_bytes(from.imm),
            },
        },
        qp_num: from.qp_num.0,
        src_qp: from.src_qp,
        wc_flags: from.flags.bits(),
        pkey_index: from.pkey_index,
        slid: 0,
        sl: from.sl,
        dlid_path_bits: 0,
    };
    // SAFETY: the caller says that it can be written.
    unsafe { ptr::write(to, wc) };
}
