//! What is to happen later: deadlines of exchanges, the end of those whose peer has died, and requests
//! that came a moment too early.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Mutex};

use adverb_engine::Instant;

use super::cell::Cell;
use super::gsi::Arrival;
use crate::fabric;
use crate::nic::Nic;
use crate::sync::LockExt;

/// What a process said last is taken in before its connections end.
const LAST_WORDS_NS: u64 = 50_000_000;

/// Programs tell each other a port when they have bound it, and listen an instant later. A request that
/// is quicker than that waits so long, and looks so often.
const EARLY_NS: u64 = 300_000_000;
const LOOK_AGAIN_NS: u64 = 2_000_000;

/// Others take a listener down and put up the next one at the same port. Between the two the port is nobody's, so few
/// requests wait for that, and less long: strangers can ask for ports that nobody has.
const NOBODYS_NS: u64 = 100_000_000;
const NOBODYS_LOOK_AGAIN_NS: u64 = 10_000_000;
const NOBODYS: usize = 16;

/// Requests that may wait for somebody to listen.
const EARLY: usize = 1024;

/// A source that asks for more at a time than is kept of it is let in little by little.
const CROWD_NS: u64 = 1_000_000_000;
const CROWD_LOOK_AGAIN_NS: u64 = 20_000_000;
const CROWD: usize = 256;

/// Reminders beyond those of the exchanges that there are: of such as have ended early.
const IDLE_REMINDERS: usize = 4096;

/// Why a request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// Somebody has bound the port and does not listen yet.
    Claimed,
    /// The port is nobody's.
    Nobodys,
    /// Its source has asked for a lot.
    Crowd,
}

#[derive(Default)]
pub(super) struct Later {
    /// At most as late as the exchange's own deadline, as in `fabric/timers.rs`.
    deadlines: Mutex<BinaryHeap<Reverse<(u64, u32)>>>,
    bereaved: Mutex<Vec<(Instant, Vec<Arc<Cell>>)>>,
    early: Mutex<Vec<(Instant, Arrival)>>,
}

impl Nic {
    /// Asks for the exchange `number` to be looked at by `at`.
    pub(super) fn remind_cm(&self, at: Instant, number: u32) {
        let mut deadlines = self.cm.later.deadlines.acquire();
        deadlines.push(Reverse((at.as_nanos(), number)));
        let table = &self.cm.table;
        if deadlines.len() > IDLE_REMINDERS + 4 * table.len() {
            deadlines.retain(|Reverse((_, number))| table.find(*number).is_some());
        }
        drop(deadlines);
        self.fabric.look_again(at, fabric::CONNECTIONS);
    }

    /// The process at `slot` has ended.
    pub(crate) fn cm_peer_died(&self, slot: u16, now: Instant) {
        let mut cells = self.cm.table.all();
        cells.retain(|cell| cell.talks_to(slot));
        if !cells.is_empty() {
            self.cm_bereave(cells, now);
        }
    }

    pub(super) fn cm_bereave(&self, cells: Vec<Arc<Cell>>, now: Instant) {
        let at = now.plus_nanos(LAST_WORDS_NS);
        self.cm.later.bereaved.acquire().push((at, cells));
        self.fabric.look_again(at, fabric::CONNECTIONS);
    }

    /// Keeps a request for later. False if that has lasted too long, or if too many wait.
    pub(super) fn put_off(&self, arrival: &Arrival, reason: Reason, now: Instant) -> bool {
        let (patience, pause, room) = match reason {
            Reason::Claimed => (EARLY_NS, LOOK_AGAIN_NS, EARLY),
            Reason::Nobodys => (NOBODYS_NS, NOBODYS_LOOK_AGAIN_NS, NOBODYS),
            Reason::Crowd => (CROWD_NS, CROWD_LOOK_AGAIN_NS, CROWD),
        };
        let until = arrival.until.unwrap_or_else(|| now.plus_nanos(patience));
        let mut early = self.cm.later.early.acquire();
        if now >= until || early.len() >= room {
            return false;
        }
        let again = Arrival {
            until: Some(until),
            ..arrival.clone()
        };
        let at = now.plus_nanos(pause);
        early.push((at, again));
        drop(early);
        self.fabric.look_again(at, fabric::CONNECTIONS);
        true
    }

    pub(super) fn take_cm_timers(&self, now: Instant) {
        loop {
            let number = {
                let mut deadlines = self.cm.later.deadlines.acquire();
                match deadlines.peek() {
                    Some(Reverse((at, _))) if *at <= now.as_nanos() => {}
                    _ => break,
                }
                let Some(Reverse((_, number))) = deadlines.pop() else {
                    break;
                };
                number
            };
            // Gone, or its ID is somebody else's by now, who then looks once too often.
            if let Some(cell) = self.cm.table.find(number) {
                cell.handle_timeout(now);
            }
        }
        let due: Vec<_> = {
            let mut bereaved = self.cm.later.bereaved.acquire();
            bereaved.extract_if(.., |(at, _)| *at <= now).collect()
        };
        for cell in due.iter().flat_map(|(_, cells)| cells) {
            cell.peer_gone(now);
        }
        let due: Vec<_> = {
            let mut early = self.cm.later.early.acquire();
            early.extract_if(.., |(at, _)| *at <= now).collect()
        };
        for (_, arrival) in &due {
            self.dispatch(now, arrival);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use adverb_link::Meta;
    use adverb_wire::cm::MAD_LEN;

    use super::*;

    #[test]
    fn requests_that_come_too_early_wait_in_a_bounded_number_and_not_for_ever() {
        let nic = Nic::start(crate::fork::generation()).unwrap();
        let mut arrival = Arrival {
            meta: Meta {
                src: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9)),
                dst: IpAddr::V4(Ipv4Addr::LOCALHOST),
                traffic_class: 0,
                hop_limit: 64,
                outside: true,
            },
            from_qp: 1,
            mad: [0; MAD_LEN],
            until: None,
        };
        let now = crate::clock::now();
        let kept = |reason| {
            (0..2 * EARLY)
                .filter(|_| nic.put_off(&arrival, reason, now))
                .count()
        };
        assert_eq!(kept(Reason::Nobodys), NOBODYS);
        assert_eq!(kept(Reason::Crowd), CROWD - NOBODYS);
        assert_eq!(kept(Reason::Claimed), EARLY - CROWD);
        nic.cm.later.early.acquire().clear();
        arrival.until = Some(now);
        assert!(
            !nic.put_off(&arrival, Reason::Claimed, now),
            "it has waited long enough"
        );
    }
}
