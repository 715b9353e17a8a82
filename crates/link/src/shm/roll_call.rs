//! How the dead are forgotten of whom nobody hears: no packet tells that a peer has ended, and of those that we are not
//! connected to no descriptor tells either.
//!
//! Whoever meets a newcomer looks at a few of the others; so there are never many more dead than living. From time to time
//! the roll of all is called, by who uses this link.
//!
//! At the same occasions rings that nobody uses give their memory back.

use std::sync::atomic::Ordering;

use super::ShmLink;
use super::inbound::Inbound;
use super::rings::List;
use crate::lock::lock;

/// More than one, or a crowd that has gone would never be worked off.
const LOOKED_AT: usize = 4;

impl ShmLink {
    /// Whether somebody was met, or a ring has grown, since this was last asked.
    #[must_use]
    pub fn wants_roll_call(&self) -> bool {
        self.call_roll.load(Ordering::Relaxed) && self.call_roll.swap(false, Ordering::AcqRel)
    }

    /// Forgets all who have ended, and trims the rings to the others; whether anybody is left.
    #[must_use]
    pub fn call_roll(&self) -> bool {
        self.sweep();
        let mut peers = lock(&self.peers);
        peers.retain(|_, peer| {
            let alive = peer.is_alive(&self.place);
            if alive {
                peer.trim();
            } else {
                peer.forget();
            }
            alive
        });
        !peers.is_empty() || self.inbound_rings() > 0
    }

    /// Whether nothing will come from the ring any more.
    pub(super) fn is_gone(&self, ring: &Inbound) -> bool {
        ring.is_finished()
            || !ring.is_ready()
                && self
                    .place
                    .living(ring.from)
                    .is_none_or(|(_, inode)| inode != ring.inode)
    }

    /// Looks at a few of the rings, others each time. Those that stay keep their order.
    pub(super) fn look_at_rings(&self, rings: &mut List) {
        let turn = self.looked_at.fetch_add(LOOKED_AT, Ordering::Relaxed);
        let mut at = turn % rings.len().max(1);
        for _ in 0..LOOKED_AT.min(rings.len()) {
            if rings.get(at).is_some_and(|ring| self.is_gone(ring)) {
                rings.remove(at);
            } else {
                at += 1;
            }
            at %= rings.len().max(1);
        }
    }

    /// The same of those that we send to.
    pub(super) fn look_at_peers(&self, peers: &mut super::Peers) {
        let turn = self.looked_at.fetch_add(LOOKED_AT, Ordering::Relaxed);
        let skipped = turn % peers.len().max(1);
        let some: Vec<u16> = peers
            .keys()
            .copied()
            .skip(skipped)
            .take(LOOKED_AT)
            .collect();
        for slot in some {
            if let Some(peer) = peers.get(&slot)
                && !peer.is_alive(&self.place)
            {
                peer.forget();
                peers.remove(&slot);
            }
        }
    }
}
