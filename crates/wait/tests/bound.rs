//! The policy stays within its bound, and does what it is for.

use adverb_wait::sim::facing;
use adverb_wait::sim::table::WAKE_NS;
use adverb_wait::sim::trace::{self, Trace};
use adverb_wait::sim::world::{Outcome, Way, best_ns, run};
use adverb_wait::{Costs, Limits, Policy, SLACK, Step};
use proptest::prelude::*;

fn adaptive(trace: &Trace) -> Outcome {
    run(trace, Way::Adaptive(Limits::default()), WAKE_NS)
}

fn named(name: &str) -> Trace {
    trace::all()
        .into_iter()
        .find(|trace| trace.name == name)
        .expect("the table has it")
}

/// A poll is discrete: each wait may be spun for one poll more than planned.
fn rounding(trace: &Trace) -> u64 {
    trace.gaps.len() as u64 * 200
}

#[test]
fn every_trace_costs_at_most_twice_the_best_and_a_constant() {
    for trace in trace::all() {
        let cost = adaptive(&trace).cost_ns;
        let bound = 2 * best_ns(&trace, WAKE_NS) + SLACK * WAKE_NS + rounding(&trace);
        assert!(cost <= bound, "{}: {cost} > {bound}", trace.name);
    }
}

/// Spinning for W first pays twice for each of them.
#[test]
fn long_gaps_are_not_spun_into() {
    let trace = named("gap-100us");
    let naive = run(&trace, Way::SpinThenSleep, WAKE_NS).cost_ns;
    assert!(adaptive(&trace).cost_ns * 10 < naive * 6);
}

/// Two threads that wait for each other: each is answered after a µs if the other spins, and after W more if it sleeps.
#[test]
fn two_that_wait_for_each_other_do_not_both_sleep_for_ever() {
    let side = || {
        (
            Policy::new(Costs { wake_ns: WAKE_NS }, Limits::default()),
            0,
        )
    };
    let (mut one, mut other) = (side(), side());
    // Both have waited long for whatever else, and learned to sleep at once.
    for (policy, since) in [&mut one, &mut other] {
        for at in 1..=500 {
            let length = WAKE_NS * (3 + at % 7);
            *since = wait(policy, *since, *since + length).0;
        }
    }
    let mut arrival = one.1.max(other.1) + 10 * WAKE_NS;
    let mut sleeps = 0;
    for _ in 0..2_000 {
        let (found, slept) = wait(&mut one.0, one.1, arrival);
        one.1 = found + 1_000;
        arrival = one.1;
        sleeps = if slept { sleeps + 1 } else { 0 };
        std::mem::swap(&mut one, &mut other);
    }
    assert_eq!(sleeps, 0, "they still sleep");
}

/// A wait from `now` for a message that comes at `arrival`: when it was found, and whether that took a wake-up.
fn wait(policy: &mut Policy, mut now: u64, arrival: u64) -> (u64, bool) {
    while now < arrival {
        if let Step::Sleep { .. } = policy.empty(now) {
            policy.woke(arrival + WAKE_NS, true);
            policy.found(arrival + WAKE_NS);
            return (arrival + WAKE_NS, true);
        }
        now += 200;
    }
    policy.found(now);
    (now, false)
}

/// A machine that is busier than it was when W was measured. Each answer then comes later than it seems to pay to look for.
#[test]
fn two_that_were_told_a_wrong_wake_up_do_not_both_sleep_for_ever() {
    for (times, part) in [(1, 4), (1, 2), (1, 1), (2, 1), (4, 1), (8, 1)] {
        for spread in [0, 30, 80] {
            let wake = WAKE_NS * times / part;
            let outcome = facing::run(WAKE_NS, wake, spread, 4_000);
            assert!(
                outcome.sleeps == 0 && outcome.trip_ns < 2_000,
                "{wake} ± {spread} %: {outcome:?}"
            );
        }
    }
}

/// Where messages come at a pace of their own, sleeping and looking can be compared without doubt.
#[test]
fn what_a_wake_up_costs_is_learned_within_a_third() {
    for wake in [WAKE_NS / 2, WAKE_NS] {
        let mut policy = Policy::new(Costs { wake_ns: WAKE_NS }, Limits::default());
        let (mut now, mut arrival) = (0, 0);
        for _ in 0..2_000 {
            arrival += 3 * WAKE_NS;
            while now < arrival {
                now = match policy.empty(now) {
                    Step::Spin | Step::Yield => now + 200,
                    Step::Sleep { .. } => {
                        policy.woke(arrival + wake, true);
                        arrival + wake
                    }
                };
            }
            policy.found(now);
        }
        let believed = policy.wake_ns();
        assert!(believed.abs_diff(wake) <= wake / 3, "{believed} for {wake}");
        assert!(policy.counters().probes < 200, "{:?}", policy.counters());
    }
}

#[test]
fn a_steady_pace_is_met_awake_at_a_fraction_of_a_core() {
    for (name, share) in [("gap-500us", 40), ("gap-1ms", 20)] {
        let outcome = adaptive(&named(name));
        assert!(outcome.median_late_ns < 1_000, "{name}: {outcome:?}");
        assert!(
            outcome.spun_ns * 100 <= outcome.took_ns * share,
            "{name}: {outcome:?}"
        );
        assert!(outcome.counters.naps > 3_000, "{name}: {outcome:?}");
    }
}

#[test]
fn bursts_are_met_awake() {
    // Looking through the bursts alone takes 39 % of a core in the first of them.
    for (name, share) in [("burst-256", 41), ("burst-256-fast", 30)] {
        let mut trace = named(name);
        trace.gaps = trace.gaps.repeat(4);
        let outcome = adaptive(&trace);
        let messages = trace.gaps.len() as u64;
        assert!(outcome.late_ns < messages * 1_000, "{name}: {outcome:?}");
        assert!(
            outcome.spun_ns * 100 <= outcome.took_ns * share,
            "{name}: {outcome:?}"
        );
    }
}

#[test]
fn a_closed_loop_never_sleeps() {
    let outcome = adaptive(&named("closed-1"));
    assert_eq!(outcome.counters.arms, 0);
    assert_eq!(outcome.late_ns, 0);
}

/// A mean below (1 − c) W is against the nature of arrivals without memory.
#[test]
fn arrivals_without_memory_cost_what_they_must() {
    let trace = named("poisson-1ms");
    let outcome = adaptive(&trace);
    let share = outcome.spun_ns as f64 / outcome.took_ns as f64;
    let mean = outcome.late_ns as f64 / trace.gaps.len() as f64;
    assert!(
        mean >= 0.9 * (1.0 - share) * WAKE_NS as f64,
        "{mean} at {share}"
    );
}

#[test]
fn a_goal_is_met_where_the_other_limits_let_it() {
    let trace = named("poisson-200us");
    let limits = Limits {
        goal_ns: Some(5_000),
        ..Limits::default()
    };
    let met = run(&trace, Way::Adaptive(limits), WAKE_NS);
    assert!(met.late_ns / (trace.gaps.len() as u64) < 6_500, "{met:?}");
    let free = adaptive(&trace);
    assert!(
        free.late_ns / (trace.gaps.len() as u64) > 20_000,
        "{free:?}"
    );
}

#[test]
fn the_documented_tables_are_what_the_simulation_says() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/waiting.md");
    let text = std::fs::read_to_string(path).expect("docs/waiting.md can be read");
    for table in [
        adverb_wait::sim::table::regret(),
        adverb_wait::sim::table::facing(),
    ] {
        assert!(
            text.contains(&table),
            "replace the tables in docs/waiting.md by what `cargo run -p adverb-wait --bin regret` prints"
        );
    }
}

/// Gaps of all sizes, in stretches of one kind, so that the policy has something to believe in and be wrong about.
fn stretches() -> impl Strategy<Value = Vec<u64>> {
    let gap = prop_oneof![0..WAKE_NS, WAKE_NS..4 * WAKE_NS, 0..50 * WAKE_NS];
    let stretch = (gap, 0..WAKE_NS / 4, 1_usize..40).prop_map(|(gap, jitter, count)| {
        (0..count)
            .map(|at| gap + jitter * (at as u64 % 3))
            .collect::<Vec<_>>()
    });
    prop::collection::vec(stretch, 1..12).prop_map(|stretches| stretches.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_trace_breaks_the_bound(gaps in stretches(), closed: bool) {
        let trace = Trace { name: "random", gaps, closed, changes: 0 };
        let cost = adaptive(&trace).cost_ns;
        let bound = 2 * best_ns(&trace, WAKE_NS) + SLACK * WAKE_NS + rounding(&trace);
        prop_assert!(cost <= bound, "{} > {}", cost, bound);
    }

    #[test]
    fn a_share_is_kept(gaps in stretches(), percent in 0_u32..100) {
        let trace = Trace { name: "random", gaps, closed: false, changes: 0 };
        let limits = Limits { cpu_percent: percent, ..Limits::default() };
        let outcome = run(&trace, Way::Adaptive(limits), WAKE_NS);
        let allowed = (outcome.took_ns + 20_000_000) * u64::from(percent) / 100;
        prop_assert!(outcome.spun_ns <= allowed + rounding(&trace));
    }

    #[test]
    fn no_wait_is_spun_for_longer_than_allowed(gaps in stretches(), most in 0..WAKE_NS) {
        let trace = Trace { name: "random", gaps, closed: false, changes: 0 };
        let limits = Limits { most_spin_ns: Some(most), goal_ns: Some(0), ..Limits::default() };
        let outcome = run(&trace, Way::Adaptive(limits), WAKE_NS);
        prop_assert!(outcome.spun_ns <= outcome.counters.waits * (most + 200));
    }

    /// Times that jump, stand still and go back; calls in any order; costs and limits of any size.
    #[test]
    fn nonsense_does_no_harm(
        wake_ns: u64,
        cpu_percent: u32,
        most_spin_ns: Option<u64>,
        goal_ns: Option<u64>,
        calls in prop::collection::vec((0_u8..4, any::<u64>(), any::<bool>()), 0..200),
    ) {
        let mut policy = Policy::new(Costs { wake_ns }, Limits { cpu_percent, most_spin_ns, goal_ns });
        let mut waits = 0;
        for (call, time, near) in calls {
            let now = if near { time % 1_000_000 } else { time };
            match call {
                0 => policy.found(now),
                1 => policy.woke(now, near),
                _ => {
                    waits += 1;
                    if let Step::Sleep { until: Some(at) } = policy.empty(now) {
                        prop_assert!(at > 0);
                    }
                }
            }
        }
        prop_assert!(policy.counters().waits <= waits);
    }
}
