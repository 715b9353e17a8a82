//! From GIDs to socket addresses.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use adverb_wire::Gid;

use super::scope_of;
use crate::Path;

/// An address in the network, and the socket that sends there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpRoute {
    /// Which socket.
    pub(super) socket: usize,
    /// The address of that socket.
    pub(super) src: IpAddr,
    /// Where to.
    pub(super) dst: SocketAddr,
    /// Traffic class (IPv6) or type of service (IPv4) of what goes there.
    pub(super) traffic_class: u8,
}

impl UdpRoute {
    /// The address that the packets come from.
    #[must_use]
    pub fn src(&self) -> IpAddr {
        self.src
    }

    /// The address that the packets go to.
    #[must_use]
    pub fn dst(&self) -> SocketAddr {
        self.dst
    }
}

/// `addresses` are those of the sockets, in their order.
pub(super) fn resolve(
    addresses: &[IpAddr],
    port: u16,
    scope_id: u32,
    path: &Path,
    own_gids: &[Gid],
) -> Option<UdpRoute> {
    if path.dgid.is_zero() {
        return None;
    }
    let mut dst = path.dgid.to_ip();
    if own_gids.contains(&path.dgid) && !addresses.contains(&dst) {
        // A GID that was made up from a hardware address: no interface has it. IPv6 first, which it pretends to be.
        dst = *addresses
            .iter()
            .find(|address| address.is_ipv6())
            .or_else(|| addresses.first())?;
    }
    let wanted = path.sgid.to_ip();
    let same_family = |address: &&IpAddr| address.is_ipv4() == dst.is_ipv4();
    let src = addresses
        .iter()
        .find(|&&address| address == wanted && address.is_ipv4() == dst.is_ipv4())
        .or_else(|| addresses.iter().find(same_family))?;
    let socket = addresses.iter().position(|address| address == src)?;
    let scope_id = scope_of(&dst, scope_id);
    let dst = match dst {
        IpAddr::V4(_) => SocketAddr::new(dst, port),
        IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, scope_id).into(),
    };
    Some(UdpRoute {
        socket,
        src: *src,
        dst,
        traffic_class: path.traffic_class,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gid(ip: &str) -> Gid {
        Gid::from_ip(ip.parse().unwrap())
    }

    fn path(sgid: &str, dgid: &str) -> Path {
        Path {
            sgid: gid(sgid),
            dgid: gid(dgid),
            traffic_class: 0,
            hop_limit: 64,
            flow_label: 0,
        }
    }

    fn ips(list: &[&str]) -> Vec<IpAddr> {
        list.iter().map(|ip| ip.parse().unwrap()).collect()
    }

    #[test]
    fn every_gid_of_the_device_is_a_source_and_a_destination() {
        let made_up = "fe80::200:ff:fe00:0";
        let own = [gid(made_up), gid("127.0.0.1")];
        for (sockets, sgid, dgid, src, dst) in [
            (
                &["127.0.0.1", "::1"][..],
                made_up,
                made_up,
                "::1",
                "[::1]:4791",
            ),
            (
                &["127.0.0.1", "::1"],
                "127.0.0.1",
                made_up,
                "::1",
                "[::1]:4791",
            ),
            (
                &["127.0.0.1", "::1"],
                made_up,
                "127.0.0.1",
                "127.0.0.1",
                "127.0.0.1:4791",
            ),
            (
                &["127.0.0.1"],
                made_up,
                made_up,
                "127.0.0.1",
                "127.0.0.1:4791",
            ),
            (
                &["10.0.0.1", "10.0.0.2"],
                "10.0.0.2",
                "10.0.0.9",
                "10.0.0.2",
                "10.0.0.9:4791",
            ),
            (
                &["10.0.0.1", "fe80::1"],
                "fe80::1",
                "fe80::2",
                "fe80::1",
                "[fe80::2%3]:4791",
            ),
            (
                &["10.0.0.1", "fe80::1"],
                "fe80::1",
                "ff02::7",
                "fe80::1",
                "[ff02::7%3]:4791",
            ),
            (
                &["10.0.0.1", "fe80::1"],
                "10.0.0.1",
                "239.1.2.3",
                "10.0.0.1",
                "239.1.2.3:4791",
            ),
        ] {
            let route = resolve(&ips(sockets), 4791, 3, &path(sgid, dgid), &own).unwrap();
            assert_eq!(
                (route.src().to_string(), route.dst().to_string()),
                (src.into(), dst.into()),
                "{sgid} to {dgid}"
            );
        }
    }

    #[test]
    fn what_no_socket_can_reach_has_no_route() {
        let own = [gid("127.0.0.1")];
        for (sockets, dgid) in [
            (&["127.0.0.1"][..], "2001:db8::1"),
            (&["::1"], "10.0.0.1"),
            (&[], "127.0.0.1"),
            (&["::1"], "::"),
        ] {
            assert_eq!(
                resolve(&ips(sockets), 4791, 0, &path("127.0.0.1", dgid), &own),
                None,
                "{dgid}"
            );
        }
    }
}
