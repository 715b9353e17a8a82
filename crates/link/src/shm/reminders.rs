//! Whom to ring a little later.
//!
//! A peer that looks all the time is not rung. If it stops looking just then, to compute or to wait for bytes in its
//! memory, nobody would tell it: its own thread looks once in a millisecond. So whoever sent something and goes on
//! polling asks about it again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use adverb_mem::ProcessPage;

use super::peer::Peer;
use crate::lock::lock;

#[derive(Debug)]
pub(super) struct Reminders {
    peers: Mutex<Vec<Arc<Peer>>>,
    /// When to ask next; changed under the lock.
    at_ns: AtomicU64,
}

impl Default for Reminders {
    fn default() -> Self {
        Self {
            peers: Mutex::default(),
            at_ns: AtomicU64::new(u64::MAX),
        }
    }
}

impl Reminders {
    /// The peer is to be asked about in a while.
    pub(super) fn add(&self, peer: Arc<Peer>, now_ns: u64) {
        let mut peers = lock(&self.peers);
        peers.push(peer);
        let at = now_ns.saturating_add(ProcessPage::REMIND_AFTER_NS);
        self.at_ns.fetch_min(at, Ordering::AcqRel);
    }

    /// Asks about those whose time has come.
    pub(super) fn due(&self, now_ns: u64) {
        if now_ns < self.at_ns.load(Ordering::Acquire) {
            return;
        }
        let mut peers = lock(&self.peers);
        // In place, so that nothing is allocated.
        peers.retain(|peer| peer.remind(now_ns));
        let next = if peers.is_empty() {
            u64::MAX
        } else {
            now_ns.saturating_add(ProcessPage::REMIND_AFTER_NS + 1)
        };
        self.at_ns.store(next, Ordering::Release);
    }
}
