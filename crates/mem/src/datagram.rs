//! Sends with a traffic class of their own, which the safe socket crates do not offer: they know the two bits of ECN.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

/// Where to, with which traffic class, and into which pieces a send is cut.
#[derive(Debug, Clone, Copy)]
pub struct Envelope {
    /// Destination.
    pub to: SocketAddr,
    /// Traffic class (IPv6) or type of service (IPv4).
    pub traffic_class: u8,
    /// Length of each datagram but the last, if there are several (UDP_SEGMENT).
    pub segment: Option<u16>,
}

/// Room for two control messages, aligned as they must be.
#[repr(C, align(8))]
struct Control([u8; 64]);

/// Sends `bytes` from `socket` without waiting for room.
pub fn send(socket: impl AsFd, envelope: &Envelope, bytes: &[u8]) -> io::Result<()> {
    let (name, name_len) = socket_address(&envelope.to);
    let mut part = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let mut control = Control([0; 64]);
    // SAFETY: all zeros is a valid msghdr: null pointers and lengths of nothing.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_name = (&raw const name).cast_mut().cast();
    message.msg_namelen = name_len;
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len() as _;

    let (level, kind) = if envelope.to.is_ipv4() {
        (libc::IPPROTO_IP, libc::IP_TOS)
    } else {
        (libc::IPPROTO_IPV6, libc::IPV6_TCLASS)
    };
    let class = libc::c_int::from(envelope.traffic_class);
    // SAFETY: the message's control buffer is 64 zeroed, aligned bytes, which is more than the two control messages
    // written here take; the header pointers come from the CMSG macros on that message and are checked for null
    // inside `put`.
    let used = unsafe {
        let first = libc::CMSG_FIRSTHDR(&raw const message);
        let mut used = put(first, level, kind, &class.to_ne_bytes());
        if let Some(segment) = envelope.segment {
            let next = libc::CMSG_NXTHDR(&raw const message, first);
            used += put(
                next,
                libc::SOL_UDP,
                libc::UDP_SEGMENT,
                &segment.to_ne_bytes(),
            );
        }
        used
    };
    message.msg_controllen = used as _;
    // SAFETY: every pointer of the message is to a local that lives until the call returns, or to `bytes`, which the
    // kernel only reads.
    let sent = unsafe {
        libc::sendmsg(
            socket.as_fd().as_raw_fd(),
            &raw const message,
            libc::MSG_DONTWAIT,
        )
    };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Writes one control message; gives the space it takes.
///
/// # Safety
/// `header` is null, or points to zeroed and aligned space for the header and `data`.
unsafe fn put(
    header: *mut libc::cmsghdr,
    level: libc::c_int,
    kind: libc::c_int,
    data: &[u8],
) -> usize {
    if header.is_null() {
        return 0;
    }
    let len = data.len() as libc::c_uint;
    // SAFETY: there is space for the header and the data behind it, says the caller.
    unsafe {
        (*header).cmsg_level = level;
        (*header).cmsg_type = kind;
        (*header).cmsg_len = libc::CMSG_LEN(len) as _;
        ptr::copy_nonoverlapping(data.as_ptr(), libc::CMSG_DATA(header), data.len());
        libc::CMSG_SPACE(len) as usize
    }
}

fn socket_address(to: &SocketAddr) -> (libc::sockaddr_storage, libc::socklen_t) {
    // SAFETY: all zeros is a valid sockaddr_storage.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let len = match to {
        SocketAddr::V4(to) => {
            let name = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: to.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(to.ip().octets()),
                },
                sin_zero: [0; 8],
            };
            // SAFETY: a sockaddr_storage has room and alignment for each kind of socket address.
            unsafe { (&raw mut storage).cast::<libc::sockaddr_in>().write(name) };
            size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(to) => {
            let name = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: to.port().to_be(),
                sin6_flowinfo: to.flowinfo(),
                sin6_addr: libc::in6_addr {
                    s6_addr: to.ip().octets(),
                },
                sin6_scope_id: to.scope_id(),
            };
            // SAFETY: as above.
            unsafe { (&raw mut storage).cast::<libc::sockaddr_in6>().write(name) };
            size_of::<libc::sockaddr_in6>()
        }
    };
    (storage, len as libc::socklen_t)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::time::Duration;

    #[test]
    fn a_send_is_cut_and_arrives_on_both_families() {
        for ip in ["127.0.0.1", "::1"] {
            let receiver = UdpSocket::bind((ip, 0)).unwrap();
            receiver
                .set_read_timeout(Some(Duration::from_secs(10)))
                .unwrap();
            let sender = UdpSocket::bind((ip, 0)).unwrap();
            let envelope = Envelope {
                to: receiver.local_addr().unwrap(),
                traffic_class: 0x68,
                segment: Some(100),
            };
            send(&sender, &envelope, &[7; 250]).unwrap();
            let single = Envelope {
                segment: None,
                ..envelope
            };
            send(&sender, &single, &[8; 30]).unwrap();
            let mut buffer = [0; 1000];
            let lengths = [(); 4].map(|()| receiver.recv(&mut buffer).unwrap());
            assert_eq!(lengths, [100, 100, 50, 30], "{ip}");
        }
    }

    #[test]
    fn what_the_kernel_says_against_it_is_an_error() {
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let envelope = Envelope {
            to: "[::1]:9".parse().unwrap(),
            traffic_class: 0,
            segment: None,
        };
        assert!(send(&sender, &envelope, &[1]).is_err());
    }
}
