//! Which model fits which traffic, as the measured numbers have it.
//!
//! The rule, in the order of its steps:
//! 1. The best mean counts, and every model within 25 % or 1 µs of it is as fast.
//! 2. Of those, the one with the least CPU; within 10 % of a core `adaptive` is preferred, as it
//!    lets go of the core when traffic stops, which this traffic never does.
//! 3. Where that one still burns half a core, and another model halves that, and what it adds
//!    to the mean is at most a tenth of the gap between requests, the other one fits better.

use super::text::time;
use super::{Advice, Cell};
use crate::args::Model;

/// `cells` are those of one shape; `gap_ns` is None for the closed loop. None without cells.
pub(crate) fn advise(shape: &str, gap_ns: Option<f64>, cells: &[Cell]) -> Option<Advice> {
    let best = cells
        .iter()
        .map(|cell| cell.mean_ns)
        .min_by(f64::total_cmp)?;
    let as_fast = |cell: &&Cell| cell.mean_ns <= (best * 1.25).max(best + 1000.0);
    let fast = leanest(cells.iter().filter(as_fast))?;
    let lean = leanest(cells.iter())?;
    let chosen = if fast.cpu_percent > 50.0
        && lean.cpu_percent <= fast.cpu_percent / 2.0
        && gap_ns.is_some_and(|gap| lean.mean_ns - fast.mean_ns <= gap / 10.0)
    {
        lean
    } else {
        fast
    };
    Some(Advice {
        shape: shape.to_owned(),
        model: chosen.model,
        why: why(chosen, fast, lean, cells),
    })
}

/// Least CPU, `adaptive` before others when it is close.
fn leanest<'a>(cells: impl Iterator<Item = &'a Cell>) -> Option<&'a Cell> {
    let handicap = |cell: &Cell| match cell.model {
        Model::Adaptive => 0.0,
        Model::Busy | Model::Event => CLOSE,
    };
    cells.min_by(|a, b| (a.cpu_percent + handicap(a)).total_cmp(&(b.cpu_percent + handicap(b))))
}

fn why(chosen: &Cell, fast: &Cell, lean: &Cell, cells: &[Cell]) -> String {
    let cpu = |cell: &Cell| format!("{:.0} % of a core", cell.cpu_percent);
    let added = |cell: &Cell, to: &Cell| time((cell.mean_ns - to.mean_ns).max(0.0));
    let own = format!("{} on average at {}", time(chosen.mean_ns), cpu(chosen));
    if chosen.model == lean.model && chosen.model != fast.model {
        return format!(
            "{own}; {} would save {} of each request and takes {}",
            fast.model.name(),
            added(chosen, fast),
            cpu(fast)
        );
    }
    if lean.cpu_percent > chosen.cpu_percent - CLOSE {
        let rest: Vec<_> = cells
            .iter()
            .filter(|cell| cell.model != chosen.model)
            .map(|cell| {
                format!(
                    "{} {} at {}",
                    cell.model.name(),
                    time(cell.mean_ns),
                    cpu(cell)
                )
            })
            .collect();
        let as_busy = |cell: &Cell| {
            cell.model == Model::Busy && (cell.cpu_percent - chosen.cpu_percent).abs() < CLOSE
        };
        let idle = if chosen.model == Model::Adaptive && cells.iter().any(as_busy) {
            "; as busy as polling under this traffic, but it lets go of the core when traffic stops"
        } else {
            ""
        };
        return format!("{own}{idle} ({})", rest.join(", "));
    }
    format!(
        "{own}; {} needs only {}, but adds {} to each request",
        lean.model.name(),
        cpu(lean),
        added(lean, chosen)
    )
}

/// Percent of a core that make no difference.
const CLOSE: f64 = 10.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(model: Model, mean_us: f64, cpu_percent: f64) -> Cell {
        Cell {
            shape: "x".to_owned(),
            model,
            p50_ns: mean_us * 1e3,
            p99_ns: mean_us * 1e3,
            p999_ns: mean_us * 1e3,
            mean_ns: mean_us * 1e3,
            max_ns: 4.0,
            added_mean_ns: 0.0,
            cpu_percent,
            pair_cpu_percent: cpu_percent,
            ops_per_s: 1.0,
            cpu_us_per_op: 1.0,
            sleeps_per_op: 0.0,
            samples: 1.0,
        }
    }

    fn model(gap_us: Option<f64>, cells: [Cell; 3]) -> Model {
        let advice = advise("x", gap_us.map(|us| us * 1e3), &cells).unwrap();
        assert!(advice.why.contains('%'), "{}", advice.why);
        advice.model
    }

    #[test]
    fn steady_traffic_calls_for_spinning_that_can_let_go() {
        let cells = [
            cell(Model::Busy, 2.0, 100.0),
            cell(Model::Event, 85.0, 40.0),
            cell(Model::Adaptive, 2.1, 100.0),
        ];
        assert_eq!(model(None, cells), Model::Adaptive);
    }

    #[test]
    fn polling_fits_where_only_polling_is_fast() {
        let cells = [
            cell(Model::Busy, 2.0, 100.0),
            cell(Model::Event, 85.0, 30.0),
            cell(Model::Adaptive, 80.0, 70.0),
        ];
        assert_eq!(model(Some(100.0), cells), Model::Busy);
    }

    #[test]
    fn rare_requests_do_not_pay_for_a_core() {
        let cells = [
            cell(Model::Busy, 3.0, 100.0),
            cell(Model::Event, 90.0, 5.0),
            cell(Model::Adaptive, 92.0, 9.0),
        ];
        assert_ne!(model(Some(1000.0), cells), Model::Busy);
    }

    #[test]
    fn there_is_no_advice_without_figures() {
        assert!(advise("x", None, &[]).is_none());
    }
}
