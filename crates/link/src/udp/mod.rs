//! RoCEv2 over ordinary UDP sockets: to other hosts, to kernel software RoCE, to real cards.
//!
//! One socket per local address, on the RoCE port, shared between the processes of one user (`SO_REUSEPORT`). The
//! kernel gives a datagram to the one that owns the QP if it has been told well (`steer.rs`), and else to any of them; then
//! the NIC hands it over.
//!
//! Senders put "don't fragment" into IPv4 headers, for which the kernel sends identification 0 on unconnected
//! sockets, and counts up from there in the segments of one segmented send. The ICRC covers that field, so it is
//! computed to match. Receivers cannot see the field and accept an ICRC that is right for any identification.
//!
//! Datagrams to multicast groups keep to the local network: their hop limit is 1.
//!
//! The traffic class of a path is put on the wire. Its hop limit is not: the kernel's own RoCE replaces that by the
//! system's, too. Of what is received [`Meta`] has both as they arrived.

mod group;
mod receive;
mod route;
mod send;
mod steer;

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};

use adverb_wire::Gid;
use quinn_udp::UdpSocketState;
use socket2::{Domain, Socket, Type};

use self::receive::Receiver;
pub use self::route::UdpRoute;
use self::send::Batch;
pub use self::steer::Meeting;
use self::steer::Steering;
use crate::lock::{lock, try_lock};
use crate::{Arrival, Link, Meta, Path, SendError};

/// Where to listen.
#[derive(Debug, Clone)]
pub struct UdpConfig {
    /// Local addresses, one socket each.
    pub addresses: Vec<IpAddr>,
    /// The port for all of them, and of all peers. Zero lets the kernel choose (tests do that).
    pub port: u16,
    /// Index of the network interface, for link-local IPv6 addresses.
    pub scope_id: u32,
    /// Where to agree with the other processes on who gets what. Without it the kernel chooses, as it does for port
    /// zero.
    pub meeting: Option<Meeting>,
}

/// Why the sockets could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another user, or a program that does not share, has the port.
    #[error(
        "UDP port {port} on {address} is held by another user or a program that does not share it; \
         set ADVERB_UDP_PORT to another port on all hosts that talk to each other, or stop the holder (`ss -lunp 'sport = {port}'`)"
    )]
    PortTaken {
        /// The port asked for.
        port: u16,
        /// The address on which it is taken.
        address: IpAddr,
    },
    /// The kernel refused for another reason.
    #[error("UDP socket on {address} port {port}")]
    Io {
        /// The port asked for.
        port: u16,
        /// The address.
        address: IpAddr,
        /// What the kernel said.
        source: io::Error,
    },
}

/// What happened on the sockets since they were opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UdpCounters {
    /// Packets handed out.
    pub received: u64,
    /// Those among them that the kernel gave to us although another process owns their queue pair.
    pub missed: u64,
    /// Packets dropped because their ICRC fits no identification.
    pub bad_icrc: u64,
    /// Datagrams too short, or of a length that no packet has.
    pub malformed: u64,
    /// Packets given to the kernel.
    pub sent: u64,
    /// Packets that the kernel refused or had no room for.
    pub send_errors: u64,
}

#[derive(Debug, Default)]
struct Counters {
    received: AtomicU64,
    missed: AtomicU64,
    bad_icrc: AtomicU64,
    malformed: AtomicU64,
    sent: AtomicU64,
    send_errors: AtomicU64,
}

/// The UDP link of a device.
#[derive(Debug)]
pub struct UdpLink {
    sockets: Vec<Endpoint>,
    /// One per group joined; they only receive.
    groups: RwLock<Vec<Endpoint>>,
    port: u16,
    scope_id: u32,
    window_bytes: usize,
    counters: Counters,
    /// The socket, counting those of groups behind the others, that gave something last.
    hot: AtomicUsize,
    /// Quick looks so far.
    looks: AtomicUsize,
}

/// One socket and the two locks around it: sending and receiving do not wait for each other.
#[derive(Debug)]
struct Endpoint {
    address: IpAddr,
    socket: Socket,
    state: UdpSocketState,
    steering: Option<Steering>,
    batch: Mutex<Batch>,
    /// The batch holds something that no flush has sent.
    dirty: AtomicBool,
    receiver: Mutex<Receiver>,
    /// The receiver holds packets that no budget was left for.
    leftover: AtomicBool,
}

/// A quick look asks one socket, and each time of so many another one, too.
const ASK_ANOTHER: usize = 4;
/// Wanted space for datagrams that nobody has fetched yet.
const RECEIVE_BUFFER: usize = 8 << 20;
/// Wanted space for datagrams that the network card has not fetched yet.
const SEND_BUFFER: usize = 4 << 20;

impl UdpLink {
    /// Opens one socket per address.
    pub fn bind(config: &UdpConfig) -> Result<Self, BindError> {
        let mut port = config.port;
        let mut room = usize::MAX;
        // Made at once, so that sockets opened before one that fails leave their group in order.
        let mut link = Self {
            sockets: Vec::with_capacity(config.addresses.len()),
            groups: RwLock::default(),
            port,
            scope_id: config.scope_id,
            window_bytes: 0,
            counters: Counters::default(),
            hot: AtomicUsize::new(0),
            looks: AtomicUsize::new(0),
        };
        for &address in &config.addresses {
            let error = |source: io::Error| match source.kind() {
                io::ErrorKind::AddrInUse => BindError::PortTaken { port, address },
                _ => BindError::Io {
                    port,
                    address,
                    source,
                },
            };
            let meeting = config.meeting.as_ref().filter(|_| port != 0);
            let opened = Endpoint::open(address, port, config.scope_id, meeting);
            let (endpoint, buffer) = match opened {
                Ok(opened) => opened,
                // The interface has just come up and is still asking whether somebody else has the address.
                Err(source)
                    if source.kind() == io::ErrorKind::AddrNotAvailable
                        && scope_of(&address, 1) != 0 =>
                {
                    continue;
                }
                Err(source) => return Err(error(source)),
            };
            if port == 0 {
                let bound = endpoint.socket.local_addr().map_err(error)?;
                port = bound.as_socket().map_or(0, |bound| bound.port());
            }
            room = room.min(buffer);
            link.sockets.push(endpoint);
        }
        // The kernel counts buffers, not bytes, and several QPs share the room.
        link.window_bytes = (room / 4).clamp(64 << 10, 1 << 20);
        link.port = port;
        Ok(link)
    }

    /// The port of all sockets.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The sockets, to be waited for with epoll.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.iter().map(|endpoint| endpoint.socket.as_fd())
    }

    /// Calls `f` with every socket, those of groups included.
    pub fn each_fd(&self, mut f: impl FnMut(BorrowedFd<'_>)) {
        let groups = self.groups.read().unwrap_or_else(PoisonError::into_inner);
        for endpoint in self.sockets.iter().chain(groups.iter()) {
            f(endpoint.socket.as_fd());
        }
    }

    /// As [`Link::receive`], for callers that look again and again: asks the socket that gave something last, and only
    /// each fourth time one of the others. Asking costs a system call, found something or not.
    pub fn receive_quickly(
        &self,
        budget: usize,
        sink: &mut dyn FnMut(&Meta, Arrival<'_>),
    ) -> usize {
        let groups = self.groups.read().unwrap_or_else(PoisonError::into_inner);
        let sockets = self.sockets.len() + groups.len();
        let endpoint = |at: usize| {
            self.sockets
                .get(at)
                .or_else(|| groups.get(at - self.sockets.len()))
        };
        let hot = self.hot.load(Ordering::Relaxed);
        let mut count = endpoint(hot).map_or(0, |e| self.receive_from(e, budget, sink));
        if sockets > 1 {
            let looks = self.looks.load(Ordering::Relaxed).wrapping_add(1);
            self.looks.store(looks, Ordering::Relaxed);
            if looks.is_multiple_of(ASK_ANOTHER) && count < budget {
                let other = (looks / ASK_ANOTHER) % sockets;
                let found =
                    endpoint(other).map_or(0, |e| self.receive_from(e, budget - count, sink));
                if found > 0 {
                    self.hot.store(other, Ordering::Relaxed);
                }
                count += found;
            }
        }
        count
    }

    /// Whether another thread is just taking datagrams out of a socket. What it has taken it has not handed out yet.
    #[must_use]
    pub fn is_being_read(&self) -> bool {
        let groups = self.groups.read().unwrap_or_else(PoisonError::into_inner);
        self.sockets
            .iter()
            .chain(groups.iter())
            .any(|endpoint| try_lock(&endpoint.receiver).is_none())
    }

    fn receive_from(
        &self,
        endpoint: &Endpoint,
        budget: usize,
        sink: &mut dyn FnMut(&Meta, Arrival<'_>),
    ) -> usize {
        let Some(mut receiver) = try_lock(&endpoint.receiver) else {
            return 0;
        };
        let count = receiver.receive(endpoint, self.port, budget, &self.counters, sink);
        endpoint
            .leftover
            .store(receiver.has_leftover(), Ordering::Release);
        count
    }

    /// What happened so far.
    #[must_use]
    pub fn counters(&self) -> UdpCounters {
        let Counters {
            received,
            missed,
            bad_icrc,
            malformed,
            sent,
            send_errors,
        } = &self.counters;
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        UdpCounters {
            received: load(received),
            missed: load(missed),
            bad_icrc: load(bad_icrc),
            malformed: load(malformed),
            sent: load(sent),
            send_errors: load(send_errors),
        }
    }

    /// The way to `path.dgid`. `own_gids` are those of the device that the sockets belong to; the made-up ones among
    /// them are reached on an address that has a socket. `None` if no socket has an address of the right family.
    #[must_use]
    pub fn route(&self, path: &Path, own_gids: &[Gid]) -> Option<UdpRoute> {
        let addresses: Vec<_> = self
            .sockets
            .iter()
            .map(|endpoint| endpoint.address)
            .collect();
        route::resolve(&addresses, self.port, self.scope_id, path, own_gids)
    }

    /// Adds one packet (base transport header to padding, no ICRC) to the batch of its socket, which leaves when it is
    /// full or at the next [`UdpLink::flush`].
    ///
    /// Errors: [`SendError::Full`] when the socket takes no more, [`SendError::Unreachable`] when the route is that of
    /// other sockets.
    pub fn send(&self, to: &UdpRoute, packet: &[u8]) -> Result<(), SendError> {
        let endpoint = self.sockets.get(to.socket).ok_or(SendError::Unreachable)?;
        let mut batch = lock(&endpoint.batch);
        batch.push(endpoint, to, packet, &self.counters)?;
        endpoint.dirty.store(true, Ordering::Release);
        Ok(())
    }

    /// Ends a batch: sends what is still held back.
    pub fn flush(&self) {
        for endpoint in &self.sockets {
            if endpoint.dirty.load(Ordering::Acquire)
                && endpoint.dirty.swap(false, Ordering::AcqRel)
            {
                lock(&endpoint.batch).flush(endpoint, &self.counters);
            }
        }
    }
}

impl Endpoint {
    fn open(
        address: IpAddr,
        port: u16,
        scope_id: u32,
        meeting: Option<&Meeting>,
    ) -> io::Result<(Self, usize)> {
        let socket = Socket::new(
            Domain::for_address(SocketAddr::new(address, port)),
            Type::DGRAM,
            None,
        )?;
        rustix::net::sockopt::set_socket_reuseport(&socket, true)?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
            adverb_mem::sockopt::accept_zero_checksum_v6(&socket)?;
        }
        // Root may exceed the limit of the system; others get what it allows.
        if rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER).is_err()
        {
            socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
        }
        socket.set_send_buffer_size(SEND_BUFFER)?;
        if address.is_multicast() {
            // Unlike ports, groups are not anybody's: other users may listen, too.
            socket.set_reuse_address(true)?;
        } else {
            group::send_through(&socket, address, scope_id)?;
        }
        let local = match address {
            IpAddr::V4(_) => SocketAddr::new(address, port),
            IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, scope_of(&address, scope_id)).into(),
        };
        let scope_id = scope_of(&address, scope_id);
        let steering = meeting.and_then(|meeting| Steering::new(meeting, address, scope_id));
        let ledger = steering.as_ref().and_then(Steering::enter);
        socket.bind(&local.into())?;
        if let Some(steering) = &steering {
            steering.joined(ledger, &socket);
        }
        let state = UdpSocketState::new((&socket).into())?;
        adverb_mem::sockopt::no_timestamps(&socket)?;
        adverb_mem::sockopt::tell_hops_and_class(&socket, address.is_ipv6())?;
        let buffer = socket.recv_buffer_size()?;
        let endpoint = Self {
            address,
            socket,
            state,
            steering,
            batch: Mutex::new(Batch::new()),
            dirty: AtomicBool::new(false),
            receiver: Mutex::new(Receiver::new()),
            leftover: AtomicBool::new(false),
        };
        Ok((endpoint, buffer))
    }
}

impl Drop for UdpLink {
    fn drop(&mut self) {
        for endpoint in self.sockets.drain(..) {
            if let Some(steering) = endpoint.steering {
                steering.leave(endpoint.socket);
            }
        }
    }
}

/// Only link-local addresses and groups belong to an interface.
fn scope_of(address: &IpAddr, scope_id: u32) -> u32 {
    match address {
        IpAddr::V6(ip) if ip.is_unicast_link_local() || ip.is_multicast() => scope_id,
        _ => 0,
    }
}

impl Link for UdpLink {
    fn window_bytes(&self) -> usize {
        self.window_bytes
    }

    fn receive(&self, budget: usize, sink: &mut dyn FnMut(&Meta, Arrival<'_>)) -> usize {
        let mut count = 0;
        let groups = self.groups.read().unwrap_or_else(PoisonError::into_inner);
        for endpoint in self.sockets.iter().chain(groups.iter()) {
            if count == budget {
                break;
            }
            count += self.receive_from(endpoint, budget - count, sink);
        }
        count
    }

    fn has_inbound(&self) -> bool {
        let groups = self.groups.read().unwrap_or_else(PoisonError::into_inner);
        self.sockets
            .iter()
            .chain(groups.iter())
            .any(|endpoint| endpoint.leftover.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests;
