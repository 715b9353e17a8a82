//! The three ways to wait, as a step that follows each empty poll.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::control::Waiting;
use super::session::Session;
use crate::args::Model;

/// Remembers between polls how far the wait has come.
///
/// The caller polls; after a poll that found something it says [`Waiter::found`], after an empty
/// one [`Waiter::idle`], and polls again.
pub(crate) struct Waiter {
    model: Model,
    spin: Duration,
    one_core: bool,
    empty_polls: u32,
    /// First empty poll since something was found.
    idle_since: Option<Instant>,
    sleeps: u64,
}

impl Waiter {
    pub(crate) fn new(waiting: Waiting) -> Self {
        Self {
            model: waiting.model,
            spin: Duration::from_nanos(waiting.spin_ns),
            one_core: waiting.one_core,
            empty_polls: 0,
            idle_since: None,
            sleeps: 0,
        }
    }

    pub(crate) fn found(&mut self) {
        self.empty_polls = 0;
        self.idle_since = None;
    }

    /// After an empty poll: looks away for a moment, or sleeps, as the model says.
    pub(crate) fn idle(&mut self, session: &mut Session) -> Result<()> {
        match self.model {
            Model::Busy => self.relax(),
            Model::Event => self.sleep(session)?,
            Model::Adaptive => {
                let since = *self.idle_since.get_or_insert_with(Instant::now);
                if since.elapsed() < self.spin {
                    self.relax();
                } else {
                    self.sleep(session)?;
                }
            }
        }
        Ok(())
    }

    /// Sleeps so far.
    pub(crate) fn sleeps(&self) -> u64 {
        self.sleeps
    }

    fn sleep(&mut self, session: &mut Session) -> Result<()> {
        self.sleeps += u64::from(session.arm_and_sleep()?);
        Ok(())
    }

    fn relax(&mut self) {
        self.empty_polls = self.empty_polls.wrapping_add(1);
        if self.one_core || self.empty_polls.is_multiple_of(POLLS_PER_YIELD) {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
}

/// A yield takes about as long as two polls; rare enough not to show in a latency, often enough
/// that a spinner never costs others a whole time slice.
const POLLS_PER_YIELD: u32 = 256;
