//! Request and reply by SEND, closed loop or at fixed gaps, both sides waiting by the same model.
//!
//! The latency of a request counts from the moment it was due, not from when the client got round
//! to sending it, so a client that oversleeps does not look good. While nothing is in flight the
//! client looks at the clock until the next request is due, as timers are late by far more than a
//! latency; that time is counted apart (`pacing_ns`) and is nobody's waiting.

use std::collections::VecDeque;
use std::time::Instant;

use anyhow::{Result, ensure};

use super::control::{Outcome, Run};
use super::session::{Arrival, Mark, Session, WINDOW};
use super::wait::Waiter;
use crate::measure::summary::Latencies;
use crate::measure::{Lap, ns};

pub(crate) fn client(session: &mut Session, run: &Run, gap_ns: Option<u64>) -> Result<Outcome> {
    let mut client = Client {
        session,
        waiter: Waiter::new(run.waiting),
        size: run.size,
        gap_ns,
        window: if gap_ns.is_some() { WINDOW } else { 1 },
        due: VecDeque::with_capacity(WINDOW),
        arrivals: Vec::with_capacity(WINDOW),
        latencies: Latencies::new(),
        sequence: 0,
        expected: 0,
        pacing_ns: 0,
    };
    client.phase(run.warm_ns)?;
    mark(client.session, &mut client.waiter, Mark::Start)?;

    client.latencies = Latencies::new();
    client.pacing_ns = 0;
    let (first, sleeps) = (client.expected, client.waiter.sleeps());
    let lap = Lap::start();
    client.phase(run.time_ns)?;
    let (wall_ns, cpu_ns) = lap.read_ns();
    let sleeps = client.waiter.sleeps() - sleeps;
    mark(client.session, &mut client.waiter, Mark::Stop)?;
    Ok(Outcome {
        wall_ns,
        cpu_ns,
        pacing_ns: client.pacing_ns,
        ops: client.expected - first,
        sleeps,
        latency: client.latencies.summary(),
    })
}

/// Answers each message with one of the same content, until the client says stop.
pub(crate) fn server(session: &mut Session, run: &Run) -> Result<Outcome> {
    let mut waiter = Waiter::new(run.waiting);
    let mut arrivals: Vec<Arrival> = Vec::with_capacity(WINDOW);
    let mut replies = Vec::with_capacity(WINDOW);
    let mut measured: Option<(Lap, u64)> = None;
    let mut ops = 0;
    loop {
        session.poll(&mut arrivals)?;
        if arrivals.is_empty() {
            waiter.idle(session)?;
            continue;
        }
        waiter.found();
        for arrival in arrivals.drain(..) {
            match arrival.mark {
                None => replies.push(arrival.sequence),
                Some(Mark::Start) => {
                    session.send_mark(Mark::Start)?;
                    measured = Some((Lap::start(), waiter.sleeps()));
                    ops = 0;
                }
                Some(Mark::Stop) => {
                    let (lap, sleeps) = measured.unwrap_or_else(|| (Lap::start(), 0));
                    let (wall_ns, cpu_ns) = lap.read_ns();
                    session.send_mark(Mark::Stop)?;
                    return Ok(Outcome {
                        wall_ns,
                        cpu_ns,
                        ops,
                        sleeps: waiter.sleeps() - sleeps,
                        ..Outcome::default()
                    });
                }
            }
        }
        match replies.as_slice() {
            [] => {}
            [one] => session.send(*one, run.size)?,
            many => session.send_all(many, run.size)?,
        }
        ops += replies.len() as u64;
        replies.clear();
    }
}

/// Sends a mark and waits for its echo; nothing else is in flight.
pub(crate) fn mark(session: &mut Session, waiter: &mut Waiter, mark: Mark) -> Result<()> {
    session.send_mark(mark)?;
    await_mark(session, waiter, mark)
}

/// Waits for a mark; data that arrives before it is dropped.
pub(crate) fn await_mark(session: &mut Session, waiter: &mut Waiter, mark: Mark) -> Result<()> {
    let mut arrivals = Vec::with_capacity(WINDOW);
    loop {
        arrivals.clear();
        let polled = session.poll(&mut arrivals)?;
        if let Some(got) = arrivals.iter().find_map(|arrival| arrival.mark) {
            ensure!(
                got == mark,
                "the other side said {got:?} where {mark:?} was due"
            );
            waiter.found();
            return Ok(());
        }
        if polled.is_empty() {
            waiter.idle(session)?;
        } else {
            waiter.found();
        }
    }
}

struct Client<'a> {
    session: &'a mut Session,
    waiter: Waiter,
    size: usize,
    gap_ns: Option<u64>,
    window: usize,
    /// When the requests in flight were due, oldest first; replies keep the order.
    due: VecDeque<u64>,
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
        let mut next_due = 0;
        let mut quiet_since = Some(0);
        loop {
            let now = ns(start.elapsed());
            if now < time_ns {
                while next_due <= now && self.due.len() < self.window {
                    if let Some(since) = quiet_since.take() {
                        self.pacing_ns += now - since;
                    }
                    self.session.send(self.sequence, self.size)?;
                    self.sequence += 1;
                    // In a closed loop a request is due when it is sent.
                    let due = if self.gap_ns.is_some() { next_due } else { now };
                    self.due.push_back(due);
                    next_due = self.gap_ns.map_or(0, |gap| next_due + gap);
                }
            } else if self.due.is_empty() {
                self.pacing_ns += quiet_since.map_or(0, |since| now - since);
                return Ok(());
            }
            let polled = self.session.poll(&mut self.arrivals)?;
            if !self.arrivals.is_empty() {
                self.waiter.found();
                let now = ns(start.elapsed());
                self.take_replies(now)?;
                if self.due.is_empty() {
                    quiet_since = Some(now);
                }
            } else if !self.due.is_empty() && polled.is_empty() {
                self.waiter.idle(self.session)?;
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
