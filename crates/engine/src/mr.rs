//! Memory keys: who may touch which range with which right.
//!
//! A key is `index << 8 | tag`, and all of it is random. The low bits of the index name the slot of a flat table, as many
//! as its size needs; the whole key is compared, so a guessed or stale key misses.
//! What memory windows add to that is in `window.rs`.

use crate::ids::{Key, PdId};
use crate::memory::{Access, KeyError, MemAccess};
use crate::random::{Random, Seed};
use crate::window::Window;

/// What a key covers. `iova` is the address peers and work requests use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MrSpec {
    pub pd: PdId,
    pub iova: u64,
    pub len: u64,
    pub access: Access,
}

#[derive(Debug)]
pub(crate) struct Slot<T> {
    /// The key in use, or the last one that was.
    pub(crate) key: u32,
    pub(crate) entry: Option<Entry<T>>,
}

/// What a key stands for.
#[derive(Debug)]
pub(crate) enum Entry<T> {
    Region {
        spec: MrSpec,
        value: T,
        /// How many windows are bound to it.
        windows: u32,
    },
    Window(Window),
}

/// All memory keys of a device. `T` is what the NIC needs to reach the bytes.
#[derive(Debug)]
pub struct KeyTable<T> {
    pub(crate) slots: Vec<Slot<T>>,
    used: usize,
    limit: usize,
    random: Random,
    /// Windows that are tied to a queue pair now.
    pub(crate) tied: usize,
}

const MOST_KEYS: usize = 1 << 17;
const FIRST_SIZE: usize = 256;

impl<T> KeyTable<T> {
    /// A table for at most `limit` keys (and never more than 131,072). The same seed gives the same keys.
    pub fn new(limit: usize, seed: impl Into<Seed>) -> Self {
        Self {
            slots: Vec::new(),
            used: 0,
            limit: limit.min(MOST_KEYS),
            random: Random::new(seed.into()),
            tied: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.used
    }

    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    pub fn insert(&mut self, spec: MrSpec, value: T) -> Result<Key, KeyError> {
        check_spec(&spec)?;
        self.place(Entry::Region {
            spec,
            value,
            windows: 0,
        })
    }

    pub(crate) fn place(&mut self, entry: Entry<T>) -> Result<Key, KeyError> {
        if self.used >= self.limit {
            return Err(KeyError::Limit { limit: self.limit });
        }
        // At most half full, so that a random probe finds room at once and keys stay unpredictable.
        if (self.used + 1) * 2 > self.slots.len() {
            self.grow();
        }
        loop {
            let key = self.random.next_u32();
            let at = self.slot_of(Key(key));
            let slot = &mut self.slots[at];
            // Zero looks like "no key" to applications, whatever tag they count up to, and the key
            // last seen here is still in the hands of somebody.
            if slot.entry.is_some() || key >> 8 == 0 || key == slot.key {
                continue;
            }
            slot.key = key;
            slot.entry = Some(entry);
            self.used += 1;
            return Ok(Key(key));
        }
    }

    /// Takes a region out. Windows that are bound to it reach nothing from then on.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        let slot = self.slot_mut(key)?;
        match slot.entry.take()? {
            Entry::Region { value, .. } => {
                self.used -= 1;
                Some(value)
            }
            window @ Entry::Window(_) => {
                slot.entry = Some(window);
                None
            }
        }
    }

    pub(crate) fn vacate(&mut self, at: usize) {
        if self
            .slots
            .get_mut(at)
            .and_then(|s| s.entry.take())
            .is_some()
        {
            self.used -= 1;
        }
    }

    /// The region behind a key.
    pub fn get(&self, key: Key) -> Option<(&MrSpec, &T)> {
        match self.slot(key)?.entry.as_ref()? {
            Entry::Region { spec, value, .. } => Some((spec, value)),
            Entry::Window(_) => None,
        }
    }

    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        match self.slot_mut(key)?.entry.as_mut()? {
            Entry::Region { value, .. } => Some(value),
            Entry::Window(_) => None,
        }
    }

    /// Gives the key another meaning. On error the old one stays.
    pub fn rereg(&mut self, key: Key, new: MrSpec) -> Result<(), KeyError> {
        check_spec(&new)?;
        match self.slot_mut(key).and_then(|s| s.entry.as_mut()) {
            Some(Entry::Region {
                spec, windows: 0, ..
            }) => {
                *spec = new;
                Ok(())
            }
            Some(Entry::Region { windows, .. }) => Err(KeyError::Bound {
                key: key.0,
                count: *windows,
            }),
            _ => Err(KeyError::Unknown { key: key.0 }),
        }
    }

    /// The entry behind a key and the offset of `va` in it, if every check passes. A length of
    /// zero asks for the key and its rights only.
    pub fn resolve(&self, a: &MemAccess) -> Result<(&T, u64), KeyError> {
        let key = a.key.0;
        match self.slot(a.key).and_then(|s| s.entry.as_ref()) {
            Some(Entry::Region { spec, value, .. }) => Ok((value, permit(spec, a)?)),
            Some(Entry::Window(window)) => self.through(window, a),
            None => Err(KeyError::Unknown { key }),
        }
    }

    pub(crate) fn slot(&self, key: Key) -> Option<&Slot<T>> {
        self.slots.get(self.slot_of(key)).filter(|s| s.key == key.0)
    }

    pub(crate) fn slot_mut(&mut self, key: Key) -> Option<&mut Slot<T>> {
        let at = self.slot_of(key);
        self.slots.get_mut(at).filter(|s| s.key == key.0)
    }

    /// Twice as many slots. What was in one goes to the one or the other of two, so nothing meets.
    fn grow(&mut self) {
        let size = (self.slots.len() * 2).max(FIRST_SIZE);
        let free = || Slot {
            key: 0,
            entry: None,
        };
        let before = std::mem::take(&mut self.slots);
        self.slots.resize_with(size, free);
        for slot in before {
            let at = self.slot_of(Key(slot.key));
            // A slot that was never used has key 0, and so has the one that it would go to.
            if slot.key != 0 {
                self.slots[at] = slot;
            }
        }
    }

    /// Where a key belongs, which is beyond the end of a table without slots.
    pub(crate) fn slot_of(&self, key: Key) -> usize {
        (key.0 >> 8) as usize & self.slots.len().saturating_sub(1)
    }
}

/// Whether what is asked for lies within what `spec` grants; the offset in it.
pub(crate) fn permit(spec: &MrSpec, a: &MemAccess) -> Result<u64, KeyError> {
    let key = a.key.0;
    if spec.pd != a.pd {
        return Err(KeyError::WrongPd {
            key,
            owner: spec.pd.0,
            asked: a.pd.0,
        });
    }
    if !spec.access.contains(a.need) {
        return Err(KeyError::Denied {
            key,
            granted: spec.access.bits(),
            needed: a.need.bits(),
        });
    }
    let inside = a.va >= spec.iova && a.len <= spec.len && a.va - spec.iova <= spec.len - a.len;
    if !inside && a.len > 0 {
        return Err(KeyError::Range {
            key,
            va: a.va,
            len: a.len,
            start: spec.iova,
            size: spec.len,
        });
    }
    Ok(a.va.wrapping_sub(spec.iova))
}

fn check_spec(spec: &MrSpec) -> Result<(), KeyError> {
    spec.access.consistent()?;
    if spec.iova.checked_add(spec.len).is_none() {
        return Err(KeyError::Wraps {
            start: spec.iova,
            size: spec.len,
        });
    }
    Ok(())
}
