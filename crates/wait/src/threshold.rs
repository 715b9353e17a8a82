//! How long to spin before a sleep: whichever of a few lengths would have been cheapest of late.
//!
//! What each length would have cost is known exactly once a wait is over. So there is nothing to assume about how messages
//! arrive: of all lengths the average cost is kept, and the leader is followed; where it is close, the one that is faster.
//!
//! Lengths above W are never cheaper than sleeping at once, on a trace that is given. Two threads that wait for each other
//! are different: while both sleep, each waits for a little more than the other's W, so both sleep for ever, although
//! a microsecond would do for both if they spun. Hence the lengths above W, and that they are taken already when
//! they cost half as much again: then the other side's waits become short, and it spins as well.

/// Lengths, in eighths of W, and by which fraction of the cheapest one's cost theirs may be higher.
const LENGTHS: [(u64, u64); 7] = [
    (16, 2),
    (12, 2),
    (8, 16),
    (4, 16),
    (2, 16),
    (1, 16),
    (0, 16),
];
/// Weight of the newest wait: 1/16. Slow enough for a rare long wait among many short ones.
const SHIFT: u32 = 4;

#[derive(Clone, Debug)]
pub(crate) struct Threshold {
    wake: u64,
    /// Average cost of each length, times 16.
    costs: [u64; LENGTHS.len()],
}

impl Threshold {
    pub(crate) fn new(wake: u64) -> Self {
        Self {
            wake,
            costs: [0; LENGTHS.len()],
        }
    }

    /// The longest, which is the fastest, of those that cost hardly more than the cheapest.
    pub(crate) fn best(&self) -> u64 {
        let cheapest = self.costs.iter().copied().min().unwrap_or(0);
        let longest = LENGTHS
            .iter()
            .zip(&self.costs)
            .find(|&((_, part), &cost)| cost <= cheapest + cheapest / part);
        longest.map_or(0, |((eighths, _), _)| self.wake * eighths / 8)
    }

    pub(crate) fn learn(&mut self, wait: u64) {
        let wake = self.wake;
        for (average, (eighths, _)) in self.costs.iter_mut().zip(LENGTHS) {
            let length = wake * eighths / 8;
            let cost = if wait <= length { wait } else { length + wake };
            *average = *average - (*average >> SHIFT) + cost;
        }
    }
}
