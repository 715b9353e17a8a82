//! The receiving end.

use std::sync::Arc;
use std::sync::atomic::AtomicU32 as PrivateU32;

use super::storage::Storage;
use super::{AT_ONCE, HEADER, LINE, RingError, VALID, max_record, record_space};
use crate::primitive::{Ordering, fence};
#[cfg(not(loom))]
use crate::span::Source;

/// Reads records. There is one per ring; whoever shares it puts a lock around it.
#[derive(Debug)]
pub struct Consumer {
    storage: Storage,
    /// Where the next record begins.
    position: u32,
    /// Up to where space has been given back; never more than the ring behind `position`.
    released: u32,
    /// The producer asked to be woken, and [`Consumer::take_wake`] has not reported it yet.
    wake: bool,
    /// `position` for those who only watch.
    watched: Arc<PrivateU32>,
}

impl Consumer {
    pub(super) fn new(storage: Storage) -> Self {
        Self {
            storage,
            position: 0,
            released: 0,
            wake: false,
            watched: Arc::default(),
        }
    }

    /// The next record, if there is one.
    ///
    /// After an error the ring is of no further use.
    #[expect(
        clippy::should_implement_trait,
        reason = "a record borrows the consumer"
    )]
    pub fn next(&mut self) -> Result<Option<Record<'_>>, RingError> {
        let Some(len) = self.peek()? else {
            self.release_idle();
            return Ok(None);
        };
        Ok(Some(self.take(len)))
    }

    /// Copies the next record out, if there is one, and says how long it is.
    ///
    /// After an error the ring is of no further use, except that a record too long for `into` stays.
    pub fn pop(&mut self, into: &mut [u8]) -> Result<Option<usize>, RingError> {
        let Some(len) = self.peek()? else {
            self.release_idle();
            return Ok(None);
        };
        let (position, buffer) = (self.position, into.len());
        let into = into.get_mut(..len as usize).ok_or(RingError::TooLong {
            len,
            position,
            buffer,
        })?;
        self.take(len).copy(0, into);
        Ok(Some(len as usize))
    }

    /// How long the next record is, if there is one.
    fn peek(&self) -> Result<Option<u32>, RingError> {
        // One load: the producer could change the word between two.
        let header = self.storage.header(self.position).load(Ordering::Acquire);
        if header == 0 {
            return Ok(None);
        }
        let (size, position) = (self.storage.size(), self.position);
        let len = header & !VALID;
        let corrupt = RingError::Corrupt {
            size,
            position,
            found: header,
        };
        if header & VALID == 0 || len > max_record(size) {
            return Err(corrupt);
        }
        if position.wrapping_sub(self.released) + record_space(len) + LINE > size {
            return Err(corrupt);
        }
        Ok(Some(len))
    }

    /// Moves on behind a record of `len` bytes; its space is ours until the record is dropped.
    fn take(&mut self, len: u32) -> Record<'_> {
        let position = self.position;
        self.position = position.wrapping_add(record_space(len));
        self.watched.store(self.position, Ordering::Relaxed);
        Record {
            consumer: self,
            position,
            len,
        }
    }

    /// Whether the producer waits for space that it has now. Says so once.
    #[must_use]
    pub fn take_wake(&mut self) -> bool {
        std::mem::take(&mut self.wake)
    }

    /// A view for those who want to know whether there is something, without the lock around the consumer.
    #[must_use]
    pub fn watch(&self) -> Watch {
        Watch {
            storage: self.storage.clone(),
            position: self.watched.clone(),
        }
    }

    /// There is nothing now. If that lasts, the producer gives back what is free.
    fn release_idle(&mut self) {
        if self.position.wrapping_sub(self.released) >= AT_ONCE {
            self.release();
        }
    }

    /// Gives the space of everything that has been read back to the producer.
    fn release(&mut self) {
        self.released = self.position;
        self.storage.head().store(self.released, Ordering::Release);
        fence(Ordering::SeqCst);
        // Load first: on most rounds nobody waits, and the line stays shared.
        if self.storage.waiting().load(Ordering::Relaxed) != 0 {
            self.storage.waiting().store(0, Ordering::Relaxed);
            self.wake = true;
        }
    }
}

/// A record that has been taken and is still in the ring. Dropped, it gives its space back.
///
/// The producer can change its bytes at any time; only their number is certain.
#[derive(Debug)]
pub struct Record<'a> {
    consumer: &'a mut Consumer,
    position: u32,
    len: u32,
}

impl Record<'_> {
    /// Number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies bytes of the record from `at` on.
    ///
    /// # Panics
    /// When there are fewer behind `at` than `into` takes.
    pub fn copy(&self, at: usize, into: &mut [u8]) {
        let from = self.inside(at, into.len());
        self.consumer.storage.copy_out(from, into);
    }

    /// The bytes of the record from `at` on.
    ///
    /// # Panics
    /// When the record is shorter.
    #[cfg(not(loom))]
    #[must_use]
    pub fn source(&self, at: usize) -> Source<'_> {
        let len = self.len().saturating_sub(at);
        let from = self.inside(at, len);
        self.consumer.storage.source(from, len)
    }

    /// Where byte `at` of the record is, if there are `len` bytes from there on.
    fn inside(&self, at: usize, len: usize) -> u32 {
        let size = self.len();
        let inside = at.checked_add(len).is_some_and(|end| end <= size);
        assert!(inside, "{len} bytes at {at} of a record of {size}");
        self.position.wrapping_add(HEADER + at as u32)
    }
}

impl Drop for Record<'_> {
    fn drop(&mut self) {
        let consumer = &mut *self.consumer;
        if consumer.position.wrapping_sub(consumer.released) >= consumer.storage.size() / 8 {
            consumer.release();
        }
    }
}

/// Tells whether a ring holds a record, from any thread.
#[derive(Debug, Clone)]
pub struct Watch {
    storage: Storage,
    position: Arc<PrivateU32>,
}

impl Watch {
    /// Whether the next record is there (or something broken that a `pop` will report).
    ///
    /// While another thread pops, the answer may be about a record that it takes. A "no" is always true for some
    /// moment during the call: a record that was there all the while is not overlooked, because a header that was
    /// overwritten after it had been read shows together with the new position.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let mut position = self.position.load(Ordering::Relaxed);
        loop {
            if self.storage.header(position).load(Ordering::Acquire) != 0 {
                return true;
            }
            let now = self.position.load(Ordering::Relaxed);
            if now == position {
                return false;
            }
            position = now;
        }
    }
}
