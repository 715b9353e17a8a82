//! Queue pairs: `ibv_create_qp(3)`, `ibv_create_qp_ex(3)`, `ibv_modify_qp(3)`, `ibv_query_qp(3)`.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use adverb_abi::types::*;
use adverb_engine::{Access, AttrMask, Av, QpAttr, QpCaps, QpState};
use adverb_nic::{NicError, QpSpec};
use adverb_wire::{Gid, Transport};

use crate::call;
use crate::context::together;
use crate::cq::Cq;
use crate::errno::Error;
use crate::handle::{Kind, Object, find, find_context, find_if_any, not_null};
use crate::pd::{Pd, Share};
use crate::qp_ex::{self, Builder};
use crate::srq::Srq;
use crate::xrc;

/// A queue pair. Each has the larger public part; only those created for it may be used through it (`qp_ex.rs`).
pub(crate) struct Qp {
    pub(crate) nic: Arc<adverb_nic::Qp>,
    pub(crate) caps: QpCaps,
    pub(crate) is_datagram: bool,
    pub(crate) is_xrc: bool,
    pub(crate) builder: Option<Builder>,
    init: Init,
    /// None for an XRC_RECV queue pair.
    _pd: Option<Arc<Share>>,
}

/// What `ibv_query_qp` gives back as it was at creation.
struct Init {
    transport: ibv_qp_type,
    sq_sig_all: c_int,
}

impl Kind for Qp {
    type Public = ibv_qp_ex;
    const NAME: &'static str = "queue pair";
    const MARK: u64 = 0xad9b_0000_0000_0001;

    unsafe fn handle(public: *const Self::Public) -> u32 {
        // SAFETY: as our caller promises.
        unsafe { (*public).qp_base.handle }
    }

    unsafe fn context(public: *const Self::Public) -> *mut ibv_context {
        // SAFETY: as our caller promises.
        unsafe { (*public).qp_base.context }
    }
}

const ATTRS: u32 = IBV_QP_INIT_ATTR_PD
    | IBV_QP_INIT_ATTR_XRCD
    | IBV_QP_INIT_ATTR_CREATE_FLAGS
    | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;

fn transport(kind: ibv_qp_type) -> Result<Transport, Error> {
    match kind {
        IBV_QPT_RC => Ok(Transport::Rc),
        IBV_QPT_UC => Ok(Transport::Uc),
        IBV_QPT_UD => Ok(Transport::Ud),
        IBV_QPT_XRC_SEND => Ok(Transport::Xrc),
        IBV_QPT_XRC_RECV => Err(Error::Argument(
            "an XRC_RECV queue pair is made in an XRC domain, with ibv_create_qp_ex",
        )),
        IBV_QPT_RAW_PACKET | IBV_QPT_DRIVER => Err(Error::Unsupported(
            "a queue pair type that is not RDMA's own",
        )),
        other => Err(Error::Value {
            what: "qp_type",
            value: other.into(),
            limit: IBV_QPT_UD.into(),
        }),
    }
}

/// # Safety
/// The objects named are NULL or alive.
unsafe fn create(
    pd: *mut ibv_pd,
    init: &ibv_qp_init_attr,
    send_ops: Option<u64>,
    create_flags: u32,
) -> Result<&'static Object<Qp>, Error> {
    // SAFETY: as our caller promises, here and below.
    let domain = unsafe { find::<Pd>(pd) }?;
    let transport = transport(init.qp_type)?;
    // SAFETY: as above.
    let send_cq = unsafe { find::<Cq>(init.send_cq.cast()) }?;
    let recv_cq = match transport {
        Transport::Xrc => None,
        // SAFETY: as above.
        _ => Some(unsafe { find::<Cq>(init.recv_cq.cast()) }?),
    };
    // SAFETY: as above.
    let srq = unsafe { find_if_any::<Srq>(init.srq) }?;
    // SAFETY: the objects were found above, so they are alive.
    unsafe {
        let context = (*domain.public()).context;
        together(context, (*send_cq.public()).base.context, "send CQ")?;
        if let Some(cq) = recv_cq {
            together(context, (*cq.public()).base.context, "receive CQ")?;
        }
        if let Some(srq) = srq {
            together(context, (*srq.public()).context, "SRQ")?;
        }
    }
    if let Some(ops) = send_ops {
        qp_ex::check_operations(ops, transport)?;
    }
    let cap = &init.cap;
    let caps = QpCaps {
        max_send_wr: cap.max_send_wr,
        // With an SRQ the queue pair has no receive queue, whatever is asked for.
        max_recv_wr: if srq.is_some() { 0 } else { cap.max_recv_wr },
        max_send_sge: cap.max_send_sge,
        max_recv_sge: if srq.is_some() { 0 } else { cap.max_recv_sge },
        max_inline: cap.max_inline_data,
    };
    let share = domain.share();
    // SAFETY: the domain is alive, and its context pointer is never written to.
    let context = unsafe { (*domain.public()).context };
    Object::create_with(|token| {
        let nic = share.nic.create_qp(&QpSpec {
            transport,
            send_cq: &send_cq.nic,
            recv_cq: recv_cq.map(|cq| &cq.nic),
            srq: srq.map(|srq| &srq.nic),
            caps,
            sq_sig_all: init.sq_sig_all != 0,
            blocks_own_multicast: create_flags & IBV_QP_CREATE_BLOCK_SELF_MCAST_LB != 0,
            user: token as u64,
        })?;
        let mut public = ibv_qp_ex::zeroed();
        let base = &mut public.qp_base;
        base.context = context;
        base.qp_context = init.qp_context;
        base.pd = pd;
        base.send_cq = init.send_cq;
        base.recv_cq = init.recv_cq;
        base.srq = init.srq;
        base.qp_num = nic.number();
        base.state = IBV_QPS_RESET;
        base.qp_type = init.qp_type;
        let caps = nic.caps();
        let builder = send_ops.map(|ops| {
            qp_ex::offer(&mut public, ops);
            Builder::new(&caps)
        });
        let own = Qp {
            caps,
            is_datagram: transport == Transport::Ud,
            is_xrc: transport == Transport::Xrc,
            builder,
            init: Init {
                transport: init.qp_type,
                sq_sig_all: init.sq_sig_all,
            },
            nic,
            _pd: Some(share),
        };
        Ok((public, own))
    })
}

/// An XRC_RECV queue pair, or one more handle of it: `make` creates it, given the token for its events.
pub(crate) fn target(
    context: *mut ibv_context,
    qp_context: *mut c_void,
    make: impl FnOnce(u64) -> Result<Arc<adverb_nic::Qp>, NicError>,
) -> Result<&'static Object<Qp>, Error> {
    Object::create_with(|token| {
        let nic = make(token as u64)?;
        let mut public = ibv_qp_ex::zeroed();
        let base = &mut public.qp_base;
        base.context = context;
        base.qp_context = qp_context;
        base.qp_num = nic.number();
        base.state = nic.state() as u32;
        base.qp_type = IBV_QPT_XRC_RECV;
        let own = Qp {
            caps: nic.caps(),
            is_datagram: false,
            is_xrc: true,
            builder: None,
            init: Init {
                transport: IBV_QPT_XRC_RECV,
                sq_sig_all: 0,
            },
            nic,
            _pd: None,
        };
        Ok((public, own))
    })
}

fn granted(caps: &QpCaps) -> ibv_qp_cap {
    ibv_qp_cap {
        max_send_wr: caps.max_send_wr,
        max_recv_wr: caps.max_recv_wr,
        max_send_sge: caps.max_send_sge,
        max_recv_sge: caps.max_recv_sge,
        max_inline_data: caps.max_inline,
    }
}

/// `ibv_create_qp(3)`. What was granted, at least what was asked for, is written back.
///
/// # Safety
/// `pd` is NULL or a domain, `init` is NULL or can be read and written, and the objects in it are NULL or alive.
pub unsafe extern "C" fn ibv_create_qp(
    pd: *mut ibv_pd,
    init: *mut ibv_qp_init_attr,
) -> *mut ibv_qp {
    let make = || -> Result<*mut ibv_qp, Error> {
        not_null(init, "attribute")?;
        // SAFETY: not NULL, so the caller says that it can be read.
        let qp = unsafe { create(pd, &*init, None, 0) }?;
        // SAFETY: likewise written.
        unsafe { (*init).cap = granted(&qp.caps) };
        Ok(qp.public().cast())
    };
    call::pointer("ibv_create_qp", make)
}

/// `ibv_create_qp_ex(3)`, behind the context's table.
///
/// # Safety
/// As [`ibv_create_qp`]; members that `comp_mask` does not announce need not exist.
pub(crate) unsafe extern "C" fn create_qp_ex(
    context: *mut ibv_context,
    init: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    let make = || -> Result<*mut ibv_qp, Error> {
        // SAFETY: as our caller promises.
        unsafe { find_context(context) }?;
        not_null(init, "attribute")?;
        // SAFETY: not NULL, so the caller says that it can be read.
        let mask = unsafe { (*init).comp_mask };
        if mask & !ATTRS != 0 {
            return Err(Error::Unsupported(
                "an attribute of ibv_qp_init_attr_ex that was given (comp_mask)",
            ));
        }
        // SAFETY: the first members always exist.
        let kind = unsafe { (*init).qp_type };
        if kind == IBV_QPT_XRC_RECV && mask & IBV_QP_INIT_ATTR_XRCD != 0 {
            // SAFETY: announced members exist.
            let (xrcd, qp_context) = unsafe { ((*init).xrcd, (*init).qp_context) };
            // SAFETY: as our caller promises.
            let domain = unsafe { xrc::domain_of(context, xrcd) }?;
            let qp = target(context, qp_context, |token| domain.nic.create_qp(token))?;
            // SAFETY: the caller says that it can be written.
            unsafe { (*init).cap = granted(&qp.caps) };
            return Ok(qp.public().cast());
        }
        if mask & IBV_QP_INIT_ATTR_XRCD != 0 {
            return Err(Error::Argument(
                "an XRC domain is for XRC_RECV queue pairs only",
            ));
        }
        if mask & IBV_QP_INIT_ATTR_PD == 0 {
            return Err(Error::Argument("the attributes name no protection domain"));
        }
        let create_flags = match mask & IBV_QP_INIT_ATTR_CREATE_FLAGS {
            0 => 0,
            // SAFETY: announced members exist.
            _ => unsafe { (*init).create_flags },
        };
        if create_flags & !IBV_QP_CREATE_BLOCK_SELF_MCAST_LB != 0 {
            return Err(Error::Unsupported(
                "a QP creation flag other than BLOCK_SELF_MCAST_LB",
            ));
        }
        if create_flags != 0 && kind != IBV_QPT_UD {
            return Err(Error::Argument(
                "the flag BLOCK_SELF_MCAST_LB is for UD queue pairs",
            ));
        }
        // SAFETY: announced members exist.
        let send_ops = (mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS != 0)
            .then(|| unsafe { (*init).send_ops_flags });
        // SAFETY: the extended attributes start with the plain ones, and announced members exist.
        let qp = unsafe {
            let base = &*init.cast::<ibv_qp_init_attr>();
            let domain = find::<Pd>((*init).pd)?;
            together(context, (*domain.public()).context, "protection domain")?;
            create((*init).pd, base, send_ops, create_flags)
        }?;
        // SAFETY: the caller says that it can be written.
        unsafe { (*init).cap = granted(&qp.caps) };
        Ok(qp.public().cast())
    };
    call::pointer("ibv_create_qp_ex", make)
}

/// `ibv_qp_to_qp_ex(3)`: NULL for a queue pair that was not created with `send_ops_flags`.
///
/// # Safety
/// `qp` is NULL or a queue pair.
pub unsafe extern "C" fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    let body = || {
        // SAFETY: as our caller promises.
        unsafe { find::<Qp>(qp.cast()) }.and_then(|qp| match qp.builder {
            Some(_) => Ok(qp.public()),
            None => Err(Error::Argument(
                "the queue pair was not created with send_ops_flags",
            )),
        })
    };
    call::pointer("ibv_qp_to_qp_ex", body)
}

/// `ibv_destroy_qp(3)`. Waits until every event got of it is acknowledged.
///
/// # Safety
/// `qp` is NULL or a queue pair.
pub unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    let destroy = || -> Result<(), Error> {
        // SAFETY: as our caller promises.
        let qp = unsafe { find::<Qp>(qp.cast()) }?;
        qp.nic.destroy()?;
        // SAFETY: no event refers to it, so this was the last use.
        unsafe { qp.free() };
        Ok(())
    };
    call::status("ibv_destroy_qp", destroy)
}

fn state(value: ibv_qp_state, what: &'static str) -> Result<QpState, Error> {
    Ok(match value {
        IBV_QPS_RESET => QpState::Reset,
        IBV_QPS_INIT => QpState::Init,
        IBV_QPS_RTR => QpState::Rtr,
        IBV_QPS_RTS => QpState::Rts,
        IBV_QPS_SQD => QpState::Sqd,
        IBV_QPS_SQE => QpState::Sqe,
        IBV_QPS_ERR => QpState::Err,
        other => {
            return Err(Error::Value {
                what,
                value: other.into(),
                limit: IBV_QPS_ERR.into(),
            });
        }
    })
}

/// An address of C as the device takes it. Its source GID is looked up by the device.
fn address(from: &ibv_ah_attr) -> Result<Av, Error> {
    if from.is_global == 0 {
        return Err(Error::Argument(
            "an address on RoCE needs is_global and a GRH",
        ));
    }
    if u32::from(from.port_num) != crate::query::PORT {
        return Err(Error::Value {
            what: "port_num of the address",
            value: from.port_num.into(),
            limit: 1,
        });
    }
    Ok(Av {
        sgid_index: from.grh.sgid_index,
        sgid: Gid([0; 16]),
        // SAFETY: every byte of the union is initialised, as C has it.
        dgid: Gid(unsafe { from.grh.dgid.raw }),
        traffic_class: from.grh.traffic_class,
        hop_limit: from.grh.hop_limit,
        flow_label: from.grh.flow_label,
        sl: from.sl,
        static_rate: from.static_rate,
    })
}

/// An address as C reads it.
pub(crate) fn address_of(av: &Av) -> ibv_ah_attr {
    let mut attr = ibv_ah_attr::zeroed();
    attr.grh.dgid = ibv_gid { raw: av.dgid.0 };
    attr.grh.flow_label = av.flow_label;
    attr.grh.sgid_index = av.sgid_index;
    attr.grh.hop_limit = av.hop_limit;
    attr.grh.traffic_class = av.traffic_class;
    attr.sl = av.sl;
    attr.static_rate = av.static_rate;
    attr.is_global = 1;
    attr.port_num = crate::query::PORT as u8;
    attr
}

/// The attributes that the mask names, converted. The others are left out unread: C programs do not fill them.
fn attributes(from: &ibv_qp_attr, mask: AttrMask) -> Result<QpAttr, Error> {
    let mut attr = QpAttr::default();
    if mask.contains(AttrMask::STATE) {
        attr.state = state(from.qp_state, "qp_state")?;
    }
    if mask.contains(AttrMask::CUR_STATE) {
        attr.cur_state = state(from.cur_qp_state, "cur_qp_state")?;
    }
    if mask.contains(AttrMask::ACCESS_FLAGS) {
        attr.access = Access::from_bits(from.qp_access_flags & !IBV_ACCESS_OPTIONAL_RANGE)
            .ok_or_else(|| Error::Bits {
                what: "qp_access_flags",
                bits: from.qp_access_flags.into(),
            })?;
    }
    if mask.contains(AttrMask::AV) {
        attr.av = address(&from.ah_attr)?;
    }
    macro_rules! take {
        ($($bit:ident: $to:ident = $value:expr),* $(,)?) => {
            $(if mask.contains(AttrMask::$bit) { attr.$to = $value; })*
        };
    }
    take! {
        PATH_MTU: path_mtu = from.path_mtu,
        QKEY: qkey = from.qkey,
        RQ_PSN: rq_psn = from.rq_psn,
        SQ_PSN: sq_psn = from.sq_psn,
        DEST_QPN: dest_qpn = from.dest_qp_num,
        PKEY_INDEX: pkey_index = from.pkey_index,
        PORT: port = from.port_num,
        EN_SQD_ASYNC_NOTIFY: en_sqd_async_notify = from.en_sqd_async_notify != 0,
        MAX_QP_RD_ATOMIC: max_rd_atomic = from.max_rd_atomic,
        MAX_DEST_RD_ATOMIC: max_dest_rd_atomic = from.max_dest_rd_atomic,
        MIN_RNR_TIMER: min_rnr_timer = from.min_rnr_timer,
        TIMEOUT: timeout = from.timeout,
        RETRY_CNT: retry_cnt = from.retry_cnt,
        RNR_RETRY: rnr_retry = from.rnr_retry,
    }
    Ok(attr)
}

/// Attributes of the half that an XRC queue pair does not have. Programs that treat XRC like RC give them, and Linux
/// overlooks them.
const fn other_half(kind: ibv_qp_type) -> AttrMask {
    match kind {
        IBV_QPT_XRC_SEND => AttrMask::MAX_DEST_RD_ATOMIC.union(AttrMask::MIN_RNR_TIMER),
        IBV_QPT_XRC_RECV => AttrMask::MAX_QP_RD_ATOMIC
            .union(AttrMask::RETRY_CNT)
            .union(AttrMask::RNR_RETRY),
        _ => AttrMask::empty(),
    }
}

/// `ibv_modify_qp(3)`: all of it, or nothing and an error.
///
/// # Safety
/// `qp` is NULL or a queue pair, `attr` is NULL or can be read.
pub unsafe extern "C" fn ibv_modify_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: c_int,
) -> c_int {
    let modify = || -> Result<(), Error> {
        // SAFETY: as our caller promises.
        let qp = unsafe { find::<Qp>(qp.cast()) }?;
        not_null(attr, "attribute")?;
        let known = AttrMask::from_bits(mask as u32);
        let mask = known.ok_or_else(|| Error::Bits {
            what: "attr_mask",
            bits: u64::from(mask as u32 & !AttrMask::all().bits()),
        })?;
        let mask = mask.difference(other_half(qp.init.transport));
        // SAFETY: not NULL, so the caller says that it can be read.
        let attr = attributes(unsafe { &*attr }, mask)?;
        qp.nic.modify(&attr, mask).map_err(|error| match error {
            NicError::Modify(error) => Error::Modify { error, have: mask },
            other => other.into(),
        })?;
        if mask.contains(AttrMask::STATE) {
            // SAFETY: the queue pair is alive. Programs read the field, and expect it to be what they set.
            unsafe { (*qp.public()).qp_base.state = attr.state as u32 };
        }
        Ok(())
    };
    call::status("ibv_modify_qp", modify)
}

/// `ibv_query_qp(3)`. The mask is a hint; everything is filled in.
///
/// # Safety
/// `qp` is NULL or a queue pair, `attr` and `init` are NULL or can be written.
pub unsafe extern "C" fn ibv_query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _mask: c_int,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    let query = || -> Result<(), Error> {
        // SAFETY: as our caller promises.
        let qp = unsafe { find::<Qp>(qp.cast()) }?;
        not_null(attr, "attribute")?;
        not_null(init, "place for the creation attributes")?;
        qp.nic.usable()?;
        let now = qp.nic.attrs();
        let mut out = ibv_qp_attr::zeroed();
        out.qp_state = now.state as u32;
        out.cur_qp_state = now.cur_state as u32;
        out.path_mtu = now.path_mtu;
        out.path_mig_state = IBV_MIG_MIGRATED;
        out.qkey = now.qkey;
        out.rq_psn = now.rq_psn;
        out.sq_psn = now.sq_psn;
        out.dest_qp_num = now.dest_qpn;
        out.qp_access_flags = now.access.bits();
        out.cap = granted(&qp.caps);
        if !now.av.dgid.is_zero() {
            out.ah_attr = address_of(&now.av);
        }
        out.pkey_index = now.pkey_index;
        out.en_sqd_async_notify = now.en_sqd_async_notify.into();
        out.sq_draining = now.sq_draining.into();
        out.max_rd_atomic = now.max_rd_atomic;
        out.max_dest_rd_atomic = now.max_dest_rd_atomic;
        out.min_rnr_timer = now.min_rnr_timer;
        out.port_num = now.port;
        out.timeout = now.timeout;
        out.retry_cnt = now.retry_cnt;
        out.rnr_retry = now.rnr_retry;
        let public = qp.public();
        // SAFETY: the queue pair is alive, the other two can be written.
        unsafe {
            (*public).qp_base.state = out.qp_state;
            *attr = out;
            let base = &(*public).qp_base;
            *init = ibv_qp_init_attr {
                qp_context: base.qp_context,
                send_cq: base.send_cq,
                recv_cq: base.recv_cq,
                srq: base.srq,
                cap: granted(&qp.caps),
                qp_type: qp.init.transport,
                sq_sig_all: qp.init.sq_sig_all,
            };
        }
        Ok(())
    };
    call::status("ibv_query_qp", query)
}

/// `ibv_query_qp_data_in_order(3)`: nothing is promised about the order of bytes within a message.
///
/// # Safety
/// None of the arguments is looked at.
pub unsafe extern "C" fn ibv_query_qp_data_in_order(
    _qp: *mut ibv_qp,
    _op: ibv_wr_opcode,
    _flags: u32,
) -> c_int {
    0
}

/// `ibv_set_ece(3)`: vendors' options for each other, of which this device has none. No options are taken, any
/// others are EOPNOTSUPP.
///
/// # Safety
/// `qp` is NULL or from this library, `ece` NULL or valid.
pub unsafe extern "C" fn ibv_set_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int {
    let set = || -> Result<(), Error> {
        // SAFETY: as our caller promises.
        let qp = unsafe { find::<Qp>(qp.cast()) }?;
        not_null(ece, "options")?;
        qp.nic.usable()?;
        // SAFETY: not NULL, and valid then.
        match unsafe { (*ece).vendor_id } {
            0 => Ok(()),
            _ => Err(Error::Unsupported("ECE of another vendor")),
        }
    };
    call::status("ibv_set_ece", set)
}

/// `ibv_query_ece(3)`: none, which a vendor id of zero says.
///
/// # Safety
/// `qp` is NULL or from this library, `ece` NULL or valid.
pub unsafe extern "C" fn ibv_query_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int {
    let query = || -> Result<(), Error> {
        // SAFETY: as our caller promises.
        let qp = unsafe { find::<Qp>(qp.cast()) }?;
        not_null(ece, "place for the options")?;
        qp.nic.usable()?;
        // SAFETY: not NULL, and valid for a write then.
        unsafe { ece.write(ibv_ece::zeroed()) };
        Ok(())
    };
    call::status("ibv_query_ece", query)
}

/// The queue pair and the group that both of the following calls name.
///
/// # Safety
/// `qp` is NULL or a queue pair, `gid` is NULL or can be read.
unsafe fn member<'a>(qp: *mut ibv_qp, gid: *const ibv_gid) -> Result<(&'a Object<Qp>, Gid), Error> {
    // SAFETY: as our caller promises.
    let qp = unsafe { find::<Qp>(qp.cast()) }?;
    not_null(gid, "GID")?;
    // SAFETY: not NULL, so the caller says that it can be read; every byte of the union is initialised.
    Ok((qp, Gid(unsafe { (*gid).raw })))
}

/// `ibv_attach_mcast(3)`. Once more than once is once.
///
/// # Safety
/// `qp` is NULL or a queue pair, `gid` is NULL or can be read.
pub unsafe extern "C" fn ibv_attach_mcast(
    qp: *mut ibv_qp,
    gid: *const ibv_gid,
    _lid: u16,
) -> c_int {
    let body = || {
        // SAFETY: as our caller promises.
        unsafe { member(qp, gid) }
            .and_then(|(qp, gid)| qp.nic.attach_multicast(gid).map_err(Error::from))
    };
    call::status("ibv_attach_mcast", body)
}

/// `ibv_detach_mcast(3)`. EINVAL for a group that the queue pair is not in.
///
/// # Safety
/// `qp` is NULL or a queue pair, `gid` is NULL or can be read.
pub unsafe extern "C" fn ibv_detach_mcast(
    qp: *mut ibv_qp,
    gid: *const ibv_gid,
    _lid: u16,
) -> c_int {
    let body = || {
        // SAFETY: as our caller promises.
        unsafe { member(qp, gid) }
            .and_then(|(qp, gid)| qp.nic.detach_multicast(gid).map_err(Error::from))
    };
    call::status("ibv_detach_mcast", body)
}
