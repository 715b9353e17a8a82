//! `pthread_cancel(3)` and system calls that are cancellation points.
//!
//! A program may cancel a thread that is inside one of our functions. Where that thread is in a C library call which is
//! a cancellation point, such as `sendmsg`, the C library unwinds it: through Rust frames that hold locks, up to a
//! function that cannot be unwound, which ends the process. While a guard lives the request waits, and the thread ends
//! at its program's next own cancellation point.

use std::ffi::c_int;
use std::marker::PhantomData;

const DISABLE: c_int = 1;

// The libc crate does not declare it.
unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// This thread cannot be cancelled while this lives. No system call; a few nanoseconds.
#[derive(Debug)]
pub struct Uncancelled {
    before: c_int,
    /// The state is the thread's.
    _not_send: PhantomData<*const ()>,
}

impl Uncancelled {
    /// From now on cancellation waits.
    #[must_use]
    pub fn new() -> Self {
        let mut before = DISABLE;
        // SAFETY: the state is one of the two that exist, and the pointer is to a local. It cannot fail then.
        unsafe { pthread_setcancelstate(DISABLE, &raw mut before) };
        Self {
            before,
            _not_send: PhantomData,
        }
    }
}

impl Default for Uncancelled {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        // SAFETY: the state is the one that was in force before, and the old one is not wanted.
        unsafe { pthread_setcancelstate(self.before, std::ptr::null_mut()) };
    }
}
