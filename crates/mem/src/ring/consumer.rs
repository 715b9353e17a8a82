//! The receiving end.

use std::sync::Arc;
use std::sync::atomic::AtomicU32 as PrivateU32;

use super::storage::Storage;
use super::{HEADER, LINE, RingError, VALID, max_record, record_space};
use crate::primitive::{Ordering, fence};

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

    /// Copies the next record out, if there is one, and says how long it is.
    ///
    /// After an error the ring is of no further use.
    pub fn pop(&mut self, into: &mut [u8]) -> Result<Option<usize>, RingError> {
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
        let space = record_space(len);
        if position.wrapping_sub(self.released) + space + LINE > size {
            return Err(corrupt);
        }
        let buffer = into.len();
        let into = into.get_mut(..len as usize).ok_or(RingError::TooLong {
            len,
            position,
            buffer,
        })?;
        self.storage.copy_out(position.wrapping_add(HEADER), into);
        self.position = position.wrapping_add(space);
        self.watched.store(self.position, Ordering::Relaxed);
        if self.position.wrapping_sub(self.released) >= size / 8 {
            self.release();
        }
        Ok(Some(len as usize))
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

    /// Gives the space of everything that has been read back to the producer.
    fn release(&mut self) {
        let mut at = self.released;
        while at != self.position {
            // Release: whoever watches and finds the zero also finds that the position has moved on.
            self.storage.header(at).store(0, Ordering::Release);
            at = at.wrapping_add(LINE);
        }
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
    /// zeroed after it had been read shows together with the new position.
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
