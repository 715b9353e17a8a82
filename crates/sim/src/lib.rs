//! Deterministic simulation of the transport.
//!
//! A *world* is 2 to 16 NICs made of the real engine, a wire that loses, damages, doubles and delays
//! packets, virtual time, and a random program of verbs on every node. An oracle knows what must come
//! of it. All of it follows from one seed, so a seed that fails fails again, this time with a trace.
#![forbid(unsafe_code)]

mod check;
mod draft;
pub mod duet;
mod end;
pub mod fabric;
mod life;
pub mod memory;
pub mod node;
mod oracle;
mod overrun;
mod poison;
mod profile;
mod program;
pub mod random;
pub mod trace;
mod window;
mod world;
mod xrc;

use std::panic::{AssertUnwindSafe, catch_unwind};

use trace::Trace;
use world::World;

pub use world::Stats;

/// A world that did not end as it should.
#[derive(Clone, Debug)]
pub struct Failure {
    pub seed: u64,
    /// What was violated.
    pub cause: String,
    /// The last things that happened.
    pub trace: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}seed {}: {}\nagain with SIM_SEED={} cargo test -p adverb-sim",
            self.trace, self.seed, self.cause, self.seed
        )
    }
}

/// Lines of a trace that are kept.
const TRACE: usize = 200;

/// Lives through the world of a seed. One that fails is lived through again to tell the story.
pub fn run_seed(seed: u64) -> Result<Stats, Failure> {
    live(seed, 0).map_err(|_| match live(seed, TRACE) {
        Err(failure) => failure,
        Ok(_) => Failure {
            seed,
            cause: "failed once, but not again: the simulation is not deterministic".into(),
            trace: String::new(),
        },
    })
}

fn live(seed: u64, keep: usize) -> Result<Stats, Failure> {
    let mut world = None;
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        world.insert(World::new(seed, Trace::keeping(keep))).run()
    }));
    outcome.map_err(|cause| {
        let text = cause
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| cause.downcast_ref::<&str>().copied());
        Failure {
            seed,
            cause: text.unwrap_or("a panic without words").to_owned(),
            trace: world.as_ref().map(|w| w.trace.text()).unwrap_or_default(),
        }
    })
}

/// The seeds of a run: `first` gives the same worlds again.
pub const fn seed_of(first: u64, n: u64) -> u64 {
    random::Random::new(first.wrapping_add(n)).next() >> 16
}
