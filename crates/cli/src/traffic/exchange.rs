//! Request and reply, closed loop or as a schedule has it, both sides waiting in the same way.
//!
//! The latency of a request counts from the moment it was due, not from when the client got round
//! to sending it, so a client that oversleeps does not look good. While nothing is in flight the
//! client looks at the clock until the next request is due, as timers are late by far more than a
//! latency; that time is counted apart (`pacing_ns`) and is nobody's waiting.

use std::collections::VecDeque;
use std::time::Instant;

use anyhow::{Result, ensure};

use super::control::{Outcome, Run};
use super::session::{Arrival, Mark, WINDOW};
use super::talk::Talk;
use crate::measure::summary::Latencies;
use crate::measure::{Lap, ns};
use crate::shape::{Gaps, Schedule};
use crate::way::Way;

pub(crate) fn client(talk: &mut dyn Talk, run: &Run, schedule: &Schedule) -> Result<Outcome> {
    let mut client = Client {
        talk,
        size: run.size,
        schedule,
        window: schedule.window(WINDOW),
        due: VecDeque::with_capacity(WINDOW),
        ready: Vec::with_capacity(WINDOW),
        arrivals: Vec::with_capacity(WINDOW),
        latencies: Latencies::new(),
        sequence: 0,
        expected: 0,
        pacing_ns: 0,
    };
    client.phase(run.warm_ns)?;
    mark(client.talk, Mark::Start)?;

    client.latencies = Latencies::new();
    client.pacing_ns = 0;
    let (first, sleeps) = (client.expected, client.talk.sleeps());
    let lap = Lap::start();
    client.phase(run.time_ns)?;
    let (wall_ns, cpu_ns) = lap.read_ns();
    let sleeps = client.talk.sleeps() - sleeps;
    mark(client.talk, Mark::Stop)?;
    Ok(Outcome {
        wall_ns,
        cpu_ns,
        pacing_ns: client.pacing_ns,
        ops: client.expected - first,
        sleeps,
        latency: client.latencies.summary(),
        counts: client.latencies.counts(),
    })
}

/// Answers each message with one of the same content, until the client says stop.
pub(crate) fn server(talk: &mut dyn Talk, run: &Run) -> Result<Outcome> {
    let one_by_one = run.waiting.way == Way::Event;
    let mut arrivals: Vec<Arrival> = Vec::with_capacity(WINDOW);
    let mut replies = Vec::with_capacity(WINDOW);
    let mut measured: Option<(Lap, u64)> = None;
    let mut ops = 0;
    loop {
        talk.poll(&mut arrivals)?;
        if arrivals.is_empty() {
            talk.idle()?;
            continue;
        }
        for arrival in arrivals.drain(..) {
            match arrival.mark {
                None => replies.push(arrival.sequence),
                Some(Mark::Start) => {
                    talk.send_mark(Mark::Start)?;
                    measured = Some((Lap::start(), talk.sleeps()));
                    ops = 0;
                }
                Some(Mark::Stop) => {
                    let (lap, sleeps) = measured.unwrap_or_else(|| (Lap::start(), 0));
                    let (wall_ns, cpu_ns) = lap.read_ns();
                    talk.send_mark(Mark::Stop)?;
                    return Ok(Outcome {
                        wall_ns,
                        cpu_ns,
                        ops,
                        sleeps: talk.sleeps() - sleeps,
                        ..Outcome::default()
                    });
                }
            }
        }
        match replies.as_slice() {
            many if one_by_one => {
                for &one in many {
                    talk.send(one, run.size)?;
                }
            }
            [] => {}
            [one] => talk.send(*one, run.size)?,
            many => talk.send_all(many, run.size)?,
        }
        ops += replies.len() as u64;
        replies.clear();
    }
}

/// Sends a mark and waits for its echo; nothing else is in flight.
pub(crate) fn mark(talk: &mut dyn Talk, mark: Mark) -> Result<()> {
    talk.send_mark(mark)?;
    await_mark(talk, mark)
}

/// Waits for a mark; data that arrives before it is dropped.
pub(crate) fn await_mark(talk: &mut dyn Talk, mark: Mark) -> Result<()> {
    let mut arrivals = Vec::with_capacity(WINDOW);
    loop {
        arrivals.clear();
        let any = talk.poll(&mut arrivals)?;
        if let Some(got) = arrivals.iter().find_map(|arrival| arrival.mark) {
            ensure!(
                got == mark,
                "the other side said {got:?} where {mark:?} was due"
            );
            return Ok(());
        }
        if !any {
            talk.idle()?;
        }
    }
}

struct Client<'a> {
    talk: &'a mut dyn Talk,
    size: usize,
    schedule: &'a Schedule,
    window: usize,
    /// When the requests in flight were due, oldest first; replies keep the order.
    due: VecDeque<u64>,
    /// Numbers of requests that are due now.
    ready: Vec<u64>,
    arrivals: Vec<Arrival>,
    latencies: Latencies,
    /// Number of the next request, and of the next reply.
    sequence: u64,
    expected: u64,
    pacing_ns: u64,
}

impl Client<'_> {
    /// Sends for so long, and waits for the last reply.
    fn phase(&mut self, time_ns: u64) -> Result<()> {
        let start = Instant::now();
        let mut gaps = Gaps::new(self.schedule);
        let closed = self.schedule.mean_gap_ns().is_none();
        let mut next_due = 0;
        let mut quiet_since = Some(0);
        loop {
            let now = ns(start.elapsed());
            if now < time_ns {
                while next_due <= now && self.due.len() < self.window {
                    if let Some(since) = quiet_since.take() {
                        self.pacing_ns += now - since;
                    }
                    self.ready.push(self.sequence);
                    self.sequence += 1;
                    // In a closed loop a request is due when it is sent.
                    self.due.push_back(if closed { now } else { next_due });
                    next_due += gaps.next();
                }
                match self.ready.as_slice() {
                    [] => {}
                    [one] => self.talk.send(*one, self.size)?,
                    many => self.talk.send_all(many, self.size)?,
                }
                self.ready.clear();
            } else if self.due.is_empty() {
                self.pacing_ns += quiet_since.map_or(0, |since| now - since);
                return Ok(());
            }
            let any = self.talk.poll(&mut self.arrivals)?;
            if !self.arrivals.is_empty() {
                let now = ns(start.elapsed());
                self.take_replies(now)?;
                if self.due.is_empty() {
                    quiet_since = Some(now);
                }
            } else if !self.due.is_empty() && !any {
                self.talk.idle()?;
            }
        }
    }

    fn take_replies(&mut self, now: u64) -> Result<()> {
        for reply in self.arrivals.drain(..) {
            let due = self.due.pop_front();
            let in_order = reply.mark.is_none() && reply.sequence_matches(self.expected);
            let Some(due) = due.filter(|_| in_order) else {
                anyhow::bail!(
                    "reply {reply:?} came where number {} was due",
                    self.expected
                );
            };
            self.expected += 1;
            self.latencies.record(now.saturating_sub(due));
        }
        Ok(())
    }
}
