//! Operations of the client with a window of them in flight: bandwidth, and with a window of one
//! the latency of READ and atomics, which need nothing of the other side's program.

use std::collections::VecDeque;
use std::time::Instant;

use anyhow::Result;

use super::control::{Outcome, Run, StreamOp};
use super::exchange::{await_mark, mark};
use super::session::{Mark, Session, WINDOW};
use super::wait::Waiter;
use crate::measure::summary::Latencies;
use crate::measure::{Lap, ns};

pub(crate) fn client(
    session: &mut Session,
    run: &Run,
    op: StreamOp,
    window: usize,
) -> Result<Outcome> {
    let mut waiter = Waiter::new(run.waiting);
    let mut latencies = Latencies::new();
    phase(
        session,
        &mut waiter,
        run,
        op,
        window,
        run.warm_ns,
        &mut latencies,
    )?;
    mark(session, &mut waiter, Mark::Start)?;

    latencies = Latencies::new();
    let lap = Lap::start();
    let ops = phase(
        session,
        &mut waiter,
        run,
        op,
        window,
        run.time_ns,
        &mut latencies,
    )?;
    let (wall_ns, cpu_ns) = lap.read_ns();
    mark(session, &mut waiter, Mark::Stop)?;
    Ok(Outcome {
        wall_ns,
        cpu_ns,
        ops,
        sleeps: waiter.sleeps(),
        latency: latencies.summary(),
        ..Outcome::default()
    })
}

/// Receives what is sent, and waits for the end by the same model as the client; polling or
/// sleeping there is what serves the client's operations.
pub(crate) fn server(session: &mut Session, run: &Run) -> Result<Outcome> {
    let mut waiter = Waiter::new(run.waiting);
    await_mark(session, &mut waiter, Mark::Start)?;
    session.send_mark(Mark::Start)?;
    let (lap, sleeps) = (Lap::start(), waiter.sleeps());
    await_mark(session, &mut waiter, Mark::Stop)?;
    let (wall_ns, cpu_ns) = lap.read_ns();
    session.send_mark(Mark::Stop)?;
    Ok(Outcome {
        wall_ns,
        cpu_ns,
        sleeps: waiter.sleeps() - sleeps,
        ..Outcome::default()
    })
}

/// Keeps the window full for so long, then lets it run empty. Returns how many finished.
fn phase(
    session: &mut Session,
    waiter: &mut Waiter,
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
                session.post(op, run.size)?;
                posted_at.push_back(now);
            }
        } else if posted_at.is_empty() {
            return Ok(ops);
        }
        let polled = session.poll(&mut arrivals)?;
        arrivals.clear();
        if polled.is_empty() {
            waiter.idle(session)?;
            continue;
        }
        waiter.found();
        let now = ns(start.elapsed());
        for at in posted_at.drain(..polled.finished.min(posted_at.len())) {
            latencies.record(now - at);
            ops += 1;
        }
    }
}
