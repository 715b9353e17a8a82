//! Plots of the report, as SVG. Colours come from the page's style, so that they follow dark mode; each way has a mark of its
//! own shape too, for whoever does not see the colours.

use std::fmt::Write as _;

use super::Cell;
use super::text::time;

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 40.0;

/// Latency against CPU: a mark for each way, and a line through those that no other beats in both.
pub(crate) fn pareto(cells: &[&Cell], shape: &str, id: &str) -> String {
    let most = cells
        .iter()
        .map(|cell| cell.cpu_percent)
        .fold(100.0, f64::max);
    let x = |percent: f64| LEFT + percent / most * (WIDTH - LEFT - RIGHT);
    let scale = Log::of(cells.iter().map(|cell| cell.mean_ns));
    let y = |ns: f64| scale.y(ns);
    let front = front(cells);
    let mut svg = open(
        id,
        &format!("{shape}: mean latency against CPU of the waiting side"),
        &cells
            .iter()
            .map(|cell| {
                format!(
                    "{}: {} at {:.0} %",
                    cell.model,
                    time(cell.mean_ns),
                    cell.cpu_percent
                )
            })
            .collect::<Vec<_>>()
            .join("; "),
    );
    scale.grid(&mut svg);
    for percent in [0.0, 25.0, 50.0, 75.0, 100.0] {
        let at = x(percent);
        put(
            &mut svg,
            format_args!(
                r#"<line class="grid" x1="{at:.1}" y1="{TOP}" x2="{at:.1}" y2="{:.1}"/><text class="axis" text-anchor="middle" x="{at:.1}" y="{:.1}">{percent:.0} %</text>"#,
                HEIGHT - BOTTOM,
                HEIGHT - BOTTOM + 16.0
            ),
        );
    }
    label(&mut svg, "CPU of the waiting side, in percent of a core");
    let line: Vec<_> = front
        .iter()
        .map(|cell| format!("{:.1},{:.1}", x(cell.cpu_percent), y(cell.mean_ns)))
        .collect();
    put(
        &mut svg,
        format_args!(r#"<polyline class="front" points="{}"/>"#, line.join(" ")),
    );
    for (number, cell) in cells.iter().enumerate() {
        let (at, height) = (x(cell.cpu_percent), y(cell.mean_ns));
        put(
            &mut svg,
            format_args!(
                r#"<line class="spread w{number}" x1="{at:.1}" y1="{:.1}" x2="{at:.1}" y2="{:.1}"/>"#,
                y(cell.mean_ns + cell.mean_spread_ns),
                y((cell.mean_ns - cell.mean_spread_ns).max(1.0)),
            ),
        );
        put(
            &mut svg,
            format_args!(
                "{}<title>{}: {} at {:.0} %</title></g>",
                mark(number, at, height),
                cell.model,
                time(cell.mean_ns),
                cell.cpu_percent
            ),
        );
    }
    svg.push_str("</svg>");
    svg
}

/// Latency against the share of requests that took no longer.
pub(crate) fn distributions(cells: &[&Cell], shape: &str, id: &str) -> String {
    // Nines, and on the other side of the middle the same.
    let x = |quantile: f64| {
        let nines = match quantile < 0.5 {
            true => (2.0 * quantile).log10(),
            false => -(2.0 * (1.0 - quantile)).log10(),
        };
        LEFT + (nines + 1.7) / 5.4 * (WIDTH - LEFT - RIGHT)
    };
    let values = || cells.iter().flat_map(|cell| &cell.quantiles);
    let scale = Log::of(values().map(|&(_, ns)| ns));
    let mut svg = open(
        id,
        &format!("{shape}: how long requests took"),
        "for each way to wait, the latency that a share of the requests did not exceed; the table has the percentiles",
    );
    scale.grid(&mut svg);
    for (quantile, name) in [
        (0.01, "1 %"),
        (0.1, "10"),
        (0.5, "50"),
        (0.9, "90"),
        (0.99, "99"),
        (0.999, "99.9"),
        (0.9999, "99.99 %"),
    ] {
        let at = x(quantile);
        put(
            &mut svg,
            format_args!(
                r#"<line class="grid" x1="{at:.1}" y1="{TOP}" x2="{at:.1}" y2="{:.1}"/><text class="axis" text-anchor="middle" x="{at:.1}" y="{:.1}">{name}</text>"#,
                HEIGHT - BOTTOM,
                HEIGHT - BOTTOM + 16.0
            ),
        );
    }
    label(&mut svg, "share of requests that took no longer");
    for (number, cell) in cells.iter().enumerate() {
        let points: Vec<_> = cell
            .quantiles
            .iter()
            .map(|&(quantile, ns)| format!("{:.1},{:.1}", x(quantile), scale.y(ns)))
            .collect();
        put(
            &mut svg,
            format_args!(
                r#"<polyline class="curve w{number}" points="{}"><title>{}</title></polyline>"#,
                points.join(" "),
                cell.model
            ),
        );
        for &(quantile, ns) in cell
            .quantiles
            .iter()
            .filter(|(quantile, _)| [0.5, 0.99].contains(quantile))
        {
            put(
                &mut svg,
                format_args!("{}</g>", mark(number, x(quantile), scale.y(ns))),
            );
        }
    }
    svg.push_str("</svg>");
    svg
}

/// The mark of a way, alone, for the legend.
pub(crate) fn key(number: usize) -> String {
    format!(
        r#"<svg class="key" viewBox="0 0 16 16" aria-hidden="true">{}</g></svg>"#,
        mark(number, 8.0, 8.0)
    )
}

/// Cells that no other beats in both latency and CPU, by CPU.
pub(crate) fn front<'a>(cells: &[&'a Cell]) -> Vec<&'a Cell> {
    let beaten = |one: &Cell| {
        cells.iter().any(|other| {
            other.mean_ns <= one.mean_ns
                && other.cpu_percent <= one.cpu_percent
                && (other.mean_ns < one.mean_ns || other.cpu_percent < one.cpu_percent)
        })
    };
    let mut front: Vec<_> = cells.iter().copied().filter(|cell| !beaten(cell)).collect();
    front.sort_by(|a, b| a.cpu_percent.total_cmp(&b.cpu_percent));
    front
}

fn open(id: &str, title: &str, description: &str) -> String {
    format!(
        r#"<svg role="img" aria-labelledby="{id}-t {id}-d" viewBox="0 0 {WIDTH} {HEIGHT}"><title id="{id}-t">{title}</title><desc id="{id}-d">{description}</desc>"#
    )
}

fn label(svg: &mut String, text: &str) {
    put(
        svg,
        format_args!(
            r#"<text class="axis" text-anchor="middle" x="{:.1}" y="{:.1}">{text}</text>"#,
            f64::midpoint(LEFT, WIDTH - RIGHT),
            HEIGHT - 6.0
        ),
    );
}

/// Open: whoever calls adds a title perhaps, and closes it.
fn mark(number: usize, x: f64, y: f64) -> String {
    let shape = match number % 6 {
        0 => r#"<circle r="5"/>"#,
        1 => r#"<rect x="-4.5" y="-4.5" width="9" height="9"/>"#,
        2 => r#"<path d="M0-6 5.5 4.5-5.5 4.5z"/>"#,
        3 => r#"<path d="M0-6.5 6 0 0 6.5-6 0z"/>"#,
        4 => r#"<path d="M0 6 5.5-4.5-5.5-4.5z"/>"#,
        _ => r#"<path d="M-5-2H-2V-5H2V-2H5V2H2V5H-2V2H-5z"/>"#,
    };
    format!(r#"<g class="mark w{number}" transform="translate({x:.1} {y:.1})">{shape}"#)
}

/// A scale of latencies, in decades.
struct Log {
    low: f64,
    high: f64,
}

impl Log {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = values.fold((f64::MAX, f64::MIN), |(low, high), ns| {
            let decade = ns.max(1.0).log10();
            (low.min(decade), high.max(decade))
        });
        match low <= high {
            // A little air, and never less than half a decade.
            true => Self {
                low: low - 0.1,
                high: (high + 0.1).max(low + 0.5),
            },
            false => Self {
                low: 3.0,
                high: 6.0,
            },
        }
    }

    fn y(&self, ns: f64) -> f64 {
        let part = (ns.max(1.0).log10() - self.low) / (self.high - self.low);
        HEIGHT - BOTTOM - part.clamp(0.0, 1.0) * (HEIGHT - TOP - BOTTOM)
    }

    fn grid(&self, svg: &mut String) {
        let steps: &[f64] = if self.high - self.low > 2.5 {
            &[1.0]
        } else {
            &[1.0, 2.0, 5.0]
        };
        for decade in 0..11 {
            for step in steps {
                let ns = step * 10_f64.powi(decade);
                if !(self.low..=self.high).contains(&ns.log10()) {
                    continue;
                }
                let y = self.y(ns);
                put(
                    svg,
                    format_args!(
                        r#"<line class="grid" x1="{LEFT}" y1="{y:.1}" x2="{:.1}" y2="{y:.1}"/><text class="axis" text-anchor="end" x="{:.1}" y="{:.1}">{}</text>"#,
                        WIDTH - RIGHT,
                        LEFT - 6.0,
                        y + 4.0,
                        round(ns)
                    ),
                );
            }
        }
    }
}

/// A round time.
fn round(ns: f64) -> String {
    let (value, unit) = match ns {
        ns if ns < 999.0 => (ns, "ns"),
        ns if ns < 999_000.0 => (ns / 1e3, "us"),
        ns if ns < 999_000_000.0 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    format!("{value:.0} {unit}")
}

fn put(svg: &mut String, what: std::fmt::Arguments<'_>) {
    svg.write_fmt(what).expect("a string takes everything");
}

#[cfg(test)]
mod tests {
    use super::super::advice::tests::cell;
    use super::*;

    #[test]
    fn the_front_has_what_nobody_beats_in_both() {
        let cells = [
            cell("busy", 2.0, 100.0),
            cell("event", 42.0, 5.0),
            cell("event-batch", 43.0, 6.0),
            cell("adaptive", 3.0, 20.0),
        ];
        let cells: Vec<_> = cells.iter().collect();
        let names: Vec<_> = front(&cells)
            .iter()
            .map(|cell| cell.model.as_str())
            .collect();
        assert_eq!(names, ["event", "adaptive", "busy"]);
    }

    #[test]
    fn nothing_lies_outside_the_picture() {
        let mut odd = cell("event", 42.0, 250.0);
        odd.mean_ns = 0.0;
        odd.quantiles = vec![(0.01, 0.0), (0.9999, 1e10)];
        let mut empty = cell("busy", 2.0, 0.0);
        empty.quantiles.clear();
        for svg in [
            pareto(&[&odd, &empty], "x", "a"),
            distributions(&[&odd, &empty], "x", "b"),
            distributions(&[], "x", "c"),
            pareto(&[], "x", "d"),
        ] {
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            for part in svg.split("points=\"").skip(1) {
                let points = part.split('"').next().unwrap_or("");
                for number in points.split([' ', ',']).filter(|number| !number.is_empty()) {
                    let number: f64 = number.parse().unwrap();
                    assert!((0.0..=WIDTH).contains(&number), "{number} in {svg}");
                }
            }
        }
    }
}
