//! Exchanges that others have begun and that are not connections: how many there are, whose, and which of them can be
//! spared.
//!
//! Anybody on the network can ask for a connection, in anybody's name. What he asks for takes a place in the table until it
//! is answered and, once refused, until he has surely heard so. A source has 64 such places and all sources together an
//! eighth of the table, so most of it stays for the connections of this process. A refusal is kept for the comfort of those
//! who missed it (they would only be asked about twice); so it goes when its place is needed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

/// Exchanges at a time that one source has begun.
pub(super) const PER_SOURCE: usize = 64;

/// Where a request says that it comes from. An owner of an IPv6 network has all of its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Source(IpAddr);

impl Source {
    pub(super) fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self(address),
            IpAddr::V6(ip) => {
                let [a, b, c, d, ..] = ip.segments();
                Self([a, b, c, d, 0, 0, 0, 0].into())
            }
        }
    }
}

/// What becomes of somebody's exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Waits for our user, or for him.
    Open,
    /// He was refused or otherwise answered, and may not have heard it.
    Answered,
    /// A connection, or ours from the beginning.
    Known,
}

/// What there is room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    Free,
    /// If the exchange with this number is forgotten.
    Instead(u32),
    None,
}

#[derive(Default)]
struct Sourced {
    count: usize,
    answered: BTreeSet<u64>,
}

/// The books. Who is in them is entered once and leaves once.
pub(super) struct Strangers {
    limit: usize,
    count: usize,
    sources: HashMap<Source, Sourced>,
    /// In the order in which they were answered.
    answered: BTreeMap<u64, u32>,
    serial: u64,
}

/// One exchange in the books.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    source: Source,
    answered: Option<u64>,
}

impl Strangers {
    /// Books for at most `limit` exchanges.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            count: 0,
            sources: HashMap::new(),
            answered: BTreeMap::new(),
            serial: 0,
        }
    }

    /// Whether `source` may begin another exchange.
    pub(super) fn room_for(&self, source: Source) -> Room {
        let own = self.sources.get(&source);
        let spared = if own.is_some_and(|s| s.count >= PER_SOURCE) {
            own.and_then(|s| s.answered.first())
        } else if self.count >= self.limit {
            self.answered.keys().next()
        } else {
            return Room::Free;
        };
        let number = spared.and_then(|serial| self.answered.get(serial));
        number.map_or(Room::None, |number| Room::Instead(*number))
    }

    pub(super) fn enter(&mut self, source: Source) -> Place {
        self.count += 1;
        self.sources.entry(source).or_default().count += 1;
        Place {
            source,
            answered: None,
        }
    }

    /// The exchange can be spared from now on.
    pub(super) fn answered(&mut self, place: &mut Place, number: u32) {
        if place.answered.is_none() {
            self.serial += 1;
            place.answered = Some(self.serial);
            self.answered.insert(self.serial, number);
            let sourced = self.sources.entry(place.source).or_default();
            sourced.answered.insert(self.serial);
        }
    }

    pub(super) fn leave(&mut self, place: Place) {
        self.count -= 1;
        if let Some(serial) = place.answered {
            self.answered.remove(&serial);
        }
        if let Some(sourced) = self.sources.get_mut(&place.source) {
            sourced.count -= 1;
            if let Some(serial) = place.answered {
                sourced.answered.remove(&serial);
            }
            if sourced.count == 0 {
                self.sources.remove(&place.source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        Source::of(text.parse().unwrap())
    }

    #[test]
    fn a_source_has_so_many_and_the_oldest_answered_goes_first() {
        let mut books = Strangers::new(1000);
        let (a, b) = (source("192.0.2.1"), source("192.0.2.2"));
        let mut places: Vec<_> = (0..PER_SOURCE).map(|_| books.enter(a)).collect();
        assert_eq!(books.room_for(a), Room::None);
        assert_eq!(books.room_for(b), Room::Free);
        books.answered(&mut places[7], 7);
        books.answered(&mut places[3], 3);
        assert_eq!(books.room_for(a), Room::Instead(7));
        books.leave(places[7]);
        assert_eq!(books.room_for(a), Room::Free);
        books.enter(a);
        assert_eq!(books.room_for(a), Room::Instead(3));
    }

    #[test]
    fn all_together_have_so_many() {
        let mut books = Strangers::new(3);
        let mut places: Vec<_> = (1..=3)
            .map(|n| books.enter(source(&format!("192.0.2.{n}"))))
            .collect();
        let next = source("192.0.2.9");
        assert_eq!(books.room_for(next), Room::None);
        books.answered(&mut places[1], 11);
        assert_eq!(books.room_for(next), Room::Instead(11));
        books.leave(places[0]);
        assert_eq!(books.room_for(next), Room::Free);
        for place in [places[1], places[2]] {
            books.leave(place);
        }
        assert!(books.sources.is_empty() && books.answered.is_empty());
    }

    #[test]
    fn an_ipv6_network_is_one_source() {
        assert_eq!(source("2001:db8::1"), source("2001:db8::ffff:1"));
        assert_ne!(source("2001:db8::1"), source("2001:db8:0:1::1"));
    }
}
