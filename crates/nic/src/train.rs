//! Trains: many packets of one message in one piece, copied once from the program's memory to the link and once from the
//! link to the program's memory.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use adverb_engine::{Host, Instant, KeyError, Load, MemAccess, PacketMeta, Unload};
use adverb_link::Meta;
use adverb_mem::{Source, Target};
use adverb_wire::{GSI_QPN, Train};

use crate::driver::list_owned;
use crate::fabric::same_peer;
use crate::host::View;
use crate::multicast;
use crate::nic::Nic;
use crate::qp::{QpCell, State};
use crate::sync::LockExt;

/// Shorter messages travel as packets: below this, what is saved in copying is less than what a train costs.
const LEAST: u32 = 1024;

/// The longest train. The receiver cannot begin before all of one is there, so that one as long as the message would make
/// a single message wait for both copies; at this length they overlap, and what a train costs beside them no longer shows.
const MOST: u32 = 16 * 1024;

/// After copying so many bytes the process says again that it is awake.
const NOTE_EVERY: u32 = 16 * 1024;

impl Nic {
    /// Sends trains for as long as what comes next is one and the link takes it. Says how many, and
    /// [`Fabric::wake`](crate::fabric::Fabric::wake) must follow if there were any.
    pub(crate) fn send_trains(&self, cell: &Arc<QpCell>, state: &mut State, now: Instant) -> u32 {
        let State {
            machine,
            way,
            meta,
            last_sent,
            ..
        } = state;
        let Some((way, meta)) = way.as_ref().zip(*meta) else {
            return 0;
        };
        if !way.carries_trains() {
            return 0;
        }
        let mut sent = 0;
        let mut unnoted = 0;
        while let Some(departure) = machine.next_train(now, &mut cell.view(), LEAST, MOST) {
            let train = departure.train();
            // Where there is no room, or none to reach, packets find out what that means.
            let Ok(mut berth) = self.fabric.reserve(way, &meta, train.len() as usize) else {
                break;
            };
            sent += 1;
            let mut loading = Loading {
                view: cell.view(),
                payload: berth.payload(),
            };
            let loaded = machine.depart(now, &departure, &mut cell.view(), &mut loading);
            if loaded.is_err() {
                break;
            }
            let mut head = [0; Train::MAX_HEAD];
            let len = train.emit(&mut head);
            berth.send(&head[..len]);
            *last_sent = now;
            unnoted += train.len();
            if unnoted >= NOTE_EVERY {
                self.note_going_on();
                unnoted = 0;
            }
        }
        sent
    }

    /// A train has arrived.
    pub(crate) fn handle_train(
        &self,
        now: Instant,
        meta: &Meta,
        head: &[u8],
        payload: Source<'_>,
        may_owe: bool,
        dirty: &mut Vec<Arc<QpCell>>,
    ) {
        let counters = &self.counters;
        let len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let Ok(train) = Train::parse(head, len) else {
            counters.malformed.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let number = train.first().bth.dest_qp;
        // What these take is never longer than a packet.
        if number == multicast::ALL_MEMBERS || number == GSI_QPN {
            counters.malformed.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let Some(cell) = self.qps.get(number) else {
            counters.no_such_qp.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let mut state = cell.state.acquire();
        if state.destroyed {
            counters.no_such_qp.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let expected = state.meta.map(|m| m.dst);
        if !expected.is_some_and(|ip| same_peer(cell.context.device(), meta.src, ip)) {
            counters.wrong_peer.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let from = PacketMeta {
            src: meta.src,
            dst: meta.dst,
            traffic_class: meta.traffic_class,
            hop_limit: meta.hop_limit,
        };
        let mut unloading = Unloading {
            view: cell.view(),
            payload,
        };
        let dropped =
            state
                .machine
                .handle_train(now, &from, &train, &mut cell.view(), &mut unloading);
        if dropped > 0 {
            counters
                .refused
                .fetch_add(dropped.into(), Ordering::Relaxed);
        }
        cell.settle(&mut state, now);
        if self.has_to_say(&cell, &mut state, may_owe && len < NOTE_EVERY / 2) {
            drop(state);
            list_owned(dirty, cell);
        }
        if len >= NOTE_EVERY / 2 {
            self.note_going_on();
        }
    }
}

/// A payload that is being put on a link.
struct Loading<'a> {
    view: View<'a>,
    payload: Target<'a>,
}

impl Load for Loading<'_> {
    fn load(&mut self, _host: &mut dyn Host, from: &MemAccess, at: u64) -> Result<(), KeyError> {
        let (at, len) = (at as usize, from.len as usize);
        let payload = &mut self.payload;
        self.view.with(from, |backing, offset| {
            backing.read_to(offset, payload, at, len)
        })
    }
}

/// A payload that a link has brought.
struct Unloading<'a> {
    view: View<'a>,
    payload: Source<'a>,
}

impl Unload for Unloading<'_> {
    fn unload(&mut self, _host: &mut dyn Host, to: &MemAccess, at: u64) -> Result<(), KeyError> {
        let (at, len) = (at as usize, to.len as usize);
        self.view.with(to, |backing, offset| {
            backing.write_from(offset, &self.payload, at, len)
        })
    }

    fn look(&mut self, at: u64, out: &mut [u8]) {
        self.payload.copy(at as usize, out);
    }
}
