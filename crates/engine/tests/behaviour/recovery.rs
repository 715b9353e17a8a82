//! Loss, delay and receivers that are not ready: how the requester gets through, or gives up.

use adverb_engine::*;
use adverb_wire::{Aeth, Bth, NakCode, Opcode, Operation, Packet, Psn, Syndrome, Transport};

use crate::harness::*;

fn write_pair(len: usize) -> (Pair, Mr, Mr, Vec<u8>) {
    let mut p = Pair::rc();
    let data = pattern(len, 3);
    let from = p.a.world.register(data.clone());
    let to = p.b.world.register(vec![0; len]);
    (p, from, to, data)
}

fn ack(n: Psn, syndrome: Syndrome) -> Packet<'static> {
    let bth = Bth::new(Opcode::Roce(Transport::Rc, Operation::Acknowledge), 0x11, n);
    Packet {
        aeth: Some(Aeth { syndrome, msn: 0 }),
        ..Packet::new(bth)
    }
}

#[test]
fn retry_of_a_write_resends_middles_and_not_a_new_first() {
    let (mut p, from, to, data) = write_pair(256 * 6);
    p.lose_nth(Way::ToB, Operation::WriteMiddle, 2);
    p.a.send(
        1,
        SendOp::Write {
            remote_addr: to.addr,
            rkey: to.key,
        },
        &[from.sge(0, 256 * 6)],
    );
    p.drive();
    assert_eq!(p.b.world.bytes(to), data);
    assert_eq!(p.count(Way::ToB, Operation::WriteFirst), 1);
    assert_eq!(
        p.a.qp.counters().timeouts,
        0,
        "the NAK told earlier than the timer"
    );
}

#[test]
fn one_gap_is_complained_about_once() {
    let (mut p, from, to, _) = write_pair(256 * 20);
    p.lose_nth(Way::ToB, Operation::WriteMiddle, 1);
    p.a.send(
        1,
        SendOp::Write {
            remote_addr: to.addr,
            rkey: to.key,
        },
        &[from.sge(0, 256 * 20)],
    );
    p.drive();
    assert_eq!(p.b.qp.counters().sequence_naks_sent, 1);
    assert_eq!(p.a.qp.counters().retries, 1);
}

#[test]
fn a_nak_acknowledges_everything_before_it() {
    let mut p = Pair::rc();
    for id in 0..3 {
        p.b.recv(id, &[]);
        p.a.send(id, SendOp::Send, &[]);
    }
    p.sieve(|_, _| false);
    p.pump();
    p.inject(Way::ToA, &ack(psn(2), Syndrome::Nak(NakCode::PsnSequence)))
        .unwrap();
    assert_eq!(
        p.a.world.send_statuses(),
        [(0, WcStatus::Success), (1, WcStatus::Success)]
    );
    p.inject(Way::ToA, &ack(psn(2), Syndrome::Nak(NakCode::PsnSequence)))
        .unwrap();
    assert_eq!(
        p.a.qp.counters().retries,
        1,
        "a second hint of the same loss changes nothing"
    );
    p.inject(Way::ToA, &ack(psn(2), Syndrome::Nak(NakCode::RemoteAccess)))
        .unwrap();
    assert_eq!(p.a.world.send_statuses()[2], (2, WcStatus::RemAccessErr));
}

#[test]
fn an_acknowledgement_of_a_later_send_does_not_complete_a_read() {
    let mut p = Pair::rc();
    let data = pattern(600, 1);
    let from = p.b.world.register(data.clone());
    let to = p.a.world.register(vec![0; 600]);
    p.b.recv(1, &[]);
    // All of the read's answer is lost, the acknowledgement of the send is not.
    let mut lost = 0;
    p.sieve(move |way, packet| {
        let answer = way == Way::ToA && packet.bth.opcode.operation().unwrap().is_read_response();
        lost += u32::from(answer);
        !answer || lost > 3
    });
    p.a.send(
        1,
        SendOp::Read {
            remote_addr: from.addr,
            rkey: from.key,
        },
        &[to.sge(0, 600)],
    );
    p.a.send(2, SendOp::Send, &[]);
    p.drive();
    assert_eq!(p.a.world.bytes(to), data);
    assert_eq!(
        p.a.world.send_statuses(),
        [(1, WcStatus::Success), (2, WcStatus::Success)]
    );
    assert_eq!(
        p.b.world.receives().len(),
        1,
        "the repeated send is not received again"
    );
}

#[test]
fn a_read_resumes_at_the_first_missing_packet() {
    let mut p = Pair::rc();
    let data = pattern(256 * 8, 1);
    let from = p.b.world.register(data.clone());
    let to = p.a.world.register(vec![0; 256 * 8]);
    p.lose_nth(Way::ToA, Operation::ReadResponseMiddle, 4);
    p.a.send(
        1,
        SendOp::Read {
            remote_addr: from.addr,
            rkey: from.key,
        },
        &[to.sge(0, 256 * 8)],
    );
    p.drive();
    assert_eq!(p.a.world.bytes(to), data);
    let asked: Vec<Psn> = p
        .seen
        .iter()
        .filter(|(_, op, _)| *op == Operation::ReadRequest)
        .map(|(.., n)| *n)
        .collect();
    assert_eq!(asked, [psn(0), psn(4)]);
    // The repetition is a request of its own, so its answer begins with FIRST.
    assert_eq!(p.count(Way::ToA, Operation::ReadResponseFirst), 2);
}

#[test]
fn a_resumed_read_may_be_answered_with_middles() {
    let mut p = Pair::rc();
    let data = pattern(256 * 3, 1);
    let to = p.a.world.register(vec![0; 256 * 3]);
    p.sieve(|_, _| false);
    p.a.send(
        1,
        SendOp::Read {
            remote_addr: 64,
            rkey: Key(1),
        },
        &[to.sge(0, 256 * 3)],
    );
    p.pump();
    for (i, op) in [
        Operation::ReadResponseFirst,
        Operation::ReadResponseMiddle,
        Operation::ReadResponseLast,
    ]
    .into_iter()
    .enumerate()
    {
        let bth = Bth::new(Opcode::Roce(Transport::Rc, op), 0x11, psn(i as u32));
        let aeth = Some(Aeth {
            syndrome: Syndrome::ACK,
            msn: 1,
        });
        let part = Packet {
            aeth,
            payload: &data[i * 256..][..256],
            ..Packet::new(bth)
        };
        p.inject(Way::ToA, &part).unwrap();
        if i == 0 {
            // The timer makes the requester ask again for the rest.
            let late = Instant::from_nanos(1_000_000);
            p.a.qp.handle_timeout(late, &mut p.a.world);
            p.pump();
        }
    }
    assert_eq!(p.a.world.bytes(to), data);
    assert_eq!(p.a.world.send_statuses(), [(1, WcStatus::Success)]);
}

#[test]
fn an_answer_of_the_wrong_length_ends_the_connection() {
    let mut p = Pair::rc();
    let to = p.a.world.register(vec![0; 256]);
    p.sieve(|_, _| false);
    p.a.send(
        1,
        SendOp::Read {
            remote_addr: 64,
            rkey: Key(1),
        },
        &[to.sge(0, 256)],
    );
    p.pump();
    let bth = Bth::new(
        Opcode::Roce(Transport::Rc, Operation::ReadResponseOnly),
        0x11,
        psn(0),
    );
    let aeth = Some(Aeth {
        syndrome: Syndrome::ACK,
        msn: 1,
    });
    p.inject(
        Way::ToA,
        &Packet {
            aeth,
            payload: &[1; 200],
            ..Packet::new(bth)
        },
    )
    .unwrap();
    assert_eq!(p.a.world.send_statuses(), [(1, WcStatus::BadRespErr)]);
    assert_eq!(p.a.qp.state(), QpState::Err);
}

#[test]
fn a_read_answer_to_a_send_is_a_bad_response() {
    let mut p = Pair::rc();
    p.sieve(|_, _| false);
    p.a.send(1, SendOp::Send, &[]);
    p.pump();
    let bth = Bth::new(
        Opcode::Roce(Transport::Rc, Operation::ReadResponseOnly),
        0x11,
        psn(0),
    );
    let aeth = Some(Aeth {
        syndrome: Syndrome::ACK,
        msn: 1,
    });
    p.inject(
        Way::ToA,
        &Packet {
            aeth,
            ..Packet::new(bth)
        },
    )
    .unwrap();
    assert_eq!(p.a.world.send_statuses(), [(1, WcStatus::BadRespErr)]);
}

#[test]
fn ghosts_are_ignored() {
    let mut p = Pair::rc();
    p.sieve(|_, _| false);
    p.a.send(1, SendOp::Send, &[]);
    p.pump();
    for n in [psn(1), psn(5), psn(0).sub(1), psn(0).sub(1000)] {
        assert_eq!(
            p.inject(Way::ToA, &ack(n, Syndrome::ACK)),
            Err(DropReason::Ghost)
        );
    }
    assert_eq!(
        p.inject(Way::ToA, &ack(psn(0), Syndrome::Reserved(0x40))),
        Err(DropReason::Reserved)
    );
    assert!(p.a.world.told.is_empty());
}

#[test]
fn any_credit_code_is_an_acknowledgement() {
    for credits in 0..=31 {
        let mut p = Pair::rc();
        p.sieve(|_, _| false);
        p.a.send(1, SendOp::Send, &[]);
        p.pump();
        p.inject(Way::ToA, &ack(psn(0), Syndrome::Ack { credits }))
            .unwrap();
        assert_eq!(p.a.world.send_statuses(), [(1, WcStatus::Success)]);
    }
}

#[test]
fn our_acknowledgements_never_limit_credits() {
    let mut p = Pair::rc();
    p.sieve(|_, packet| {
        let credits = packet.aeth.map(|a| a.syndrome);
        assert!(credits.is_none() || credits == Some(Syndrome::Ack { credits: 31 }));
        true
    });
    p.b.recv(1, &[]);
    p.a.send(1, SendOp::Send, &[]);
    p.drive();
    assert_eq!(p.a.world.sends().len(), 1);
}

#[test]
fn message_numbers_count_completed_requests() {
    let mut p = Pair::rc();
    let word = p.b.world.register(vec![0; 600]);
    let here = p.a.world.register(vec![0; 600]);
    let msns = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let out = msns.clone();
    p.sieve(move |way, packet| {
        if let (Way::ToA, Some(aeth)) = (way, packet.aeth) {
            out.borrow_mut().push(aeth.msn);
        }
        true
    });
    let (remote_addr, rkey) = (word.addr, word.key);
    p.a.send(1, SendOp::Write { remote_addr, rkey }, &[here.sge(0, 600)]);
    p.drive();
    p.a.send(2, SendOp::Read { remote_addr, rkey }, &[here.sge(0, 600)]);
    p.drive();
    p.a.send(
        3,
        SendOp::FetchAdd {
            remote_addr,
            rkey,
            add: 1,
        },
        &[here.sge(0, 8)],
    );
    p.drive();
    assert_eq!(*msns.borrow(), [1, 2, 2, 3]);
}

#[test]
fn seven_retries_are_seven_and_no_more() {
    for retry_cnt in [0, 1, 7] {
        let mut setup = Setup::rc();
        setup.attr.retry_cnt = retry_cnt;
        let mut p = Pair::new(setup);
        p.sieve(|_, _| false);
        p.a.send(1, SendOp::Send, &[]);
        p.a.send(2, SendOp::Send, &[]);
        p.drive();
        assert_eq!(
            p.a.world.send_statuses(),
            [(1, WcStatus::RetryExcErr), (2, WcStatus::WrFlushErr)]
        );
        assert_eq!(p.seen.len(), 2 * (usize::from(retry_cnt) + 1));
        assert_eq!(p.b.qp.state(), QpState::Rts, "nothing told the other side");
    }
}

#[test]
fn progress_restores_the_retries() {
    let mut setup = Setup::rc();
    setup.attr.retry_cnt = 1;
    let mut p = Pair::new(setup);
    let mut turn = 0;
    // Every request needs two attempts.
    p.sieve(move |way, _| {
        turn += u32::from(way == Way::ToB);
        way == Way::ToA || turn % 2 == 0
    });
    for id in 0..10 {
        p.b.recv(id, &[]);
        p.a.send(id, SendOp::Send, &[]);
        p.drive();
    }
    assert!(
        p.a.world
            .sends()
            .iter()
            .all(|c| c.status == WcStatus::Success)
    );
    assert_eq!(p.a.qp.counters().timeouts, 10);
}

#[test]
fn timeout_zero_waits_for_ever() {
    let mut setup = Setup::rc();
    setup.attr.timeout = 0;
    let mut p = Pair::new(setup);
    p.sieve(|_, _| false);
    p.a.send(1, SendOp::Send, &[]);
    p.drive();
    assert_eq!(p.a.qp.poll_timeout(), None);
    assert!(p.a.world.told.is_empty());
}

#[test]
fn a_receiver_that_is_not_ready_holds_the_sender_and_consumes_nothing() {
    let mut setup = Setup::rc();
    setup.attr.min_rnr_timer = 14;
    let mut p = Pair::new(setup);
    let data = pattern(700, 1);
    let from = p.a.world.register(data.clone());
    let to = p.b.world.register(vec![0; 700]);
    p.a.send(1, SendOp::Send, &[from.sge(0, 700)]);
    p.a.send(2, SendOp::Send, &[]);
    for _ in 0..3 {
        p.step();
    }
    while p.a.qp.counters().rnr_naks_received == 0 {
        p.step();
    }
    assert_eq!(
        p.b.qp.counters().rnr_naks_sent,
        1,
        "packets behind it get no answer of their own"
    );
    assert_eq!(p.b.qp.counters().sequence_naks_sent, 0);
    let sent = p.seen.len();
    p.pump();
    assert_eq!(p.seen.len(), sent, "nothing is sent while waiting");
    let start = p.now();
    p.b.recv(1, &[to.sge(0, 700)]);
    p.b.recv(2, &[]);
    p.drive();
    assert!(p.now() - start >= 1_280_000, "code 14 is 1.28 ms");
    assert_eq!(p.b.world.bytes(to), data);
    assert_eq!(
        p.b.world.recv_statuses(),
        [(1, WcStatus::Success), (2, WcStatus::Success)]
    );
    assert_eq!(p.a.qp.counters().retries, 0, "waiting is not retrying");
    assert_eq!(p.a.qp.counters().timeouts, 0);
}

#[test]
fn timer_code_zero_is_the_longest_wait() {
    let mut setup = Setup::rc();
    setup.attr.min_rnr_timer = 0;
    let mut p = Pair::new(setup);
    p.a.send(1, SendOp::Send, &[]);
    while p.a.qp.counters().rnr_naks_received == 0 {
        p.step();
    }
    p.b.recv(1, &[]);
    p.drive();
    assert!(p.now() > 655_000_000);
    assert_eq!(p.a.world.send_statuses(), [(1, WcStatus::Success)]);
}

#[test]
fn rnr_retries_are_counted_apart_and_seven_is_for_ever() {
    for rnr_retry in [0u8, 3, 7] {
        let mut setup = Setup::rc();
        setup.attr.rnr_retry = rnr_retry;
        setup.attr.retry_cnt = 0;
        let mut p = Pair::new(setup);
        p.a.send(1, SendOp::Send, &[]);
        let mut steps = 0;
        while p.step() && steps < 500 {
            steps += 1;
        }
        if rnr_retry == 7 {
            assert!(p.a.world.told.is_empty() && p.b.qp.counters().rnr_naks_sent > 50);
        } else {
            assert_eq!(p.a.world.send_statuses(), [(1, WcStatus::RnrRetryExcErr)]);
            assert_eq!(p.b.qp.counters().rnr_naks_sent, u64::from(rnr_retry) + 1);
            assert_eq!(p.b.qp.state(), QpState::Rts);
        }
    }
}

#[test]
fn write_with_immediate_asks_for_a_receive_at_its_end_only() {
    let mut p = Pair::rc();
    let from = p.a.world.register(pattern(600, 1));
    let to = p.b.world.register(vec![0; 600]);
    let op = SendOp::WriteImm {
        remote_addr: to.addr,
        rkey: to.key,
        imm: [1; 4],
    };
    p.a.send(1, op, &[from.sge(0, 600)]);
    while p.a.qp.counters().rnr_naks_received == 0 {
        p.step();
    }
    p.b.recv(1, &[]);
    p.drive();
    // FIRST and MIDDLE had been accepted, only LAST comes again.
    assert_eq!(p.count(Way::ToB, Operation::WriteFirst), 1);
    assert!(p.count(Way::ToB, Operation::WriteLastImm) > 1);
    assert_eq!(p.b.world.receives()[0].byte_len, 600);
}

#[test]
fn a_late_acknowledgement_after_the_timer_is_still_good() {
    let mut p = Pair::rc();
    p.sieve(|_, _| false);
    for id in 0..4 {
        p.a.send(id, SendOp::Send, &[]);
    }
    p.pump();
    p.a.qp
        .handle_timeout(Instant::from_nanos(1_000_000), &mut p.a.world);
    p.inject(Way::ToA, &ack(psn(2), Syndrome::ACK)).unwrap();
    assert_eq!(p.a.world.sends().len(), 3);
    p.seen.clear();
    p.pump();
    assert_eq!(
        p.seen,
        [(Way::ToB, Operation::SendOnly, psn(3))],
        "only what is still missing"
    );
}

#[test]
fn memory_that_goes_away_before_a_retry_fails_the_work_cleanly() {
    let (mut p, from, to, _) = write_pair(256 * 3);
    p.sieve(|_, _| false);
    p.a.send(
        1,
        SendOp::Write {
            remote_addr: to.addr,
            rkey: to.key,
        },
        &[from.sge(0, 256 * 3)],
    );
    p.a.send(2, SendOp::Send, &[]);
    p.pump();
    p.a.world.keys.remove(from.key);
    p.drive();
    assert_eq!(
        p.a.world.send_statuses(),
        [(1, WcStatus::LocProtErr), (2, WcStatus::WrFlushErr)]
    );
}

#[test]
fn an_idle_pair_has_no_deadline() {
    let mut p = Pair::rc();
    assert_eq!(p.a.qp.poll_timeout(), None);
    p.b.recv(1, &[]);
    p.a.send(1, SendOp::Send, &[]);
    p.pump();
    assert!(p.a.qp.poll_timeout().is_some());
    p.drive();
    assert_eq!(p.a.qp.poll_timeout(), None);
}

#[test]
fn each_gap_gets_a_complaint_of_its_own() {
    let (mut p, from, to, data) = write_pair(256 * 12);
    let mut count = 0;
    p.sieve(move |_, packet| {
        count += u32::from(packet.bth.opcode.operation() == Some(Operation::WriteMiddle));
        // The second loss hits the first packet of the retry's second half.
        !(count == 2 || count == 14)
    });
    let op = SendOp::Write {
        remote_addr: to.addr,
        rkey: to.key,
    };
    p.a.send(1, op, &[from.sge(0, 256 * 12)]);
    p.drive();
    assert_eq!(p.b.world.bytes(to), data);
    assert_eq!(p.b.qp.counters().sequence_naks_sent, 2);
    assert_eq!(p.a.qp.counters().timeouts, 0);
}

#[test]
fn a_packet_that_was_only_late_is_not_complained_about() {
    let mut p = Pair::rc();
    p.b.recv(1, &[]);
    p.b.recv(2, &[]);
    let send = |n| {
        let opcode = Opcode::Roce(Transport::Rc, Operation::SendOnly);
        Packet::new(Bth {
            ack_req: true,
            ..Bth::new(opcode, 0x12, psn(n))
        })
    };
    assert_eq!(p.inject(Way::ToB, &send(1)), Err(DropReason::Gap));
    p.inject(Way::ToB, &send(0)).unwrap();
    p.inject(Way::ToB, &send(1)).unwrap();
    let mut syndromes = Vec::new();
    let mut buf = [0; 4096];
    while let Some(t) =
        p.b.qp
            .poll_transmit(Instant::ZERO, &mut p.b.world, &mut buf)
    {
        syndromes.push(Packet::parse(&buf[..t.len]).unwrap().aeth.unwrap().syndrome);
    }
    assert_eq!(syndromes, [Syndrome::ACK]);
}

#[test]
fn an_acknowledgement_that_comes_in_mid_retry_covers_what_was_sent_before_it() {
    let mut p = Pair::rc();
    p.sieve(|_, _| false);
    for id in 0..4 {
        p.a.send(id, SendOp::Send, &[]);
    }
    p.pump();
    p.a.qp
        .handle_timeout(Instant::from_nanos(1_000_000), &mut p.a.world);
    // The link takes one packet of the retry and is full.
    let mut buf = [0; 4096];
    p.a.qp
        .poll_transmit(Instant::ZERO, &mut p.a.world, &mut buf)
        .unwrap();
    p.inject(Way::ToA, &ack(psn(3), Syndrome::ACK)).unwrap();
    assert_eq!(p.a.world.sends().len(), 4);
}

#[test]
fn a_timeout_repeats_sixteen_packets_and_answers_make_room_for_more() {
    let (mut p, from, to, data) = write_pair(256 * 100);
    p.sieve(|_, _| false);
    p.a.send(
        1,
        SendOp::Write {
            remote_addr: to.addr,
            rkey: to.key,
        },
        &[from.sge(0, 256 * 100)],
    );
    p.pump();
    assert_eq!(p.ops(Way::ToB).len(), 100);
    while p.a.qp.counters().timeouts == 0 {
        assert!(p.step());
    }
    p.pump();
    assert_eq!(p.ops(Way::ToB).len(), 116);
    p.no_sieve();
    p.drive();
    assert_eq!(p.b.world.bytes(to), data);
    assert_eq!(p.a.world.send_statuses(), [(1, WcStatus::Success)]);
    assert_eq!(p.a.qp.counters().timeouts, 2);
    // The sixteen once more, whose acknowledgement lets the other 84 follow.
    assert!(p.ops(Way::ToB).len() < 116 + 16 + 100);
}
