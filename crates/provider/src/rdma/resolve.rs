//! Addresses and routes: `rdma_bind_addr(3)`, `rdma_listen(3)`, `rdma_resolve_addr(3)`, `rdma_resolve_route(3)`.
//!
//! The host's routing knows the answers at once, so the calls find them, and what they find out is only told by an
//! event. That nothing is found is told by the call.

use std::ffi::c_int;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use adverb_abi::types::*;
use adverb_nic::{Device, Gid, cm};
use libc::sockaddr;

use super::events::Own;
use super::id::{
    Id, Phase, State, complete, path_between, show_addresses, show_device, show_gids, show_route,
};
use super::{address, connect};
use crate::call;
use crate::errno::Error;
use crate::handle::{Object, find};

/// The port space of an id, as service IDs have it.
///
/// # Safety
/// The id is alive.
pub(super) unsafe fn space(id: &Object<Id>) -> u16 {
    // SAFETY: as our caller promises. Spaces were checked when the id was made.
    unsafe { (*id.public()).ps as u16 }
}

/// Binds an id that is not bound.
///
/// # Safety
/// The id is alive.
unsafe fn bind(id: &Object<Id>, state: &mut State, to: SocketAddr) -> Result<(), Error> {
    let specific = !to.ip().is_unspecified();
    // Programs tell their peers a port as soon as they have it, so rdma_listen should not have to find devices first.
    let devices = match specific {
        true => vec![cm::device_of(to.ip())?],
        false => adverb_nic::devices()?,
    };
    // "Any" of IPv6 means IPv4 too, unless the program says otherwise.
    let narrow = specific || to.is_ipv4() || state.options.one_family;
    let address = narrow.then_some(to.ip());
    // SAFETY: as our caller promises.
    let space = unsafe { space(id) };
    let port = id.cm.bind(space, address, to.port(), state.options.reuse)?;
    let mut source = to;
    source.set_port(port);
    state.source = Some(source);
    if let (true, Some(device)) = (specific, devices.first()) {
        show_device(id, device)?;
        show_gids(id, &path_between(device, to.ip(), Gid([0; 16]), 0));
        state.device = Some(Arc::clone(device));
    }
    state.reached_through = devices;
    state.phase = Phase::Bound;
    show_addresses(id, state);
    Ok(())
}

/// `rdma_bind_addr(3)`. Port 0 becomes a free one.
///
/// # Safety
/// `id` is NULL or an id, `addr` is NULL or can be read.
pub unsafe extern "C" fn rdma_bind_addr(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int {
    let call = || -> Result<c_int, Error> {
        // SAFETY: as our caller promises.
        let (id, to) = unsafe { (find::<Id>(id)?, address::read_ip(addr)?) };
        let mut state = id.state();
        state.expect(
            &[Phase::Idle],
            "rdma_bind_addr is for an id that is not bound yet",
        )?;
        // SAFETY: found above.
        unsafe { bind(id, &mut state, to) }?;
        Ok(0)
    };
    call::minus_one("rdma_bind_addr", call)
}

/// `rdma_listen(3)`. An id that is not bound listens everywhere, on a free port.
///
/// # Safety
/// `id` is NULL or an id.
pub unsafe extern "C" fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
    let call = || -> Result<c_int, Error> {
        // SAFETY: as our caller promises.
        let id = unsafe { find::<Id>(id) }?;
        let mut state = id.state();
        state.expect(
            &[Phase::Idle, Phase::Bound],
            "rdma_listen is for an id that does nothing else",
        )?;
        if state.phase == Phase::Idle {
            // SAFETY: found above.
            unsafe { bind(id, &mut state, address::anywhere()) }?;
        }
        let devices = match &state.device {
            Some(device) => vec![Arc::clone(device)],
            None => adverb_nic::devices()?,
        };
        // 0 and less mean that the library chooses.
        id.cm
            .listen(&devices, u32::try_from(backlog).unwrap_or(0))?;
        state.phase = Phase::Listening;
        Ok(0)
    };
    call::minus_one("rdma_listen", call)
}

/// The device and the address of it from which a destination is reached.
fn route(
    state: &State,
    destination: SocketAddr,
    source: Option<IpAddr>,
) -> Result<(Arc<Device>, IpAddr), Error> {
    match (&state.device, state.bound_ip()) {
        // Bound to an address: that is where everything starts.
        (Some(device), Some(ip)) => Ok((Arc::clone(device), ip)),
        _ => match source {
            // Nobody routes to a group; the source says through which interface.
            Some(source) if destination.ip().is_multicast() => Ok((cm::device_of(source)?, source)),
            source => Ok(cm::resolve(destination.ip(), source)?),
        },
    }
}

/// # Safety
/// The id is alive.
unsafe fn resolve_address(
    id: &Object<Id>,
    source: Option<SocketAddr>,
    mut destination: SocketAddr,
) -> Result<(), Error> {
    let mut guard = id.state();
    let state = &mut *guard;
    state.expect(
        &[Phase::Idle, Phase::Bound],
        "rdma_resolve_addr is for an id that has not resolved one yet",
    )?;
    let from = source.or(state.source);
    if from.is_some_and(|from| !address::same_family(from, destination)) {
        return Err(Error::Argument(
            "source and destination are of different families",
        ));
    }
    let source_ip = from.map(|s| s.ip()).filter(|ip| !ip.is_unspecified());
    if destination.ip().is_unspecified() {
        // As with sockets, "any" as a destination is this host.
        let here = state.bound_ip().or(source_ip);
        destination.set_ip(here.unwrap_or_else(|| address::loopback(destination)));
    }
    let (device, ip) = route(state, destination, source_ip)?;
    if state.phase == Phase::Idle {
        let port = source.map_or(0, |s| s.port());
        // SAFETY: as our caller promises.
        let space = unsafe { space(id) };
        let port = id.cm.bind(space, Some(ip), port, state.options.reuse)?;
        state.source = Some((ip, port).into());
        state.phase = Phase::Bound;
    } else if let Some(bound) = &mut state.source {
        bound.set_ip(ip);
    }
    show_device(id, &device)?;
    state.destination = Some(destination);
    let path = path_between(
        &device,
        ip,
        Gid::from_ip(destination.ip()),
        state.options.tos,
    );
    state.device = Some(device);
    state.phase = Phase::AddressResolved;
    show_addresses(id, state);
    show_gids(id, &path);
    Ok(())
}

/// `rdma_resolve_addr(3)`. The timeout is not needed.
///
/// # Safety
/// `id` is NULL or an id; the addresses are NULL or can be read.
pub unsafe extern "C" fn rdma_resolve_addr(
    id: *mut rdma_cm_id,
    src_addr: *mut sockaddr,
    dst_addr: *mut sockaddr,
    _timeout_ms: c_int,
) -> c_int {
    let call = || -> Result<c_int, Error> {
        // SAFETY: as our caller promises, here and below.
        let (id, destination) = unsafe { (find::<Id>(id)?, address::read_ip(dst_addr)?) };
        let source = match src_addr.is_null() {
            true => None,
            // SAFETY: as above.
            false => Some(unsafe { address::read_ip(src_addr) }?),
        };
        // SAFETY: found above.
        unsafe {
            resolve_address(id, source, destination)?;
            id.cm.raise(Own::AddressResolved.number())?;
            complete(id)?;
        }
        Ok(0)
    };
    call::minus_one("rdma_resolve_addr", call)
}

/// `rdma_resolve_route(3)`. The timeout is not needed.
///
/// # Safety
/// `id` is NULL or an id.
pub unsafe extern "C" fn rdma_resolve_route(id: *mut rdma_cm_id, _timeout_ms: c_int) -> c_int {
    let call = || -> Result<c_int, Error> {
        // SAFETY: as our caller promises.
        let id = unsafe { find::<Id>(id) }?;
        {
            let mut guard = id.state();
            let state = &mut *guard;
            state.expect(
                &[Phase::AddressResolved],
                "rdma_resolve_route comes after rdma_resolve_addr",
            )?;
            let (device, path) = connect::path_of(state)?;
            let mtu = connect::mtu_of(&device);
            show_route(id, state, &path, mtu);
            show_gids(id, &path);
            state.phase = Phase::RouteResolved;
        }
        id.cm.raise(Own::RouteResolved.number())?;
        // SAFETY: found above.
        unsafe { complete(id) }?;
        Ok(0)
    };
    call::minus_one("rdma_resolve_route", call)
}
