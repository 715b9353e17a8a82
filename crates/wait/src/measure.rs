//! What a wake-up costs on this machine: the one place here that touches it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::sys::signal::{SigSet, SigmaskHow};
use nix::unistd::Pid;

/// What a wake-up costs here, in ns, measured once in each process. About ten milliseconds.
pub fn wake_ns() -> u64 {
    static WAKE_NS: OnceLock<u64> = OnceLock::new();
    *WAKE_NS.get_or_init(|| measure_wake().unwrap_or(USUAL_WAKE_NS))
}

/// Cores that are tried.
const MOST_CORES: usize = 64;
/// Where it cannot be measured: across the cores of a small virtual machine.
const USUAL_WAKE_NS: u64 = 40_000;
const WAKES: usize = 15;
/// Long enough for the sleeper's core to come to rest.
const REST: Duration = Duration::from_micros(300);

/// Half of the wake-ups take at most so long, from one core to another where there are two. None if no thread can be
/// started.
fn measure_wake() -> Option<u64> {
    let woken_at = Mutex::new(None);
    let over = AtomicBool::new(false);
    let here = sched_getcpu().ok();
    let mut times = thread::scope(|scope| {
        let sleeper = quietly(|| {
            thread::Builder::new().spawn_scoped(scope, || {
                here.and_then(keep_off);
                while !over.load(Ordering::Acquire) {
                    thread::park();
                    let now = Instant::now();
                    if let Ok(mut at) = woken_at.lock() {
                        *at = Some(now);
                    }
                }
            })
        })?;
        let mut times = Vec::with_capacity(WAKES);
        for _ in 0..WAKES {
            thread::sleep(REST);
            let called = Instant::now();
            sleeper.thread().unpark();
            times.extend(heard(&woken_at, called));
        }
        over.store(true, Ordering::Release);
        sleeper.thread().unpark();
        Some(times)
    })?;
    times.sort_unstable();
    times.get(times.len() / 2).copied()
}

/// How long after `called` the sleeper woke up. It may need this very core for that.
fn heard(woken_at: &Mutex<Option<Instant>>, called: Instant) -> Option<u64> {
    loop {
        if let Some(at) = woken_at.lock().ok()?.take() {
            return u64::try_from(at.saturating_duration_since(called).as_nanos()).ok();
        }
        match called.elapsed() {
            spun if spun > Duration::from_millis(5) => return None,
            spun if spun > Duration::from_micros(100) => thread::yield_now(),
            _ => std::hint::spin_loop(),
        }
    }
}

/// Binds this thread to another core than that one, if there is one: also where the application has bound the thread that it
/// was started by, since whoever wakes that one runs elsewhere.
fn keep_off(here: usize) -> Option<()> {
    let this = Pid::from_raw(0);
    let may = sched_getaffinity(this).ok()?;
    let cores = || (0..CpuSet::count()).filter(|&core| core != here);
    let mut preferred = cores().filter(|&core| may.is_set(core).unwrap_or(false));
    let bind = |core: usize| {
        let mut only = CpuSet::new();
        only.set(core).ok()?;
        sched_setaffinity(this, &only).ok()
    };
    match preferred.next() {
        Some(core) => bind(core),
        // What the machine or the container does not have is refused.
        None => cores().take(MOST_CORES).find_map(bind),
    }
}

/// The signals of the application are for its own threads: one that is started here inherits the mask.
fn quietly<T>(start: impl FnOnce() -> std::io::Result<T>) -> Option<T> {
    let old = SigSet::all()
        .thread_swap_mask(SigmaskHow::SIG_SETMASK)
        .ok()?;
    let started = start();
    // It was the mask before, so it is a possible one.
    let _ = old.thread_set_mask();
    started.ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_wake_up_costs_something() {
        assert!(super::measure_wake().is_some_and(|ns| ns > 0));
    }
}
