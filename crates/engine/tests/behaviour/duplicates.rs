//! Requests that come twice.

use adverb_engine::*;
use adverb_wire::{Bth, Opcode, Operation, Packet, Reth, Transport};

use crate::harness::*;

#[test]
fn a_lost_acknowledgement_is_given_again_and_nothing_runs_twice() {
    let mut p = Pair::rc();
    p.lose_first(Way::ToA, Operation::Acknowledge);
    p.b.recv(1, &[]);
    p.b.recv(2, &[]);
    p.a.send(1, SendOp::Send, &[]);
    p.drive();
    assert_eq!(p.a.world.send_statuses(), [(1, WcStatus::Success)]);
    assert_eq!(p.b.world.recv_statuses(), [(1, WcStatus::Success)]);
    assert_eq!(p.b.qp.counters().duplicates, 1);
}

#[test]
fn a_repeated_atomic_gets_the_saved_value() {
    let mut p = Pair::rc();
    let word = p.b.world.register(40u64.to_ne_bytes().to_vec());
    let result = p.a.world.register(vec![0; 8]);
    let mut lost = 0;
    p.sieve(move |_, packet| {
        let answer = packet.bth.opcode.operation() == Some(Operation::AtomicAcknowledge);
        lost += u32::from(answer);
        !answer || lost > 3
    });
    p.a.send(
        1,
        SendOp::FetchAdd {
            remote_addr: word.addr,
            rkey: word.key,
            add: 2,
        },
        &[result.sge(0, 8)],
    );
    p.drive();
    assert_eq!(p.b.world.bytes(word), 42u64.to_ne_bytes());
    assert_eq!(p.a.world.bytes(result), 40u64.to_ne_bytes());
    assert_eq!(p.b.world.atomics_executed, 1);
    assert_eq!(p.count(Way::ToB, Operation::FetchAdd), 4);
}

fn read(n: u32, va: u64, rkey: Key, len: u32) -> Packet<'static> {
    let bth = Bth::new(
        Opcode::Roce(Transport::Rc, Operation::ReadRequest),
        0x12,
        psn(n),
    );
    Packet {
        reth: Some(Reth {
            va,
            rkey: rkey.0,
            len,
        }),
        ..Packet::new(bth)
    }
}

fn answers(p: &mut Pair) -> Vec<(Operation, u32, Vec<u8>)> {
    let mut buf = [0; 4096];
    let mut out = Vec::new();
    while let Some(t) =
        p.b.qp
            .poll_transmit(Instant::ZERO, &mut p.b.world, &mut buf)
    {
        let packet = Packet::parse(&buf[..t.len]).unwrap();
        let n = packet.bth.psn.diff(psn(0)) as u32;
        out.push((
            packet.bth.opcode.operation().unwrap(),
            n,
            packet.payload.to_vec(),
        ));
    }
    out
}

#[test]
fn a_repeated_read_reads_again_and_may_ask_for_the_end_only() {
    use Operation::*;
    let mut p = Pair::rc();
    let mr = p.b.world.register(pattern(1000, 1));
    p.inject(Way::ToB, &read(0, mr.addr, mr.key, 1000)).unwrap();
    assert_eq!(answers(&mut p).len(), 4);
    let access = MemAccess {
        key: mr.key,
        pd: PD,
        qp: QpNum(0),
        va: mr.addr,
        len: 1000,
        need: Access::LOCAL_WRITE,
        remote: false,
    };
    p.b.world.write(&access, &pattern(1000, 2)).unwrap();
    p.inject(Way::ToB, &read(2, mr.addr + 512, mr.key, 488))
        .unwrap();
    let again = answers(&mut p);
    let new = pattern(1000, 2);
    assert_eq!(
        again,
        [
            (ReadResponseFirst, 2, new[512..768].to_vec()),
            (ReadResponseLast, 3, new[768..].to_vec())
        ]
    );
    // A part from the middle is a subset, too.
    p.inject(Way::ToB, &read(1, mr.addr + 256, mr.key, 256))
        .unwrap();
    assert_eq!(
        answers(&mut p),
        [(ReadResponseOnly, 1, new[256..512].to_vec())]
    );
}

/// The copy of a READ that was under way for long finds the key gone: the peer had its answer, and the
/// program its word that nobody reads any more. Nothing may come of that, and what is due goes out.
#[test]
fn a_repeated_read_of_memory_that_has_gone_is_dropped() {
    use Operation::*;
    let mut p = Pair::rc();
    let (gone, kept) = (
        p.b.world.register(pattern(600, 1)),
        p.b.world.register(pattern(100, 2)),
    );
    p.inject(Way::ToB, &read(0, gone.addr, gone.key, 600))
        .unwrap();
    assert_eq!(answers(&mut p).len(), 3);
    p.b.world.keys.remove(gone.key);
    p.inject(Way::ToB, &read(0, gone.addr, gone.key, 600))
        .unwrap();
    p.inject(Way::ToB, &read(3, kept.addr, kept.key, 100))
        .unwrap();
    assert_eq!(answers(&mut p), [(ReadResponseOnly, 3, pattern(100, 2))]);
    p.inject(Way::ToB, &read(1, gone.addr + 256, gone.key, 344))
        .unwrap();
    assert_eq!(answers(&mut p), []);
    assert_eq!(p.b.qp.state(), QpState::Rts);
    assert_eq!(p.b.world.events(), []);
    // Not so if it never got an answer: that is a violation.
    p.inject(Way::ToB, &read(4, kept.addr, kept.key, 100))
        .unwrap();
    p.b.world.keys.remove(kept.key);
    assert_eq!(answers(&mut p), [(Acknowledge, 4, vec![])]);
    assert_eq!(p.b.qp.state(), QpState::Err);
}

#[test]
fn a_repeated_read_that_asks_for_more_or_other_memory_is_dropped() {
    let mut p = Pair::rc();
    let mr = p.b.world.register(pattern(2000, 1));
    p.inject(Way::ToB, &read(0, mr.addr, mr.key, 1000)).unwrap();
    answers(&mut p);
    for bad in [
        read(0, mr.addr, mr.key, 1001),
        read(0, mr.addr + 1, mr.key, 100),
        read(1, mr.addr, mr.key, 100),
        read(0, mr.addr, Key(mr.key.0 ^ 1), 1000),
        read(0, mr.addr, mr.key, u32::MAX),
    ] {
        assert_eq!(p.inject(Way::ToB, &bad), Err(DropReason::DuplicateUnknown));
    }
    assert_eq!(p.b.qp.state(), QpState::Rts);
    assert!(answers(&mut p).is_empty());
}

#[test]
fn what_is_saved_is_as_deep_as_promised() {
    let mut p = Pair::rc();
    let mr = p.b.world.register(pattern(100, 1));
    for n in 0..5 {
        p.inject(Way::ToB, &read(n, mr.addr, mr.key, 10)).unwrap();
        answers(&mut p);
    }
    assert_eq!(
        p.inject(Way::ToB, &read(0, mr.addr, mr.key, 10)),
        Err(DropReason::DuplicateUnknown)
    );
    for n in 1..5 {
        p.inject(Way::ToB, &read(n, mr.addr, mr.key, 10)).unwrap();
    }
    let numbers: Vec<u32> = answers(&mut p).iter().map(|a| a.1).collect();
    assert_eq!(numbers, [1, 2, 3, 4]);
}

#[test]
fn a_new_read_may_push_out_a_repetition_that_nobody_waits_for() {
    let mut setup = Setup::rc();
    setup.attr.max_dest_rd_atomic = 1;
    let mut p = Pair::new(setup);
    let mr = p.b.world.register(pattern(1000, 1));
    p.inject(Way::ToB, &read(0, mr.addr, mr.key, 1000)).unwrap();
    answers(&mut p);
    p.inject(Way::ToB, &read(0, mr.addr, mr.key, 1000)).unwrap();
    p.inject(Way::ToB, &read(4, mr.addr, mr.key, 10)).unwrap();
    let numbers: Vec<u32> = answers(&mut p).iter().map(|a| a.1).collect();
    assert_eq!(numbers, [4]);
}

#[test]
fn an_acknowledgement_never_overtakes_a_read() {
    use Operation::*;
    let mut p = Pair::rc();
    let mr = p.b.world.register(pattern(1000, 1));
    p.b.recv(1, &[]);
    p.b.recv(2, &[]);
    let send = |n| {
        let bth = Bth {
            ack_req: true,
            ..Bth::new(Opcode::Roce(Transport::Rc, SendOnly), 0x12, psn(n))
        };
        Packet::new(bth)
    };
    p.inject(Way::ToB, &send(0)).unwrap();
    p.inject(Way::ToB, &read(1, mr.addr, mr.key, 500)).unwrap();
    p.inject(Way::ToB, &read(3, mr.addr, mr.key, 10)).unwrap();
    p.inject(Way::ToB, &send(4)).unwrap();
    let order: Vec<_> = answers(&mut p)
        .into_iter()
        .map(|(op, n, _)| (op, n))
        .collect();
    assert_eq!(
        order,
        [
            (ReadResponseFirst, 1),
            (ReadResponseLast, 2),
            (ReadResponseOnly, 3),
            (Acknowledge, 4)
        ]
    );
    // Nothing is owed twice: the answer to a read acknowledges what was before it.
    p.inject(Way::ToB, &send(0)).unwrap();
    assert_eq!(answers(&mut p).len(), 1);
}

#[test]
fn a_duplicate_leaves_the_message_under_way_alone() {
    use Operation::*;
    let mut p = Pair::rc();
    let data = pattern(700, 1);
    let to = p.b.world.register(vec![0; 700]);
    p.b.recv(1, &[]);
    p.b.recv(2, &[to.sge(0, 700)]);
    let part = |op, n, payload| {
        let bth = Bth::new(Opcode::Roce(Transport::Rc, op), 0x12, psn(n));
        Packet {
            payload,
            ..Packet::new(bth)
        }
    };
    p.inject(Way::ToB, &part(SendOnly, 0, &[])).unwrap();
    p.inject(Way::ToB, &part(SendFirst, 1, &data[..256]))
        .unwrap();
    p.inject(Way::ToB, &part(SendOnly, 0, &[])).unwrap();
    p.inject(Way::ToB, &part(SendFirst, 1, &data[..256]))
        .unwrap();
    p.inject(Way::ToB, &part(SendMiddle, 2, &data[256..512]))
        .unwrap();
    p.inject(Way::ToB, &part(SendLast, 3, &data[512..]))
        .unwrap();
    assert_eq!(p.b.world.bytes(to), data);
    assert_eq!(p.b.world.receives()[1].byte_len, 700);
}

#[test]
fn the_answer_to_the_newest_read_is_the_acknowledgement() {
    use Operation::*;
    let mut p = Pair::rc();
    let mr = p.b.world.register(pattern(1000, 1));
    p.b.recv(1, &[]);
    let bth = Bth {
        ack_req: true,
        ..Bth::new(Opcode::Roce(Transport::Rc, SendOnly), 0x12, psn(0))
    };
    p.inject(Way::ToB, &Packet::new(bth)).unwrap();
    p.inject(Way::ToB, &read(1, mr.addr, mr.key, 10)).unwrap();
    let ops: Vec<Operation> = answers(&mut p).into_iter().map(|a| a.0).collect();
    assert_eq!(ops, [ReadResponseOnly]);
}

#[test]
fn a_repetition_of_an_answer_under_way_starts_it_over() {
    use Operation::*;
    let mut p = Pair::rc();
    let mr = p.b.world.register(pattern(1000, 1));
    p.inject(Way::ToB, &read(0, mr.addr, mr.key, 1000)).unwrap();
    let mut buf = [0; 4096];
    for _ in 0..2 {
        p.b.qp
            .poll_transmit(Instant::ZERO, &mut p.b.world, &mut buf)
            .unwrap();
    }
    p.inject(Way::ToB, &read(1, mr.addr + 256, mr.key, 744))
        .unwrap();
    let order: Vec<_> = answers(&mut p)
        .into_iter()
        .map(|(op, n, _)| (op, n))
        .collect();
    let tail = [
        (ReadResponseFirst, 1),
        (ReadResponseMiddle, 2),
        (ReadResponseLast, 3),
    ];
    assert_eq!(order, tail);

    // What has not gone out yet is not asked for twice, and a longer wish extends a shorter one.
    p.inject(Way::ToB, &read(0, mr.addr, mr.key, 512)).unwrap();
    p.inject(Way::ToB, &read(1, mr.addr + 256, mr.key, 744))
        .unwrap();
    let numbers: Vec<u32> = answers(&mut p).iter().map(|a| a.1).collect();
    assert_eq!(numbers, [0, 1, 2, 3]);
}
