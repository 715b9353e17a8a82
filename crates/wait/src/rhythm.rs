//! When the next message is due, where arrivals are regular enough to tell, and when to set the alarm for it.
//!
//! Only heads count: messages that end a wait longer than W. The rest of a burst follows its head, so bursts at a steady
//! pace are as regular as single messages. Period, spread, and the timer's own lateness are averages in the manner
//! of a retransmission timer: mean, and mean deviation.

/// Heads at one pace before it is believed.
const BELIEVE: u32 = 4;

#[derive(Clone, Debug)]
pub(crate) struct Rhythm {
    wake: u64,
    head: Option<u64>,
    gap: Average,
    timer: Average,
}

/// An alarm, and until when to look for the message after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Alarm {
    pub(crate) at: u64,
    pub(crate) look_until: u64,
    /// How long the looking is expected to last at most.
    pub(crate) window: u64,
}

impl Rhythm {
    pub(crate) fn new(wake: u64) -> Self {
        let mut timer = Average::default();
        // Until timers have been seen: as late as a wake-up, give or take half of it.
        timer.learn(wake, wake);
        timer.deviation = wake / 4;
        Self {
            wake,
            head: None,
            gap: Average::default(),
            timer,
        }
    }

    /// A wake-up turns out to cost something else. Gaps and timers are what they were.
    pub(crate) fn reprice(&mut self, wake: u64) {
        self.wake = wake;
    }

    /// A message that ended a long wait arrived.
    pub(crate) fn head(&mut self, at: u64) {
        if let Some(last) = self.head.replace(at) {
            self.gap.learn(at.saturating_sub(last), self.wake);
        }
    }

    /// A timer that was set for `wanted` rang.
    pub(crate) fn rang(&mut self, wanted: u64, at: u64) {
        self.timer.learn(at.saturating_sub(wanted), self.wake);
    }

    /// The alarm for the next head, if it can be told, lies ahead, and is worth a sleep.
    pub(crate) fn alarm(&self, now: u64) -> Option<Alarm> {
        if self.gap.seen < BELIEVE {
            return None;
        }
        let due = self.head?.saturating_add(self.gap.mean);
        let unsure = self
            .gap
            .deviation
            .saturating_mul(2)
            .saturating_add(self.wake / 16);
        // Up to three deviations late the timer still rings in time.
        let sure = self.timer.deviation.saturating_mul(3);
        let lead = self.timer.mean.saturating_add(sure).saturating_add(unsure);
        let at = due.saturating_sub(lead);
        // A shorter sleep than W saves nothing.
        if at <= now.saturating_add(self.wake) {
            return None;
        }
        Some(Alarm {
            at,
            look_until: due.saturating_add(unsure),
            window: sure.saturating_add(unsure.saturating_mul(2)),
        })
    }
}

#[derive(Clone, Debug, Default)]
struct Average {
    mean: u64,
    deviation: u64,
    seen: u32,
}

impl Average {
    /// One stall must not spoil what was learned: a value counts as at most a W and four deviations off. What repeats
    /// widens the deviation, and gets its way.
    fn learn(&mut self, value: u64, wake: u64) {
        self.seen = self.seen.saturating_add(1);
        if self.seen == 1 {
            (self.mean, self.deviation) = (value, value / 2);
            return;
        }
        let most = self.deviation.saturating_mul(4).saturating_add(wake);
        let off = self.mean.abs_diff(value).min(most);
        if value >= self.mean {
            self.mean = self.mean.saturating_add(off / 8);
        } else {
            self.mean -= off / 8;
        }
        // Half of the first value was a guess.
        if self.seen <= 3 {
            let seen = if self.seen == 2 {
                off
            } else {
                self.deviation.max(off)
            };
            self.deviation = seen;
            return;
        }
        let deviation = u128::from(self.deviation) * 7 + u128::from(off);
        self.deviation = u64::try_from(deviation / 8).unwrap_or(u64::MAX);
    }
}
