//! `adverb compare`: every model under every shape, round after round.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use anyhow::{Context as _, Result};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::args::Model;
use crate::measure::machine::Machine;
use crate::measure::ns;
use crate::measure::others::Others;
use crate::measure::summary::median;
use crate::plan::{ComparePlan, MODELS, Shape};
use crate::report::{self, Cell, Comparison, advice};
use crate::traffic::control::{Outcome, Role, Run, Traffic, Waiting};
use crate::traffic::pair::Pair;

pub(crate) fn execute(plan: ComparePlan) -> Result<()> {
    let machine = Machine::measure()?;
    let mut pair = Pair::processes(None)?;
    let device = pair.connect(plan.device.as_deref(), MESSAGE, machine.chosen)?;
    let others = Others::watch(pair.process_ids());
    let cells = measure(&plan, &machine, &mut pair)?;
    let others_cpu_percent = others.and_then(|others| others.cpu_percent());
    drop(pair);
    let advice = plan
        .shapes
        .iter()
        .filter_map(|shape| {
            let cells: Vec<_> = cells
                .iter()
                .filter(|cell| cell.shape == shape.name)
                .cloned()
                .collect();
            advice::advise(&shape.name, shape.gap.map(|gap| ns(gap) as f64), &cells)
        })
        .collect();
    let result = Comparison {
        spin_ns: machine.spin_ns(),
        machine,
        rounds: plan.rounds,
        others_cpu_percent,
        device,
        cells,
        advice,
    };
    // The file first: a closed pipe on stdout must not cost it.
    if let Some(path) = &plan.json {
        report::json::write(path, &result)?;
    }
    let mut out = io::stdout().lock();
    report::text::comparison(&mut out, &result)?;
    out.flush()?;
    Ok(())
}

/// Rounds are the outer loop, so that a disturbance hits one round of several cells rather than
/// all rounds of one.
fn measure(plan: &ComparePlan, machine: &Machine, pair: &mut Pair) -> Result<Vec<Cell>> {
    let keys: Vec<(&Shape, Model)> = plan
        .shapes
        .iter()
        .flat_map(|shape| MODELS.map(|model| (shape, model)))
        .collect();
    let mut rounds: Vec<Vec<(Outcome, Outcome)>> = vec![Vec::new(); keys.len()];
    let progress = Progress::new((keys.len() * plan.rounds) as u64);
    for round in 1..=plan.rounds {
        for ((shape, model), outcomes) in keys.iter().zip(&mut rounds) {
            progress.say(&format!(
                "{} {model}, round {round} of {}",
                shape.name, plan.rounds
            ));
            outcomes.push(
                pair.run(Run {
                    role: Role::Client,
                    traffic: Traffic::Exchange {
                        gap_ns: shape.gap.map(ns),
                    },
                    waiting: Waiting {
                        model: *model,
                        spin_ns: machine.spin_ns(),
                        one_core: !machine.chosen.are_distinct(),
                    },
                    size: MESSAGE,
                    warm_ns: ns(shape.round.mul_f64(WARM_SHARE).min(WARM_AT_MOST)),
                    time_ns: ns(shape.round.mul_f64(1.0 - WARM_SHARE)),
                })
                .with_context(|| format!("{} {model}", shape.name))?,
            );
            progress.step();
        }
    }
    progress.finish();
    let mut cells: Vec<Cell> = keys
        .iter()
        .zip(&rounds)
        .map(|((shape, model), outcomes)| cell(shape, *model, outcomes))
        .collect();
    for shape in &plan.shapes {
        let of_shape = |cell: &&mut Cell| cell.shape == shape.name;
        let busy = cells
            .iter()
            .find(|cell| cell.shape == shape.name && cell.model == Model::Busy)
            .map_or(0.0, |cell| cell.mean_ns);
        for cell in cells.iter_mut().filter(of_shape) {
            cell.added_mean_ns = cell.mean_ns - busy;
        }
    }
    Ok(cells)
}

/// The median of each figure over the rounds.
fn cell(shape: &Shape, model: Model, outcomes: &[(Outcome, Outcome)]) -> Cell {
    let over = |figure: &dyn Fn(&Outcome, &Outcome) -> f64| {
        median(
            outcomes
                .iter()
                .map(|(client, server)| figure(client, server))
                .collect(),
        )
    };
    let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
    Cell {
        shape: shape.name.clone(),
        model,
        p50_ns: over(&|client, _| client.latency.p50_ns),
        p99_ns: over(&|client, _| client.latency.p99_ns),
        p999_ns: over(&|client, _| client.latency.p999_ns),
        mean_ns: over(&|client, _| client.latency.mean_ns),
        max_ns: outcomes
            .iter()
            .map(|(client, _)| client.latency.max_ns)
            .fold(0.0, f64::max),
        added_mean_ns: 0.0,
        cpu_percent: over(&|_, server| 100.0 * share(server.cpu_ns, server.wall_ns)),
        pair_cpu_percent: over(&|client, server| {
            let client_cpu = client.cpu_ns.saturating_sub(client.pacing_ns);
            100.0 * (share(client_cpu, client.wall_ns) + share(server.cpu_ns, server.wall_ns))
        }),
        ops_per_s: over(&|client, _| 1e9 * share(client.ops, client.wall_ns)),
        cpu_us_per_op: over(&|_, server| share(server.cpu_ns, server.ops) / 1e3),
        sleeps_per_op: over(&|_, server| share(server.sleeps, server.ops)),
        samples: over(&|client, _| client.latency.samples as f64),
    }
}

/// A bar on a terminal, nothing elsewhere but the first line. It moves between measurements only,
/// since drawing takes a core from those who are measured.
struct Progress(ProgressBar);

impl Progress {
    fn new(steps: u64) -> Self {
        if io::stderr().is_terminal() {
            let style = ProgressStyle::with_template("{bar:30} {pos}/{len}  {msg}")
                .expect("the template is constant and valid");
            let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr());
            Self(bar.with_style(style))
        } else {
            eprintln!("adverb: {steps} measurements between two processes");
            Self(ProgressBar::hidden())
        }
    }

    fn say(&self, what: &str) {
        self.0.set_message(what.to_owned());
        self.0.tick();
    }

    fn step(&self) {
        self.0.inc(1);
    }

    fn finish(&self) {
        self.0.finish_and_clear();
    }
}

/// Bytes of a request and of a reply: half a cache line, as small remote procedure calls have.
const MESSAGE: usize = 32;
const WARM_SHARE: f64 = 0.15;
const WARM_AT_MOST: Duration = Duration::from_millis(100);
