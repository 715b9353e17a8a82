//! Settings from the environment, which a set-user-ID program does not take from whoever starts it.

use std::ffi::OsString;

/// A variable of the environment; none in a program that runs with more rights than the user who started it
/// (`AT_SECURE` of `getauxval(3)`, as for `secure_getenv(3)`).
#[must_use]
pub fn setting(name: &str) -> Option<OsString> {
    // SAFETY: the call reads what the kernel handed over at the start of the process.
    let secure = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    if secure { None } else { std::env::var_os(name) }
}
