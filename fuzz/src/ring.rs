//! Both ends of a ring, and a third hand that writes what it likes into the memory between them.

use std::os::fd::OwnedFd;

use adverb_mem::ring::{self, Consumer, MIN_SIZE, Producer};
use arbitrary::{Arbitrary, Result, Unstructured};
use rustix::io::pwrite;

/// Where the control page ends and the records begin.
const RECORDS: u64 = 4096;

/// As long as nobody meddles, what goes in comes out; when somebody does, all that may happen is an error.
pub fn run(input: &[u8]) {
    let (producer, fd) = ring::create(MIN_SIZE).expect("the smallest ring can be made");
    let consumer = ring::open(&fd).expect("a fresh ring can be opened");
    let mut ends = Ends {
        producer,
        consumer,
        fd,
        sent: Vec::new(),
        taken: 0,
        meddled: false,
    };
    let mut u = Unstructured::new(input);
    while !u.is_empty() && ends.step(&mut u).is_ok() {}
}

struct Ends {
    producer: Producer,
    consumer: Consumer,
    fd: OwnedFd,
    /// Lengths of the records pushed.
    sent: Vec<usize>,
    taken: usize,
    meddled: bool,
}

impl Ends {
    fn step(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        match u8::arbitrary(u)? {
            0..64 => self.push(usize::from(u16::arbitrary(u)?) % 1100),
            64..96 => self.fill(usize::from(u16::arbitrary(u)?) % 1100),
            96..160 => self.pop(usize::from(u16::arbitrary(u)?) % 1100),
            160..192 => self.take(usize::from(u16::arbitrary(u)?) % 1100),
            192..200 => {
                let _ = self.consumer.watch().is_ready();
                let _ = self.consumer.take_wake();
            }
            200..232 => {
                // A header: near the truth, or anything.
                let word = if u.ratio(1, 2)? {
                    1 << 31 | u32::from(u16::arbitrary(u)?) % 1100
                } else {
                    u32::arbitrary(u)?
                };
                let at = RECORDS + u64::from(u8::arbitrary(u)?) % 64 * 64;
                self.meddle(at, word);
            }
            232..=255 => {
                // The control words and what lies beside them.
                let at = u64::from(*u.choose(&[0u16, 4, 64, 128, 132, 192])?);
                let word = if u.ratio(1, 2)? {
                    u32::from(u16::arbitrary(u)?) & !63
                } else {
                    u32::arbitrary(u)?
                };
                self.meddle(at, word);
            }
        }
        Ok(())
    }

    fn push(&mut self, len: usize) {
        let bytes = [0x5A; 1100];
        let (first, second) = bytes[..len].split_at(len / 3);
        if self.producer.push(&[first, second]).is_ok() {
            self.sent.push(len);
        }
    }

    /// As `push`, in place.
    fn fill(&mut self, len: usize) {
        if let Ok(mut slot) = self.producer.reserve(len) {
            slot.write(0, &vec![0x5A; len / 3]);
            slot.target(len / 3).put(0, &vec![0x5A; len - len / 3]);
            self.sent.push(len);
        }
    }

    /// As `pop`, in place, looking at the bytes from `from` on.
    fn take(&mut self, from: usize) {
        let record = match self.consumer.next() {
            Ok(Some(record)) => record,
            Ok(None) => {
                assert!(self.meddled || self.taken == self.sent.len());
                return;
            }
            Err(error) => {
                assert!(self.meddled, "{error}");
                return;
            }
        };
        let mut bytes = vec![0; record.len()];
        let from = from.min(record.len());
        record.copy(0, &mut bytes[..from]);
        record.source(from).copy(0, &mut bytes[from..]);
        if !self.meddled {
            assert_eq!(Some(&record.len()), self.sent.get(self.taken));
            assert!(bytes.iter().all(|byte| *byte == 0x5A));
            self.taken += 1;
        }
    }

    fn pop(&mut self, room: usize) {
        let mut into = [0; 1100];
        let popped = self.consumer.pop(&mut into[..room]);
        if self.meddled {
            if let Ok(Some(len)) = popped {
                assert!(len <= room);
            }
            return;
        }
        match popped {
            Ok(Some(len)) => {
                assert_eq!(Some(&len), self.sent.get(self.taken));
                assert!(into[..len].iter().all(|byte| *byte == 0x5A));
                self.taken += 1;
            }
            Ok(None) => assert_eq!(self.taken, self.sent.len()),
            // The record stays, and comes when there is room for it.
            Err(_) => assert!(self.sent[self.taken] > room),
        }
    }

    fn meddle(&mut self, at: u64, word: u32) {
        self.meddled = true;
        pwrite(&self.fd, &word.to_ne_bytes(), at).expect("a memfd can be written to");
    }
}
