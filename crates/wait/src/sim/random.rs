//! Random numbers that are the same everywhere: splitmix64.

pub(super) struct Random(u64);

impl Random {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 up to 1, both left out.
    pub(super) fn unit(&mut self) -> f64 {
        ((self.bits() >> 12) as f64 + 0.5) / (1_u64 << 52) as f64
    }

    /// From `low` up to `high`.
    pub(super) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + ((high - low) as f64 * self.unit()) as u64
    }

    pub(super) fn exponential(&mut self, mean: u64) -> u64 {
        (-self.unit().ln() * mean as f64) as u64
    }

    /// Without a variance: one in a hundred is more than sixty times the least.
    pub(super) fn pareto(&mut self, least: u64) -> u64 {
        (least as f64 * self.unit().powf(-1.0 / 1.1)).min(1e9) as u64
    }
}
