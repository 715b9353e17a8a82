//! Clocks, counters, cores, and what the machine can do at best.

pub(crate) mod cores;
pub(crate) mod limits;
pub(crate) mod machine;
pub(crate) mod others;
pub(crate) mod quota;
pub(crate) mod stalls;
pub(crate) mod summary;
pub(crate) mod ucx;

use std::time::{Duration, Instant};

/// CPU time that this process has used so far, all threads together (the NIC's included).
pub(crate) fn process_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

/// Two readings: how long, and how much CPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lap {
    wall: Instant,
    cpu: Duration,
}

impl Lap {
    pub(crate) fn start() -> Self {
        Self {
            wall: Instant::now(),
            cpu: process_cpu(),
        }
    }

    /// Wall time and CPU time since the start, in nanoseconds.
    pub(crate) fn read_ns(&self) -> (u64, u64) {
        let cpu = process_cpu().saturating_sub(self.cpu);
        (ns(self.wall.elapsed()), ns(cpu))
    }
}

/// Nanoseconds; 584 years fit.
pub(crate) fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
