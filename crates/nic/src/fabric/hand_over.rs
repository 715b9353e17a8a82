//! Packets that came to our socket and belong to another process of this user.
//!
//! The processes of a user share the RoCE port, and the kernel gives a datagram to any of them. The number of a queue pair
//! names its process, and our ring takes the packet there. When the ring is full its reader is stopped or slow, and the
//! packet is lost, as it would be in a full socket: to wait for him would hold up everybody else.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use adverb_engine::Instant;
use adverb_link::shm::ShmRoute;
use adverb_link::{Meta, SendError, qpn};

use super::Fabric;
use crate::sync::LockExt;

#[derive(Default)]
pub(super) struct HandOver {
    /// Finding a process costs system calls, so each is found once.
    routes: Mutex<HashMap<u16, ShmRoute>>,
    /// Packets that a full ring had no room for.
    lost: AtomicU64,
}

impl Fabric {
    /// Hands a packet to the process that owns queue pair `number`. False if nobody does.
    pub(crate) fn hand_over(&self, number: u32, meta: &Meta, bytes: &[u8], now: Instant) -> bool {
        self.hand_over_to(qpn::slot_of(number), meta, bytes, now)
    }

    /// Hands a packet to the process at `slot`. False if there is none, or if it is ourselves.
    pub(crate) fn hand_over_to(&self, slot: u16, meta: &Meta, bytes: &[u8], now: Instant) -> bool {
        if slot == 0 || slot == self.slot {
            return false;
        }
        let Some(to) = self.way_of_others(slot) else {
            return false;
        };
        match self.send_to_process(&to, meta, bytes, now) {
            Ok(()) => true,
            Err(SendError::Full) => {
                self.hand_over.lost.fetch_add(1, Ordering::Relaxed);
                true
            }
            Err(SendError::Unreachable) => false,
        }
    }

    fn way_of_others(&self, slot: u16) -> Option<ShmRoute> {
        let mut routes = self.hand_over.routes.acquire();
        if let Some(route) = routes.get(&slot).filter(|r| !r.is_dead()) {
            return Some(route.clone());
        }
        let route = self.shm.route(slot)?;
        routes.insert(slot, route.clone());
        Some(route)
    }

    /// The ways to processes that have ended are given up.
    pub(super) fn forget_dead_routes(&self) {
        let mut routes = self.hand_over.routes.acquire();
        routes.retain(|_, route| !route.is_dead());
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use adverb_link::{Arrival, Link, Place, ShmLink};

    use super::*;
    use crate::clock;
    use crate::config::Config;

    const META: Meta = Meta {
        src: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
        dst: IpAddr::V4(Ipv4Addr::LOCALHOST),
        traffic_class: 0,
        hop_limit: 64,
        outside: true,
    };

    fn take(link: &ShmLink) -> Vec<u32> {
        let mut got = Vec::new();
        let mut sink = |meta: &Meta, arrival: Arrival<'_>| {
            let bytes = arrival.packet().unwrap();
            assert!(meta.outside, "it stays what it was");
            got.push(u32::from_le_bytes(bytes[..4].try_into().unwrap()));
        };
        while link.receive(64, &mut sink) > 0 {}
        got
    }

    #[test]
    fn who_takes_nothing_loses_his_own_packets_and_others_get_theirs_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let fabric = Fabric::new(
            &Config::from_env().unwrap(),
            Place::join(dir.path()).unwrap(),
        )
        .unwrap();
        let stopped = ShmLink::new(Place::join(dir.path()).unwrap());
        let awake = ShmLink::new(Place::join(dir.path()).unwrap());
        let packet = |n: u32| {
            let mut bytes = [0; 1000];
            bytes[..4].copy_from_slice(&n.to_le_bytes());
            bytes
        };
        const MANY: u32 = 5000;
        let mut got = Vec::new();
        for n in 0..MANY {
            for link in [&stopped, &awake] {
                assert!(fabric.hand_over_to(link.slot(), &META, &packet(n), clock::now()));
            }
            got.extend(take(&awake));
        }
        assert_eq!(got, (0..MANY).collect::<Vec<_>>());
        let kept = take(&stopped);
        let lost = fabric.hand_over.lost.load(Ordering::Relaxed);
        assert!(lost > 0, "the ring has a bound");
        assert_eq!(kept, (0..MANY - lost as u32).collect::<Vec<_>>());
        // He goes on, and gets what comes now.
        assert!(fabric.hand_over_to(stopped.slot(), &META, &packet(7), clock::now()));
        assert_eq!(take(&stopped), [7]);
        assert!(!fabric.hand_over_to(fabric.slot, &META, &packet(1), clock::now()));
        let gone = awake.slot();
        drop(awake);
        fabric.probe(gone);
        assert!(!fabric.hand_over_to(gone, &META, &packet(1), clock::now()));
    }
}
