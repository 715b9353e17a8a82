//! The ring against an oracle, and against a peer that lies.

use super::storage::Storage;
use super::*;
use crate::map::Mapping;
use crate::primitive::Ordering;
use proptest::prelude::*;
use std::collections::VecDeque;

fn pair(size: u32) -> (Producer, Consumer) {
    let (producer, fd) = create(size).unwrap();
    (producer, open(&fd).unwrap())
}

#[derive(Debug, Clone)]
enum Op {
    Push(Vec<Vec<u8>>),
    Pop,
    Trim,
}

fn op() -> impl Strategy<Value = Op> {
    let parts = prop::collection::vec(prop::collection::vec(any::<u8>(), 0..400), 0..4);
    prop_oneof![4 => parts.prop_map(Op::Push), 4 => Just(Op::Pop), 1 => Just(Op::Trim)]
}

proptest! {
    /// Slots are filled and dropped in any order, records are taken in place or copied: they come in the order in which
    /// their space was taken, and none before it is complete.
    #[test]
    fn records_in_place_keep_their_order(ops in prop::collection::vec((0u8..4, 0usize..900, any::<u8>()), 0..300)) {
        let (mut producer, mut consumer) = pair(MIN_SIZE);
        let watch = consumer.watch();
        let mut oracle: VecDeque<(u32, Vec<u8>)> = VecDeque::new();
        let mut open = Vec::new();
        let mut number = 0;
        for (op, len, byte) in ops {
            match op {
                0 => {
                    let Ok(mut slot) = producer.reserve(len) else { continue };
                    number += 1;
                    let record = vec![byte; len];
                    let half = len / 2;
                    slot.write(half, &record[half..]);
                    slot.target(0).put(0, &record[..half]);
                    open.push((number, slot));
                    oracle.push_back((number, record));
                }
                1 if !open.is_empty() => drop(open.remove(len % open.len())),
                1 => {}
                2 | 3 => {
                    let front = oracle.front().map(|(number, _)| *number);
                    let ready = front.is_some_and(|front| open.iter().all(|(number, _)| *number != front));
                    prop_assert_eq!(watch.is_ready(), ready);
                    let record = consumer.next().unwrap();
                    prop_assert_eq!(record.is_some(), ready);
                    let Some(record) = record else { continue };
                    let (_, expected) = oracle.pop_front().unwrap();
                    let mut got = vec![0; record.len()];
                    let cut = record.len() / 3;
                    record.copy(0, &mut got[..cut]);
                    record.source(cut).copy(0, &mut got[cut..]);
                    prop_assert_eq!(got, expected);
                }
                _ => unreachable!(),
            }
        }
    }

    #[test]
    fn what_goes_in_comes_out_in_order(ops in prop::collection::vec(op(), 0..400)) {
        let (mut producer, mut consumer) = pair(4 * MIN_SIZE);
        let watch = consumer.watch();
        let mut oracle = VecDeque::new();
        let mut buffer = [0; 4096];
        let mut waits = false;
        for op in ops {
            match op {
                Op::Push(parts) => {
                    let record = parts.concat();
                    let parts: Vec<_> = parts.iter().map(Vec::as_slice).collect();
                    match producer.push(&parts) {
                        Ok(()) => oracle.push_back(record),
                        Err(PushError::Full) => {
                            waits = true;
                            let held: usize = oracle.iter().map(|r: &Vec<u8>| record_space(r.len() as u32) as usize).sum();
                            prop_assert!(held >= MIN_SIZE as usize / 2, "full with {held} bytes");
                        }
                        Err(error) => { prop_assert!(record.len() > max_record(MIN_SIZE) as usize, "{error}"); }
                    }
                }
                Op::Pop => {
                    prop_assert_eq!(watch.is_ready(), !oracle.is_empty());
                    let got = consumer.pop(&mut buffer).unwrap().map(|len| buffer[..len].to_vec());
                    prop_assert_eq!(got, oracle.pop_front());
                }
                // At the second one in a row.
                Op::Trim => {
                    producer.trim().unwrap();
                    producer.trim().unwrap();
                }
            }
        }
        while let Some(len) = consumer.pop(&mut buffer).unwrap() {
            prop_assert_eq!(Some(buffer[..len].to_vec()), oracle.pop_front());
        }
        prop_assert!(oracle.is_empty());
        let woken = consumer.take_wake();
        prop_assert!(!waits || woken || producer.push(&[&[0; 500]]).is_ok(), "a waiting producer was forgotten");
    }

    /// Any word may be overwritten with anything at any time: errors or wrong bytes, but nothing worse, and every
    /// loop ends.
    #[test]
    fn a_lying_peer_causes_errors_only(
        lies in prop::collection::vec((0u32..1024 + 64, prop_oneof![any::<u32>(), (0u32..2000).prop_map(|n| n | VALID), Just(64), Just(4096)]), 1..60),
        lens in prop::collection::vec(0usize..1000, 1..60),
    ) {
        let (mut producer, fd) = create(MIN_SIZE).unwrap();
        let mut consumer = open(&fd).unwrap();
        let liar = Mapping::new(&fd, CONTROL_BYTES + MIN_SIZE as usize).unwrap();
        let liar = Storage::new(liar, MIN_SIZE);
        let (mut sends, mut receives) = (true, true);
        let mut buffer = [0; 4096];
        for ((at, lie), len) in lies.into_iter().zip(lens.into_iter().cycle()) {
            if sends {
                sends = !matches!(producer.push(&[&vec![1; len]]), Err(PushError::Broken(_)));
            }
            match at {
                0..1024 => {
                    let at = at * 4;
                    liar.copy_in(at, &lie.to_ne_bytes());
                }
                1024..1056 => liar.head().store(lie, Ordering::Relaxed),
                _ => liar.waiting().store(lie, Ordering::Relaxed),
            }
            // A ring of 4 KiB holds at most 64 records of 64 bytes; a liar can stretch that by as many as it forges.
            for _ in 0..200 {
                if !receives { break; }
                match consumer.pop(&mut buffer) {
                    Ok(Some(len)) => prop_assert!(len <= max_record(MIN_SIZE) as usize),
                    Ok(None) => break,
                    Err(_) => receives = false,
                }
            }
        }
    }

    /// The same while a record is read in place: its length stays what it was, and nothing beyond it is reached.
    #[test]
    fn a_record_in_place_keeps_its_length_whatever_the_peer_writes(
        lens in prop::collection::vec(0usize..1000, 1..40),
        lies in prop::collection::vec((0u32..1024, any::<u32>()), 1..40),
    ) {
        let (mut producer, fd) = create(MIN_SIZE).unwrap();
        let mut consumer = open(&fd).unwrap();
        let liar = Mapping::new(&fd, CONTROL_BYTES + MIN_SIZE as usize).unwrap();
        let liar = Storage::new(liar, MIN_SIZE);
        for (len, (at, lie)) in lens.into_iter().zip(lies.into_iter().cycle()) {
            let Ok(mut slot) = producer.reserve(len) else { break };
            slot.write(0, &vec![1; len]);
            drop(slot);
            let Ok(Some(record)) = consumer.next() else { break };
            let before = record.len();
            liar.copy_in(at * 4, &lie.to_ne_bytes());
            for position in (0..MIN_SIZE).step_by(LINE as usize) {
                liar.header(position).store(lie | VALID, Ordering::Relaxed);
            }
            prop_assert_eq!(record.len(), before);
            let mut bytes = vec![0; before];
            record.source(0).copy(0, &mut bytes);
            record.copy(0, &mut bytes);
            drop(record);
            // What it sees next was forged; sending goes on or fails, and that is all.
            let _ = consumer.next().map(|record| record.map(|record| record.len()));
            for position in (0..MIN_SIZE).step_by(LINE as usize) {
                liar.header(position).store(0, Ordering::Relaxed);
            }
        }
    }
}

#[test]
fn each_impossible_word_is_named() {
    let (mut producer, fd) = create(MIN_SIZE).unwrap();
    let mut consumer = open(&fd).unwrap();
    let liar = Storage::new(
        Mapping::new(&fd, CONTROL_BYTES + MIN_SIZE as usize).unwrap(),
        MIN_SIZE,
    );
    let mut buffer = [0; 4096];
    for word in [1, 64, VALID | (max_record(MIN_SIZE) + 1), u32::MAX] {
        liar.header(0).store(word, Ordering::Relaxed);
        assert_eq!(
            consumer.pop(&mut buffer),
            Err(RingError::Corrupt {
                size: MIN_SIZE,
                position: 0,
                found: word
            })
        );
    }
    liar.header(0).store(VALID | 100, Ordering::Relaxed);
    assert_eq!(
        consumer.pop(&mut [0; 99]),
        Err(RingError::TooLong {
            len: 100,
            position: 0,
            buffer: 99
        })
    );

    // The producer has written nothing, so no head but 0 is possible; it looks as soon as it runs out of space.
    liar.head().store(64, Ordering::Relaxed);
    let mut result = Ok(());
    for _ in 0..100 {
        result = result.and_then(|()| producer.push(&[&[0; 900]]));
    }
    assert_eq!(
        result,
        Err(PushError::Full),
        "64 is possible after the first record"
    );
    liar.head().store(63, Ordering::Relaxed);
    assert!(matches!(
        producer.push(&[&[0; 900]]),
        Err(PushError::Broken(RingError::Corrupt { found: 63, .. }))
    ));
    liar.head().store(1 << 20, Ordering::Relaxed);
    assert!(matches!(
        producer.push(&[&[0; 900]]),
        Err(PushError::Broken(_))
    ));
    liar.head().store(0, Ordering::Relaxed);
    assert!(
        matches!(producer.push(&[&[0; 900]]), Err(PushError::Broken(_))),
        "a head never goes back"
    );
}

#[test]
fn memfds_that_are_no_rings_are_refused() {
    for len in [
        0,
        100,
        CONTROL_BYTES,
        CONTROL_BYTES + 2048,
        CONTROL_BYTES + 5000,
        CONTROL_BYTES + 2 * MAX_SIZE as usize,
    ] {
        let fd = memfd::create_sealed("no ring", len).unwrap();
        assert_eq!(
            open(&fd).unwrap_err().kind(),
            io::ErrorKind::InvalidData,
            "{len}"
        );
    }
    let unsealed = rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&unsealed, (CONTROL_BYTES + 4096) as u64).unwrap();
    assert_eq!(
        open(&unsealed).unwrap_err().kind(),
        io::ErrorKind::PermissionDenied
    );
    for size in [0, 100, 5000, MAX_SIZE * 2] {
        assert_eq!(
            create(size).unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
    }
}

#[test]
fn a_full_ring_wakes_its_producer_once_there_is_space() {
    let (mut producer, mut consumer) = pair(MIN_SIZE);
    let mut pushed = 0;
    while producer.push(&[&[7; 300]]).is_ok() {
        pushed += 1;
    }
    assert!(pushed >= 8);
    let mut buffer = [0; 4096];
    let mut popped = 0;
    while !consumer.take_wake() {
        assert_eq!(consumer.pop(&mut buffer), Ok(Some(300)));
        popped += 1;
    }
    assert!(popped <= 4, "woken after {popped} of {pushed}");
    producer.push(&[&[7; 300]]).unwrap();
    while consumer.pop(&mut buffer).unwrap().is_some() {}
    assert!(!consumer.take_wake(), "nobody waits any more");
}

/// What a ring takes of the system's memory, by what the kernel says of its file.
fn resident(fd: &OwnedFd) -> usize {
    rustix::fs::fstat(fd).unwrap().st_blocks as usize * 512
}

#[test]
fn a_ring_takes_memory_as_it_is_used_and_gives_it_back() {
    const SIZE: u32 = 1 << 20;
    let little = CONTROL_BYTES + 2 * AT_ONCE as usize;
    let (mut producer, fd) = create(SIZE).unwrap();
    let mut consumer = open(&fd).unwrap();
    assert!(resident(&fd) <= little, "{}", resident(&fd));
    let mut buffer = [0; 1024];
    let mut through = |producer: &mut Producer, count: u32| {
        for n in 0..count {
            let record = [n as u8 | 1; 1000];
            producer.push(&[&record]).unwrap();
            assert_eq!(consumer.pop(&mut buffer), Ok(Some(1000)));
            assert_eq!(buffer[..1000], record);
            assert_eq!(consumer.pop(&mut buffer), Ok(None));
        }
    };
    assert!(!producer.take_growth());
    for lap in 0..3 {
        through(&mut producer, 1500 + lap);
        assert!(resident(&fd) >= SIZE as usize, "{}", resident(&fd));
        assert!(producer.take_growth() && !producer.take_growth());
        // Somebody may go on in a moment: only what has rested from one call to the next is given back.
        producer.trim().unwrap();
        assert!(resident(&fd) >= SIZE as usize);
        producer.trim().unwrap();
        assert!(resident(&fd) <= little + 4096, "{}", resident(&fd));
    }
}
