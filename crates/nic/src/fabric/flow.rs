//! Pacing of UDP traffic that stays on this host.
//!
//! A socket buffer that overflows loses packets without a word: RC goes back and overflows it
//! again, UC and UD never recover. Between hosts that is the network's nature. On one host the
//! receiver can tell how far it is, in the page that its peers map, so the sender waits for it.
//! Only forced UDP traffic needs this: by default the processes of a host use shared memory.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use adverb_engine::Instant;
use adverb_link::shm::ShmRoute;

use super::Fabric;
use crate::clock;
use crate::sync::LockExt;

/// Packets that may be under way from one process to another.
const WINDOW: u64 = 128;

/// Without any arrival for this long, what is under way counts as lost.
const PATIENCE_NS: u64 = 5_000_000;

/// How soon a sender that had to wait tries again, if nothing wakes it before.
pub(crate) const RETRY_NS: u64 = 200_000;

/// The traffic to each process of this host, by its slot.
#[derive(Default)]
pub(super) struct Flows {
    known: Mutex<HashMap<u16, Arc<Flow>>>,
}

impl Fabric {
    /// All queue pairs that talk to one process of this host over UDP share its pace.
    pub(super) fn flow_to(&self, slot: u16) -> Option<Arc<Flow>> {
        let peer = self.shm.route(slot)?;
        let mut flows = self.flows.known.acquire();
        if let Some(flow) = flows.get(&slot).filter(|f| !f.is_dead()) {
            return Some(Arc::clone(flow));
        }
        let flow = Arc::new(Flow::new(peer, self.slot, clock::now()));
        flows.insert(slot, Arc::clone(&flow));
        Some(flow)
    }

    /// Of processes that have ended nothing is kept.
    pub(super) fn forget_dead_flows(&self) {
        self.flows.known.acquire().retain(|_, flow| !flow.is_dead());
    }
}

/// The traffic from this process to one peer.
pub(crate) struct Flow {
    pub(super) peer: ShmRoute,
    own_slot: u16,
    /// The peer's count when `sent` was zero.
    sent_at_zero: AtomicU64,
    sent: AtomicU64,
    /// The arrivals last seen, and when they were first seen at that.
    seen: AtomicU64,
    seen_since: AtomicU64,
}

impl Flow {
    fn new(peer: ShmRoute, own_slot: u16, now: Instant) -> Self {
        let arrived = peer.arrivals(own_slot);
        Self {
            peer,
            own_slot,
            sent_at_zero: AtomicU64::new(arrived),
            sent: AtomicU64::new(0),
            seen: AtomicU64::new(arrived),
            seen_since: AtomicU64::new(now.as_nanos()),
        }
    }

    /// Whether the peer is gone; a later process in its slot is another peer.
    fn is_dead(&self) -> bool {
        self.peer.is_dead()
    }

    /// Whether one more packet may go. Counts are advisory, so that threads racing here exceed
    /// the window by a packet each does no harm.
    pub(super) fn admits(&self, now: Instant) -> bool {
        let arrived = self.peer.arrivals(self.own_slot);
        let base = self.sent_at_zero.load(Ordering::Relaxed);
        let sent = self.sent.load(Ordering::Relaxed);
        if sent.saturating_sub(arrived.saturating_sub(base)) < WINDOW {
            self.sent.store(sent + 1, Ordering::Relaxed);
            return true;
        }
        let now = now.as_nanos();
        if self.seen.swap(arrived, Ordering::Relaxed) != arrived {
            self.seen_since.store(now, Ordering::Relaxed);
        } else if now.saturating_sub(self.seen_since.load(Ordering::Relaxed)) > PATIENCE_NS {
            self.sent_at_zero.store(arrived, Ordering::Relaxed);
            self.sent.store(1, Ordering::Relaxed);
            self.seen_since.store(now, Ordering::Relaxed);
            return true;
        }
        false
    }
}
