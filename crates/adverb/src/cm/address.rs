//! Socket addresses, as C has them.

use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};

use adverb_abi::types::{self as c, Zeroed};
use libc::{AF_INET, AF_INET6, in_addr, in6_addr, sockaddr_in, sockaddr_in6};

pub(super) fn write(address: SocketAddr) -> c::rdma_sockaddr {
    let mut raw = c::rdma_sockaddr::zeroed();
    match address {
        SocketAddr::V4(v4) => {
            raw.sin = sockaddr_in {
                sin_family: AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: in_addr {
                    s_addr: u32::from_ne_bytes(v4.ip().octets()),
                },
                sin_zero: [0; 8],
            };
        }
        SocketAddr::V6(v6) => {
            raw.sin6 = sockaddr_in6 {
                sin6_family: AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: in6_addr {
                    s6_addr: v6.ip().octets(),
                },
                sin6_scope_id: v6.scope_id(),
            };
        }
    }
    raw
}

/// `None` for what is no address of IP.
pub(super) fn read(raw: &c::rdma_sockaddr) -> Option<SocketAddr> {
    // SAFETY: every variant is plain numbers, for which any bytes are a value, and all of them
    // begin with the family.
    unsafe {
        match libc::c_int::from(raw.addr.sa_family) {
            AF_INET => {
                let ip = raw.sin.sin_addr.s_addr.to_ne_bytes();
                Some((ip, u16::from_be(raw.sin.sin_port)).into())
            }
            AF_INET6 => {
                let sin6 = raw.sin6;
                let ip = Ipv6Addr::from(sin6.sin6_addr.s6_addr);
                let port = u16::from_be(sin6.sin6_port);
                let (flow, scope) = (sin6.sin6_flowinfo, sin6.sin6_scope_id);
                Some(SocketAddrV6::new(ip, port, flow, scope).into())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_c() {
        for text in ["10.1.2.3:7471", "[2001:db8::5]:65535", "0.0.0.0:0"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(read(&write(address)), Some(address));
        }
        let scoped = SocketAddrV6::new("fe80::1".parse().unwrap(), 1, 0, 3);
        assert_eq!(read(&write(scoped.into())), Some(scoped.into()));
        assert_eq!(read(&c::rdma_sockaddr::zeroed()), None);
    }
}
