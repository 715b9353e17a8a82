//! Answers of the calls that are not built: the rest of libibverbs, all of librdmacm, and what belongs to drivers of
//! real devices. The drop-in library has the names; each gets the answer of its kind, and one line in the log.

use std::ffi::{c_int, c_void};
use std::ptr;

use crate::errno::{self, Error};

fn refuse(call: &str) -> c_int {
    errno::report(call, &Error::Unsupported("the call"));
    errno::set_errno(libc::EOPNOTSUPP);
    libc::EOPNOTSUPP
}

/// For calls that return a pointer.
pub fn pointer(call: &str) -> *mut c_void {
    refuse(call);
    ptr::null_mut()
}

/// For calls that return -1 and set errno.
pub fn minus_one(call: &str) -> isize {
    refuse(call);
    -1
}

/// For calls that return an errno value.
pub fn errno(call: &str) -> c_int {
    refuse(call)
}

/// For calls that may well be made, and have nothing to do.
pub fn nothing(_call: &str) -> usize {
    0
}
