//! Memory windows: `ibv_alloc_mw(3)`, `ibv_bind_mw(3)`, and binding as a work request.

use std::ffi::{c_int, c_uint};
use std::sync::{Arc, Mutex, PoisonError};

use adverb_abi::types::*;
use adverb_engine::{Access, Key, MwBind, SendData, SendOp, SendWr, WindowType};

use crate::call;
use crate::errno::Error;
use crate::handle::{Kind, Object, find, find_for_work, find_if_any, not_null};
use crate::mr::Mr;
use crate::pd::{Pd, Share};
use crate::post;
use crate::qp::Qp;

/// A memory window.
pub(crate) struct Mw {
    nic: Arc<adverb_nic::Mw>,
    share: Arc<Share>,
    /// Type 1: binds are posted one after the other, because each takes the next key.
    turn: Mutex<()>,
}

impl Kind for Mw {
    type Public = ibv_mw;
    const NAME: &'static str = "memory window";
    const MARK: u64 = 0xad30_0000_0000_0001;

    unsafe fn handle(public: *const Self::Public) -> u32 {
        // SAFETY: as our caller promises.
        unsafe { (*public).handle }
    }

    unsafe fn context(public: *const Self::Public) -> *mut ibv_context {
        // SAFETY: as our caller promises.
        unsafe { (*public).context }
    }
}

/// `ibv_alloc_mw(3)`, behind the context's table.
///
/// # Safety
/// `pd` is NULL or a domain.
pub(crate) unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, kind: ibv_mw_type) -> *mut ibv_mw {
    let alloc = || -> Result<*mut ibv_mw, Error> {
        // SAFETY: as our caller promises.
        let domain = unsafe { find::<Pd>(pd) }?;
        let window = match kind {
            IBV_MW_TYPE_1 => WindowType::One,
            IBV_MW_TYPE_2 => WindowType::Two,
            other => {
                return Err(Error::Value {
                    what: "memory window type",
                    value: other.into(),
                    limit: IBV_MW_TYPE_2.into(),
                });
            }
        };
        let share = domain.share();
        let nic = share.nic.alloc_mw(window)?;
        let public = ibv_mw {
            // SAFETY: the domain is alive, and its context pointer is never written to.
            context: unsafe { (*domain.public()).context },
            pd,
            rkey: nic.key().0,
            handle: nic.key().0 >> 8,
            r#type: kind,
        };
        let own = Mw {
            nic,
            share,
            turn: Mutex::new(()),
        };
        Ok(Object::create(public, own).public())
    };
    call::pointer("ibv_alloc_mw", alloc)
}

/// `ibv_dealloc_mw(3)`. A window that is bound is unbound by it.
///
/// # Safety
/// `mw` is NULL or a window.
pub(crate) unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    let dealloc = || -> Result<(), Error> {
        // SAFETY: as our caller promises.
        let mw = unsafe { find::<Mw>(mw) }?;
        mw.nic.dealloc()?;
        // SAFETY: the window is gone, so there is nothing more to ask it.
        unsafe { mw.free() };
        Ok(())
    };
    call::status("ibv_dealloc_mw", dealloc)
}

/// Rights that can be asked for; the local one has no effect.
const GIVEN: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC)
    .union(Access::ZERO_BASED)
    .union(Access::FLUSH_GLOBAL);

/// What a window is to cover. Whether the region allows it shows when the bind's turn comes.
///
/// # Safety
/// The region is NULL or alive.
unsafe fn binding(mw: &Object<Mw>, new_key: u32, info: &ibv_mw_bind_info) -> Result<MwBind, Error> {
    let bits = info.mw_access_flags & !IBV_ACCESS_OPTIONAL_RANGE;
    let access = Access::from_bits(bits)
        .filter(|access| GIVEN.contains(*access))
        .ok_or_else(|| Error::Bits {
            what: "mw_access_flags",
            bits: u64::from(bits & !GIVEN.bits()),
        })?;
    let region = match info.mr.is_null() {
        true => None,
        // SAFETY: as our caller promises.
        false => Some(unsafe { find_for_work::<Mr>(info.mr) }?),
    };
    Ok(MwBind {
        window: mw.nic.key(),
        new_key: Key(new_key),
        region: Key(region.map_or(0, |mr| mr.nic.lkey())),
        addr: info.addr,
        len: info.length,
        access,
    })
}

/// The bind of a window of type 2, as work requests ask for it.
///
/// # Safety
/// The window and the region are NULL or alive.
pub(crate) unsafe fn operation(
    mw: *mut ibv_mw,
    new_key: c_uint,
    info: &ibv_mw_bind_info,
) -> Result<SendOp, Error> {
    // SAFETY: as our caller promises.
    let mw = unsafe { find_for_work::<Mw>(mw) }?;
    // SAFETY: the window is alive.
    if unsafe { (*mw.public()).r#type } != IBV_MW_TYPE_2 {
        return Err(Error::Argument(
            "windows of type 1 are bound by ibv_bind_mw, not by work requests",
        ));
    }
    // SAFETY: as our caller promises.
    Ok(SendOp::BindMw(unsafe { binding(mw, new_key, info) }?))
}

/// `ibv_bind_mw(3)`, behind the context's table: posts the bind, and counts the window's key up.
///
/// # Safety
/// `qp` is NULL or a queue pair, `mw` NULL or a window, `bind` NULL or readable, with a region that is NULL or alive.
pub(crate) unsafe extern "C" fn bind_mw(
    qp: *mut ibv_qp,
    mw: *mut ibv_mw,
    bind: *mut ibv_mw_bind,
) -> c_int {
    let post = || -> Result<(), Error> {
        // SAFETY: as our caller promises.
        let (qp, mw) = unsafe { (find_for_work::<Qp>(qp.cast())?, find_for_work::<Mw>(mw)?) };
        not_null(bind, "bind request")?;
        // SAFETY: not NULL, so the caller says that it can be read.
        let bind = unsafe { *bind };
        let public = mw.public();
        // SAFETY: the window is alive.
        if unsafe { (*public).r#type } != IBV_MW_TYPE_1 {
            return Err(Error::Argument(
                "windows of type 2 are bound by work requests, not by ibv_bind_mw",
            ));
        }
        let info = bind.bind_info;
        // SAFETY: as our caller promises.
        match unsafe { find_if_any::<Mr>(info.mr) }? {
            None if info.addr != 0 || info.length != 0 => {
                return Err(Error::Argument("a range is given, and no region"));
            }
            Some(mr) if !mr.nic.is_in(&mw.share.nic) => {
                return Err(Error::Forbidden("region and window are of two domains"));
            }
            _ => {}
        }
        // SAFETY: the queue pair is alive, and the field is never written to.
        let domain = unsafe { find::<Pd>((*qp.public()).qp_base.pd) }?;
        if !domain.share().nic.is_same(&mw.share.nic) {
            return Err(Error::Forbidden("queue pair and window are of two domains"));
        }
        if info.mw_access_flags & IBV_ACCESS_ZERO_BASED != 0 {
            return Err(Error::Argument("windows of type 1 are not zero based"));
        }
        let flags = post::send_flags(bind.send_flags & !IBV_SEND_INLINE)?;
        let _turn = mw.turn.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the window is alive, and it is this thread's turn.
        let old = unsafe { (*public).rkey };
        let new = old & !0xff | old.wrapping_add(1) & 0xff;
        // SAFETY: as our caller promises.
        let op = SendOp::BindMw(unsafe { binding(mw, new, &info) }?);
        let mut posting = qp.nic.posting();
        posting.send(&SendWr {
            wr_id: bind.wr_id,
            op,
            flags,
            data: SendData::Sges(&[]),
            ud: None,
            xrc_srqn: 0,
        })?;
        // SAFETY: as above.
        unsafe { (*public).rkey = new };
        Ok(())
    };
    call::status("ibv_bind_mw", post)
}
