//! `ADVERB_WAIT=polite`: programs that poll for ever and have found nothing for long sleep a little between polls.
//!
//! Such a program's context has this poll in its table instead of the other one; nobody else pays for it.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use adverb_abi::types::{ibv_cq, ibv_wc};
use adverb_nic::{Sleep, now};

use crate::cq;

/// Nothing found on any queue for so long: the program is idle.
const IDLE_NS: u64 = 1_000_000;
/// What is asked of the timer for a quarter of a core and more; timers are late by about as much again. For less it is
/// longer in proportion, because going to sleep and coming back costs CPU time, too.
const NAP_US: u64 = 50;
const QUARTER: u64 = 25;

/// Share of a core, in percent.
static PERCENT: AtomicU32 = AtomicU32::new(0);
/// When polls began to find nothing, on all queues of the process; 0 while they find something.
static IDLE_SINCE: AtomicU64 = AtomicU64::new(0);
/// When it may be napped next.
static AWAKE_UNTIL: AtomicU64 = AtomicU64::new(0);

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
    match IDLE_SINCE.load(Relaxed) {
        0 => {
            IDLE_SINCE.store(before, Relaxed);
            return 0;
        }
        since if before.saturating_sub(since) < IDLE_NS => return 0,
        _ if before < AWAKE_UNTIL.load(Relaxed) => return 0,
        _ => {}
    }
    let percent = u64::from(PERCENT.load(Relaxed));
    // A signal only makes it shorter.
    let _ = Sleep::moment(Duration::from_micros(
        NAP_US * QUARTER / percent.min(QUARTER),
    ))
    .uncancelled();
    let after = now().as_nanos();
    let awake = after.saturating_sub(before) * percent / (100 - percent);
    AWAKE_UNTIL.store(after + awake, Relaxed);
    // SAFETY: as our caller promises.
    let polled = unsafe { cq::poll_cq(cq, count, wc) };
    if polled != 0 {
        IDLE_SINCE.store(0, Relaxed);
    }
    polled
}
