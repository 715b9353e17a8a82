//! A ring that another process made to send to us.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use adverb_mem::ring::{Consumer, Watch};

use super::record::{Content, MAX_PREFIX, PAYLOAD_AT, PrefixReader};
use super::rope::Rope;
use crate::lock::try_lock;
use crate::{Arrival, MAX_PACKET, Meta, TRAIN_UNIT};

/// The receiving end of one ring.
#[derive(Debug)]
pub(super) struct Inbound {
    pub(super) from: u16,
    /// The slot file of the sender when the ring was handed over.
    pub(super) inode: u64,
    /// The inode of the ring's memory.
    pub(super) memory: u64,
    watch: Watch,
    /// To the sender, who may wait for space.
    rope: Rope,
    reader: Mutex<Reader>,
    /// The ring's content made no sense; it is not looked at again.
    broken: AtomicBool,
    /// The sender handed over another ring since; this one is drained and dropped.
    retired: AtomicBool,
    /// How often the sender had to tell of news since the ring was watched last.
    told: AtomicU32,
}

#[derive(Debug)]
struct Reader {
    consumer: Consumer,
    prefix: PrefixReader,
    /// What is looked at of the record at hand.
    copy: Box<[u8; MAX_PREFIX + MAX_PACKET]>,
}

impl Inbound {
    pub(super) fn new(from: u16, inode: u64, memory: u64, consumer: Consumer, rope: Rope) -> Self {
        let watch = consumer.watch();
        let reader = Mutex::new(Reader {
            consumer,
            prefix: PrefixReader::default(),
            copy: Box::new([0; MAX_PREFIX + MAX_PACKET]),
        });
        Self {
            from,
            inode,
            memory,
            watch,
            rope,
            reader,
            broken: AtomicBool::new(false),
            retired: AtomicBool::new(false),
            told: AtomicU32::new(0),
        }
    }

    /// Whether a packet waits.
    pub(super) fn is_ready(&self) -> bool {
        self.watch.is_ready() && !self.is_broken()
    }

    pub(super) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }

    pub(super) fn retire(&self) {
        self.retired.store(true, Ordering::Relaxed);
    }

    /// The sender has told of news: for which time.
    pub(super) fn told(&self) -> u32 {
        self.told.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// From now on that is counted anew.
    pub(super) fn told_again(&self) {
        self.told.store(0, Ordering::Relaxed);
    }

    /// Nothing will come out of this ring any more.
    pub(super) fn is_finished(&self) -> bool {
        self.is_broken() || self.retired.load(Ordering::Relaxed) && !self.watch.is_ready()
    }

    /// Hands out at most `budget` packets, unless another thread is at it. A train is handed out whole, and counts as many.
    pub(super) fn receive(&self, budget: usize, sink: &mut dyn FnMut(&Meta, Arrival<'_>)) -> usize {
        if !self.is_ready() {
            return 0;
        }
        let Some(mut reader) = try_lock(&self.reader) else {
            return 0;
        };
        let mut count = 0;
        while count < budget {
            match reader.hand_out(sink) {
                Some(0) => break,
                Some(n) => count += n,
                None => {
                    self.broken.store(true, Ordering::Relaxed);
                    break;
                }
            }
        }
        if reader.consumer.take_wake() {
            // A bell that nobody owns needs no ringing.
            let _ = self.rope.ring();
        }
        count
    }
}

impl Reader {
    /// Hands out the next record, if there is one, and says for how many packets it counts. `None`: the ring is of no
    /// further use.
    ///
    /// What decides anything is copied out first, because the sender can change the record at any time.
    fn hand_out(&mut self, sink: &mut dyn FnMut(&Meta, Arrival<'_>)) -> Option<usize> {
        let Self {
            consumer,
            prefix,
            copy,
        } = self;
        let Some(record) = consumer.next().ok()? else {
            return Some(0);
        };
        let len = record.len();
        let front = len.min(PAYLOAD_AT);
        record.copy(0, copy.get_mut(..front)?);
        let (meta, content) = prefix.read(copy.get(..front)?)?;
        match content {
            Content::Packet(part) => {
                let start = front - part.len();
                record.copy(front, copy.get_mut(front..len)?);
                sink(&meta, Arrival::Packet(copy.get(start..len)?));
                Some(1)
            }
            Content::Train(head) if len > PAYLOAD_AT => {
                let payload = record.source(PAYLOAD_AT);
                sink(&meta, Arrival::Train { head, payload });
                Some((len - PAYLOAD_AT).div_ceil(TRAIN_UNIT))
            }
            Content::Train(_) => None,
            Content::Void => Some(1),
        }
    }
}
