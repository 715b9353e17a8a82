//! Multicast: who has joined which group, and how a datagram reaches them all.
//!
//! On a network interface the network does the copying: each process joins with a socket of its
//! own. The loopback interface does not carry multicast, so there the copies go through shared
//! memory even where `ADVERB_LINKS` leaves only UDP, and the processes of this user find each other
//! in a directory: a member is a file there, named for group and slot. A sender keeps what it read
//! until `changes` has grown, to which everybody who joins or leaves adds a byte.

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use adverb_engine::{Instant, PacketMeta};
use adverb_link::shm::ShmRoute;
use adverb_link::{Meta, SendError};
use adverb_wire::{Gid, Packet, Transport};

use crate::device::{MAX_GROUPS, MAX_MEMBERS};
use crate::driver::list;
use crate::error::NicError;
use crate::fork;
use crate::nic::Nic;
use crate::qp::QpCell;
use crate::sync::LockExt;

/// The destination that stands for "everybody in the group".
pub(crate) const ALL_MEMBERS: u32 = 0xff_ffff;

/// The groups of this process, and what it knows of the others'.
pub(crate) struct Groups {
    dir: PathBuf,
    slot: u16,
    joined: RwLock<HashMap<IpAddr, Vec<Arc<QpCell>>>>,
    elsewhere: Mutex<HashMap<IpAddr, Known>>,
}

/// The processes in a group, as of a number of changes.
struct Known {
    changes: u64,
    routes: Vec<ShmRoute>,
}

impl Groups {
    /// `place` is the directory in which the processes of this user find each other.
    pub(crate) fn new(place: &std::path::Path, slot: u16) -> Self {
        Self {
            dir: place.join("groups"),
            slot,
            joined: RwLock::default(),
            elsewhere: Mutex::default(),
        }
    }

    fn member_file(&self, group: IpAddr, slot: u16) -> PathBuf {
        self.dir.join(format!("{group}@{slot}"))
    }

    fn changes(&self) -> u64 {
        fs::metadata(self.dir.join("changes")).map_or(0, |m| m.len())
    }

    fn announce(&self, group: IpAddr) -> io::Result<()> {
        // Inside a directory that only this user can enter, so its own mode does not matter.
        fs::create_dir_all(&self.dir)?;
        fs::write(self.member_file(group, self.slot), [])?;
        self.note_change()
    }

    fn withdraw(&self, group: IpAddr) {
        // Whoever still sends to us meanwhile sends to nobody.
        let _ = fs::remove_file(self.member_file(group, self.slot));
        let _ = self.note_change();
    }

    fn note_change(&self) -> io::Result<()> {
        let mut file = OpenOptions::new()
            .append(true)
            .create(true)
            .open(self.dir.join("changes"))?;
        file.write_all(b"+")
    }

    /// The slots of other processes in the group, dead ones included.
    fn slots(&self, group: IpAddr) -> Vec<u16> {
        let Ok(entries) = fs::read_dir(&self.dir) else {
            return Vec::new();
        };
        let prefix = format!("{group}@");
        entries
            .filter_map(|e| {
                e.ok()?
                    .file_name()
                    .to_str()?
                    .strip_prefix(&prefix)?
                    .parse()
                    .ok()
            })
            .filter(|slot| *slot != self.slot)
            .collect()
    }
}

impl Nic {
    /// Joins; a second time changes nothing.
    pub(crate) fn join_group(&self, cell: &Arc<QpCell>, group: IpAddr) -> Result<(), NicError> {
        let device = cell.context.device();
        let mut joined = self
            .groups
            .joined
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        if joined
            .get(&group)
            .is_some_and(|m| m.iter().any(|c| Arc::ptr_eq(c, cell)))
        {
            return Ok(());
        }
        let (groups, members) = (
            joined.len() as u32,
            joined.get(&group).map_or(0, Vec::len) as u32,
        );
        if members == 0 && groups >= MAX_GROUPS {
            return Err(NicError::Limit {
                what: "multicast group",
                limit: MAX_GROUPS.into(),
            });
        }
        if members >= MAX_MEMBERS {
            return Err(NicError::Limit {
                what: "queue pair in the group",
                limit: MAX_MEMBERS.into(),
            });
        }
        if self.fabric.groups_by_udp(device) {
            let link = self.fabric.open_udp(device)?;
            link.join(group, |fd| self.fabric.adopt_socket(fd))
                .map_err(NicError::io("joining a multicast group"))?;
        } else {
            self.groups
                .announce(group)
                .map_err(NicError::io("joining a multicast group"))?;
        }
        joined.entry(group).or_default().push(Arc::clone(cell));
        cell.groups.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Leaves; false when the queue pair was no member.
    pub(crate) fn leave_group(&self, cell: &Arc<QpCell>, group: IpAddr) -> bool {
        let mut joined = self
            .groups
            .joined
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let Some(members) = joined.get_mut(&group) else {
            return false;
        };
        let Some(at) = members.iter().position(|c| Arc::ptr_eq(c, cell)) else {
            return false;
        };
        members.swap_remove(at);
        cell.groups.fetch_sub(1, Ordering::AcqRel);
        if members.is_empty() {
            joined.remove(&group);
            if self.fabric.groups_by_udp(cell.context.device()) {
                self.fabric
                    .each_udp(|link| link.leave(group, |fd| fork::release_socket(fd.as_raw_fd())));
            } else {
                self.groups.withdraw(group);
            }
        }
        true
    }

    /// Takes a queue pair that is going away out of all groups.
    pub(crate) fn leave_all_groups(&self, cell: &Arc<QpCell>) {
        if cell.groups.load(Ordering::Acquire) == 0 {
            return;
        }
        let joined = self
            .groups
            .joined
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        let all: Vec<IpAddr> = joined.keys().copied().collect();
        drop(joined);
        for group in all {
            self.leave_group(cell, group);
        }
    }

    /// Sends to the members in this process, and to the other processes that have some. What the
    /// first of them has no room for is kept by the caller; after that a full ring loses its copy.
    pub(crate) fn send_to_group(
        &self,
        group: IpAddr,
        meta: &Meta,
        packet: &[u8],
        now: Instant,
    ) -> Result<(), SendError> {
        let here = {
            let joined = self
                .groups
                .joined
                .read()
                .unwrap_or_else(PoisonError::into_inner);
            joined.contains_key(&group)
        };
        let mut sent = false;
        if here {
            self.fabric.send_here(meta, packet)?;
            sent = true;
        }
        let mut elsewhere = self.groups.elsewhere.acquire();
        let changes = self.groups.changes();
        let known = elsewhere.entry(group).or_insert(Known {
            changes: u64::MAX,
            routes: Vec::new(),
        });
        if known.changes != changes {
            known.changes = changes;
            known.routes.clear();
            for slot in self.groups.slots(group) {
                match self.fabric.process(slot) {
                    Some(route) => known.routes.push(route),
                    // What a process left behind that ended without leaving.
                    None if !self.fabric.is_alive(slot) => {
                        let _ = fs::remove_file(self.groups.member_file(group, slot));
                    }
                    None => {}
                }
            }
        }
        for route in &known.routes {
            match self.fabric.send_to_process(route, meta, packet, now) {
                Err(SendError::Full) if !sent => return Err(SendError::Full),
                _ => sent = true,
            }
        }
        Ok(())
    }

    /// Gives a datagram to every member in this process.
    pub(crate) fn handle_group(
        &self,
        now: Instant,
        meta: &Meta,
        packet: &Packet<'_>,
        dirty: &mut Vec<Arc<QpCell>>,
    ) {
        let group = Gid::from_ip(meta.dst).to_ip();
        let members = {
            let joined = self
                .groups
                .joined
                .read()
                .unwrap_or_else(PoisonError::into_inner);
            joined.get(&group).cloned().unwrap_or_default()
        };
        let from = PacketMeta {
            src: meta.src,
            dst: meta.dst,
            traffic_class: meta.traffic_class,
            hop_limit: meta.hop_limit,
        };
        let sender = packet.deth.map(|deth| deth.src_qp);
        for cell in members {
            debug_assert!(cell.transport == Transport::Ud, "nobody else can join");
            // Numbers are unique on this host; on another one a stranger may have the same.
            let own = sender == Some(cell.number) && cell.context.device().owns(meta.src);
            if own && cell.blocks_own_multicast {
                continue;
            }
            let mut state = cell.state.acquire();
            if state.destroyed {
                continue;
            }
            if state
                .machine
                .handle_packet(now, &from, packet, &mut cell.view())
                .is_err()
            {
                self.counters.refused.fetch_add(1, Ordering::Relaxed);
            }
            cell.settle(&mut state, now);
            drop(state);
            list(dirty, &cell);
        }
    }
}
