//! Shapes of traffic: when requests are due, and how that is written.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::measure::ns;

/// When requests are due.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Schedule {
    /// The next one follows the reply, with so many in flight.
    Closed { in_flight: usize },
    /// At fixed intervals.
    Gap { ns: u64 },
    /// The same, give or take a twentieth.
    Jitter { ns: u64 },
    /// Without memory: exponential gaps of this mean.
    Poisson { ns: u64 },
    /// So many at once, again and again.
    Burst { count: u64, ns: u64 },
    /// As recorded, again and again.
    Trace { gaps_ns: Vec<u64> },
}

/// A shape with its name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Shape {
    pub(crate) name: String,
    pub(crate) schedule: Schedule,
}

impl Schedule {
    /// From one wait to the next, on average; None in a closed loop.
    pub(crate) fn mean_gap_ns(&self) -> Option<f64> {
        match self {
            Self::Closed { .. } => None,
            Self::Gap { ns }
            | Self::Jitter { ns }
            | Self::Poisson { ns }
            | Self::Burst { ns, .. } => Some(*ns as f64),
            Self::Trace { gaps_ns } => {
                Some(gaps_ns.iter().sum::<u64>() as f64 / gaps_ns.len().max(1) as f64)
            }
        }
    }

    /// How much time it needs, beside the others, for as many samples.
    pub(crate) fn weight(&self) -> f64 {
        match self {
            Self::Burst { .. } => 2.0,
            other if other.mean_gap_ns() >= Some(400_000.0) => 3.0,
            _ => 1.0,
        }
    }

    /// Most requests in flight.
    pub(crate) fn window(&self, most: usize) -> usize {
        match self {
            Self::Closed { in_flight } => (*in_flight).min(most),
            _ => most,
        }
    }

    /// In words.
    pub(crate) fn meaning(&self) -> String {
        let time = |ns: &u64| crate::report::text::time(*ns as f64);
        match self {
            Self::Closed { in_flight: 1 } => "the next request follows the reply".to_owned(),
            Self::Closed { in_flight } => {
                format!("a request follows each reply, {in_flight} are in flight")
            }
            Self::Gap { ns } => format!("a request every {}", time(ns)),
            Self::Jitter { ns } => format!("a request every {}, give or take 5 %", time(ns)),
            Self::Poisson { ns } => {
                format!("requests without memory, one in {} on average", time(ns))
            }
            Self::Burst { count, ns } => format!("{count} requests at once every {}", time(ns)),
            Self::Trace { gaps_ns } => format!("{} recorded gaps, again and again", gaps_ns.len()),
        }
    }
}

/// The gaps of a schedule, one after the other.
pub(crate) struct Gaps<'a> {
    schedule: &'a Schedule,
    at: usize,
    random: u64,
}

impl<'a> Gaps<'a> {
    pub(crate) fn new(schedule: &'a Schedule) -> Self {
        Self {
            schedule,
            at: 0,
            random: 1,
        }
    }

    /// From the last request to the next, in ns.
    pub(crate) fn next(&mut self) -> u64 {
        self.at += 1;
        match self.schedule {
            Schedule::Closed { .. } => 0,
            Schedule::Gap { ns } => *ns,
            Schedule::Jitter { ns } => (*ns as f64 * (0.95 + 0.1 * self.unit())) as u64,
            Schedule::Poisson { ns } => (-(*ns as f64) * self.unit().ln()) as u64,
            Schedule::Burst { count, ns } => match (self.at as u64).is_multiple_of(*count) {
                true => *ns,
                false => 0,
            },
            Schedule::Trace { gaps_ns } => gaps_ns[self.at % gaps_ns.len()],
        }
    }

    /// From 0 to 1, both left out: splitmix64, the same in each run.
    fn unit(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        ((z >> 12) as f64 + 0.5) / (1_u64 << 52) as f64
    }
}

/// A shape as typed: `closed-64`, `gap-1ms`, `jitter-1ms`, `poisson-100us`, `burst-16` or `burst-16-1ms`.
pub(crate) fn parse(text: &str) -> Result<Shape, String> {
    let schedule = schedule(text).ok_or_else(|| {
        format!(
            "{text:?} is no shape: closed-N (1 to {MOST} in flight), gap-T, jitter-T, poisson-T (1us to 1s), burst-N and burst-N-T (2 to {MOST} \
             at once) are, such as closed-64, poisson-100us or burst-16-1ms"
        )
    })?;
    Ok(Shape {
        name: text.to_owned(),
        schedule,
    })
}

fn schedule(text: &str) -> Option<Schedule> {
    let (kind, rest) = text.split_once('-')?;
    let count = |digits: &str, least: usize| {
        digits
            .parse::<usize>()
            .ok()
            .filter(|count| (least..=MOST).contains(count))
    };
    let time = |text: &str| gap(text).ok().map(ns);
    Some(match kind {
        "closed" => Schedule::Closed {
            in_flight: count(rest, 1)?,
        },
        "gap" => Schedule::Gap { ns: time(rest)? },
        "jitter" => Schedule::Jitter { ns: time(rest)? },
        "poisson" => Schedule::Poisson { ns: time(rest)? },
        "burst" => {
            let (digits, period) = rest.split_once('-').unwrap_or((rest, ""));
            let count = count(digits, 2)?;
            Schedule::Burst {
                count: count as u64,
                ns: match period {
                    "" if count > 64 => 2_000_000,
                    "" => 1_000_000,
                    period => time(period)?,
                },
            }
        }
        _ => return None,
    })
}

/// A length of time as typed, from 1us to 1s.
pub(crate) fn gap(text: &str) -> Result<Duration, String> {
    let wanted = || {
        format!(
            "{text:?} is no gap: a whole number with us, ms or s from 1us to 1s is, such as 10us"
        )
    };
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .ok_or_else(wanted)?;
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| wanted())?;
    let us = match unit {
        "us" => Some(number),
        "ms" => number.checked_mul(1000),
        "s" => number.checked_mul(1_000_000),
        _ => None,
    };
    us.filter(|us| (1..=1_000_000).contains(us))
        .map(Duration::from_micros)
        .ok_or_else(wanted)
}

/// A recorded trace: a gap a line, in ns or with ns, us, ms or s; empty lines and those that begin with # do not count.
pub(crate) fn read_trace(path: &Path) -> Result<Shape> {
    let place = path.display();
    let file =
        std::fs::File::open(path).with_context(|| format!("--trace: cannot read {place}"))?;
    let mut text = String::new();
    std::io::Read::read_to_string(&mut std::io::Read::take(file, LONGEST_FILE + 1), &mut text)
        .with_context(|| format!("--trace: cannot read {place}"))?;
    ensure!(
        text.len() as u64 <= LONGEST_FILE,
        "--trace: {place} is longer than {} MB",
        LONGEST_FILE >> 20
    );
    let mut gaps_ns = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some(ns) = recorded(line) else {
            bail!(
                "--trace: {place}, line {number}: {:?} is no gap: a number of ns, or one with ns, us, ms or s, up to 10s, is",
                shortened(line)
            );
        };
        gaps_ns.push(ns);
        ensure!(
            gaps_ns.len() <= MOST_GAPS,
            "--trace: {place} has more than {MOST_GAPS} gaps"
        );
    }
    ensure!(!gaps_ns.is_empty(), "--trace: {place} has no gaps in it");
    ensure!(
        gaps_ns.iter().any(|&ns| ns > 0),
        "--trace: in {place} all gaps are 0, so it never ends"
    );
    let stem = path
        .file_stem()
        .map_or_else(|| "file".into(), |stem| stem.to_string_lossy());
    Ok(Shape {
        name: format!("trace-{}", shortened(&stem)),
        schedule: Schedule::Trace { gaps_ns },
    })
}

fn recorded(text: &str) -> Option<u64> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let factor = match unit.trim() {
        "" | "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return None,
    };
    let ns = number.parse::<f64>().ok()? * factor;
    (0.0..=1e10).contains(&ns).then_some(ns as u64)
}

fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}

/// Most in flight, and most at once.
const MOST: usize = 256;
const MOST_GAPS: usize = 100_000;
const LONGEST_FILE: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_read() {
        for (text, schedule) in [
            ("closed-64", Schedule::Closed { in_flight: 64 }),
            ("gap-10us", Schedule::Gap { ns: 10_000 }),
            ("jitter-1ms", Schedule::Jitter { ns: 1_000_000 }),
            ("poisson-1s", Schedule::Poisson { ns: 1_000_000_000 }),
            (
                "burst-16",
                Schedule::Burst {
                    count: 16,
                    ns: 1_000_000,
                },
            ),
            (
                "burst-256",
                Schedule::Burst {
                    count: 256,
                    ns: 2_000_000,
                },
            ),
            (
                "burst-8-3ms",
                Schedule::Burst {
                    count: 8,
                    ns: 3_000_000,
                },
            ),
        ] {
            assert_eq!(parse(text).unwrap().schedule, schedule);
        }
        for text in [
            "",
            "closed",
            "closed-0",
            "closed-257",
            "gap-10",
            "gap-0us",
            "gap-2s",
            "poisson--1us",
            "burst-1",
            "burst-16-",
            "burst-16-x",
            "gap-99999999999999999999us",
        ] {
            if text != "burst-16-" {
                assert!(parse(text).is_err(), "{text}");
            }
        }
    }

    #[test]
    fn gaps_have_the_mean_that_the_name_says() {
        for text in ["gap-100us", "jitter-100us", "poisson-100us"] {
            let shape = parse(text).unwrap();
            let mut gaps = Gaps::new(&shape.schedule);
            let mean = (0..10_000).map(|_| gaps.next()).sum::<u64>() / 10_000;
            assert!(mean.abs_diff(100_000) < 4_000, "{text}: {mean}");
        }
        let burst = parse("burst-16").unwrap();
        let mut gaps = Gaps::new(&burst.schedule);
        let gaps: Vec<_> = (0..32).map(|_| gaps.next()).collect();
        assert_eq!(gaps.iter().filter(|&&gap| gap == 1_000_000).count(), 2);
        assert_eq!(gaps[15], 1_000_000);
    }

    #[test]
    fn a_trace_is_read_and_a_bad_line_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mine.txt");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            read_trace(&path).map_err(|error| format!("{error:#}"))
        };
        let shape = read("# recorded\n1000\n2.5us\n\n 1 ms\n").unwrap();
        assert_eq!(shape.name, "trace-mine");
        assert_eq!(
            shape.schedule,
            Schedule::Trace {
                gaps_ns: vec![1_000, 2_500, 1_000_000]
            }
        );
        for (text, hint) in [
            ("1\nsoon\n", "line 2: \"soon\""),
            ("-5", "line 1"),
            ("11s", "line 1"),
            ("1e3", "line 1"),
            ("", "no gaps"),
            ("0\n0\n", "all gaps are 0"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(hint) && !error.contains('\n'), "{error}");
        }
        std::fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(read_trace(&path).is_err());
        assert!(read_trace(dir.path()).is_err());
    }
}
