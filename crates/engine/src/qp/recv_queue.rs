//! A ring of receive requests, its pieces in one flat array. Used by queue pairs and SRQs.

use crate::error::PostError;
use crate::ids::Key;
use crate::wr::{MAX_SGE, RecvWqe, RecvWr, Sge};

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    wr_id: u64,
    count: u32,
}

#[derive(Debug)]
pub(crate) struct RecvQueue {
    entries: Vec<Entry>,
    sges: Vec<Sge>,
    capacity: u32,
    max_sge: usize,
    /// Free-running counts of entries taken and posted.
    tail: u64,
    head: u64,
}

impl RecvQueue {
    pub(crate) fn new(max_wr: u32, max_sge: u32) -> Self {
        let max_sge = (max_sge as usize).min(MAX_SGE);
        // A power of two, so that finding an entry costs a mask and not a division.
        let n = (max_wr as usize).next_power_of_two();
        let entries = vec![Entry::default(); n];
        let sges = vec![
            Sge {
                addr: 0,
                len: 0,
                lkey: Key(0)
            };
            n * max_sge
        ];
        Self {
            entries,
            sges,
            capacity: max_wr,
            max_sge,
            tail: 0,
            head: 0,
        }
    }

    pub(crate) const fn capacity(&self) -> u32 {
        self.capacity
    }

    pub(crate) fn max_sge(&self) -> u32 {
        self.max_sge as u32
    }

    pub(crate) fn len(&self) -> u32 {
        (self.head - self.tail) as u32
    }

    pub(crate) fn push(&mut self, wr: &RecvWr<'_>) -> Result<(), PostError> {
        if wr.sges.len() > self.max_sge {
            return Err(PostError::TooManySges {
                given: wr.sges.len(),
                limit: self.max_sge as u32,
            });
        }
        if self.len() >= self.capacity() {
            return Err(PostError::QueueFull {
                limit: self.capacity(),
            });
        }
        let at = self.index(self.head);
        self.entries[at] = Entry {
            wr_id: wr.wr_id,
            count: wr.sges.len() as u32,
        };
        let from = at * self.max_sge;
        self.sges[from..from + wr.sges.len()].copy_from_slice(wr.sges);
        self.head += 1;
        Ok(())
    }

    pub(crate) fn pop_into(&mut self, into: &mut RecvWqe) -> bool {
        if self.head == self.tail {
            return false;
        }
        let at = self.index(self.tail);
        let entry = self.entries[at];
        let from = at * self.max_sge;
        into.set(entry.wr_id, &self.sges[from..from + entry.count as usize]);
        self.tail += 1;
        true
    }

    pub(crate) fn pop_id(&mut self) -> Option<u64> {
        if self.head == self.tail {
            return None;
        }
        let id = self.entries[self.index(self.tail)].wr_id;
        self.tail += 1;
        Some(id)
    }

    pub(crate) fn clear(&mut self) {
        self.tail = self.head;
    }

    /// Moves everything to a ring of another size, which must hold what is posted.
    pub(crate) fn resize(&mut self, max_wr: u32) {
        let mut new = Self::new(max_wr, self.max_sge as u32);
        let mut wqe = RecvWqe::empty();
        while self.pop_into(&mut wqe) {
            new.push(&RecvWr {
                wr_id: wqe.wr_id,
                sges: wqe.sges(),
            })
            .expect("the caller checked that all entries fit");
        }
        *self = new;
    }

    fn index(&self, n: u64) -> usize {
        n as usize & (self.entries.len() - 1)
    }
}
