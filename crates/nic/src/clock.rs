//! The one place where time is read. Everything below gets it as an argument.

use adverb_engine::Instant;
use rustix::time::{ClockId, clock_gettime};

/// Now, in nanoseconds of the kernel's monotonic clock: the same in every process of this host,
/// so one process may compare its own time with what another one published.
pub fn now() -> Instant {
    let t = clock_gettime(ClockId::Monotonic);
    Instant::from_nanos(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
}
