//! Datagrams in: each checked against its ICRC. The kernel puts together what came in one piece (GRO).

use std::sync::atomic::Ordering;

use adverb_mem::datagram::{self, Received};
use adverb_wire::{Bth, icrc};

use super::send::addressing_of;
use super::{Counters, Endpoint};
use crate::{Arrival, Meta};

/// A buffer, and how far the packets in it have been handed out.
#[derive(Debug)]
pub(super) struct Receiver {
    buffer: Vec<u8>,
    /// What the buffer holds, until all of it has been handed out.
    received: Option<Received>,
    /// Where the next datagram begins.
    next: usize,
    /// The look before this one found something, too: there may be a queue.
    streak: bool,
}

/// What coalesced datagrams (GRO) can add up to.
const BUFFER_BYTES: usize = 1 << 16;
/// For a kernel that does not say what hop limit a datagram had left.
const HOP_LIMIT: u8 = 64;

impl Receiver {
    pub(super) fn new() -> Self {
        Self {
            buffer: vec![0; BUFFER_BYTES],
            received: None,
            next: 0,
            streak: false,
        }
    }

    /// Whether packets wait here that the socket no longer shows.
    pub(super) fn has_leftover(&self) -> bool {
        self.received.is_some()
    }

    /// Hands out at most `budget` packets; what is dropped on the way counts against the budget too.
    ///
    /// A system call that finds nothing costs as much as one that does. So after a single datagram, with nothing found
    /// the time before, the socket is taken to be empty: of two that play ping-pong neither asks in vain for more.
    pub(super) fn receive(
        &mut self,
        endpoint: &Endpoint,
        port: u16,
        budget: usize,
        counters: &Counters,
        sink: &mut dyn FnMut(&Meta, Arrival<'_>),
    ) -> usize {
        let (mut looked_at, mut handed_out) = (0, 0);
        let mut queued = std::mem::take(&mut self.streak) || self.has_leftover();
        let mut asked = false;
        while looked_at < budget {
            if self.received.is_none() {
                if asked && !queued {
                    break;
                }
                asked = true;
                // Errors are those of earlier sends (the network said "unreachable"), and the next call goes on
                // behind them.
                self.received = datagram::receive(&endpoint.socket, &mut self.buffer).ok();
                self.next = 0;
                let Some(received) = &self.received else {
                    break;
                };
                self.streak = true;
                queued |= received.segment < received.len;
            }
            looked_at += 1;
            handed_out += usize::from(self.hand_out_next(endpoint, port, counters, sink));
        }
        handed_out
    }

    fn hand_out_next(
        &mut self,
        endpoint: &Endpoint,
        port: u16,
        counters: &Counters,
        sink: &mut dyn FnMut(&Meta, Arrival<'_>),
    ) -> bool {
        let Some(received) = self.received else {
            return false;
        };
        let end = received.len.min(self.buffer.len());
        let first = self.next == 0;
        let segment_end = self.next.saturating_add(received.segment).min(end);
        let datagram = self.buffer.get(self.next..segment_end).unwrap_or_default();
        self.next = segment_end;
        if segment_end >= end {
            self.received = None;
        }
        let Some((packet, sum)) = datagram.split_last_chunk::<{ icrc::LEN }>() else {
            counters.malformed.fetch_add(1, Ordering::Relaxed);
            return false;
        };
        if packet.len() < Bth::LEN || !packet.len().is_multiple_of(4) {
            counters.malformed.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        let (src, dst) = (received.from.ip(), endpoint.address);
        let addressing = addressing_of(src, dst, received.from.port(), port);
        if addressing
            .and_then(|addressing| icrc::matches_any_id(&addressing, packet, *sum))
            .is_none()
        {
            counters.bad_icrc.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        counters.received.fetch_add(1, Ordering::Relaxed);
        if let Some(steering) = &endpoint.steering
            && let Some(slot) = steering.other_owner(packet)
        {
            counters.missed.fetch_add(1, Ordering::Relaxed);
            // The kernel has looked at the first of several that came in one piece.
            if first {
                steering.missed(slot, &endpoint.socket);
            }
        }
        sink(
            &Meta {
                src,
                dst,
                traffic_class: received.traffic_class,
                hop_limit: received.hop_limit.unwrap_or(HOP_LIMIT),
                outside: true,
            },
            Arrival::Packet(packet),
        );
        true
    }
}
