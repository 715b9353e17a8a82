//! The ways to wait over verbs, as a step that follows each empty poll.

use adverb::{Limits, Wait};
use anyhow::{Result, bail};
use std::time::Duration;

use super::control::Waiting;
use super::session::Session;
use crate::way::Way;

/// How one run waits. The caller polls, and says [`Waiter::idle`] after an empty poll.
pub(crate) struct Waiter {
    waiting: Waiting,
    empty_polls: u32,
    /// By event.
    sleeps: u64,
}

impl Waiter {
    pub(crate) fn new(waiting: Waiting) -> Self {
        Self {
            waiting,
            empty_polls: 0,
            sleeps: 0,
        }
    }

    /// After an empty poll: looks away for a moment, or sleeps, as the way has it.
    pub(crate) fn idle(&mut self, session: &mut Session) -> Result<()> {
        match self.waiting.way {
            Way::Busy => self.relax(),
            Way::Event | Way::EventBatch => self.sleeps += u64::from(session.arm_and_sleep()?),
            Way::Adaptive(bounds) => session.wait(Wait::Adaptive(Limits {
                cpu_percent: bounds.cpu_percent,
                most_spin: bounds
                    .most_spin_us
                    .map(|us| Duration::from_micros(us.into())),
                latency_goal: None,
            }))?,
            other => bail!("{other} does not go over verbs"),
        }
        Ok(())
    }

    /// Sleeps so far, those of earlier runs by the policy included.
    pub(crate) fn sleeps(&self, session: &Session) -> u64 {
        match self.waiting.way {
            Way::Adaptive(_) => session.sleeps_by_policy(),
            _ => self.sleeps,
        }
    }

    fn relax(&mut self) {
        self.empty_polls = self.empty_polls.wrapping_add(1);
        if self.waiting.one_core || self.empty_polls.is_multiple_of(POLLS_PER_YIELD) {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
}

/// A yield takes about as long as two polls; rare enough not to show in a latency, often enough
/// that a spinner never costs others a whole time slice.
const POLLS_PER_YIELD: u32 = 256;
