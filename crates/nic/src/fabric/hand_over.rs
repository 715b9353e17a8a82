//! Packets that came to our socket and belong to another process of this user.
//!
//! The processes of a user share the RoCE port, and the kernel gives a datagram to any of them.
//! The number of a queue pair names its process, and its ring takes the packet there. When the
//! ring is full the packet waits here and the rest waits in the socket.

use std::collections::HashMap;
use std::sync::Mutex;

use adverb_engine::Instant;
use adverb_link::shm::ShmRoute;
use adverb_link::{Meta, SendError, qpn};

use super::Fabric;
use crate::sync::LockExt;

/// Nothing is read from sockets while something waits here.
#[derive(Default)]
pub(super) struct HandOver {
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    /// Finding a process costs system calls, so each is found once.
    routes: HashMap<u16, ShmRoute>,
    waiting: Vec<Packet>,
    since: Instant,
}

struct Packet {
    to: ShmRoute,
    meta: Meta,
    bytes: Vec<u8>,
}

/// A process that takes nothing for this long loses its packets, so that the others get theirs.
const PATIENCE_NS: u64 = 100_000_000;

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
        let mut held = self.hand_over.held.acquire();
        let to = match held.routes.get(&slot).filter(|r| !r.is_dead()) {
            Some(route) => route.clone(),
            None => {
                let Some(route) = self.shm.route(slot) else {
                    return false;
                };
                held.routes.insert(slot, route.clone());
                route
            }
        };
        // Behind what waits already, or packets would overtake each other.
        let sent = if held.waiting.is_empty() {
            self.send_to_process(&to, meta, bytes, now)
        } else {
            Err(SendError::Full)
        };
        if sent == Err(SendError::Full) {
            if held.waiting.is_empty() {
                held.since = now;
            }
            held.waiting.push(Packet {
                to,
                meta: *meta,
                bytes: bytes.to_vec(),
            });
            return true;
        }
        sent.is_ok()
    }

    /// Tries again what waits. True when nothing waits any more.
    pub(super) fn finish_hand_over(&self, now: Instant) -> bool {
        let mut held = self.hand_over.held.acquire();
        if held.waiting.is_empty() {
            return true;
        }
        if now.saturating_since(held.since).as_nanos() as u64 > PATIENCE_NS {
            held.waiting.clear();
            return true;
        }
        let sent = held
            .waiting
            .iter()
            .take_while(|p| {
                self.send_to_process(&p.to, &p.meta, &p.bytes, now) != Err(SendError::Full)
            })
            .count();
        held.waiting.drain(..sent);
        if sent > 0 {
            held.since = now;
        }
        held.waiting.is_empty()
    }

    /// The ways to processes that have ended are given up.
    pub(super) fn forget_dead_routes(&self) {
        let mut held = self.hand_over.held.acquire();
        held.routes.retain(|_, route| !route.is_dead());
    }

    /// Whether something waits for another process to make room.
    pub(crate) fn hands_over(&self) -> bool {
        !self.hand_over.held.acquire().waiting.is_empty()
    }
}
