//! The lives of the processes that our queue pairs talk to.
//!
//! No packet tells that a peer has died (semantics: "A QP that dies does not tell its peer"). A
//! sender learns it from its retries, but a side that only waits to receive never would. On this
//! host we can know: a process descriptor becomes readable when its process ends.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Mutex;

use rustix::event::epoll;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::nic::{Nic, wake};
use crate::sync::LockExt;

#[derive(Default)]
pub(crate) struct Peers {
    watched: Mutex<HashMap<u16, OwnedFd>>,
}

impl Nic {
    /// Watches the process at `slot`, which something of ours has just been connected to.
    pub(crate) fn watch_peer(&self, slot: u16) {
        let mut watched = self.peers.watched.acquire();
        if watched.contains_key(&slot) || slot == self.qps.slot() {
            return;
        }
        // A peer in another PID namespace has no number here; its death is then found only by
        // retries, as with a peer on another host.
        let Some(pid) = self
            .shm
            .place()
            .pid_of(slot)
            .and_then(|p| Pid::from_raw(p as i32))
        else {
            return;
        };
        let Ok(fd) = pidfd_open(pid, PidfdFlags::empty()) else {
            return;
        };
        let data = epoll::EventData::new_u64(wake::PEER + u64::from(slot));
        if epoll::add(&self.wakeups, &fd, data, epoll::EventFlags::IN).is_ok() {
            watched.insert(slot, fd);
        }
    }

    /// The process at `slot` has ended: its queue pairs' peers get what they would get from
    /// hardware after their retries, even those that were only waiting.
    pub(crate) fn peer_died(&self, slot: u16) {
        if let Some(fd) = self.peers.watched.acquire().remove(&slot) {
            let _ = epoll::delete(&self.wakeups, &fd);
        }
        let _ = self.shm.probe(slot);
        self.shm.sweep();
        let now = crate::clock::now();
        self.qps.for_each(|cell| cell.peer_died(self, slot, now));
        self.cm_peer_died(slot, now);
    }
}
