//! Traces of arrivals.

use super::random::Random;

/// When messages arrive.
#[derive(Clone, Debug)]
pub struct Trace {
    /// Names it in tables.
    pub name: &'static str,
    /// From each message to the next, in ns; in a closed loop, from having handled one to the next.
    pub gaps: Vec<u64>,
    /// The other side sends only when it has been answered.
    pub closed: bool,
    /// How often what was true of the gaps stops being true.
    pub changes: u64,
}

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const MESSAGES: usize = 4_000;

/// All traces of the table.
#[must_use]
pub fn all() -> Vec<Trace> {
    let mut traces = vec![
        open("gap-30us", |_, _| 30 * US),
        open("gap-45us", |_, _| 45 * US),
        open("gap-100us", |_, _| 100 * US),
        open("gap-500us", |_, _| 500 * US),
        open("gap-1ms", |_, _| MS),
        open("jitter-1ms", |_, random| {
            random.between(950 * US, 1050 * US)
        }),
        open("jitter-100us", |_, random| {
            random.between(10 * US, 190 * US)
        }),
        open("poisson-20us", |_, random| random.exponential(20 * US)),
        open("poisson-60us", |_, random| random.exponential(60 * US)),
        open("poisson-200us", |_, random| random.exponential(200 * US)),
        open("poisson-1ms", |_, random| random.exponential(MS)),
        open("burst-16", |at, _| if at % 16 == 0 { MS } else { 5 * US }),
        open(
            "burst-256",
            |at, _| if at % 256 == 0 { 2 * MS } else { 5 * US },
        ),
        open(
            "burst-256-fast",
            |at, _| if at % 256 == 0 { 2 * MS } else { US },
        ),
        open("on-off", |_, random| match random.unit() < 1.0 / 16.0 {
            true => random.exponential(500 * US),
            false => random.exponential(3 * US),
        }),
        open("heavy-tail", |_, random| random.pareto(5 * US)),
        open(
            "alternating",
            |at, _| if at % 2 == 0 { 5 * US } else { 120 * US },
        ),
    ];
    let mut closed = open("closed-1", |_, random| random.between(2 * US, 4 * US));
    closed.closed = true;
    traces.push(closed);
    let mut misses = open("closed-misses", |_, random| match random.unit() < 0.1 {
        true => random.between(250 * US, 350 * US),
        false => random.between(2 * US, 4 * US),
    });
    misses.closed = true;
    traces.push(misses);
    // Eight stretches of 500 messages.
    let mut change = open("change", |at, random| match at / 500 % 4 {
        0 => 20 * US,
        1 => 500 * US,
        2 => random.exponential(60 * US),
        _ => 150 * US,
    });
    change.changes = 7;
    traces.push(change);
    let mut often = open("change-often", |at, _| match at / 20 % 2 {
        0 => 15 * US,
        _ => 300 * US,
    });
    often.changes = MESSAGES as u64 / 20 - 1;
    traces.push(often);
    traces
}

fn open(name: &'static str, gap: impl Fn(usize, &mut Random) -> u64) -> Trace {
    let mut random = Random::new(name.bytes().map(u64::from).sum());
    Trace {
        name,
        gaps: (0..MESSAGES).map(|at| gap(at, &mut random)).collect(),
        closed: false,
        changes: 0,
    }
}
