//! Messages that wait to be sent.

use std::collections::VecDeque;

use adverb_wire::cm::Mad;

/// More than this many different answers never wait in earnest; what a flood asks for beyond is lost like any packet.
const MOST: usize = 4;

#[derive(Clone, Debug, Default)]
pub(super) struct Outbox(VecDeque<Mad>);

impl Outbox {
    /// Queues the message, unless the same is queued already.
    pub(super) fn push(&mut self, mad: Mad) {
        if self.0.len() < MOST && !self.0.contains(&mad) {
            self.0.push_back(mad);
        }
    }

    pub(super) fn extend(&mut self, mad: Option<Mad>) {
        if let Some(mad) = mad {
            self.push(mad);
        }
    }

    /// What was to be said is overtaken by events.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn pop(&mut self) -> Option<Mad> {
        self.0.pop_front()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
