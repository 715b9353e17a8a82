//! How long to spin before a sleep: whichever of a few lengths would have been cheapest of late.
//!
//! What each length would have cost is known exactly once a wait is over. So there is nothing to assume about how messages
//! arrive: of all lengths the average cost is kept, and the leader is followed; where it is close, the one that is faster.

/// Lengths, in eighths of W. More than W is never cheaper than sleeping at once.
const EIGHTHS: [u64; 5] = [8, 4, 2, 1, 0];
/// Weight of the newest wait: 1/16. Slow enough for a rare long wait among many short ones.
const SHIFT: u32 = 4;

#[derive(Clone, Debug)]
pub(crate) struct Threshold {
    wake: u64,
    /// Average cost of each length, times 16.
    costs: [u64; EIGHTHS.len()],
}

impl Threshold {
    pub(crate) fn new(wake: u64) -> Self {
        Self {
            wake,
            costs: [0; EIGHTHS.len()],
        }
    }

    /// The longest, which is the fastest, of those that cost at most a sixteenth more than the cheapest.
    pub(crate) fn best(&self) -> u64 {
        let cheapest = self.costs.iter().copied().min().unwrap_or(0);
        let longest = EIGHTHS
            .iter()
            .zip(&self.costs)
            .find(|&(_, &cost)| cost <= cheapest + cheapest / 16);
        longest.map_or(0, |(&eighths, _)| self.length(eighths))
    }

    pub(crate) fn learn(&mut self, wait: u64) {
        let wake = self.wake;
        for (average, eighths) in self.costs.iter_mut().zip(EIGHTHS) {
            let length = wake * eighths / 8;
            let cost = if wait <= length { wait } else { length + wake };
            *average = *average - (*average >> SHIFT) + cost;
        }
    }

    fn length(&self, eighths: u64) -> u64 {
        self.wake * eighths / 8
    }
}
