//! The share of a core that may be spun away, as a bucket that fills with time.

/// An allowance is kept for so long; what is not used by then is lost.
const KEPT_NS: u64 = 20_000_000;

#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    percent: u64,
    /// Hundredths of a nanosecond, so that nothing is lost to rounding.
    level: u64,
    filled_at: Option<u64>,
}

impl Bucket {
    pub(crate) fn new(percent: u32) -> Self {
        let percent = u64::from(percent.min(100));
        Self {
            percent,
            level: percent * KEPT_NS,
            filled_at: None,
        }
    }

    /// What may be spun from now on, in ns.
    pub(crate) fn left(&mut self, now: u64) -> u64 {
        if self.percent == 100 {
            return u64::MAX;
        }
        let passed = now.saturating_sub(self.filled_at.unwrap_or(now));
        self.filled_at = Some(now);
        let gained = passed.min(KEPT_NS) * self.percent;
        self.level = (self.level + gained).min(self.percent * KEPT_NS);
        self.level / 100
    }

    pub(crate) fn spend(&mut self, spun: u64) {
        self.level = self.level.saturating_sub(spun.saturating_mul(100));
    }
}
