//! The way to one other process: its page, its bell, and the ring from us to it.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use adverb_mem::ProcessPage;
use adverb_mem::ring::{self, Producer, PushError, Slot};

use super::RING_BYTES;
use super::hand_over::Offer;
use super::place::Place;
use super::record::{MAX_PREFIX, Prefix, PrefixWriter};
use super::rope::{Bell, Rope};
use crate::lock::lock;
use crate::{Meta, SendError};

/// Another process, as it was when we met it. If its slot changes hands, that is another peer.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) slot: u16,
    /// The slot file that we mapped.
    pub(super) inode: u64,
    page: ProcessPage,
    rope: Rope,
    out: Mutex<Outbound>,
    dead: AtomicBool,
    /// The peer has not said yet that it has its end of the ring.
    handing_over: AtomicBool,
    /// Raised when the roll is to be called: to trim the ring, among others.
    call_roll: Arc<AtomicBool>,
    /// Whether it may not have heard of the last records: [`HEARD`], [`UNHEARD`] or [`DOUBTFUL`].
    hearing: AtomicU8,
}

/// The bell was rung, or the peer has looked since.
const HEARD: u8 = 0;
/// Records were pushed and no bell rung, because the peer looks all the time.
const UNHEARD: u8 = 1;
/// So it was once, and the peer has been asked about once since.
const DOUBTFUL: u8 = 2;

#[derive(Debug)]
struct Outbound {
    producer: Producer,
    prefix: PrefixWriter,
    /// The ring, until the peer says that it has it.
    offer: Option<Offer>,
}

impl Peer {
    /// Maps the page in `file`, makes a ring to its owner and hands it over.
    pub(super) fn open(
        place: &Place,
        slot: u16,
        file: &File,
        inode: u64,
        call_roll: &Arc<AtomicBool>,
    ) -> io::Result<Self> {
        let page = ProcessPage::open(file).map_err(io::Error::other)?;
        if place.is_known_dead(&page) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let rope = place.rope_to(slot)?;
        let (producer, fd) = ring::create(RING_BYTES)?;
        let mut offer = Offer::new(fd)?;
        // If its socket is full even after a while, a later flush tries again.
        if offer.make(&rope, place.slot())? {
            page.note_handover();
        }
        let out = Outbound {
            producer,
            prefix: PrefixWriter::default(),
            offer: Some(offer),
        };
        Ok(Self {
            slot,
            inode,
            page,
            rope,
            out: Mutex::new(out),
            dead: AtomicBool::new(false),
            handing_over: AtomicBool::new(true),
            call_roll: Arc::clone(call_roll),
            hearing: AtomicU8::new(HEARD),
        })
    }

    /// Offers the peer its end of the ring once more, if it is time. What is pushed meanwhile waits in the ring.
    fn offer_again(&self, own_slot: u16, now_ns: u64) -> io::Result<()> {
        let mut out = lock(&self.out);
        if let Some(offer) = &mut out.offer
            && offer.make_again(&self.rope, own_slot, now_ns)?
        {
            self.page.note_handover();
        }
        Ok(())
    }

    /// The peer says that it has the ring with this memory.
    pub(super) fn note_taken(&self, inode: u64) {
        let mut out = lock(&self.out);
        if out.offer.as_ref().is_some_and(|offer| offer.is_of(inode)) {
            out.offer = None;
            self.handing_over.store(false, Ordering::Relaxed);
        }
    }

    /// Pushes a packet; [`Peer::wake`] must follow.
    pub(super) fn send(&self, meta: &Meta, packet: &[u8]) -> Result<(), SendError> {
        if self.is_dead() {
            return Err(SendError::Unreachable);
        }
        let out = &mut *lock(&self.out);
        let mut prefix = [0; MAX_PREFIX];
        let prefix_len = out.prefix.write(meta, &mut prefix);
        let pushed = out.producer.push(&[&prefix[..prefix_len], packet]);
        pushed.map_err(|error| self.not_pushed(error))?;
        out.prefix.sent(meta);
        self.note_growth(&mut out.producer);
        Ok(())
    }

    /// Takes the space of a record of `len` bytes, which begins with the prefix that is given back.
    pub(super) fn reserve(&self, meta: &Meta, len: usize) -> Result<(Slot, Prefix), SendError> {
        if self.is_dead() {
            return Err(SendError::Unreachable);
        }
        let out = &mut *lock(&self.out);
        let mut bytes = [0; MAX_PREFIX];
        let prefix_len = out.prefix.write(meta, &mut bytes);
        let slot = out.producer.reserve(len);
        let slot = slot.map_err(|error| self.not_pushed(error))?;
        // Whatever becomes of the record, it brings the addresses.
        out.prefix.sent(meta);
        self.note_growth(&mut out.producer);
        Ok((slot, Prefix::new(bytes, prefix_len)))
    }

    fn note_growth(&self, producer: &mut Producer) {
        if producer.take_growth() {
            self.call_roll.store(true, Ordering::Release);
        }
    }

    /// Part of the roll: a ring that was not used since the last one keeps little memory.
    pub(super) fn trim(&self) {
        if lock(&self.out).producer.trim().is_err() {
            self.forget();
        }
    }

    fn not_pushed(&self, error: PushError) -> SendError {
        match error {
            PushError::Full => SendError::Full,
            PushError::TooLong { .. } | PushError::Broken(_) => {
                self.forget();
                SendError::Unreachable
            }
        }
    }

    /// Ends a batch: rings if the peer sleeps. Each thread that has pushed looks itself, after its push.
    ///
    /// True if the peer was not rung, nor is asked about already: the caller must see to it that [`Peer::remind`] is
    /// called until that says otherwise.
    pub(super) fn wake(&self, own_slot: u16, now_ns: u64) -> bool {
        if self.is_dead() {
            return false;
        }
        if self.handing_over.load(Ordering::Relaxed) && self.offer_again(own_slot, now_ns).is_err()
        {
            self.forget();
        }
        if self.page.tell(own_slot, now_ns) {
            self.ring();
            return false;
        }
        // Whoever is to ask already, and has not asked once, asks after this: the load comes after our push.
        self.hearing.load(Ordering::Acquire) != UNHEARD
            && self.hearing.swap(UNHEARD, Ordering::AcqRel) == HEARD
    }

    /// A while after a [`Peer::wake`] that did not ring: rings if the peer has stopped looking. True if it must be asked about
    /// once more.
    ///
    /// Twice is enough: whoever has looked within the while before the second time has looked after the first, and so
    /// after the records were there.
    pub(super) fn remind(&self, now_ns: u64) -> bool {
        if self.is_dead() || self.page.should_remind(now_ns) {
            // In this order: who pushes in between finds that nobody will ask.
            self.hearing.swap(HEARD, Ordering::AcqRel);
            if !self.is_dead() {
                self.ring();
            }
            return false;
        }
        let hearing = &self.hearing;
        let next = |from, to| {
            hearing
                .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
                .is_ok()
        };
        next(UNHEARD, DOUBTFUL) || !next(DOUBTFUL, HEARD)
    }

    fn ring(&self) {
        if self.rope.ring() == Bell::Gone {
            self.forget();
        }
    }

    pub(super) fn is_asleep(&self) -> bool {
        self.page.sleep_flag().is_asleep()
    }

    pub(super) fn last_drive_ns(&self) -> u64 {
        self.page.last_drive_ns()
    }

    pub(super) fn arrivals(&self, slot: u16) -> u64 {
        self.page.arrivals(slot)
    }

    /// From now on every send is answered with `Unreachable`.
    pub(super) fn forget(&self) {
        self.dead.store(true, Ordering::Release);
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    /// Whether the process is still the one we met.
    pub(super) fn is_alive(&self, place: &Place) -> bool {
        !self.is_dead()
            && place
                .living(self.slot)
                .is_some_and(|(_, inode)| inode == self.inode)
            && !place.is_known_dead(&self.page)
    }
}
