//! Semaphore eventfds: descriptors whose readiness equals "an event can be got".
//!
//! Completion, async-event and CM channels are such descriptors, because programs poll, epoll and dup them.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, ReadWriteFlags};

/// An eventfd that counts: each [`EventFd::signal`] lets one [`EventFd::take`] through.
#[derive(Debug)]
pub struct EventFd {
    fd: OwnedFd,
}

impl EventFd {
    /// A descriptor in blocking mode with nothing to take. The application may set `O_NONBLOCK` on it.
    pub fn semaphore() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::SEMAPHORE | EventfdFlags::CLOEXEC)?;
        Ok(Self { fd })
    }

    /// Adds `count` events. Never blocks in practice: the counter holds 2^64 - 2.
    pub fn signal(&self, count: u64) -> io::Result<()> {
        if count == 0 {
            return Ok(());
        }
        retry(|| rustix::io::write(&self.fd, &count.to_ne_bytes()))?;
        Ok(())
    }

    /// Takes one event; waits for it unless the descriptor is in non-blocking mode (then `WouldBlock`).
    ///
    /// A signal handler that interrupts the wait gives `Interrupted`: whoever waits for a program decides what follows.
    pub fn take(&self) -> io::Result<()> {
        let mut word = [0; 8];
        rustix::io::read(&self.fd, &mut word)?;
        Ok(())
    }

    /// Takes one event if there is one, whatever the mode of the descriptor. Never waits.
    pub fn try_take(&self) -> io::Result<bool> {
        let mut word = [0; 8];
        let mut into = [io::IoSliceMut::new(&mut word)];
        // The offset of all ones means "no offset", as for read; it is what descriptors that cannot seek demand.
        match retry(|| rustix::io::preadv2(&self.fd, &mut into, u64::MAX, ReadWriteFlags::NOWAIT)) {
            Ok(_) => Ok(true),
            Err(Errno::AGAIN) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for EventFd {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_signal_lets_one_taker_through() {
        let events = EventFd::semaphore().unwrap();
        assert!(!events.try_take().unwrap());
        events.signal(2).unwrap();
        events.signal(0).unwrap();
        assert!(events.try_take().unwrap());
        events.take().unwrap();
        assert!(!events.try_take().unwrap());
    }

    #[test]
    fn a_non_blocking_descriptor_says_would_block() {
        let events = EventFd::semaphore().unwrap();
        rustix::fs::fcntl_setfl(&events, rustix::fs::OFlags::NONBLOCK).unwrap();
        assert_eq!(events.take().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
