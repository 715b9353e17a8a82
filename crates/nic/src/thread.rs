//! The NIC thread: progress while nobody drives.
//!
//! It is in one of three moods. *Watching*: nobody else is awake, so it sleeps on everything that
//! can wake the NIC. *Ticking*: the application drives, so it only looks from time to time
//! whether that is still true; peers ring the bell when they find that it is not. *Parked*: an
//! application thread sleeps on the NIC's wake-ups itself and has done so for a while.
//! It never spins.

use std::cell::Cell;
use std::sync::Arc;

use rustix::event::Timespec;

use crate::clock;
use crate::error::NicError;
use crate::nic::Nic;

/// How often a ticking thread looks. A peer's bell comes through at once, so this bounds only
/// what comes without one: packets from sockets, and a bell that a dying peer did not ring.
const TICK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 1_000_000,
};

/// An application that drove this long ago is still driving.
const RECENT_NS: u64 = 50_000;

/// An application that drove this long ago looks all the time, unless it stops just now.
const LOOKING_NS: u64 = 10_000;

/// Where one thing comes after the other, it may have been kept from looking by the thread that asks.
const KEPT_NS: u64 = 300_000;

/// Whether it goes on looking shows after this.
const A_MOMENT: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000,
};

/// Ticks without anything happening after which the thread leaves the field to the leader.
const TICKS_BEFORE_PARKING: u32 = 20;

thread_local! {
    static IS_THIS: Cell<bool> = const { Cell::new(false) };
}

/// Whether it is the NIC thread that asks.
pub(crate) fn is_this() -> bool {
    // While a thread ends, it has been one of the application's.
    IS_THIS.try_with(Cell::get).unwrap_or(false)
}

/// Starts the thread. It lives as long as the process.
pub(crate) fn start(nic: &Arc<Nic>) -> Result<(), NicError> {
    let nic = Arc::clone(nic);
    // The application's signals are for the application's threads: the new thread inherits the
    // mask that holds while it is made.
    let old = block_signals();
    let spawned = std::thread::Builder::new()
        .name("adverb-nic".to_owned())
        .stack_size(256 * 1024)
        .spawn(move || run(&nic));
    restore_signals(&old);
    spawned.map_err(NicError::io("starting the NIC thread"))?;
    Ok(())
}

fn run(nic: &Nic) {
    IS_THIS.set(true);
    let mut quiet_ticks = 0;
    let mut found_work = false;
    loop {
        let before = nic.fabric.last_user_drive();
        if nic.fabric.is_led() {
            if quiet_ticks >= TICKS_BEFORE_PARKING {
                nic.fabric.park();
                quiet_ticks = 0;
            } else {
                nic.fabric.wait_for_kick(Some(&TICK));
                let moved = nic.fabric.last_user_drive() != before;
                quiet_ticks = if moved { 0 } else { quiet_ticks + 1 };
            }
            found_work = false;
            continue;
        }
        quiet_ticks = 0;
        let since = clock::now().as_nanos().saturating_sub(before);
        let someone_sleeps = nic.fabric.someone_is_armed();
        if since < RECENT_NS && !someone_sleeps && !found_work {
            tick(nic);
            continue;
        }
        // Whoever finds work here that the application had no eye for keeps watching: then it waits
        // in a way that does not drive, for instance by looking at its memory. Of one that polls
        // a stream there is always some work to be found, and it needs no help.
        found_work = match watch(nic) {
            Found::Work => true,
            Found::Nothing => false,
            Found::SomebodyAtIt => {
                // Sleeping on what wakes would be no sleep. Who waits for an event cannot wait for a tick, though.
                if nic.fabric.someone_is_armed() {
                    nic.fabric.wait_for_kick(Some(&A_MOMENT));
                } else {
                    tick(nic);
                }
                false
            }
        };
    }
}

/// What came of watching.
enum Found {
    /// Work, and the application is known not to look for it all the time.
    Work,
    Nothing,
    /// There is work, and another thread is doing it.
    SomebodyAtIt,
}

/// Sleeps on everything, and drives what woke it.
fn watch(nic: &Nic) -> Found {
    nic.pay();
    let sleep = nic.fabric.fall_asleep_for_kick();
    let awake = sleep.is_none();
    let slept = sleep.map_or(Ok(()), |sleep| sleep.uncancelled());
    nic.fabric.wake_up();
    nic.fabric.take_kick();
    nic.service_wakeups();
    let lately = match (awake, nic.fabric.is_neglected(clock::now())) {
        (true, _) => KEPT_NS,
        (false, false) => LOOKING_NS,
        // It looks for what it has sent, and then into its memory.
        (false, true) => 0,
    };
    if sees_to_it(nic, lately) {
        return Found::SomebodyAtIt;
    }
    let woken = clock::now();
    let worked = slept.is_ok() && nic.drive(woken);
    if worked {
        nic.fabric.note_neglect(woken);
    }
    match worked {
        true if nic.fabric.is_neglected(woken) => Found::Work,
        false if nic.fabric.has_inbound() || nic.fabric.reads_sockets() => Found::SomebodyAtIt,
        _ => Found::Nothing,
    }
}

/// Leaves the NIC to the application for a tick, or until a peer rings.
fn tick(nic: &Nic) {
    let rung = nic.fabric.wait_for_kick_or_bell(&TICK);
    // Without a bell, too: the death of a peer shows only here while the application polls.
    if (nic.service_wakeups() || rung) && !sees_to_it(nic, LOOKING_NS) {
        // To the end: a bell rang once for all of it.
        while nic.drive(clock::now()) {}
    }
}

/// Whether a thread of the application, which has driven within `lately_ns`, looks after what has woken this one. A peer rings for a program that polls, too, when
/// that was held up for some microseconds; if two threads looked then, they would hold up each other, and be rung for all
/// the more.
fn sees_to_it(nic: &Nic, lately_ns: u64) -> bool {
    let now = clock::now().as_nanos();
    let silent_for = now.saturating_sub(nic.fabric.last_user_drive());
    if silent_for > lately_ns || nic.fabric.someone_is_armed() || nic.fabric.is_led() {
        return false;
    }
    nic.fabric.wait_for_kick(Some(&A_MOMENT));
    // A pass that began after the bell has found what was there then.
    nic.fabric.last_user_drive() > now
}

fn block_signals() -> libc::sigset_t {
    // SAFETY: both sets are local and of the right type; sigfillset and pthread_sigmask only
    // write through the pointers they are given.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut old: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut old);
        old
    }
}

fn restore_signals(old: &libc::sigset_t) {
    // SAFETY: `old` is a valid set that pthread_sigmask gave.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, old, std::ptr::null_mut()) };
}
