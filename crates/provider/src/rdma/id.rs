//! Identifiers: `rdma_create_id(3)`, `rdma_destroy_id(3)`, `rdma_migrate_id(3)`, and what they remember.
//!
//! The fields that C can read are written by the calls that learn them. The rest, among it how far an id has come, is in
//! [`State`]. An id that was made without a channel has one of its own, and its calls wait for the event that ends them
//! and leave it in `id->event`: [`complete`].

use std::ffi::{c_int, c_void};
use std::net::{IpAddr, SocketAddr};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use adverb_abi::types::*;
use adverb_nic::Device;
use adverb_nic::cm::{CmId, Path};

use super::channel::{self, EventChannel};
use super::device::Verbs;
use super::multicast::Group;
use super::params::Conn;
use super::{address, device, get_event, params, path};
use crate::call;
use crate::errno::{self, Error};
use crate::handle::{Kind, Object, find, not_null};

/// An identifier.
pub(crate) struct Id {
    pub(super) cm: Arc<CmId>,
    state: Mutex<State>,
}

impl Kind for Id {
    type Public = rdma_cm_id;
    const NAME: &'static str = "connection identifier";
    const MARK: u64 = 0xadcd_0000_0000_0001;
}

/// How far an id has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Idle,
    Bound,
    Listening,
    AddressResolved,
    RouteResolved,
    /// The request is out.
    Connecting,
    /// The peer has accepted, and the program has to say that its queue pair is ready.
    Responded,
    /// A peer's request, not yet answered.
    Requested,
    Accepted,
    Connected,
    Disconnected,
    /// Refused, by us or by the peer, or nobody answered.
    Failed,
}

impl Phase {
    /// In the words of a refusal: "the id …".
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Idle => "is new",
            Self::Bound => "is bound",
            Self::Listening => "is listening",
            Self::AddressResolved => "has resolved its address",
            Self::RouteResolved => "has resolved its route",
            Self::Connecting => "is connecting",
            Self::Responded => "waits for rdma_establish",
            Self::Requested => "is a request to be accepted or rejected",
            Self::Accepted => "has accepted",
            Self::Connected => "is connected",
            Self::Disconnected => "is disconnected",
            Self::Failed => "was rejected or got no answer",
        }
    }
}

/// What `rdma_set_option` has set.
#[derive(Clone, Copy, Default)]
pub(super) struct Options {
    pub(super) tos: u8,
    pub(super) reuse: bool,
    /// A listener on IPv6 leaves IPv4 alone.
    pub(super) one_family: bool,
    /// Local ACK timeout instead of the computed one.
    pub(super) ack_timeout: Option<u8>,
}

/// What an id knows besides what C sees.
pub(super) struct State {
    pub(super) phase: Phase,
    /// Whether calls wait for their event.
    pub(super) waits: bool,
    pub(super) source: Option<SocketAddr>,
    pub(super) destination: Option<SocketAddr>,
    pub(super) device: Option<Arc<Device>>,
    /// The devices on which the address that the id is bound to can be reached.
    pub(super) reached_through: Vec<Arc<Device>>,
    pub(super) options: Options,
    /// The first sequence number that our queue pair takes, and the peer's uses: a request or reply says where the *other*
    /// side begins.
    pub(super) psn: u32,
    /// The timeout that the request announced.
    pub(super) announced_timeout: u8,
    pub(super) conn: Option<Conn>,
    pub(super) groups: Vec<Group>,
    /// What `rdma_create_ep` was given for the queue pairs of requests.
    pub(super) pairs_of_requests: Option<ibv_qp_init_attr>,
    /// What the program said it would raise: event, status, argument.
    pub(super) own_events: std::collections::VecDeque<(rdma_cm_event_type, c_int, u64)>,
    /// Private data of an endpoint's `ai_connect`.
    pub(super) connect_data: Vec<u8>,
    /// The path record that C sees. Never touched through this, only freed.
    record: *mut ibv_sa_path_rec,
}

impl Id {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn new(phase: Phase, waits: bool) -> Self {
        Self {
            phase,
            waits,
            source: None,
            destination: None,
            device: None,
            reached_through: Vec::new(),
            options: Options::default(),
            psn: random_psn(),
            announced_timeout: 0,
            conn: None,
            groups: Vec::new(),
            pairs_of_requests: None,
            own_events: std::collections::VecDeque::new(),
            connect_data: Vec::new(),
            record: ptr::null_mut(),
        }
    }

    /// Fails unless the id is in one of the phases.
    pub(super) fn expect(&self, phases: &[Phase], needs: &'static str) -> Result<(), Error> {
        if phases.contains(&self.phase) {
            Ok(())
        } else {
            Err(Error::Phase {
                is: self.phase.text(),
                needs,
            })
        }
    }

    /// The address that the id is bound to, if it is one.
    pub(super) fn bound_ip(&self) -> Option<IpAddr> {
        self.source
            .map(|s| s.ip())
            .filter(|ip| !ip.is_unspecified())
    }
}

impl Drop for State {
    fn drop(&mut self) {
        if !self.record.is_null() {
            // SAFETY: `show_route` made it from a box, and C may not use it longer than the id.
            drop(unsafe { Box::from_raw(self.record) });
        }
    }
}

/// 24 random bits.
fn random_psn() -> u32 {
    let mut bytes = [0_u8; 4];
    // SAFETY: the place is as large as said. Should the call fail, numbers start at 0, which is allowed.
    unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    u32::from_ne_bytes(bytes) & 0xff_ffff
}

/// What kind of queue pair goes with a port space.
pub(super) fn type_of_space(space: rdma_port_space) -> Result<ibv_qp_type, Error> {
    match space {
        RDMA_PS_TCP | RDMA_PS_IB => Ok(IBV_QPT_RC),
        RDMA_PS_UDP | RDMA_PS_IPOIB => Ok(IBV_QPT_UD),
        other => Err(Error::Value {
            what: "port space",
            value: other.into(),
            limit: RDMA_PS_IB.into(),
        }),
    }
}

/// Makes an id. Without a channel it gets one of its own.
///
/// # Safety
/// `channel` is NULL or an event channel.
pub(super) unsafe fn create(
    channel: *mut rdma_event_channel,
    context: *mut c_void,
    space: rdma_port_space,
    kind: ibv_qp_type,
) -> Result<&'static Object<Id>, Error> {
    let waits = channel.is_null();
    let on = if waits {
        channel::create()?
    } else {
        // SAFETY: as our caller promises.
        unsafe { find::<EventChannel>(channel) }?
    };
    let made = Object::create_with(|token| {
        let cm = CmId::new(&on.nic, token as u64)?;
        let mut public = rdma_cm_id::zeroed();
        public.channel = on.public();
        public.context = context;
        public.ps = space;
        public.qp_type = kind;
        let state = Mutex::new(State::new(Phase::Idle, waits));
        Ok((public, Id { cm, state }))
    });
    if made.is_err() && waits {
        // SAFETY: made above, and nobody has seen it.
        unsafe { on.free() };
    }
    made
}

/// Makes the id of a request that has come in for a listener: on its channel, with its context.
///
/// # Safety
/// The listener is alive.
pub(super) unsafe fn create_request(
    listener: &Object<Id>,
    cm: Arc<CmId>,
) -> Result<&'static Object<Id>, Error> {
    // SAFETY: the listener is alive; C leaves these fields alone while events are got.
    let (channel, context, space, kind) = unsafe {
        let public = listener.public();
        (
            (*public).channel,
            (*public).context,
            (*public).ps,
            (*public).qp_type,
        )
    };
    Object::create_with(|token| {
        cm.set_user(token as u64);
        let mut public = rdma_cm_id::zeroed();
        public.channel = channel;
        public.context = context;
        public.ps = space;
        public.qp_type = kind;
        let mut state = State::new(Phase::Requested, false);
        state.options = listener.state().options;
        let state = Mutex::new(state);
        Ok((public, Id { cm, state }))
    })
}

/// Fills in what C sees of a device.
pub(super) fn show_device(id: &Object<Id>, device: &Arc<Device>) -> Result<(), Error> {
    let Verbs { context, pd } = device::open(device)?;
    // SAFETY: the id is alive, and these fields are the library's to write.
    unsafe {
        let public = id.public();
        (*public).verbs = context;
        (*public).port_num = crate::query::PORT as u8;
        if (*public).pd.is_null() {
            (*public).pd = pd;
        }
    }
    Ok(())
}

/// Fills in what C sees of the addresses.
pub(super) fn show_addresses(id: &Object<Id>, state: &State) {
    // SAFETY: the id is alive, and these fields are the library's to write.
    unsafe {
        let addr = &raw mut (*id.public()).route.addr;
        if let Some(source) = state.source {
            (*addr).src = address::write(source);
        }
        if let Some(destination) = state.destination {
            (*addr).dst = address::write(destination);
        }
    }
}

/// Fills in what C sees of the addresses below IP.
pub(super) fn show_gids(id: &Object<Id>, path: &Path) {
    // SAFETY: the id is alive, and these fields are the library's to write.
    unsafe {
        (*id.public()).route.addr.addr.ibaddr = rdma_ib_addr {
            sgid: ibv_gid { raw: path.sgid.0 },
            dgid: ibv_gid { raw: path.dgid.0 },
            pkey: adverb_nic::PKEYS[0].to_be(),
        };
    }
}

/// Fills in the path record that C sees.
pub(super) fn show_route(id: &Object<Id>, state: &mut State, path: &Path, mtu: u8) {
    let record = path::record(path, mtu);
    if state.record.is_null() {
        state.record = Box::into_raw(Box::new(record));
    } else {
        // SAFETY: a box of ours, freed with the state only.
        unsafe { state.record.write(record) };
    }
    // SAFETY: the id is alive, and these fields are the library's to write.
    unsafe {
        (*id.public()).route.path_rec = state.record;
        (*id.public()).route.num_paths = 1;
    }
}

/// The path from an address of a device to another address.
pub(super) fn path_between(
    device: &Device,
    source: IpAddr,
    destination: adverb_nic::Gid,
    tos: u8,
) -> Path {
    Path {
        sgid: address::source_gid(device, source).1,
        dgid: destination,
        traffic_class: tos,
        hop_limit: path::HOP_LIMIT,
        flow_label: 0,
    }
}

/// What the device can have outstanding: READs answered, READs started.
pub(super) fn depths(device: &Device) -> (u8, u8) {
    let limits = device.limits();
    (limits.max_rd_atom, limits.max_init_rd_atom)
}

/// The depths of a request or an answer, checked against the device.
pub(super) fn checked_depth(what: &'static str, given: u8, limit: u8) -> Result<u8, Error> {
    if given != RDMA_MAX_RESP_RES && given > limit {
        return Err(Error::Value {
            what,
            value: given.into(),
            limit: limit.into(),
        });
    }
    Ok(params::depth(given, limit))
}

/// Acknowledges the event that the last call of a synchronous id left in it.
///
/// # Safety
/// The id is alive.
pub(super) unsafe fn drop_event(id: &Object<Id>) {
    // SAFETY: as our caller promises; the field is the library's to write.
    unsafe {
        let event = (*id.public()).event;
        (*id.public()).event = ptr::null_mut();
        if !event.is_null() {
            get_event::rdma_ack_cm_event(event);
        }
    }
}

/// End of a call: on a synchronous id, waits for the event that tells how it went.
///
/// # Safety
/// The id is alive.
pub(super) unsafe fn complete(id: &Object<Id>) -> Result<(), Error> {
    if !id.state().waits {
        return Ok(());
    }
    // SAFETY: as our caller promises, here and below.
    unsafe {
        drop_event(id);
        let event = get_event::next((*id.public()).channel)?;
        (*id.public()).event = event;
        get_event::outcome(event)
    }
}

/// `rdma_create_id(3)`.
///
/// # Safety
/// `channel` is NULL or an event channel, `id` is NULL or can be written.
pub unsafe extern "C" fn rdma_create_id(
    channel: *mut rdma_event_channel,
    id: *mut *mut rdma_cm_id,
    context: *mut c_void,
    space: rdma_port_space,
) -> c_int {
    let make = || -> Result<c_int, Error> {
        not_null(id, "place for the id")?;
        let kind = type_of_space(space)?;
        // SAFETY: as our caller promises.
        unsafe { *id = create(channel, context, space, kind)?.public() };
        Ok(0)
    };
    call::minus_one("rdma_create_id", make)
}

/// Ends an id: waits until its events are acknowledged, and frees it.
///
/// # Safety
/// The id is alive and not used afterwards.
pub(super) unsafe fn destroy(id: &Object<Id>) {
    let waits = id.state().waits;
    // SAFETY: as our caller promises, here and below.
    let channel = unsafe {
        drop_event(id);
        (*id.public()).channel
    };
    id.cm.destroy();
    // SAFETY: as above; an id that waits has its channel for itself.
    unsafe {
        id.free();
        if waits {
            channel::rdma_destroy_event_channel(channel);
        }
    }
}

/// `rdma_destroy_id(3)`. Waits until every event got of it is acknowledged; drops those not got. A request that was not
/// answered is rejected, a connection that stands is taken down.
///
/// # Safety
/// `id` is NULL or an id, which nobody uses any more.
pub unsafe extern "C" fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int {
    let body = || {
        // SAFETY: as our caller promises.
        unsafe { find::<Id>(id) }.map(|id| {
            // SAFETY: likewise.
            unsafe { destroy(id) };
            0
        })
    };
    call::minus_one("rdma_destroy_id", body)
}

/// Moves an id to another channel, or to one of its own.
///
/// # Safety
/// The id is alive, `to` is NULL or an event channel.
pub(super) unsafe fn migrate(id: &Object<Id>, to: *mut rdma_event_channel) -> Result<(), Error> {
    let waits = to.is_null();
    let on = if waits {
        channel::create()?
    } else {
        // SAFETY: as our caller promises.
        unsafe { find::<EventChannel>(to) }?
    };
    let waited = id.state().waits;
    if waited {
        // SAFETY: as our caller promises.
        unsafe { drop_event(id) };
    }
    if let Err(error) = id.cm.migrate(&on.nic) {
        if waits {
            // SAFETY: made above, and nobody has seen it.
            unsafe { on.free() };
        }
        return Err(error.into());
    }
    id.state().waits = waits;
    // SAFETY: the id is alive, and the field is the library's to write. A channel of its own goes with its only id.
    unsafe {
        let old = (*id.public()).channel;
        (*id.public()).channel = on.public();
        if waited {
            channel::rdma_destroy_event_channel(old);
        }
    }
    Ok(())
}

/// `rdma_migrate_id(3)`. Events that were not got move along; waits until those that were got are acknowledged.
///
/// # Safety
/// `id` is NULL or an id, `channel` is NULL or an event channel.
pub unsafe extern "C" fn rdma_migrate_id(
    id: *mut rdma_cm_id,
    channel: *mut rdma_event_channel,
) -> c_int {
    // SAFETY: as our caller promises.
    let body = || unsafe { find::<Id>(id).and_then(|id| migrate(id, channel)) }.map(|()| 0);
    call::minus_one("rdma_migrate_id", body)
}

/// A port of an id, as the network writes it; 0 if there is none.
///
/// # Safety
/// `id` is NULL or an id.
unsafe fn port(call: &str, id: *mut rdma_cm_id, of: fn(&State) -> Option<SocketAddr>) -> u16 {
    // SAFETY: as our caller promises.
    match unsafe { find::<Id>(id) } {
        Ok(id) => of(&id.state()).map_or(0, |address| address.port().to_be()),
        Err(error) => {
            errno::report(call, &error);
            errno::set_errno(error.errno());
            0
        }
    }
}

/// `rdma_get_src_port(3)`: big-endian, 0 if the id is not bound.
///
/// # Safety
/// `id` is NULL or an id.
pub unsafe extern "C" fn rdma_get_src_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: as our caller promises.
    unsafe { port("rdma_get_src_port", id, |state| state.source) }
}

/// `rdma_get_dst_port(3)`: big-endian, 0 if the id has no destination.
///
/// # Safety
/// `id` is NULL or an id.
pub unsafe extern "C" fn rdma_get_dst_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: as our caller promises.
    unsafe { port("rdma_get_dst_port", id, |state| state.destination) }
}
