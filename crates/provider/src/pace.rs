//! How a thread in `ibv_get_cq_event` waits when `ADVERB_WAIT` asks for another way than sleeping at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use adverb_nic::{Channel, Sleep, Step, Waiter};
use adverb_wait::{Costs, Policy, Step as Next};

use crate::errno::Error;
use crate::setting::Events;

/// How the threads wait that wait on one channel.
#[derive(Debug)]
pub(crate) enum Pace {
    Event,
    Busy,
    /// One thread at a time is awake and knows how messages come. Others sleep: two that spin would only be in each
    /// other's way.
    Adaptive(Box<Mutex<Policy>>),
}

impl Pace {
    pub(crate) fn new(events: Events) -> Self {
        match events {
            Events::Event => Self::Event,
            Events::Busy => Self::Busy,
            Events::Adaptive(limits) => {
                let wake_ns = wake_ns();
                Self::Adaptive(Box::new(Mutex::new(Policy::new(Costs { wake_ns }, limits))))
            }
        }
    }

    /// Looks for an event, or says what to sleep on before the next look.
    pub(crate) fn look(&self, channel: &Channel, waiter: &mut Waiter) -> Result<Step<u64>, Error> {
        match self {
            Self::Event => Ok(channel.next_event(waiter)?),
            Self::Busy => look_busily(channel, waiter),
            Self::Adaptive(policy) => match policy.try_lock() {
                Ok(mut policy) => look_adaptively(&mut policy, channel, waiter),
                Err(_) => Ok(channel.next_event(waiter)?),
            },
        }
    }
}

/// Looks between two chances to be cancelled.
const LOOKS: u32 = 1024;
/// Looks between two offers of the core to others.
const LOOKS_PER_YIELD: u32 = 256;

fn look_busily(channel: &Channel, waiter: &mut Waiter) -> Result<Step<u64>, Error> {
    for look in 1..=LOOKS {
        if let Some(token) = channel.next_event_awake(waiter)? {
            return Ok(Step::Got(token));
        }
        if look % LOOKS_PER_YIELD == 0 {
            thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
    Ok(Step::Sleep(Sleep::moment(Duration::ZERO)))
}

fn look_adaptively(
    policy: &mut Policy,
    channel: &Channel,
    waiter: &mut Waiter,
) -> Result<Step<u64>, Error> {
    let until = loop {
        let event = channel.next_event_awake(waiter)?;
        let now = adverb_nic::now().as_nanos();
        // If this is the first look after a sleep.
        policy.woke(now, event.is_some());
        if let Some(token) = event {
            policy.found(now);
            return Ok(Step::Got(token));
        }
        match policy.empty(now) {
            Next::Spin => std::hint::spin_loop(),
            Next::Yield => thread::yield_now(),
            Next::Sleep { until } => break until,
        }
    };
    let step = channel.next_event(waiter)?;
    let now = adverb_nic::now().as_nanos();
    Ok(match step {
        Step::Got(token) => {
            policy.found(now);
            Step::Got(token)
        }
        Step::Sleep(sleep) => Step::Sleep(match until {
            None => sleep,
            Some(at) => sleep.at_most(Duration::from_nanos(at.saturating_sub(now)).min(LONGEST)),
        }),
    })
}

/// A sleep with an end is below a second; whoever wakes up from a shorter one than asked for sleeps on.
const LONGEST: Duration = Duration::from_millis(900);

/// What a wake-up costs here, measured once. About ten milliseconds.
fn wake_ns() -> u64 {
    static WAKE_NS: OnceLock<u64> = OnceLock::new();
    *WAKE_NS.get_or_init(|| measure_wake().unwrap_or(USUAL_WAKE_NS))
}

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
    // SAFETY: it takes no arguments.
    let here = unsafe { libc::sched_getcpu() };
    let mut times = thread::scope(|scope| {
        let sleeper = quietly(|| {
            thread::Builder::new().spawn_scoped(scope, || {
                keep_off(here);
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
            spun if spun > Duration::from_micros(200) => thread::yield_now(),
            _ => std::hint::spin_loop(),
        }
    }
}

/// Binds this thread to another core than that one, if there is one that it may use.
fn keep_off(here: libc::c_int) {
    // SAFETY: the sets are local and of the size that is passed, and the indices lie below CPU_SETSIZE.
    unsafe {
        let mut may: libc::cpu_set_t = std::mem::zeroed();
        let size = size_of_val(&may);
        if libc::sched_getaffinity(0, size, &raw mut may) != 0 {
            return;
        }
        let mut cores = (0..libc::CPU_SETSIZE).filter(|&core| core != here);
        if let Some(other) = cores.find(|&core| libc::CPU_ISSET(core as usize, &may)) {
            let mut only: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(other as usize, &mut only);
            libc::sched_setaffinity(0, size, &raw const only);
        }
    }
}

/// The signals of the application are for its own threads: one that is started here inherits the mask.
fn quietly<T>(start: impl FnOnce() -> std::io::Result<T>) -> Option<T> {
    // SAFETY: the sets are local and of the right type, and the calls only write through the pointers they are given.
    let old = unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut old: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut old);
        old
    };
    let started = start();
    // SAFETY: the set is what pthread_sigmask gave.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const old, std::ptr::null_mut()) };
    started.ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_wake_up_costs_something() {
        assert!(super::measure_wake().is_some_and(|ns| ns > 0));
    }
}
