//! Results as text, JSON and HTML, and the advice that follows from them.

pub(crate) mod advice;
pub(crate) mod devices;
pub(crate) mod html;
pub(crate) mod json;
pub(crate) mod plot;
pub(crate) mod targets;
pub(crate) mod text;

use serde::Serialize;

use crate::args::{Link, Model, Test};
use crate::measure::machine::Machine;
use crate::way::Way;

/// Of the keys of a comparison. It grows when one changes its meaning or goes.
pub(crate) const FORMAT: u32 = 2;

/// Result of `compare`; the keys are documented.
#[derive(Debug, Serialize)]
pub(crate) struct Comparison {
    pub(crate) format: u32,
    pub(crate) command: String,
    pub(crate) machine: Machine,
    /// What the reader has to know about figures of this machine.
    pub(crate) caveats: Vec<String>,
    pub(crate) stalls: StallFigures,
    pub(crate) rounds: usize,
    /// What other programs used meanwhile, in percent of one core; null where it is not known.
    pub(crate) others_cpu_percent: Option<f64>,
    pub(crate) device: String,
    /// Names and what they mean.
    pub(crate) shapes: Vec<(String, String)>,
    pub(crate) ways: Vec<(String, String)>,
    pub(crate) cells: Vec<Cell>,
    pub(crate) advice: Vec<Advice>,
}

/// The machine's own stalls, as a thread that only reads the clock meets them, in all cells together.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct StallFigures {
    /// Share of the time.
    pub(crate) percent: f64,
    /// How many a second last at least so long.
    pub(crate) per_second_10us: f64,
    pub(crate) per_second_1ms: f64,
    pub(crate) longest_ns: f64,
}

/// One way to wait under one shape. A percentile with fewer than ten samples beyond it is null.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Cell {
    pub(crate) shape: String,
    #[serde(skip)]
    pub(crate) way: Way,
    pub(crate) model: String,
    pub(crate) p50_ns: Option<f64>,
    /// Half of what lies between the rounds.
    pub(crate) p50_spread_ns: f64,
    pub(crate) p99_ns: Option<f64>,
    /// What the machine alone adds to one request in a hundred that takes this p50; null if unknown.
    pub(crate) stall_p99_ns: Option<f64>,
    pub(crate) p999_ns: Option<f64>,
    pub(crate) mean_ns: f64,
    pub(crate) mean_spread_ns: f64,
    /// The longest of all rounds.
    pub(crate) max_ns: f64,
    /// Mean against that of `busy` in the same rounds; null without it.
    pub(crate) added_mean_ns: Option<f64>,
    /// The waiting process, the server, in percent of one core.
    pub(crate) cpu_percent: f64,
    pub(crate) cpu_spread_percent: f64,
    /// Both processes; without the client's looking at the clock until a request is due.
    pub(crate) pair_cpu_percent: f64,
    pub(crate) ops_per_s: f64,
    /// CPU time of the waiting process for each request.
    pub(crate) cpu_us_per_op: f64,
    /// How often the waiting process went to sleep for each request.
    pub(crate) sleeps_per_op: f64,
    /// Requests of all rounds.
    pub(crate) samples: u64,
    /// Quantiles and latencies in ns.
    pub(crate) quantiles: Vec<(f64, f64)>,
}

/// Quantiles of a distribution; those with fewer than ten samples beyond are left out.
pub(crate) const QUANTILES: [f64; 13] = [
    0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 0.9999,
];

#[derive(Debug, Serialize)]
pub(crate) struct Advice {
    pub(crate) shape: String,
    /// What to take.
    pub(crate) model: String,
    /// At which price, and whether the folklore figure holds.
    pub(crate) why: String,
}

/// The command that repeats a run, quoted for a shell.
pub(crate) fn command_line(words: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./,:=%+".contains(c);
    let quoted = words
        .iter()
        .map(|word| match word.chars().all(plain) && !word.is_empty() {
            true => word.clone(),
            false => format!("'{}'", word.replace('\'', r"'\''")),
        });
    std::iter::once("adverb".to_owned())
        .chain(quoted)
        .collect::<Vec<_>>()
        .join(" ")
}

/// Result of `bench`.
#[derive(Debug, Serialize)]
pub(crate) struct Figures {
    pub(crate) machine: Machine,
    pub(crate) device: String,
    pub(crate) results: Vec<Figure>,
}

/// Latencies are one way, half of the round trip. What does not apply is null.
#[derive(Debug, Serialize)]
pub(crate) struct Figure {
    #[serde(serialize_with = "by_name")]
    pub(crate) test: Test,
    #[serde(serialize_with = "by_name")]
    pub(crate) link: Link,
    #[serde(serialize_with = "by_name")]
    pub(crate) wait: Model,
    pub(crate) size: usize,
    pub(crate) p50_ns: Option<f64>,
    pub(crate) p99_ns: Option<f64>,
    pub(crate) min_ns: Option<f64>,
    pub(crate) gb_per_s: Option<f64>,
    pub(crate) msgs_per_s: Option<f64>,
    pub(crate) limit: Limit,
    /// Figure over limit.
    pub(crate) ratio: f64,
    pub(crate) client_cpu_percent: f64,
    pub(crate) server_cpu_percent: f64,
}

/// The best that this machine can do, measured in the same run; in the unit of the figure that
/// it limits (ns or GB/s).
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Limit {
    pub(crate) name: &'static str,
    pub(crate) value: f64,
}

fn by_name<T: std::fmt::Display, S: serde::Serializer>(
    value: &T,
    to: S,
) -> Result<S::Ok, S::Error> {
    to.collect_str(value)
}
