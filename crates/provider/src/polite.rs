//! `ADVERB_WAIT=polite`: programs that poll for ever and have found nothing for long sleep a little between polls.
//!
//! Such a program's context has this poll in its table instead of the other one; nobody else pays for it.

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use adverb_abi::types::{ibv_cq, ibv_wc};
use adverb_nic::{Sleep, now};

use crate::cq;

/// Nothing found on any queue for so long: the program is idle.
const IDLE_NS: u64 = 1_000_000;
/// What is asked of the timer at least, and at most; timers are late by about as much as the least again.
const NAP_NS: [u64; 2] = [50_000, 2_000_000];
/// What was used is made up for within about this time; longer ago, it is forgotten.
const WINDOW_NS: u64 = 100_000_000;

/// Share of a core, in percent.
static PERCENT: AtomicU32 = AtomicU32::new(0);
/// When polls began to find nothing, on all queues of the process; 0 while they find something.
static IDLE_SINCE: AtomicU64 = AtomicU64::new(0);
/// When it may be napped next.
static AWAKE_UNTIL: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Since when this thread's CPU time is held against its share, and what it had used by then.
    static SINCE: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

/// The poll for that share of a core.
pub(crate) fn poll(percent: u32) -> unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int {
    PERCENT.store(percent, Relaxed);
    poll_cq
}

/// `ibv_poll_cq(3)`.
///
/// # Safety
/// As for [`cq::poll_cq`].
unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, count: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: as our caller promises.
    let polled = unsafe { cq::poll_cq(cq, count, wc) };
    if polled != 0 {
        IDLE_SINCE.store(0, Relaxed);
        return polled;
    }
    let before = now().as_nanos();
    let idle_since = IDLE_SINCE.load(Relaxed);
    match idle_since {
        0 => {
            IDLE_SINCE.store(before, Relaxed);
            return 0;
        }
        since if before.saturating_sub(since) < IDLE_NS => return 0,
        _ if before < AWAKE_UNTIL.load(Relaxed) => return 0,
        _ => {}
    }
    let percent = u64::from(PERCENT.load(Relaxed));
    let (since, used) = SINCE.get();
    let (since, used) = match before.saturating_sub(since) {
        // What was used for work is nobody's business here.
        _ if since < idle_since => (before, cpu_ns()),
        // Going to sleep and coming back costs CPU time, too. So what was really used counts, and not how long was slept.
        passed if passed <= WINDOW_NS => (since, used),
        _ => (before, cpu_ns()),
    };
    SINCE.set((since, used));
    let over = (cpu_ns().saturating_sub(used) * 100 / percent).saturating_sub(before - since);
    // A signal only makes it shorter.
    let _ = Sleep::moment(Duration::from_nanos(over.clamp(NAP_NS[0], NAP_NS[1]))).uncancelled();
    let after = now().as_nanos();
    let earned = (after - since) * percent / 100;
    let left = earned.saturating_sub(cpu_ns().saturating_sub(used));
    AWAKE_UNTIL.store(after + left * 100 / (100 - percent), Relaxed);
    // SAFETY: as our caller promises.
    let polled = unsafe { cq::poll_cq(cq, count, wc) };
    if polled != 0 {
        IDLE_SINCE.store(0, Relaxed);
    }
    polled
}

/// CPU time of this thread; 0 where the kernel does not tell.
fn cpu_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: it writes to the one structure that it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    let (seconds, ns) = (time.tv_sec.cast_unsigned(), time.tv_nsec.cast_unsigned());
    seconds.saturating_mul(1_000_000_000).saturating_add(ns)
}
