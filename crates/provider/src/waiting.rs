//! Calls that wait for an event: cancellation points, as system calls that wait are.
//!
//! Programs end their event threads by `pthread_cancel(3)` and join them. The C library unwinds such a thread from the
//! place where it sleeps, which must not go through frames of ours that have something to drop. So what the thread has
//! taken upon itself for the wait lies in its thread-local storage meanwhile, which is dropped when the thread ends.

use std::cell::Cell;
use std::ffi::c_int;

use adverb_nic::{Sleep, Step, Uncancelled, Waiter, cancellation_point};

use crate::errno::{self, Error};

thread_local! {
    /// The wait of this thread while it sleeps.
    static ASLEEP: Cell<Waiter> = const { Cell::new(Waiter::new()) };
}

/// Looks by `look` and sleeps in turn until there is something. Ends as [`errno::minus_one`] does.
///
/// # Safety
/// The frames from here to the C program have nothing to drop, nor has `look`, and may be unwound.
pub(crate) unsafe fn minus_one(
    call: &str,
    mut look: impl FnMut(&mut Waiter) -> Result<Step<()>, Error>,
) -> c_int {
    // SAFETY: as our caller promises.
    unsafe { cancellation_point() };
    loop {
        let sleep = match step(call, &mut look) {
            Next::Sleep(sleep) => sleep,
            Next::Return(value) => return value,
        };
        // SAFETY: as our caller promises; what this frame has needs no drop.
        if let Err(errno) = unsafe { sleep.cancellable() } {
            return give_up(call, errno);
        }
    }
}

enum Next {
    Sleep(Sleep),
    Return(c_int),
}

fn step(call: &str, look: &mut impl FnMut(&mut Waiter) -> Result<Step<()>, Error>) -> Next {
    let _uncancelled = Uncancelled::new();
    let mut waiter = ASLEEP.take();
    match look(&mut waiter) {
        Ok(Step::Sleep(sleep)) => {
            ASLEEP.set(waiter);
            Next::Sleep(sleep)
        }
        Ok(Step::Got(())) => Next::Return(0),
        Err(error) => {
            drop(waiter);
            Next::Return(errno::minus_one(call, Err(error)))
        }
    }
}

/// A signal has ended the sleep.
fn give_up(call: &str, errno: c_int) -> c_int {
    let _uncancelled = Uncancelled::new();
    drop(ASLEEP.take());
    let error = std::io::Error::from_raw_os_error(errno);
    errno::minus_one(call, Err(error.into()))
}
