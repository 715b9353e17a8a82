//! A real kernel descriptor whose readiness equals "an event can be got".
//!
//! Programs poll, epoll and dup these descriptors and set O_NONBLOCK on them, so each is an
//! eventfd in semaphore mode that counts the entries of a queue beside it.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Mutex;

use adverb_mem::EventFd;
use rustix::fs::{OFlags, fcntl_getfl};

use crate::sync::LockExt;

pub(crate) struct EventQueue<T> {
    fd: EventFd,
    entries: Mutex<VecDeque<T>>,
}

impl<T> EventQueue<T> {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            fd: EventFd::semaphore()?,
            entries: Mutex::new(VecDeque::new()),
        })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(crate) fn push(&self, entry: T) {
        let mut entries = self.entries.acquire();
        entries.push_back(entry);
        // Under the lock, so that count and queue never differ for anyone who holds it. The
        // count cannot overflow: that would take 2^64 - 2 entries.
        let _ = self.fd.signal(1);
    }

    /// Takes the oldest entry. Never blocks: whoever holds the lock and sees an entry also owns
    /// one of the descriptor's counts.
    pub(crate) fn take(&self) -> Option<T> {
        self.take_noting(|_| ())
    }

    /// As `take`. Whoever purges later finds the entry either in the queue or noted.
    pub(crate) fn take_noting(&self, note: impl FnOnce(&T)) -> Option<T> {
        let mut entries = self.entries.acquire();
        let entry = entries.pop_front()?;
        note(&entry);
        self.uncount();
        Some(entry)
    }

    /// Removes the entries of an object that is going away.
    pub(crate) fn purge(&self, of_it: impl FnMut(&T) -> bool) {
        drop(self.extract(of_it));
    }

    /// Removes entries and gives them to the caller, in their order: what their drop does must not
    /// happen under the lock.
    pub(crate) fn extract(&self, mut of_it: impl FnMut(&T) -> bool) -> Vec<T> {
        let mut entries = self.entries.acquire();
        let mut out = Vec::new();
        for entry in std::mem::take(&mut *entries) {
            if of_it(&entry) {
                out.push(entry);
                self.uncount();
            } else {
                entries.push_back(entry);
            }
        }
        out
    }

    /// Whether the program asked for EAGAIN instead of waiting; it may change its mind any time.
    pub(crate) fn nonblocking(&self) -> io::Result<bool> {
        Ok(fcntl_getfl(&self.fd)?.contains(OFlags::NONBLOCK))
    }

    fn uncount(&self) {
        // A program that read the descriptor itself has taken the count already; that is its
        // business, and waiting for another one would be a hang.
        let _ = self.fd.try_take();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};

    fn readable<T>(q: &EventQueue<T>) -> bool {
        let now = rustix::time::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut [PollFd::new(&q.fd(), PollFlags::IN)], Some(&now)).unwrap() == 1
    }

    #[test]
    fn readiness_equals_an_entry_being_there() {
        let q = EventQueue::new().unwrap();
        assert!(!readable(&q) && q.take().is_none());
        q.push(1);
        q.push(2);
        q.push(1);
        q.purge(|e| *e == 1);
        assert!(readable(&q));
        assert_eq!(q.take(), Some(2));
        assert!(!readable(&q));
    }
}
