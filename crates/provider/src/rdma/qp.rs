//! Queue pairs and shared receive queues of an id: `rdma_create_qp(3)`, `rdma_create_srq(3)`, `rdma_init_qp_attr(3)`, and
//! the steps that the connection manager takes with them.

use std::ffi::c_int;
use std::mem::size_of;
use std::ptr;

use adverb_abi::types::*;

use super::connect;
use super::id::Id;
use super::params::{self, Attributes, Conn};
use crate::call;
use crate::channel::{ibv_create_comp_channel, ibv_destroy_comp_channel};
use crate::cq::{ibv_create_cq, ibv_destroy_cq};
use crate::errno::Error;
use crate::handle::{Object, find, not_null};
use crate::qp::{create_qp_ex, ibv_destroy_qp, ibv_modify_qp};
use crate::srq::{create_srq_ex, ibv_destroy_srq};

/// Most inline data that a queue pair gets without being asked for it.
const MAX_UNASKED: u32 = 64;

/// Where a call of ours ended that has told why.
fn told(status: c_int) -> Result<(), Error> {
    match status {
        0 => Ok(()),
        _ => Err(Error::told()),
    }
}

/// The type of the id's queue pair; without one, that of its port space.
///
/// # Safety
/// The id is alive, and so is its queue pair.
pub(super) unsafe fn kind(id: &Object<Id>) -> ibv_qp_type {
    // SAFETY: as our caller promises.
    unsafe {
        let public = id.public();
        match (*public).qp.as_ref() {
            Some(pair) => pair.qp_type,
            None => (*public).qp_type,
        }
    }
}

/// # Safety
/// `pair` is a queue pair.
unsafe fn modify(pair: *mut ibv_qp, (mut attr, mask): Attributes) -> Result<(), Error> {
    // SAFETY: as our caller promises.
    told(unsafe { ibv_modify_qp(pair, &raw mut attr, mask as c_int) })
}

/// Takes the queue pair of a connection to RTS. Without one there is nothing to do.
///
/// # Safety
/// The id is alive, and so is its queue pair.
pub(super) unsafe fn to_rts(id: &Object<Id>, conn: &Conn) -> Result<(), Error> {
    // SAFETY: as our caller promises, here and below.
    let (pair, kind) = unsafe { ((*id.public()).qp, kind(id)) };
    if pair.is_null() {
        return Ok(());
    }
    // SAFETY: as above.
    unsafe {
        modify(pair, params::init(Some(conn)))?;
        modify(pair, params::rtr(conn, kind))?;
        modify(pair, params::rts(conn, kind))
    }
}

/// Ends the work on a connection's queue pair. One that has ended already may refuse; that is as good.
///
/// # Safety
/// The id is alive, and so is its queue pair.
pub(super) unsafe fn to_error(id: &Object<Id>) {
    // SAFETY: as our caller promises, here and below.
    let (pair, kind) = unsafe { ((*id.public()).qp, kind(id)) };
    if pair.is_null() || kind == IBV_QPT_UD {
        return;
    }
    let mut attr = ibv_qp_attr::zeroed();
    attr.qp_state = IBV_QPS_ERR;
    // SAFETY: as above.
    let _ = unsafe { modify(pair, (attr, IBV_QP_STATE)) };
}

/// The first steps of a new queue pair: to INIT, or for datagrams to RTS.
///
/// # Safety
/// `pair` is a queue pair.
unsafe fn start(pair: *mut ibv_qp, kind: ibv_qp_type) -> Result<(), Error> {
    // SAFETY: as our caller promises.
    unsafe {
        if kind != IBV_QPT_UD {
            return modify(pair, params::init(None));
        }
        modify(pair, params::datagram(IBV_QPS_INIT))?;
        modify(pair, params::datagram(IBV_QPS_RTR))?;
        modify(pair, params::datagram(IBV_QPS_RTS))
    }
}

/// A completion queue with a channel of its own.
///
/// # Safety
/// The id is alive and has a device.
unsafe fn create_queue(
    id: &Object<Id>,
    entries: u32,
) -> Result<(*mut ibv_comp_channel, *mut ibv_cq), Error> {
    let entries = c_int::try_from(entries.max(1)).unwrap_or(c_int::MAX);
    // SAFETY: as our caller promises; a failed call has made nothing.
    unsafe {
        let context = (*id.public()).verbs;
        let channel = ibv_create_comp_channel(context);
        if channel.is_null() {
            return Err(Error::told());
        }
        let queue = ibv_create_cq(context, entries, id.public().cast(), channel, 0);
        if queue.is_null() {
            let error = Error::told();
            ibv_destroy_comp_channel(channel);
            return Err(error);
        }
        Ok((channel, queue))
    }
}

/// Frees the completion queues that the id has made.
///
/// # Safety
/// The id is alive, and no queue pair uses them.
unsafe fn destroy_queues(id: &Object<Id>) {
    // SAFETY: as our caller promises; the fields are the library's to write.
    unsafe {
        let public = id.public();
        if !(*public).recv_cq.is_null() {
            ibv_destroy_cq((*public).recv_cq);
        }
        if !(*public).send_cq.is_null() && (*public).send_cq != (*public).recv_cq {
            ibv_destroy_cq((*public).send_cq);
        }
        if !(*public).recv_cq_channel.is_null() {
            ibv_destroy_comp_channel((*public).recv_cq_channel);
        }
        if !(*public).send_cq_channel.is_null()
            && (*public).send_cq_channel != (*public).recv_cq_channel
        {
            ibv_destroy_comp_channel((*public).send_cq_channel);
        }
        (*public).recv_cq = ptr::null_mut();
        (*public).send_cq = ptr::null_mut();
        (*public).recv_cq_channel = ptr::null_mut();
        (*public).send_cq_channel = ptr::null_mut();
    }
}

/// # Safety
/// The id is alive, the objects named in the attributes are alive.
unsafe fn create(id: &Object<Id>, init: &mut ibv_qp_init_attr_ex) -> Result<(), Error> {
    let public = id.public();
    // SAFETY: as our caller promises, here and below; the fields are the library's to write.
    unsafe {
        if (*public).verbs.is_null() {
            return Err(Error::Argument(
                "the id has no device yet; bind it to an address or resolve one first",
            ));
        }
        if !(*public).qp.is_null() {
            return Err(Error::Argument("the id has a queue pair already"));
        }
        if init.comp_mask & IBV_QP_INIT_ATTR_PD == 0 || init.pd.is_null() {
            init.comp_mask |= IBV_QP_INIT_ATTR_PD;
            init.pd = (*public).pd;
        }
        let pd = init.pd;
        not_null(pd, "protection domain")?;
        if (*pd).context != (*public).verbs {
            return Err(Error::OtherContext("protection domain"));
        }
        if matches!(init.qp_type, IBV_QPT_XRC_SEND | IBV_QPT_XRC_RECV) {
            return Err(Error::Unsupported("XRC over the connection manager"));
        }
        if ((*public).qp_type == IBV_QPT_UD) != (init.qp_type == IBV_QPT_UD) {
            return Err(Error::Argument(
                "the queue pair's type does not go with the id's port space",
            ));
        }
        let makes_receive = init.recv_cq.is_null() && (*public).recv_cq.is_null();
        let makes_send = init.send_cq.is_null() && (*public).send_cq.is_null();
        let undo = |error: Error| {
            if makes_receive || makes_send {
                destroy_queues(id);
            }
            error
        };
        if makes_receive {
            let (channel, queue) = create_queue(id, init.cap.max_recv_wr)?;
            (*public).recv_cq_channel = channel;
            (*public).recv_cq = queue;
        }
        if makes_send {
            let (channel, queue) = create_queue(id, init.cap.max_send_wr).map_err(&undo)?;
            (*public).send_cq_channel = channel;
            (*public).send_cq = queue;
        }
        if init.recv_cq.is_null() {
            init.recv_cq = (*public).recv_cq;
        }
        if init.send_cq.is_null() {
            init.send_cq = (*public).send_cq;
        }
        if init.srq.is_null() {
            init.srq = (*public).srq;
        }
        // Devices have room for inline data where a list of pieces would be, and programs count on it unasked.
        let unasked = init
            .cap
            .max_send_sge
            .saturating_mul(size_of::<ibv_sge>() as u32);
        init.cap.max_inline_data = init.cap.max_inline_data.max(unasked.min(MAX_UNASKED));
        let pair = create_qp_ex((*public).verbs, ptr::from_mut(init));
        if pair.is_null() {
            return Err(undo(Error::told()));
        }
        if let Err(error) = start(pair, init.qp_type) {
            ibv_destroy_qp(pair);
            return Err(undo(error));
        }
        (*public).pd = pd;
        (*public).qp = pair;
    }
    Ok(())
}

/// Makes the queue pair of an id from plain attributes, and writes back what they have become.
///
/// # Safety
/// The id is alive, `pd` is NULL or a domain, `init` can be read and written, the objects in it are NULL or alive.
pub(super) unsafe fn create_plain(
    id: &Object<Id>,
    pd: *mut ibv_pd,
    init: *mut ibv_qp_init_attr,
) -> Result<(), Error> {
    not_null(init, "attribute")?;
    let mut wide = ibv_qp_init_attr_ex::zeroed();
    // SAFETY: as our caller promises; the wider attributes begin with the plain ones.
    unsafe {
        (&raw mut wide).cast::<ibv_qp_init_attr>().write(*init);
        wide.comp_mask = IBV_QP_INIT_ATTR_PD;
        wide.pd = pd;
        create(id, &mut wide)?;
        *init = (&raw const wide).cast::<ibv_qp_init_attr>().read();
    }
    Ok(())
}

/// `rdma_create_qp(3)`. What is missing is made: completion queues, each with a channel; and the default domain serves.
///
/// # Safety
/// `id` is NULL or an id, `pd` is NULL or a domain, `init` is NULL or can be read and written, the objects in it are NULL
/// or alive.
pub unsafe extern "C" fn rdma_create_qp(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: as our caller promises.
    let body = || unsafe { find::<Id>(id).and_then(|id| create_plain(id, pd, init)) }.map(|()| 0);
    call::minus_one("rdma_create_qp", body)
}

/// `rdma_create_qp_ex(3)`.
///
/// # Safety
/// As [`rdma_create_qp`]; members that `comp_mask` does not announce need not exist.
pub unsafe extern "C" fn rdma_create_qp_ex(
    id: *mut rdma_cm_id,
    init: *mut ibv_qp_init_attr_ex,
) -> c_int {
    let call = || -> Result<c_int, Error> {
        // SAFETY: as our caller promises.
        let id = unsafe { find::<Id>(id) }?;
        not_null(init, "attribute")?;
        // SAFETY: not NULL, so the caller vouches for it. The domain is among the first of the members that need to be
        // announced, and every version of the structure has them.
        unsafe { create(id, &mut *init) }?;
        Ok(0)
    };
    call::minus_one("rdma_create_qp_ex", call)
}

/// `rdma_destroy_qp(3)`, with the completion queues that were made for it.
///
/// # Safety
/// `id` is NULL or an id.
pub unsafe extern "C" fn rdma_destroy_qp(id: *mut rdma_cm_id) {
    // SAFETY: as our caller promises.
    let body = || unsafe {
        let id = find::<Id>(id)?;
        let pair = (*id.public()).qp;
        if !pair.is_null() && ibv_destroy_qp(pair) == 0 {
            (*id.public()).qp = ptr::null_mut();
            destroy_queues(id);
        }
        Ok(())
    };
    call::nothing("rdma_destroy_qp", body);
}

/// # Safety
/// The id is alive, the objects named in the attributes are alive.
unsafe fn create_receive_queue(
    id: &Object<Id>,
    init: &mut ibv_srq_init_attr_ex,
) -> Result<(), Error> {
    let public = id.public();
    // SAFETY: as our caller promises; the fields are the library's to write.
    unsafe {
        if (*public).verbs.is_null() {
            return Err(Error::Argument(
                "the id has no device yet; bind it to an address or resolve one first",
            ));
        }
        if !(*public).srq.is_null() {
            return Err(Error::Argument("the id has a shared receive queue already"));
        }
        if init.comp_mask & IBV_SRQ_INIT_ATTR_PD == 0 || init.pd.is_null() {
            init.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
            init.pd = (*public).pd;
        }
        let queue = create_srq_ex((*public).verbs, ptr::from_mut(init));
        if queue.is_null() {
            return Err(Error::told());
        }
        (*public).pd = init.pd;
        (*public).srq = queue;
    }
    Ok(())
}

/// `rdma_create_srq(3)`.
///
/// # Safety
/// `id` is NULL or an id, `pd` is NULL or a domain, `attr` is NULL or can be read and written.
pub unsafe extern "C" fn rdma_create_srq(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_srq_init_attr,
) -> c_int {
    let call = || -> Result<c_int, Error> {
        // SAFETY: as our caller promises, here and below.
        let id = unsafe { find::<Id>(id) }?;
        not_null(attr, "attribute")?;
        let mut wide = ibv_srq_init_attr_ex::zeroed();
        // SAFETY: as above.
        unsafe {
            wide.srq_context = (*attr).srq_context;
            wide.attr = (*attr).attr;
            wide.comp_mask = IBV_SRQ_INIT_ATTR_PD;
            wide.pd = pd;
            create_receive_queue(id, &mut wide)?;
            (*attr).attr = wide.attr;
        }
        Ok(0)
    };
    call::minus_one("rdma_create_srq", call)
}

/// `rdma_create_srq_ex(3)`.
///
/// # Safety
/// As [`rdma_create_srq`]; members that `comp_mask` does not announce need not exist.
pub unsafe extern "C" fn rdma_create_srq_ex(
    id: *mut rdma_cm_id,
    attr: *mut ibv_srq_init_attr_ex,
) -> c_int {
    let call = || -> Result<c_int, Error> {
        // SAFETY: as our caller promises.
        let id = unsafe { find::<Id>(id) }?;
        not_null(attr, "attribute")?;
        // SAFETY: not NULL, so the caller vouches for it.
        unsafe { create_receive_queue(id, &mut *attr) }?;
        Ok(0)
    };
    call::minus_one("rdma_create_srq_ex", call)
}

/// `rdma_destroy_srq(3)`.
///
/// # Safety
/// `id` is NULL or an id.
pub unsafe extern "C" fn rdma_destroy_srq(id: *mut rdma_cm_id) {
    // SAFETY: as our caller promises.
    let body = || unsafe {
        let id = find::<Id>(id)?;
        let queue = (*id.public()).srq;
        if !queue.is_null() && ibv_destroy_srq(queue) == 0 {
            (*id.public()).srq = ptr::null_mut();
        }
        Ok(())
    };
    call::nothing("rdma_destroy_srq", body);
}

/// `rdma_init_qp_attr(3)`: what the program's own queue pair has to be set to for the step to `qp_state`.
///
/// # Safety
/// `id` is NULL or an id, `attr` and `mask` are NULL or can be read and written.
pub unsafe extern "C" fn rdma_init_qp_attr(
    id: *mut rdma_cm_id,
    attr: *mut ibv_qp_attr,
    mask: *mut c_int,
) -> c_int {
    let call = || -> Result<c_int, Error> {
        // SAFETY: as our caller promises, here and below.
        let id = unsafe { find::<Id>(id) }?;
        not_null(attr, "attribute")?;
        not_null(mask, "place for the mask")?;
        // SAFETY: as above.
        let (to, kind, datagram) =
            unsafe { ((*attr).qp_state, kind(id), connect::is_datagram(id)) };
        let state = id.state();
        let (filled, bits) = match (to, state.conn.as_ref()) {
            _ if state.device.is_none() => {
                return Err(Error::Phase {
                    is: state.phase.text(),
                    needs: "the attributes are known when it has a device",
                });
            }
            (IBV_QPS_INIT | IBV_QPS_RTR | IBV_QPS_RTS, _) if datagram => params::datagram(to),
            (IBV_QPS_INIT, conn) => params::init(conn),
            (IBV_QPS_RTR, Some(conn)) if conn.remote_qpn != 0 => params::rtr(conn, kind),
            (IBV_QPS_RTS, Some(conn)) if conn.remote_qpn != 0 => params::rts(conn, kind),
            (IBV_QPS_RTR | IBV_QPS_RTS, _) => {
                return Err(Error::Phase {
                    is: state.phase.text(),
                    needs: "the peer's queue pair is known from CONNECT_REQUEST or CONNECT_RESPONSE on",
                });
            }
            (other, _) => {
                return Err(Error::Value {
                    what: "qp_state",
                    value: other.into(),
                    limit: IBV_QPS_RTS.into(),
                });
            }
        };
        // SAFETY: as above.
        unsafe {
            *attr = filled;
            *mask = bits as c_int;
        }
        Ok(0)
    };
    call::minus_one("rdma_init_qp_attr", call)
}
