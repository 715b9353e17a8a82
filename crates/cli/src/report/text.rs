//! Tables for people.

use std::io::{self, Write};

use super::{Comparison, Figures};
use crate::measure::machine::Machine;

pub(crate) fn comparison(out: &mut impl Write, result: &Comparison) -> io::Result<()> {
    let Comparison {
        machine, device, ..
    } = result;
    writeln!(
        out,
        "{device}, two processes, request and reply; {}",
        about(machine)
    )?;
    writeln!(
        out,
        "a wake-up costs {} here; adaptive spins {} before it sleeps",
        time(machine.wakeup_ns),
        time(result.spin_ns as f64)
    )?;
    writeln!(out)?;
    writeln!(
        out,
        "{:<10} {:<9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>6} {:>6} {:>10} {:>9}",
        "shape",
        "model",
        "p50",
        "p99",
        "p99.9",
        "mean",
        "added",
        "cpu",
        "both",
        "requests/s",
        "cpu/req"
    )?;
    let mut shape = "";
    for cell in &result.cells {
        if !shape.is_empty() && shape != cell.shape {
            writeln!(out)?;
        }
        shape = &cell.shape;
        writeln!(
            out,
            "{:<10} {:<9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>4.0} % {:>4.0} % {:>10.0} {:>9}",
            cell.shape,
            cell.model,
            time(cell.p50_ns),
            time(cell.p99_ns),
            time(cell.p999_ns),
            time(cell.mean_ns),
            time(cell.added_mean_ns),
            cell.cpu_percent,
            cell.pair_cpu_percent,
            cell.ops_per_s,
            time(cell.cpu_us_per_op * 1000.0),
        )?;
    }
    writeln!(out)?;
    for line in LEGEND {
        writeln!(out, "{line}")?;
    }
    if !machine.chosen.are_distinct() {
        writeln!(
            out,
            "only one core may be used here: both sides share it, and every wait gives it away"
        )?;
    }
    if let Some(others) = result
        .others_cpu_percent
        .filter(|percent| *percent > DISTURBING)
    {
        writeln!(
            out,
            "other programs used {others:.0} % of a core meanwhile: repeat this on a quiet machine before you rely on it"
        )?;
    }
    writeln!(out)?;
    for advice in &result.advice {
        writeln!(
            out,
            "{:<10} {}: {}",
            advice.shape,
            advice.model.name(),
            advice.why
        )?;
    }
    Ok(())
}

pub(crate) fn figures(out: &mut impl Write, result: &Figures) -> io::Result<()> {
    writeln!(out, "{}; {}", result.device, about(&result.machine))?;
    writeln!(out)?;
    writeln!(
        out,
        "{:<11} {:<8} {:<8} {:>8} {:>9} {:>9} {:>9} {:>8} {:>10}  {:>6} of the limit",
        "test", "link", "wait", "bytes", "p50", "p99", "min", "GB/s", "messages/s", "ratio"
    )?;
    let optional =
        |value: Option<f64>, show: fn(f64) -> String| value.map_or_else(|| "-".to_owned(), show);
    for figure in &result.results {
        let limit = match figure.gb_per_s {
            Some(_) => format!("{:.2} GB/s", figure.limit.value),
            None => time(figure.limit.value),
        };
        writeln!(
            out,
            "{:<11} {:<8} {:<8} {:>8} {:>9} {:>9} {:>9} {:>8} {:>10}  {:>6.2} of {limit} ({})",
            figure.test,
            figure.link,
            figure.wait,
            figure.size,
            optional(figure.p50_ns, time),
            optional(figure.p99_ns, time),
            optional(figure.min_ns, time),
            optional(figure.gb_per_s, |value| format!("{value:.2}")),
            optional(figure.msgs_per_s, |value| format!("{value:.0}")),
            figure.ratio,
            figure.limit.name,
        )?;
    }
    writeln!(out)?;
    writeln!(out, "latencies are one way: half of the round trip")
}

fn about(machine: &Machine) -> String {
    let cores = match machine.cores {
        1 => "1 core".to_owned(),
        n => format!(
            "{n} cores, client on {} and server on {}",
            machine.client_core, machine.server_core
        ),
    };
    format!("{cores}, {}, Linux {}", machine.cpu, machine.kernel)
}

/// Three digits and a unit.
pub(crate) fn time(ns: f64) -> String {
    let (value, unit) = match ns.abs() {
        size if size < 999.5 => return format!("{ns:.0} ns"),
        size if size < 999_500.0 => (ns / 1e3, "us"),
        size if size < 999_500_000.0 => (ns / 1e6, "ms"),
        _ => (ns / 1e9, "s"),
    };
    let digits = match value.abs() {
        size if size < 9.995 => 2,
        size if size < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {unit}")
}

/// Percent of a core that others may use without spoiling the figures.
const DISTURBING: f64 = 15.0;

const LEGEND: [&str; 5] = [
    "latency: from the moment a request was due until its reply; added: mean against busy",
    "busy: poll without pause   event: arm, sleep on the event, drain in batches",
    "adaptive: spin for a budget, then arm, poll once more, sleep",
    "both sides wait by the model; cpu: the waiting process (the server), in percent of a core;",
    "both: client and server, without the client's clock-watching between requests",
];

#[cfg(test)]
mod tests {
    use super::time;

    #[test]
    fn times_have_three_digits_and_a_unit() {
        for (ns, text) in [
            (0.0, "0 ns"),
            (152.4, "152 ns"),
            (999.9, "1.00 us"),
            (-1234.0, "-1.23 us"),
            (41_285.0, "41.3 us"),
            (999_900.0, "1.00 ms"),
            (4_000_000_000.0, "4.00 s"),
        ] {
            assert_eq!(time(ns), text);
        }
    }
}
