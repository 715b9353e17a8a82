//! Tables for people.

use std::io::{self, Write};

use super::{Cell, Comparison, Figures};
use crate::measure::machine::Machine;

pub(crate) fn comparison(out: &mut impl Write, result: &Comparison) -> io::Result<()> {
    let Comparison {
        machine,
        device,
        stalls,
        ..
    } = result;
    writeln!(
        out,
        "{device}, two processes, request and reply; {}",
        about(machine)
    )?;
    writeln!(
        out,
        "a wake-up costs {} here; the machine alone stops a thread for {} {:.1} times a second, for {} {:.2} times, for {} at most",
        time(machine.wakeup_ns),
        time(10e3),
        stalls.per_second_10us,
        time(1e6),
        stalls.per_second_1ms,
        time(stalls.longest_ns),
    )?;
    for caveat in warnings(result) {
        writeln!(out, "{caveat}")?;
    }
    writeln!(out)?;
    let shapes = width(result.cells.iter().map(|cell| cell.shape.as_str()), "shape");
    let ways = width(result.cells.iter().map(|cell| cell.model.as_str()), "model");
    write!(out, "{:<shapes$} {:<ways$}", "shape", "model")?;
    for (column, width, _) in &COLUMNS {
        write!(out, " {column:>width$}")?;
    }
    writeln!(out)?;
    let mut shape = "";
    for cell in &result.cells {
        if !shape.is_empty() && shape != cell.shape {
            writeln!(out)?;
        }
        shape = &cell.shape;
        write!(out, "{:<shapes$} {:<ways$}", cell.shape, cell.model)?;
        for (_, width, show) in &COLUMNS {
            write!(out, " {:>width$}", show(cell))?;
        }
        writeln!(out)?;
    }
    writeln!(out)?;
    for line in LEGEND {
        writeln!(out, "{line}")?;
    }
    let names = result.shapes.iter().chain(&result.ways);
    let wide = width(names.clone().map(|(name, _)| name.as_str()), "");
    for (name, meaning) in names {
        writeln!(out, "{name:<wide$} {meaning}")?;
    }
    writeln!(out)?;
    for advice in &result.advice {
        writeln!(
            out,
            "{:<shapes$} {}: {}",
            advice.shape, advice.model, advice.why
        )?;
    }
    Ok(())
}

/// What the reader has to know before the figures.
pub(crate) fn warnings(result: &Comparison) -> Vec<String> {
    let mut warnings = result.caveats.clone();
    if let Some(others) = result
        .others_cpu_percent
        .filter(|percent| *percent > DISTURBING)
    {
        warnings.push(format!(
            "Other programs used {others:.0} % of a core meanwhile: repeat this on a quiet machine before you rely on it."
        ));
    }
    warnings
}

fn width<'a>(names: impl Iterator<Item = &'a str>, head: &str) -> usize {
    names
        .map(|name| name.chars().count())
        .chain([head.len()])
        .max()
        .unwrap_or(0)
}

/// A figure of a cell as text.
type Show = fn(&Cell) -> String;

/// Head, width and content of the columns, in the order of the table here and in the report.
pub(crate) const COLUMNS: [(&str, usize, Show); 12] = [
    ("p50", 8, |cell| optional(cell.p50_ns, time)),
    ("±", 8, |cell| time(cell.p50_spread_ns)),
    ("p99", 8, |cell| optional(cell.p99_ns, time)),
    ("stalls", 8, |cell| optional(cell.stall_p99_ns, time)),
    ("p99.9", 8, |cell| optional(cell.p999_ns, time)),
    ("mean", 8, |cell| time(cell.mean_ns)),
    ("added", 8, |cell| optional(cell.added_mean_ns, time)),
    ("cpu", 5, |cell| format!("{:.0} %", cell.cpu_percent)),
    ("both", 5, |cell| format!("{:.0} %", cell.pair_cpu_percent)),
    ("requests/s", 10, |cell| format!("{:.0}", cell.ops_per_s)),
    ("cpu/req", 8, |cell| time(cell.cpu_us_per_op * 1000.0)),
    ("wakes/req", 9, |cell| format!("{:.2}", cell.sleeps_per_op)),
];

fn optional(value: Option<f64>, show: fn(f64) -> String) -> String {
    value.map_or_else(|| "–".to_owned(), show)
}

pub(crate) fn figures(out: &mut impl Write, result: &Figures) -> io::Result<()> {
    writeln!(out, "{}; {}", result.device, about(&result.machine))?;
    writeln!(out)?;
    writeln!(
        out,
        "{:<11} {:<8} {:<8} {:>8} {:>9} {:>9} {:>9} {:>8} {:>10}  {:>6} of the limit",
        "test", "link", "wait", "bytes", "p50", "p99", "min", "GB/s", "messages/s", "ratio"
    )?;
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

pub(crate) fn about(machine: &Machine) -> String {
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

pub(crate) const LEGEND: [&str; 6] = [
    "latency: from the moment a request was due until its reply; – where fewer than ten samples lie beyond a percentile",
    "±: half of what lies between the rounds' medians   added: mean against busy in the same rounds",
    "stalls: what the machine alone adds to one in a hundred requests of this length, measured by threads that only read the clock",
    "cpu: the waiting process (the server), in percent of a core   both: client and server, without the client's clock-watching",
    "wakes/req: how often the waiting process went to sleep for each request",
    "both sides wait in the same way:",
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
