//! Whether a call that waits goes on after a signal, as read(2) on a kernel's descriptor does after a handler with
//! SA_RESTART.
//!
//! The sleep is a poll(2), which a handler ends whatever its flags, and which handler it was nobody says. Go's runtime
//! and profilers have handlers with the flag only, and then the wait goes on. In a program that has a handler without it,
//! for a signal that this thread takes, any signal ends the wait with EINTR: that program looks for it.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr;

/// What a thread's own instructions raise. One that sleeps has none; sanitizers and language runtimes have handlers for them,
/// without the flag.
const FAULTS: [c_int; 5] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
];

/// Whether every handler that can have run in this thread says SA_RESTART, and there is one.
pub(crate) fn all_restart() -> bool {
    let mut blocked = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the place can be written, and no mask is set.
    let known = unsafe { libc::pthread_sigmask(0, ptr::null(), blocked.as_mut_ptr()) } == 0;
    let mut found = false;
    for signal in (1..=libc::SIGRTMAX()).filter(|signal| !FAULTS.contains(signal)) {
        let Some(flags) = handler(signal) else {
            continue;
        };
        // SAFETY: the mask was written if `known`.
        if known && unsafe { libc::sigismember(blocked.as_ptr(), signal) } == 1 {
            continue;
        }
        if flags & libc::SA_RESTART == 0 {
            return false;
        }
        found = true;
    }
    found
}

/// The flags of the program's handler for a signal, if it has one.
fn handler(signal: c_int) -> Option<c_int> {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: the place can be written, and nothing is installed. The C library refuses the numbers that it keeps.
    if unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the call has succeeded.
    let action = unsafe { action.assume_init() };
    let none = matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN);
    (!none).then_some(action.sa_flags)
}
