//! Which process of those that share a port gets a datagram: a hint to the kernel.
//!
//! By itself the kernel gives all datagrams of one sender to one socket of the group, whichever a hash says. A program of
//! classic BPF can say instead: it looks at the destination queue pair, whose upper bits are the slot of a process, and
//! answers with the index of that process's socket. For slots that it does not know, and for the special queue pairs, it
//! answers with no index at all, and the kernel goes by its hash.
//!
//! Indices follow from who came and went (socket(7), under `SO_ATTACH_REUSEPORT_CBPF`): a socket gets the next one when
//! it is bound, and when one is closed the last moves into its place. So the processes keep the order of each address in
//! a file of their directory, and whoever changes it attaches a new program. Nobody says when a process dies; it is
//! noticed by whoever comes next, or by who gets datagrams of another. If two have died, which of them did first is a
//! guess.
//!
//! A wrong order costs what there is without one: datagrams come to a wrong process, which hands them over. It also tells
//! that process something: the index that the order has for their owner is its own. Each such lesson puts one
//! process in its place, and lessons from datagrams that an earlier program sent here are taken back by later ones. A
//! process that is in no order, because somebody else sat on it for long, gets what the hash gives it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use adverb_mem::sockopt::{Instruction, steer_group};
use rustix::event::{Timespec, poll};
use rustix::fs::{FlockOperation, flock};

use crate::qpn::{LOCAL_BITS, SLOT_MAX};
use crate::shm::place::{generation_of, open_file};

/// Where the processes that share a port agree on the order of their sockets.
#[derive(Debug, Clone)]
pub struct Meeting {
    /// The private directory of the user.
    pub dir: PathBuf,
    /// Our slot in it.
    pub slot: u16,
}

/// The part of one socket.
#[derive(Debug)]
pub(super) struct Steering {
    meeting: Meeting,
    path: PathBuf,
    own: Member,
    /// Forked children must leave alone what their parent owns.
    process: u32,
    /// The version of the order that was last looked at.
    version: AtomicU64,
    /// Datagrams of others since the last look.
    misses: AtomicU32,
    /// So many are borne until the next look.
    patience: AtomicU32,
}

/// Misses before a look at the order: a few may be on their way while it changes.
const FIRST_PATIENCE: u32 = 8;
/// And when looks have been in vain. Some slots cannot be steered to, as those of processes without sockets.
const LAST_PATIENCE: u32 = 4096;
/// How long, in milliseconds, a newcomer waits for the order; then the others have to find out about it.
const LOCK_PATIENCE: u32 = 50;

impl Steering {
    /// Prepares for the socket of `address`. `None` if the slot is not held by a living process.
    pub(super) fn new(meeting: &Meeting, address: IpAddr, scope_id: u32) -> Option<Self> {
        let own = Member {
            slot: meeting.slot,
            generation: generation_of(&meeting.dir, meeting.slot)?,
        };
        Some(Self {
            path: meeting.dir.join(format!("order-{address}-{scope_id}")),
            meeting: meeting.clone(),
            own,
            process: std::process::id(),
            version: AtomicU64::new(0),
            misses: AtomicU32::new(0),
            patience: AtomicU32::new(FIRST_PATIENCE),
        })
    }

    /// Holds the order still while a socket is bound. `None` if somebody else holds it for long.
    pub(super) fn enter(&self) -> Option<Ledger> {
        Ledger::open(&self.path, LOCK_PATIENCE)
    }

    /// The socket has just been bound.
    pub(super) fn joined(&self, ledger: Option<Ledger>, socket: impl AsFd) {
        let Some(mut ledger) = ledger else { return };
        ledger.order.bury(&self.meeting.dir);
        // If we had a socket here before and could not say that it was closed.
        let _ = ledger.order.remove(self.own);
        ledger.order.members.push(self.own);
        self.publish(&mut ledger, socket);
    }

    /// Closes the socket.
    pub(super) fn leave(&self, socket: impl AsFd) {
        if std::process::id() != self.process {
            return;
        }
        let ledger = self.enter().and_then(|mut ledger| {
            ledger.order.remove(self.own)?;
            self.publish(&mut ledger, &socket);
            Some(ledger)
        });
        // Under the lock, so that nobody counts on another number of sockets than there is.
        drop(socket);
        drop(ledger);
    }

    /// The slot of the process that owns the destination of `packet`, unless that is ourselves or nobody.
    pub(super) fn other_owner(&self, packet: &[u8]) -> Option<u16> {
        let slot = slot_in(packet);
        (slot != 0 && slot != self.own.slot).then_some(slot)
    }

    /// A datagram for the process at `slot` has come to our socket by the kernel's choice.
    pub(super) fn missed(&self, slot: u16, socket: impl AsFd) {
        let misses = self.misses.fetch_add(1, Ordering::Relaxed) + 1;
        let patience = self.patience.load(Ordering::Relaxed);
        if misses < patience {
            return;
        }
        self.misses.store(0, Ordering::Relaxed);
        let patience = match self.repair(slot, socket) {
            Some(true) => FIRST_PATIENCE,
            Some(false) => patience.saturating_mul(2).min(LAST_PATIENCE),
            None => patience,
        };
        self.patience.store(patience, Ordering::Relaxed);
    }

    /// Whether the order is another than at the last look. `None` if somebody holds it.
    fn repair(&self, slot: u16, socket: impl AsFd) -> Option<bool> {
        let mut ledger = Ledger::open(&self.path, 0)?;
        let version = ledger.order.version;
        if self.version.swap(version, Ordering::Relaxed) != version {
            // What has come may have been sent here by the program before.
            return Some(true);
        }
        let changed = ledger.order.bury(&self.meeting.dir) || ledger.order.learn(self.own, slot);
        if changed {
            self.publish(&mut ledger, socket);
        }
        Some(changed)
    }

    /// An order that cannot be written or a program that is refused is a hint not given.
    fn publish(&self, ledger: &mut Ledger, socket: impl AsFd) {
        ledger.order.version += 1;
        self.version.store(ledger.order.version, Ordering::Relaxed);
        let _ = ledger.store();
        let _ = steer_group(socket, &program(&ledger.order.members));
    }
}

/// The slot of the process that owns the destination of a packet; zero for the special queue pairs.
pub(super) fn slot_in(packet: &[u8]) -> u16 {
    let bytes = packet.get(DEST_QP_AT..).and_then(|rest| rest.first_chunk());
    bytes.map_or(0, |bytes| u16::from_be_bytes(*bytes) >> SLOT_SHIFT)
}

/// A process, and the random number that tells it from later holders of its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Member {
    slot: u16,
    generation: u64,
}

/// Whose socket has which index.
#[derive(Debug, Default, PartialEq, Eq)]
struct Order {
    version: u64,
    members: Vec<Member>,
}

impl Order {
    /// A line with the version and the number of members, and one for each. What is left behind them of a longer file
    /// is not looked at, nor is an order that somebody was killed while writing.
    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split_ascii_whitespace();
        let mut next = || numbers.next()?.parse::<u64>().ok();
        let version = next()?;
        let count = next()?.min(u64::from(SLOT_MAX));
        let members = (0..count)
            .map(|_| {
                let slot = u16::try_from(next()?).ok()?;
                let generation = next()?;
                Some(Member { slot, generation })
            })
            .collect::<Option<_>>()?;
        Some(Self { version, members })
    }

    fn to_text(&self) -> String {
        let mut text = format!("{} {}\n", self.version, self.members.len());
        for member in &self.members {
            text += &format!("{} {}\n", member.slot, member.generation);
        }
        text
    }

    /// As the kernel does when a socket is closed.
    fn remove(&mut self, who: Member) -> Option<()> {
        let at = self.members.iter().position(|member| *member == who)?;
        self.members.swap_remove(at);
        Some(())
    }

    /// Removes the dead. True if there were any.
    fn bury(&mut self, dir: &Path) -> bool {
        let dead: Vec<_> = self
            .members
            .iter()
            .filter(|member| generation_of(dir, member.slot) != Some(member.generation))
            .copied()
            .collect();
        for member in &dead {
            self.remove(*member);
        }
        !dead.is_empty()
    }

    /// `who` gets what the order sends to the process at `slot`. True if that is news.
    fn learn(&mut self, who: Member, slot: u16) -> bool {
        let of_slot = |member: &Member| member.slot == slot;
        let Some(at) = self.members.iter().position(of_slot) else {
            return false;
        };
        let was = self.members.iter().position(|member| *member == who);
        let was = was.unwrap_or_else(|| {
            self.members.push(who);
            self.members.len() - 1
        });
        self.members.swap(at, was);
        at != was
    }
}

/// The order of one address, and the lock on it.
#[derive(Debug)]
pub(super) struct Ledger {
    file: File,
    order: Order,
}

impl Ledger {
    fn open(path: &Path, patience: u32) -> Option<Self> {
        let mut file = open_file(path, OpenOptions::new().create(true)).ok()?;
        let mut tries = 0;
        while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            if tries == patience {
                return None;
            }
            tries += 1;
            let millisecond = Timespec {
                tv_sec: 0,
                tv_nsec: 1_000_000,
            };
            let _ = poll(&mut [], Some(&millisecond));
        }
        let mut text = String::new();
        let _ = file.read_to_string(&mut text);
        Some(Self {
            file,
            order: Order::parse(&text).unwrap_or_default(),
        })
    }

    fn store(&mut self) -> io::Result<()> {
        self.file.rewind()?;
        self.file.write_all(self.order.to_text().as_bytes())
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        // Not left to the closing of the file: a child that another thread forks just now has it, too.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

/// What linux/bpf_common.h calls `BPF_LD | BPF_H | BPF_ABS`, and so on.
const LOAD_BE16: u16 = 0x28;
const SHIFT_RIGHT: u16 = 0x74;
const SKIP_UNLESS_EQUAL: u16 = 0x15;
const ANSWER: u16 = 0x06;

/// No group has a socket with this index.
const BY_HASH: u32 = u32::MAX;

/// Where the destination queue pair begins in a packet; the slot is the upper ten of the 16 bits there.
const DEST_QP_AT: usize = 5;
const SLOT_SHIFT: u32 = LOCAL_BITS - 8;

/// For the kernel: from a datagram to the index of a socket.
fn program(members: &[Member]) -> Vec<Instruction> {
    let plain = |code, operand| Instruction {
        code,
        if_true: 0,
        if_false: 0,
        operand,
    };
    let mut program = vec![
        plain(LOAD_BE16, DEST_QP_AT as u32),
        plain(SHIFT_RIGHT, SLOT_SHIFT),
    ];
    for (index, member) in (0..).zip(members) {
        program.push(Instruction {
            if_false: 1,
            ..plain(SKIP_UNLESS_EQUAL, member.slot.into())
        });
        program.push(plain(ANSWER, index));
    }
    program.push(plain(ANSWER, BY_HASH));
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(slots: &[u16]) -> Order {
        let member = |&slot| Member {
            slot,
            generation: u64::MAX - u64::from(slot),
        };
        Order {
            version: 7,
            members: slots.iter().map(member).collect(),
        }
    }

    #[test]
    fn an_order_is_read_as_it_was_written_whatever_is_left_behind_it() {
        let slots: Vec<_> = (1..=SLOT_MAX).collect();
        for order in [order(&[]), order(&[3]), order(&slots)] {
            let text = order.to_text() + "9 9\n";
            assert_eq!(Order::parse(&text), Some(order));
        }
        let text = order(&[3, 4, 5]).to_text();
        assert_eq!(Order::parse(&text[..text.len() - 30]), None);
        for nonsense in ["", "x", "1", "1 2", "1 1 70000 4", "1 1 -1 4"] {
            assert_eq!(Order::parse(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn the_last_moves_to_where_one_was_removed() {
        let mut of_four = order(&[1, 2, 3, 4]);
        let second = of_four.members[1];
        assert_eq!(of_four.remove(second), Some(()));
        assert_eq!(of_four, order(&[1, 4, 3]));
        assert_eq!(of_four.remove(second), None);
    }

    #[test]
    fn misses_sort_any_order() {
        let kernel = order(&[1, 2, 3, 4, 5]);
        let mut ours = order(&[4, 3, 5, 1]);
        let mut lessons = 0;
        // Datagrams for each slot go to where our order has it; who gets one of another learns.
        while ours != kernel {
            for slot in 1..=5 {
                let at = ours.members.iter().position(|member| member.slot == slot);
                if let Some(at) = at
                    && kernel.members[at].slot != slot
                {
                    assert!(ours.learn(kernel.members[at], slot));
                    lessons += 1;
                }
            }
            assert!(lessons <= 10, "goes round in circles: {ours:?}");
        }
    }
}
