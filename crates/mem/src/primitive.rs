//! The one switch between the atomics of the standard library and those of loom.
//!
//! Code whose interleavings loom explores takes its atomics from here and nowhere else.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
