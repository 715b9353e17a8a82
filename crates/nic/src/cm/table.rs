//! Who is who: communication IDs, listeners, and who has asked already.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use super::cell::Cell;
use super::ports::Port;
use super::scope::Scope;
use super::strangers::{Place, Room, Source, Standing, Strangers};
use crate::error::NicError;
use crate::random;
use crate::sync::LockExt;

/// Bits of a communication ID below the slot of its process.
const LOCAL_BITS: u32 = 22;

/// Exchanges of a process at a time, those included that only wait for stragglers.
const MAX_TALKS: usize = 1 << 16;

/// Of these, begun by others and not connections (`strangers.rs`).
const MAX_STRANGERS: usize = MAX_TALKS / 8;

/// The slot of the process that chose a communication ID, if it is one of this host's.
pub(super) const fn slot_of(id: u32) -> u16 {
    (id >> LOCAL_BITS) as u16
}

/// Who asks: the address, what he calls himself, and his number for the exchange.
pub(super) type Asker = (IpAddr, u64, u32);

pub(super) struct Table {
    slot: u16,
    inner: Mutex<Inner>,
}

struct Inner {
    /// By communication ID.
    talks: HashMap<u32, Entry>,
    strangers: Strangers,
    /// Requests for a connection, by address, GUID and communication ID.
    asked: HashMap<Asker, Arc<Cell>>,
    /// Queue pairs of others that are connected with one of ours, by address, GUID and number.
    connected: HashMap<Asker, Arc<Cell>>,
    /// Lookups, by address and request ID.
    inquiries: HashMap<(IpAddr, u32), Arc<Cell>>,
    listeners: HashMap<Port, Vec<(Scope, Arc<Cell>)>>,
}

#[derive(Default)]
struct Entry {
    /// None while the ID is only reserved.
    cell: Option<Arc<Cell>>,
    /// In the books of those whom others began.
    place: Option<Place>,
}

/// Under which keys an exchange is to be found.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Keys {
    pub(super) number: u32,
    pub(super) asked: Option<Asker>,
    pub(super) connected: Option<Asker>,
    pub(super) inquiry: Option<(IpAddr, u32)>,
}

impl Table {
    pub(super) fn new(slot: u16) -> Self {
        Self {
            slot,
            inner: Mutex::new(Inner {
                talks: HashMap::new(),
                strangers: Strangers::new(MAX_STRANGERS),
                asked: HashMap::new(),
                connected: HashMap::new(),
                inquiries: HashMap::new(),
                listeners: HashMap::new(),
            }),
        }
    }

    /// A communication ID that nobody has. It names our process and is hard to guess.
    pub(super) fn reserve(&self) -> Result<u32, NicError> {
        self.reserve_for(None)
    }

    /// As [`Table::reserve`], for an exchange that somebody else begins. To be asked before: [`Table::room_for`].
    pub(super) fn reserve_for(&self, source: Option<Source>) -> Result<u32, NicError> {
        let mut inner = self.inner.acquire();
        if inner.talks.len() >= MAX_TALKS {
            return Err(NicError::Limit {
                what: "connection",
                limit: MAX_TALKS as u64,
            });
        }
        loop {
            let local = random::seed() as u32 & ((1 << LOCAL_BITS) - 1);
            let id = u32::from(self.slot) << LOCAL_BITS | local;
            if !inner.talks.contains_key(&id) {
                let place = source.map(|source| inner.strangers.enter(source));
                inner.talks.insert(id, Entry { cell: None, place });
                return Ok(id);
            }
        }
    }

    /// Whether somebody may begin an exchange.
    pub(super) fn room_for(&self, source: Source) -> Room {
        self.inner.acquire().strangers.room_for(source)
    }

    /// Where an exchange that somebody else began has got to.
    pub(super) fn note_standing(&self, number: u32, standing: Standing) {
        let mut inner = self.inner.acquire();
        let Inner {
            talks, strangers, ..
        } = &mut *inner;
        let Some(entry) = talks.get_mut(&number) else {
            return;
        };
        match (standing, &mut entry.place) {
            (Standing::Answered, Some(place)) => strangers.answered(place, number),
            (Standing::Known, place) => {
                if let Some(place) = place.take() {
                    strangers.leave(place);
                }
            }
            _ => {}
        }
    }

    /// From now on the exchange is found.
    pub(super) fn enter(&self, keys: &Keys, cell: &Arc<Cell>) {
        let mut inner = self.inner.acquire();
        inner.talks.entry(keys.number).or_default().cell = Some(Arc::clone(cell));
        if let Some(key) = keys.asked {
            inner.asked.insert(key, Arc::clone(cell));
        }
        if let Some(key) = keys.connected {
            inner.connected.insert(key, Arc::clone(cell));
        }
        if let Some(key) = keys.inquiry {
            inner.inquiries.insert(key, Arc::clone(cell));
        }
    }

    /// Gives back an ID, and every key that still leads to the exchange.
    pub(super) fn leave(&self, keys: &Keys, cell: &Arc<Cell>) {
        let mut inner = self.inner.acquire();
        if let Some(place) = inner.talks.remove(&keys.number).and_then(|e| e.place) {
            inner.strangers.leave(place);
        }
        if let Some(key) = keys.asked {
            remove_own(&mut inner.asked, &key, cell);
        }
        if let Some(key) = keys.connected {
            remove_own(&mut inner.connected, &key, cell);
        }
        if let Some(key) = keys.inquiry {
            remove_own(&mut inner.inquiries, &key, cell);
        }
    }

    /// The peer's queue pair is connected with one of ours.
    pub(super) fn connect(&self, key: Asker, cell: &Arc<Cell>) {
        self.inner.acquire().connected.insert(key, Arc::clone(cell));
    }

    /// It is not any more.
    pub(super) fn disconnect(&self, key: Asker, cell: &Arc<Cell>) {
        remove_own(&mut self.inner.acquire().connected, &key, cell);
    }

    pub(super) fn find(&self, number: u32) -> Option<Arc<Cell>> {
        self.inner.acquire().talks.get(&number)?.cell.clone()
    }

    pub(super) fn asked(&self, key: Asker) -> Option<Arc<Cell>> {
        self.inner.acquire().asked.get(&key).cloned()
    }

    pub(super) fn connected(&self, key: Asker) -> Option<Arc<Cell>> {
        self.inner.acquire().connected.get(&key).cloned()
    }

    pub(super) fn inquiry(&self, key: (IpAddr, u32)) -> Option<Arc<Cell>> {
        self.inner.acquire().inquiries.get(&key).cloned()
    }

    /// How many exchanges there are.
    pub(super) fn len(&self) -> usize {
        self.inner.acquire().talks.len()
    }

    pub(super) fn all(&self) -> Vec<Arc<Cell>> {
        let inner = self.inner.acquire();
        inner
            .talks
            .values()
            .filter_map(|e| e.cell.clone())
            .collect()
    }

    pub(super) fn listen(&self, port: Port, scope: Scope, cell: &Arc<Cell>) {
        let mut inner = self.inner.acquire();
        let list = inner.listeners.entry(port).or_default();
        list.push((scope, Arc::clone(cell)));
    }

    pub(super) fn unlisten(&self, port: Port, cell: &Arc<Cell>) {
        let mut inner = self.inner.acquire();
        if let Some(list) = inner.listeners.get_mut(&port) {
            list.retain(|(_, c)| !Arc::ptr_eq(c, cell));
            if list.is_empty() {
                inner.listeners.remove(&port);
            }
        }
    }

    /// Who of this process listens at an address.
    pub(super) fn listener(&self, port: Port, address: IpAddr) -> Option<Arc<Cell>> {
        let inner = self.inner.acquire();
        let fits = inner.listeners.get(&port)?.iter();
        fits.filter_map(|(scope, cell)| Some((scope.rank(address)?, cell)))
            .min_by_key(|(rank, _)| *rank)
            .map(|(_, cell)| Arc::clone(cell))
    }
}

fn remove_own<K: std::hash::Hash + Eq>(map: &mut HashMap<K, Arc<Cell>>, key: &K, cell: &Arc<Cell>) {
    if map.get(key).is_some_and(|c| Arc::ptr_eq(c, cell)) {
        map.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_names_its_process_and_is_nobody_elses() {
        let table = Table::new(1023);
        let mut seen = std::collections::HashSet::new();
        for _ in 0..1000 {
            let id = table.reserve().unwrap();
            assert_eq!(slot_of(id), 1023);
            assert!(seen.insert(id));
        }
    }

    #[test]
    fn exchanges_have_a_bound() {
        let table = Table::new(1);
        for _ in 0..MAX_TALKS {
            table.reserve().unwrap();
        }
        let text = table.reserve().unwrap_err().to_string();
        assert!(text.contains("connection"), "{text}");
    }
}
