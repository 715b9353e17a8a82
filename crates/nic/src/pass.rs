//! What a verb does with the links, from its entry to its return.

use adverb_engine::Instant;

use crate::clock;
use crate::nic::Nic;

/// Made on entry to a verb: it reads the clock, and nobody reads it again for what the verb does at once. Dropped, it sends
/// the datagrams that wait for others, so that no way out of a verb leaves packets lying. To be made before a queue pair's lock is
/// taken, and thus dropped after that is free again.
pub(crate) struct Pass<'a> {
    nic: &'a Nic,
    now: Instant,
}

impl<'a> Pass<'a> {
    pub(crate) fn begin(nic: &'a Nic) -> Self {
        Self::at(nic, clock::now())
    }

    /// Of a verb that has read the clock already.
    pub(crate) fn at(nic: &'a Nic, now: Instant) -> Self {
        Self { nic, now }
    }

    /// When it began.
    pub(crate) fn now(&self) -> Instant {
        self.now
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        self.nic.fabric.flush();
    }
}
