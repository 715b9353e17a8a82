//! Connecting and what answers it: `rdma_connect(3)`, `rdma_accept(3)`, `rdma_reject(3)`, `rdma_establish(3)`,
//! `rdma_disconnect(3)`, `rdma_notify(3)`.

use std::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::slice;
use std::sync::Arc;

use adverb_abi::types::*;
use adverb_nic::cm::{ConnectSpec, LookupSpec, Path};
use adverb_nic::{Device, NicError};
use adverb_wire::Psn;
use adverb_wire::cm::{
    CmTransport, CmaHeader, Path as PathOfRequest, Rej, RejReason, Rep, Req, ServiceId, SidrRep,
    SidrReq, SidrStatus,
};

use super::id::{Id, Phase, State, checked_depth, complete, depths, path_between};
use super::params::{self, Conn};
use super::{address, qp, resolve};
use crate::call;
use crate::errno::Error;
use crate::handle::{Object, find};
use crate::query::CA_ACK_DELAY;

/// How soon an answer is expected, as a timer code, and how often a message is repeated: as Linux has them.
const RESPONSE_TIMEOUT: u8 = 20;
const MAX_CM_RETRIES: u8 = 15;

/// Largest retry counts, three bits each. The largest RNR retry count means without end.
const MAX_RETRY: u8 = 7;

/// The LID that says that only GIDs count.
const NO_LID: u16 = 0xffff;

/// Bytes that are left to the program of the private data of a REQ and a SIDR_REQ.
const REQUEST_DATA: usize = Req::PRIVATE - CmaHeader::LEN;
const LOOKUP_DATA: usize = SidrReq::PRIVATE - CmaHeader::LEN;

/// What the program wants of a connection.
#[derive(Clone, Debug)]
struct Wish {
    private: Vec<u8>,
    responder_resources: u8,
    initiator_depth: u8,
    flow_control: bool,
    retry: u8,
    rnr_retry: u8,
    srq: bool,
    qpn: u32,
}

impl Default for Wish {
    fn default() -> Self {
        Self {
            private: Vec::new(),
            responder_resources: RDMA_MAX_RESP_RES,
            initiator_depth: RDMA_MAX_INIT_DEPTH,
            flow_control: true,
            retry: MAX_RETRY,
            rnr_retry: MAX_RETRY,
            srq: false,
            qpn: 0,
        }
    }
}

/// Copies private data.
///
/// # Safety
/// `data` is good for `length` bytes, or NULL.
unsafe fn private(data: *const c_void, length: u8, limit: usize) -> Result<Vec<u8>, Error> {
    if usize::from(length) > limit {
        return Err(Error::Value {
            what: "private_data_len",
            value: length.into(),
            limit: limit as u64,
        });
    }
    if length == 0 {
        return Ok(Vec::new());
    }
    if data.is_null() {
        return Err(Error::Null("private data"));
    }
    // SAFETY: not NULL, so the caller says that it is good for as many bytes.
    Ok(unsafe { slice::from_raw_parts(data.cast::<u8>(), length.into()) }.to_vec())
}

/// Reads the parameters of a connection; none are the defaults. A queue pair of the id counts instead of the number and
/// the SRQ that are given.
///
/// # Safety
/// The id is alive, `param` is NULL or can be read.
unsafe fn wish(
    id: &Object<Id>,
    param: *const rdma_conn_param,
    limit: usize,
) -> Result<Wish, Error> {
    let mut wish = Wish::default();
    // SAFETY: as our caller promises, here and below.
    let pair = unsafe { (*id.public()).qp };
    // SAFETY: as above.
    let given = unsafe { param.as_ref() };
    if let Some(param) = given {
        wish = Wish {
            // SAFETY: as above.
            private: unsafe { private(param.private_data, param.private_data_len, limit) }?,
            responder_resources: param.responder_resources,
            initiator_depth: param.initiator_depth,
            flow_control: param.flow_control != 0,
            retry: param.retry_count.min(MAX_RETRY),
            rnr_retry: param.rnr_retry_count.min(MAX_RETRY),
            srq: param.srq != 0,
            qpn: param.qp_num & 0xff_ffff,
        };
    } else if pair.is_null() {
        return Err(Error::Argument(
            "without parameters the id needs a queue pair of rdma_create_qp",
        ));
    }
    if !pair.is_null() {
        // SAFETY: the program keeps the queue pair of an id alive.
        unsafe {
            wish.qpn = (*pair).qp_num;
            wish.srq = !(*pair).srq.is_null();
        }
    }
    Ok(wish)
}

/// What a request is about: both ends and the device.
struct Ends {
    device: Arc<Device>,
    source: SocketAddr,
    destination: SocketAddr,
}

fn ends(state: &State) -> Result<Ends, Error> {
    match (&state.device, state.source, state.destination) {
        (Some(device), Some(source), Some(destination)) => Ok(Ends {
            device: Arc::clone(device),
            source,
            destination,
        }),
        _ => Err(Error::Argument("the id has no source or no destination")),
    }
}

/// The device and the path of an id whose address is resolved.
pub(super) fn path_of(state: &State) -> Result<(Arc<Device>, Path), Error> {
    let Ends {
        device,
        source,
        destination,
    } = ends(state)?;
    let gid = adverb_nic::Gid::from_ip(destination.ip());
    let path = path_between(&device, source.ip(), gid, state.options.tos);
    Ok((device, path))
}

/// The MTU of a device's port, as `ibv_mtu`.
pub(super) fn mtu_of(device: &Device) -> u8 {
    device.port().active_mtu as u8
}

/// What stands in front of the private data of a request.
fn header(ends: &Ends) -> CmaHeader {
    CmaHeader {
        src_port: ends.source.port(),
        src: ends.source.ip(),
        dst: ends.destination.ip(),
    }
}

/// The private data of a request. Its length was checked.
fn field<const N: usize>(ends: &Ends, data: &[u8]) -> Result<[u8; N], Error> {
    header(ends)
        .join::<N>(data)
        .ok_or(Error::Argument("the private data is longer than its field"))
}

/// # Safety
/// The id is alive, `param` is NULL or can be read.
unsafe fn ask_for_connection(
    id: &Object<Id>,
    state: &mut State,
    param: *const rdma_conn_param,
) -> Result<(), Error> {
    // SAFETY: as our caller promises.
    let (mut wish, kind, space) = unsafe {
        (
            wish(id, param, REQUEST_DATA)?,
            qp::kind(id),
            resolve::space(id),
        )
    };
    if param.is_null() {
        wish.private.clone_from(&state.connect_data);
    }
    let ends = ends(state)?;
    let (answers, starts) = depths(&ends.device);
    let (_, path) = path_of(state)?;
    let chosen = state.options.ack_timeout;
    let conn = Conn {
        path,
        sgid_index: address::source_gid(&ends.device, ends.source.ip()).0,
        mtu: mtu_of(&ends.device),
        timeout: params::timeout_of_request(chosen),
        retry: wish.retry,
        rnr_retry: wish.rnr_retry,
        sq_psn: 0,
        rq_psn: state.psn,
        remote_qpn: 0,
        responder_resources: checked_depth(
            "responder_resources",
            wish.responder_resources,
            answers,
        )?,
        initiator_depth: checked_depth("initiator_depth", wish.initiator_depth, starts)?,
    };
    let req = Req {
        service_id: ServiceId::new(space, ends.destination.port()),
        ca_guid: ends.device.guid,
        qpn: wish.qpn,
        responder_resources: conn.responder_resources,
        initiator_depth: conn.initiator_depth,
        remote_response_timeout: RESPONSE_TIMEOUT,
        transport: match kind {
            IBV_QPT_UC => CmTransport::Uc,
            _ => CmTransport::Rc,
        },
        flow_control: wish.flow_control,
        psn: Psn::new(state.psn),
        local_response_timeout: RESPONSE_TIMEOUT,
        retry_count: wish.retry,
        pkey: adverb_nic::PKEYS[0],
        path_mtu: conn.mtu,
        rnr_retry: wish.rnr_retry,
        max_cm_retries: MAX_CM_RETRIES,
        srq: wish.srq,
        primary: PathOfRequest {
            local_lid: NO_LID,
            remote_lid: NO_LID,
            local_gid: path.sgid,
            remote_gid: path.dgid,
            flow_label: path.flow_label,
            traffic_class: path.traffic_class,
            hop_limit: path.hop_limit,
            ack_timeout: conn.timeout,
            ..PathOfRequest::default()
        },
        private: field(&ends, &wish.private)?,
        ..Req::default()
    };
    state.announced_timeout = conn.timeout;
    state.conn = Some(conn);
    let spec = ConnectSpec {
        device: ends.device,
        path,
        req,
    };
    Ok(id.cm.connect(&spec)?)
}

/// # Safety
/// The id is alive, `param` is NULL or can be read.
unsafe fn look_up(
    id: &Object<Id>,
    state: &State,
    param: *const rdma_conn_param,
) -> Result<(), Error> {
    // SAFETY: as our caller promises, here and below.
    let data = match unsafe { param.as_ref() } {
        // SAFETY: as above.
        Some(param) => unsafe { private(param.private_data, param.private_data_len, LOOKUP_DATA) }?,
        None => state.connect_data.clone(),
    };
    let ends = ends(state)?;
    let (device, path) = path_of(state)?;
    let req = SidrReq {
        pkey: adverb_nic::PKEYS[0],
        // SAFETY: as above.
        service_id: ServiceId::new(unsafe { resolve::space(id) }, ends.destination.port()),
        private: field(&ends, &data)?,
        ..SidrReq::default()
    };
    Ok(id.cm.lookup(&LookupSpec { device, path, req })?)
}

/// `rdma_connect(3)`. On UD, asks who serves the port.
///
/// # Safety
/// `id` is NULL or an id, `param` is NULL or can be read.
pub unsafe extern "C" fn rdma_connect(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
    let call = || -> Result<c_int, Error> {
        // SAFETY: as our caller promises.
        let id = unsafe { find::<Id>(id) }?;
        {
            let mut state = id.state();
            state.expect(
                &[Phase::RouteResolved],
                "rdma_connect comes after rdma_resolve_addr and rdma_resolve_route",
            )?;
            // SAFETY: as our caller promises.
            unsafe {
                match is_datagram(id) {
                    true => look_up(id, &state, param)?,
                    false => ask_for_connection(id, &mut state, param)?,
                }
            }
            state.phase = Phase::Connecting;
        }
        // SAFETY: found above.
        unsafe { complete(id) }?;
        Ok(0)
    };
    call::minus_one("rdma_connect", call)
}

/// Whether an id is for datagrams.
///
/// # Safety
/// The id is alive.
pub(super) unsafe fn is_datagram(id: &Object<Id>) -> bool {
    // SAFETY: as our caller promises.
    unsafe { (*id.public()).qp_type == IBV_QPT_UD }
}

/// # Safety
/// The id is alive, `param` is NULL or can be read.
unsafe fn accept_connection(id: &Object<Id>, param: *const rdma_conn_param) -> Result<(), Error> {
    // SAFETY: as our caller promises.
    let wish = unsafe { wish(id, param, Rep::PRIVATE) }?;
    let mut state = id.state();
    let device = state
        .device
        .clone()
        .ok_or(Error::Argument("the request has no device"))?;
    let (answers, starts) = depths(&device);
    let psn = state.psn;
    let conn = state
        .conn
        .as_mut()
        .ok_or(Error::Argument("the request has no path"))?;
    // "All" is what the request asks for, as far as the device goes.
    let agree = |what, given: u8, asked: u8, device: u8| match given {
        RDMA_MAX_RESP_RES => Ok(asked.min(device)),
        _ => checked_depth(what, given, device),
    };
    let answered = agree(
        "responder_resources",
        wish.responder_resources,
        conn.responder_resources,
        answers,
    )?;
    let started = agree(
        "initiator_depth",
        wish.initiator_depth,
        conn.initiator_depth,
        starts,
    )?;
    conn.responder_resources = answered;
    conn.initiator_depth = started;
    let rep = Rep {
        qpn: wish.qpn,
        psn: Psn::new(psn),
        responder_resources: conn.responder_resources,
        initiator_depth: conn.initiator_depth,
        target_ack_delay: CA_ACK_DELAY,
        flow_control: wish.flow_control,
        rnr_retry: wish.rnr_retry,
        srq: wish.srq,
        ca_guid: device.guid,
        private: padded(&wish.private),
        ..Rep::default()
    };
    let conn = *conn;
    // The queue pair is ready before the peer learns that it may send.
    // SAFETY: as our caller promises.
    unsafe { qp::to_rts(id, &conn) }?;
    if let Err(error) = id.cm.accept(rep) {
        // SAFETY: as above.
        unsafe { qp::to_error(id) };
        return Err(error.into());
    }
    state.phase = Phase::Accepted;
    Ok(())
}

/// Data in a field, zeros behind it. Its length was checked; more would be cut.
fn padded<const N: usize>(data: &[u8]) -> [u8; N] {
    let mut field = [0; N];
    for (to, from) in field.iter_mut().zip(data) {
        *to = *from;
    }
    field
}

/// # Safety
/// The id is alive, `param` is NULL or can be read.
unsafe fn accept_lookup(id: &Object<Id>, param: *const rdma_conn_param) -> Result<(), Error> {
    // SAFETY: as our caller promises.
    let wish = unsafe { wish(id, param, SidrRep::PRIVATE) }?;
    let mut state = id.state();
    id.cm.answer_lookup(SidrRep {
        status: SidrStatus::SUCCESS,
        qpn: wish.qpn,
        qkey: RDMA_UDP_QKEY,
        private: padded(&wish.private),
        ..SidrRep::default()
    })?;
    state.phase = Phase::Accepted;
    Ok(())
}

/// `rdma_accept(3)`. The queue pair of the id, if it has one, is ready to receive and to send when the answer goes out.
///
/// # Safety
/// `id` is NULL or an id, `param` is NULL or can be read.
pub unsafe extern "C" fn rdma_accept(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
    let call = || -> Result<c_int, Error> {
        // SAFETY: as our caller promises, here and below.
        let id = unsafe { find::<Id>(id) }?;
        id.state().expect(
            &[Phase::Requested],
            "rdma_accept is for the id of an event CONNECT_REQUEST, once",
        )?;
        // SAFETY: as above.
        unsafe {
            if is_datagram(id) {
                accept_lookup(id, param)?;
            } else {
                accept_connection(id, param)?;
                complete(id)?;
            }
        }
        Ok(0)
    };
    call::minus_one("rdma_accept", call)
}

/// # Safety
/// `id` is NULL or an id, `data` is NULL or good for `length` bytes.
unsafe fn reject(
    id: *mut rdma_cm_id,
    reason: RejReason,
    data: *const c_void,
    length: u8,
) -> Result<(), Error> {
    // SAFETY: as our caller promises, here and below.
    let id = unsafe { find::<Id>(id) }?;
    let mut state = id.state();
    state.expect(
        &[Phase::Requested, Phase::Responded],
        "rdma_reject is for the id of an event CONNECT_REQUEST or CONNECT_RESPONSE",
    )?;
    // SAFETY: as above.
    let datagram = unsafe { is_datagram(id) };
    let limit = if datagram {
        SidrRep::PRIVATE
    } else {
        Rej::PRIVATE
    };
    // SAFETY: as above.
    let data = unsafe { private(data, length, limit) }?;
    id.cm.reject(reason.0, &data)?;
    state.phase = Phase::Failed;
    Ok(())
}

/// `rdma_reject(3)`.
///
/// # Safety
/// `id` is NULL or an id, `private_data` is NULL or good for `private_data_len` bytes.
pub unsafe extern "C" fn rdma_reject(
    id: *mut rdma_cm_id,
    private_data: *const c_void,
    private_data_len: u8,
) -> c_int {
    let body = || {
        // SAFETY: as our caller promises.
        unsafe {
            reject(
                id,
                RejReason::CONSUMER_DEFINED,
                private_data,
                private_data_len,
            )
        }
        .map(|()| 0)
    };
    call::minus_one("rdma_reject", body)
}

/// `rdma_reject_ece(3)`: rejects because of the vendor options of the other side.
///
/// # Safety
/// As [`rdma_reject`].
pub unsafe extern "C" fn rdma_reject_ece(
    id: *mut rdma_cm_id,
    private_data: *const c_void,
    private_data_len: u8,
) -> c_int {
    let body = || {
        // SAFETY: as our caller promises.
        unsafe { reject(id, RejReason::VENDOR_OPTION, private_data, private_data_len) }.map(|()| 0)
    };
    call::minus_one("rdma_reject_ece", body)
}

/// `rdma_establish(3)`: the program's own queue pair is ready, after CONNECT_RESPONSE.
///
/// # Safety
/// `id` is NULL or an id.
pub unsafe extern "C" fn rdma_establish(id: *mut rdma_cm_id) -> c_int {
    let call = || -> Result<c_int, Error> {
        // SAFETY: as our caller promises.
        let id = unsafe { find::<Id>(id) }?;
        let mut state = id.state();
        state.expect(
            &[Phase::Responded],
            "rdma_establish comes after the event CONNECT_RESPONSE",
        )?;
        id.cm.establish()?;
        state.phase = Phase::Connected;
        Ok(0)
    };
    call::minus_one("rdma_establish", call)
}

/// `rdma_notify(3)`: the program has seen an event of its queue pair. Only that data has come in means something here.
///
/// # Safety
/// `id` is NULL or an id.
pub unsafe extern "C" fn rdma_notify(id: *mut rdma_cm_id, event: ibv_event_type) -> c_int {
    let call = || -> Result<c_int, Error> {
        // SAFETY: as our caller promises.
        let id = unsafe { find::<Id>(id) }?;
        let state = id.state();
        state.expect(
            &[Phase::Accepted, Phase::Connected, Phase::Disconnected],
            "rdma_notify is for a connection",
        )?;
        if event != IBV_EVENT_COMM_EST {
            return Err(Error::Argument("only IBV_EVENT_COMM_EST can be notified"));
        }
        if state.phase == Phase::Accepted {
            id.cm.notify_established()?;
        }
        Ok(0)
    };
    call::minus_one("rdma_notify", call)
}

/// `rdma_disconnect(3)`: no more work on the queue pair, and the peer is told; or its wish to end is answered.
///
/// # Safety
/// `id` is NULL or an id.
pub unsafe extern "C" fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int {
    let call = || -> Result<c_int, Error> {
        // SAFETY: as our caller promises, here and below.
        let id = unsafe { find::<Id>(id) }?;
        {
            let state = id.state();
            state.expect(
                &[
                    Phase::Connecting,
                    Phase::Responded,
                    Phase::Accepted,
                    Phase::Connected,
                    Phase::Disconnected,
                    Phase::Failed,
                ],
                "there is no connection to take down",
            )?;
            // SAFETY: as above.
            unsafe {
                if is_datagram(id) {
                    return Err(Error::Argument("datagrams have no connection"));
                }
                qp::to_error(id);
            }
            if matches!(
                state.phase,
                Phase::Connecting | Phase::Responded | Phase::Failed
            ) {
                // Nothing stands yet, or any more, which is what was asked for.
                return Ok(0);
            }
            match id.cm.disconnect() {
                // Ended already: the event says so, or has said so.
                Err(NicError::State { .. }) if !state.waits => return Ok(0),
                told => told?,
            }
        }
        // SAFETY: as above.
        unsafe { complete(id) }?;
        Ok(0)
    };
    call::minus_one("rdma_disconnect", call)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_data_has_the_room_that_the_header_leaves() {
        assert_eq!((REQUEST_DATA, LOOKUP_DATA), (56, 180));
        let data = [1_u8; 57];
        // SAFETY: the array is as long as said.
        let long = unsafe { private(data.as_ptr().cast(), 57, REQUEST_DATA) };
        assert!(matches!(
            long,
            Err(Error::Value {
                what: "private_data_len",
                value: 57,
                limit: 56
            })
        ));
        // SAFETY: likewise, and NULL is not read.
        unsafe {
            assert_eq!(
                private(data.as_ptr().cast(), 56, REQUEST_DATA).ok(),
                Some(vec![1; 56])
            );
            assert_eq!(
                private(std::ptr::null(), 0, REQUEST_DATA).ok(),
                Some(vec![])
            );
            assert!(private(std::ptr::null(), 1, REQUEST_DATA).is_err());
        }
        assert_eq!(padded::<4>(&[1, 2]), [1, 2, 0, 0]);
    }
}
