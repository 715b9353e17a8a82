//! Results as text and JSON, and the advice that follows from them.

pub(crate) mod advice;
pub(crate) mod devices;
pub(crate) mod json;
pub(crate) mod targets;
pub(crate) mod text;

use serde::Serialize;

use crate::args::{Link, Model, Test};
use crate::measure::machine::Machine;

/// Result of `compare`; the keys are documented and never renamed.
#[derive(Debug, Serialize)]
pub(crate) struct Comparison {
    pub(crate) machine: Machine,
    /// Budget of the adaptive model.
    pub(crate) spin_ns: u64,
    pub(crate) rounds: usize,
    /// What other programs used meanwhile, in percent of one core; null where it is not known.
    pub(crate) others_cpu_percent: Option<f64>,
    pub(crate) device: String,
    pub(crate) cells: Vec<Cell>,
    pub(crate) advice: Vec<Advice>,
}

/// One model under one shape: medians over the rounds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Cell {
    pub(crate) shape: String,
    pub(crate) model: Model,
    pub(crate) p50_ns: f64,
    pub(crate) p99_ns: f64,
    pub(crate) p999_ns: f64,
    pub(crate) mean_ns: f64,
    /// The longest of all rounds.
    pub(crate) max_ns: f64,
    /// Mean against that of `busy` under the same shape.
    pub(crate) added_mean_ns: f64,
    /// The waiting process, the server, in percent of one core.
    pub(crate) cpu_percent: f64,
    /// Both processes; without the client's looking at the clock until a request is due.
    pub(crate) pair_cpu_percent: f64,
    pub(crate) ops_per_s: f64,
    /// CPU time of the waiting process for each request.
    pub(crate) cpu_us_per_op: f64,
    /// How often the waiting process slept for each request.
    pub(crate) sleeps_per_op: f64,
    /// Requests of one round.
    pub(crate) samples: f64,
}

#[derive(Debug, Serialize)]
pub(crate) struct Advice {
    pub(crate) shape: String,
    pub(crate) model: Model,
    pub(crate) why: String,
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
