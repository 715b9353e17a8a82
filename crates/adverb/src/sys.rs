//! The calling conventions of the C functions, in one place: some return an errno, some set it.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr::{self, NonNull};
use std::time::Duration;

use crate::error::{Error, Result};

pub(crate) fn last_errno() -> i32 {
    io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EIO)
}

/// The error of a function that set errno.
pub(crate) fn last_error(verb: &'static str, object: &str) -> Error {
    failure(verb, object, last_errno())
}

pub(crate) fn failure(verb: &'static str, object: &str, errno: i32) -> Error {
    // Asked for in any case, so that it cannot be taken for the reason of a later failure.
    let why = why();
    match errno {
        libc::EOPNOTSUPP | libc::ENOSYS => Error::Unsupported {
            what: verb,
            object: object.to_owned(),
        },
        errno => Error::Verb {
            verb,
            errno,
            object: object.to_owned(),
            why,
            source: io::Error::from_raw_os_error(errno),
        },
    }
}

#[cfg(feature = "soft")]
fn why() -> String {
    adverb_provider::why()
}

#[cfg(not(feature = "soft"))]
fn why() -> String {
    String::new()
}

/// For functions that return a pointer, or NULL and set errno.
pub(crate) fn non_null<T>(ptr: *mut T, verb: &'static str, object: &str) -> Result<NonNull<T>> {
    NonNull::new(ptr).ok_or_else(|| last_error(verb, object))
}

/// For functions that return 0, an errno, or -1 and set errno.
pub(crate) fn check(rc: libc::c_int, verb: &'static str, object: &str) -> Result<()> {
    match rc {
        0 => Ok(()),
        errno if errno > 0 => Err(failure(verb, object, errno)),
        _ => Err(last_error(verb, object)),
    }
}

/// Waits until `fd` is readable. `false` when the time is up first.
pub(crate) fn wait_readable(fd: RawFd, timeout: Option<Duration>) -> io::Result<bool> {
    let timeout = timeout.map(|t| libc::timespec {
        tv_sec: t.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: t.subsec_nanos().into(),
    });
    let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
    let mut poll = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: `poll` is one valid pollfd, and the time lives as long as the call.
    match unsafe { libc::ppoll(&raw mut poll, 1, timeout, ptr::null()) } {
        -1 => {
            let error = io::Error::last_os_error();
            // The caller looks at the clock again.
            if error.kind() == io::ErrorKind::Interrupted {
                Ok(false)
            } else {
                Err(error)
            }
        }
        ready => Ok(ready > 0),
    }
}

/// Waits until one of the two is readable, or the time is up, or a signal comes.
pub(crate) fn wait_any_readable(
    fds: [BorrowedFd<'_>; 2],
    timeout: Option<Duration>,
) -> io::Result<()> {
    let timeout = timeout.map(|t| libc::timespec {
        tv_sec: t.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: t.subsec_nanos().into(),
    });
    let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
    let mut polls = fds.map(|fd| libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    });
    // SAFETY: `polls` are two valid pollfds, and the time lives as long as the call.
    let ready = unsafe { libc::ppoll(polls.as_mut_ptr(), 2, timeout, ptr::null()) };
    match (ready, io::Error::last_os_error()) {
        (-1, error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ => Ok(()),
    }
}

/// What is read from `fd` is there, or an error says that it is not.
pub(crate) fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: plain calls on an open descriptor.
    let rc = unsafe {
        match libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) {
            -1 => -1,
            flags => libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK),
        }
    };
    if rc < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// A 32-bit number that others cannot guess and that differs from call to call.
pub(crate) fn random() -> u32 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    // Every `RandomState` has other keys, seeded by the operating system.
    RandomState::new().build_hasher().finish() as u32
}
