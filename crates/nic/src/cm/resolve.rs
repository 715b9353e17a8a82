//! Which device reaches an address: the host's routing decides, and `ADVERB_NETDEV`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::sync::Arc;

use crate::device::{Device, devices, interface_of};
use crate::error::NicError;

/// The device from which `dst` is reached, and the address that packets will come from. `src`, if
/// given and not the unspecified address, settles both.
pub fn resolve(dst: IpAddr, src: Option<IpAddr>) -> Result<(Arc<Device>, IpAddr), NicError> {
    if dst.is_unspecified() {
        return Err(NicError::BadArgument(
            "the destination address is the unspecified one",
        ));
    }
    if let Some(src) = src.filter(|ip| !ip.is_unspecified()) {
        if src.is_ipv4() != dst.is_ipv4() {
            return Err(NicError::BadArgument(
                "source and destination address are of different IP families",
            ));
        }
        return Ok((device_of(src)?, src));
    }
    if let IpAddr::V6(ip) = dst
        && ip.is_unicast_link_local()
    {
        return link_local(dst);
    }
    let routed = route(SocketAddr::new(dst, PROBE_PORT)).map_err(NicError::io(
        "asking the host for a route to the destination",
    ))?;
    match device_of(routed) {
        Ok(device) => Ok((device, routed)),
        // The default route of a group says little about who is in it.
        Err(error) if dst.is_multicast() => any_of_family(dst).ok_or(error),
        Err(error) => Err(error),
    }
}

/// The device that stands at a local address.
pub fn device_of(address: IpAddr) -> Result<Arc<Device>, NicError> {
    let found = devices()?.into_iter().find(|d| d.owns(address));
    found.ok_or_else(|| NicError::NoDevice {
        address,
        why: match interface_of(address) {
            Some(name) => format!(
                "it is on interface {name}, which ADVERB_NETDEV does not offer (ADVERB_NETDEV={name}, or all, would)"
            ),
            None => "no interface of this host that is up has it".to_owned(),
        },
    })
}

/// No packet goes there; the kernel only wants one to look up a route.
const PROBE_PORT: u16 = adverb_wire::UDP_PORT;

fn route(dst: SocketAddr) -> std::io::Result<IpAddr> {
    let any: IpAddr = match dst {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(dst)?;
    Ok(socket.local_addr()?.ip())
}

/// A link-local address says nothing of the link. One's own address does; otherwise the first device
/// that has a route to it.
fn link_local(dst: IpAddr) -> Result<(Arc<Device>, IpAddr), NicError> {
    if let Ok(device) = device_of(dst) {
        return Ok((device, dst));
    }
    let IpAddr::V6(ip) = dst else {
        return Err(NicError::BadArgument("not a link-local IPv6 address"));
    };
    for device in devices()? {
        let scoped = SocketAddrV6::new(ip, PROBE_PORT, 0, device.ifindex);
        if let Ok(src) = route(scoped.into())
            && device.owns(src)
        {
            return Ok((device, src));
        }
    }
    Err(NicError::NoDevice {
        address: dst,
        why: "no device that ADVERB_NETDEV offers has a link-local address".to_owned(),
    })
}

fn any_of_family(dst: IpAddr) -> Option<(Arc<Device>, IpAddr)> {
    devices().ok()?.into_iter().find_map(|device| {
        let src = *device
            .addresses
            .iter()
            .find(|a| a.is_ipv4() == dst.is_ipv4())?;
        Some((device, src))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn the_loopback_device_reaches_itself() {
        let (device, src) = resolve(ip("127.0.0.1"), None).unwrap();
        assert_eq!((device.netdev.as_str(), src), ("lo", ip("127.0.0.1")));
        let (device, src) = resolve(ip("127.0.0.1"), Some(ip("0.0.0.0"))).unwrap();
        assert_eq!((device.netdev.as_str(), src), ("lo", ip("127.0.0.1")));
        let (device, _) = resolve(ip("224.0.0.77"), None).unwrap();
        assert_eq!(device.netdev, "lo");
    }

    #[test]
    fn what_no_device_has_is_named() {
        let text = device_of(ip("203.0.113.9")).unwrap_err().to_string();
        assert!(text.contains("203.0.113.9"), "{text}");
        resolve(ip("127.0.0.1"), Some(ip("::1"))).unwrap_err();
        resolve(ip("0.0.0.0"), None).unwrap_err();
    }
}
