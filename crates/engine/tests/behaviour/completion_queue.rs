//! The arm rule and the bounds of a completion queue.

use adverb_engine::*;

fn done(wr_id: u64, solicited: bool) -> Completion {
    let mut c = Completion::success(wr_id, WcOpcode::Recv, QpNum(1), Instant::ZERO);
    c.solicited = solicited;
    c
}

fn failed(wr_id: u64) -> Completion {
    Completion::error(
        wr_id,
        WcStatus::WrFlushErr,
        WcOpcode::Send,
        QpNum(1),
        Instant::ZERO,
    )
}

const QUIET: Push = Push::Queued { fire: false };
const FIRE: Push = Push::Queued { fire: true };

#[test]
fn an_armed_queue_fires_once() {
    let mut cq = Cq::new(10);
    assert_eq!(cq.push(&done(0, false)), QUIET);
    cq.pop();
    assert!(!cq.arm(false));
    assert_eq!(cq.push(&done(1, false)), FIRE);
    assert_eq!(cq.push(&done(2, false)), QUIET);
}

#[test]
fn solicited_arming_fires_for_solicited_ones_and_errors() {
    let mut cq = Cq::new(10);
    cq.arm(true);
    assert_eq!(cq.push(&done(1, false)), QUIET);
    assert_eq!(cq.push(&done(2, true)), FIRE);
    cq.arm(true);
    assert_eq!(cq.push(&failed(3)), FIRE);
}

#[test]
fn arming_for_all_upgrades_and_arming_for_solicited_does_not_downgrade() {
    let mut cq = Cq::new(10);
    cq.arm(true);
    cq.arm(false);
    assert_eq!(cq.push(&done(1, false)), FIRE);
    cq.pop();
    cq.arm(false);
    cq.arm(true);
    assert_eq!(cq.push(&done(1, false)), FIRE);
}

#[test]
fn what_no_event_has_announced_fires_at_the_arm() {
    let mut cq = Cq::new(10);
    cq.push(&done(1, false));
    assert!(cq.arm(false));
    // Announced now: arming again waits for something new.
    assert!(!cq.arm(false));
    assert_eq!(cq.push(&done(2, false)), FIRE);
    // Two waited at that event; the loop "get, ack, arm, drain" pays no second one for them.
    assert!(!cq.arm(false));
    assert_eq!(cq.len(), 2);
}

#[test]
fn a_completion_that_comes_between_event_and_arm_is_not_lost() {
    let mut cq = Cq::new(10);
    cq.arm(false);
    assert_eq!(cq.push(&done(1, false)), FIRE);
    assert_eq!(cq.push(&done(2, false)), QUIET);
    // One is polled, the other was never announced.
    cq.pop();
    assert!(cq.arm(false));
}

#[test]
fn arming_for_solicited_looks_at_solicited_ones_only() {
    let mut cq = Cq::new(10);
    cq.push(&done(1, false));
    assert!(!cq.arm(true));
    cq.push(&done(2, false));
    let mut cq = Cq::new(10);
    cq.push(&done(1, true));
    cq.push(&done(2, false));
    assert!(cq.arm(true));
    assert!(!cq.arm(true));
    cq.pop();
    cq.pop();
    cq.push(&failed(3));
    cq.pop();
    assert!(!cq.arm(true), "polled, so nothing waits");
}

#[test]
fn strict_queues_fire_for_later_completions_only() {
    let mut cq = Cq::new(10);
    cq.set_strict(true);
    cq.push(&done(1, true));
    assert!(!cq.arm(false));
    assert_eq!(cq.push(&done(2, false)), FIRE);
}

#[test]
fn all_of_the_capacity_can_be_used_and_one_more_is_an_overrun() {
    let mut cq = Cq::new(3);
    for id in 0..3 {
        assert_eq!(cq.push(&done(id, false)), QUIET);
    }
    assert_eq!(cq.push(&done(3, false)), Push::Overrun);
    assert!(cq.has_overrun());
    // What was there can still be had; nothing is added any more.
    let mut out = [done(99, false); 8];
    assert_eq!(cq.poll(&mut out), 3);
    assert_eq!(
        out[..3].iter().map(|c| c.wr_id).collect::<Vec<_>>(),
        [0, 1, 2]
    );
    assert_eq!(cq.push(&done(4, false)), Push::Overrun);
}

#[test]
fn resizing_keeps_entries_order_and_arming() {
    let mut cq = Cq::new(4);
    cq.arm(true);
    for id in 0..4 {
        cq.push(&done(id, false));
    }
    assert!(cq.resize(3).is_err());
    assert_eq!(cq.capacity(), 4);
    cq.resize(5).unwrap();
    assert_eq!(cq.push(&done(4, true)), FIRE);
    cq.pop();
    cq.resize(4).unwrap();
    assert_eq!(cq.pop().unwrap().wr_id, 1);
}

#[test]
fn entries_of_a_destroyed_queue_pair_can_be_taken_out() {
    let mut cq = Cq::new(10);
    for id in 0..4 {
        let mut c = done(id, true);
        c.qp_num = QpNum(id as u32 % 2);
        cq.push(&c);
    }
    cq.retain(|c| c.qp_num != QpNum(0));
    assert!(cq.arm(true));
    assert_eq!(
        (cq.pop().unwrap().wr_id, cq.pop().unwrap().wr_id, cq.pop()),
        (1, 3, None)
    );
    assert!(!cq.arm(true));
}

/// Compares with the rule as written: an event is due when the queue is armed and an entry is
/// there that no event has announced. Entries are checked one by one instead of counted.
#[test]
fn random_use_agrees_with_a_slow_model() {
    let mut seed = 1u64;
    let mut below = |n: u64| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % n
    };
    let mut cq = Cq::new(8);
    let mut model: Vec<(u64, bool, bool)> = Vec::new();
    let mut armed: Option<bool> = None;
    for id in 0..20_000 {
        match below(3) {
            0 if model.len() < 8 => {
                let solicited = below(3) == 0;
                let fire = armed.is_some_and(|only| !only || solicited);
                model.push((id, solicited, false));
                if fire {
                    armed = None;
                    model.iter_mut().for_each(|e| e.2 = true);
                }
                assert_eq!(cq.push(&done(id, solicited)), Push::Queued { fire });
            }
            1 => {
                let expected = (!model.is_empty()).then(|| model.remove(0).0);
                assert_eq!(cq.pop().map(|c| c.wr_id), expected);
            }
            _ => {
                let only = below(2) == 0;
                let fire = model.iter().any(|e| !e.2 && (!only || e.1));
                if fire {
                    armed = None;
                    model.iter_mut().for_each(|e| e.2 = true);
                } else {
                    armed = Some(only && armed.unwrap_or(true));
                }
                assert_eq!(cq.arm(only), fire);
            }
        }
    }
}

#[test]
fn moderation_waits_for_the_count_or_for_the_time() {
    let at = |ns| Completion::success(1, WcOpcode::Send, QpNum(1), Instant::from_nanos(ns));
    let held = Push::Queued { fire: false };
    let mut cq = Cq::new(16);
    cq.moderate(3, 1000);
    cq.arm(false);
    assert_eq!(cq.push(&at(10)), held);
    assert_eq!(cq.due(), Some(Instant::from_nanos(1010)));
    assert_eq!(cq.push(&at(20)), held);
    assert_eq!(cq.push(&at(30)), Push::Queued { fire: true }, "the third");
    assert_eq!(cq.due(), None);
    // One that no other follows comes late but comes.
    cq.arm(false);
    assert_eq!(cq.push(&at(5000)), held);
    assert!(!cq.fire_if_due(Instant::from_nanos(5999)));
    assert!(cq.fire_if_due(Instant::from_nanos(6000)));
    assert!(!cq.fire_if_due(Instant::from_nanos(9000)), "once");
    // Off, and a count beyond the size of the queue.
    cq.moderate(3, 0);
    cq.arm(false);
    assert_eq!(cq.push(&at(9000)), Push::Queued { fire: true });
    let mut small = Cq::new(1);
    small.moderate(100, 1000);
    small.arm(false);
    assert_eq!(small.push(&at(1)), Push::Queued { fire: true });
}
