//! The sending end.

use super::storage::Storage;
use super::{AT_ONCE, HEADER, LINE, RingError, VALID, max_record, record_space};
use crate::primitive::{Ordering, fence};
#[cfg(not(loom))]
use crate::span::Target;

/// Writes records. There is one per ring; whoever shares it puts a lock around it.
#[derive(Debug)]
pub struct Producer {
    storage: Storage,
    /// Where the next record begins.
    tail: u32,
    /// Our copy of the consumer's `head`, refreshed only when the space it grants is used up.
    head: u32,
    /// Where a header was zeroed ahead of time.
    zeroed: u32,
    /// Bytes of records since memory was last given back.
    grown: u32,
    growth_told: bool,
    /// Where the next record began when [`Producer::trim`] was last called.
    tail_at_trim: u32,
}

/// Why a record was not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    /// No space. The consumer has been told to ring when there is some.
    #[error("the ring is full")]
    Full,
    /// The ring can never take a record of this length.
    #[error("a record of {len} bytes is longer than the {max} that the ring takes")]
    TooLong {
        /// Length of the record.
        len: usize,
        /// The longest possible.
        max: u32,
    },
    /// The consumer broke the ring.
    #[error(transparent)]
    Broken(#[from] RingError),
}

impl Producer {
    pub(super) fn new(storage: Storage) -> Self {
        Self {
            storage,
            tail: 0,
            head: 0,
            zeroed: 0,
            grown: 0,
            growth_told: false,
            tail_at_trim: 0,
        }
    }

    /// Writes one record, the concatenation of `parts`, and makes it visible at once.
    ///
    /// There is nothing to publish for a batch: on a record that fits a line the release store of the header is an
    /// ordinary store to the line that the bytes went to. Doorbells are what is worth batching.
    ///
    /// On [`PushError::Full`] the consumer has been asked to wake us, and the request stands until it did.
    pub fn push(&mut self, parts: &[&[u8]]) -> Result<(), PushError> {
        let (position, len) = self.claim(parts.iter().map(|part| part.len()).sum())?;
        let mut at = position.wrapping_add(HEADER);
        for part in parts {
            self.storage.copy_in(at, part);
            at = at.wrapping_add(part.len() as u32);
        }
        self.storage
            .header(position)
            .store(VALID | len, Ordering::Release);
        self.zero_ahead();
        Ok(())
    }

    /// Space for a record of `len` bytes, to be filled without the lock around the producer. The consumer sees neither the
    /// record nor any behind it before the slot is dropped.
    ///
    /// [`PushError::Full`] as with [`Producer::push`].
    pub fn reserve(&mut self, len: usize) -> Result<Slot, PushError> {
        let (position, len) = self.claim(len)?;
        Ok(Slot {
            storage: self.storage.clone(),
            position,
            len,
        })
    }

    /// Takes the space of a record; says where it begins.
    fn claim(&mut self, len: usize) -> Result<(u32, u32), PushError> {
        let max = max_record(self.storage.size());
        let len = u32::try_from(len)
            .ok()
            .filter(|&len| len <= max)
            .ok_or(PushError::TooLong { len, max })?;
        let space = record_space(len);
        if !self.fits(space) && !self.refresh(space)? {
            return Err(PushError::Full);
        }
        let position = self.tail;
        self.tail = position.wrapping_add(space);
        self.grown = self.grown.saturating_add(space);
        // Whoever watches the ring and finds what we write over an old header finds also that the consumer has moved on.
        fence(Ordering::Release);
        if self.tail != self.zeroed {
            self.zero(self.tail);
        }
        Ok((position, len))
    }

    /// Whether the ring takes more memory by now than an idle one should. Says so once; then [`Producer::trim`] should be
    /// called, twice and some time apart.
    #[must_use]
    pub fn take_growth(&mut self) -> bool {
        let grown = self.grown > AT_ONCE && !self.growth_told;
        self.growth_told |= grown;
        grown
    }

    /// Gives the memory of free space back to the system, if nothing was sent since this was last called.
    pub fn trim(&mut self) -> Result<(), RingError> {
        let idle = self.tail == self.tail_at_trim;
        self.tail_at_trim = self.tail;
        if !idle || self.grown <= AT_ONCE {
            return Ok(());
        }
        self.load_head()?;
        // The line behind the last record holds the zero at which the consumer looks.
        let used = self.tail.wrapping_sub(self.head) + LINE;
        let free = self.storage.size().saturating_sub(used);
        self.storage.give_back(self.tail.wrapping_add(LINE), free);
        self.grown = 0;
        self.growth_told = false;
        Ok(())
    }

    /// Zeroes the header behind the next record, should that be short: the line comes to this core while nobody waits for
    /// it, and is here when the record is written.
    fn zero_ahead(&mut self) {
        if self.fits(LINE) {
            self.zeroed = self.tail.wrapping_add(LINE);
            self.zero(self.zeroed);
        }
    }

    fn zero(&self, position: u32) {
        self.storage.header(position).store(0, Ordering::Relaxed);
    }

    /// A line behind the record stays free: that is where the consumer finds the zero that ends the records.
    fn fits(&self, space: u32) -> bool {
        let used = self.tail.wrapping_sub(self.head);
        space + LINE <= self.storage.size() - used
    }

    /// Looks at the consumer's progress; if that does not help, leaves a request to be woken and looks again.
    fn refresh(&mut self, space: u32) -> Result<bool, RingError> {
        self.load_head()?;
        if self.fits(space) {
            return Ok(true);
        }
        self.storage.waiting().store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.load_head()?;
        if self.fits(space) {
            self.storage.waiting().store(0, Ordering::Relaxed);
            return Ok(true);
        }
        Ok(false)
    }

    fn load_head(&mut self) -> Result<(), RingError> {
        let (size, head) = (
            self.storage.size(),
            self.storage.head().load(Ordering::Acquire),
        );
        // A sound head lies between our last copy and our tail, on a line.
        let (advance, used) = (
            head.wrapping_sub(self.head),
            self.tail.wrapping_sub(self.head),
        );
        if advance > used || !head.is_multiple_of(LINE) {
            return Err(RingError::Corrupt {
                size,
                position: self.tail,
                found: head,
            });
        }
        self.head = head;
        Ok(())
    }
}

/// A record under construction. Dropped, it is there for the consumer, with whatever bytes it has then.
#[derive(Debug)]
pub struct Slot {
    storage: Storage,
    position: u32,
    len: u32,
}

impl Slot {
    /// Copies `bytes` to byte `at` of the record.
    ///
    /// # Panics
    /// When there is no room for them behind `at`.
    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        let from = self.inside(at, bytes.len());
        self.storage.copy_in(from, bytes);
    }

    /// The bytes of the record from `at` on.
    ///
    /// # Panics
    /// When the record is shorter.
    #[cfg(not(loom))]
    pub fn target(&mut self, at: usize) -> Target<'_> {
        let len = (self.len as usize).saturating_sub(at);
        let from = self.inside(at, len);
        self.storage.target(from, len)
    }

    /// Where byte `at` of the record is, if there are `len` bytes from there on.
    fn inside(&self, at: usize, len: usize) -> u32 {
        let size = self.len as usize;
        let inside = at.checked_add(len).is_some_and(|end| end <= size);
        assert!(inside, "{len} bytes at {at} of a record of {size}");
        self.position.wrapping_add(HEADER + at as u32)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.storage
            .header(self.position)
            .store(VALID | self.len, Ordering::Release);
    }
}
