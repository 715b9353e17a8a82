//! Memory keys: who may touch which range with which right.
//!
//! A key is `index << 8 | tag`. The low 18 bits of the index name the slot of a flat table; the six
//! above and the tag are random, and the whole key is compared, so a guessed or stale key misses.

use crate::ids::{Key, PdId, QpNum};
use crate::memory::{Access, KeyError, MemAccess};

/// What a key covers. `iova` is the address peers and work requests use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MrSpec {
    pub pd: PdId,
    pub iova: u64,
    pub len: u64,
    pub access: Access,
}

#[derive(Debug)]
struct Slot<T> {
    /// The key in use, or the last one that was.
    key: u32,
    entry: Option<(MrSpec, T)>,
}

/// All memory keys of a device. `T` is what the NIC needs to reach the bytes.
#[derive(Debug)]
pub struct KeyTable<T> {
    slots: Vec<Slot<T>>,
    used: usize,
    limit: usize,
    random: u64,
}

const SLOT_BITS: u32 = 18;
const FIRST_SIZE: usize = 256;

impl<T> KeyTable<T> {
    /// A table for at most `limit` keys (and never more than 131,072). The same seed gives the same keys.
    pub fn new(limit: usize, seed: u64) -> Self {
        Self {
            slots: Vec::new(),
            used: 0,
            limit: limit.min(1 << (SLOT_BITS - 1)),
            random: seed | 1,
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
        if self.used >= self.limit {
            return Err(KeyError::Limit { limit: self.limit });
        }
        // At most half full, so that a random probe finds room at once and keys stay unpredictable.
        if (self.used + 1) * 2 > self.slots.len() {
            let size = (self.slots.len() * 2).max(FIRST_SIZE);
            self.slots.resize_with(size, || Slot {
                key: 0,
                entry: None,
            });
        }
        loop {
            let random = self.next_random();
            let at = (random as usize) & (self.slots.len() - 1);
            let slot = &mut self.slots[at];
            let high = (random >> 32) as u32 & 0x3f;
            let key = high << (SLOT_BITS + 8) | (at as u32) << 8 | (random >> 48) as u32 & 0xff;
            // Zero looks like "no key" to applications, and the key last seen here is still
            // in the hands of somebody.
            if slot.entry.is_some() || key == 0 || key == slot.key {
                continue;
            }
            slot.key = key;
            slot.entry = Some((spec, value));
            self.used += 1;
            return Ok(Key(key));
        }
    }

    pub fn remove(&mut self, key: Key) -> Option<T> {
        let slot = self.slot_mut(key)?;
        let (_, value) = slot.entry.take()?;
        self.used -= 1;
        Some(value)
    }

    pub fn get(&self, key: Key) -> Option<(&MrSpec, &T)> {
        let slot = self.slots.get(slot_of(key)).filter(|s| s.key == key.0)?;
        slot.entry.as_ref().map(|(spec, value)| (spec, value))
    }

    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        self.slot_mut(key)?.entry.as_mut().map(|(_, value)| value)
    }

    /// Gives the key another meaning. On error the old one stays.
    pub fn rereg(&mut self, key: Key, spec: MrSpec) -> Result<(), KeyError> {
        check_spec(&spec)?;
        let slot = self.slot_mut(key).ok_or(KeyError::Unknown { key: key.0 })?;
        let entry = slot
            .entry
            .as_mut()
            .ok_or(KeyError::Unknown { key: key.0 })?;
        entry.0 = spec;
        Ok(())
    }

    /// The entry behind a key and the offset of `va` in it, if every check passes.
    pub fn resolve(&self, a: &MemAccess) -> Result<(&T, u64), KeyError> {
        let key = a.key.0;
        let (spec, value) = self.get(a.key).ok_or(KeyError::Unknown { key })?;
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
        if a.va < spec.iova || a.len > spec.len || a.va - spec.iova > spec.len - a.len {
            return Err(KeyError::Range {
                key,
                va: a.va,
                len: a.len,
                start: spec.iova,
                size: spec.len,
            });
        }
        Ok((value, a.va - spec.iova))
    }

    /// LOCAL_INV and SEND_WITH_INV. Regions that an application registered cannot be invalidated.
    pub fn invalidate(&mut self, key: Key, pd: PdId, _qp: QpNum) -> Result<(), KeyError> {
        let (spec, _) = self.get(key).ok_or(KeyError::Unknown { key: key.0 })?;
        if spec.pd != pd {
            return Err(KeyError::WrongPd {
                key: key.0,
                owner: spec.pd.0,
                asked: pd.0,
            });
        }
        Err(KeyError::NotInvalidatable { key: key.0 })
    }

    fn slot_mut(&mut self, key: Key) -> Option<&mut Slot<T>> {
        self.slots.get_mut(slot_of(key)).filter(|s| s.key == key.0)
    }

    fn next_random(&mut self) -> u64 {
        // SplitMix64: equidistributed, and enough for keys that only have to be hard to hit by accident.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

const fn slot_of(key: Key) -> usize {
    (key.0 >> 8) as usize & ((1 << SLOT_BITS) - 1)
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
