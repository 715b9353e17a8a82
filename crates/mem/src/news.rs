//! Which peers have written something: words of bits that senders set and the receiver takes, so that a look costs the
//! same however many peers there are.
//!
//! A receiver watches a few rings by their next header, because that is the line a small packet arrives in; of the others
//! it wants to be told. Which ones it watches it says in a word of its own ([`News::watch`]). A sender that has published
//! records and is not among the watched sets its bit ([`News::tell`]).
//!
//! # Why nothing is overlooked
//!
//! - *Watched no longer.* The receiver stores the new word, fences (SeqCst) and then looks once more into the ring that it
//!   leaves. The sender publishes, fences (SeqCst) and then loads the word. One fence is first: either the receiver sees
//!   the records, or the sender sees that it is not watched.
//! - *Told twice.* A sender that finds its bit up leaves it. The receiver takes the bits, fences (SeqCst) and then looks
//!   into the rings. If the sender has found the bit before it was taken, its fence was first, and the receiver sees the
//!   records.
//! - *Two levels.* A bit of `summary` stands for a word of `bits`. The sender sets the lower one first, the receiver takes
//!   the upper one first.
//!
//! The bits are hints of untrusted peers: one too many costs a look, one too few is the loss of the peer that did not set
//! it, until somebody looks everywhere, which the receiver's own thread does from time to time.

use crate::primitive::{AtomicU64, Ordering, fence};

/// Words of bits: one for each 64 slots.
const WORDS: usize = if cfg!(loom) { 1 } else { 16 };

/// So many rings can be watched.
pub const MOST_WATCHED: usize = 4;

/// The part of a process page that says who has news for its owner.
///
/// Every bit pattern is a valid one.
#[derive(Debug)]
#[repr(C)]
pub struct News {
    /// The slots that are watched, 16 bits each, 0 for none. Written by the owner, and read by all who send.
    watched: Line,
    summary: AtomicU64,
    bits: [AtomicU64; WORDS],
}

/// In a cache line of its own.
#[derive(Debug)]
#[repr(C, align(64))]
struct Line(AtomicU64);

impl News {
    /// A sender, the process at `from`, has published records. True if it had to tell.
    pub fn tell(&self, from: u16) -> bool {
        fence(Ordering::SeqCst);
        if is_among(self.watched.0.load(Ordering::Relaxed), from) {
            return false;
        }
        self.set(from);
        true
    }

    /// The ring of the process at `from` is to be looked into.
    pub fn set(&self, from: u16) {
        let (word, bit, group) = place_of(from);
        let Some(word) = self.bits.get(word) else {
            return;
        };
        let known = word.load(Ordering::Relaxed) & bit != 0
            && self.summary.load(Ordering::Relaxed) & group != 0;
        if !known {
            word.fetch_or(bit, Ordering::AcqRel);
            self.summary.fetch_or(group, Ordering::AcqRel);
        }
    }

    /// Whether anybody has told something since the last [`News::take`].
    #[must_use]
    pub fn any(&self) -> bool {
        self.summary.load(Ordering::Acquire) != 0
    }

    /// Takes the bits and shows whose they are. Whoever cannot look now must [`News::set`] them again.
    pub fn take(&self, mut each: impl FnMut(u16)) {
        if !self.any() {
            return;
        }
        let mut groups = self.summary.swap(0, Ordering::AcqRel);
        while groups != 0 {
            let at = groups.trailing_zeros();
            groups &= groups - 1;
            let Some(word) = self.bits.get(at as usize) else {
                continue;
            };
            let mut bits = word.swap(0, Ordering::AcqRel);
            fence(Ordering::SeqCst);
            while bits != 0 {
                each((at * 64 + bits.trailing_zeros()) as u16);
                bits &= bits - 1;
            }
        }
    }

    /// The owner watches these rings from now on. It must look once more into those that it watched before and leaves.
    pub fn watch(&self, slots: [u16; MOST_WATCHED]) {
        let word = slots
            .into_iter()
            .rev()
            .fold(0, |word, slot| word << 16 | u64::from(slot));
        self.watched.0.store(word, Ordering::Release);
        fence(Ordering::SeqCst);
    }
}

const fn is_among(watched: u64, slot: u16) -> bool {
    let slot = slot as u64;
    watched & 0xffff == slot
        || watched >> 16 & 0xffff == slot
        || watched >> 32 & 0xffff == slot
        || watched >> 48 == slot
}

/// The word of a slot, its bit there, and the bit of the word.
const fn place_of(slot: u16) -> (usize, u64, u64) {
    let word = slot as usize / 64;
    (word, 1 << (slot % 64), 1 << (word % 64))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn news() -> News {
        News {
            watched: Line(AtomicU64::new(0)),
            summary: AtomicU64::new(0),
            bits: [const { AtomicU64::new(0) }; WORDS],
        }
    }

    fn taken(news: &News) -> Vec<u16> {
        let mut slots = Vec::new();
        news.take(|slot| slots.push(slot));
        slots
    }

    #[test]
    fn who_is_not_watched_tells_once() {
        let news = news();
        assert!(!news.any());
        for slot in [1, 63, 64, 1023, 64] {
            assert!(news.tell(slot));
        }
        assert!(news.any());
        assert_eq!(taken(&news), [1, 63, 64, 1023]);
        assert!(!news.any() && taken(&news).is_empty());
        news.watch([1023, 0, 0, 64]);
        assert!(!news.tell(1023) && !news.tell(64) && news.tell(63));
        assert_eq!(taken(&news), [63]);
    }

    #[test]
    fn a_peer_that_lies_costs_a_look() {
        let news = news();
        news.summary.store(u64::MAX, Ordering::Relaxed);
        assert!(taken(&news).is_empty());
        news.set(u16::MAX);
        assert!(taken(&news).is_empty());
        news.bits[15].store(u64::MAX, Ordering::Relaxed);
        news.summary.store(1 << 15, Ordering::Relaxed);
        assert_eq!(taken(&news).len(), 64);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::primitive::AtomicU32;
    use loom::sync::Arc;
    use loom::thread;

    struct World {
        news: News,
        ring: AtomicU32,
    }

    fn world() -> Arc<World> {
        Arc::new(World {
            news: News {
                watched: Line(AtomicU64::new(0)),
                summary: AtomicU64::new(0),
                bits: [AtomicU64::new(0)],
            },
            ring: AtomicU32::new(0),
        })
    }

    const SLOT: u16 = 3;

    /// A receiver that stops watching a ring while its owner sends: what the last look did not see is told.
    #[test]
    fn what_is_not_watched_any_more_is_told() {
        loom::model(|| {
            let world = world();
            world.news.watch([SLOT, 0, 0, 0]);
            let sender = {
                let world = world.clone();
                thread::spawn(move || {
                    world.ring.store(1, Ordering::Release);
                    world.news.tell(SLOT);
                })
            };
            world.news.watch([0; MOST_WATCHED]);
            let seen = world.ring.load(Ordering::Acquire) == 1;
            sender.join().unwrap();
            assert!(seen || world.news.any());
        });
    }

    /// Two threads of one sender, and a receiver that takes the bit in the middle: all records are seen, in this look or
    /// in the one that the bit still asks for.
    #[test]
    fn a_bit_that_was_up_already_announces_what_came_later() {
        loom::model(|| {
            let world = world();
            let senders: Vec<_> = (0..2)
                .map(|_| {
                    let world = world.clone();
                    thread::spawn(move || {
                        world.ring.fetch_add(1, Ordering::Release);
                        world.news.tell(SLOT);
                    })
                })
                .collect();
            let mut seen = 0;
            world.news.take(|slot| {
                assert_eq!(slot, SLOT);
                seen = world.ring.load(Ordering::Acquire);
            });
            for sender in senders {
                sender.join().unwrap();
            }
            assert!(seen == 2 || world.news.any());
        });
    }
}
