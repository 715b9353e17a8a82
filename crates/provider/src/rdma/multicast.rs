//! Groups: `rdma_join_multicast(3)`, `rdma_join_multicast_ex(3)`, `rdma_leave_multicast(3)`.
//!
//! A group is a GID: an IPv6 group is its own, an IPv4 group stands behind `::ffff`. Nobody has to be asked for it, so a
//! join succeeds at once. The queue pair of the id becomes a member when the event is got.

use std::ffi::{c_int, c_void};

use adverb_abi::types::*;
use adverb_nic::Gid;
use libc::sockaddr;

use super::address::{self, Address};
use super::connect;
use super::events::Own;
use super::id::{Id, complete, path_between};
use super::params;
use crate::call;
use crate::errno::Error;
use crate::handle::{Object, find, not_null};
use crate::qp::{ibv_attach_mcast, ibv_detach_mcast};

/// The queue pair number that stands for all members of a group.
const ALL_MEMBERS: u32 = 0xff_ffff;

/// A group that an id has joined.
pub(super) struct Group {
    serial: u64,
    address: Address,
    gid: Gid,
    /// What the program wants to see in the events of the group.
    context: *mut c_void,
    /// Whether the id only sends to it.
    sends_only: bool,
    /// The queue pair that is a member.
    member: *mut ibv_qp,
}

fn gid_of(address: Address) -> Gid {
    match address {
        Address::Ip(address) => Gid::from_ip(address.ip()),
        Address::Gid(gid) => gid,
    }
}

/// Whether two addresses name one group. Ports do not matter.
fn same(a: Address, b: Address) -> bool {
    gid_of(a) == gid_of(b)
}

fn is_group(address: Address) -> bool {
    match address {
        Address::Ip(address) => address.ip().is_multicast(),
        Address::Gid(gid) => gid.0[0] == 0xff || gid.to_ip().is_multicast(),
    }
}

/// # Safety
/// `id` is NULL or an id, `addr` is NULL or can be read.
unsafe fn join(
    id: *mut rdma_cm_id,
    addr: *const sockaddr,
    sends_only: bool,
    context: *mut c_void,
) -> Result<(), Error> {
    // SAFETY: as our caller promises, here and below.
    let id = unsafe { find::<Id>(id) }?;
    // SAFETY: as above.
    let address = unsafe { address::read(addr) }?;
    if !is_group(address) {
        return Err(Error::Argument(
            "the address is not that of a multicast group",
        ));
    }
    // SAFETY: as above.
    if !unsafe { connect::is_datagram(id) } {
        return Err(Error::Argument(
            "groups are for datagrams: RDMA_PS_UDP or RDMA_PS_IPOIB",
        ));
    }
    let serial = {
        let mut state = id.state();
        if state.device.is_none() {
            return Err(Error::Phase {
                is: state.phase.text(),
                needs: "a group is joined on a device; bind the id to an address or resolve one first",
            });
        }
        if state
            .groups
            .iter()
            .any(|group| same(group.address, address))
        {
            return Err(Error::Io(std::io::Error::from_raw_os_error(
                libc::EADDRINUSE,
            )));
        }
        let serial = state.groups.last().map_or(0, |group| group.serial + 1);
        state.groups.push(Group {
            serial,
            address,
            gid: gid_of(address),
            context,
            sends_only,
            member: std::ptr::null_mut(),
        });
        serial
    };
    id.cm.raise(Own::Joined(serial).number())?;
    // SAFETY: found above.
    unsafe { complete(id) }
}

/// What an event about a group carries, and whether the queue pair of the id is a member now. `None` if the id has left.
///
/// # Safety
/// The id is alive, and so is its queue pair.
pub(super) unsafe fn joined(
    id: &Object<Id>,
    serial: u64,
) -> Option<(rdma_ud_param, Result<(), Error>)> {
    let mut guard = id.state();
    let state = &mut *guard;
    let (device, source) = (state.device.clone()?, state.source?);
    let group = state
        .groups
        .iter_mut()
        .find(|group| group.serial == serial)?;
    let mut param = rdma_ud_param::zeroed();
    param.private_data = group.context;
    let path = path_between(&device, source.ip(), group.gid, state.options.tos);
    let index = address::source_gid(&device, source.ip()).0;
    param.ah_attr = params::address(&path, index);
    param.qp_num = ALL_MEMBERS;
    param.qkey = RDMA_UDP_QKEY;
    // SAFETY: as our caller promises, here and below.
    let pair = unsafe { (*id.public()).qp };
    if pair.is_null() || group.sends_only {
        return Some((param, Ok(())));
    }
    let gid = ibv_gid { raw: group.gid.0 };
    // SAFETY: as above.
    let attached = match unsafe { ibv_attach_mcast(pair, &raw const gid, 0) } {
        0 => {
            group.member = pair;
            Ok(())
        }
        _ => Err(Error::told()),
    };
    Some((param, attached))
}

/// `rdma_join_multicast(3)`.
///
/// # Safety
/// `id` is NULL or an id, `addr` is NULL or can be read; `context` is only kept.
pub unsafe extern "C" fn rdma_join_multicast(
    id: *mut rdma_cm_id,
    addr: *mut sockaddr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: as our caller promises.
    let body = || unsafe { join(id, addr, false, context) }.map(|()| 0);
    call::minus_one("rdma_join_multicast", body)
}

/// `rdma_join_multicast_ex(3)`.
///
/// # Safety
/// `id` is NULL or an id, `attr` and the address in it are NULL or can be read; `context` is only kept.
pub unsafe extern "C" fn rdma_join_multicast_ex(
    id: *mut rdma_cm_id,
    attr: *mut rdma_cm_join_mc_attr_ex,
    context: *mut c_void,
) -> c_int {
    const KNOWN: u32 = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
    let call = || -> Result<c_int, Error> {
        // SAFETY: as our caller promises, here and below.
        unsafe { find::<Id>(id) }?;
        not_null(attr, "attribute")?;
        // SAFETY: as above.
        let attr = unsafe { *attr };
        if attr.comp_mask & !KNOWN != 0 {
            return Err(Error::Bits {
                what: "comp_mask",
                bits: u64::from(attr.comp_mask & !KNOWN),
            });
        }
        if attr.comp_mask & KNOWN != KNOWN {
            return Err(Error::Argument(
                "both the address and the join flags have to be given",
            ));
        }
        let sends_only = match attr.join_flags {
            RDMA_MC_JOIN_FLAG_FULLMEMBER => false,
            RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER => true,
            other => {
                return Err(Error::Bits {
                    what: "join_flags",
                    bits: other.into(),
                });
            }
        };
        // SAFETY: as above.
        unsafe { join(id, attr.addr, sends_only, context) }?;
        Ok(0)
    };
    call::minus_one("rdma_join_multicast_ex", call)
}

/// `rdma_leave_multicast(3)`. EADDRNOTAVAIL for a group that the id has not joined.
///
/// # Safety
/// `id` is NULL or an id, `addr` is NULL or can be read.
pub unsafe extern "C" fn rdma_leave_multicast(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int {
    let leave = || -> Result<c_int, Error> {
        // SAFETY: as our caller promises, here and below.
        let id = unsafe { find::<Id>(id) }?;
        // SAFETY: as above.
        let address = unsafe { address::read(addr) }?;
        let mut state = id.state();
        let joined = state
            .groups
            .iter()
            .position(|group| same(group.address, address));
        let Some(joined) = joined else {
            return Err(Error::NotJoined);
        };
        let group = state.groups.remove(joined);
        // SAFETY: as above. A queue pair that is gone has left its groups.
        unsafe {
            if !group.member.is_null() && group.member == (*id.public()).qp {
                let gid = ibv_gid { raw: group.gid.0 };
                ibv_detach_mcast(group.member, &raw const gid, 0);
            }
        }
        Ok(0)
    };
    call::minus_one("rdma_leave_multicast", leave)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> Address {
        Address::Ip(text.parse().expect("an address"))
    }

    #[test]
    fn groups_of_both_families_are_gids() {
        assert_eq!(
            gid_of(ip("239.1.2.3:0")).0[10..],
            [0xff, 0xff, 239, 1, 2, 3]
        );
        assert_eq!(gid_of(ip("[ff0e::1]:0")).0[..2], [0xff, 0x0e]);
        assert!(is_group(ip("239.1.2.3:0")) && is_group(ip("[ff0e::1]:0")));
        assert!(!is_group(ip("10.0.0.1:0")) && !is_group(Address::Gid(Gid([0; 16]))));
        assert!(same(ip("239.1.2.3:1"), ip("239.1.2.3:2")));
    }
}
