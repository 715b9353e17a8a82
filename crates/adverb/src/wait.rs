//! How to wait for a completion: busily, quietly, adaptively.
//!
//! Sleeping follows one rule, which the types below enforce: arm the queue, *poll it once more*,
//! and only then sleep. A completion that arrived between the last poll and the arming raises no
//! event on many devices, so whoever skips the second poll may sleep for ever.

use std::hint;
use std::os::fd::{AsFd, BorrowedFd};
use std::thread;
use std::time::{Duration, Instant};

use adverb_wait::{Counters as WaitCounters, Step};

use crate::cq::CompletionQueue;
use crate::error::Result;
use crate::sync::{deadline, left};
use crate::wc::Completion;

/// Empty polls before a spinning thread starts to offer its processor to others.
const POLITE_AFTER: u32 = 256;
/// Empty polls between two offers. On a machine with fewer processors than spinners the one
/// that has the answer would otherwise wait for the end of a time slice.
const POLITE_EVERY: u32 = 4;
/// Empty polls between two looks at the clock, which costs as much as a poll.
const CLOCK_EVERY: u32 = 16;

/// Polls for each question to the policy.
const POLLS_PER_STEP: u32 = 4;

/// How to wait.
///
/// | | reacts within | costs |
/// |---|---|---|
/// | `Busy` | well under a microsecond | one processor, always |
/// | `Event` | one wake-up, 5 to 50 µs | nothing while nothing happens |
/// | `Adaptive` | as `Busy` when the answer comes soon or at a steady pace, else as `Event` | at most twice what the best choice that knows the future does, and a constant |
///
/// `Adaptive` learns, queue by queue, how messages come and what a wake-up costs. docs/waiting.md
/// in the repository has the rule, and what it costs under twenty kinds of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wait {
    /// Poll until something is there. After the first few hundred polls the thread yields now
    /// and then, so that it does not starve others.
    Busy,
    /// Sleep until the device raises an event.
    Event,
    /// Poll for as long as pays, then sleep: until the event, or until shortly before the next
    /// message is due. Of several threads on one queue one polls at a time, and the others sleep.
    /// The first such wait of a process takes 10 ms more, in which a wake-up is measured.
    Adaptive(Limits),
}

/// `Adaptive` without limits.
impl Default for Wait {
    fn default() -> Self {
        Self::Adaptive(Limits::default())
    }
}

/// What `Wait::Adaptive` may do. The default allows everything and asks for nothing.
///
/// ```
/// use adverb::{Limits, Wait};
/// use std::time::Duration;
/// let frugal = Wait::Adaptive(Limits { cpu_percent: 20, ..Limits::default() });
/// let brief = Wait::Adaptive(Limits { most_spin: Some(Duration::from_micros(10)), ..Limits::default() });
/// # assert_ne!(frugal, brief);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Share of one processor that may be polled away, 0 to 100 percent; more counts as 100. Kept
    /// over every stretch of time, up to one allowance for 20 ms. A change begins with a full allowance.
    pub cpu_percent: u32,
    /// The longest that one wait may poll. `None`: as long as pays.
    pub most_spin: Option<Duration>,
    /// What sleeping may add to a message on average, of late. While it adds more, the thread
    /// polls instead, as far as the other two allow it. `None`: whatever pays.
    pub latency_goal: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            cpu_percent: 100,
            most_spin: None,
            latency_goal: None,
        }
    }
}

impl From<Limits> for adverb_wait::Limits {
    fn from(limits: Limits) -> Self {
        let ns = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self {
            cpu_percent: limits.cpu_percent,
            most_spin_ns: limits.most_spin.map(ns),
            goal_ns: limits.latency_goal.map(ns),
        }
    }
}

/// Which completions raise an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Notify {
    /// The next one of any kind.
    #[default]
    Any,
    /// The next receive of a message sent with [`PostFlags::SOLICITED`](crate::PostFlags::SOLICITED), or error.
    Solicited,
}

/// A queue that was armed and must be polled before anybody sleeps.
#[derive(Debug)]
#[must_use = "poll once more before sleeping: `repoll`"]
pub struct Armed<'a> {
    cq: &'a CompletionQueue,
}

/// What the poll after arming found.
#[derive(Debug)]
pub enum Repolled<'a> {
    /// So many completions: no reason to sleep. (The queue stays armed.)
    Found(usize),
    /// None: sleeping is safe now.
    Empty(Sleep<'a>),
}

/// The proof that a queue was armed and found empty afterwards.
#[derive(Debug)]
#[must_use = "nothing waits before `wait`, or before the descriptor is watched"]
pub struct Sleep<'a> {
    cq: &'a CompletionQueue,
}

impl<'a> Armed<'a> {
    /// Polls once more; completions are appended to `out`.
    ///
    /// # Errors
    /// As [`CompletionQueue::poll`].
    pub fn repoll(self, out: &mut Vec<Completion>) -> Result<Repolled<'a>> {
        Ok(match self.cq.poll(out)? {
            0 => Repolled::Empty(Sleep { cq: self.cq }),
            n => Repolled::Found(n),
        })
    }
}

impl Sleep<'_> {
    /// Sleeps until the event comes. `false` when the time is up first, or a signal came; the
    /// queue stays armed then.
    ///
    /// # Errors
    /// [`Error::NoChannel`](crate::Error::NoChannel) when the queue has no channel of its own.
    pub fn wait(self, timeout: Option<Duration>) -> Result<bool> {
        let deadline = deadline(timeout);
        let Some(turn) = self.cq.inner.own_channel()?.turn(deadline) else {
            return Ok(false);
        };
        Ok(turn.next(left(deadline))?.is_some())
    }

    /// The descriptor to watch instead.
    ///
    /// # Errors
    /// [`Error::NoChannel`](crate::Error::NoChannel) when the queue has no channel of its own.
    pub fn fd(&self) -> Result<BorrowedFd<'_>> {
        Ok(self.cq.inner.own_channel()?.as_fd())
    }
}

impl CompletionQueue {
    /// Arms the queue: the next completion raises an event, once (ibv_req_notify_cq(3)).
    ///
    /// ```
    /// # fn main() -> Result<(), adverb::Error> {
    /// # if cfg!(not(feature = "soft")) { return Ok(()) }
    /// use adverb::{Notify, Repolled};
    /// use std::time::Duration;
    /// let cq = adverb::open_default()?.create_cq(16).build()?;
    /// let mut done = Vec::new();
    /// match cq.arm(Notify::Any)?.repoll(&mut done)? {
    ///     Repolled::Found(n) => println!("{n} without sleeping"),
    ///     Repolled::Empty(sleep) => assert!(!sleep.wait(Some(Duration::from_millis(1)))?),
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Verb`](crate::Error::Verb).
    #[doc(alias = "ibv_req_notify_cq")]
    pub fn arm(&self, which: Notify) -> Result<Armed<'_>> {
        self.inner.check_undriven()?;
        self.inner.arm(which == Notify::Solicited)?;
        Ok(Armed { cq: self })
    }

    /// Takes the events that wait on the queue's own channel, without waiting itself, and says
    /// how many there were. For event loops that watch [`event_fd`](Self::event_fd).
    ///
    /// # Errors
    /// [`Error::NoChannel`](crate::Error::NoChannel), [`Error::Verb`](crate::Error::Verb).
    #[doc(alias = "ibv_get_cq_event")]
    pub fn take_events(&self) -> Result<usize> {
        self.inner.check_undriven()?;
        // Whoever is in the middle of waiting takes them.
        let Some(turn) = self.inner.own_channel()?.turn(Some(Instant::now())) else {
            return Ok(0);
        };
        let mut count = 0;
        while turn.next(Some(Duration::ZERO))?.is_some() {
            count += 1;
        }
        Ok(count)
    }

    /// Waits until there are completions, appends them to `out` and says how many: 0 when the
    /// time is up first. No timeout waits for ever.
    ///
    /// Several threads may wait; each completion goes to one of them.
    ///
    /// # Errors
    /// [`Error::NoChannel`](crate::Error::NoChannel) when sleeping is asked for and the queue has
    /// no channel of its own (with a shared one, wait on that); as [`poll`](Self::poll).
    pub fn wait(
        &self,
        out: &mut Vec<Completion>,
        how: Wait,
        timeout: Option<Duration>,
    ) -> Result<usize> {
        if how != Wait::Busy {
            // Always, and not only when the time to sleep has come.
            self.inner.own_channel()?;
        }
        let found = self.poll(out)?;
        if found > 0 {
            return Ok(found);
        }
        let deadline = deadline(timeout);
        match how {
            Wait::Busy => self.spin(out, deadline),
            Wait::Event => self.sleep(out, deadline),
            Wait::Adaptive(limits) => self.adapt(out, limits, deadline),
        }
    }

    /// What adaptive waiting on this queue has done so far. `None` before the first such wait has
    /// ended; a wait that still goes on is not in it.
    pub fn wait_counters(&self) -> Option<WaitCounters> {
        self.inner.pace.seen().map(|(counters, _)| counters)
    }

    /// What a wake-up is believed to cost here: measured before the first adaptive wait, and
    /// learned from the sleeps on this queue since. `None` before the first has ended.
    pub fn wake_up_cost(&self) -> Option<Duration> {
        let (_, ns) = self.inner.pace.seen()?;
        Some(Duration::from_nanos(ns))
    }

    fn adapt(
        &self,
        out: &mut Vec<Completion>,
        limits: Limits,
        deadline: Option<Instant>,
    ) -> Result<usize> {
        let channel = self.inner.own_channel()?;
        let Some(mut pace) = self.inner.pace.lend(limits.into()) else {
            return self.sleep(out, deadline);
        };
        let end = deadline.map(|deadline| pace.at(deadline));
        loop {
            let now = pace.now();
            if end.is_some_and(|end| now >= end) {
                return Ok(0);
            }
            match pace.policy().empty(now) {
                Step::Spin => {
                    // The policy and the clock cost about as much as a poll.
                    for _ in 1..POLLS_PER_STEP {
                        let found = self.poll(out)?;
                        if found > 0 {
                            let now = pace.now();
                            pace.policy().found(now);
                            return Ok(found);
                        }
                        hint::spin_loop();
                    }
                }
                Step::Yield => thread::yield_now(),
                Step::Sleep { until } => {
                    let Some(turn) = channel.turn(deadline) else {
                        return Ok(0);
                    };
                    let found = self.arm_and_poll(out)?;
                    if found > 0 {
                        let now = pace.now();
                        pace.policy().found(now);
                        return Ok(found);
                    }
                    let until = until.into_iter().chain(end).min();
                    let left = until.map(|at| Duration::from_nanos(at.saturating_sub(pace.now())));
                    let event = turn.next(left)?.is_some();
                    let now = pace.now();
                    pace.policy().woke(now, event);
                }
            }
            let found = self.poll(out)?;
            if found > 0 {
                let now = pace.now();
                pace.policy().found(now);
                return Ok(found);
            }
        }
    }

    fn spin(&self, out: &mut Vec<Completion>, until: Option<Instant>) -> Result<usize> {
        let mut empty = 0u32;
        loop {
            let found = self.poll(out)?;
            if found > 0 {
                return Ok(found);
            }
            empty = empty.saturating_add(1);
            if empty.is_multiple_of(CLOCK_EVERY) && until.is_some_and(|u| Instant::now() >= u) {
                return Ok(0);
            }
            if empty > POLITE_AFTER && empty.is_multiple_of(POLITE_EVERY) {
                thread::yield_now();
            } else {
                hint::spin_loop();
            }
        }
    }

    fn sleep(&self, out: &mut Vec<Completion>, deadline: Option<Instant>) -> Result<usize> {
        let Some(turn) = self.inner.own_channel()?.turn(deadline) else {
            return Ok(0);
        };
        loop {
            let found = self.arm_and_poll(out)?;
            let left = left(deadline);
            if found > 0 || left.is_some_and(|l| l.is_zero()) {
                return Ok(found);
            }
            if turn.next(left)?.is_some() {
                let found = self.poll(out)?;
                if found > 0 {
                    return Ok(found);
                }
            }
        }
    }

    fn arm_and_poll(&self, out: &mut Vec<Completion>) -> Result<usize> {
        Ok(match self.arm(Notify::Any)?.repoll(out)? {
            Repolled::Found(n) => n,
            Repolled::Empty(_) => 0,
        })
    }
}
