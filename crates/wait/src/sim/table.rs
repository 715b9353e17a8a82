//! The table of regret: what each way to wait costs under each trace, as a multiple of the best that knows the future. And
//! the table of two sides that wait for each other and were told a wrong W.

use std::fmt::Write as _;

use super::world::{Outcome, Way, best_ns, run};
use super::{facing, trace};
use crate::Limits;

/// W of the table: what a wake-up across cores costs on a small virtual machine.
pub const WAKE_NS: u64 = 40_000;

/// The share of the column with a limit.
const SHARE: u32 = 10;

/// The table, in Markdown.
#[must_use]
pub fn regret() -> String {
    let mut text = String::new();
    line(
        &mut text,
        [
            "trace",
            "best, µs",
            "busy",
            "event",
            "spin W",
            "adaptive",
            "with 10 % CPU",
            "event adds, µs",
            "adaptive adds: median",
            "mean",
            "adaptive CPU",
        ],
    );
    line(&mut text, ["---"; 11]);
    for trace in trace::all() {
        let best = best_ns(&trace, WAKE_NS);
        let messages = trace.gaps.len() as f64;
        let adaptive = run(&trace, Way::Adaptive(Limits::default()), WAKE_NS);
        let limited = Limits {
            cpu_percent: SHARE,
            ..Limits::default()
        };
        let event = run(&trace, Way::Event, WAKE_NS);
        let ratio = |outcome: Outcome| format!("{:.2}", outcome.cost_ns as f64 / best as f64);
        let us = |ns: u64| format!("{:.2}", ns as f64 / 1e3);
        let mean = |outcome: Outcome| format!("{:.2}", outcome.late_ns as f64 / messages / 1e3);
        line(
            &mut text,
            [
                &format!("`{}`", trace.name),
                &format!("{:.2}", best as f64 / messages / 1e3),
                &ratio(run(&trace, Way::Busy, WAKE_NS)),
                &ratio(event),
                &ratio(run(&trace, Way::SpinThenSleep, WAKE_NS)),
                &ratio(adaptive),
                &ratio(run(&trace, Way::Adaptive(limited), WAKE_NS)),
                &mean(event),
                &us(adaptive.median_late_ns),
                &mean(adaptive),
                &format!(
                    "{:.0} %",
                    100.0 * adaptive.spun_ns as f64 / adaptive.took_ns as f64
                ),
            ],
        );
    }
    text
}

/// Round trips of the second table, of which the second half counts.
const TRIPS: u64 = 4_000;

/// The table of two sides, in Markdown.
#[must_use]
pub fn facing() -> String {
    let mut text = String::new();
    line(
        &mut text,
        [
            "a wake-up takes, µs",
            "round trip, both adaptive, µs",
            "both `event`, µs",
            "sleeps a trip",
            "believed in the end, µs",
        ],
    );
    line(&mut text, ["---"; 5]);
    for (times, part) in [(1, 4), (1, 1), (2, 1), (4, 1), (8, 1), (16, 1)] {
        let wake = WAKE_NS * times / part;
        let outcome = facing::run(WAKE_NS, wake, 30, TRIPS);
        let us = |ns: u64| format!("{:.1}", ns as f64 / 1e3);
        line(
            &mut text,
            [
                &us(wake),
                &us(outcome.trip_ns),
                &us(2 * (wake + facing::HOP_NS)),
                &format!("{:.2}", outcome.sleeps as f64 / (TRIPS / 2) as f64),
                &outcome.believed_ns.map(us).join(" and "),
            ],
        );
    }
    text
}

fn line<const N: usize>(text: &mut String, cells: [&str; N]) {
    writeln!(text, "| {} |", cells.join(" | ")).expect("a string takes everything");
}
