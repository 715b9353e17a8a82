//! Operations of the client with a window of them in flight: bandwidth, and with a window of one
//! the latency of READ and atomics, which need nothing of the other side's program.

use std::collections::VecDeque;
use std::time::Instant;

use anyhow::Result;

use super::control::{Outcome, Run, StreamOp};
use super::exchange::{await_mark, mark};
use super::session::{Mark, WINDOW};
use super::talk::{Talk as _, Verbs};
use crate::measure::summary::Latencies;
use crate::measure::{Lap, ns};

pub(crate) fn client(
    mut verbs: Verbs<'_>,
    run: &Run,
    op: StreamOp,
    window: usize,
) -> Result<Outcome> {
    let mut latencies = Latencies::new();
    phase(&mut verbs, run, op, window, run.warm_ns, &mut latencies)?;
    mark(&mut verbs, Mark::Start)?;

    latencies = Latencies::new();
    let (lap, sleeps) = (Lap::start(), verbs.sleeps());
    let ops = phase(&mut verbs, run, op, window, run.time_ns, &mut latencies)?;
    let (wall_ns, cpu_ns) = lap.read_ns();
    mark(&mut verbs, Mark::Stop)?;
    Ok(Outcome {
        wall_ns,
        cpu_ns,
        ops,
        sleeps: verbs.sleeps() - sleeps,
        latency: latencies.summary(),
        ..Outcome::default()
    })
}

/// Receives what is sent, and waits for the end by the same model as the client; polling or
/// sleeping there is what serves the client's operations.
pub(crate) fn server(mut verbs: Verbs<'_>) -> Result<Outcome> {
    await_mark(&mut verbs, Mark::Start)?;
    verbs.send_mark(Mark::Start)?;
    let (lap, sleeps) = (Lap::start(), verbs.sleeps());
    await_mark(&mut verbs, Mark::Stop)?;
    let (wall_ns, cpu_ns) = lap.read_ns();
    verbs.send_mark(Mark::Stop)?;
    Ok(Outcome {
        wall_ns,
        cpu_ns,
        sleeps: verbs.sleeps() - sleeps,
        ..Outcome::default()
    })
}

/// Keeps the window full for so long, then lets it run empty. Returns how many finished.
fn phase(
    verbs: &mut Verbs<'_>,
    run: &Run,
    op: StreamOp,
    window: usize,
    time_ns: u64,
    latencies: &mut Latencies,
) -> Result<u64> {
    let start = Instant::now();
    let mut posted_at = VecDeque::with_capacity(window);
    let mut arrivals = Vec::with_capacity(WINDOW);
    let mut ops = 0;
    loop {
        let now = ns(start.elapsed());
        if now < time_ns {
            while posted_at.len() < window {
                verbs.session.post(op, run.size)?;
                posted_at.push_back(now);
            }
        } else if posted_at.is_empty() {
            return Ok(ops);
        }
        let polled = verbs.session.poll(&mut arrivals)?;
        arrivals.clear();
        if polled.is_empty() {
            verbs.idle()?;
            continue;
        }
        let now = ns(start.elapsed());
        for at in posted_at.drain(..polled.finished.min(posted_at.len())) {
            latencies.record(now - at);
            ops += 1;
        }
    }
}
