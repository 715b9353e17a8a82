//! `adverb bench`: one operation after the other, with the machine's own limit beside each.

use std::io::{self, Write as _};

use anyhow::{Context as _, Result};

use crate::args::{Link, Model, Test};
use crate::measure::limits;
use crate::measure::machine::Machine;
use crate::measure::ns;
use crate::plan::{BenchPlan, BenchRun};
use crate::report::{self, Figure, Figures, Limit};
use crate::shape::Schedule;
use crate::traffic::control::{Outcome, Role, Run, StreamOp, Traffic, Waiting};
use crate::traffic::pair::Pair;
use crate::traffic::session::{MAX_READS, stream_window};

pub(crate) fn execute(plan: BenchPlan) -> Result<()> {
    let machine = Machine::measure()?;
    let limits = Limits::measure(&plan, &machine)?;
    let mut device = String::new();
    let mut results = Vec::new();
    for run in &plan.runs {
        let context = || format!("{} over {}, waiting {}", run.test, run.link, run.wait);
        let (name, outcomes) = measure(&plan, run, &machine).with_context(context)?;
        device = name;
        results.push(figure(run, outcomes, limits.of(run, &machine)));
    }
    let result = Figures {
        machine,
        device,
        results,
    };
    if let Some(path) = &plan.json {
        report::json::write(path, &result)?;
    }
    let mut out = io::stdout().lock();
    report::text::figures(&mut out, &result)?;
    out.flush()?;
    Ok(())
}

fn measure(
    plan: &BenchPlan,
    run: &BenchRun,
    machine: &Machine,
) -> Result<(String, (Outcome, Outcome))> {
    let mut pair = match run.link {
        Link::Loopback => Pair::threads()?,
        link => Pair::processes(&[link])?,
    };
    let device = pair.connect(plan.device.as_deref(), run.size, machine.chosen, false)?;
    let outcomes = pair.run(Run {
        role: Role::Client,
        traffic: traffic(run),
        waiting: Waiting {
            way: run.wait.way(),
            one_core: !machine.chosen.are_distinct(),
        },
        size: run.size,
        warm_ns: ns(plan.time.mul_f64(0.1)),
        time_ns: ns(plan.time),
    })?;
    Ok((device, outcomes))
}

fn traffic(run: &BenchRun) -> Traffic {
    let stream = |op, window| Traffic::Stream { op, window };
    let window = stream_window(run.size);
    match run.test {
        Test::SendLat => Traffic::Exchange(Schedule::Closed { in_flight: 1 }),
        Test::WriteLat => Traffic::WritePingPong,
        Test::ReadLat => stream(StreamOp::Read, 1),
        Test::AtomicLat => stream(StreamOp::FetchAdd, 1),
        Test::SendBw => stream(StreamOp::Send, window),
        Test::WriteBw => stream(StreamOp::Write, window),
        Test::ReadBw => stream(StreamOp::Read, window.min(MAX_READS)),
        Test::AtomicBw => stream(StreamOp::FetchAdd, MAX_READS),
    }
}

fn figure(run: &BenchRun, (client, server): (Outcome, Outcome), limit: Limit) -> Figure {
    let cpu = |side: &Outcome| 100.0 * side.cpu_ns as f64 / side.wall_ns.max(1) as f64;
    let mut figure = Figure {
        test: run.test,
        link: run.link,
        wait: run.wait,
        size: run.size,
        p50_ns: None,
        p99_ns: None,
        min_ns: None,
        gb_per_s: None,
        msgs_per_s: None,
        limit,
        ratio: 0.0,
        client_cpu_percent: cpu(&client),
        server_cpu_percent: cpu(&server),
    };
    if is_latency(run.test) {
        let one_way = client.latency.halved();
        figure.p50_ns = Some(one_way.p50_ns);
        figure.p99_ns = Some(one_way.p99_ns);
        figure.min_ns = Some(one_way.min_ns);
        figure.ratio = one_way.p50_ns / limit.value;
    } else {
        let per_s = client.ops as f64 / (client.wall_ns.max(1) as f64 / 1e9);
        let gb_per_s = per_s * run.size as f64 / 1e9;
        figure.msgs_per_s = Some(per_s);
        figure.gb_per_s = Some(gb_per_s);
        figure.ratio = gb_per_s / limit.value;
    }
    figure
}

/// The yardsticks that the runs need, measured once.
struct Limits {
    stream: Option<f64>,
    udp_hop: Option<f64>,
}

impl Limits {
    fn measure(plan: &BenchPlan, machine: &Machine) -> Result<Self> {
        let any = |wanted: &dyn Fn(&BenchRun) -> bool| plan.runs.iter().any(wanted);
        let stream = any(&|run| !is_latency(run.test))
            .then(|| limits::two_copy_stream_gb_per_s(machine.chosen));
        let udp_hop =
            any(&|run| is_latency(run.test) && run.link == Link::Udp && run.wait != Model::Event)
                .then(|| limits::udp_hop_ns(machine.chosen))
                .transpose()
                .context("cannot measure UDP on the loopback interface")?;
        Ok(Self { stream, udp_hop })
    }

    /// Bandwidth: a stream that is copied twice. Latency: a wake-up for who sleeps, a hop of a
    /// cache line or of a UDP datagram for who looks.
    fn of(&self, run: &BenchRun, machine: &Machine) -> Limit {
        let limit = |name, value| Limit { name, value };
        match (is_latency(run.test), self.stream, self.udp_hop) {
            (false, Some(stream), _) => limit("two-copy memory stream", stream),
            (true, _, _) if run.wait == Model::Event => {
                limit("wake-up by eventfd", machine.wakeup_ns)
            }
            (true, _, Some(hop)) if run.link == Link::Udp => limit("UDP hop on lo", hop),
            _ => limit("shared line hop", machine.hop_ns),
        }
    }
}

fn is_latency(test: Test) -> bool {
    matches!(
        test,
        Test::SendLat | Test::WriteLat | Test::ReadLat | Test::AtomicLat
    )
}
