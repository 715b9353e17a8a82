//! GIDs: the 16-byte addresses of ports, which on RoCEv2 are IP addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A global identifier: an IPv6 address, or an IPv4 address as `::ffff:a.b.c.d`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    #[must_use]
    pub const fn from_ipv4(ip: Ipv4Addr) -> Self {
        Self(ip.to_ipv6_mapped().octets())
    }

    #[must_use]
    pub const fn from_ipv6(ip: Ipv6Addr) -> Self {
        Self(ip.octets())
    }

    #[must_use]
    pub const fn from_ip(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(ip) => Self::from_ipv4(ip),
            IpAddr::V6(ip) => Self::from_ipv6(ip),
        }
    }

    /// The GID every port has, even one without an address: link local, from the MAC (EUI-64 with
    /// the universal/local bit flipped).
    #[must_use]
    pub const fn default_for_mac(mac: [u8; 6]) -> Self {
        let [a, b, c, d, e, f] = mac;
        Self([
            0xFE,
            0x80,
            0,
            0,
            0,
            0,
            0,
            0,
            a ^ 0x02,
            b,
            c,
            0xFF,
            0xFE,
            d,
            e,
            f,
        ])
    }

    /// The IP address whose packets this GID stands for.
    #[must_use]
    pub const fn to_ip(self) -> IpAddr {
        match self.to_ipv4() {
            Some(ip) => IpAddr::V4(ip),
            None => IpAddr::V6(Ipv6Addr::from_bits(u128::from_be_bytes(self.0))),
        }
    }

    #[must_use]
    pub const fn is_ipv4(self) -> bool {
        self.to_ipv4().is_some()
    }

    /// Multicast groups have two spellings for IPv4: mapped, and `ff0e::ffff:a.b.c.d` as RoCEv1
    /// wrote it.
    const fn to_ipv4(self) -> Option<Ipv4Addr> {
        let [p, q, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, a, b, c, d] = self.0 else {
            return None;
        };
        let ip = Ipv4Addr::new(a, b, c, d);
        match (p, q) {
            (0, 0) => Some(ip),
            (0xFF, 0x0E) if ip.is_multicast() => Some(ip),
            _ => None,
        }
    }

    #[must_use]
    pub const fn is_multicast(self) -> bool {
        self.to_ip().is_multicast()
    }

    /// fe80::/10, or IPv4's 169.254.0.0/16.
    #[must_use]
    pub const fn is_link_local(self) -> bool {
        match self.to_ip() {
            IpAddr::V4(ip) => ip.is_link_local(),
            IpAddr::V6(ip) => ip.is_unicast_link_local(),
        }
    }

    /// All zeros: an empty place in a GID table.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        u128::from_ne_bytes(self.0) == 0
    }
}

impl From<IpAddr> for Gid {
    fn from(ip: IpAddr) -> Self {
        Self::from_ip(ip)
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Ipv6Addr::from(self.0), f)
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gid({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gid(text: &str) -> Gid {
        Gid::from_ip(text.parse().unwrap())
    }

    #[test]
    fn ip_addresses_survive_the_round_trip() {
        for text in ["10.1.2.3", "fe80::1", "fd00::2", "224.0.0.9", "ff0e::1"] {
            assert_eq!(gid(text).to_ip(), text.parse::<IpAddr>().unwrap());
        }
        assert!(gid("10.1.2.3").is_ipv4() && !gid("fe80::1").is_ipv4());
    }

    #[test]
    fn both_spellings_of_an_ipv4_group_are_recognised() {
        let group = IpAddr::from([239, 1, 2, 3]);
        assert_eq!(gid("::ffff:239.1.2.3").to_ip(), group);
        assert_eq!(gid("ff0e::ffff:239.1.2.3").to_ip(), group);
        assert!(!gid("ff0e::ffff:10.1.2.3").is_ipv4());
        assert!(!gid("::10.1.2.3").is_ipv4());
    }

    #[test]
    fn scopes_are_told_apart() {
        assert!(gid("ff02::1").is_multicast() && gid("224.0.0.1").is_multicast());
        assert!(!gid("10.0.0.1").is_multicast());
        assert!(gid("fe80::1").is_link_local() && !gid("fd00::1").is_link_local());
        assert!(Gid::default().is_zero() && !gid("::1").is_zero());
    }

    #[test]
    fn default_gid_comes_from_the_mac() {
        let gid = Gid::default_for_mac([0x02, 0x42, 0xAC, 0x11, 0x00, 0x02]);
        assert_eq!(gid.to_string(), "fe80::42:acff:fe11:2");
    }
}
