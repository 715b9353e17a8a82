//! Room for a train in the ring to another process.

use adverb_mem::Target;
use adverb_mem::ring::Slot;

use super::record::{PAYLOAD_AT, Prefix};

/// A record that is being filled, without any lock. Until it is dropped, what others send to this process waits behind it.
#[derive(Debug)]
pub struct Berth {
    slot: Slot,
    prefix: Prefix,
    sent: bool,
}

impl Berth {
    pub(super) const fn new(slot: Slot, prefix: Prefix) -> Self {
        Self {
            slot,
            prefix,
            sent: false,
        }
    }

    /// Where the payload goes.
    pub(crate) fn payload(&mut self) -> Target<'_> {
        self.slot.target(PAYLOAD_AT)
    }

    /// Sends the train.
    pub(crate) fn send(mut self, head: &[u8]) {
        let prefix = self.prefix.of(Some(head.len()));
        self.slot.write(0, prefix);
        self.slot.write(prefix.len(), head);
        self.sent = true;
    }
}

impl Drop for Berth {
    fn drop(&mut self) {
        if !self.sent {
            self.slot.write(0, self.prefix.of(None));
        }
    }
}
