//! `pthread_cancel(3)` and system calls that are cancellation points.
//!
//! A program may cancel a thread that is inside one of our functions. Where that thread is in a C library call which is
//! a cancellation point, such as `sendmsg`, the C library unwinds it: through Rust frames that hold locks, up to a
//! function that cannot be unwound, which ends the process. While an [`Uncancelled`] lives the request waits, and the
//! thread ends at its program's next own cancellation point.
//!
//! Calls that wait for an event are cancellation points themselves, or whoever cancels a thread and joins it would wait
//! for the next event, which may never come. They sleep by [`Sleep::cancellable`], with nothing on the stack that needs
//! to be dropped.

use std::ffi::c_int;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

const DISABLE: c_int = 1;

// The libc crate does not declare the first two, and says of none that it may unwind.
unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}
unsafe extern "C-unwind" {
    fn pthread_testcancel();
    fn ppoll(
        fds: *mut libc::pollfd,
        count: libc::nfds_t,
        timeout: *const libc::timespec,
        signals: *const libc::sigset_t,
    ) -> c_int;
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

/// What a thread sleeps on: until one of at most two descriptors is readable, or for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sleep {
    /// The kernel passes over negative ones.
    fds: [RawFd; 2],
    at_most: Option<Duration>,
}

impl Sleep {
    /// Until the descriptor is readable.
    #[must_use]
    pub fn on(fd: BorrowedFd<'_>) -> Self {
        Self {
            fds: [fd.as_raw_fd(), -1],
            at_most: None,
        }
    }

    /// Until one of the two is readable.
    #[must_use]
    pub fn on_either(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> Self {
        Self {
            fds: [one.as_raw_fd(), other.as_raw_fd()],
            at_most: None,
        }
    }

    /// For that long, whatever happens. Below a second.
    #[must_use]
    pub const fn moment(length: Duration) -> Self {
        Self {
            fds: [-1, -1],
            at_most: Some(length),
        }
    }

    /// The same, but no longer than that. Below a second.
    #[must_use]
    pub fn at_most(self, length: Duration) -> Self {
        let length = self.at_most.map_or(length, |own| own.min(length));
        Self {
            at_most: Some(length),
            ..self
        }
    }

    /// Sleeps. A signal ends it with EINTR; cancellation waits.
    pub fn uncancelled(&self) -> io::Result<()> {
        let _uncancelled = Uncancelled::new();
        // SAFETY: the thread cannot be cancelled, so nothing is unwound.
        unsafe { self.cancellable() }.map_err(io::Error::from_raw_os_error)
    }

    /// Sleeps, and is a cancellation point: the thread may end in it, also before it sleeps. The error is an errno value,
    /// EINTR after a signal.
    ///
    /// # Safety
    /// Unless the thread cannot be cancelled, no frame from here to the C program has anything to drop, and each of them
    /// may be unwound: it is `extern "C-unwind"` or an ordinary Rust function.
    pub unsafe fn cancellable(&self) -> Result<(), c_int> {
        let mut fds = self.fds.map(|fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        });
        let timeout = self.at_most.map(|length| libc::timespec {
            tv_sec: 0,
            tv_nsec: length.subsec_nanos().into(),
        });
        let timeout = timeout
            .as_ref()
            .map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the array and the time are locals that outlive the call, and their number is right.
        let n = unsafe { ppoll(fds.as_mut_ptr(), 2, timeout, std::ptr::null()) };
        if n < 0 {
            // SAFETY: the C library gives each thread its own errno.
            return Err(unsafe { *libc::__errno_location() });
        }
        Ok(())
    }
}

/// A cancellation point without a sleep.
///
/// # Safety
/// As for [`Sleep::cancellable`].
pub unsafe fn cancellation_point() {
    // SAFETY: as our caller promises.
    unsafe { pthread_testcancel() };
}
