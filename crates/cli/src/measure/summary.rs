//! Latencies of one round, and the figures that are taken from them.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Collects latencies without allocating: three digits, up to ten seconds.
pub(crate) struct Latencies(Histogram<u64>);

impl Latencies {
    pub(crate) fn new() -> Self {
        Self(
            Histogram::new_with_bounds(1, LONGEST_NS, 3)
                .expect("the bounds are constant and valid"),
        )
    }

    /// Longer ones count as the longest.
    pub(crate) fn record(&mut self, ns: u64) {
        self.0.saturating_record(ns);
    }

    /// What another process has recorded.
    pub(crate) fn add(&mut self, counts: &[(u64, u64)]) {
        for &(ns, count) in counts {
            self.0.saturating_record_n(ns, count);
        }
    }

    /// Each latency, and how often it was met.
    pub(crate) fn counts(&self) -> Vec<(u64, u64)> {
        self.0
            .iter_recorded()
            .map(|at| (at.value_iterated_to(), at.count_at_value()))
            .collect()
    }

    pub(crate) fn len(&self) -> u64 {
        self.0.len()
    }

    /// A quantile, 0.5 being the median; None unless ten samples lie beyond it.
    pub(crate) fn quantile(&self, quantile: f64) -> Option<f64> {
        let beyond = self.0.len() as f64 * quantile.min(1.0 - quantile);
        // As many as that are not lost to rounding.
        (beyond >= 9.999).then(|| self.0.value_at_quantile(quantile) as f64)
    }

    pub(crate) fn summary(&self) -> Summary {
        let at = |quantile| self.0.value_at_quantile(quantile) as f64;
        Summary {
            samples: self.0.len(),
            min_ns: self.0.min() as f64,
            p50_ns: at(0.5),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            mean_ns: self.0.mean(),
            max_ns: self.0.max() as f64,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Summary {
    pub(crate) samples: u64,
    pub(crate) min_ns: f64,
    pub(crate) p50_ns: f64,
    pub(crate) p99_ns: f64,
    pub(crate) p999_ns: f64,
    pub(crate) mean_ns: f64,
    pub(crate) max_ns: f64,
}

impl Summary {
    /// One way, where round trips were recorded.
    pub(crate) fn halved(self) -> Self {
        Self {
            samples: self.samples,
            min_ns: self.min_ns / 2.0,
            p50_ns: self.p50_ns / 2.0,
            p99_ns: self.p99_ns / 2.0,
            p999_ns: self.p999_ns / 2.0,
            mean_ns: self.mean_ns / 2.0,
            max_ns: self.max_ns / 2.0,
        }
    }
}

/// The middle value; with an even number of them, the lower one of the middle two.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values
        .get(values.len().saturating_sub(1) / 2)
        .copied()
        .unwrap_or(0.0)
}

const LONGEST_NS: u64 = 10_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_has_the_quantiles_of_what_was_recorded() {
        let mut latencies = Latencies::new();
        for us in 1..=1000 {
            latencies.record(us * 1000);
        }
        let summary = latencies.summary().halved();
        assert_eq!(summary.samples, 1000);
        assert!((summary.p50_ns - 250_000.0).abs() < 1_000.0, "{summary:?}");
        assert!((summary.p99_ns - 495_000.0).abs() < 1_000.0, "{summary:?}");
        assert!(summary.min_ns <= 500.0, "{summary:?}");
    }

    #[test]
    fn a_quantile_needs_ten_samples_beyond_it() {
        let mut latencies = Latencies::new();
        for _ in 0..999 {
            latencies.record(1_000);
        }
        assert_eq!(latencies.quantile(0.99), None);
        let mut both = Latencies::new();
        both.add(&latencies.counts());
        both.record(1_000);
        assert_eq!(both.len(), 1_000);
        assert_eq!(both.quantile(0.99), Some(1_000.0));
        assert_eq!(both.quantile(0.999), None);
    }

    #[test]
    fn a_stall_longer_than_the_scale_is_kept() {
        let mut latencies = Latencies::new();
        latencies.record(u64::MAX);
        assert_eq!(latencies.summary().samples, 1);
        assert!(latencies.summary().p50_ns >= LONGEST_NS as f64);
    }

    #[test]
    fn one_bad_round_does_not_move_the_median() {
        assert_eq!(median(vec![2.0, 900.0, 1.0]), 2.0);
        assert_eq!(median(vec![]), 0.0);
    }
}
