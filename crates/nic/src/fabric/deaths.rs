//! The lives of the processes that our queue pairs talk to.
//!
//! No packet tells that a peer has died (semantics: "A QP that dies does not tell its peer"). A
//! sender learns it from its retries, but a side that only waits to receive never would. On this
//! host we can know: a process descriptor becomes readable when its process ends.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Mutex;

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::Fabric;
use crate::sync::LockExt;

#[derive(Default)]
pub(super) struct Deaths {
    watched: Mutex<HashMap<u16, OwnedFd>>,
}

impl Fabric {
    /// Watches the process at `slot`, which something of ours has just been connected to.
    pub(crate) fn watch_peer(&self, slot: u16) {
        let mut watched = self.deaths.watched.acquire();
        if watched.contains_key(&slot) || slot == self.slot {
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
        if self.watch.death(&fd, slot).is_ok() {
            watched.insert(slot, fd);
        }
    }

    /// The process at `slot` has ended.
    pub(crate) fn bury(&self, slot: u16) {
        if let Some(fd) = self.deaths.watched.acquire().remove(&slot) {
            self.watch.forget(&fd);
        }
        self.probe(slot);
        self.shm.sweep();
    }
}
