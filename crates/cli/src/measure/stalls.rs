//! The machine's own stalls: what happens to a thread that does nothing but read the clock.
//!
//! They are measured beside the cells, on the cores of both sides, and shown next to each 99th percentile, so that nobody
//! takes the machine for the way to wait.

use std::thread;
use std::time::{Duration, Instant};

use super::cores::{Cores, pin};
use super::ns;

/// From one reading of the clock to the next takes no longer on a machine that leaves a thread alone.
const LEAST_NS: u64 = 1_000;
/// Stalls that are kept, so that a broken clock cannot fill the memory.
const MOST: usize = 1_000_000;

/// Stalls met while somebody looked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stalls {
    /// How long was looked, all cores together.
    looked_ns: u64,
    lengths_ns: Vec<u64>,
}

impl Stalls {
    /// Looks for so long on both cores at once.
    pub(crate) fn watch(&mut self, cores: Cores, time: Duration) {
        let mut places = vec![cores.client, cores.server];
        places.dedup();
        thread::scope(|scope| {
            let looks: Vec<_> = places
                .into_iter()
                .map(|core| scope.spawn(move || look(core, time)))
                .collect();
            for one in looks {
                let (looked_ns, lengths_ns) = one.join().expect("a thread that reads the clock");
                self.looked_ns += looked_ns;
                let room = MOST.saturating_sub(self.lengths_ns.len());
                self.lengths_ns.extend(lengths_ns.into_iter().take(room));
            }
        });
        self.lengths_ns.sort_unstable_by(|a, b| b.cmp(a));
    }

    /// What was met at other times, too.
    pub(crate) fn join(&mut self, other: Self) {
        self.looked_ns += other.looked_ns;
        self.lengths_ns.extend(other.lengths_ns);
        self.lengths_ns.sort_unstable_by(|a, b| b.cmp(a));
    }

    /// One request in a hundred that takes `request_ns` meets a stall of at least so long, wherever it begins: 0 if fewer
    /// meet any. None if nobody looked for long enough to tell.
    pub(crate) fn p99_ns(&self, request_ns: f64) -> Option<f64> {
        if (self.looked_ns as f64) < 1_000.0 * request_ns.max(1_000.0) {
            return None;
        }
        let mut share = 0.0;
        for &length in &self.lengths_ns {
            share += (length as f64 + request_ns) / self.looked_ns as f64;
            if share >= 0.01 {
                return Some(length as f64);
            }
        }
        Some(0.0)
    }

    pub(crate) fn per_second(&self, at_least: Duration) -> f64 {
        let count = self
            .lengths_ns
            .iter()
            .filter(|&&length| length >= ns(at_least))
            .count();
        count as f64 * 1e9 / self.looked_ns.max(1) as f64
    }

    pub(crate) fn longest_ns(&self) -> f64 {
        self.lengths_ns.first().copied().unwrap_or(0) as f64
    }

    /// Share of the time, in percent.
    pub(crate) fn percent(&self) -> f64 {
        100.0 * self.lengths_ns.iter().sum::<u64>() as f64 / self.looked_ns.max(1) as f64
    }
}

fn look(core: usize, time: Duration) -> (u64, Vec<u64>) {
    pin(core);
    let mut lengths = Vec::with_capacity(10_000);
    let start = Instant::now();
    let mut last = start;
    loop {
        let now = Instant::now();
        let length = ns(now - last);
        if length >= LEAST_NS && lengths.len() < MOST {
            lengths.push(length);
        }
        if now - start >= time {
            return (ns(now - start), lengths);
        }
        last = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_counts_for_whoever_overlaps_with_it() {
        let stalls = Stalls {
            looked_ns: 1_000_000_000,
            lengths_ns: vec![5_000_000, 4_000_000, 3_000_000],
        };
        // 5 and 4 ms of a second are less than one in a hundred; 12 are more.
        assert_eq!(stalls.p99_ns(0.0), Some(3_000_000.0));
        assert_eq!(stalls.p99_ns(1e6), Some(4_000_000.0));
        assert_eq!(stalls.p99_ns(2e6), None);
        let quiet = Stalls {
            looked_ns: 1_000_000_000,
            lengths_ns: vec![1_000],
        };
        assert_eq!(quiet.p99_ns(2_000.0), Some(0.0));
        assert_eq!(Stalls::default().p99_ns(1.0), None);
    }

    #[test]
    fn looking_takes_as_long_as_it_should() {
        let mut stalls = Stalls::default();
        stalls.watch(Cores::choose(), Duration::from_millis(5));
        assert!(stalls.looked_ns >= 5_000_000);
        assert!(stalls.longest_ns() <= stalls.looked_ns as f64);
    }
}
