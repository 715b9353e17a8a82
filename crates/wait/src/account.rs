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

    /// Whether a plan may be tried that costs at worst so much more than twice the best.
    pub(crate) fn allows(&self, excess: u64) -> bool {
        self.balance.saturating_add(signed(excess)) <= self.half
    }

    pub(crate) fn settle(&mut self, cost: u64, best: u64) {
        let change = signed(cost).saturating_sub(signed(best).saturating_mul(2));
        self.balance = self.balance.saturating_add(change).max(-self.half);
    }
}

fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}
