//! Whether a task that found nothing looks again or sleeps.

use std::time::Instant;

use adverb_wait::{Costs, Policy, Step, measure};

use crate::wait::Wait;

/// One for each queue, since messages come to queues.
#[derive(Debug)]
pub(super) enum Pace {
    Busy,
    Event,
    /// Its alarms are not set: there may be nobody who has a timer. The event wakes in any case.
    Adaptive(Box<Policy>, Instant),
}

impl Pace {
    pub(super) fn new(how: Wait) -> Self {
        match how {
            Wait::Busy => Self::Busy,
            Wait::Event => Self::Event,
            Wait::Adaptive(limits) => {
                let wake_ns = measure::wake_ns();
                let policy = Policy::new(Costs { wake_ns }, limits.into());
                Self::Adaptive(Box::new(policy), Instant::now())
            }
        }
    }

    /// A look found nothing. Whether to look again instead of sleeping.
    pub(super) fn looks_again(&mut self) -> bool {
        match self {
            Self::Busy => true,
            Self::Event => false,
            Self::Adaptive(policy, start) => {
                !matches!(policy.empty(since(*start)), Step::Sleep { .. })
            }
        }
    }

    pub(super) fn woken(&mut self) {
        if let Self::Adaptive(policy, start) = self {
            policy.woke(since(*start), true);
        }
    }

    pub(super) fn found(&mut self) {
        if let Self::Adaptive(policy, start) = self {
            policy.found(since(*start));
        }
    }
}

fn since(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
