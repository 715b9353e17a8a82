//! Locks whose poison is ignored: a panic in one verb aborts at the C edge anyway, and in a Rust
//! program it must not turn every later call into a panic of its own.

use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) trait LockExt<T> {
    fn acquire(&self) -> MutexGuard<'_, T>;
}

impl<T> LockExt<T> for Mutex<T> {
    fn acquire(&self) -> MutexGuard<'_, T> {
        self.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
