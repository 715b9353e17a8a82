//! Many worlds in a row, with new seeds each time: for so many seconds, or at most so many worlds.
#![forbid(unsafe_code)]
#![expect(
    clippy::disallowed_methods,
    reason = "the clock bounds the run, it does not enter the worlds"
)]

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use adverb_sim::{Failure, Stats, run_seed, seed_of};

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let (mut seconds, mut worlds) = (10, u64::MAX);
    let (mut first, mut jobs, mut one) = (None, 1, None);
    while let Some(name) = args.next() {
        let value = args.next().and_then(|v| v.parse::<u64>().ok());
        match (name.as_str(), value) {
            ("--seconds", Some(n)) => seconds = n,
            ("--first", Some(n)) => first = Some(n),
            ("--jobs", Some(n)) => jobs = n,
            ("--worlds", Some(n)) => worlds = n,
            ("--seed", Some(n)) => one = Some(n),
            _ => {
                eprintln!(
                    "usage: sim [--seconds N] [--worlds N] [--jobs N] [--first N | --seed N]"
                );
                return ExitCode::from(2);
            }
        }
    }
    // Failures are told once, at the end, with their trace.
    std::panic::set_hook(Box::new(|_| {}));
    if let Some(seed) = one {
        return match run_seed(seed) {
            Ok(stats) => {
                println!("seed {seed}: {stats:?}");
                ExitCode::SUCCESS
            }
            Err(failure) => {
                println!("{failure}");
                ExitCode::FAILURE
            }
        };
    }
    let first = first.unwrap_or_else(|| {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |t| t.as_micros() as u64)
    });
    let run = Run {
        first,
        until: Instant::now() + Duration::from_secs(seconds),
        worlds,
        next: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        on_cpu: AtomicU64::new(0),
        found: Mutex::new((Stats::default(), None)),
    };
    let started = Instant::now();
    std::thread::scope(|scope| {
        for _ in 1..jobs {
            scope.spawn(|| run.work());
        }
        run.work();
    });
    let took = started.elapsed().as_secs_f64();
    let on_cpu = match run.on_cpu.load(Ordering::Relaxed) {
        0 => took * jobs as f64,
        ns => ns as f64 / 1e9,
    };
    let worlds = run.next.load(Ordering::Relaxed).min(worlds);
    let (stats, failure) = run.found.into_inner().expect("no worker panics");
    println!(
        "{worlds} worlds from --first {first}: {} messages, {} packets, {} connections rebuilt, \
         {} retries, {} RNR NAKs, {} duplicates, {:.1} s of virtual time",
        stats.messages,
        stats.packets,
        stats.rebuilt,
        stats.retries,
        stats.rnr_naks,
        stats.duplicates,
        stats.virtual_ns as f64 / 1e9
    );
    println!(
        "{} windows bound, {} unbound, {} requests through windows",
        stats.binds, stats.unbinds, stats.through_windows
    );
    println!(
        "{} messages over XRC, {} completion queues overran, {} trains",
        stats.xrc, stats.overruns, stats.trains
    );
    println!(
        "{took:.1} s, of which {on_cpu:.1} s on a core: {:.0} messages a second on one core",
        stats.messages as f64 / on_cpu
    );
    match failure {
        None => ExitCode::SUCCESS,
        Some(failure) => {
            println!("{failure}");
            ExitCode::FAILURE
        }
    }
}

struct Run {
    first: u64,
    until: Instant,
    worlds: u64,
    next: AtomicU64,
    stop: AtomicBool,
    /// Nanoseconds that the workers had a core for; other programs may run here, too.
    on_cpu: AtomicU64,
    found: Mutex<(Stats, Option<Failure>)>,
}

impl Run {
    fn work(&self) {
        self.live();
        self.on_cpu.fetch_add(on_cpu_ns(), Ordering::Relaxed);
    }

    fn live(&self) {
        while Instant::now() < self.until && !self.stop.load(Ordering::Relaxed) {
            let n = self.next.fetch_add(1, Ordering::Relaxed);
            if n >= self.worlds {
                return;
            }
            let outcome = run_seed(seed_of(self.first, n));
            let mut found = self.found.lock().expect("no worker panics");
            match outcome {
                Ok(stats) => found.0.add(&stats),
                Err(failure) => {
                    self.stop.store(true, Ordering::Relaxed);
                    found.1 = Some(failure);
                }
            }
        }
    }
}

/// How long this thread has had a core so far; 0 where the kernel does not say.
fn on_cpu_ns() -> u64 {
    std::fs::read_to_string("/proc/thread-self/schedstat")
        .ok()
        .and_then(|text| text.split(' ').next()?.parse().ok())
        .unwrap_or(0)
}
