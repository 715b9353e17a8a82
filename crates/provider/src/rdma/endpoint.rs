//! Endpoints: `rdma_create_ep(3)`, `rdma_get_request(3)`. One call instead of five, on a synchronous id.

use std::ffi::c_int;
use std::ptr;
use std::slice;

use adverb_abi::types::*;

use super::id::{self, Id, drop_event, type_of_space};
use super::{get_event, qp, resolve};
use crate::call;
use crate::errno::Error;
use crate::handle::{Object, find, find_if_any, not_null};
use crate::pd::Pd;

/// Time that librdmacm gives to the resolution of an address or a route.
const RESOLVE_MS: c_int = 2000;

/// Where a call of ours ended that has told why.
fn told(status: c_int) -> Result<(), Error> {
    match status {
        0 => Ok(()),
        _ => Err(Error::told()),
    }
}

/// Takes a new id as far as its description says.
///
/// # Safety
/// The id is alive, `pd` is NULL or a domain, `init` is NULL or can be read and written.
unsafe fn set_up(
    id: &Object<Id>,
    info: &rdma_addrinfo,
    pd: *mut ibv_pd,
    init: *mut ibv_qp_init_attr,
) -> Result<(), Error> {
    // SAFETY: as our caller promises, here and below.
    unsafe {
        if let Some(init) = init.as_mut() {
            init.qp_type = (*id.public()).qp_type;
        }
        if info.ai_flags & RAI_PASSIVE != 0 {
            told(resolve::rdma_bind_addr(id.public(), info.ai_src_addr))?;
            if !pd.is_null() {
                (*id.public()).pd = pd;
            }
            id.state().pairs_of_requests = init.as_ref().copied();
            return Ok(());
        }
        told(resolve::rdma_resolve_addr(
            id.public(),
            info.ai_src_addr,
            info.ai_dst_addr,
            RESOLVE_MS,
        ))?;
        told(resolve::rdma_resolve_route(id.public(), RESOLVE_MS))?;
        if !init.is_null() {
            qp::create_plain(id, pd, init)?;
        } else if !pd.is_null() {
            (*id.public()).pd = pd;
        }
        if info.ai_connect_len > 0 && !info.ai_connect.is_null() {
            let data = slice::from_raw_parts(info.ai_connect.cast::<u8>(), info.ai_connect_len);
            id.state().connect_data = data.to_vec();
        }
    }
    Ok(())
}

/// `rdma_create_ep(3)`: a synchronous id, bound to listen, or with everything resolved and a queue pair.
///
/// # Safety
/// `id` is NULL or can be written, `info` is NULL or from `rdma_getaddrinfo`, `pd` is NULL or a domain, `init` is NULL or
/// can be read and written.
pub unsafe extern "C" fn rdma_create_ep(
    id: *mut *mut rdma_cm_id,
    info: *mut rdma_addrinfo,
    pd: *mut ibv_pd,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    let call = || -> Result<c_int, Error> {
        not_null(id, "place for the id")?;
        not_null(info, "address information")?;
        // SAFETY: as our caller promises, here and below.
        unsafe { find_if_any::<Pd>(pd) }?;
        // SAFETY: as above.
        let info = unsafe { &*info };
        let space = info.ai_port_space as rdma_port_space;
        let usual = type_of_space(space)?;
        let kind = match info.ai_qp_type {
            0 => usual,
            kind => kind as ibv_qp_type,
        };
        if !matches!(kind, IBV_QPT_RC | IBV_QPT_UC | IBV_QPT_UD) {
            return Err(Error::Unsupported("XRC over the connection manager"));
        }
        // SAFETY: as above; the id is new.
        unsafe {
            let made = id::create(ptr::null_mut(), ptr::null_mut(), space, kind)?;
            if let Err(error) = set_up(made, info, pd, init) {
                id::destroy(made);
                return Err(error);
            }
            *id = made.public();
        }
        Ok(0)
    };
    call::minus_one("rdma_create_ep", call)
}

/// `rdma_destroy_ep(3)`: the id, with its queue pair and its shared receive queue.
///
/// # Safety
/// `id` is NULL or an id, which nobody uses any more.
pub unsafe extern "C" fn rdma_destroy_ep(id: *mut rdma_cm_id) {
    // SAFETY: as our caller promises.
    let body = || unsafe {
        let id = find::<Id>(id)?;
        qp::rdma_destroy_qp(id.public());
        qp::rdma_destroy_srq(id.public());
        id::destroy(id);
        Ok(())
    };
    call::nothing("rdma_destroy_ep", body);
}

/// `rdma_get_request(3)`: waits for a request on a synchronous listener. If its endpoint was described with a queue pair,
/// the request has one.
///
/// # Safety
/// `listen` is NULL or an id, `id` is NULL or can be written.
pub unsafe extern "C" fn rdma_get_request(
    listen: *mut rdma_cm_id,
    id: *mut *mut rdma_cm_id,
) -> c_int {
    let call = || -> Result<c_int, Error> {
        // SAFETY: as our caller promises, here and below.
        let listener = unsafe { find::<Id>(listen) }?;
        not_null(id, "place for the id")?;
        if !listener.state().waits {
            return Err(Error::Argument(
                "the listener has an event channel; its requests are events there",
            ));
        }
        // SAFETY: as above.
        unsafe {
            drop_event(listener);
            let event = get_event::next((*listener.public()).channel)?;
            if let Err(error) = get_event::outcome(event) {
                get_event::rdma_ack_cm_event(event);
                return Err(error);
            }
            if (*event).event != RDMA_CM_EVENT_CONNECT_REQUEST {
                get_event::rdma_ack_cm_event(event);
                return Err(Error::Argument("the listener's event is no request"));
            }
            let request = find::<Id>((*event).id)?;
            let pair = listener.state().pairs_of_requests;
            if let Some(mut init) = pair {
                let pd = (*listener.public()).pd;
                if let Err(error) = qp::create_plain(request, pd, &raw mut init) {
                    get_event::rdma_ack_cm_event(event);
                    id::destroy(request);
                    return Err(error);
                }
            }
            (*request.public()).event = event;
            *id = request.public();
        }
        Ok(0)
    };
    call::minus_one("rdma_get_request", call)
}
