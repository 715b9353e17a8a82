//! The one place where a failure becomes an errno value, and the one where it is told.
//!
//! A function of the C face is a body that returns `Result<_, Error>` and one of the four endings here, which know how
//! its kind reports failure: [`status`] returns the errno value, [`minus_one`] and [`pointer`] set it. With
//! `ADVERB_LOG=warn` each failure is also written to stderr, call and cause. `diagnosis.rs` has the words.

use std::ffi::c_int;
use std::fmt::Display;
use std::io::{self, Write as _};
use std::ptr;
use std::sync::OnceLock;

use adverb_engine::{Access, AttrMask, ModifyError};
use adverb_nic::{NicError, PostError, setting};

use crate::diagnosis;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("the {0} is NULL")]
    Null(&'static str),
    #[error("this is not a {0} of this library, or it has been destroyed")]
    Foreign(&'static str),
    #[error("{what} is {value}, the limit is {limit}")]
    Value {
        what: &'static str,
        value: u64,
        limit: u64,
    },
    #[error("{what} has bits that are not known: {bits:#x}")]
    Bits { what: &'static str, bits: u64 },
    #[error("{0}")]
    Argument(&'static str),
    #[error("access is {}: remote write and atomic access need IBV_ACCESS_LOCAL_WRITE too", diagnosis::access(*.0))]
    NeedsLocalWrite(Access),
    #[error("{0} is not supported")]
    Unsupported(&'static str),
    #[error("{what} is still used by {users} other objects")]
    Busy { what: &'static str, users: usize },
    #[error("{what} number {handle} does not exist")]
    NoSuch { what: &'static str, handle: u32 },
    #[error("the {0} belongs to another context")]
    OtherContext(&'static str),
    #[error("{0}")]
    Forbidden(&'static str),
    #[error("entry {0} of the GID table is empty")]
    EmptyGid(u32),
    #[error("address family {0} is not one of IP")]
    Family(c_int),
    /// A connection identifier that has not come far enough, or is past it.
    #[error("the id {is}; {needs}")]
    Phase {
        is: &'static str,
        needs: &'static str,
    },
    #[error("the id has not joined this group")]
    NotJoined,
    /// What the event said that ended a call of a synchronous id.
    #[error("the answer is {event}, status {status}: {why}")]
    Outcome {
        event: &'static str,
        status: c_int,
        why: &'static str,
        errno: c_int,
    },
    /// A call of this library that another one makes has failed, and has told why.
    #[error("a call that this one makes has failed")]
    Told(c_int),
    #[error(transparent)]
    Nic(#[from] NicError),
    #[error("{}", diagnosis::Modify(error, *have))]
    Modify {
        error: ModifyError,
        /// What the program's mask announced.
        have: AttrMask,
    },
    #[error("{}", diagnosis::Post(.0))]
    Post(#[from] PostError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Error {
    /// The failure of a call of ours that has just set errno and told why.
    pub(crate) fn told() -> Self {
        Self::Told(
            io::Error::last_os_error()
                .raw_os_error()
                .unwrap_or(libc::EIO),
        )
    }

    /// The value that verbs programs look for in this case.
    pub(crate) fn errno(&self) -> c_int {
        match self {
            Self::Null(_)
            | Self::Foreign(_)
            | Self::Value { .. }
            | Self::Bits { .. }
            | Self::OtherContext(_)
            | Self::NeedsLocalWrite(_)
            | Self::Phase { .. }
            | Self::Argument(_) => libc::EINVAL,
            Self::Family(_) => libc::EAFNOSUPPORT,
            Self::NotJoined => libc::EADDRNOTAVAIL,
            Self::Outcome { errno, .. } | Self::Told(errno) => *errno,
            Self::Unsupported(_) => libc::EOPNOTSUPP,
            Self::Busy { .. } => libc::EBUSY,
            Self::NoSuch { .. } => libc::ENOENT,
            Self::Forbidden(_) => libc::EPERM,
            Self::EmptyGid(_) => libc::ENODATA,
            Self::Nic(error) => errno_of_nic(error),
            Self::Modify { error, .. } => errno_of_modify(error),
            Self::Post(PostError::QueueFull { .. }) => libc::ENOMEM,
            Self::Post(_) => libc::EINVAL,
            Self::Io(error) => errno_of_io(error),
        }
    }

    /// Whether it is an everyday answer rather than a failure: nothing there yet, or a signal came.
    fn is_everyday(&self) -> bool {
        matches!(self, Self::EmptyGid(_)) || matches!(self.errno(), libc::EAGAIN | libc::EINTR)
    }
}

fn errno_of_io(error: &io::Error) -> c_int {
    error.raw_os_error().unwrap_or_else(|| match error.kind() {
        io::ErrorKind::WouldBlock => libc::EAGAIN,
        io::ErrorKind::Interrupted => libc::EINTR,
        io::ErrorKind::StorageFull => libc::ENOSPC,
        io::ErrorKind::QuotaExceeded => libc::EDQUOT,
        io::ErrorKind::OutOfMemory => libc::ENOMEM,
        io::ErrorKind::TimedOut => libc::ETIMEDOUT,
        io::ErrorKind::PermissionDenied => libc::EACCES,
        io::ErrorKind::ReadOnlyFilesystem => libc::EROFS,
        io::ErrorKind::NotFound => libc::ENOENT,
        io::ErrorKind::NotADirectory => libc::ENOTDIR,
        _ => libc::EIO,
    })
}

fn errno_of_modify(error: &ModifyError) -> c_int {
    match error {
        ModifyError::Unsupported { .. } => libc::EOPNOTSUPP,
        _ => libc::EINVAL,
    }
}

fn errno_of_nic(error: &NicError) -> c_int {
    match error {
        NicError::Modify(error) => errno_of_modify(error),
        NicError::Unsupported(_) => libc::EOPNOTSUPP,
        NicError::Invalid { .. } | NicError::BadArgument(_) | NicError::Setting { .. } => {
            libc::EINVAL
        }
        NicError::Busy { .. } => libc::EBUSY,
        NicError::Limit { .. } => libc::ENOMEM,
        NicError::Fault { .. } => libc::EFAULT,
        NicError::Unreachable { .. } => libc::EHOSTUNREACH,
        NicError::PortTaken(_) => libc::EADDRINUSE,
        NicError::PortCovered(_) => libc::EADDRNOTAVAIL,
        NicError::State { .. } => libc::EINVAL,
        NicError::NoDevice { .. } => libc::ENODEV,
        NicError::Io { source, .. } => errno_of_io(source),
        // A parent's object in a forked child, and whatever may be added: the device cannot serve the call.
        _ => libc::EIO,
    }
}

/// Ending of the calls that return 0 or an errno value.
pub(crate) fn status(call: impl Display, result: Result<(), Error>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => {
            let errno = error.errno();
            report(&call, &error);
            // Not asked for by the manual pages, but plenty of programs print strerror(errno) here too.
            set_errno(errno);
            errno
        }
    }
}

/// Ending of the calls that return a count, an index or 0, or else -1 with errno set.
pub(crate) fn minus_one(call: &str, result: Result<c_int, Error>) -> c_int {
    result.unwrap_or_else(|error| {
        report(call, &error);
        set_errno(error.errno());
        -1
    })
}

/// Ending of the calls that return a count, or else an errno value with a minus sign.
pub(crate) fn negative(call: &str, result: Result<isize, Error>) -> isize {
    result.unwrap_or_else(|error| {
        report(call, &error);
        let errno = error.errno();
        set_errno(errno);
        -(errno as isize)
    })
}

/// Ending of the calls that return a pointer, or else NULL with errno set.
pub(crate) fn pointer<T>(call: &str, result: Result<*mut T, Error>) -> *mut T {
    result.unwrap_or_else(|error| {
        report(call, &error);
        set_errno(error.errno());
        ptr::null_mut()
    })
}

/// Writes a failure to stderr if somebody asked for that, and keeps its text for the Rust API. That of a full queue
/// is not kept: a busy program may get it any number of times.
pub(crate) fn report(call: &(impl Display + ?Sized), error: &Error) {
    if matches!(error, Error::Told(_)) {
        return;
    }
    if error.is_everyday() || matches!(error, Error::Post(PostError::QueueFull { .. })) {
        diagnosis::forget();
    } else {
        diagnosis::remember(error);
    }
    if logging() && !error.is_everyday() {
        // A closed stderr is the program's choice and no reason to die.
        let _ = writeln!(io::stderr(), "adverb: {call}: {error}");
    }
}

fn logging() -> bool {
    static ON: OnceLock<bool> = OnceLock::new();
    *ON.get_or_init(|| {
        let level = setting("ADVERB_LOG").unwrap_or_default();
        let level = level.to_string_lossy();
        matches!(
            level.to_ascii_lowercase().as_str(),
            "warn" | "info" | "debug" | "trace"
        )
    })
}

pub(crate) fn set_errno(value: c_int) {
    // SAFETY: the C library gives each thread its own errno, valid for the thread's life.
    unsafe { *libc::__errno_location() = value };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ending_reports_in_its_own_style() {
        assert_eq!(status("t", Ok(())), 0);
        assert_eq!(status("t", Err(Error::Null("PD"))), libc::EINVAL);
        assert_eq!(minus_one("t", Ok(3)), 3);
        assert_eq!(minus_one("t", Err(Error::Unsupported("it"))), -1);
        assert_eq!(
            io::Error::last_os_error().raw_os_error(),
            Some(libc::EOPNOTSUPP)
        );
        assert_eq!(
            negative("t", Err(Error::EmptyGid(1))),
            -(libc::ENODATA as isize)
        );
        assert!(
            pointer::<u8>(
                "t",
                Err(Error::Busy {
                    what: "PD",
                    users: 1
                })
            )
            .is_null()
        );
        assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::EBUSY));
    }

    #[test]
    fn a_full_queue_is_enomem_and_a_wrong_post_einval() {
        assert_eq!(
            Error::from(PostError::QueueFull { limit: 4 }).errno(),
            libc::ENOMEM
        );
        assert_eq!(Error::from(PostError::NoAddress).errno(), libc::EINVAL);
    }
}
