//! Opening a device, `ibv_open_device(3)`, and the tables that C programs jump through.
//!
//! Most calls of verbs.h are inline: they read a function from the context and jump. A context is therefore always laid
//! out as the newest `verbs_context` with its size in it; slots of what is not built stay empty, which the inline calls
//! answer with EOPNOTSUPP. Programs built against an older header look less far to the front.

use std::ffi::{c_int, c_void};
use std::mem::size_of;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use adverb_abi::types::{
    VERBS_ABI_IS_EXTENDED, Zeroed as _, ibv_context, ibv_context_ops, ibv_device, verbs_context,
};

use crate::call;
use crate::errno::Error;
use crate::handle::{Kind, Object, context_pointer, find, find_context};
use crate::setting::setting;
use crate::shared::Family;
use crate::{cq, cq_ex, device, dm, misc, mr, mw, pd, polite, post, qp, query, srq, xrc};

/// An open device.
pub(crate) struct Context {
    pub(crate) nic: Arc<adverb_nic::Context>,
    /// The contexts that share their objects with this one.
    pub(crate) family: Arc<Family>,
    /// Stands in for the file of the kernel's verbs device: programs pass it on, and import what is behind it.
    _command: OwnedFd,
}

impl Kind for Context {
    type Public = verbs_context;
    const NAME: &'static str = "device context";
    const MARK: u64 = 0xadc0_0000_0000_0001;
}

/// The calls of the first ABI. The others of this table have long been exported functions instead.
fn operations() -> ibv_context_ops {
    let polite = setting().ok().and_then(|setting| setting.polite);
    ibv_context_ops {
        poll_cq: Some(polite.map_or(cq::poll_cq, polite::poll)),
        req_notify_cq: Some(cq::req_notify_cq),
        alloc_mw: Some(mw::alloc_mw),
        bind_mw: Some(mw::bind_mw),
        dealloc_mw: Some(mw::dealloc_mw),
        post_srq_recv: Some(post::post_srq_recv),
        post_send: Some(post::post_send),
        post_recv: Some(post::post_recv),
        ..ibv_context_ops::zeroed()
    }
}

/// All calls that are reached through the context.
fn table(context: ibv_context) -> verbs_context {
    verbs_context {
        query_port: Some(query::query_port),
        advise_mr: Some(mr::advise_mr),
        alloc_null_mr: Some(mr::alloc_null_mr),
        reg_dm_mr: Some(dm::reg_dm_mr),
        alloc_dm: Some(dm::alloc_dm),
        free_dm: Some(dm::free_dm),
        query_device_ex: Some(query::query_device_ex),
        query_rt_values: Some(misc::query_rt_values),
        modify_cq: Some(cq::modify_cq),
        create_cq_ex: Some(cq_ex::create_cq_ex),
        create_qp_ex: Some(qp::create_qp_ex),
        create_srq_ex: Some(srq::create_srq_ex),
        get_srq_num: Some(srq::get_srq_num),
        open_xrcd: Some(xrc::open_xrcd),
        close_xrcd: Some(xrc::close_xrcd),
        open_qp: Some(xrc::open_qp),
        alloc_td: Some(pd::alloc_td),
        dealloc_td: Some(pd::dealloc_td),
        alloc_parent_domain: Some(pd::alloc_parent_domain),
        sz: size_of::<verbs_context>(),
        context,
        ..verbs_context::zeroed()
    }
}

/// `ibv_open_device(3)`. May be called more than once for a device, each time for an independent context.
///
/// # Safety
/// `device` is NULL or a device.
pub unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    let open = || -> Result<*mut ibv_context, Error> {
        // SAFETY: as our caller promises.
        let device = unsafe { find::<device::Device>(device) }?;
        setting()?;
        let nic = adverb_nic::Context::open(&device.nic)?;
        let (family, command) = Family::found(device)?;
        Ok(publish(nic, family, command))
    };
    call::pointer("ibv_open_device", open)
}

/// Lays a context out for C.
pub(crate) fn publish(
    nic: Arc<adverb_nic::Context>,
    family: Arc<Family>,
    command: OwnedFd,
) -> *mut ibv_context {
    let public = ibv_context {
        device: family.device.public(),
        ops: operations(),
        cmd_fd: command.as_raw_fd(),
        async_fd: nic.async_fd(),
        num_comp_vectors: family.device.nic.limits().comp_vectors as c_int,
        abi_compat: std::ptr::without_provenance_mut::<c_void>(VERBS_ABI_IS_EXTENDED),
        ..ibv_context::zeroed()
    };
    let own = Context {
        nic,
        family,
        _command: command,
    };
    context_pointer(Object::create(table(public), own))
}

/// Fails unless two objects can be used together: they belong to one context, or to contexts that share their objects.
///
/// # Safety
/// Both are the contexts of objects that are alive.
pub(crate) unsafe fn together(
    a: *mut ibv_context,
    b: *mut ibv_context,
    what: &'static str,
) -> Result<(), Error> {
    if a == b {
        return Ok(());
    }
    // SAFETY: as our caller promises.
    let (a, b) = unsafe { (find_context(a)?, find_context(b)?) };
    if Arc::ptr_eq(&a.family, &b.family) {
        Ok(())
    } else {
        Err(Error::OtherContext(what))
    }
}

/// `ibv_close_device(3)`. What was made in the context is not freed with it.
///
/// # Safety
/// `context` is NULL or a context, which nobody uses any more.
pub unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    let body = || {
        // SAFETY: as our caller promises.
        unsafe { find_context(context) }
            .map(|context| {
                // SAFETY: the last use, here and by contract in C.
                unsafe { context.free() }
            })
            .map(|()| 0)
    };
    call::minus_one("ibv_close_device", body)
}
