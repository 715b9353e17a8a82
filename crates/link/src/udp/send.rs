//! Packets of one size to one destination leave in one system call.
//!
//! The kernel cuts the send into datagrams (GSO), or does not even that where the receiver takes it whole (loopback
//! with GRO). That is what makes UDP fast: a call per datagram stops at 2 GB/s.

use std::io;
use std::net::IpAddr;

use adverb_mem::datagram::{self, Envelope};
use adverb_wire::{Bth, Opcode, Operation, icrc};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::steer::slot_in;
use super::{Counters, Endpoint, UdpRoute};
use crate::SendError;
use std::sync::atomic::Ordering;

/// Packets that wait for the end of a batch: equal in size, except that the last may be shorter.
#[derive(Debug)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    /// Where the packets go; meaningless while there are none.
    route: Option<UdpRoute>,
    /// Size of each datagram but the last.
    segment: usize,
    count: usize,
}

/// An acknowledgement without its ICRC.
const ACK_LEN: usize = Bth::LEN + 4;
/// A UDP datagram over IPv4 has at most this payload, and a segmented send counts as one.
const MAX_BYTES: usize = 65_507;
/// How long a flush waits for a network card that takes nothing. After that the packets count as lost.
const PATIENCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 10_000_000,
};

impl Batch {
    pub(super) fn new() -> Self {
        Self {
            bytes: Vec::with_capacity(MAX_BYTES),
            route: None,
            segment: 0,
            count: 0,
        }
    }

    /// Adds a packet; sends what is there before if the packet does not fit it.
    pub(super) fn push(
        &mut self,
        endpoint: &Endpoint,
        route: &UdpRoute,
        packet: &[u8],
        counters: &Counters,
    ) -> Result<(), SendError> {
        let len = packet.len() + icrc::LEN;
        if len > MAX_BYTES || packet.len() < Bth::LEN {
            return Err(SendError::Unreachable);
        }
        if let Some(ack) = self.lone_ack(route, len) {
            self.clear();
            self.push(endpoint, route, packet, counters)?;
            return self.push(endpoint, route, &ack, counters);
        }
        if self.count > 0 && !self.takes(route, packet, endpoint.state.max_gso_segments()) {
            self.try_send(endpoint, counters)
                .map_err(|_| SendError::Full)?;
        }
        if self.count == 0 {
            self.route = Some(*route);
            self.segment = len;
        }
        let addressing = addressing(route, self.count).ok_or(SendError::Unreachable)?;
        self.bytes.extend_from_slice(packet);
        self.bytes
            .extend_from_slice(&icrc::compute(&addressing, packet));
        self.count += 1;
        Ok(())
    }

    /// The acknowledgement that is all the batch holds, if a packet of `len` bytes to the same place can go before it.
    /// Only the last of a segmented send may be shorter, and nothing depends on the order of the two: the peer takes
    /// them in together.
    fn lone_ack(&self, route: &UdpRoute, len: usize) -> Option<[u8; ACK_LEN]> {
        let (ack, _sum) = self.bytes.split_first_chunk::<ACK_LEN>()?;
        let alone = self.count == 1 && self.bytes.len() == ACK_LEN + icrc::LEN;
        let acknowledges = matches!(
            Opcode::from_u8(ack[0]),
            Some(Opcode::Roce(_, Operation::Acknowledge))
        );
        (alone && acknowledges && len > self.segment && self.route.as_ref() == Some(route))
            .then_some(*ack)
    }

    /// What comes in one piece is given to one process there, so a batch is for one.
    fn takes(&self, route: &UdpRoute, packet: &[u8], max_segments: usize) -> bool {
        let len = packet.len() + icrc::LEN;
        self.route.as_ref() == Some(route)
            && slot_in(&self.bytes) == slot_in(packet)
            && len <= self.segment
            && self.bytes.len() == self.count * self.segment
            && self.count < max_segments
            && self.bytes.len() + len <= MAX_BYTES
    }

    /// Sends what is there, waiting a little for room if there is none.
    pub(super) fn flush(&mut self, endpoint: &Endpoint, counters: &Counters) {
        if self.try_send(endpoint, counters).is_ok() {
            return;
        }
        let mut writable = [PollFd::new(&endpoint.socket, PollFlags::OUT)];
        let _ = poll(&mut writable, Some(&PATIENCE));
        if self.try_send(endpoint, counters).is_err() {
            counters
                .send_errors
                .fetch_add(self.count as u64, Ordering::Relaxed);
            self.clear();
        }
    }

    /// An error means that the socket has no room, and the packets are still here. Whatever else the kernel says
    /// against a packet is as good as a loss on the way.
    fn try_send(&mut self, endpoint: &Endpoint, counters: &Counters) -> Result<(), io::Error> {
        let Some(route) = self.route.filter(|_| self.count > 0) else {
            return Ok(());
        };
        match transmit(endpoint, &route, &self.bytes, self.segment) {
            Ok(()) => {
                counters
                    .sent
                    .fetch_add(self.count as u64, Ordering::Relaxed);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
            // A device that cannot segment says so with an error. One by one they may pass.
            Err(_) if self.count > 1 => self.send_singly(endpoint, &route, counters),
            Err(_) => {
                counters.send_errors.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.clear();
        Ok(())
    }

    fn send_singly(&mut self, endpoint: &Endpoint, route: &UdpRoute, counters: &Counters) {
        for datagram in self.bytes.chunks_mut(self.segment) {
            let end = datagram.len() - icrc::LEN;
            let (packet, sum) = datagram.split_at_mut(end);
            if let Some(addressing) = addressing(route, 0) {
                sum.copy_from_slice(&icrc::compute(&addressing, packet));
            }
            let counter = match transmit(endpoint, route, datagram, self.segment) {
                Ok(()) => &counters.sent,
                Err(_) => &counters.send_errors,
            };
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.count = 0;
        self.route = None;
    }
}

fn transmit(
    endpoint: &Endpoint,
    route: &UdpRoute,
    contents: &[u8],
    segment: usize,
) -> io::Result<()> {
    let envelope = Envelope {
        to: route.dst,
        traffic_class: route.traffic_class,
        // A batch is no longer than a datagram.
        segment: (segment < contents.len()).then_some(segment as u16),
    };
    datagram::send(&endpoint.socket, &envelope, contents)
}

/// What the ICRC covers of the headers that the kernel will make for the `k`-th datagram of a send.
fn addressing(route: &UdpRoute, k: usize) -> Option<icrc::Addressing> {
    addressing_of(
        route.src,
        route.dst.ip(),
        route.dst.port(),
        route.dst.port(),
    )
    .map(|a| a.with_id(k as u16))
}

/// `None` if the families differ.
pub(super) fn addressing_of(
    src: IpAddr,
    dst: IpAddr,
    src_port: u16,
    dst_port: u16,
) -> Option<icrc::Addressing> {
    let mut addressing = icrc::Addressing::new(src, dst, src_port)?;
    addressing.dst_port = dst_port;
    Some(addressing)
}
