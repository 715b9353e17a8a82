//! Queue pairs by number.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use adverb_link::qpn;

use crate::error::NicError;
use crate::qp::QpCell;
use crate::random;
use crate::sync::LockExt;

/// The queue pairs of this process. A look-up takes a lock of one entry and no other.
pub(crate) struct QpTable {
    slot: u16,
    entries: Box<[RwLock<Option<Arc<QpCell>>>]>,
    numbers: Mutex<Numbers>,
}

/// Which numbers are free. They are drawn at random, so that a packet of the past or of a stranger
/// hardly ever meets a living queue pair, and a freed one rests before it may be drawn again.
struct Numbers {
    used: Vec<bool>,
    in_use: u32,
    resting: VecDeque<u32>,
}

/// How many freed numbers rest, unless the others run out.
const RESTING: usize = 4096;

impl QpTable {
    pub(crate) fn new(slot: u16) -> Self {
        let size = qpn::LOCAL_MAX as usize + 1;
        Self {
            slot,
            entries: (0..size).map(|_| RwLock::new(None)).collect(),
            numbers: Mutex::new(Numbers {
                used: (0..size as u32)
                    .map(|local| is_special(slot, local))
                    .collect(),
                in_use: 0,
                resting: VecDeque::with_capacity(RESTING + 1),
            }),
        }
    }

    pub(crate) fn slot(&self) -> u16 {
        self.slot
    }

    pub(crate) fn reserve(&self) -> Result<u32, NicError> {
        let mut n = self.numbers.acquire();
        // One may be special and never free.
        let size = n.used.len() as u32 - 1;
        if n.in_use + n.resting.len() as u32 >= size {
            match n.resting.pop_front() {
                Some(rested) => n.used[rested as usize] = false,
                None => {
                    return Err(NicError::Limit {
                        what: "QP number",
                        limit: size.into(),
                    });
                }
            }
        }
        let all = n.used.len() as u32;
        let mut local = random::seed() as u32 % all;
        while n.used[local as usize] {
            local = (local + 1) % all;
        }
        n.used[local as usize] = true;
        n.in_use += 1;
        Ok(qpn::compose(self.slot, local))
    }

    pub(crate) fn insert(&self, number: u32, cell: &Arc<QpCell>) {
        *self
            .entry(number)
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(cell));
    }

    pub(crate) fn get(&self, number: u32) -> Option<Arc<QpCell>> {
        if qpn::slot_of(number) != self.slot {
            return None;
        }
        self.entry(number)
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(crate) fn remove(&self, number: u32) {
        self.entry(number)
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let mut n = self.numbers.acquire();
        n.in_use -= 1;
        n.resting.push_back(qpn::local_of(number));
        if n.resting.len() > RESTING
            && let Some(rested) = n.resting.pop_front()
        {
            n.used[rested as usize] = false;
        }
    }

    pub(crate) fn for_each(&self, mut f: impl FnMut(&Arc<QpCell>)) {
        for entry in &self.entries {
            let cell = entry.read().unwrap_or_else(PoisonError::into_inner).clone();
            if let Some(cell) = cell {
                f(&cell);
            }
        }
    }

    fn entry(&self, number: u32) -> &RwLock<Option<Arc<QpCell>>> {
        &self.entries[qpn::local_of(number) as usize]
    }
}

/// The last number there is stands for all members of a multicast group.
const fn is_special(slot: u16, local: u32) -> bool {
    qpn::compose(slot, local) == crate::multicast::ALL_MEMBERS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_unique_and_survive_more_turnover_than_there_are() {
        let table = QpTable::new(5);
        let mut seen = std::collections::HashSet::new();
        for _ in 0..16_000 {
            let number = table.reserve().unwrap();
            assert_eq!(qpn::slot_of(number), 5);
            assert!(seen.insert(number));
        }
        let mut recent = VecDeque::new();
        for number in seen {
            table.remove(number);
        }
        for _ in 0..40_000 {
            let number = table.reserve().unwrap();
            assert!(!recent.contains(&number), "reused at once");
            table.remove(number);
            recent.push_back(number);
            if recent.len() > 100 {
                recent.pop_front();
            }
        }
    }
}
