//! Address handles: `ibv_create_ah(3)`, `ibv_init_ah_from_wc(3)`, `ibv_create_ah_from_wc(3)`.

use std::ffi::c_int;
use std::sync::Arc;

use adverb_abi::types::*;
use adverb_nic::AhSpec;
use adverb_wire::{Gid, grh};

use crate::call;
use crate::errno::Error;
use crate::handle::{Kind, Object, find, find_context, not_null};
use crate::pd::{Pd, Share};
use crate::query;

/// An address handle.
pub(crate) struct Ah {
    pub(crate) nic: Arc<adverb_nic::Ah>,
    _pd: Arc<Share>,
}

impl Kind for Ah {
    type Public = ibv_ah;
    const NAME: &'static str = "address handle";
    const MARK: u64 = 0xadaa_0000_0000_0001;

    unsafe fn handle(public: *const Self::Public) -> u32 {
        // SAFETY: as our caller promises.
        unsafe { (*public).handle }
    }

    unsafe fn context(public: *const Self::Public) -> *mut ibv_context {
        // SAFETY: as our caller promises.
        unsafe { (*public).context }
    }
}

/// # Safety
/// `pd` is NULL or a domain.
unsafe fn create(pd: *mut ibv_pd, attr: &ibv_ah_attr) -> Result<*mut ibv_ah, Error> {
    // SAFETY: as our caller promises.
    let domain = unsafe { find::<Pd>(pd) }?;
    if attr.is_global == 0 {
        return Err(Error::Argument(
            "an address on RoCE needs is_global and a GRH",
        ));
    }
    let share = domain.share();
    let nic = share.nic.create_ah(&AhSpec {
        sgid_index: attr.grh.sgid_index,
        // SAFETY: every byte of the union is initialised, as C has it.
        dgid: Gid(unsafe { attr.grh.dgid.raw }),
        traffic_class: attr.grh.traffic_class,
        hop_limit: attr.grh.hop_limit,
        flow_label: attr.grh.flow_label,
        sl: attr.sl,
        static_rate: attr.static_rate,
        port: attr.port_num,
    })?;
    // SAFETY: the domain is alive, and its context pointer is never written to.
    let context = unsafe { (*domain.public()).context };
    Ok(Object::create(
        ibv_ah {
            context,
            pd,
            handle: 0,
        },
        Ah { nic, _pd: share },
    )
    .public())
}

/// `ibv_create_ah(3)`.
///
/// # Safety
/// `pd` is NULL or a domain, `attr` is NULL or can be read.
pub unsafe extern "C" fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah {
    let body = || {
        not_null(attr, "attribute")
            // SAFETY: not NULL, so the caller says that it can be read.
            .and_then(|()| unsafe { create(pd, &*attr) })
    };
    call::pointer("ibv_create_ah", body)
}

/// `ibv_destroy_ah(3)`. Requests that were posted with it are not affected.
///
/// # Safety
/// `ah` is NULL or an address handle.
pub unsafe extern "C" fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int {
    let body = || {
        // SAFETY: as our caller promises.
        unsafe { find::<Ah>(ah) }.map(|ah| {
            // SAFETY: posted requests have their copy, so this was the last use.
            unsafe { ah.free() }
        })
    };
    call::status("ibv_destroy_ah", body)
}

/// How to answer the sender of a datagram.
///
/// # Safety
/// `context` is NULL or a context, `wc` and `area` are NULL or can be read.
unsafe fn answer(
    context: *mut ibv_context,
    port: u8,
    wc: *const ibv_wc,
    area: *const ibv_grh,
) -> Result<ibv_ah_attr, Error> {
    // SAFETY: as our caller promises.
    let context = unsafe { find_context(context) }?;
    not_null(wc, "completion")?;
    // SAFETY: not NULL, so the caller says that it can be read.
    let wc = unsafe { &*wc };
    let mut attr = ibv_ah_attr::zeroed();
    attr.dlid = wc.slid;
    attr.sl = wc.sl;
    attr.src_path_bits = wc.dlid_path_bits;
    attr.port_num = port;
    if wc.wc_flags & IBV_WC_GRH == 0 {
        return Ok(attr);
    }
    not_null(area, "GRH")?;
    // SAFETY: likewise; the area is 40 plain bytes.
    let bytes = unsafe { area.cast::<[u8; grh::LEN]>().read() };
    let header = grh::Grh::from_bytes(&bytes).ok_or(Error::Argument(
        "the 40 bytes hold neither an IPv6 nor an IPv4 header",
    ))?;
    let index = query::index_of_gid(context.nic.device(), header.dst).ok_or(Error::Argument(
        "the datagram's destination is no GID of this device",
    ))?;
    attr.is_global = 1;
    attr.grh.dgid = ibv_gid { raw: header.src.0 };
    attr.grh.sgid_index = index;
    attr.grh.flow_label = header.flow_label;
    attr.grh.traffic_class = header.traffic_class;
    // The answer may have a longer way to go than the question had left.
    attr.grh.hop_limit = u8::MAX;
    Ok(attr)
}

/// `ibv_init_ah_from_wc(3)`.
///
/// # Safety
/// `context` is NULL or a context, `wc` and `area` are NULL or can be read, `attr` is NULL or can be written.
pub unsafe extern "C" fn ibv_init_ah_from_wc(
    context: *mut ibv_context,
    port: u8,
    wc: *mut ibv_wc,
    area: *mut ibv_grh,
    attr: *mut ibv_ah_attr,
) -> c_int {
    let init = || -> Result<c_int, Error> {
        not_null(attr, "attribute")?;
        // SAFETY: as our caller promises.
        unsafe { *attr = answer(context, port, wc, area)? };
        Ok(0)
    };
    call::minus_one("ibv_init_ah_from_wc", init)
}

/// `ibv_create_ah_from_wc(3)`.
///
/// # Safety
/// `pd` is NULL or a domain, `wc` and `area` are NULL or can be read.
pub unsafe extern "C" fn ibv_create_ah_from_wc(
    pd: *mut ibv_pd,
    wc: *mut ibv_wc,
    area: *mut ibv_grh,
    port: u8,
) -> *mut ibv_ah {
    let make = || -> Result<*mut ibv_ah, Error> {
        // SAFETY: as our caller promises.
        let domain = unsafe { find::<Pd>(pd) }?;
        // SAFETY: the domain is alive; the rest as our caller promises.
        unsafe { create(pd, &answer((*domain.public()).context, port, wc, area)?) }
    };
    call::pointer("ibv_create_ah_from_wc", make)
}
