//! Shared receive queues: `ibv_create_srq(3)`, `ibv_create_srq_ex(3)`, `ibv_modify_srq(3)`, `ibv_query_srq(3)`.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use adverb_abi::types::*;

use crate::call;
use crate::context::together;
use crate::cq::Cq;
use crate::errno::Error;
use crate::handle::{Kind, Object, find, find_context, not_null};
use crate::pd::{Pd, Share};
use crate::xrc::{self, Xrcd};

/// A shared receive queue.
pub(crate) struct Srq {
    pub(crate) nic: Arc<adverb_nic::Srq>,
    _pd: Arc<Share>,
}

impl Kind for Srq {
    type Public = ibv_srq;
    const NAME: &'static str = "shared receive queue";
    const MARK: u64 = 0xad59_0000_0000_0001;

    unsafe fn handle(public: *const Self::Public) -> u32 {
        // SAFETY: as our caller promises.
        unsafe { (*public).handle }
    }

    unsafe fn context(public: *const Self::Public) -> *mut ibv_context {
        // SAFETY: as our caller promises.
        unsafe { (*public).context }
    }
}

/// What an SRQ in an XRC domain has besides.
struct Xrc<'a> {
    domain: &'a Object<Xrcd>,
    cq: &'a Object<Cq>,
}

/// Creates one and writes back what was granted.
///
/// # Safety
/// `pd` is NULL or a domain.
unsafe fn create(
    pd: *mut ibv_pd,
    srq_context: *mut c_void,
    attr: &mut ibv_srq_attr,
    xrc: Option<Xrc<'_>>,
) -> Result<*mut ibv_srq, Error> {
    // SAFETY: as our caller promises.
    let domain = unsafe { find::<Pd>(pd) }?;
    let share = domain.share();
    // SAFETY: the domain is alive, and its context pointer is never written to.
    let context = unsafe { (*domain.public()).context };
    let srq = Object::create_with(|token| {
        let (max_wr, max_sge, token) = (attr.max_wr, attr.max_sge, token as u64);
        let nic = match xrc {
            None => share.nic.create_srq(max_wr, max_sge, token)?,
            Some(Xrc { domain, cq }) => domain
                .nic
                .create_srq(&share.nic, &cq.nic, max_wr, max_sge, token)?,
        };
        let mut public = ibv_srq::zeroed();
        public.context = context;
        public.srq_context = srq_context;
        public.pd = pd;
        Ok((public, Srq { nic, _pd: share }))
    })?;
    let granted = srq.nic.attrs();
    attr.max_wr = granted.max_wr;
    attr.max_sge = granted.max_sge;
    Ok(srq.public())
}

/// `ibv_create_srq(3)`.
///
/// # Safety
/// `pd` is NULL or a domain, `init` is NULL or can be read and written.
pub unsafe extern "C" fn ibv_create_srq(
    pd: *mut ibv_pd,
    init: *mut ibv_srq_init_attr,
) -> *mut ibv_srq {
    let make = || -> Result<*mut ibv_srq, Error> {
        not_null(init, "attribute")?;
        // SAFETY: not NULL, so the caller vouches for it.
        unsafe { create(pd, (*init).srq_context, &mut (*init).attr, None) }
    };
    call::pointer("ibv_create_srq", make)
}

const ATTRS: u32 = IBV_SRQ_INIT_ATTR_TYPE
    | IBV_SRQ_INIT_ATTR_PD
    | IBV_SRQ_INIT_ATTR_XRCD
    | IBV_SRQ_INIT_ATTR_CQ
    | IBV_SRQ_INIT_ATTR_TM;

const XRC_ATTRS: u32 = IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;

/// `ibv_create_srq_ex(3)`, behind the context's table. Of the types there are the basic one and that of XRC.
///
/// # Safety
/// As [`ibv_create_srq`]; members that `comp_mask` does not announce need not exist.
pub(crate) unsafe extern "C" fn create_srq_ex(
    context: *mut ibv_context,
    init: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    let make = || -> Result<*mut ibv_srq, Error> {
        // SAFETY: as our caller promises.
        unsafe { find_context(context) }?;
        not_null(init, "attribute")?;
        // SAFETY: not NULL, so the caller vouches for it.
        let mask = unsafe { (*init).comp_mask };
        if mask & !ATTRS != 0 {
            return Err(Error::Bits {
                what: "comp_mask",
                bits: u64::from(mask & !ATTRS),
            });
        }
        let kind = match mask & IBV_SRQ_INIT_ATTR_TYPE {
            0 => IBV_SRQT_BASIC,
            // SAFETY: announced members exist.
            _ => unsafe { (*init).srq_type },
        };
        match kind {
            IBV_SRQT_BASIC if mask & IBV_SRQ_INIT_ATTR_PD == 0 => {
                Err(Error::Argument("the attributes name no protection domain"))
            }
            // SAFETY: announced members exist.
            IBV_SRQT_BASIC => unsafe {
                let domain = find::<Pd>((*init).pd)?;
                together(context, (*domain.public()).context, "protection domain")?;
                create((*init).pd, (*init).srq_context, &mut (*init).attr, None)
            },
            IBV_SRQT_XRC if mask & XRC_ATTRS != XRC_ATTRS => Err(Error::Argument(
                "an XRC SRQ needs a protection domain, an XRC domain and a CQ",
            )),
            // SAFETY: announced members exist, and the objects are NULL or alive, says the caller.
            IBV_SRQT_XRC => unsafe {
                let domain = find::<Pd>((*init).pd)?;
                together(context, (*domain.public()).context, "protection domain")?;
                let cq = find::<Cq>((*init).cq.cast())?;
                together(context, (*cq.public()).base.context, "CQ")?;
                let xrc = Xrc {
                    domain: xrc::domain_of(context, (*init).xrcd)?,
                    cq,
                };
                create(
                    (*init).pd,
                    (*init).srq_context,
                    &mut (*init).attr,
                    Some(xrc),
                )
            },
            IBV_SRQT_TM => Err(Error::Unsupported("tag matching")),
            other => Err(Error::Value {
                what: "srq_type",
                value: other.into(),
                limit: IBV_SRQT_TM.into(),
            }),
        }
    };
    call::pointer("ibv_create_srq_ex", make)
}

/// `ibv_modify_srq(3)`: both values, or none and an error.
///
/// # Safety
/// `srq` is NULL or an SRQ, `attr` is NULL or can be read.
pub unsafe extern "C" fn ibv_modify_srq(
    srq: *mut ibv_srq,
    attr: *mut ibv_srq_attr,
    mask: c_int,
) -> c_int {
    let modify = || -> Result<(), Error> {
        // SAFETY: as our caller promises.
        let srq = unsafe { find::<Srq>(srq) }?;
        not_null(attr, "attribute")?;
        let mask = mask as u32;
        let unknown = mask & !(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT);
        if unknown != 0 {
            return Err(Error::Bits {
                what: "srq_attr_mask",
                bits: unknown.into(),
            });
        }
        // SAFETY: not NULL, so the caller says that it can be read.
        let attr = unsafe { *attr };
        let max_wr = (mask & IBV_SRQ_MAX_WR != 0).then_some(attr.max_wr);
        let limit = (mask & IBV_SRQ_LIMIT != 0).then_some(attr.srq_limit);
        Ok(srq.nic.modify(max_wr, limit)?)
    };
    call::status("ibv_modify_srq", modify)
}

/// `ibv_query_srq(3)`.
///
/// # Safety
/// `srq` is NULL or an SRQ, `attr` is NULL or can be written.
pub unsafe extern "C" fn ibv_query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int {
    let query = || -> Result<(), Error> {
        // SAFETY: as our caller promises.
        let srq = unsafe { find::<Srq>(srq) }?;
        not_null(attr, "attribute")?;
        srq.nic.usable()?;
        let now = srq.nic.attrs();
        // SAFETY: not NULL, so the caller says that it can be written.
        unsafe {
            *attr = ibv_srq_attr {
                max_wr: now.max_wr,
                max_sge: now.max_sge,
                srq_limit: now.limit,
            }
        };
        Ok(())
    };
    call::status("ibv_query_srq", query)
}

/// `ibv_get_srq_num(3)`, behind the context's table: the number by which an XRC sender names the SRQ.
///
/// # Safety
/// `srq` is NULL or an SRQ, `number` is NULL or can be written.
pub(crate) unsafe extern "C" fn get_srq_num(srq: *mut ibv_srq, number: *mut u32) -> c_int {
    let get = || -> Result<(), Error> {
        // SAFETY: as our caller promises.
        let srq = unsafe { find::<Srq>(srq) }?;
        not_null(number, "place for the number")?;
        let known = srq
            .nic
            .number()
            .ok_or(Error::Argument("only an SRQ of an XRC domain has a number"))?;
        // SAFETY: not NULL, so the caller says that it can be written.
        unsafe { *number = known };
        Ok(())
    };
    call::status("ibv_get_srq_num", get)
}

/// `ibv_destroy_srq(3)`. EBUSY while a queue pair uses it; then waits until its events are acknowledged.
///
/// # Safety
/// `srq` is NULL or an SRQ.
pub unsafe extern "C" fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int {
    let destroy = || -> Result<(), Error> {
        // SAFETY: as our caller promises.
        let srq = unsafe { find::<Srq>(srq) }?;
        srq.nic.destroy()?;
        // SAFETY: no queue pair and no event refers to it, so this was the last use.
        unsafe { srq.free() };
        Ok(())
    };
    call::status("ibv_destroy_srq", destroy)
}
