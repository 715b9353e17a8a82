//! `adverb bench --targets`: what the data path is held to. Each line stands beside its limit or its peer, measured in
//! turns with it, so that a machine that changes its mood changes both.
//!
//! A new line is a new entry of [`TARGETS`].

use std::io::{self, Write as _};

use anyhow::{Context as _, Result};

use crate::args::{Link, Model};
use crate::measure::machine::Machine;
use crate::measure::summary::median;
use crate::measure::{limits, ns, ucx};
use crate::plan::TargetsPlan;
use crate::report::targets::{self, Target, Targets, Unit};
use crate::report::{self};
use crate::shape::Schedule;
use crate::traffic::control::{Outcome, Role, Run, StreamOp, Traffic, Waiting};
use crate::traffic::pair::Pair;
use crate::traffic::session::{MAX_READS, stream_window};

/// Ours and the other's are measured so often, in turns; the medians count.
const PAIRS: usize = 7;

/// What of ours is measured.
#[derive(Clone, Copy)]
struct Ours {
    link: Link,
    wait: Model,
    kind: Kind,
    size: usize,
}

#[derive(Clone, Copy)]
enum Kind {
    SendLatency,
    Stream(StreamOp),
    /// Messages a second of a stream of SENDs, posted one by one.
    Rate,
}

/// What stands beside it.
#[derive(Clone, Copy)]
enum Yard {
    TwoCopyStream,
    UdpHop,
    Wakeup,
    Ucx(ucx::Test),
    /// Another figure of ours.
    Ours(&'static str, Ours),
}

#[derive(Clone, Copy)]
enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

struct Line {
    name: &'static str,
    ours: Ours,
    /// The best of them counts.
    yards: &'static [Yard],
    bound: Bound,
}

const fn busy(link: Link, kind: Kind, size: usize) -> Ours {
    Ours {
        link,
        wait: Model::Busy,
        kind,
        size,
    }
}

const fn shm(op: StreamOp, size: usize) -> Ours {
    busy(Link::Shm, Kind::Stream(op), size)
}

const fn ucx(transport: ucx::Transport, name: &'static str, size: usize, iterations: u32) -> Yard {
    Yard::Ucx(ucx::Test {
        transport,
        name,
        size,
        iterations,
    })
}

const K64: usize = 64 << 10;
const M1: usize = 1 << 20;
const SEND_UDP: Ours = busy(Link::Udp, Kind::SendLatency, 8);
const STREAM_64K: &[Yard] = &[
    Yard::TwoCopyStream,
    ucx(ucx::Transport::Posix, "tag_bw", K64, 20_000),
];
const STREAM_1M: &[Yard] = &[
    Yard::TwoCopyStream,
    ucx(ucx::Transport::Posix, "tag_bw", M1, 2_000),
];

const TARGETS: &[Line] = &[
    Line {
        name: "send latency, shm, 8 B",
        ours: busy(Link::Shm, Kind::SendLatency, 8),
        yards: &[ucx(ucx::Transport::Posix, "tag_lat", 8, 200_000)],
        bound: Bound::AtMost(2.5),
    },
    Line {
        name: "message rate, shm, 8 B, one by one",
        ours: busy(Link::Shm, Kind::Rate, 8),
        yards: &[ucx(ucx::Transport::Posix, "tag_bw", 8, 1_000_000)],
        bound: Bound::AtLeast(0.25),
    },
    Line {
        name: "write stream, shm, 64 KiB",
        ours: shm(StreamOp::Write, K64),
        yards: STREAM_64K,
        bound: Bound::AtLeast(0.9),
    },
    Line {
        name: "write stream, shm, 1 MiB",
        ours: shm(StreamOp::Write, M1),
        yards: STREAM_1M,
        bound: Bound::AtLeast(0.9),
    },
    Line {
        name: "send stream, shm, 64 KiB",
        ours: shm(StreamOp::Send, K64),
        yards: STREAM_64K,
        bound: Bound::AtLeast(0.9),
    },
    Line {
        name: "send stream, shm, 1 MiB",
        ours: shm(StreamOp::Send, M1),
        yards: STREAM_1M,
        bound: Bound::AtLeast(0.9),
    },
    Line {
        name: "read stream, shm, 64 KiB",
        ours: shm(StreamOp::Read, K64),
        yards: &[Yard::Ours("write stream", shm(StreamOp::Write, K64))],
        bound: Bound::AtLeast(0.8),
    },
    Line {
        name: "send latency, udp, 8 B",
        ours: SEND_UDP,
        yards: &[Yard::UdpHop],
        bound: Bound::AtMost(1.5),
    },
    Line {
        name: "send latency, udp, 8 B, beside TCP",
        ours: SEND_UDP,
        yards: &[ucx(ucx::Transport::Tcp, "tag_lat", 8, 20_000)],
        bound: Bound::AtMost(1.0),
    },
    Line {
        name: "send latency, shm, 8 B, by events",
        ours: Ours {
            wait: Model::Event,
            ..busy(Link::Shm, Kind::SendLatency, 8)
        },
        yards: &[Yard::Wakeup],
        bound: Bound::AtMost(1.15),
    },
];

pub(crate) fn execute(plan: TargetsPlan) -> Result<()> {
    let machine = Machine::measure()?;
    let mut targets = Vec::new();
    for line in TARGETS {
        let target = measure(line, &plan, &machine).with_context(|| line.name)?;
        targets.push(target);
    }
    let result = Targets {
        machine,
        pairs: PAIRS,
        targets,
    };
    if let Some(path) = &plan.json {
        report::json::write(path, &result)?;
    }
    let mut out = io::stdout().lock();
    targets::table(&mut out, &result)?;
    out.flush()?;
    Ok(())
}

fn measure(line: &Line, plan: &TargetsPlan, machine: &Machine) -> Result<Target> {
    let yards: Vec<Yard> = line
        .yards
        .iter()
        .copied()
        .filter(|yard| !matches!(yard, Yard::Ucx(_)) || ucx::is_installed())
        .collect();
    let mut figures = Vec::new();
    let mut others = vec![Vec::new(); yards.len()];
    for _ in 0..PAIRS {
        figures.push(figure(line.ours, plan, machine)?);
        for (yard, values) in yards.iter().zip(&mut others) {
            values.push(beside(*yard, line.ours, plan, machine)?);
        }
    }
    let at_most = matches!(line.bound, Bound::AtMost(_));
    let better = |a: &f64, b: &f64| {
        if at_most {
            b.total_cmp(a)
        } else {
            a.total_cmp(b)
        }
    };
    // Of several, the one that is hardest to follow.
    let best = yards
        .iter()
        .zip(others)
        .max_by(|(_, a), (_, b)| better(&median(a.clone()), &median(b.clone())));
    let ratio = best.as_ref().map(|(_, values)| {
        median(
            figures
                .iter()
                .zip(values)
                .map(|(ours, other)| ours / other)
                .collect(),
        )
    });
    let (target, met) = match line.bound {
        Bound::AtMost(most) => (format!("<= {most}"), ratio.map(|ratio| ratio <= most)),
        Bound::AtLeast(least) => (format!(">= {least}"), ratio.map(|ratio| ratio >= least)),
    };
    Ok(Target {
        name: line.name,
        figure: median(figures),
        unit: unit(line.ours.kind),
        against: best.map(|(yard, values)| targets::Against {
            name: yard_name(*yard),
            value: median(values),
        }),
        ratio,
        target,
        met,
    })
}

const fn unit(kind: Kind) -> Unit {
    match kind {
        Kind::SendLatency => Unit::Ns,
        Kind::Stream(_) => Unit::GbPerS,
        Kind::Rate => Unit::MsgsPerS,
    }
}

fn yard_name(yard: Yard) -> &'static str {
    match yard {
        Yard::TwoCopyStream => "two-copy memory stream",
        Yard::UdpHop => "UDP hop on lo",
        Yard::Wakeup => "wake-up by eventfd",
        Yard::Ours(name, _) => name,
        Yard::Ucx(test) => match test.transport {
            ucx::Transport::Posix => "UCX posix",
            ucx::Transport::Tcp => "UCX over TCP",
        },
    }
}

fn beside(yard: Yard, ours: Ours, plan: &TargetsPlan, machine: &Machine) -> Result<f64> {
    let cores = machine.chosen;
    Ok(match yard {
        Yard::TwoCopyStream => limits::two_copy_stream_gb_per_s(cores),
        Yard::UdpHop => limits::udp_hop_ns(cores)?,
        Yard::Wakeup => limits::wakeup_ns(cores)?,
        Yard::Ours(_, other) => figure(other, plan, machine)?,
        Yard::Ucx(test) => {
            let figures = ucx::measure(test, cores)?;
            match unit(ours.kind) {
                Unit::Ns => figures.latency_ns,
                Unit::GbPerS => figures.gb_per_s,
                Unit::MsgsPerS => figures.msgs_per_s,
            }
        }
    })
}

/// One measurement of ours, with two new processes: while peers are measured, nobody of ours spins.
fn figure(ours: Ours, plan: &TargetsPlan, machine: &Machine) -> Result<f64> {
    let mut pair = Pair::processes(&[ours.link])?;
    pair.connect(plan.device.as_deref(), ours.size, machine.chosen, false)?;
    let stream = |op| {
        let window = stream_window(ours.size);
        let window = match op {
            StreamOp::Read | StreamOp::FetchAdd => window.min(MAX_READS),
            StreamOp::Send | StreamOp::Write => window,
        };
        Traffic::Stream { op, window }
    };
    let (client, _) = pair.run(Run {
        role: Role::Client,
        traffic: match ours.kind {
            Kind::SendLatency => Traffic::Exchange(Schedule::Closed { in_flight: 1 }),
            Kind::Stream(op) => stream(op),
            Kind::Rate => stream(StreamOp::Send),
        },
        waiting: Waiting {
            way: ours.wait.way(),
            one_core: !machine.chosen.are_distinct(),
        },
        size: ours.size,
        warm_ns: ns(plan.time.mul_f64(0.1)),
        time_ns: ns(plan.time),
    })?;
    Ok(value(ours, &client))
}

fn value(ours: Ours, client: &Outcome) -> f64 {
    let per_s = client.ops as f64 / (client.wall_ns.max(1) as f64 / 1e9);
    match unit(ours.kind) {
        Unit::Ns => client.latency.halved().p50_ns,
        Unit::GbPerS => per_s * ours.size as f64 / 1e9,
        Unit::MsgsPerS => per_s,
    }
}
