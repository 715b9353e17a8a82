//! How the two sides of an exchange talk: over verbs here, over sockets in `socket.rs`.

use anyhow::Result;

use super::session::{Arrival, Mark, Session};
use super::wait::Waiter;

/// One side of an exchange.
pub(crate) trait Talk {
    /// Sends one message with a number in it.
    fn send(&mut self, sequence: u64, size: usize) -> Result<()>;

    /// Sends several at once.
    fn send_all(&mut self, sequences: &[u64], size: usize) -> Result<()>;

    fn send_mark(&mut self, mark: Mark) -> Result<()>;

    /// Takes what has come, without waiting; arrivals are appended. Whether there was anything, the end of an operation of ours included.
    fn poll(&mut self, arrivals: &mut Vec<Arrival>) -> Result<bool>;

    /// After a poll that found nothing: looks away for a moment, or sleeps.
    fn idle(&mut self) -> Result<()>;

    /// How often it has slept so far.
    fn sleeps(&self) -> u64;
}

/// A session, and how it is waited on.
pub(crate) struct Verbs<'a> {
    pub(crate) session: &'a mut Session,
    pub(crate) waiter: Waiter,
}

impl Talk for Verbs<'_> {
    fn send(&mut self, sequence: u64, size: usize) -> Result<()> {
        self.session.send(sequence, size)
    }

    fn send_all(&mut self, sequences: &[u64], size: usize) -> Result<()> {
        self.session.send_all(sequences, size)
    }

    fn send_mark(&mut self, mark: Mark) -> Result<()> {
        self.session.send_mark(mark)
    }

    fn poll(&mut self, arrivals: &mut Vec<Arrival>) -> Result<bool> {
        let polled = self.session.poll(arrivals)?;
        Ok(!polled.is_empty())
    }

    fn idle(&mut self) -> Result<()> {
        self.waiter.idle(self.session)
    }

    fn sleeps(&self) -> u64 {
        self.waiter.sleeps(self.session)
    }
}
