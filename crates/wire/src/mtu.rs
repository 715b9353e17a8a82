//! The path MTU: how many bytes of payload one packet carries.

/// A path MTU. The discriminants are the values of verbs' `enum ibv_mtu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Mtu {
    Mtu256 = 1,
    Mtu512 = 2,
    Mtu1024 = 3,
    Mtu2048 = 4,
    Mtu4096 = 5,
}

/// Bytes that a full packet adds to its payload on UDP and IPv6: IP 40, UDP 8, BTH 12, XRCETH 4,
/// RETH 16, immediate 4, ICRC 4.
pub const MAX_OVERHEAD: usize = 88;

impl Mtu {
    pub const ALL: [Self; 5] = [
        Self::Mtu256,
        Self::Mtu512,
        Self::Mtu1024,
        Self::Mtu2048,
        Self::Mtu4096,
    ];

    #[inline]
    #[must_use]
    pub const fn bytes(self) -> usize {
        128 << self as u8
    }

    #[inline]
    #[must_use]
    pub const fn ibv(self) -> u32 {
        self as u32
    }

    #[must_use]
    pub const fn from_ibv(value: u32) -> Option<Self> {
        match value {
            1 => Some(Self::Mtu256),
            2 => Some(Self::Mtu512),
            3 => Some(Self::Mtu1024),
            4 => Some(Self::Mtu2048),
            5 => Some(Self::Mtu4096),
            _ => None,
        }
    }

    /// The largest path MTU whose packets fit an interface of `link_mtu` bytes, if any does.
    #[must_use]
    pub fn fitting(link_mtu: usize) -> Option<Self> {
        Self::ALL
            .into_iter()
            .rev()
            .find(|mtu| mtu.bytes() + MAX_OVERHEAD <= link_mtu)
    }

    /// Packets that a message of `len` bytes takes. An empty message takes one, too.
    #[inline]
    #[must_use]
    pub const fn packets(self, len: u32) -> u32 {
        if len == 0 {
            1
        } else {
            len.div_ceil(self.bytes() as u32)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_values_and_bytes_agree() {
        let bytes = Mtu::ALL.map(Mtu::bytes);
        assert_eq!(bytes, [256, 512, 1024, 2048, 4096]);
        for mtu in Mtu::ALL {
            assert_eq!(Mtu::from_ibv(mtu.ibv()), Some(mtu));
        }
        assert_eq!(Mtu::from_ibv(0), None);
        assert_eq!(Mtu::from_ibv(6), None);
    }

    #[test]
    fn interface_mtu_bounds_the_path_mtu() {
        assert_eq!(Mtu::fitting(1500), Some(Mtu::Mtu1024));
        assert_eq!(Mtu::fitting(4200), Some(Mtu::Mtu4096));
        assert_eq!(Mtu::fitting(65536), Some(Mtu::Mtu4096));
        assert_eq!(Mtu::fitting(300), None);
    }

    #[test]
    fn messages_are_cut_at_the_path_mtu() {
        let counts = [0, 1, 1024, 1025, 1 << 31].map(|len| Mtu::Mtu1024.packets(len));
        assert_eq!(counts, [1, 1, 1, 2, 1 << 21]);
    }
}
