//! Addresses that a port is bound to: which of them are in each other's way, and which one a request means.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// The local addresses that somebody asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Scope {
    /// Every address.
    Any,
    /// Every IPv4 address.
    AnyV4,
    /// Every IPv6 address.
    AnyV6,
    One(IpAddr),
}

impl Scope {
    /// `None` is every address; the unspecified address of a family is every one of that family.
    pub(super) fn of(address: Option<IpAddr>) -> Self {
        match address {
            None => Self::Any,
            Some(IpAddr::V4(ip)) if ip.is_unspecified() => Self::AnyV4,
            Some(IpAddr::V6(ip)) if ip.is_unspecified() => Self::AnyV6,
            Some(ip) => Self::One(ip),
        }
    }

    /// Whether some address belongs to both.
    pub(super) fn overlaps(self, other: Self) -> bool {
        match (self, other) {
            (Self::One(a), Self::One(b)) => a == b,
            (Self::One(a), wide) | (wide, Self::One(a)) => wide.rank(a).is_some(),
            (Self::AnyV4, Self::AnyV6) | (Self::AnyV6, Self::AnyV4) => false,
            _ => true,
        }
    }

    /// How closely it fits an address, the closest being 0.
    pub(super) fn rank(self, address: IpAddr) -> Option<u8> {
        match self {
            Self::One(own) => (own == address).then_some(0),
            Self::AnyV4 => address.is_ipv4().then_some(1),
            Self::AnyV6 => address.is_ipv6().then_some(1),
            Self::Any => Some(2),
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::AnyV4 => f.write_str("any4"),
            Self::AnyV6 => f.write_str("any6"),
            Self::One(ip) => fmt::Display::fmt(ip, f),
        }
    }
}

impl FromStr for Scope {
    type Err = std::net::AddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "any" => Self::Any,
            "any4" => Self::AnyV4,
            "any6" => Self::AnyV6,
            ip => Self::One(ip.parse()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(text: &str) -> Scope {
        text.parse().unwrap()
    }

    #[test]
    fn wildcards_are_in_the_way_of_what_they_contain() {
        for (a, b, both) in [
            ("any", "any4", true),
            ("any", "::1", true),
            ("any4", "any6", false),
            ("any4", "10.0.0.1", true),
            ("any4", "::1", false),
            ("any6", "::1", true),
            ("10.0.0.1", "10.0.0.1", true),
            ("10.0.0.1", "10.0.0.2", false),
        ] {
            assert_eq!(scope(a).overlaps(scope(b)), both, "{a} and {b}");
            assert_eq!(scope(b).overlaps(scope(a)), both, "{b} and {a}");
            assert_eq!(scope(a).to_string(), a);
        }
    }

    #[test]
    fn the_closest_fit_wins() {
        let ip = "10.0.0.1".parse().unwrap();
        let ranks = ["10.0.0.1", "any4", "any"].map(|s| scope(s).rank(ip).unwrap());
        assert!(ranks.is_sorted());
        assert_eq!(scope("any6").rank(ip), None);
        assert_eq!(Scope::of(Some("0.0.0.0".parse().unwrap())), Scope::AnyV4);
        assert_eq!(Scope::of(Some("::".parse().unwrap())), Scope::AnyV6);
        assert_eq!(Scope::of(None), Scope::Any);
    }
}
