//! Ping-pong by RDMA WRITE.
//!
//! Under busy polling each side looks at the last word of its memory, as programs on RDMA do, and
//! polls its CQ in between, which is what moves a software NIC. A process that sleeps needs an
//! event, and a plain WRITE raises none: under the other models each WRITE carries immediate data.
//! A session does this once: the rounds count up from the zero that its memory starts with.

use std::time::Instant;

use anyhow::Result;

use super::control::{Outcome, Run};
use super::exchange::mark;
use super::session::{Mark, Session, WINDOW};
use super::wait::Waiter;
use crate::args::Model;
use crate::measure::summary::Latencies;
use crate::measure::{Lap, ns};

pub(crate) fn client(session: &mut Session, run: &Run) -> Result<Outcome> {
    let mut side = Side::new(session, run);
    let mut latencies = Latencies::new();
    let mut round = 0;
    side.rounds(&mut round, run.warm_ns, &mut latencies)?;
    latencies = Latencies::new();
    let first = round;
    let lap = Lap::start();
    side.rounds(&mut round, run.time_ns, &mut latencies)?;
    let (wall_ns, cpu_ns) = lap.read_ns();
    mark(side.session, &mut side.waiter, Mark::Stop)?;
    Ok(Outcome {
        wall_ns,
        cpu_ns,
        ops: round - first,
        sleeps: side.waiter.sleeps(),
        latency: latencies.summary(),
        ..Outcome::default()
    })
}

pub(crate) fn server(session: &mut Session, run: &Run) -> Result<Outcome> {
    let mut side = Side::new(session, run);
    let lap = Lap::start();
    let mut round = 0;
    loop {
        round += 1;
        if !side.await_round(round)? {
            let (wall_ns, cpu_ns) = lap.read_ns();
            side.session.send_mark(Mark::Stop)?;
            return Ok(Outcome {
                wall_ns,
                cpu_ns,
                ops: round - 1,
                sleeps: side.waiter.sleeps(),
                ..Outcome::default()
            });
        }
        side.write(round)?;
    }
}

struct Side<'a> {
    session: &'a mut Session,
    waiter: Waiter,
    size: usize,
    by_memory: bool,
    arrivals: Vec<super::session::Arrival>,
}

impl<'a> Side<'a> {
    fn new(session: &'a mut Session, run: &Run) -> Self {
        Self {
            session,
            waiter: Waiter::new(run.waiting),
            size: run.size,
            by_memory: run.waiting.model == Model::Busy,
            arrivals: Vec::with_capacity(WINDOW),
        }
    }

    fn rounds(&mut self, round: &mut u64, time_ns: u64, latencies: &mut Latencies) -> Result<()> {
        let start = Instant::now();
        let mut sent = 0;
        while sent < time_ns {
            *round += 1;
            self.write(*round)?;
            anyhow::ensure!(self.await_round(*round)?, "the other side stopped early");
            let now = ns(start.elapsed());
            latencies.record(now - sent);
            sent = now;
        }
        Ok(())
    }

    fn write(&mut self, round: u64) -> Result<()> {
        self.session.write_round(round, self.size, !self.by_memory)
    }

    /// False when the other side says stop instead.
    fn await_round(&mut self, round: u64) -> Result<bool> {
        loop {
            if self.by_memory && self.session.last_word_is(round, self.size)? {
                return Ok(true);
            }
            self.session.poll(&mut self.arrivals)?;
            let mut stop = false;
            let mut written = false;
            for arrival in self.arrivals.drain(..) {
                stop |= arrival.mark == Some(Mark::Stop);
                written |= arrival.mark.is_none();
            }
            if stop || written {
                self.waiter.found();
                return Ok(written);
            }
            self.waiter.idle(self.session)?;
        }
    }
}
