//! The table of `bench --targets`.

use std::io::{self, Write};

use serde::Serialize;

use crate::measure::machine::Machine;

#[derive(Debug, Serialize)]
pub(crate) struct Targets {
    pub(crate) machine: Machine,
    /// How often each line and what stands beside it were measured, in turns.
    pub(crate) pairs: usize,
    pub(crate) targets: Vec<Target>,
}

/// One line; the keys are documented and never renamed.
#[derive(Debug, Serialize)]
pub(crate) struct Target {
    pub(crate) name: &'static str,
    /// Median.
    pub(crate) figure: f64,
    pub(crate) unit: Unit,
    /// Null where the peer is not installed; so are `ratio` and `met` then.
    pub(crate) against: Option<Against>,
    /// Median of the ratios of all pairs.
    pub(crate) ratio: Option<f64>,
    /// What the ratio should be, such as `<= 2.5`.
    pub(crate) target: String,
    pub(crate) met: Option<bool>,
}

/// What stands beside a figure, in its unit.
#[derive(Debug, Serialize)]
pub(crate) struct Against {
    pub(crate) name: &'static str,
    pub(crate) value: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Unit {
    #[serde(rename = "ns")]
    Ns,
    #[serde(rename = "GB/s")]
    GbPerS,
    #[serde(rename = "messages/s")]
    MsgsPerS,
}

impl Unit {
    fn show(self, value: f64) -> String {
        match self {
            Self::Ns => format!("{value:.0} ns"),
            Self::GbPerS => format!("{value:.2} GB/s"),
            Self::MsgsPerS => format!("{:.2} M/s", value / 1e6),
        }
    }
}

pub(crate) fn table(out: &mut impl Write, result: &Targets) -> io::Result<()> {
    writeln!(
        out,
        "{} on {}; medians of {} pairs, measured in turns",
        result.machine.cpu, result.machine.kernel, result.pairs
    )?;
    writeln!(
        out,
        "{:<36} {:>11} {:>11}  {:<23} {:>6} {:>8}  met",
        "what", "figure", "against", "", "ratio", "target"
    )?;
    for target in &result.targets {
        let (value, name) = match &target.against {
            Some(against) => (target.unit.show(against.value), against.name),
            None => ("–".to_owned(), "not installed"),
        };
        let ratio = target
            .ratio
            .map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}"));
        let met = match target.met {
            Some(true) => "yes",
            Some(false) => "no",
            None => "–",
        };
        writeln!(
            out,
            "{:<36} {:>11} {value:>11}  {name:<23} {ratio:>6} {:>8}  {met}",
            target.name,
            target.unit.show(target.figure),
            target.target,
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_documented_keys_and_null_without_a_peer() {
        let target = Target {
            name: "send latency",
            figure: 400.0,
            unit: Unit::Ns,
            against: None,
            ratio: None,
            target: "<= 2.5".to_owned(),
            met: None,
        };
        let value = serde_json::to_value(target).unwrap();
        for key in [
            "name", "figure", "unit", "against", "ratio", "target", "met",
        ] {
            assert!(value.get(key).is_some(), "{key} is missing");
        }
        assert!(value["met"].is_null());
        assert_eq!(value["unit"], "ns");
    }
}
