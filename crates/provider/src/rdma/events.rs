//! Events of the connection manager: which the program gets, with what in it.
//!
//! Getting an event is where the program's thread does what the kernel would do for a card: a request becomes an id, an
//! accepted connection takes its queue pair to RTS and says so to the peer.

use std::ffi::{c_int, c_void};
use std::net::{IpAddr, SocketAddr};
use std::ptr;
use std::sync::Arc;

use adverb_abi::types::*;
use adverb_nic::cm::{CmEvent, CmEventKind, CmId, Path, Peer};
use adverb_nic::{Device, Gid};
use adverb_wire::cm::{CmaHeader, RejReason, Rep, Req, ServiceId, SidrRep, SidrReq, SidrStatus};

use super::id::{
    self, Id, Phase, create_request, depths, show_addresses, show_device, show_gids, show_route,
};
use super::params::{self, Conn};
use super::{address, connect, multicast, qp};
use crate::errno::{self, Error};
use crate::handle::{Kind, Object, find};
use crate::query::CA_ACK_DELAY;

/// An event that the program has got.
pub(crate) struct Event {
    /// Whom it counts for: that id cannot go before the event is acknowledged.
    pub(super) owner: Arc<CmId>,
    /// The private data that C points to.
    _data: Box<[u8]>,
}

impl Kind for Event {
    type Public = rdma_cm_event;
    const NAME: &'static str = "connection manager event";
    const MARK: u64 = 0xade7_0000_0000_0001;
}

/// The events that calls on an id raise, as the numbers that come back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Own {
    AddressResolved,
    RouteResolved,
    /// The next of those that the program raised.
    User,
    /// A group that was joined, by its serial number.
    Joined(u64),
}

impl Own {
    pub(super) const fn number(self) -> u64 {
        match self {
            Self::AddressResolved => 0,
            Self::RouteResolved => 1,
            Self::User => 2,
            Self::Joined(serial) => 3 | serial << 2,
        }
    }

    const fn from_number(number: u64) -> Self {
        match number & 3 {
            0 => Self::AddressResolved,
            1 => Self::RouteResolved,
            2 => Self::User,
            _ => Self::Joined(number >> 2),
        }
    }
}

/// What an event carries.
enum Param {
    Nothing,
    Connection(rdma_conn_param),
    Datagram(rdma_ud_param),
    Argument(u64),
}

/// An event about to be laid out for C.
struct Draft {
    listener: *mut rdma_cm_id,
    kind: rdma_cm_event_type,
    status: c_int,
    param: Param,
    data: Box<[u8]>,
}

impl Draft {
    fn new(kind: rdma_cm_event_type) -> Self {
        Self {
            listener: ptr::null_mut(),
            kind,
            status: 0,
            param: Param::Nothing,
            data: Box::default(),
        }
    }

    fn status(mut self, status: c_int) -> Self {
        self.status = status;
        self
    }

    /// Parameters of a connection, with private data.
    fn connection(mut self, param: rdma_conn_param, data: &[u8]) -> Self {
        self.param = Param::Connection(param);
        self.data = data.into();
        self
    }

    /// Parameters of datagrams, with private data.
    fn datagram(mut self, param: rdma_ud_param, data: &[u8]) -> Self {
        self.param = Param::Datagram(param);
        self.data = data.into();
        self
    }

    /// Lays the event out.
    fn publish(self, id: *mut rdma_cm_id, owner: &Arc<CmId>) -> *mut rdma_cm_event {
        let mut public = rdma_cm_event::zeroed();
        public.id = id;
        public.listen_id = self.listener;
        public.event = self.kind;
        public.status = self.status;
        let (data, length) = match self.data.len() {
            0 => (ptr::null(), 0),
            length => (self.data.as_ptr().cast::<c_void>(), length as u8),
        };
        match self.param {
            Param::Nothing => (),
            Param::Connection(mut param) => {
                param.private_data = data;
                param.private_data_len = length;
                public.param.conn = param;
            }
            Param::Datagram(mut param) => {
                // A group has its context here instead.
                if length > 0 {
                    param.private_data = data;
                    param.private_data_len = length;
                }
                public.param.ud = param;
            }
            Param::Argument(arg) => public.param.arg = arg,
        }
        let own = Event {
            owner: Arc::clone(owner),
            _data: self.data,
        };
        Object::create(public, own).public()
    }
}

/// An errno value as the status of an event.
fn negative(error: &Error) -> c_int {
    -error.errno()
}

/// What a peer's request says, as the program sees it: the other side's depths change places.
fn param_of_request(req: &Req) -> rdma_conn_param {
    let mut param = rdma_conn_param::zeroed();
    param.responder_resources = req.initiator_depth;
    param.initiator_depth = req.responder_resources;
    param.flow_control = req.flow_control.into();
    param.retry_count = req.retry_count;
    param.rnr_retry_count = req.rnr_retry;
    param.srq = req.srq.into();
    param.qp_num = req.qpn;
    param
}

/// What a peer's answer says.
fn param_of_response(rep: &Rep) -> rdma_conn_param {
    let mut param = rdma_conn_param::zeroed();
    param.responder_resources = rep.initiator_depth;
    param.initiator_depth = rep.responder_resources;
    param.flow_control = rep.flow_control.into();
    param.rnr_retry_count = rep.rnr_retry;
    param.srq = rep.srq.into();
    param.qp_num = rep.qpn;
    param
}

/// The two ends of a request: ours and the peer's. A request without a header has no ports.
fn ends_of(header: Option<CmaHeader>, service: ServiceId, from: Peer) -> (SocketAddr, SocketAddr) {
    match header {
        Some(header) => (
            (header.dst, service.port()).into(),
            (header.src, header.src_port).into(),
        ),
        None => ((from.dst, service.port()).into(), (from.src, 0).into()),
    }
}

/// The private data behind the header.
fn behind_header(private: &[u8]) -> (Option<CmaHeader>, &[u8]) {
    match CmaHeader::split(private) {
        Ok((header, rest)) => (Some(header), rest),
        Err(_) => (None, private),
    }
}

/// The way back to whoever asks.
fn way_back(device: &Device, own: IpAddr, peer: Gid, asked: Option<&Req>) -> Path {
    let mut path = id::path_between(device, own, peer, 0);
    if let Some(req) = asked {
        let primary = &req.primary;
        if device.gids().contains(&primary.remote_gid) {
            path.sgid = primary.remote_gid;
        }
        path.traffic_class = primary.traffic_class;
        path.flow_label = primary.flow_label;
    }
    path
}

/// A new id for a request, with everything that C sees of it.
///
/// # Safety
/// The listener is alive.
unsafe fn new_request(
    listener: &Object<Id>,
    cm: Arc<CmId>,
    (source, destination): (SocketAddr, SocketAddr),
    asked: Option<&Req>,
) -> Result<&'static Object<Id>, Error> {
    let device = cm
        .device()
        .ok_or(Error::Argument("the request has no device"))?;
    // SAFETY: as our caller promises.
    let id = unsafe { create_request(listener, cm) }?;
    let fill = || -> Result<(), Error> {
        show_device(id, &device)?;
        let peer = asked.map_or_else(
            || Gid::from_ip(destination.ip()),
            |req| req.primary.local_gid,
        );
        let path = way_back(&device, source.ip(), peer, asked);
        let mut guard = id.state();
        let state = &mut *guard;
        state.source = Some(source);
        state.destination = Some(destination);
        show_addresses(id, state);
        show_gids(id, &path);
        let mtu = asked.map_or_else(|| connect::mtu_of(&device), |req| req.path_mtu);
        show_route(id, state, &path, mtu);
        if let Some(req) = asked {
            let (answers, starts) = depths(&device);
            let sgid_index = device.gids().iter().position(|gid| *gid == path.sgid);
            state.conn = Some(Conn {
                path,
                sgid_index: sgid_index.and_then(|i| u8::try_from(i).ok()).unwrap_or(0),
                mtu,
                timeout: params::timeout_of_pair(
                    state.options.ack_timeout,
                    req.primary.ack_timeout,
                    CA_ACK_DELAY,
                ),
                retry: req.retry_count,
                rnr_retry: req.rnr_retry,
                sq_psn: req.psn.value(),
                rq_psn: state.psn,
                remote_qpn: req.qpn,
                responder_resources: req.initiator_depth.min(answers),
                initiator_depth: req.responder_resources.min(starts),
            });
        }
        state.device = Some(Arc::clone(&device));
        Ok(())
    };
    let mut filled = fill();
    if filled.is_ok() && listener.state().waits {
        // An id of a synchronous listener is synchronous too.
        // SAFETY: just made.
        filled = unsafe { id::migrate(id, ptr::null_mut()) };
    }
    match filled {
        Ok(()) => Ok(id),
        Err(error) => {
            // SAFETY: nobody has seen it.
            unsafe { id::destroy(id) };
            Err(error)
        }
    }
}

/// A request for a connection becomes an id and an event; `None` if it had to be refused.
///
/// # Safety
/// The listener is alive.
unsafe fn on_request(
    listener: &Object<Id>,
    cm: Arc<CmId>,
    req: &Req,
    from: Peer,
) -> Result<(&'static Object<Id>, Draft), Error> {
    let (header, data) = behind_header(&req.private);
    let device = cm
        .device()
        .ok_or(Error::Argument("the request has no device"))?;
    if req.path_mtu > connect::mtu_of(&device) {
        cm.reject(RejReason::INVALID_MTU.0, &[])?;
        return Err(Error::Argument(
            "a peer's MTU is larger than that of the device",
        ));
    }
    let ends = ends_of(header, req.service_id, from);
    // SAFETY: as our caller promises.
    let id = unsafe { new_request(listener, cm, ends, Some(req)) }?;
    let draft = Draft::new(RDMA_CM_EVENT_CONNECT_REQUEST).connection(param_of_request(req), data);
    Ok((id, draft))
}

/// As [`on_request`], for the question who serves a port.
///
/// # Safety
/// The listener is alive.
unsafe fn on_lookup(
    listener: &Object<Id>,
    cm: Arc<CmId>,
    req: &SidrReq,
    from: Peer,
) -> Result<(&'static Object<Id>, Draft), Error> {
    let (header, data) = behind_header(&req.private);
    let ends = ends_of(header, req.service_id, from);
    // SAFETY: as our caller promises.
    let id = unsafe { new_request(listener, cm, ends, None) }?;
    let draft = Draft::new(RDMA_CM_EVENT_CONNECT_REQUEST).datagram(rdma_ud_param::zeroed(), data);
    Ok((id, draft))
}

/// A peer has accepted.
///
/// # Safety
/// The id is alive, and so is its queue pair.
unsafe fn on_response(id: &Object<Id>, rep: &Rep) -> Draft {
    let mut guard = id.state();
    let state = &mut *guard;
    if let (Some(conn), Some(device)) = (&mut state.conn, &state.device) {
        let (answers, starts) = depths(device);
        conn.remote_qpn = rep.qpn;
        conn.sq_psn = rep.psn.value();
        conn.rnr_retry = rep.rnr_retry;
        conn.responder_resources = rep.initiator_depth.min(answers);
        conn.initiator_depth = rep.responder_resources.min(starts);
        conn.timeout = params::timeout_of_pair(
            state.options.ack_timeout,
            state.announced_timeout,
            rep.target_ack_delay,
        );
    }
    let draft = |kind| Draft::new(kind).connection(param_of_response(rep), &rep.private);
    // SAFETY: as our caller promises, here and below.
    if unsafe { (*id.public()).qp.is_null() } {
        state.phase = Phase::Responded;
        return draft(RDMA_CM_EVENT_CONNECT_RESPONSE);
    }
    let ready = match &state.conn {
        // SAFETY: as above.
        Some(conn) => unsafe { qp::to_rts(id, conn) },
        None => Err(Error::Argument("the id has no path")),
    };
    match ready.and_then(|()| id.cm.establish().map_err(Error::from)) {
        Ok(()) => {
            state.phase = Phase::Connected;
            draft(RDMA_CM_EVENT_ESTABLISHED)
        }
        Err(error) => {
            errno::report("rdma_get_cm_event", &error);
            // SAFETY: as above.
            unsafe { qp::to_error(id) };
            // The peer is told, if it can be; the program is told anyway.
            let _ = id.cm.reject(RejReason::CONSUMER_DEFINED.0, &[]);
            state.phase = Phase::Failed;
            draft(RDMA_CM_EVENT_CONNECT_ERROR).status(negative(&error))
        }
    }
}

/// Somebody has told which queue pair serves a port, or that none does.
fn on_answer(id: &Object<Id>, rep: &SidrRep) -> Draft {
    let mut state = id.state();
    let mut param = rdma_ud_param::zeroed();
    if rep.status != SidrStatus::SUCCESS {
        state.phase = Phase::Failed;
        return Draft::new(RDMA_CM_EVENT_UNREACHABLE)
            .status(rep.status.0.into())
            .datagram(param, &rep.private);
    }
    state.phase = Phase::Connected;
    if let (Ok((device, path)), Some(source)) = (connect::path_of(&state), state.source) {
        let index = address::source_gid(&device, source.ip()).0;
        param.ah_attr = params::address(&path, index);
    }
    param.qp_num = rep.qpn;
    param.qkey = rep.qkey;
    Draft::new(RDMA_CM_EVENT_ESTABLISHED).datagram(param, &rep.private)
}

/// An event that a call on the id has raised; `None` if it is not wanted any more.
///
/// # Safety
/// The id is alive, and so is its queue pair.
unsafe fn on_own(id: &Object<Id>, number: u64) -> Option<Draft> {
    Some(match Own::from_number(number) {
        Own::AddressResolved => Draft::new(RDMA_CM_EVENT_ADDR_RESOLVED),
        Own::RouteResolved => Draft::new(RDMA_CM_EVENT_ROUTE_RESOLVED),
        Own::User => {
            let (kind, status, arg) = id.state().own_events.pop_front()?;
            let mut draft = Draft::new(kind).status(status);
            draft.param = Param::Argument(arg);
            draft
        }
        Own::Joined(serial) => {
            // SAFETY: as our caller promises.
            let (param, attached) = unsafe { multicast::joined(id, serial) }?;
            match attached {
                Ok(()) => Draft::new(RDMA_CM_EVENT_MULTICAST_JOIN).datagram(param, &[]),
                Err(error) => Draft::new(RDMA_CM_EVENT_MULTICAST_ERROR)
                    .status(negative(&error))
                    .datagram(param, &[]),
            }
        }
    })
}

/// An event of the NIC as one for C; `None` if there is nothing to tell.
///
/// # Safety
/// The event was just got, so the id it is for is alive.
pub(super) unsafe fn translate(event: CmEvent) -> Option<*mut rdma_cm_event> {
    let token: *mut rdma_cm_id = ptr::with_exposed_provenance_mut(event.user as usize);
    // SAFETY: the token is the pointer of an id, which cannot go before this event is acknowledged.
    let id = unsafe { find::<Id>(token) }.ok()?;
    let nothing = rdma_conn_param::zeroed();
    let draft = match event.kind {
        CmEventKind::Request { id: cm, req, from } => {
            // SAFETY: the listener was found above.
            return unsafe { deliver(id, on_request(id, cm, &req, from)) };
        }
        CmEventKind::LookupRequest { id: cm, req, from } => {
            // SAFETY: likewise.
            return unsafe { deliver(id, on_lookup(id, cm, &req, from)) };
        }
        // SAFETY: found above; its queue pair is the program's to keep.
        CmEventKind::Response(rep) => Some(unsafe { on_response(id, &rep) }),
        CmEventKind::Established(_) => {
            id.state().phase = Phase::Connected;
            Some(Draft::new(RDMA_CM_EVENT_ESTABLISHED).connection(nothing, &[]))
        }
        CmEventKind::Rejected { reason, private } => {
            id.state().phase = Phase::Failed;
            // SAFETY: as above.
            unsafe { qp::to_error(id) };
            Some(
                Draft::new(RDMA_CM_EVENT_REJECTED)
                    .status(reason.into())
                    .connection(nothing, &private),
            )
        }
        CmEventKind::Unreachable(errno) => {
            id.state().phase = Phase::Failed;
            Some(Draft::new(RDMA_CM_EVENT_UNREACHABLE).status(-errno))
        }
        CmEventKind::Disconnected => {
            id.state().phase = Phase::Disconnected;
            Some(Draft::new(RDMA_CM_EVENT_DISCONNECTED).connection(nothing, &[]))
        }
        CmEventKind::TimewaitExit => Some(Draft::new(RDMA_CM_EVENT_TIMEWAIT_EXIT)),
        CmEventKind::LookupAnswer(rep) => Some(on_answer(id, &rep)),
        // SAFETY: as above.
        CmEventKind::Own(number) => unsafe { on_own(id, number) },
        _ => None,
    };
    match draft {
        Some(draft) => Some(draft.publish(id.public(), &id.cm)),
        None => {
            id.cm.ack_events(1);
            None
        }
    }
}

/// Ends the delivery of a request.
///
/// # Safety
/// The listener is alive.
unsafe fn deliver(
    listener: &Object<Id>,
    made: Result<(&'static Object<Id>, Draft), Error>,
) -> Option<*mut rdma_cm_event> {
    match made {
        Ok((id, mut draft)) => {
            draft.listener = listener.public();
            Some(draft.publish(id.public(), &listener.cm))
        }
        Err(error) => {
            errno::report("rdma_get_cm_event", &error);
            listener.cm.ack_events(1);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_own_events_come_back_as_what_they_were() {
        for own in [
            Own::AddressResolved,
            Own::RouteResolved,
            Own::User,
            Own::Joined(0),
            Own::Joined(77),
        ] {
            assert_eq!(Own::from_number(own.number()), own);
        }
    }

    #[test]
    fn depths_change_places() {
        let req = Req {
            responder_resources: 3,
            initiator_depth: 4,
            ..Req::default()
        };
        let param = param_of_request(&req);
        assert_eq!((param.responder_resources, param.initiator_depth), (4, 3));
        let rep = Rep {
            responder_resources: 5,
            initiator_depth: 6,
            ..Rep::default()
        };
        let param = param_of_response(&rep);
        assert_eq!((param.responder_resources, param.initiator_depth), (6, 5));
    }

    #[test]
    fn a_request_names_both_ends() {
        let header = CmaHeader {
            src_port: 40000,
            src: "10.0.0.1".parse().expect("an address"),
            dst: "10.0.0.2".parse().expect("an address"),
        };
        let from = Peer {
            src: "10.9.9.9".parse().expect("an address"),
            dst: "10.0.0.2".parse().expect("an address"),
        };
        let service = ServiceId::new(0x106, 7471);
        let (own, peer) = ends_of(Some(header), service, from);
        assert_eq!(
            (own.to_string(), peer.to_string()),
            ("10.0.0.2:7471".into(), "10.0.0.1:40000".into())
        );
        let (_, peer) = ends_of(None, service, from);
        assert_eq!(peer.to_string(), "10.9.9.9:0");
    }
}
