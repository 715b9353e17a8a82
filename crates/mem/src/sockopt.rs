//! Socket options that the safe socket crates do not offer.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Lets an IPv6 UDP socket receive datagrams without a checksum.
///
/// The ICRC covers what the checksum would, so RoCEv2 senders may leave it out, and the kernel's software RoCE does.
pub fn accept_zero_checksum_v6(socket: impl AsFd) -> io::Result<()> {
    // UDP_NO_CHECK6_RX of linux/udp.h, which the libc crate lacks for this target.
    const NO_CHECK6_RX: libc::c_int = 102;
    set(socket, libc::IPPROTO_UDP, NO_CHECK6_RX, 1)
}

/// Switches receive timestamps off. Taking the time costs the kernel on every datagram.
pub fn no_timestamps(socket: impl AsFd) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 0)
}

/// Has the socket tell the traffic class and the hop limit of what it receives, and not the address it was sent to: a
/// socket that is bound to one address knows that.
pub fn tell_hops_and_class(socket: impl AsFd, v6: bool) -> io::Result<()> {
    let fd = socket.as_fd();
    let options = if v6 {
        [
            (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1),
            (libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT, 1),
            (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 0),
        ]
    } else {
        [
            (libc::IPPROTO_IP, libc::IP_RECVTOS, 1),
            (libc::IPPROTO_IP, libc::IP_RECVTTL, 1),
            (libc::IPPROTO_IP, libc::IP_PKTINFO, 0),
        ]
    };
    for (level, option, value) in options {
        set(fd, level, option, value)?;
    }
    Ok(())
}

fn set(
    socket: impl AsFd,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the pointer and the length describe `value`, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
