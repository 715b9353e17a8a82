//! `adverb compare`: every way to wait under every shape of traffic, round after round.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use anyhow::{Context as _, Result};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::measure::machine::Machine;
use crate::measure::ns;
use crate::measure::others::Others;
use crate::measure::stalls::Stalls;
use crate::measure::summary::{Latencies, median};
use crate::plan::ComparePlan;
use crate::report::{self, Cell, Comparison, StallFigures, advice};
use crate::shape::Shape;
use crate::traffic::control::{Outcome, Role, Run, Traffic, Waiting};
use crate::traffic::pair::Pair;
use crate::traffic::socket;
use crate::way::Way;

pub(crate) fn execute(plan: ComparePlan) -> Result<()> {
    let machine = Machine::measure()?;
    let mut pair = Pair::processes(&plan.links)?;
    let sockets = plan.ways.iter().any(|way| !way.is_verbs());
    let device = pair.connect(plan.device.as_deref(), MESSAGE, machine.chosen, sockets)?;
    let others = Others::watch(pair.process_ids());
    let measured = measure(&plan, &machine, &mut pair)?;
    let others_cpu_percent = others.and_then(|others| others.cpu_percent());
    drop(pair);
    let result = Comparison::new(&plan, machine, device, others_cpu_percent, measured);
    // Both are whole before either is written, and the files come first: a closed pipe on stdout must not cost them.
    let page = report::html::page(&result);
    if let Some(path) = &plan.json {
        report::json::write(path, &result)?;
    }
    if let Some(path) = &plan.html {
        std::fs::write(path, page).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let mut out = io::stdout().lock();
    report::text::comparison(&mut out, &result)?;
    out.flush()?;
    Ok(())
}

/// What was measured of one shape: the machine's stalls meanwhile, and each way, in the order of the plan.
struct Measured {
    stalls: Stalls,
    ways: Vec<Vec<(Outcome, Outcome)>>,
}

/// Rounds are the outer loop, so that a disturbance hits one round of several cells rather than
/// all rounds of one.
fn measure(plan: &ComparePlan, machine: &Machine, pair: &mut Pair) -> Result<Vec<Measured>> {
    let mut measured: Vec<_> = plan
        .shapes
        .iter()
        .map(|_| Measured {
            stalls: Stalls::default(),
            ways: vec![Vec::new(); plan.ways.len()],
        })
        .collect();
    let progress = Progress::new((plan.shapes.len() * plan.ways.len() * plan.rounds) as u64);
    for round in 1..=plan.rounds {
        for (shape, measured) in plan.shapes.iter().zip(&mut measured) {
            let time = plan.unit.mul_f64(shape.schedule.weight());
            progress.say(&format!(
                "the machine's own stalls, round {round} of {}",
                plan.rounds
            ));
            measured.stalls.watch(machine.chosen, time);
            for (way, outcomes) in plan.ways.iter().zip(&mut measured.ways) {
                progress.say(&format!(
                    "{} {way}, round {round} of {}",
                    shape.name, plan.rounds
                ));
                let warm = time.mul_f64(WARM_SHARE).min(WARM_AT_MOST);
                let run = Run {
                    role: Role::Client,
                    traffic: Traffic::Exchange(shape.schedule.clone()),
                    waiting: Waiting {
                        way: *way,
                        one_core: !machine.chosen.are_distinct(),
                    },
                    size: MESSAGE,
                    warm_ns: ns(warm),
                    time_ns: ns(time - warm),
                };
                let outcome = pair
                    .run(run)
                    .with_context(|| format!("{} {way}", shape.name))?;
                outcomes.push(outcome);
                progress.step();
            }
        }
    }
    progress.finish();
    Ok(measured)
}

impl Comparison {
    fn new(
        plan: &ComparePlan,
        machine: Machine,
        device: String,
        others_cpu_percent: Option<f64>,
        measured: Vec<Measured>,
    ) -> Self {
        let mut cells = Vec::new();
        let mut advice = Vec::new();
        let mut all = Stalls::default();
        for (shape, measured) in plan.shapes.iter().zip(measured) {
            let busy = plan.ways.iter().position(|way| *way == Way::Busy);
            let busy = busy.map(|at| measured.ways[at].as_slice());
            let of_shape: Vec<_> = plan
                .ways
                .iter()
                .zip(&measured.ways)
                .map(|(way, outcomes)| cell(shape, *way, outcomes, busy, &measured.stalls))
                .collect();
            advice.extend(advice::advise(shape, &of_shape, machine.wakeup_ns));
            cells.extend(of_shape);
            all.join(measured.stalls);
        }
        let command: Vec<_> = std::env::args().skip(1).collect();
        Self {
            format: report::FORMAT,
            caveats: machine.caveats(),
            stalls: StallFigures {
                percent: all.percent(),
                per_second_10us: all.per_second(Duration::from_micros(10)),
                per_second_1ms: all.per_second(Duration::from_millis(1)),
                longest_ns: all.longest_ns(),
            },
            machine,
            rounds: plan.rounds,
            others_cpu_percent,
            device,
            command: report::command_line(&command),
            shapes: plan
                .shapes
                .iter()
                .map(|shape| (shape.name.clone(), shape.schedule.meaning()))
                .collect(),
            ways: plan
                .ways
                .iter()
                .map(|way| (way.to_string(), way.meaning()))
                .collect(),
            cells,
            advice,
        }
    }
}

/// Percentiles are those of all rounds together; of the other figures, medians over the rounds.
fn cell(
    shape: &Shape,
    way: Way,
    outcomes: &[(Outcome, Outcome)],
    busy: Option<&[(Outcome, Outcome)]>,
    stalls: &Stalls,
) -> Cell {
    let each = |figure: &dyn Fn(&Outcome, &Outcome) -> f64| -> Vec<f64> {
        outcomes
            .iter()
            .map(|(client, server)| figure(client, server))
            .collect()
    };
    let over = |figure: &dyn Fn(&Outcome, &Outcome) -> f64| median(each(figure));
    let spread = |figure: &dyn Fn(&Outcome, &Outcome) -> f64| {
        let values = each(figure);
        let most = values.iter().copied().fold(f64::MIN, f64::max);
        let least = values.iter().copied().fold(f64::MAX, f64::min);
        (most - least) / 2.0
    };
    let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
    let mut latencies = Latencies::new();
    for (client, _) in outcomes {
        latencies.add(&client.counts);
    }
    let mean = |client: &Outcome, _: &Outcome| client.latency.mean_ns;
    let p50 = |client: &Outcome, _: &Outcome| client.latency.p50_ns;
    let cpu = |_: &Outcome, server: &Outcome| 100.0 * share(server.cpu_ns, server.wall_ns);
    let request_ns = over(&p50);
    Cell {
        shape: shape.name.clone(),
        way,
        model: way.to_string(),
        p50_ns: latencies.quantile(0.5).map(|_| request_ns),
        p50_spread_ns: spread(&p50),
        p99_ns: latencies.quantile(0.99),
        stall_p99_ns: stalls.p99_ns(request_ns),
        p999_ns: latencies.quantile(0.999),
        mean_ns: over(&mean),
        mean_spread_ns: spread(&mean),
        max_ns: outcomes
            .iter()
            .map(|(client, _)| client.latency.max_ns)
            .fold(0.0, f64::max),
        // Round by round, as the machine changes its mood from one to the next.
        added_mean_ns: busy.map(|busy| {
            let pairs = outcomes.iter().zip(busy);
            median(
                pairs
                    .map(|(own, busy)| own.0.latency.mean_ns - busy.0.latency.mean_ns)
                    .collect(),
            )
        }),
        cpu_percent: over(&cpu),
        cpu_spread_percent: spread(&cpu),
        pair_cpu_percent: over(&|client, server| {
            let client_cpu = client.cpu_ns.saturating_sub(client.pacing_ns);
            100.0 * (share(client_cpu, client.wall_ns) + share(server.cpu_ns, server.wall_ns))
        }),
        ops_per_s: over(&|client, _| 1e9 * share(client.ops, client.wall_ns)),
        cpu_us_per_op: over(&|_, server| share(server.cpu_ns, server.ops) / 1e3),
        sleeps_per_op: over(&|_, server| share(server.sleeps, server.ops)),
        samples: latencies.len(),
        quantiles: report::QUANTILES
            .iter()
            .filter_map(|&at| Some((at, latencies.quantile(at)?)))
            .collect(),
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
const MESSAGE: usize = socket::SIZE;
const WARM_SHARE: f64 = 0.15;
const WARM_AT_MOST: Duration = Duration::from_millis(300);
