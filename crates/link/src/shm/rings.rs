//! The rings that others made to send to us, and which of them are looked into.
//!
//! A few are watched: each look reads the header of their next record. The others are looked into when their senders say
//! that there is something ([`adverb_mem::News`]), and watched once that has happened a few times. So a look costs the
//! same with one peer and with hundreds, and a conversation costs its sender no word beside the record.

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use adverb_mem::{MOST_WATCHED, News};
use arc_swap::{ArcSwap, Cache};

use super::inbound::Inbound;
use crate::lock::lock;
use crate::qpn::SLOT_MAX;
use crate::{Arrival, Meta};

/// Rings that others may have handed to us. A sound peer has one, and one more while a new one replaces it.
const MAX_INBOUND: usize = 2 * SLOT_MAX as usize;

/// How often a sender must have told of news before its ring is watched.
const WATCHED_AFTER: u32 = 3;

pub(super) type List = Vec<Arc<Inbound>>;
type Seen = Cache<Arc<ArcSwap<List>>, Arc<List>>;

#[derive(Debug, Default)]
pub(super) struct Rings {
    /// By slot of the sender.
    all: ArcSwap<List>,
    watched: Arc<ArcSwap<List>>,
    /// Held while either list changes.
    changing: Mutex<()>,
    /// Which ring the next look begins with, so that none starves the others.
    turn: AtomicUsize,
}

thread_local! {
    /// The watched rings as this thread saw them last: a look that finds nothing writes nothing that others read.
    static SEEN: RefCell<Option<Seen>> = const { RefCell::new(None) };
}

impl Rings {
    pub(super) fn len(&self) -> usize {
        self.all.load().len()
    }

    /// Whether we have this ring of a sender.
    pub(super) fn has(&self, from: u16, memory: u64) -> bool {
        of(&self.all.load(), from)
            .iter()
            .any(|ring| ring.memory == memory)
    }

    /// A peer has handed over a ring. Another one that it had is drained and dropped; `weed` takes out others, and keeps
    /// the order.
    pub(super) fn add(&self, news: &News, ring: Arc<Inbound>, weed: impl FnOnce(&mut List)) {
        let changing = lock(&self.changing);
        let mut all = List::clone(&self.all.load());
        for old in of(&all, ring.from) {
            old.retire();
        }
        all.retain(|ring| !ring.is_finished());
        weed(&mut all);
        if all.len() >= MAX_INBOUND {
            return;
        }
        let at = all.partition_point(|other| other.from <= ring.from);
        all.insert(at, Arc::clone(&ring));
        let mut watched = List::clone(&self.watched.load());
        watched.retain(|old| old.from != ring.from && has(&all, old));
        self.all.store(Arc::new(all));
        if watched.len() < MOST_WATCHED {
            watched.push(Arc::clone(&ring));
        }
        self.watch(news, watched);
        drop(changing);
        // What its sender told of before there was a ring to look into.
        news.set(ring.from);
    }

    /// Drops the rings of which nothing will come any more.
    pub(super) fn sweep(&self, news: &News, gone: impl Fn(&Inbound) -> bool) {
        if !self.all.load().iter().any(|ring| gone(ring)) {
            return;
        }
        let _changing = lock(&self.changing);
        let mut all = List::clone(&self.all.load());
        all.retain(|ring| !gone(ring));
        let mut watched = List::clone(&self.watched.load());
        watched.retain(|ring| has(&all, ring));
        self.all.store(Arc::new(all));
        self.watch(news, watched);
    }

    /// Whether something waits in a watched ring, or somebody has told of something.
    pub(super) fn any_ready(&self, news: &News) -> bool {
        let ready = |list: &List| list.iter().any(|ring| ring.is_ready());
        let seen = SEEN.try_with(|seen| {
            let mut seen = seen.borrow_mut();
            let cache = match &mut *seen {
                Some(cache) if std::ptr::eq(cache.arc_swap(), &*self.watched) => cache,
                other => other.insert(Cache::new(Arc::clone(&self.watched))),
            };
            ready(cache.load())
        });
        // A thread that ends may look once its cache is gone.
        seen.unwrap_or_else(|_| ready(&self.watched.load())) || news.any()
    }

    /// Asks for a look into each ring that has something and is not watched: its sender may have died before it could tell.
    pub(super) fn look_everywhere(&self, news: &News) {
        for ring in &**self.all.load() {
            if ring.is_ready() {
                news.set(ring.from);
            }
        }
    }

    /// Hands at most `budget` packets to `sink`; says how many. A train counts as many, and the last one may be more.
    pub(super) fn receive(
        &self,
        news: &News,
        budget: usize,
        sink: &mut dyn FnMut(&Meta, Arrival<'_>),
    ) -> usize {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        // In turns, or a stream through a watched ring would keep the others waiting.
        if turn.is_multiple_of(2) {
            let count = self.receive_watched(turn, budget, sink);
            count + self.receive_told(news, budget.saturating_sub(count), sink)
        } else {
            let count = self.receive_told(news, budget, sink);
            count + self.receive_watched(turn, budget.saturating_sub(count), sink)
        }
    }

    fn receive_watched(
        &self,
        turn: usize,
        budget: usize,
        sink: &mut dyn FnMut(&Meta, Arrival<'_>),
    ) -> usize {
        let watched = self.watched.load();
        let first = turn / 2 % watched.len().max(1);
        let (later, first) = watched.split_at(first);
        let mut count = 0;
        for ring in first.iter().chain(later) {
            if count >= budget {
                break;
            }
            count += ring.receive(budget.saturating_sub(count), sink);
        }
        count
    }

    fn receive_told(
        &self,
        news: &News,
        budget: usize,
        sink: &mut dyn FnMut(&Meta, Arrival<'_>),
    ) -> usize {
        if budget == 0 || !news.any() {
            return 0;
        }
        let mut count = 0;
        let all = self.all.load();
        news.take(|slot| {
            for ring in of(&all, slot) {
                count += ring.receive(budget.saturating_sub(count), sink);
                // More than we may take, or another thread is at it and may have passed this one.
                if ring.is_ready() {
                    news.set(slot);
                }
                if ring.told() >= WATCHED_AFTER {
                    self.promote(news, ring);
                }
            }
        });
        count
    }

    /// Watches a ring, in the place of another one if need be.
    fn promote(&self, news: &News, ring: &Arc<Inbound>) {
        let _changing = lock(&self.changing);
        let mut watched = List::clone(&self.watched.load());
        if !has(&self.all.load(), ring) || has(&watched, ring) {
            return;
        }
        if watched.len() == MOST_WATCHED {
            watched.remove(0);
        }
        watched.push(Arc::clone(ring));
        self.watch(news, watched);
    }

    /// Says whom we watch, and looks once more into the rings that are not watched any more. Under the lock.
    fn watch(&self, news: &News, watched: List) {
        let before = self.watched.swap(Arc::new(watched));
        let watched = self.watched.load();
        let mut slots = [0; MOST_WATCHED];
        for (slot, ring) in slots.iter_mut().zip(&**watched) {
            *slot = ring.from;
        }
        news.watch(slots);
        for ring in &*before {
            ring.told_again();
            if ring.is_ready() {
                news.set(ring.from);
            }
        }
    }
}

fn has(rings: &[Arc<Inbound>], ring: &Arc<Inbound>) -> bool {
    rings.iter().any(|other| Arc::ptr_eq(other, ring))
}

/// The rings of one sender in a list by slots.
fn of(rings: &[Arc<Inbound>], from: u16) -> &[Arc<Inbound>] {
    let begin = rings.partition_point(|ring| ring.from < from);
    let rings = rings.get(begin..).unwrap_or_default();
    let len = rings.partition_point(|ring| ring.from == from);
    rings.get(..len).unwrap_or_default()
}
