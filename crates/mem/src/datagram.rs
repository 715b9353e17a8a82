//! Datagrams out with a traffic class of their own and in with all that the kernel knows of them, which the safe socket
//! crates do not offer: they know the two bits of ECN, and no hop limit.
//!
//! The system calls are made directly and not through libc's functions of their names, which are cancellation points.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
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

/// Room for the control messages, aligned as they must be.
#[repr(C, align(8))]
struct Control([u8; CONTROL_BYTES]);

/// Two go out and three come in, 24 bytes each; the rest is for what a socket was told to tell beside them.
const CONTROL_BYTES: usize = 128;

/// Sends `bytes` from `socket` without waiting for room.
pub fn send(socket: impl AsFd, envelope: &Envelope, bytes: &[u8]) -> io::Result<()> {
    let (name, name_len) = socket_address(&envelope.to);
    let mut part = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let mut control = Control([0; CONTROL_BYTES]);
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
    // SAFETY: the message's control buffer is zeroed, aligned, and longer than the two control messages written here
    // take; the header pointers come from the CMSG macros on that message and are checked for null
    // inside `put`.
    let used = unsafe {
        let mut next = libc::CMSG_FIRSTHDR(&raw const message);
        let mut used = 0;
        if class != 0 {
            used += put(next, level, kind, &class.to_ne_bytes());
            next = libc::CMSG_NXTHDR(&raw const message, next);
        }
        if let Some(segment) = envelope.segment {
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
        libc::syscall(
            libc::SYS_sendmsg,
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

/// What came in, and what the kernel says of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Bytes, of all datagrams that the kernel put together (UDP_GRO).
    pub len: usize,
    /// Length of each datagram but the last, which may be shorter. At least 1.
    pub segment: usize,
    /// Who sent it.
    pub from: SocketAddr,
    /// Traffic class (IPv6) or type of service (IPv4); 0 unless [`crate::sockopt::tell_hops_and_class`] was called.
    pub traffic_class: u8,
    /// Hop limit (IPv6) or time to live (IPv4) that was left, if the socket tells.
    pub hop_limit: Option<u8>,
}

/// Takes the next datagram, or the next run of them, without waiting. What does not fit `buffer` is cut off.
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Received> {
    // SAFETY: all zeros is a valid sockaddr_storage.
    let mut name: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    let mut control = Control([0; CONTROL_BYTES]);
    // SAFETY: all zeros is a valid msghdr: null pointers and lengths of nothing.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_name = (&raw mut name).cast();
    message.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len() as _;
    // SAFETY: every pointer of the message is to a local, or to `buffer`, that lives until the call returns, with the
    // length beside it; nobody else uses them meanwhile.
    let received = unsafe {
        libc::syscall(
            libc::SYS_recvmsg,
            socket.as_fd().as_raw_fd(),
            &raw mut message,
            libc::MSG_DONTWAIT,
        )
    };
    let Ok(len) = usize::try_from(received) else {
        return Err(io::Error::last_os_error());
    };
    let mut datagrams = Received {
        len,
        segment: len.max(1),
        from: socket_address_in(&name)?,
        traffic_class: 0,
        hop_limit: None,
    };
    // SAFETY: the kernel has filled the control buffer and said how far; the macros stay inside that.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while !header.is_null() {
            datagrams.note(&*header, libc::CMSG_DATA(header));
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    Ok(datagrams)
}

impl Received {
    /// Takes in one control message.
    ///
    /// # Safety
    /// `data` is good for as many bytes as `header` says.
    unsafe fn note(&mut self, header: &libc::cmsghdr, data: *const u8) {
        // SAFETY: `cmsg_len` covers the header, whose length CMSG_LEN(0) is.
        let length = header
            .cmsg_len
            .saturating_sub(unsafe { libc::CMSG_LEN(0) } as usize);
        let number = match length {
            // The type of service is the one byte that it is in the header.
            // SAFETY: so many bytes are there.
            1..4 => Some(u32::from(unsafe { *data })),
            // SAFETY: likewise; nothing is said of their alignment.
            4.. => Some(unsafe { data.cast::<u32>().read_unaligned() }),
            0 => None,
        };
        let Some(number) = number else { return };
        match (header.cmsg_level, header.cmsg_type) {
            (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                self.traffic_class = number as u8;
            }
            (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                self.hop_limit = Some(number as u8);
            }
            (libc::SOL_UDP, libc::UDP_GRO) => self.segment = (number as usize).max(1),
            _ => {}
        }
    }
}

fn socket_address_in(name: &libc::sockaddr_storage) -> io::Result<SocketAddr> {
    let name = ptr::from_ref(name);
    // SAFETY: a sockaddr_storage has room and alignment for each kind of socket address, and all its bytes are set.
    match libc::c_int::from(unsafe { (*name).ss_family }) {
        libc::AF_INET => {
            // SAFETY: as above.
            let v4 = unsafe { &*name.cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
            Ok(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { &*name.cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            Ok(SocketAddrV6::new(ip, u16::from_be(v6.sin6_port), 0, v6.sin6_scope_id).into())
        }
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
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
    fn what_comes_in_says_from_whom_and_how() {
        for ip in ["127.0.0.1", "::1"] {
            let receiver = UdpSocket::bind((ip, 0)).unwrap();
            crate::sockopt::tell_hops_and_class(&receiver, ip.contains(':')).unwrap();
            let sender = UdpSocket::bind((ip, 0)).unwrap();
            let envelope = Envelope {
                to: receiver.local_addr().unwrap(),
                traffic_class: 0x68,
                segment: None,
            };
            send(&sender, &envelope, &[7; 30]).unwrap();
            let mut buffer = [0; 100];
            let got = loop {
                match receive(&receiver, &mut buffer) {
                    Ok(got) => break got,
                    Err(e) => assert_eq!(e.kind(), io::ErrorKind::WouldBlock),
                }
            };
            let expected = Received {
                len: 30,
                segment: 30,
                from: sender.local_addr().unwrap(),
                traffic_class: 0x68,
                hop_limit: Some(64),
            };
            assert_eq!(got, expected);
            assert_eq!(buffer[..30], [7; 30]);
            let empty = receive(&receiver, &mut buffer).unwrap_err();
            assert_eq!(empty.kind(), io::ErrorKind::WouldBlock);
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
