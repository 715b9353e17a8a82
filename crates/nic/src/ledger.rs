//! How many events of an object were handed out and how many were acknowledged.
//!
//! Destroying a CQ, QP or SRQ waits until the two are equal (man ibv_ack_cq_events), so that a
//! thread which still looks at an event never finds its object gone.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Default)]
pub(crate) struct Ledger {
    pending: Mutex<u64>,
    settled: Condvar,
}

impl Ledger {
    pub(crate) fn delivered(&self) {
        *self.lock() += 1;
    }

    /// More acks than events is a program's mistake; it must not make a later destroy hang or
    /// return too early, so the count stops at zero.
    pub(crate) fn acked(&self, n: u64) {
        let mut pending = self.lock();
        *pending = pending.saturating_sub(n);
        if *pending == 0 {
            self.settled.notify_all();
        }
    }

    pub(crate) fn wait_settled(&self) {
        let mut pending = self.lock();
        while *pending > 0 {
            pending = self
                .settled
                .wait(pending)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, u64> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn waiting_ends_with_the_last_ack_and_extra_acks_do_no_harm() {
        let ledger = Arc::new(Ledger::default());
        ledger.delivered();
        ledger.delivered();
        let other = Arc::clone(&ledger);
        let waiter = std::thread::spawn(move || other.wait_settled());
        ledger.acked(1);
        ledger.acked(5);
        waiter.join().unwrap();
        ledger.wait_settled();
    }
}
