//! Random worlds for a few seconds, or one seed for as long as it takes.
#![expect(
    clippy::disallowed_methods,
    reason = "the clock bounds the run, it does not enter the worlds"
)]

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use adverb_sim::{Stats, run_seed, seed_of};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn random_worlds_end_as_the_oracle_says() {
    if let Some(seed) = number("SIM_SEED") {
        match run_seed(seed) {
            Ok(stats) => println!("seed {seed}: {stats:?}"),
            Err(failure) => panic!("{failure}"),
        }
        return;
    }
    let seconds = number("ADVERB_SIM_SECONDS").unwrap_or(4);
    let until = Instant::now() + Duration::from_secs(seconds);
    // New seeds each time; the one that fails is printed.
    let first = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |t| t.as_micros() as u64);
    let (mut stats, mut worlds) = (Stats::default(), 0);
    while Instant::now() < until {
        match run_seed(seed_of(first, worlds)) {
            Ok(more) => stats.add(&more),
            Err(failure) => panic!("{failure}"),
        }
        worlds += 1;
    }
    println!("{worlds} worlds: {stats:?}");
}

#[test]
fn a_seed_is_the_same_world_every_time() {
    for seed in 0..5 {
        let (a, b) = (run_seed(seed), run_seed(seed));
        match (a, b) {
            (Ok(a), Ok(b)) => assert_eq!(a, b),
            (a, b) => panic!("{a:?} and {b:?}"),
        }
    }
}
