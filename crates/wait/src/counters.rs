//! What a policy has done.

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Waits that began with an empty poll.
    pub waits: u64,
    /// Waits in which it spun at all.
    pub spins: u64,
    /// Waits that ended while it was spinning.
    pub hits: u64,
    /// Sleeps, each of which arms the queue.
    pub arms: u64,
    /// Those of them that had an end by the timer, shortly before a message was due.
    pub naps: u64,
    /// Sleeps that a message ended.
    pub wakes: u64,
    /// Sleeps that ended without a message, not counting those that the timer ended.
    pub empty_wakes: u64,
    /// It went to sleep before it had spun for a W, and the wait was longer than that.
    pub early_right: u64,
    /// The same, but the wait was shorter: spinning would have been cheaper.
    pub early_wrong: u64,
    /// Waits that were spun for longer than seemed worth it, to learn what a wake-up costs.
    pub probes: u64,
    /// Time spun, in ns.
    pub spun_ns: u64,
}
