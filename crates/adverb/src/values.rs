//! Small values with a meaning: GIDs, GUIDs, MTUs, keys and numbers that must not be mixed up.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use adverb_abi::types as c;

use crate::error::Error;

/// A 128-bit port address (InfiniBand specification volume 1, section 4.1.1); on RoCE an IPv6
/// address, or an IPv4 address in its mapped form `::ffff:a.b.c.d`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[doc(alias = "ibv_gid")]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The IP address that a RoCEv2 packet for this GID is sent to.
    pub fn to_ip(self) -> IpAddr {
        let v6 = Ipv6Addr::from(self.0);
        v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4)
    }

    /// Whether all bytes are zero, as in an empty table entry.
    pub fn is_zero(self) -> bool {
        self.0 == [0; 16]
    }

    /// Whether it stands for an IPv4 address.
    pub fn is_ipv4(self) -> bool {
        matches!(self.to_ip(), IpAddr::V4(_))
    }

    /// Whether it is valid on one link only (`fe80::/10`).
    pub fn is_link_local(self) -> bool {
        Ipv6Addr::from(self.0).is_unicast_link_local()
    }

    pub(crate) fn raw(self) -> c::ibv_gid {
        c::ibv_gid { raw: self.0 }
    }

    pub(crate) fn from_raw(gid: c::ibv_gid) -> Self {
        // SAFETY: every bit pattern of the union's 16 bytes is a valid byte array.
        Self(unsafe { gid.raw })
    }
}

impl From<IpAddr> for Gid {
    fn from(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(v4) => v4.into(),
            IpAddr::V6(v6) => v6.into(),
        }
    }
}

impl From<Ipv4Addr> for Gid {
    fn from(ip: Ipv4Addr) -> Self {
        Self(ip.to_ipv6_mapped().octets())
    }
}

impl From<Ipv6Addr> for Gid {
    fn from(ip: Ipv6Addr) -> Self {
        Self(ip.octets())
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

impl FromStr for Gid {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self, Error> {
        s.parse::<IpAddr>()
            .map(Self::from)
            .map_err(|e| Error::Malformed {
                what: "GID",
                why: format!("{s:?}: {e}"),
            })
    }
}

/// The 64-bit identity of a device, in host byte order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Guid(pub u64);

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let g = self.0;
        write!(
            f,
            "{:04x}:{:04x}:{:04x}:{:04x}",
            g >> 48,
            (g >> 32) & 0xffff,
            (g >> 16) & 0xffff,
            g & 0xffff
        )
    }
}

impl fmt::Debug for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Guid({self})")
    }
}

/// Payload bytes in one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[doc(alias = "ibv_mtu")]
#[repr(u8)]
pub enum Mtu {
    /// 256 bytes.
    B256 = 1,
    /// 512 bytes.
    B512 = 2,
    /// 1024 bytes, what a network of ordinary Ethernet frames allows.
    B1024 = 3,
    /// 2048 bytes.
    B2048 = 4,
    /// 4096 bytes.
    B4096 = 5,
}

impl Mtu {
    /// Its size in bytes.
    pub fn bytes(self) -> usize {
        128 << self as u8
    }

    /// The MTU of a C value (1 to 5).
    pub fn from_ibv(value: u32) -> Option<Self> {
        Some(match value {
            1 => Self::B256,
            2 => Self::B512,
            3 => Self::B1024,
            4 => Self::B2048,
            5 => Self::B4096,
            _ => return None,
        })
    }
}

/// The key by which a device's own user names a region. Not to be sent to anybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LKey(pub u32);

/// The key by which a peer names a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RKey(pub u32);

impl fmt::Display for RKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

/// The low 24 bits of a number, as PSNs and queue pair numbers are.
pub(crate) const fn low24(value: u32) -> u32 {
    value & 0x00ff_ffff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gids_round_trip_through_text_and_addresses() {
        let v4: Gid = "10.1.2.3".parse().unwrap();
        assert!(v4.is_ipv4());
        assert_eq!(v4.to_string(), "::ffff:10.1.2.3");
        assert_eq!(v4.to_string().parse::<Gid>().unwrap(), v4);
        let v6: Gid = "fe80::1".parse().unwrap();
        assert!(v6.is_link_local() && !v6.is_ipv4());
        assert!("nonsense".parse::<Gid>().is_err());
    }

    #[test]
    fn mtu_values_are_those_of_the_c_header() {
        for v in 1..=5 {
            let mtu = Mtu::from_ibv(v).unwrap();
            assert_eq!(mtu as u32, v);
            assert_eq!(mtu.bytes(), 128 << v);
        }
        assert_eq!(Mtu::from_ibv(0), None);
        assert_eq!(Mtu::from_ibv(6), None);
    }
}
