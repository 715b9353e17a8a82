//! One thread, one trace, one way to wait.

use super::random::Random;
use super::trace::Trace;
use crate::{Costs, Counters, Limits, Policy, Step};

/// How the thread waits.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    /// It polls.
    Busy,
    /// It sleeps at once.
    Event,
    /// It polls for W, then sleeps.
    SpinThenSleep,
    /// By the policy.
    Adaptive(Limits),
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Time spun plus W for each sleep that a message ended.
    pub cost_ns: u64,
    /// Time spun.
    pub spun_ns: u64,
    /// From the arrival of each message until it was found, all together.
    pub late_ns: u64,
    /// The same for the message in the middle.
    pub median_late_ns: u64,
    /// From beginning to end.
    pub took_ns: u64,
    /// Of the policy.
    pub counters: Counters,
}

/// A poll, and the handling of one message.
const POLL_NS: u64 = 200;

/// What the best that knows the future pays: min(gap, W) for each gap.
#[must_use]
pub fn best_ns(trace: &Trace, wake_ns: u64) -> u64 {
    trace.gaps.iter().map(|&gap| gap.min(wake_ns)).sum()
}

/// Runs a trace to its end.
#[must_use]
pub fn run(trace: &Trace, way: Way, wake_ns: u64) -> Outcome {
    let limits = match way {
        Way::Adaptive(limits) => limits,
        _ => Limits::default(),
    };
    let mut thread = Thread {
        way,
        wake: wake_ns,
        now: 0,
        policy: Policy::new(Costs { wake_ns }, limits),
        random: Random::new(1),
        out: Outcome::default(),
    };
    let mut late = Vec::with_capacity(trace.gaps.len());
    let mut last = 0_u64;
    for &gap in &trace.gaps {
        let from = if trace.closed { thread.now } else { last };
        let arrival = from.saturating_add(gap);
        last = arrival;
        thread.wait(arrival);
        late.push(thread.now - arrival);
        thread.now += POLL_NS;
    }
    late.sort_unstable();
    Outcome {
        late_ns: late.iter().sum(),
        median_late_ns: late.get(late.len() / 2).copied().unwrap_or(0),
        took_ns: thread.now,
        counters: thread.policy.counters(),
        ..thread.out
    }
}

struct Thread {
    way: Way,
    wake: u64,
    now: u64,
    policy: Policy,
    random: Random,
    out: Outcome,
}

impl Thread {
    /// Until the message that comes at `arrival` has been found.
    fn wait(&mut self, arrival: u64) {
        let spin = match self.way {
            Way::Adaptive(_) => return self.wait_by_policy(arrival),
            Way::Busy => u64::MAX,
            Way::Event => 0,
            Way::SpinThenSleep => self.wake,
        };
        let wait = arrival.saturating_sub(self.now);
        self.spin_until(arrival.min(self.now.saturating_add(spin)));
        if wait > spin {
            self.wake_up(arrival);
        }
    }

    fn wait_by_policy(&mut self, arrival: u64) {
        while self.now < arrival {
            match self.policy.empty(self.now) {
                Step::Spin | Step::Yield => {
                    self.spin_until(self.now + POLL_NS.min(arrival - self.now))
                }
                Step::Sleep { until: Some(at) } if at < arrival => {
                    let rings = at + self.random.between(self.wake, 2 * self.wake);
                    match rings < arrival {
                        true => {
                            self.now = rings;
                            self.policy.woke(rings, false);
                        }
                        false => {
                            self.wake_up(arrival);
                            self.policy.woke(self.now, true);
                        }
                    }
                }
                Step::Sleep { .. } => {
                    self.wake_up(arrival);
                    self.policy.woke(self.now, true);
                }
            }
        }
        self.policy.found(self.now);
    }

    fn spin_until(&mut self, until: u64) {
        let spun = until.saturating_sub(self.now);
        self.out.spun_ns += spun;
        self.out.cost_ns += spun;
        self.now += spun;
    }

    /// A message ends the sleep.
    fn wake_up(&mut self, arrival: u64) {
        self.out.cost_ns += self.wake;
        self.now = arrival + self.wake;
    }
}
