//! Service IDs: what a request asks for. The librdmacm kind is a port space and a port.

use std::fmt;

/// Connections over RC (or UC).
pub const SPACE_TCP: u16 = 0x0106;
/// Datagrams.
pub const SPACE_UDP: u16 = 0x0111;
/// Any transport, addressed by GIDs; requests have no [`CmaHeader`](super::CmaHeader).
pub const SPACE_IB: u16 = 0x013F;
/// Datagrams of IP over InfiniBand.
pub const SPACE_IPOIB: u16 = 0x0002;

/// A service ID: `space << 16 | port`, as far as librdmacm gives them out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ServiceId(pub u64);

impl ServiceId {
    #[must_use]
    pub const fn new(space: u16, port: u16) -> Self {
        Self((space as u64) << 16 | port as u64)
    }

    /// What is above the port, as far as 16 bits hold it. An ID with more bits is none of librdmacm's; comparing with
    /// [`ServiceId::new`] tells.
    #[must_use]
    pub const fn space(self) -> u16 {
        (self.0 >> 16) as u16
    }

    #[must_use]
    pub const fn port(self) -> u16 {
        self.0 as u16
    }
}

impl fmt::Debug for ServiceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServiceId({self})")
    }
}

impl fmt::Display for ServiceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#018x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_and_its_space_are_a_service() {
        let id = ServiceId::new(SPACE_TCP, 7471);
        assert_eq!(id.to_string(), "0x0000000001061d2f");
        assert_eq!((id.space(), id.port()), (SPACE_TCP, 7471));
        let foreign = ServiceId(0x1000_0CE1_0000_0001);
        assert_ne!(ServiceId::new(foreign.space(), foreign.port()), foreign);
    }
}
