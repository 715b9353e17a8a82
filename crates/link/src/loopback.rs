//! Packets from a process to itself: a bounded queue with recycled buffers.
//!
//! Packets are queued and not delivered inside `send`, because the sender holds the lock of a QP at that moment and
//! the receiver may be the same QP.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::lock::{lock, try_lock};
use crate::{Link, MAX_PACKET, Meta, SendError};

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
    packets: VecDeque<(Meta, Vec<u8>)>,
    /// Buffers to use again; never more than the bound of the queue.
    spare: Vec<Vec<u8>>,
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
        if queue.packets.len() >= self.bound {
            return Err(SendError::Full);
        }
        let mut buffer = queue
            .spare
            .pop()
            .unwrap_or_else(|| Vec::with_capacity(MAX_PACKET));
        buffer.clear();
        buffer.extend_from_slice(packet);
        queue.packets.push_back((*meta, buffer));
        self.waiting.store(queue.packets.len(), Ordering::Release);
        Ok(())
    }
}

impl Link for Loopback {
    fn window_bytes(&self) -> usize {
        256 * 4096
    }

    fn receive(&self, budget: usize, sink: &mut dyn FnMut(&Meta, &[u8])) -> usize {
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
                let next = queue.packets.pop_front();
                self.waiting.store(queue.packets.len(), Ordering::Release);
                next
            };
            let Some((meta, packet)) = next else { break };
            sink(&meta, &packet);
            lock(&self.queue).spare.push(packet);
            count += 1;
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
                link.receive(2, &mut |meta, packet| got.push((*meta, packet.to_vec()))),
                2
            );
            assert!(link.has_inbound());
            assert_eq!(
                link.receive(9, &mut |meta, packet| got.push((*meta, packet.to_vec()))),
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
            got.push(packet[0]);
            if packet[0] < 4 {
                link.send(&META, &[packet[0] + 1]).unwrap();
            }
            assert_eq!(
                link.receive(10, &mut |_, _| panic!("handed out out of order")),
                0
            );
        });
        assert_eq!(got, [1, 2, 3, 4]);
    }
}
