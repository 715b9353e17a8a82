//! UC: messages arrive whole or not at all.

use adverb_engine::*;
use adverb_wire::{Bth, Opcode, Operation, Packet, Reth, Transport};

use crate::harness::*;

fn pair() -> Pair {
    Pair::new(Setup::new(Transport::Uc))
}

#[test]
fn sends_and_writes_arrive_without_acknowledgement() {
    let mut p = pair();
    let data = pattern(1000, 1);
    let from = p.a.world.register(data.clone());
    let (to, target) = (
        p.b.world.register(vec![0; 1000]),
        p.b.world.register(vec![0; 1000]),
    );
    p.b.recv(1, &[to.sge(0, 1000)]);
    p.b.recv(2, &[]);
    p.a.send(1, SendOp::SendImm([5; 4]), &[from.sge(0, 1000)]);
    p.a.send(
        2,
        SendOp::WriteImm {
            remote_addr: target.addr,
            rkey: target.key,
            imm: [6; 4],
        },
        &[from.sge(0, 1000)],
    );
    p.drive();
    assert_eq!(p.b.world.bytes(to), data);
    assert_eq!(p.b.world.bytes(target), data);
    let got: Vec<_> =
        p.b.world
            .receives()
            .iter()
            .map(|c| (c.byte_len, c.imm, c.opcode))
            .collect();
    assert_eq!(
        got,
        [
            (1000, [5; 4], WcOpcode::Recv),
            (1000, [6; 4], WcOpcode::RecvRdmaWithImm)
        ]
    );
    assert!(p.ops(Way::ToA).is_empty());
    assert_eq!(p.a.world.sends().len(), 2);
}

#[test]
fn a_gap_drops_the_message_and_the_next_one_takes_its_receive() {
    for lost in [
        Operation::SendFirst,
        Operation::SendMiddle,
        Operation::SendLast,
    ] {
        let mut p = pair();
        let data = pattern(1400, 1);
        let from = p.a.world.register(data.clone());
        let to = p.b.world.register(vec![0; 700]);
        p.b.recv(1, &[to.sge(0, 700)]);
        p.b.recv(2, &[]);
        p.lose_first(Way::ToB, lost);
        p.a.send(1, SendOp::Send, &[from.sge(0, 700)]);
        p.a.send(2, SendOp::Send, &[from.sge(700, 700)]);
        p.drive();
        assert_eq!(
            p.b.world.recv_statuses(),
            [(1, WcStatus::Success)],
            "{lost:?}"
        );
        assert_eq!(*p.b.world.bytes(to), data[700..]);
        assert_eq!(p.a.world.sends().len(), 2, "the sender does not know");
    }
}

#[test]
fn without_a_receive_the_whole_message_vanishes() {
    let mut p = pair();
    let from = p.a.world.register(pattern(700, 1));
    let to = p.b.world.register(vec![0; 700]);
    p.a.send(1, SendOp::Send, &[from.sge(0, 700)]);
    p.step();
    p.b.recv(1, &[to.sge(0, 700)]);
    p.drive();
    assert!(p.b.world.told.is_empty());
    p.a.send(2, SendOp::Send, &[from.sge(0, 10)]);
    p.drive();
    assert_eq!(p.b.world.receives()[0].byte_len, 10);
}

#[test]
fn too_long_a_message_leaves_the_receive_for_the_next() {
    let mut p = pair();
    let from = p.a.world.register(pattern(700, 1));
    let to = p.b.world.register(vec![0; 300]);
    p.b.recv(1, &[to.sge(0, 300)]);
    p.a.send(1, SendOp::Send, &[from.sge(0, 700)]);
    p.a.send(2, SendOp::Send, &[from.sge(0, 300)]);
    p.drive();
    assert_eq!(p.b.world.recv_statuses(), [(1, WcStatus::Success)]);
    assert_eq!(p.b.world.receives()[0].byte_len, 300);
}

#[test]
fn a_bad_remote_key_drops_the_message_and_nobody_dies() {
    let mut p = pair();
    let from = p.a.world.register(pattern(700, 1));
    p.a.send(
        1,
        SendOp::Write {
            remote_addr: 0,
            rkey: Key(3),
        },
        &[from.sge(0, 700)],
    );
    p.drive();
    assert_eq!(
        (p.a.qp.state(), p.b.qp.state()),
        (QpState::Rts, QpState::Rts)
    );
    assert_eq!(p.b.qp.counters().packets_dropped, 3);
    p.b.recv(1, &[]);
    p.a.send(2, SendOp::Send, &[]);
    p.drive();
    assert_eq!(p.b.world.receives().len(), 1);
}

#[test]
fn a_local_error_stops_sending_only() {
    let mut p = pair();
    p.a.send(
        1,
        SendOp::Send,
        &[Sge {
            addr: 0,
            len: 1,
            lkey: Key(3),
        }],
    );
    p.a.send(2, SendOp::Send, &[]);
    p.drive();
    assert_eq!(
        p.a.world.send_statuses(),
        [(1, WcStatus::LocProtErr), (2, WcStatus::WrFlushErr)]
    );
    assert_eq!(p.a.qp.state(), QpState::Sqe);
    p.a.enter(QpState::Rts).unwrap();
    p.b.recv(1, &[]);
    p.a.send(3, SendOp::Send, &[]);
    p.drive();
    assert_eq!(p.b.world.receives().len(), 1);
}

#[test]
fn random_loss_delivers_only_whole_messages_in_order() {
    for seed in 0..300 {
        let mut p = pair();
        p.random = Random(seed);
        p.faults = Faults {
            loss: 100,
            ..Faults::default()
        };
        let from = p.a.world.register(pattern(5000, 1));
        let to = p.b.world.register(vec![0; 32 * 800]);
        let mut sent = Vec::new();
        for id in 0..32u64 {
            p.b.recv(id, &[to.sge(id * 800, 800)]);
            let (at, len) = (p.random.below(4000), p.random.below(800) as u32);
            p.a.send(
                id,
                SendOp::SendImm((id as u32).to_be_bytes()),
                &[from.sge(at, len)],
            );
            sent.push((at as usize, len as usize));
        }
        p.drive();
        let source = pattern(5000, 1);
        let mut last = None;
        for (n, c) in p.b.world.receives().iter().enumerate() {
            let id = u32::from_be_bytes(c.imm) as usize;
            assert!(last < Some(id), "seed {seed}");
            last = Some(id);
            let (at, len) = sent[id];
            assert_eq!(
                (c.status, c.byte_len, c.wr_id),
                (WcStatus::Success, len as u32, n as u64)
            );
            assert_eq!(
                p.b.world.bytes(to)[n * 800..][..len],
                source[at..at + len],
                "seed {seed}"
            );
        }
        assert!(last.is_some());
    }
}

/// Each message starts at a number that counts as before the last one, half a circle back.
#[test]
fn numbers_that_jump_back_again_and_again_are_only_numbers() {
    let mut p = pair();
    let target = p.b.world.register(vec![0; 8]);
    let opcode = Opcode::Roce(Transport::Uc, Operation::WriteOnly);
    let mut at = psn(0);
    for _ in 0..10 {
        let mut packet = Packet::new(Bth::new(opcode, 0x12, at));
        packet.reth = Some(Reth {
            va: target.addr,
            rkey: target.key.0,
            len: 8,
        });
        packet.payload = &[1; 8];
        assert_eq!(p.inject(Way::ToB, &packet), Ok(()));
        assert_eq!(p.b.qp.attrs().rq_psn, at.next().value());
        at = at.next().sub(0x80_0000);
    }
}
