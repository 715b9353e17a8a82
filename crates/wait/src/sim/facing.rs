//! Two threads that wait for each other, both by the policy: a closed loop in which each wait contains what the other side
//! does.

use super::random::Random;
use crate::{Costs, Limits, Policy, Step};

/// A poll.
const POLL_NS: u64 = 200;
/// From sending until the other side could see it.
pub(super) const HOP_NS: u64 = 600;

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Of the second half of all round trips, the mean.
    pub trip_ns: u64,
    /// Sleeps of both sides in the second half.
    pub sleeps: u64,
    /// What each side believes that a wake-up costs.
    pub believed_ns: [u64; 2],
}

struct Side {
    policy: Policy,
    now: u64,
    sleeps: u64,
}

/// `trips` round trips between two sides that were told that a wake-up takes `told_ns`. It takes `wake_ns`, give or take
/// `spread` percent. Before, each has learned to sleep at once.
#[must_use]
pub fn run(told_ns: u64, wake_ns: u64, spread: u64, trips: u64) -> Outcome {
    let mut random = Random::new(wake_ns + spread);
    let mut wake = move || {
        let off = wake_ns * spread / 100;
        random.between(wake_ns - off, wake_ns + off + 1)
    };
    let mut sides = [(); 2].map(|()| Side {
        policy: Policy::new(Costs { wake_ns: told_ns }, Limits::default()),
        now: 0,
        sleeps: 0,
    });
    for side in &mut sides {
        for at in 1..=500 {
            let arrival = side.now + (told_ns + wake_ns) * (3 + at % 7);
            side.wait(arrival, wake());
        }
    }
    let mut sent = sides[0].now.max(sides[1].now) + 10 * wake_ns;
    let (mut began, mut slept) = (sent, 0);
    for trip in 0..trips {
        if trip == trips / 2 {
            began = sent;
            slept = sides.iter().map(|side| side.sleeps).sum();
        }
        for side in &mut sides {
            side.wait(sent + HOP_NS, wake());
            sent = side.now;
        }
    }
    Outcome {
        trip_ns: (sent - began) / (trips - trips / 2).max(1),
        sleeps: sides.iter().map(|side| side.sleeps).sum::<u64>() - slept,
        believed_ns: [&sides[0], &sides[1]].map(|side| side.policy.wake_ns()),
    }
}

impl Side {
    /// Until it has found what arrives then.
    fn wait(&mut self, arrival: u64, wake: u64) {
        while self.now < arrival {
            self.now = match self.policy.empty(self.now) {
                Step::Spin | Step::Yield => self.now + POLL_NS,
                Step::Sleep { until: Some(at) } if at + wake < arrival => {
                    self.policy.woke(at + wake, false);
                    at + wake
                }
                Step::Sleep { .. } => {
                    self.sleeps += 1;
                    self.policy.woke(arrival + wake, true);
                    arrival + wake
                }
            };
        }
        self.policy.found(self.now);
    }
}
