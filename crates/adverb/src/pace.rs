//! What a completion queue knows about how its messages come: the policy of `adverb-wait`, in the hands of one thread at a
//! time.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use adverb_wait::{Costs, Counters, Limits, Policy, measure};

use crate::sync::lock;

pub(crate) struct Pace {
    start: Instant,
    slot: Mutex<Slot>,
}

#[derive(Default)]
struct Slot {
    /// None before the first adaptive wait, and while a thread waits by it.
    policy: Option<Box<Policy>>,
    lent: bool,
    /// As of the last wait that ended.
    seen: Option<(Counters, u64)>,
}

impl Pace {
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            slot: Mutex::default(),
        }
    }

    /// The policy for a wait of this thread. None while another one waits by it: two that spin would only be in each
    /// other's way.
    pub(crate) fn lend(&self, limits: Limits) -> Option<Lent<'_>> {
        let mut slot = lock(&self.slot);
        if std::mem::replace(&mut slot.lent, true) {
            return None;
        }
        let policy = slot.policy.take();
        drop(slot);
        let policy = match policy {
            Some(mut policy) => {
                policy.limit(limits);
                policy
            }
            None => {
                let wake_ns = measure::wake_ns();
                Box::new(Policy::new(Costs { wake_ns }, limits))
            }
        };
        Some(Lent {
            pace: self,
            policy: Some(policy),
        })
    }

    /// What was counted, and what a wake-up is believed to cost, in ns. None before the first adaptive wait has ended.
    pub(crate) fn seen(&self) -> Option<(Counters, u64)> {
        lock(&self.slot).seen
    }
}

/// The policy while a thread waits by it.
pub(crate) struct Lent<'a> {
    pace: &'a Pace,
    policy: Option<Box<Policy>>,
}

impl Lent<'_> {
    /// Time as the policy has it.
    pub(crate) fn now(&self) -> u64 {
        ns(self.pace.start.elapsed())
    }

    /// The same for another point in time.
    pub(crate) fn at(&self, when: Instant) -> u64 {
        ns(when.saturating_duration_since(self.pace.start))
    }

    pub(crate) fn policy(&mut self) -> &mut Policy {
        self.policy.as_mut().expect("it goes when this is dropped")
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        // If the wait has ended by a message, this changes nothing; else the time of the last look counts.
        self.policy().gave_up(0);
        let mut slot = lock(&self.pace.slot);
        slot.lent = false;
        slot.policy = self.policy.take();
        slot.seen = slot
            .policy
            .as_ref()
            .map(|policy| (policy.counters(), policy.wake_ns()));
    }
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
