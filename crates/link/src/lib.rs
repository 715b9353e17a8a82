//! How packets travel: inside a process, between processes of one host, and over UDP.
//!
//! A link moves whole RoCE packets (base transport header to padding, without the ICRC) and, inside a host, trains of
//! them, and knows nothing of queue pairs. What it adds to a packet is [`Meta`]: the addresses, as a GRH would carry them.
//!
//! | file | what lives there |
//! |---|---|
//! | [`loopback`] | a queue inside the process |
//! | [`shm`] | rings between the processes of one user on one host; `place.rs` (who is there), `peer.rs` (one outbound ring), `inbound.rs` (rings of others), `record.rs` (how a packet lies in a ring) |
//! | [`udp`] | RoCEv2 datagrams; ICRC, batching; `steer.rs` (which process the kernel gives them to) |
//! | [`qpn`] | how a queue pair number names its process |
//!
//! Nothing here retries, orders or acknowledges: that is the engine's business. Nothing here decides which link a
//! packet takes either: the NIC does. Each link's `send` takes what the link calls a destination.

#![forbid(unsafe_code)]

mod lock;
pub mod loopback;
pub mod qpn;
pub mod shm;
pub mod udp;

use std::net::IpAddr;

use adverb_mem::{Source, Target};
use adverb_wire::Gid;

pub use loopback::Loopback;
pub use shm::{Place, ShmLink};
pub use udp::UdpLink;

/// A train counts in a batch and against a bound as one packet for so many bytes of payload, or part thereof.
const TRAIN_UNIT: usize = 4096;

/// The longest packet any link takes: 4096 bytes of payload, every header that can stand before it, and padding.
pub const MAX_PACKET: usize = 4096 + 128;

/// What an address handle or a connected QP says about the way to its peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Path {
    /// Our address.
    pub sgid: Gid,
    /// The peer's address.
    pub dgid: Gid,
    /// Traffic class (IPv6) or type of service (IPv4).
    pub traffic_class: u8,
    /// Hops that the packet may take.
    pub hop_limit: u8,
    /// Flow label (IPv6).
    pub flow_label: u32,
}

/// The addresses of a packet, on every link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Meta {
    /// Who sent it.
    pub src: IpAddr,
    /// To whom.
    pub dst: IpAddr,
    /// Traffic class or type of service.
    pub traffic_class: u8,
    /// Hop limit or time to live.
    pub hop_limit: u8,
    /// It came from a socket, perhaps another process's: then anybody may have sent it, whatever addresses it names.
    pub outside: bool,
}

impl Meta {
    /// The addresses of a packet that takes `path`.
    #[must_use]
    pub fn of(path: &Path) -> Self {
        Self {
            src: path.sgid.to_ip(),
            dst: path.dgid.to_ip(),
            traffic_class: path.traffic_class,
            hop_limit: path.hop_limit,
            outside: false,
        }
    }
}

/// What a link brings.
#[derive(Debug)]
pub enum Arrival<'a> {
    /// A packet, from its base transport header to its padding.
    Packet(&'a [u8]),
    /// A train ([`adverb_wire::Train`]): its head, and where its payload is.
    Train {
        /// In memory of our own.
        head: &'a [u8],
        /// Perhaps in memory that the sender can change at any time.
        payload: Source<'a>,
    },
}

impl Arrival<'_> {
    /// The packet, if it is one.
    #[must_use]
    pub const fn packet(&self) -> Option<&[u8]> {
        match self {
            Self::Packet(packet) => Some(packet),
            Self::Train { .. } => None,
        }
    }
}

/// Room for a train, on the link that takes it. Dropped, it is given up.
#[derive(Debug)]
pub enum Berth<'a> {
    /// In a ring.
    Shm(shm::Berth),
    /// In a buffer of this process.
    Loopback(loopback::Berth<'a>),
}

impl Berth<'_> {
    /// Where the payload goes.
    pub fn payload(&mut self) -> Target<'_> {
        match self {
            Self::Shm(berth) => berth.payload(),
            Self::Loopback(berth) => berth.payload(),
        }
    }

    /// Sends the train, whose payload is complete.
    ///
    /// # Panics
    /// When the head is longer than [`adverb_wire::Train::MAX_HEAD`].
    pub fn send(self, head: &[u8]) {
        match self {
            Self::Shm(berth) => berth.send(head),
            Self::Loopback(berth) => berth.send(head),
        }
    }
}

/// Why a packet was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// No room now. The caller keeps the packet; the link's descriptor or bell says when to try again.
    #[error("the link is full")]
    Full,
    /// Nobody is there (any more).
    #[error("the destination cannot be reached")]
    Unreachable,
}

/// Something that moves packets.
pub trait Link: Send + Sync {
    /// How many bytes one QP may have in flight.
    fn window_bytes(&self) -> usize;

    /// Hands what waits, at most `budget` packets, to `sink`; says how many. A train is handed out whole and counts as the
    /// packets it saves, so it may be more. What another thread is handing out at the
    /// moment is left to it, so that packets keep their order.
    fn receive(&self, budget: usize, sink: &mut dyn FnMut(&Meta, Arrival<'_>)) -> usize;

    /// Whether something waits. A cheap look without a system call, except for sockets, whose descriptors must be
    /// polled instead; for them the answer is always false.
    fn has_inbound(&self) -> bool;
}
