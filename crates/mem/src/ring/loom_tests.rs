//! All interleavings of one producer and one consumer on a ring of eight lines of two words.
//!
//! Bounded to a few preemptions, which is where such mistakes show. Run with `RUSTFLAGS="--cfg loom"`, `--release`.

use super::storage::Storage;
use super::*;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

const SIZE: u32 = 64;

fn model(check: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.max_branches = 10_000;
    builder.check(check);
}

fn pair() -> (Producer, Consumer) {
    let storage = Storage::for_loom(SIZE);
    (Producer::new(storage.clone()), Consumer::new(storage))
}

/// A record is seen whole or not at all, and in order. Records of two lines, so that payload lies where headers were.
#[test]
fn records_arrive_whole_and_in_order() {
    model(|| {
        let (mut producer, mut consumer) = pair();
        let sender = thread::spawn(move || {
            for n in 1..=2u32 {
                producer
                    .push(&[&(VALID | n).to_ne_bytes(), &n.to_ne_bytes()])
                    .unwrap();
            }
        });
        let mut buffer = [0; 8];
        let mut next = 1u32;
        for _ in 0..3 {
            if let Some(len) = consumer.pop(&mut buffer).unwrap() {
                assert_eq!(len, 8);
                assert_eq!(buffer[..4], (VALID | next).to_ne_bytes());
                assert_eq!(buffer[4..], next.to_ne_bytes());
                next += 1;
            }
        }
        sender.join().unwrap();
        while consumer.pop(&mut buffer).unwrap().is_some() {
            assert_eq!(buffer[4..], next.to_ne_bytes());
            next += 1;
        }
        assert_eq!(next, 3);
    });
}

/// Once around: the space that the consumer gives back is used again and never mistaken for a record.
#[test]
fn space_is_used_again() {
    model(|| {
        let (mut producer, mut consumer) = pair();
        // Nearly a whole lap, before the second thread starts.
        let mut buffer = [0; 8];
        for n in 0..6u32 {
            producer.push(&[&(VALID | n).to_ne_bytes()]).unwrap();
            consumer.pop(&mut buffer).unwrap().unwrap();
        }
        for n in 0..6u32 {
            producer.push(&[&(VALID | n).to_ne_bytes()]).unwrap();
        }
        let sender = thread::spawn(move || {
            let mut pushed = 0;
            for n in 6..8u32 {
                pushed += u32::from(producer.push(&[&(VALID | n).to_ne_bytes()]).is_ok());
            }
            pushed
        });
        let mut next = 0u32;
        for _ in 0..7 {
            if consumer.pop(&mut buffer).unwrap().is_some() {
                assert_eq!(buffer[..4], (VALID | next).to_ne_bytes());
                next += 1;
            }
        }
        let pushed = sender.join().unwrap();
        while consumer.pop(&mut buffer).unwrap().is_some() {
            next += 1;
        }
        assert_eq!(next, 6 + pushed);
    });
}

/// A producer that was told "full" finds space at once on the next try, or the consumer knows that it waits.
#[test]
fn a_waiting_producer_is_not_forgotten() {
    model(|| {
        let (mut producer, mut consumer) = pair();
        for _ in 0..7 {
            producer.push(&[&[0; 4]]).unwrap();
        }
        let told_full = Arc::new(AtomicU32::new(0));
        let sender = {
            let told_full = told_full.clone();
            thread::spawn(move || {
                if producer.push(&[&[0; 4]]) == Err(PushError::Full) {
                    told_full.store(1, Ordering::Relaxed);
                }
            })
        };
        let mut buffer = [0; 8];
        let mut woken = false;
        for _ in 0..7 {
            consumer.pop(&mut buffer).unwrap();
            woken |= consumer.take_wake();
        }
        sender.join().unwrap();
        assert!(
            told_full.load(Ordering::Relaxed) == 0 || woken,
            "the producer waits and nobody knows"
        );
    });
}

/// Two slots that two threads fill: the second may be complete first, and the consumer sees neither before the first is.
#[test]
fn slots_are_seen_in_the_order_of_their_space() {
    model(|| {
        let (mut producer, mut consumer) = pair();
        let mut first = producer.reserve(4).unwrap();
        let mut second = producer.reserve(4).unwrap();
        let senders = [
            thread::spawn(move || {
                first.write(0, &1u32.to_ne_bytes());
                drop(first);
            }),
            thread::spawn(move || {
                second.write(0, &2u32.to_ne_bytes());
                drop(second);
            }),
        ];
        let mut next = 1u32;
        let mut look = |consumer: &mut Consumer| {
            if let Some(record) = consumer.next().unwrap() {
                let mut bytes = [0; 4];
                record.copy(0, &mut bytes);
                assert_eq!(bytes, next.to_ne_bytes());
                next += 1;
            }
            next
        };
        look(&mut consumer);
        look(&mut consumer);
        for sender in senders {
            sender.join().unwrap();
        }
        look(&mut consumer);
        look(&mut consumer);
        assert_eq!(look(&mut consumer), 3);
    });
}

/// A record that is read in place is not overwritten before it is dropped, however much the producer has to send.
#[test]
fn a_record_stays_until_it_is_dropped() {
    model(|| {
        let (mut producer, mut consumer) = pair();
        // Nearly a lap, so that what comes next needs the space of the record that is being read.
        for n in 0..7u32 {
            producer.push(&[&(VALID | n).to_ne_bytes()]).unwrap();
        }
        let sender = thread::spawn(move || {
            for _ in 0..2 {
                let _ = producer.push(&[&[0xff; 4]]);
            }
        });
        for n in 0..2u32 {
            let record = consumer.next().unwrap().unwrap();
            thread::yield_now();
            let mut bytes = [0; 4];
            record.copy(0, &mut bytes);
            assert_eq!(bytes, (VALID | n).to_ne_bytes());
        }
        sender.join().unwrap();
    });
}

/// Memory is given back while a record waits and is taken: that record and the next one arrive, and the end is seen.
#[test]
fn trimming_leaves_what_is_in_the_ring() {
    model(|| {
        let (mut producer, mut consumer) = pair();
        let record = |n: u32| [(VALID | n).to_ne_bytes(), n.to_ne_bytes()].concat();
        let mut buffer = [0; 8];
        for n in 1..=2 {
            producer.push(&[&record(n)]).unwrap();
            assert_eq!(consumer.pop(&mut buffer), Ok(Some(8)));
        }
        producer.push(&[&record(3)]).unwrap();
        assert!(producer.take_growth());
        producer.trim().unwrap();
        let sender = thread::spawn(move || {
            producer.trim().unwrap();
            assert!(!producer.take_growth());
            producer.push(&[&record(4)]).unwrap();
        });
        let mut next = 3u32;
        for _ in 0..3 {
            if consumer.pop(&mut buffer).unwrap().is_some() {
                assert_eq!(buffer[4..], next.to_ne_bytes());
                next += 1;
            }
        }
        sender.join().unwrap();
        while consumer.pop(&mut buffer).unwrap().is_some() {
            assert_eq!(buffer[4..], next.to_ne_bytes());
            next += 1;
        }
        assert_eq!(next, 5);
    });
}
