//! The completion queue and the rule for when it raises an event.
//!
//! Arming is one-shot. At an event every entry then present counts as announced. Arming fires at
//! once when an entry waits that no event has announced and nobody has polled, so a program that
//! arms without polling again loses nothing; `set_strict` gives the bare specification, where only
//! entries added after the arm count.
//!
//! Moderation holds an event back until some number of entries or some time has come.

use std::collections::VecDeque;

use crate::completion::Completion;
use crate::time::Instant;

/// What became of a completion given to [`Cq::push`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Push {
    /// Queued. `fire`: raise the completion event now.
    Queued { fire: bool },
    /// The queue was full. The entry is lost and the queue is in error from now on.
    Overrun,
}

/// Why a resize was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{held} completions do not fit a queue of {wanted}")]
pub struct ResizeError {
    pub held: usize,
    pub wanted: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Armed {
    No,
    Solicited,
    Next,
}

/// A completion queue.
#[derive(Debug)]
pub struct Cq {
    entries: VecDeque<Completion>,
    capacity: usize,
    armed: Armed,
    strict: bool,
    overrun: bool,
    /// How many entries at the front an event has announced.
    announced: usize,
    /// Solicited entries behind those.
    fresh_solicited: usize,
    /// Entries that make an event due at once, and nanoseconds that make it due anyway.
    moderation: Option<(usize, u64)>,
    /// When the event that is held back is due.
    due: Option<Instant>,
}

impl Cq {
    pub fn new(capacity: usize) -> Self {
        Self {
            entries: VecDeque::with_capacity(capacity),
            capacity,
            armed: Armed::No,
            strict: false,
            overrun: false,
            announced: 0,
            fresh_solicited: 0,
            moderation: None,
            due: None,
        }
    }

    pub fn push(&mut self, c: &Completion) -> Push {
        if self.overrun || self.entries.len() >= self.capacity {
            self.overrun = true;
            return Push::Overrun;
        }
        self.entries.push_back(*c);
        let fire = match self.armed {
            Armed::No => false,
            Armed::Solicited => c.solicited,
            Armed::Next => true,
        };
        if fire && !self.holds_back(c.timestamp) {
            self.announce();
            return Push::Queued { fire: true };
        }
        if c.solicited {
            self.fresh_solicited += 1;
        }
        Push::Queued { fire: false }
    }

    pub fn pop(&mut self) -> Option<Completion> {
        let c = self.entries.pop_front()?;
        if self.announced > 0 {
            self.announced -= 1;
        } else if c.solicited {
            self.fresh_solicited -= 1;
        }
        Some(c)
    }

    /// Takes as many entries as are there and fit; returns how many.
    pub fn poll(&mut self, out: &mut [Completion]) -> usize {
        let mut free = out.iter_mut();
        self.poll_each(free.len(), |c| {
            if let Some(slot) = free.next() {
                *slot = *c;
            }
        })
    }

    /// Takes at most `most` entries and shows each to `take`; returns how many.
    pub fn poll_each(&mut self, most: usize, mut take: impl FnMut(&Completion)) -> usize {
        for n in 0..most {
            let Some(c) = self.pop() else { return n };
            take(&c);
        }
        most
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    pub const fn has_overrun(&self) -> bool {
        self.overrun
    }

    /// Whether the next entry (or the next solicited one) will raise an event.
    pub fn is_armed(&self) -> bool {
        self.armed != Armed::No
    }

    /// Changes the capacity; entries, their order and the armed state stay.
    pub fn resize(&mut self, capacity: usize) -> Result<(), ResizeError> {
        if capacity < self.entries.len() {
            return Err(ResizeError {
                held: self.entries.len(),
                wanted: capacity,
            });
        }
        self.entries.reserve(capacity - self.entries.len());
        self.capacity = capacity;
        Ok(())
    }

    /// Asks for one event. Returns whether to raise it at once.
    pub fn arm(&mut self, solicited_only: bool) -> bool {
        let waiting = if solicited_only {
            self.fresh_solicited > 0
        } else {
            self.entries.len() > self.announced
        };
        if waiting && !self.strict {
            self.announce();
            return true;
        }
        // NEXT upgrades SOLICITED, SOLICITED does not downgrade NEXT.
        if !solicited_only {
            self.armed = Armed::Next;
        } else if self.armed == Armed::No {
            self.armed = Armed::Solicited;
        }
        false
    }

    /// Makes an armed queue wait for `count` entries, but no longer than `period_ns` after the first,
    /// before it raises its event. Less than two entries, or no time at all, turn that off.
    pub fn moderate(&mut self, count: usize, period_ns: u64) {
        self.moderation = (count > 1 && period_ns > 0).then_some((count, period_ns));
    }

    /// When an event that is held back becomes due: call [`Cq::fire_if_due`] then.
    pub const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Whether the event that was held back is to be raised now.
    pub fn fire_if_due(&mut self, now: Instant) -> bool {
        let fire = self.due.is_some_and(|due| due <= now);
        if fire {
            self.announce();
        }
        fire
    }

    /// Whether the event for what has just been queued can wait.
    fn holds_back(&mut self, now: Instant) -> bool {
        let Some((count, period_ns)) = self.moderation else {
            return false;
        };
        if self.entries.len() - self.announced >= count.min(self.capacity) {
            return false;
        }
        self.due.get_or_insert_with(|| now.plus_nanos(period_ns));
        true
    }

    /// Whether arming ignores entries that were there before.
    pub fn set_strict(&mut self, strict: bool) {
        self.strict = strict;
    }

    /// Drops the entries `keep` refuses, for a queue pair that is destroyed or reset.
    pub fn retain(&mut self, mut keep: impl FnMut(&Completion) -> bool) {
        let (mut index, mut announced, mut solicited) = (0, 0, 0);
        let was_announced = self.announced;
        self.entries.retain(|c| {
            let kept = keep(c);
            if kept && index < was_announced {
                announced += 1;
            } else if kept && c.solicited {
                solicited += 1;
            }
            index += 1;
            kept
        });
        self.announced = announced;
        self.fresh_solicited = solicited;
    }

    fn announce(&mut self) {
        self.armed = Armed::No;
        self.due = None;
        self.announced = self.entries.len();
        self.fresh_solicited = 0;
    }
}
