//! Waiting for an answer: how long, and how often to ask again.

use crate::time::Instant;

/// No peer makes us wait longer than this code says at a time (about 69 s), whatever it puts into a message: what it
/// asks for is kept in memory.
const LONGEST: u8 = 24;

/// Whoever asks for a connection chooses the timers of his REQ, and may have put somebody else's address on it. So his
/// answer is due after no less than kernels ask for (about 4.3 s), lest we send him more than he sends us, and after no
/// more than twice that, lest he is remembered for long. Who has not heard an answer asks again, and then it is repeated
/// at once; these are for those whose own answer was lost.
const SHORTEST_ASKED: u8 = 20;
const LONGEST_ASKED: u8 = 21;

/// How long a REJ is kept for a stranger who may ask again.
const REFUSED_NS: u64 = 10_000_000_000;

/// How long somebody who asks may take to answer: response and way, both as timer codes of his REQ.
pub(super) fn asked_ns(response: u8, way: u8) -> u64 {
    let asked = code_ns(response) + code_ns(way);
    asked.clamp(code_ns(SHORTEST_ASKED), code_ns(LONGEST_ASKED))
}

/// How long packets of his may be under way: a timer code of his REQ.
pub(super) fn asked_way_ns(code: u8) -> u64 {
    code_ns(code.min(LONGEST_ASKED))
}

/// How long a refusal is kept for somebody who would wait `ns` for it.
pub(super) fn refused_ns(ns: u64) -> u64 {
    ns.min(REFUSED_NS)
}

/// A timer code of the connection manager in nanoseconds: 4.096 µs times 2^code.
pub(super) const fn code_ns(code: u8) -> u64 {
    let code = if code > LONGEST { LONGEST } else { code };
    4096 << code
}

/// One deadline, and how often it may pass before we give up.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wait {
    deadline: Option<Instant>,
    interval_ns: u64,
    left: u8,
}

/// What a deadline that has passed asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Passed {
    Repeat,
    GiveUp,
}

impl Wait {
    /// An answer is due after `interval_ns`, and again after each of `retries` repetitions.
    pub(super) const fn start(now: Instant, interval_ns: u64, retries: u8) -> Self {
        Self {
            deadline: Some(now.plus_nanos(interval_ns)),
            interval_ns,
            left: retries,
        }
    }

    /// Something ends after `ns`.
    pub(super) const fn once(now: Instant, ns: u64) -> Self {
        Self::start(now, ns, 0)
    }

    pub(super) const fn stop(&mut self) {
        self.deadline = None;
    }

    /// The question has only now left us.
    pub(super) fn sent(&mut self, now: Instant) {
        self.deadline = self
            .deadline
            .map(|d| d.max(now.plus_nanos(self.interval_ns)));
    }

    /// The peer thinks: waits `ns` longer than an answer takes. Costs no repetition.
    pub(super) fn extend(&mut self, now: Instant, ns: u64) {
        let until = now.plus_nanos(ns).plus_nanos(self.interval_ns);
        self.deadline = self.deadline.map(|d| d.max(until));
    }

    /// Takes note that the deadline has passed, if it has.
    pub(super) fn pass(&mut self, now: Instant) -> Option<Passed> {
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return None;
        }
        let Some(left) = self.left.checked_sub(1) else {
            self.deadline = None;
            return Some(Passed::GiveUp);
        };
        self.left = left;
        self.deadline = Some(now.plus_nanos(self.interval_ns));
        Some(Passed::Repeat)
    }

    pub(super) const fn deadline(&self) -> Option<Instant> {
        self.deadline
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_passes_once_per_interval_and_then_gives_up() {
        let mut wait = Wait::start(Instant::ZERO, 100, 2);
        assert_eq!(wait.pass(Instant::from_nanos(99)), None);
        for (at, expected) in [
            (100, Passed::Repeat),
            (200, Passed::Repeat),
            (300, Passed::GiveUp),
        ] {
            let now = Instant::from_nanos(at);
            assert_eq!(wait.deadline(), Some(now));
            assert_eq!(wait.pass(now), Some(expected));
        }
        assert_eq!(wait.deadline(), None);
        assert_eq!(wait.pass(Instant::from_nanos(1000)), None);
    }

    #[test]
    fn strangers_choose_within_bounds() {
        assert_eq!(asked_ns(0, 0), code_ns(20));
        assert_eq!(asked_ns(20, 16), code_ns(20) + code_ns(16));
        assert_eq!(asked_ns(31, 31), code_ns(21));
        assert_eq!(
            (asked_way_ns(10), asked_way_ns(31)),
            (code_ns(10), code_ns(21))
        );
        assert_eq!(refused_ns(4 * asked_ns(31, 31)), 10_000_000_000);
    }

    #[test]
    fn no_code_waits_longer_than_the_longest() {
        assert_eq!(code_ns(20), 4096 << 20);
        assert_eq!(code_ns(31), code_ns(24));
        assert_eq!(code_ns(255), code_ns(24));
    }
}
