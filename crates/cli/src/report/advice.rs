//! Which way to wait fits which traffic, as the measured numbers have it.
//!
//! The rule, in the order of its steps, for ways over verbs:
//! 1. The best mean counts, and every way within 25 % or 1 µs of it is as fast.
//! 2. Of those, the one with the least CPU; within 10 % of a core `adaptive` is preferred, as it
//!    lets go of the core when traffic stops, which this traffic never does.
//! 3. Where that one still burns half a core, and another way halves that, and what it adds
//!    to the mean is at most a tenth of the gap between requests, the other one fits better.
//!
//! And whether the folklore figure holds there: within 1 µs of polling at 30 % of a core.

use super::text::time;
use super::{Advice, Cell};
use crate::shape::{Schedule, Shape};
use crate::way::{Bounds, Way};

/// `cells` are those of the shape. None without any over verbs.
pub(crate) fn advise(shape: &Shape, cells: &[Cell], wakeup_ns: f64) -> Option<Advice> {
    let cells: Vec<_> = cells.iter().filter(|cell| cell.way.is_verbs()).collect();
    let best = cells
        .iter()
        .map(|cell| cell.mean_ns)
        .min_by(f64::total_cmp)?;
    let as_fast = |cell: &&&Cell| cell.mean_ns <= (best * 1.25).max(best + 1000.0);
    let fast = leanest(cells.iter().filter(as_fast).copied())?;
    let lean = leanest(cells.iter().copied())?;
    let chosen = if fast.cpu_percent > 50.0
        && lean.cpu_percent <= fast.cpu_percent / 2.0
        && shape
            .schedule
            .mean_gap_ns()
            .is_some_and(|gap| lean.mean_ns - fast.mean_ns <= gap / 10.0)
    {
        lean
    } else {
        fast
    };
    let why = why(chosen, fast, lean, &cells);
    Some(Advice {
        shape: shape.name.clone(),
        model: chosen.model.clone(),
        why: format!("{why}; {}", folklore(shape, &cells, wakeup_ns)),
    })
}

/// Least CPU, `adaptive` before others when it is close.
fn leanest<'a>(cells: impl Iterator<Item = &'a Cell>) -> Option<&'a Cell> {
    let handicap = |cell: &Cell| match cell.way {
        Way::Adaptive(Bounds::NONE) => 0.0,
        Way::Adaptive(_) => CLOSE / 2.0,
        _ => CLOSE,
    };
    cells.min_by(|a, b| (a.cpu_percent + handicap(a)).total_cmp(&(b.cpu_percent + handicap(b))))
}

fn cpu(cell: &Cell) -> String {
    format!("{:.0} % of a core", cell.cpu_percent)
}

fn why(chosen: &Cell, fast: &Cell, lean: &Cell, cells: &[&Cell]) -> String {
    let added = |cell: &Cell, to: &Cell| time((cell.mean_ns - to.mean_ns).max(0.0));
    let own = format!("{} on average at {}", time(chosen.mean_ns), cpu(chosen));
    if chosen.model == lean.model && chosen.model != fast.model {
        return format!(
            "{own}, where {} would save {} of each request and takes {}",
            fast.model,
            added(chosen, fast),
            cpu(fast)
        );
    }
    if lean.cpu_percent > chosen.cpu_percent - CLOSE {
        let as_busy = |cell: &&Cell| {
            cell.way == Way::Busy && (cell.cpu_percent - chosen.cpu_percent).abs() < CLOSE
        };
        return match chosen.way.is_adaptive() && cells.iter().any(as_busy) {
            true => format!(
                "{own}, as busy as polling under this traffic, but it lets go of the core when traffic stops"
            ),
            false => format!("{own}, and nothing else needs less"),
        };
    }
    format!(
        "{own}, where {} needs only {} but adds {} to each request",
        lean.model,
        cpu(lean),
        added(lean, chosen)
    )
}

/// Whether somebody is within 1 µs of polling at 30 % of a core, and if nobody is, why.
fn folklore(shape: &Shape, cells: &[&Cell], wakeup_ns: f64) -> String {
    let Some(busy) = cells.iter().find(|cell| cell.way == Way::Busy) else {
        return "whether 1 us more than polling can be had at 30 % of a core was not measured, as busy was left out".to_owned();
    };
    let others = || cells.iter().filter(|cell| cell.way != Way::Busy);
    let added = |cell: &Cell| cell.added_mean_ns.unwrap_or(0.0);
    let holds = |cell: &&&Cell| added(cell) < ADDED_NS && cell.cpu_percent <= SHARE;
    let figure = |cell: &Cell| {
        let added = match added(cell) {
            some if some > 0.0 => time(some),
            _ => "nothing".to_owned(),
        };
        format!("{} adds {added} at {}", cell.model, cpu(cell))
    };
    if let Some(cell) = others()
        .filter(holds)
        .min_by(|a, b| added(a).total_cmp(&added(b)))
    {
        return format!(
            "less than 1 us more than polling at 30 % of a core holds here: {}",
            figure(cell)
        );
    }
    let wake = time(wakeup_ns);
    let reason = match &shape.schedule {
        Schedule::Closed { .. } => format!(
            "answers come sooner than a wake-up ({wake}) is over, so whoever sleeps adds one, and there is no idle time to give back"
        ),
        Schedule::Gap { ns } | Schedule::Jitter { ns } if (*ns as f64) < 4.0 * wakeup_ns => {
            format!(
                "a gap of {} is too short for a timer that is late by about a wake-up ({wake})",
                time(*ns as f64)
            )
        }
        Schedule::Poisson { .. } => format!(
            "without memory in the arrivals nobody can do better than add {} at that share, 70 % of a wake-up ({wake})",
            time(0.7 * wakeup_ns)
        ),
        _ if busy.cpu_percent < SHARE => "polling itself takes no more".to_owned(),
        Schedule::Burst { .. } => format!(
            "the work of a burst and the looking for its next message take what they take, and one that meets a sleeper is late by \
             a wake-up ({wake}) as a whole"
        ),
        Schedule::Gap { .. } | Schedule::Jitter { .. } => format!(
            "the next message was not met awake here, which takes timers and a machine steadier than a few wake-ups ({wake} each)"
        ),
        Schedule::Trace { .. } => {
            format!("its gaps cannot be told in advance well enough (a wake-up is {wake})")
        }
    };
    let nearest = others()
        .filter(|cell| cell.way.is_adaptive())
        .min_by(|a, b| added(a).total_cmp(&added(b)))
        .map_or_else(String::new, |cell| format!(" ({})", figure(cell)));
    format!(
        "less than 1 us more than polling at 30 % of a core does not hold here{nearest}: {reason}"
    )
}

/// Percent of a core that make no difference.
const CLOSE: f64 = 10.0;
/// The folklore figure.
const ADDED_NS: f64 = 1_000.0;
const SHARE: f64 = 30.0;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{shape, way};

    pub(crate) fn cell(model: &str, mean_us: f64, cpu_percent: f64) -> Cell {
        Cell {
            shape: "x".to_owned(),
            way: way::parse(model).unwrap(),
            model: model.to_owned(),
            p50_ns: Some(mean_us * 1e3),
            p50_spread_ns: 1.0,
            p99_ns: Some(mean_us * 2e3),
            stall_p99_ns: Some(0.0),
            p999_ns: None,
            mean_ns: mean_us * 1e3,
            mean_spread_ns: 1.0,
            max_ns: 4.0,
            added_mean_ns: Some(mean_us * 1e3 - 2e3),
            cpu_percent,
            cpu_spread_percent: 1.0,
            pair_cpu_percent: cpu_percent,
            ops_per_s: 1.0,
            cpu_us_per_op: 1.0,
            sleeps_per_op: 0.0,
            samples: 1_000,
            quantiles: vec![(0.5, mean_us * 1e3), (0.99, mean_us * 2e3)],
        }
    }

    fn model(name: &str, cells: [Cell; 3]) -> (String, String) {
        let advice = advise(&shape::parse(name).unwrap(), &cells, 40_000.0).unwrap();
        assert!(advice.why.contains('%'), "{}", advice.why);
        (advice.model, advice.why)
    }

    #[test]
    fn steady_traffic_calls_for_spinning_that_can_let_go() {
        let (chosen, why) = model(
            "closed-1",
            [
                cell("busy", 2.0, 100.0),
                cell("event", 85.0, 40.0),
                cell("adaptive", 2.1, 100.0),
            ],
        );
        assert_eq!(chosen, "adaptive");
        assert!(
            why.contains("does not hold here") && why.contains("sooner than a wake-up"),
            "{why}"
        );
    }

    #[test]
    fn polling_fits_where_only_polling_is_fast() {
        let (chosen, why) = model(
            "gap-100us",
            [
                cell("busy", 2.0, 100.0),
                cell("event", 85.0, 30.0),
                cell("adaptive", 80.0, 70.0),
            ],
        );
        assert_eq!(chosen, "busy");
        assert!(why.contains("too short for a timer"), "{why}");
    }

    #[test]
    fn rare_requests_do_not_pay_for_a_core() {
        let (chosen, why) = model(
            "poisson-1ms",
            [
                cell("busy", 3.0, 100.0),
                cell("event", 90.0, 5.0),
                cell("adaptive", 92.0, 9.0),
            ],
        );
        assert_ne!(chosen, "busy");
        assert!(why.contains("add 28.0 us"), "{why}");
    }

    #[test]
    fn the_folklore_figure_is_seen_where_it_holds() {
        let (chosen, why) = model(
            "gap-1ms",
            [
                cell("busy", 2.0, 100.0),
                cell("event", 42.0, 5.0),
                cell("adaptive", 2.4, 20.0),
            ],
        );
        assert_eq!(chosen, "adaptive");
        assert!(
            why.contains("holds here: adaptive adds 400 ns at 20 %"),
            "{why}"
        );
    }

    #[test]
    fn there_is_no_advice_without_figures() {
        let closed = shape::parse("closed-1").unwrap();
        assert!(advise(&closed, &[], 1.0).is_none());
        assert!(advise(&closed, &[cell("tcp", 1.0, 1.0)], 1.0).is_none());
    }
}
