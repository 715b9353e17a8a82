//! Datagrams in: many per system call, each checked against its ICRC.

use std::io::IoSliceMut;

use adverb_mem::Uncancelled;
use adverb_wire::{Bth, icrc};
use quinn_udp::RecvMeta;

use super::send::addressing_of;
use super::{Counters, Endpoint};
use crate::Meta;
use std::sync::atomic::Ordering;

/// Buffers, and how far the packets in them have been handed out.
#[derive(Debug)]
pub(super) struct Receiver {
    buffers: [Vec<u8>; BUFFERS],
    metas: [RecvMeta; BUFFERS],
    /// Buffers that hold something.
    filled: usize,
    /// The buffer and the offset in it that are next.
    next: (usize, usize),
}

/// Buffers per system call.
const BUFFERS: usize = 8;
/// What coalesced datagrams (GRO) can add up to.
const BUFFER_BYTES: usize = 1 << 16;
/// The kernel does not say what hop limit a datagram had left.
const HOP_LIMIT: u8 = 64;

impl Receiver {
    pub(super) fn new() -> Self {
        Self {
            buffers: std::array::from_fn(|_| vec![0; BUFFER_BYTES]),
            metas: [RecvMeta::default(); BUFFERS],
            filled: 0,
            next: (0, 0),
        }
    }

    /// Whether packets wait here that the socket no longer shows.
    pub(super) fn has_leftover(&self) -> bool {
        self.next.0 < self.filled
    }

    /// Hands out at most `budget` packets; what is dropped on the way counts against the budget too.
    pub(super) fn receive(
        &mut self,
        endpoint: &Endpoint,
        port: u16,
        budget: usize,
        counters: &Counters,
        sink: &mut dyn FnMut(&Meta, &[u8]),
    ) -> usize {
        let (mut looked_at, mut handed_out) = (0, 0);
        let mut socket_empty = false;
        while looked_at < budget {
            if !self.has_leftover() {
                if socket_empty {
                    break;
                }
                // Anything but a full set of buffers means that the socket had no more. Errors are those of earlier
                // sends (the network said "unreachable"), and the next call goes on behind them.
                self.fetch(endpoint);
                socket_empty = self.filled < BUFFERS;
                continue;
            }
            looked_at += 1;
            handed_out += usize::from(self.hand_out_next(endpoint, port, counters, sink));
        }
        handed_out
    }

    fn fetch(&mut self, endpoint: &Endpoint) {
        let mut slices = self
            .buffers
            .each_mut()
            .map(|buffer| IoSliceMut::new(buffer));
        let _uncancelled = Uncancelled::new();
        let received = endpoint
            .state
            .recv((&endpoint.socket).into(), &mut slices, &mut self.metas);
        self.filled = received.unwrap_or(0);
        self.next = (0, 0);
    }

    fn hand_out_next(
        &mut self,
        endpoint: &Endpoint,
        port: u16,
        counters: &Counters,
        sink: &mut dyn FnMut(&Meta, &[u8]),
    ) -> bool {
        let (index, offset) = self.next;
        let (Some(meta), Some(buffer)) = (self.metas.get(index), self.buffers.get(index)) else {
            self.next = (self.filled, 0);
            return false;
        };
        let end = meta.len.min(buffer.len());
        let segment_end = offset.saturating_add(meta.stride.max(1)).min(end);
        self.next = if segment_end >= end {
            (index + 1, 0)
        } else {
            (index, segment_end)
        };
        let datagram = buffer.get(offset..segment_end).unwrap_or_default();

        let Some((packet, sum)) = datagram.split_last_chunk::<{ icrc::LEN }>() else {
            counters.malformed.fetch_add(1, Ordering::Relaxed);
            return false;
        };
        if packet.len() < Bth::LEN || !packet.len().is_multiple_of(4) {
            counters.malformed.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        let (src, dst) = (meta.addr.ip(), meta.dst_ip.unwrap_or(endpoint.address));
        let addressing = addressing_of(src, dst, meta.addr.port(), port);
        if addressing
            .and_then(|addressing| icrc::matches_any_id(&addressing, packet, *sum))
            .is_none()
        {
            counters.bad_icrc.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        counters.received.fetch_add(1, Ordering::Relaxed);
        let traffic_class = meta.ecn.map_or(0, |ecn| ecn as u8);
        sink(
            &Meta {
                src,
                dst,
                traffic_class,
                hop_limit: HOP_LIMIT,
            },
            packet,
        );
        true
    }
}
