//! Packets from a process to itself: a bounded queue with recycled buffers.
//!
//! Packets are queued and not delivered inside `send`, because the sender holds the lock of a QP at that moment and
//! the receiver may be the same QP.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use adverb_mem::{Source, Target};
use adverb_wire::Train;

use crate::lock::{lock, try_lock};
use crate::{Arrival, Link, MAX_PACKET, Meta, SendError, TRAIN_UNIT};

/// The link of a process to itself.
#[derive(Debug)]
pub struct Loopback {
    queue: Mutex<Queue>,
    /// Held while packets are handed out, so that they keep their order.
    handing_out: Mutex<()>,
    waiting: AtomicUsize,
    bound: usize,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<(Meta, Parcel)>,
    /// As how many packets what waits counts, and the room that is reserved.
    load: usize,
    /// Buffers to use again; never more than the bound of the queue.
    spare: Spare,
}

#[derive(Debug, Default)]
struct Spare {
    packets: Vec<Vec<u8>>,
    trains: Vec<Cargo>,
}

#[derive(Debug)]
enum Parcel {
    Packet(Vec<u8>),
    Train {
        head: [u8; Train::MAX_HEAD],
        head_len: usize,
        payload: Cargo,
    },
}

/// The payload of a train in a buffer that is never made shorter, so that none is zeroed twice.
#[derive(Debug, Default)]
struct Cargo {
    buffer: Vec<u8>,
    len: usize,
}

/// Packets that may wait, by default: two windows of the largest packets.
const DEFAULT_BOUND: usize = 512;

impl Default for Loopback {
    fn default() -> Self {
        Self::new(DEFAULT_BOUND)
    }
}

impl Loopback {
    /// A link on which at most `bound` packets wait.
    #[must_use]
    pub fn new(bound: usize) -> Self {
        Self {
            queue: Mutex::default(),
            handing_out: Mutex::new(()),
            waiting: AtomicUsize::new(0),
            bound,
        }
    }

    /// Queues one packet (base transport header to padding, no ICRC).
    ///
    /// Errors: [`SendError::Full`] when as many packets wait as may.
    pub fn send(&self, meta: &Meta, packet: &[u8]) -> Result<(), SendError> {
        let mut queue = lock(&self.queue);
        if queue.load >= self.bound {
            return Err(SendError::Full);
        }
        queue.load += 1;
        let spare = queue.spare.packets.pop();
        let mut buffer = spare.unwrap_or_else(|| Vec::with_capacity(MAX_PACKET));
        buffer.clear();
        buffer.extend_from_slice(packet);
        self.push(&mut queue, meta, Parcel::Packet(buffer));
        Ok(())
    }

    /// Room for a train with `len` bytes of payload.
    ///
    /// Errors: [`SendError::Full`] when as many packets wait as may; a train counts as the packets it saves.
    pub fn reserve(&self, meta: &Meta, len: usize) -> Result<Berth<'_>, SendError> {
        let mut queue = lock(&self.queue);
        if queue.load >= self.bound {
            return Err(SendError::Full);
        }
        queue.load += units(len);
        let mut payload = queue.spare.trains.pop().unwrap_or_default();
        drop(queue);
        payload.fit(len);
        Ok(Berth {
            link: self,
            meta: *meta,
            payload,
            sent: false,
        })
    }

    fn push(&self, queue: &mut Queue, meta: &Meta, parcel: Parcel) {
        queue.waiting.push_back((*meta, parcel));
        self.waiting.store(queue.waiting.len(), Ordering::Release);
    }
}

/// As how many packets a train counts.
const fn units(len: usize) -> usize {
    len.div_ceil(TRAIN_UNIT)
}

impl Cargo {
    fn fit(&mut self, len: usize) {
        if self.buffer.len() < len {
            self.buffer.resize(len, 0);
        }
        self.len = len;
    }
}

impl Parcel {
    const fn units(&self) -> usize {
        match self {
            Self::Packet(_) => 1,
            Self::Train { payload, .. } => units(payload.len),
        }
    }
}

/// A train that is being loaded. Dropped, it is given up.
#[derive(Debug)]
pub struct Berth<'a> {
    link: &'a Loopback,
    meta: Meta,
    payload: Cargo,
    sent: bool,
}

impl Berth<'_> {
    /// Where the payload goes.
    pub(crate) fn payload(&mut self) -> Target<'_> {
        Target::of(&mut self.payload.buffer[..self.payload.len])
    }

    /// Sends the train.
    pub(crate) fn send(mut self, bytes: &[u8]) {
        let mut head = [0; Train::MAX_HEAD];
        head[..bytes.len()].copy_from_slice(bytes);
        let train = Parcel::Train {
            head,
            head_len: bytes.len(),
            payload: std::mem::take(&mut self.payload),
        };
        self.sent = true;
        let mut queue = lock(&self.link.queue);
        self.link.push(&mut queue, &self.meta, train);
    }
}

impl Drop for Berth<'_> {
    fn drop(&mut self) {
        if !self.sent {
            let mut queue = lock(&self.link.queue);
            queue.load -= units(self.payload.len);
            queue.spare.trains.push(std::mem::take(&mut self.payload));
        }
    }
}

impl Link for Loopback {
    fn window_bytes(&self) -> usize {
        256 * 4096
    }

    fn receive(&self, budget: usize, sink: &mut dyn FnMut(&Meta, Arrival<'_>)) -> usize {
        if !self.has_inbound() {
            return 0;
        }
        let Some(_guard) = try_lock(&self.handing_out) else {
            return 0;
        };
        let mut count = 0;
        while count < budget {
            let next = {
                let mut queue = lock(&self.queue);
                let next = queue.waiting.pop_front();
                let load = next.as_ref().map_or(0, |(_, parcel)| parcel.units());
                queue.load -= load;
                count += load;
                self.waiting.store(queue.waiting.len(), Ordering::Release);
                next
            };
            let Some((meta, parcel)) = next else { break };
            match parcel {
                Parcel::Packet(packet) => {
                    sink(&meta, Arrival::Packet(&packet));
                    lock(&self.queue).spare.packets.push(packet);
                }
                Parcel::Train {
                    head,
                    head_len,
                    payload,
                } => {
                    let arrival = Arrival::Train {
                        head: &head[..head_len],
                        payload: Source::of(&payload.buffer[..payload.len]),
                    };
                    sink(&meta, arrival);
                    lock(&self.queue).spare.trains.push(payload);
                }
            }
        }
        count
    }

    fn has_inbound(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};

    fn bytes(arrival: Arrival<'_>) -> Vec<u8> {
        match arrival {
            Arrival::Packet(packet) => packet.to_vec(),
            Arrival::Train { head, payload } => {
                let mut all = head.to_vec();
                all.resize(head.len() + payload.len(), 0);
                payload.copy(0, &mut all[head.len()..]);
                all
            }
        }
    }

    const META: Meta = Meta {
        src: IpAddr::V4(Ipv4Addr::LOCALHOST),
        dst: IpAddr::V4(Ipv4Addr::LOCALHOST),
        traffic_class: 1,
        hop_limit: 2,
        outside: false,
    };

    #[test]
    fn packets_keep_their_order_and_the_queue_its_bound() {
        let link = Loopback::new(3);
        for round in 0..4u8 {
            for n in 0..3 {
                link.send(&META, &[round, n]).unwrap();
            }
            assert_eq!(link.send(&META, &[0]), Err(SendError::Full));
            let mut got = Vec::new();
            assert_eq!(
                link.receive(2, &mut |meta, packet| got.push((*meta, bytes(packet)))),
                2
            );
            assert!(link.has_inbound());
            assert_eq!(
                link.receive(9, &mut |meta, packet| got.push((*meta, bytes(packet)))),
                1
            );
            assert!(!link.has_inbound());
            assert_eq!(got, [0, 1, 2].map(|n| (META, vec![round, n])));
        }
    }

    #[test]
    fn the_sink_may_send_and_receive() {
        let link = Loopback::new(8);
        link.send(&META, &[1]).unwrap();
        let mut got = Vec::new();
        link.receive(10, &mut |_, packet| {
            let n = bytes(packet)[0];
            got.push(n);
            if n < 4 {
                link.send(&META, &[n + 1]).unwrap();
            }
            assert_eq!(
                link.receive(10, &mut |_, _| panic!("handed out out of order")),
                0
            );
        });
        assert_eq!(got, [1, 2, 3, 4]);
    }

    #[test]
    fn a_train_counts_as_its_packets_and_one_that_is_given_up_as_none() {
        let link = Loopback::new(3);
        for len in [9000, 5000, 9000] {
            let mut berth = link.reserve(&META, len).unwrap();
            berth.payload().put(0, &vec![7; len]);
            berth.send(&[1, 2]);
            link.reserve(&META, 1).map(drop).unwrap_or_default();
            let full = len > 8192;
            assert_eq!(link.send(&META, &[3]).is_err(), full);
            let mut got = Vec::new();
            let count = link.receive(9, &mut |_, arrival| got.push(bytes(arrival)));
            assert_eq!(count, 3, "three units, or two and a packet");
            assert_eq!(got[0], [&[1, 2], &vec![7; len][..]].concat());
            assert_eq!(got.len(), if full { 1 } else { 2 });
        }
    }
}
