//! The frame of a call of the C face: nobody is unwound in it, and its failure is told.
//!
//! A thread that is cancelled inside one of our functions ends at its own next cancellation point ([`Uncancelled`]). The
//! calls of the data path have none inside, and end by `errno.rs` directly; those that wait are in `waiting.rs`.

use std::ffi::c_int;

use adverb_nic::Uncancelled;

use crate::errno::{self, Error};

/// A call that returns 0 or an errno value.
pub(crate) fn status(name: &str, body: impl FnOnce() -> Result<(), Error>) -> c_int {
    let _uncancelled = Uncancelled::new();
    errno::status(name, body())
}

/// A call that returns a count, an index or 0, or else -1 with errno set.
pub(crate) fn minus_one(name: &str, body: impl FnOnce() -> Result<c_int, Error>) -> c_int {
    let _uncancelled = Uncancelled::new();
    errno::minus_one(name, body())
}

/// A call that returns a count, or else an errno value with a minus sign.
pub(crate) fn negative(name: &str, body: impl FnOnce() -> Result<isize, Error>) -> isize {
    let _uncancelled = Uncancelled::new();
    errno::negative(name, body())
}

/// A call that returns a pointer, or else NULL with errno set.
pub(crate) fn pointer<T>(name: &str, body: impl FnOnce() -> Result<*mut T, Error>) -> *mut T {
    let _uncancelled = Uncancelled::new();
    errno::pointer(name, body())
}

/// A call that returns nothing.
pub(crate) fn nothing(name: &str, body: impl FnOnce() -> Result<(), Error>) {
    let _uncancelled = Uncancelled::new();
    if let Err(error) = body() {
        errno::report(name, &error);
    }
}
