//! Queue pairs that die: what completes, in which order, and what may still be posted.

use adverb_engine::*;

use crate::harness::*;

#[test]
fn the_real_error_comes_first_and_all_later_work_is_flushed() {
    let mut p = Pair::new(Setup {
        sq_sig_all: false,
        ..Setup::rc()
    });
    let from = p.a.world.register(pattern(64, 1));
    p.b.recv(1, &[]);
    p.a.recv(50, &[]);
    p.a.recv(51, &[]);
    p.a.send_flags(1, SendOp::Send, &[], SendFlags::SIGNALED);
    p.a.send(
        2,
        SendOp::Send,
        &[Sge {
            addr: from.addr,
            len: 65,
            lkey: from.key,
        }],
    );
    p.a.send(3, SendOp::Send, &[]);
    p.a.send(
        4,
        SendOp::Read {
            remote_addr: 0,
            rkey: Key(0),
        },
        &[],
    );
    p.drive();
    // Unsignaled work completes visibly when it fails, and also when it never started.
    assert_eq!(
        p.a.world.send_statuses(),
        [
            (1, WcStatus::Success),
            (2, WcStatus::LocProtErr),
            (3, WcStatus::WrFlushErr),
            (4, WcStatus::WrFlushErr)
        ]
    );
    assert_eq!(
        p.a.world.recv_statuses(),
        [(50, WcStatus::WrFlushErr), (51, WcStatus::WrFlushErr)]
    );
    assert!(
        p.a.world.sends()[1..]
            .iter()
            .chain(&p.a.world.receives())
            .all(|c| c.solicited)
    );
    assert_eq!(p.a.qp.state(), QpState::Err);
    assert_eq!(p.b.qp.state(), QpState::Rts);
}

#[test]
fn work_before_the_failed_one_is_waited_for() {
    let mut p = Pair::rc();
    p.b.recv(1, &[]);
    p.a.send(1, SendOp::Send, &[]);
    p.a.send(
        2,
        SendOp::Send,
        &[Sge {
            addr: 1,
            len: 1,
            lkey: Key(1),
        }],
    );
    p.pump();
    assert!(p.a.world.told.is_empty());
    assert_eq!(p.a.qp.state(), QpState::Rts);
    p.drive();
    assert_eq!(
        p.a.world.send_statuses(),
        [(1, WcStatus::Success), (2, WcStatus::LocProtErr)]
    );
}

#[test]
fn posting_to_a_dead_queue_pair_flushes_at_once() {
    let mut p = Pair::rc();
    p.a.enter(QpState::Err).unwrap();
    for id in 0..100 {
        p.a.send(id, SendOp::Send, &[]);
        p.a.recv(id, &[]);
    }
    assert_eq!(p.a.world.told.len(), 200);
    assert!(
        p.a.world
            .sends()
            .iter()
            .chain(&p.a.world.receives())
            .all(|c| c.status == WcStatus::WrFlushErr)
    );
    p.drive();
    assert!(p.seen.is_empty());
}

#[test]
fn a_half_filled_receive_is_flushed_before_the_others() {
    let mut p = Pair::rc();
    let from = p.a.world.register(pattern(600, 1));
    let to = p.b.world.register(vec![0; 600]);
    p.b.recv(1, &[to.sge(0, 600)]);
    p.b.recv(2, &[]);
    p.sieve(|_, packet| packet.bth.opcode.operation() != Some(adverb_wire::Operation::SendLast));
    p.a.send(1, SendOp::Send, &[from.sge(0, 600)]);
    p.step();
    p.step();
    p.b.enter(QpState::Err).unwrap();
    assert_eq!(
        p.b.world.recv_statuses(),
        [(1, WcStatus::WrFlushErr), (2, WcStatus::WrFlushErr)]
    );
}

#[test]
fn shared_receives_are_not_flushed_and_the_last_one_is_announced() {
    let mut p = Pair::new(Setup {
        srq: true,
        ..Setup::rc()
    });
    let from = p.a.world.register(pattern(600, 1));
    let to = p.b.world.register_with(vec![0; 600], all_access(), SRQ_PD);
    p.b.recv(1, &[to.sge(0, 600)]);
    p.b.recv(2, &[]);
    p.sieve(|_, packet| packet.bth.opcode.operation() != Some(adverb_wire::Operation::SendLast));
    p.a.send(1, SendOp::Send, &[from.sge(0, 600)]);
    p.step();
    p.step();
    p.b.enter(QpState::Err).unwrap();
    // The one taken is completed, the event follows it.
    assert!(matches!(
        p.b.world.told[..],
        [Told::Recv(_), Told::Event(QpEvent::LastWqeReached)]
    ));
    assert_eq!(p.b.world.recv_statuses(), [(1, WcStatus::WrFlushErr)]);
    assert_eq!(p.b.world.srq.as_ref().unwrap().len(), 1);
}

#[test]
fn last_receive_is_announced_even_if_none_was_taken_and_once_per_death() {
    let setup = Setup {
        srq: true,
        ..Setup::rc()
    };
    let mut p = Pair::new(setup);
    p.b.enter(QpState::Err).unwrap();
    p.b.enter(QpState::Err).unwrap();
    assert_eq!(p.b.world.events(), [QpEvent::LastWqeReached]);
    p.b.enter(QpState::Reset).unwrap();
    p.b.enter_init(&setup);
    p.b.enter(QpState::Err).unwrap();
    assert_eq!(p.b.world.events().len(), 2);
}

#[test]
fn a_failed_completion_queue_takes_its_queue_pairs_along() {
    let mut p = Pair::rc();
    p.a.recv(1, &[]);
    p.a.send(1, SendOp::Send, &[]);
    p.a.qp.fail(Instant::ZERO, &mut p.a.world);
    assert_eq!(p.a.world.events(), [QpEvent::Fatal]);
    assert_eq!(
        (p.a.world.sends().len(), p.a.world.receives().len()),
        (1, 1)
    );
    p.a.qp.fail(Instant::ZERO, &mut p.a.world);
    assert_eq!(p.a.world.events().len(), 1);
}

#[test]
fn a_dead_queue_pair_ignores_packets_and_has_no_deadline() {
    let mut p = Pair::rc();
    p.a.send(1, SendOp::Send, &[]);
    p.pump();
    p.a.enter(QpState::Err).unwrap();
    assert_eq!(p.a.qp.poll_timeout(), None);
    p.b.enter(QpState::Err).unwrap();
    p.drive();
    assert_eq!(p.b.qp.counters().packets_dropped, 1);
}

#[test]
fn too_long_a_message_is_a_length_error() {
    let mut p = Pair::rc();
    let huge = Sge {
        addr: 0,
        len: 1 << 30,
        lkey: Key(1),
    };
    p.a.send(1, SendOp::Send, &[huge, huge, Sge { len: 1, ..huge }]);
    p.drive();
    assert_eq!(p.a.world.send_statuses(), [(1, WcStatus::LocLenErr)]);
    assert!(p.seen.is_empty());
}

#[test]
fn a_key_that_cannot_be_invalidated_fails_the_work() {
    let mut p = Pair::rc();
    let key = p.a.world.register(vec![0; 8]).key;
    p.a.send(1, SendOp::LocalInv(key), &[]);
    p.a.send(2, SendOp::Send, &[]);
    p.drive();
    assert_eq!(
        p.a.world.send_statuses(),
        [(1, WcStatus::LocQpOpErr), (2, WcStatus::WrFlushErr)]
    );
}

#[test]
fn a_read_without_any_allowed_fails() {
    let mut setup = Setup::rc();
    setup.attr.max_rd_atomic = 0;
    let mut p = Pair::new(setup);
    p.a.send(
        1,
        SendOp::Read {
            remote_addr: 0,
            rkey: Key(0),
        },
        &[],
    );
    p.drive();
    assert_eq!(p.a.world.send_statuses(), [(1, WcStatus::LocQpOpErr)]);
}
