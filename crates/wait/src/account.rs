//! The account that keeps the policy within twice the best, whatever arrives.
//!
//! After each wait both are known: what it has cost us, and what the best that knows the future would have paid,
//! min(wait, W). The balance is the sum of cost − 2 × best, never below −`SLACK`/2 × W, so that good times do not
//! pay for bad ones without end.
//!
//! Spinning for W and then sleeping never raises the balance: a wait shorter than W costs itself, a longer one 2 W. Every
//! cleverer plan can turn out worse by an amount that is known in advance. It is allowed only while the balance with that
//! amount stays at or below `SLACK`/2 × W. So the balance never exceeds that, and over any stretch of any trace
//! cost ≤ 2 × best + `SLACK` × W.

/// Wake-ups that the policy may lose over any stretch of a trace beyond twice the best.
pub const SLACK: u64 = 16;

#[derive(Clone, Debug)]
pub(crate) struct Account {
    balance: i64,
    half: i64,
}

impl Account {
    pub(crate) fn new(wake: u64) -> Self {
        Self {
            balance: 0,
            half: signed(SLACK / 2 * wake),
        }
    }

    /// How much more than twice the best a plan may cost at worst.
    pub(crate) fn allowance(&self) -> u64 {
        u64::try_from(self.half.saturating_sub(self.balance)).unwrap_or(0)
    }

    /// The same for plans that are not needed to get by. Whoever used all of it could never again sleep at once, and so
    /// would never earn it back where all waits are long.
    pub(crate) fn spare(&self) -> u64 {
        let kept = u64::try_from(self.half).unwrap_or(0) / SLACK * 4;
        self.allowance().saturating_sub(kept)
    }

    /// A wake-up turns out to cost something else. What is owed counts in wake-ups.
    pub(crate) fn reprice(&mut self, wake: u64) {
        let half = signed(SLACK / 2 * wake);
        let balance = i128::from(self.balance) * i128::from(half) / i128::from(self.half.max(1));
        self.half = half;
        self.balance = i64::try_from(balance).unwrap_or(0).clamp(-half, half);
    }

    pub(crate) fn settle(&mut self, cost: u64, best: u64) {
        let change = signed(cost).saturating_sub(signed(best).saturating_mul(2));
        self.balance = self.balance.saturating_add(change).max(-self.half);
    }
}

fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}
