//! What a wake-up really costs, learned from the policy's own sleeps.
//!
//! Nobody tells a sleeper when its event was raised, so a single sleep says only that the wake-up took no longer than the
//! sleep. But two ways to wait can be compared: while several waits in a row end in sleeps of much the same length,
//! one is now and then looked through to its end instead. What that saves is the wake-up. It holds for whatever
//! comes at a pace of its own, and for two sides that wait for each other, where each wait contains the other's wake-up,
//! too, whether we sleep or not. Chance may make it look like more, but never like more than the shortest sleep of late.
//!
//! A W that was told too high is not found out about as long as nothing is slept through: then there is nothing to compare.

/// Sleeps in a row, all of much the same length, before a wait is compared with them.
const ROW: u32 = 4;
/// Waits in a row from one comparison to the next: from the first as long as they surprise, to the last.
const INTERVALS: [u32; 2] = [4, 128];
/// Comparisons in a row that must agree.
const BELIEVE: usize = 3;
/// Sleeps longer than so many W are not compared: looking for so long costs more than a better W is worth.
const LONGEST: u64 = 20;
/// Sleeps over which the shortest is sought.
const SLEEPS: u32 = 32;
/// What is learned is no less than a fourth of what was told, and no more than sixteen times that.
const FACTORS: [u64; 2] = [4, 16];

#[derive(Clone, Debug)]
pub(crate) struct Wake {
    told: u64,
    believed: u64,
    /// Waits that ended in a sleep, in a row.
    row: u32,
    /// From the beginning of such waits to their end: mean, and mean deviation.
    asleep: (u64, u64),
    interval: u32,
    left: u32,
    /// The shortest sleep that an event ended, of this and of the previous `SLEEPS`.
    shortest: [u64; 2],
    sleeps: u32,
    /// What the last comparisons say that a wake-up costs, newest first.
    compared: [Option<i64>; BELIEVE],
}

impl Wake {
    pub(crate) fn new(told: u64) -> Self {
        Self {
            told,
            believed: told,
            row: 0,
            asleep: (0, 0),
            interval: INTERVALS[0],
            left: INTERVALS[0],
            shortest: [u64::MAX; 2],
            sleeps: 0,
            compared: [None; BELIEVE],
        }
    }

    pub(crate) fn ns(&self) -> u64 {
        self.believed
    }

    /// A sleep was ended by its event, after so long.
    pub(crate) fn woken(&mut self, after: u64) {
        if self.sleeps.is_multiple_of(SLEEPS) {
            self.shortest = [u64::MAX, self.shortest[0]];
        }
        self.sleeps = self.sleeps.wrapping_add(1);
        self.shortest[0] = self.shortest[0].min(after);
    }

    /// A wait was slept through, from `length` ago; its event ended it.
    pub(crate) fn slept(&mut self, length: u64, now: u64) {
        self.row = self.row.saturating_add(1);
        let (mean, deviation) = &mut self.asleep;
        // The first began in time, the others late by a wake-up, as the one will that is looked through.
        if self.row <= 2 {
            (*mean, *deviation) = (length, 0);
        } else {
            let off = mean.abs_diff(length).min(length.saturating_mul(4));
            *mean = if length > *mean {
                mean.saturating_add(off / 4)
            } else {
                *mean - off / 4
            };
            *deviation = *deviation - *deviation / 4 + off / 4;
        }
        // Two sides that compare in step would each be credited with what the other saves.
        let step = 1 + u32::from(now / 64 % 2 == 1);
        self.left = self.left.saturating_sub(step);
    }

    /// A wait ended otherwise.
    pub(crate) fn other(&mut self) {
        self.row = 0;
    }

    /// How long to look for a comparison, if it is time for one.
    pub(crate) fn probe(&self) -> Option<u64> {
        let (mean, deviation) = self.asleep;
        let alike = deviation <= mean / 2 && mean <= self.believed.saturating_mul(LONGEST);
        (self.row >= ROW && self.left == 0 && alike).then(|| mean + mean / 4)
    }

    /// A comparison: the message was found after so much looking. None: it had not come by then, which says little.
    pub(crate) fn probed(&mut self, length: Option<u64>) {
        self.row = 0;
        let Some(length) = length else {
            return self.rest(2 * self.interval);
        };
        let cost = signed(self.asleep.0) - signed(length);
        self.compared.rotate_right(1);
        self.compared[0] = Some(cost);
        let compared = self.compared;
        let known = || compared.iter().flatten().copied();
        let (Some(low), Some(high)) = (known().min(), known().max()) else {
            return;
        };
        // What is believed moves no further than all of them make it.
        let believed = signed(self.believed);
        let better = believed.max(low).min(high);
        let surprise = (better - believed).abs() > believed / 4;
        self.rest(match surprise {
            true => INTERVALS[0],
            false => 2 * self.interval,
        });
        // What chance says differs more.
        if surprise && known().count() == BELIEVE && high / 2 <= low {
            let least = (self.told / FACTORS[0]).max(100);
            let most = self.told.saturating_mul(FACTORS[1]).min(10_000_000);
            let [now, before] = self.shortest;
            let better = u64::try_from(better).unwrap_or(0).min(now.min(before));
            self.believed = better.clamp(least, most);
        }
    }

    fn rest(&mut self, interval: u32) {
        self.interval = interval.min(INTERVALS[1]);
        // Looking through long waits costs more.
        let weight = self.asleep.0 / self.believed / 4;
        let weight = u32::try_from(1 + weight).unwrap_or(u32::MAX);
        self.left = self.interval.saturating_mul(weight);
    }
}

fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX / 4).min(i64::MAX / 4)
}
