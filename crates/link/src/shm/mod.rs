//! Packets between the processes of one user on one host, through shared memory.
//!
//! Each pair of processes has one ring per direction, made by the sender when it first asks for a route and handed
//! over through the receiver's datagram socket. The same socket is the receiver's doorbell: one byte wakes it.
//!
//! Who may talk to us is decided by the directory, which only our user can enter. What they say is not trusted: a
//! ring with impossible content is dropped, like the ring of a process that died.
//!
//! Locks: one per ring and direction. The lists of peers and of inbound rings are changed on the control path only, and
//! the latter is read without a lock.

mod beacon;
mod berth;
mod dir;
mod hand_over;
mod inbound;
mod lock;
mod peer;
pub(crate) mod place;
mod record;
mod reminders;
mod rings;
mod roll_call;
mod rope;

use std::collections::HashMap;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use adverb_mem::{ProcessPage, ring};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

pub use self::berth::Berth;
pub use self::dir::private_dir;
use self::hand_over::{MESSAGE_MAX, Message, inode_of, tell_taken};
use self::inbound::Inbound;
pub use self::lock::{LOCK_PATIENCE, Lock};
use self::peer::Peer;
pub use self::place::Place;
use self::record::PAYLOAD_AT;
use self::reminders::Reminders;
use self::rings::{List, Rings};
use crate::lock::{lock, try_lock};
use crate::qpn::SLOT_MAX;
use crate::{Arrival, Link, Meta, SendError};

/// Bytes of records in each ring.
const RING_BYTES: u32 = 1 << 20;
/// The message that only wakes.
const BELL: u8 = b'!';
/// A process on this host, resolved. If the process dies, the route stays dead even if its slot is used again.
#[derive(Debug, Clone)]
pub struct ShmRoute {
    peer: Arc<Peer>,
}

impl ShmRoute {
    /// The slot of the process.
    #[must_use]
    pub fn slot(&self) -> u16 {
        self.peer.slot
    }

    /// When the peer last looked into its rings and sockets (CLOCK_MONOTONIC in nanoseconds).
    #[must_use]
    pub fn last_drive_ns(&self) -> u64 {
        self.peer.last_drive_ns()
    }

    /// How many packets of the process at `slot` this peer has taken in through a socket.
    #[must_use]
    pub fn arrivals(&self, slot: u16) -> u64 {
        self.peer.arrivals(slot)
    }

    /// Whether the peer says that it sleeps.
    #[must_use]
    pub fn is_asleep(&self) -> bool {
        self.peer.is_asleep()
    }

    /// Whether sends are answered with `Unreachable`.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.peer.is_dead()
    }
}

type Peers = HashMap<u16, Arc<Peer>>;

/// The shared-memory link of a process.
#[derive(Debug)]
pub struct ShmLink {
    place: Place,
    peers: Mutex<Peers>,
    reminders: Reminders,
    inbound: Rings,
    /// Hand-overs, as counted in our page, that have been looked after.
    handovers_seen: AtomicU64,
    bells_taken: AtomicU64,
    /// Somebody was met, or a ring has grown; `roll_call.rs` has more.
    call_roll: Arc<AtomicBool>,
    looked_at: AtomicUsize,
}

impl ShmLink {
    /// The link of the process that holds `place`.
    #[must_use]
    pub fn new(place: Place) -> Self {
        Self {
            place,
            peers: Mutex::default(),
            reminders: Reminders::default(),
            inbound: Rings::default(),
            handovers_seen: AtomicU64::new(0),
            bells_taken: AtomicU64::new(0),
            call_roll: Arc::default(),
            looked_at: AtomicUsize::new(0),
        }
    }

    /// Our slot.
    #[must_use]
    pub fn slot(&self) -> u16 {
        self.place.slot()
    }

    /// Our place among the processes of this user.
    #[must_use]
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Our page: the sleep flag and the time of the last look live there.
    #[must_use]
    pub fn page(&self) -> &ProcessPage {
        self.place.page()
    }

    /// Readable when somebody rang or handed over a ring.
    #[must_use]
    pub fn bell_fd(&self) -> BorrowedFd<'_> {
        self.place.bell_fd()
    }

    /// Whether a living process holds `slot`.
    #[must_use]
    pub fn is_alive(&self, slot: u16) -> bool {
        self.place.is_alive(slot)
    }

    /// The way to the living process at `slot`. `None` if there is none, or if it is ourselves.
    ///
    /// Looks at files and may wait for the peer's socket, so it belongs to the control path.
    #[must_use]
    pub fn route(&self, slot: u16) -> Option<ShmRoute> {
        if slot == 0 || slot > SLOT_MAX || slot == self.place.slot() {
            return None;
        }
        let mut peers = lock(&self.peers);
        if let Some(peer) = peers.get(&slot) {
            if peer.is_alive(&self.place) {
                return Some(ShmRoute { peer: peer.clone() });
            }
            peer.forget();
            peers.remove(&slot);
        }
        let (file, inode) = self.place.living(slot)?;
        self.look_at_peers(&mut peers);
        let peer = Arc::new(Peer::open(&self.place, slot, &file, inode, &self.call_roll).ok()?);
        peers.insert(slot, peer.clone());
        self.call_roll.store(true, Ordering::Release);
        Some(ShmRoute { peer })
    }

    /// Whether the process at `slot` that we send to still lives. If not, it is forgotten, and its routes answer
    /// `Unreachable` for good.
    #[must_use]
    pub fn probe(&self, slot: u16) -> bool {
        let mut peers = lock(&self.peers);
        let Some(peer) = peers.get(&slot) else {
            return self.place.is_alive(slot);
        };
        if peer.is_alive(&self.place) {
            return true;
        }
        peer.forget();
        peers.remove(&slot);
        false
    }

    /// Drops the inbound rings of processes that are gone, once they are empty.
    pub fn sweep(&self) {
        self.inbound
            .sweep(self.page().news(), |ring| self.is_gone(ring));
    }

    /// How many rings of others are held, for diagnosis.
    #[must_use]
    pub fn inbound_rings(&self) -> usize {
        self.inbound.len()
    }

    /// Takes everything that arrived at our socket: bells, and rings that others made for us. Never waits. Says
    /// whether there was anything.
    pub fn drain_bell(&self) -> io::Result<bool> {
        // Read first: a hand-over that is counted later is looked after later.
        let handovers = self.page().handovers();
        let mut any = false;
        loop {
            let mut message = [0; MESSAGE_MAX];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
            let received = recvmsg(
                self.bell_fd(),
                &mut [IoSliceMut::new(&mut message)],
                &mut control,
                flags,
            );
            let len = match received {
                Ok(received) => received.bytes,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => break,
                Err(error) => return Err(error.into()),
            };
            any = true;
            match message.get(..len).and_then(Message::parse) {
                Some(Message::Ring { from }) => {
                    // Without a free descriptor there is none here; whoever hears nothing offers his ring again.
                    for fd in control.drain().filter_map(rights).flatten() {
                        // A ring that cannot be used is its maker's loss; it will see that nobody reads.
                        let _ = self.attach(from, &fd);
                    }
                }
                Some(Message::Taken { by, inode }) => self.note_taken(by, inode),
                None => {}
            }
        }
        self.handovers_seen.store(handovers, Ordering::Release);
        if any {
            self.bells_taken.fetch_add(1, Ordering::AcqRel);
        }
        Ok(any)
    }

    /// Rings for peers that were not rung when they were sent something, because they were looking then, and have
    /// stopped since. Part of every pass; costs one load if there are none.
    pub fn remind(&self, now_ns: u64) {
        self.reminders.due(now_ns);
    }

    /// Wakes a thread of this process that sleeps on the bell, for work that the caller leaves behind.
    pub fn ring_own_bell(&self) {
        self.place.ring_own();
    }

    /// Grows whenever somebody took messages from our socket, here or in a receive. Bells are for all sleeping threads
    /// of the process, so whoever takes them must see to the sleep flag.
    #[must_use]
    pub fn bells_taken(&self) -> u64 {
        self.bells_taken.load(Ordering::Acquire)
    }

    fn attach(&self, from: u16, fd: &OwnedFd) -> io::Result<()> {
        let memory = inode_of(fd)?;
        let rope = self.place.rope_to(from)?;
        // Offered again before he heard that we have it.
        if !self.inbound.has(from, memory) {
            // The sender may have ended already. What it sent before counts all the same; the next sweep drops the ring.
            let inode = self.place.living(from).map_or(0, |(_, inode)| inode);
            let consumer = ring::open(fd)?;
            let ring = Arc::new(Inbound::new(from, inode, memory, consumer, rope.clone()));
            let look = |rings: &mut List| self.look_at_rings(rings);
            self.inbound.add(self.page().news(), ring, look);
            self.call_roll.store(true, Ordering::Release);
        }
        tell_taken(&rope, self.place.slot(), memory);
        Ok(())
    }

    fn note_taken(&self, by: u16, inode: u64) {
        // Whoever holds the list is just meeting somebody. Then the ring is offered again, and acknowledged again.
        if let Some(peers) = try_lock(&self.peers)
            && let Some(peer) = peers.get(&by)
        {
            peer.note_taken(inode);
        }
    }

    /// Puts one packet (base transport header to padding, no ICRC) into the ring of a process. One that looks sees it at
    /// once; [`ShmLink::wake`] must follow for one that does not.
    ///
    /// Errors: [`SendError::Full`] when the ring has no room, [`SendError::Unreachable`] when the process has ended.
    pub fn send(&self, to: &ShmRoute, meta: &Meta, packet: &[u8]) -> Result<(), SendError> {
        to.peer.send(meta, packet)
    }

    /// Room for a train with `len` bytes of payload in the ring of a process. [`ShmLink::wake`] must follow, also if the
    /// train is given up: what others have sent meanwhile shows only then.
    ///
    /// Errors: as with [`ShmLink::send`].
    pub fn reserve(&self, to: &ShmRoute, meta: &Meta, len: usize) -> Result<Berth, SendError> {
        let (slot, prefix) = to.peer.reserve(meta, PAYLOAD_AT + len)?;
        Ok(Berth::new(slot, prefix))
    }

    /// Ends a batch of packets to a process: rings its bell if it sleeps. `now_ns` is the monotonic clock.
    pub fn wake(&self, to: &ShmRoute, now_ns: u64) {
        if to.peer.wake(self.place.slot(), now_ns) {
            self.reminders.add(Arc::clone(&to.peer), now_ns);
        }
    }

    /// Asks for a look into each ring that has something, whether its sender told of it or not. For whoever looks now and
    /// then and not in a loop: it takes as long as there are peers.
    pub fn look_everywhere(&self) {
        self.inbound.look_everywhere(self.page().news());
    }
}

impl Link for ShmLink {
    fn window_bytes(&self) -> usize {
        RING_BYTES as usize / 4
    }

    fn receive(&self, budget: usize, sink: &mut dyn FnMut(&Meta, Arrival<'_>)) -> usize {
        if self.handovers_seen.load(Ordering::Acquire) != self.page().handovers() {
            // An error here would come again at the next bell, where somebody hears it.
            let _ = self.drain_bell();
        }
        self.inbound.receive(self.page().news(), budget, sink)
    }

    fn has_inbound(&self) -> bool {
        self.handovers_seen.load(Ordering::Acquire) != self.page().handovers()
            || self.inbound.any_ready(self.page().news())
    }
}

fn rights(message: RecvAncillaryMessage<'_>) -> Option<impl Iterator<Item = OwnedFd>> {
    match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    }
}
