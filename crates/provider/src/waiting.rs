//! Calls that wait for an event: cancellation points, as system calls that wait are.
//!
//! Programs end their event threads by `pthread_cancel(3)` and join them. The C library unwinds such a thread from the
//! place where it sleeps, which must not go through frames of ours that have something to drop. So what the thread has
//! taken upon itself for the wait lies in its thread-local storage meanwhile, which is dropped when the thread ends.
//!
//! There lies the object that it waits on, too. Programs destroy channels on which another thread still waits, and
//! close devices under the thread that waits for asynchronous events; that thread sleeps on, as in a system call on a
//! descriptor that has been closed.

use std::cell::Cell;
use std::ffi::c_int;
use std::thread::LocalKey;

use adverb_nic::{Sleep, Step, Uncancelled, Waiter, cancellation_point};

use crate::errno::{self, Error};
use crate::signals;

/// The wait of a thread while it sleeps, and what it waits on.
pub(crate) type Asleep<T> = Cell<Option<(Waiter, T)>>;

/// Finds what to wait on, and then looks by `look` and sleeps in turn until there is something. Ends as
/// [`errno::minus_one`] does.
///
/// # Safety
/// The frames from here to the C program have nothing to drop, nor have `find` and `look`, and may be unwound.
pub(crate) unsafe fn minus_one<T: 'static>(
    call: &str,
    asleep: &'static LocalKey<Asleep<T>>,
    mut find: impl FnMut() -> Result<T, Error>,
    mut look: impl FnMut(&T, &mut Waiter) -> Result<Step<()>, Error>,
) -> c_int {
    // SAFETY: as our caller promises.
    unsafe { cancellation_point() };
    let mut next = begin(call, asleep, &mut find, &mut look);
    loop {
        let sleep = match next {
            Next::Sleep(sleep) => sleep,
            Next::Return(value) => return value,
        };
        // SAFETY: as our caller promises; what this frame has needs no drop.
        next = match unsafe { sleep.cancellable() } {
            Ok(()) => go_on(call, asleep, &mut look),
            Err(libc::EINTR) if signals::all_restart() => go_on(call, asleep, &mut look),
            Err(errno) => give_up(call, asleep, errno),
        };
    }
}

#[derive(Clone, Copy)]
enum Next {
    Sleep(Sleep),
    Return(c_int),
}

fn begin<T: 'static>(
    call: &str,
    asleep: &'static LocalKey<Asleep<T>>,
    find: &mut impl FnMut() -> Result<T, Error>,
    look: &mut impl FnMut(&T, &mut Waiter) -> Result<Step<()>, Error>,
) -> Next {
    let _uncancelled = Uncancelled::new();
    // A handler that runs while a thread is unwound may wait again. What was left there is the past.
    drop(asleep.take());
    match find() {
        Ok(on) => step(call, asleep, (Waiter::new(), on), look),
        Err(error) => Next::Return(errno::minus_one(call, Err(error))),
    }
}

fn go_on<T: 'static>(
    call: &str,
    asleep: &'static LocalKey<Asleep<T>>,
    look: &mut impl FnMut(&T, &mut Waiter) -> Result<Step<()>, Error>,
) -> Next {
    let _uncancelled = Uncancelled::new();
    match asleep.take() {
        Some(wait) => step(call, asleep, wait, look),
        // A signal handler has waited in the same way: its program's mistake, and no event.
        None => give_up(call, asleep, libc::EINTR),
    }
}

fn step<T: 'static>(
    call: &str,
    asleep: &'static LocalKey<Asleep<T>>,
    (mut waiter, on): (Waiter, T),
    look: &mut impl FnMut(&T, &mut Waiter) -> Result<Step<()>, Error>,
) -> Next {
    match look(&on, &mut waiter) {
        Ok(Step::Sleep(sleep)) => {
            asleep.set(Some((waiter, on)));
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
fn give_up<T: 'static>(call: &str, asleep: &'static LocalKey<Asleep<T>>, errno: c_int) -> Next {
    let _uncancelled = Uncancelled::new();
    drop(asleep.take());
    let error = std::io::Error::from_raw_os_error(errno);
    Next::Return(errno::minus_one(call, Err(error.into())))
}
