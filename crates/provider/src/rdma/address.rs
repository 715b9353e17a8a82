//! Socket addresses of C, and what they mean to RDMA.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::ptr;

use adverb_abi::types::{Zeroed as _, rdma_sockaddr};
use adverb_nic::{Device, Gid};
use libc::{c_int, sockaddr, sockaddr_in, sockaddr_in6};

use crate::errno::Error;
use crate::handle::not_null;

/// The family of addresses that are GIDs. Linux has the number, the C library does not.
pub(super) const AF_IB: c_int = 27;

/// Where in a `sockaddr_ib` the GID is.
const GID_IN_SOCKADDR_IB: usize = 8;

/// What a `sockaddr` names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Address {
    Ip(SocketAddr),
    Gid(Gid),
}

/// Reads an address.
///
/// # Safety
/// NULL, or readable as far as its family says.
pub(super) unsafe fn read(from: *const sockaddr) -> Result<Address, Error> {
    not_null(from, "address")?;
    // SAFETY: not NULL, so the caller says that the family can be read, here and below as much as the family has.
    let family = unsafe { ptr::read_unaligned(&raw const (*from).sa_family) };
    match c_int::from(family) {
        libc::AF_INET => {
            // SAFETY: as above.
            let sin = unsafe { ptr::read_unaligned(from.cast::<sockaddr_in>()) };
            let ip = Ipv4Addr::from(u32::from_be(sin.sin_addr.s_addr));
            Ok(Address::Ip((ip, u16::from_be(sin.sin_port)).into()))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let sin6 = unsafe { ptr::read_unaligned(from.cast::<sockaddr_in6>()) };
            Ok(Address::Ip(SocketAddr::V6(SocketAddrV6::new(
                Ipv6Addr::from(sin6.sin6_addr.s6_addr),
                u16::from_be(sin6.sin6_port),
                u32::from_be(sin6.sin6_flowinfo),
                sin6.sin6_scope_id,
            ))))
        }
        AF_IB => {
            // SAFETY: as above; the GID is plain bytes.
            let gid = unsafe {
                from.byte_add(GID_IN_SOCKADDR_IB)
                    .cast::<[u8; 16]>()
                    .read_unaligned()
            };
            Ok(Address::Gid(Gid(gid)))
        }
        other => Err(Error::Family(other)),
    }
}

/// Reads an address that has to be one of IP.
///
/// # Safety
/// As [`read`].
pub(super) unsafe fn read_ip(from: *const sockaddr) -> Result<SocketAddr, Error> {
    // SAFETY: as our caller promises.
    match unsafe { read(from) }? {
        Address::Ip(address) => Ok(address),
        Address::Gid(_) => Err(Error::Unsupported("an address of family AF_IB here")),
    }
}

/// An address as C reads it.
pub(super) fn write(address: SocketAddr) -> rdma_sockaddr {
    let mut to = rdma_sockaddr::zeroed();
    match address {
        SocketAddr::V4(v4) => to.sin = write_v4(v4),
        SocketAddr::V6(v6) => to.sin6 = write_v6(v6),
    }
    to
}

fn write_v4(from: SocketAddrV4) -> sockaddr_in {
    sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: from.port().to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from(*from.ip()).to_be(),
        },
        sin_zero: [0; 8],
    }
}

fn write_v6(from: SocketAddrV6) -> sockaddr_in6 {
    sockaddr_in6 {
        sin6_family: libc::AF_INET6 as libc::sa_family_t,
        sin6_port: from.port().to_be(),
        sin6_flowinfo: from.flowinfo().to_be(),
        sin6_addr: libc::in6_addr {
            s6_addr: from.ip().octets(),
        },
        sin6_scope_id: from.scope_id(),
    }
}

/// Whether two addresses are of one family.
pub(super) fn same_family(a: SocketAddr, b: SocketAddr) -> bool {
    a.is_ipv4() == b.is_ipv4()
}

/// The address of the family that means "this host".
pub(super) fn loopback(like: SocketAddr) -> IpAddr {
    match like {
        SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    }
}

/// "Any address" of IPv4, which an id gets that listens without having been bound.
pub(super) fn anywhere() -> SocketAddr {
    (Ipv4Addr::UNSPECIFIED, 0).into()
}

/// The entry of the device's GID table that stands for one of its addresses. The table has one IPv4 address; a further
/// one, as 127.0.0.2, borrows it.
pub(super) fn source_gid(device: &Device, ip: IpAddr) -> (u8, Gid) {
    let gids = device.gids();
    let exact = gids.iter().position(|gid| gid.to_ip() == ip);
    let similar = || {
        gids.iter()
            .position(|gid| gid.to_ip().is_ipv4() == ip.is_ipv4())
    };
    let index = exact.or_else(similar).unwrap_or(0);
    let gid = gids.get(index).copied().unwrap_or(Gid([0; 16]));
    (u8::try_from(index).unwrap_or(0), gid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(text: &str) {
        let address: SocketAddr = text.parse().expect("an address");
        let c = write(address);
        // SAFETY: the union is as large as any address.
        let back = unsafe { read((&raw const c).cast()) };
        assert_eq!(back.ok(), Some(Address::Ip(address)));
    }

    #[test]
    fn addresses_survive_the_way_to_c_and_back() {
        round_trip("127.0.0.1:7471");
        round_trip("[fe80::1%3]:65535");
        round_trip("[::]:0");
    }

    #[test]
    fn other_families_are_refused_by_number() {
        let mut c = rdma_sockaddr::zeroed();
        c.addr.sa_family = 77;
        // SAFETY: the union is as large as any address.
        let refused = unsafe { read((&raw const c).cast()) };
        assert!(matches!(refused, Err(Error::Family(77))));
        // SAFETY: NULL is allowed.
        let null = unsafe { read(ptr::null()) };
        assert!(matches!(null, Err(Error::Null("address"))));
    }

    #[test]
    fn a_gid_is_read_where_sockaddr_ib_has_it() {
        let mut bytes = [0_u8; 48];
        bytes[0] = AF_IB as u8;
        bytes[8..24].copy_from_slice(&[0xff; 16]);
        // SAFETY: the array is as large as a `sockaddr_ib`.
        let read = unsafe { read(bytes.as_ptr().cast()) };
        assert_eq!(read.ok(), Some(Address::Gid(Gid([0xff; 16]))));
    }
}
