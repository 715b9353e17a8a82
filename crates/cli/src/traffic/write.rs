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
use super::session::{Mark, WINDOW};
use super::talk::{Talk as _, Verbs};
use crate::measure::summary::Latencies;
use crate::measure::{Lap, ns};
use crate::way::Way;

pub(crate) fn client(verbs: Verbs<'_>, run: &Run) -> Result<Outcome> {
    let mut side = Side::new(verbs, run);
    let mut latencies = Latencies::new();
    let mut round = 0;
    side.rounds(&mut round, run.warm_ns, &mut latencies)?;
    latencies = Latencies::new();
    let first = round;
    let (lap, sleeps) = (Lap::start(), side.verbs.sleeps());
    side.rounds(&mut round, run.time_ns, &mut latencies)?;
    let (wall_ns, cpu_ns) = lap.read_ns();
    mark(&mut side.verbs, Mark::Stop)?;
    Ok(Outcome {
        wall_ns,
        cpu_ns,
        ops: round - first,
        sleeps: side.verbs.sleeps() - sleeps,
        latency: latencies.summary(),
        ..Outcome::default()
    })
}

pub(crate) fn server(verbs: Verbs<'_>, run: &Run) -> Result<Outcome> {
    let mut side = Side::new(verbs, run);
    let (lap, sleeps) = (Lap::start(), side.verbs.sleeps());
    let mut round = 0;
    loop {
        round += 1;
        if !side.await_round(round)? {
            let (wall_ns, cpu_ns) = lap.read_ns();
            side.verbs.send_mark(Mark::Stop)?;
            return Ok(Outcome {
                wall_ns,
                cpu_ns,
                ops: round - 1,
                sleeps: side.verbs.sleeps() - sleeps,
                ..Outcome::default()
            });
        }
        side.write(round)?;
    }
}

struct Side<'a> {
    verbs: Verbs<'a>,
    size: usize,
    by_memory: bool,
    arrivals: Vec<super::session::Arrival>,
}

impl<'a> Side<'a> {
    fn new(verbs: Verbs<'a>, run: &Run) -> Self {
        Self {
            verbs,
            size: run.size,
            by_memory: run.waiting.way == Way::Busy,
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
        self.verbs
            .session
            .write_round(round, self.size, !self.by_memory)
    }

    /// False when the other side says stop instead.
    fn await_round(&mut self, round: u64) -> Result<bool> {
        loop {
            if self.by_memory && self.verbs.session.last_word_is(round, self.size)? {
                return Ok(true);
            }
            self.verbs.session.poll(&mut self.arrivals)?;
            let mut stop = false;
            let mut written = false;
            for arrival in self.arrivals.drain(..) {
                stop |= arrival.mark == Some(Mark::Stop);
                written |= arrival.mark.is_none();
            }
            if stop || written {
                return Ok(written);
            }
            self.verbs.idle()?;
        }
    }
}
