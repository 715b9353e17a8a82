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

/// One instruction of classic BPF, laid out as `struct sock_filter` of linux/filter.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Instruction {
    /// What to do.
    pub code: u16,
    /// How many instructions to leave out if a comparison holds.
    pub if_true: u8,
    /// How many to leave out if it does not.
    pub if_false: u8,
    /// The constant.
    pub operand: u32,
}

/// Has `program` say which socket of a group that shares a port (`SO_REUSEPORT`) gets a datagram: socket(7) under
/// `SO_ATTACH_REUSEPORT_CBPF`. It holds for the whole group, until another one is attached. The kernel checks it and
/// refuses with EINVAL or ENOMEM what it does not like; 4096 instructions are the most.
pub fn steer_group(socket: impl AsFd, program: &[Instruction]) -> io::Result<()> {
    let too_long = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let program = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(too_long)?,
        // The kernel only reads.
        filter: program.as_ptr().cast::<libc::sock_filter>().cast_mut(),
    };
    set(
        socket,
        libc::SOL_SOCKET,
        libc::SO_ATTACH_REUSEPORT_CBPF,
        program,
    )
}

/// `T` is what the kernel takes for the option; pointers in it must be good for the time of the call.
fn set<T: Copy>(
    socket: impl AsFd,
    level: libc::c_int,
    option: libc::c_int,
    value: T,
) -> io::Result<()> {
    // SAFETY: the pointer and the length describe `value`, which outlives the call. What a value points to in turn is
    // read only, and lives in the caller's frame.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

// The layout is part of the kernel's interface.
const _: () = assert!(
    size_of::<Instruction>() == size_of::<libc::sock_filter>()
        && align_of::<Instruction>() == align_of::<libc::sock_filter>()
);
