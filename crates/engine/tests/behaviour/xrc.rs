//! XRC: one half sends, the other receives into the SRQ that each request names.

use adverb_engine::*;
use adverb_wire::{Bth, Opcode, Operation, Packet, Psn, Transport};

use crate::harness::*;

const FIRST: u32 = 0x0a_0001;
const SECOND: u32 = 0x0a_0002;
const SECOND_PD: PdId = PdId(9);

/// A connection whose target knows two SRQs in different protection domains.
fn pair() -> Pair {
    let mut p = Pair::new(Setup::new(Transport::Xrc));
    p.b.world.xrc = vec![
        (FIRST, SRQ_PD, Srq::new(8, 4)),
        (SECOND, SECOND_PD, Srq::new(8, 4)),
    ];
    p.a.srqn = FIRST;
    p
}

fn post(p: &mut Pair, which: usize, wr_id: u64, sges: &[Sge]) {
    p.b.world.xrc[which]
        .2
        .post(&RecvWr { wr_id, sges })
        .unwrap();
}

#[test]
fn each_message_lands_in_the_srq_it_names() {
    let mut p = pair();
    let from = p.a.world.register((0..=255).collect());
    let one = p.b.world.register_with(vec![0; 600], all_access(), SRQ_PD);
    let two =
        p.b.world
            .register_with(vec![0; 600], all_access(), SECOND_PD);
    post(&mut p, 0, 1, &[one.sge(0, 600)]);
    post(&mut p, 1, 2, &[two.sge(0, 600)]);
    p.a.srqn = SECOND;
    p.a.send(
        10,
        SendOp::Send,
        &[from.sge(0, 200), from.sge(0, 256), from.sge(0, 100)],
    );
    p.a.srqn = FIRST;
    p.a.send(11, SendOp::SendImm([1, 2, 3, 4]), &[from.sge(5, 5)]);
    p.drive();
    assert_eq!(
        p.b.world.told_xrc,
        [
            (SECOND, 2, WcStatus::Success),
            (FIRST, 1, WcStatus::Success)
        ]
    );
    assert_eq!(
        p.b.world.bytes(two)[200..456],
        (0..=255).collect::<Vec<u8>>()[..]
    );
    assert_eq!(p.b.world.bytes(one)[..5], [5, 6, 7, 8, 9]);
    assert_eq!(
        p.a.world.send_statuses(),
        [(10, WcStatus::Success), (11, WcStatus::Success)]
    );
}

#[test]
fn memory_operations_use_the_domain_of_the_srq() {
    let mut p = pair();
    let local = p.a.world.register(vec![7; 1000]);
    let remote =
        p.b.world
            .register_with(vec![0; 1000], all_access(), SECOND_PD);
    p.a.srqn = SECOND;
    let (remote_addr, rkey) = (remote.addr, remote.key);
    p.a.send(
        1,
        SendOp::Write { remote_addr, rkey },
        &[local.sge(0, 1000)],
    );
    p.a.send(2, SendOp::Read { remote_addr, rkey }, &[local.sge(0, 1000)]);
    p.a.send(
        3,
        SendOp::FetchAdd {
            remote_addr,
            rkey,
            add: 1,
        },
        &[local.sge(0, 8)],
    );
    p.drive();
    let all = [1, 2, 3].map(|id| (id, WcStatus::Success));
    assert_eq!(p.a.world.send_statuses(), all);
    // The same key through an SRQ of another domain is a violation.
    p.a.srqn = FIRST;
    p.a.send(4, SendOp::Write { remote_addr, rkey }, &[local.sge(0, 10)]);
    p.drive();
    assert_eq!(p.a.world.send_statuses()[3], (4, WcStatus::RemAccessErr));
    assert_eq!(p.b.qp.state(), QpState::Err);
}

#[test]
fn an_unknown_srq_ends_the_connection() {
    let mut p = pair();
    let from = p.a.world.register(vec![1; 16]);
    p.a.srqn = 0x77;
    p.a.send(1, SendOp::Send, &[from.sge(0, 16)]);
    p.drive();
    assert_eq!(p.a.world.send_statuses(), [(1, WcStatus::RemInvReqErr)]);
    assert_eq!(
        p.b.world.events(),
        [
            QpEvent::CommEst,
            QpEvent::RequestError,
            QpEvent::LastWqeReached
        ][1..]
    );
}

#[test]
fn an_empty_srq_makes_the_sender_wait() {
    let mut p = pair();
    let from = p.a.world.register(vec![1; 16]);
    let to = p.b.world.register_with(vec![0; 16], all_access(), SRQ_PD);
    p.a.send(1, SendOp::Send, &[from.sge(0, 16)]);
    for _ in 0..20 {
        p.step();
    }
    assert!(p.b.qp.counters().rnr_naks_sent > 0);
    post(&mut p, 0, 5, &[to.sge(0, 16)]);
    p.drive();
    assert_eq!(p.b.world.told_xrc, [(FIRST, 5, WcStatus::Success)]);
}

#[test]
fn losses_are_repaired() {
    let mut p = pair();
    p.faults = Faults {
        loss: 100,
        duplicate: 50,
        late: 50,
    };
    let from = p.a.world.register(vec![3; 4000]);
    let to = p.b.world.register_with(vec![0; 4000], all_access(), SRQ_PD);
    for id in 0..8 {
        post(&mut p, 0, id, &[to.sge(0, 4000)]);
        p.a.send(id, SendOp::Send, &[from.sge(0, 4000)]);
    }
    p.drive();
    assert_eq!(p.a.world.sends().len(), 8);
    assert_eq!(p.b.world.told_xrc.len(), 8);
    assert_eq!(p.b.world.bytes(to), p.a.world.bytes(from));
}

#[test]
fn the_halves_refuse_what_the_other_one_does() {
    let mut p = pair();
    let wr = SendWr {
        wr_id: 1,
        op: SendOp::Send,
        flags: SendFlags::empty(),
        data: SendData::Sges(&[]),
        ud: None,
        xrc_srqn: FIRST,
    };
    assert_eq!(p.b.try_send(&wr), Err(PostError::ReceivesOnly));
    let recv = RecvWr {
        wr_id: 1,
        sges: &[],
    };
    let (now, a, b) = (p.a.now, &mut p.a, &mut p.b);
    assert_eq!(
        a.qp.post_recv(now, &recv, &mut a.world),
        Err(PostError::SendsOnly)
    );
    assert_eq!(
        b.qp.post_recv(now, &recv, &mut b.world),
        Err(PostError::UsesSrq)
    );
    // A request to the sending half, and an answer to the receiving one.
    let packet = |op| {
        let mut packet = Packet::new(Bth::new(
            Opcode::Roce(Transport::Xrc, op),
            0x11,
            Psn::new(0xff_fff0),
        ));
        packet.xrc_srqn = Some(FIRST);
        packet.aeth = Some(adverb_wire::Aeth {
            syndrome: adverb_wire::Syndrome::ACK,
            msn: 0,
        });
        packet
    };
    let request = packet(Operation::SendOnly);
    assert_eq!(p.inject(Way::ToA, &request), Err(DropReason::Transport));
    let answer = packet(Operation::Acknowledge);
    assert_eq!(p.inject(Way::ToB, &answer), Err(DropReason::Transport));
}
