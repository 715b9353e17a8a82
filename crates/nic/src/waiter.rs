//! How a thread waits for an event of its own: it looks, sleeps, and looks again.
//!
//! The looking is here, the sleeping is the caller's: C programs cancel threads that sleep, and
//! then nothing of ours may lie on the stack.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use adverb_mem::Sleep;

use crate::nic::Nic;

/// What a look for an event comes to.
#[derive(Debug)]
pub enum Step<T> {
    /// It is there, and the wait is over.
    Got(T),
    /// Sleep on this, and look again.
    Sleep(Sleep),
}

/// One thread's wait, from the first look to the event. Dropped in the middle of it, it hands the
/// watch on, so that a thread that goes away leaves nobody alone.
#[derive(Debug, Default)]
pub struct Waiter {
    watch: Option<Watch>,
}

/// What the thread has taken upon itself while it waits.
struct Watch {
    nic: Arc<Nic>,
    /// It watches for the whole process, and drives.
    leads: bool,
    /// It has announced that it sleeps.
    asleep: bool,
}

impl Waiter {
    /// A wait that has not begun.
    #[must_use]
    pub const fn new() -> Self {
        Self { watch: None }
    }

    /// Looks: takes an event by `take`, or says what to sleep on. `nonblocking` tells whether the
    /// program wants EAGAIN instead.
    pub(crate) fn look<T>(
        &mut self,
        nic: &Arc<Nic>,
        fd: BorrowedFd<'_>,
        nonblocking: impl FnOnce() -> io::Result<bool>,
        mut take: impl FnMut() -> Option<T>,
    ) -> io::Result<Step<T>> {
        if let Some(t) = self.look_awake(nic, nonblocking, &mut take)? {
            return Ok(Step::Got(t));
        }
        let watch = self.watch.get_or_insert_with(|| Watch::enter(nic));
        loop {
            if let Some(t) = take() {
                self.watch = None;
                return Ok(Step::Got(t));
            }
            if let Some(sleep) = watch.fall_asleep(fd) {
                return Ok(Step::Sleep(sleep));
            }
            watch.wake();
        }
    }

    /// Looks, and stays awake if there is nothing. From then on the thread leads if nobody else does, so that the NIC thread
    /// stays out of its way and no peer rings.
    pub(crate) fn look_awake<T>(
        &mut self,
        nic: &Arc<Nic>,
        nonblocking: impl FnOnce() -> io::Result<bool>,
        mut take: impl FnMut() -> Option<T>,
    ) -> io::Result<Option<T>> {
        if !nic.alive() {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        let first = match &mut self.watch {
            Some(watch) => {
                if !watch.wake() {
                    nic.drive_for_user();
                }
                false
            }
            None => {
                if let Some(t) = take() {
                    return Ok(Some(t));
                }
                nic.drive_for_user();
                true
            }
        };
        if let Some(t) = take() {
            self.watch = None;
            return Ok(Some(t));
        }
        if first {
            if nonblocking()? {
                return Err(io::Error::from_raw_os_error(libc::EAGAIN));
            }
            self.watch = Some(Watch::enter(nic));
        }
        Ok(None)
    }
}

impl Watch {
    fn enter(nic: &Arc<Nic>) -> Self {
        Self {
            nic: Arc::clone(nic),
            leads: nic.fabric.lead(),
            asleep: false,
        }
    }

    /// What to sleep on, if there is nothing to do.
    fn fall_asleep(&mut self, fd: BorrowedFd<'_>) -> Option<Sleep> {
        if !self.leads {
            return Some(Sleep::on(fd));
        }
        self.asleep = true;
        self.nic.pay();
        self.nic.fabric.fall_asleep(fd)
    }

    /// Does what the leader was woken for. False if it has not slept.
    fn wake(&mut self) -> bool {
        let slept = std::mem::take(&mut self.asleep);
        if slept {
            self.nic.fabric.wake_up();
            self.nic.work_on_waking();
        }
        slept
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if self.asleep {
            self.nic.fabric.wake_up();
        }
        self.nic.fabric.stop_leading(self.leads);
    }
}

/// Waits by `look` until it has got something. For threads that nobody cancels.
pub fn wait<T>(mut look: impl FnMut(&mut Waiter) -> io::Result<Step<T>>) -> io::Result<T> {
    let mut waiter = Waiter::default();
    loop {
        match look(&mut waiter)? {
            Step::Got(t) => return Ok(t),
            Step::Sleep(sleep) => sleep.uncancelled()?,
        }
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch")
            .field("leads", &self.leads)
            .field("asleep", &self.asleep)
            .finish_non_exhaustive()
    }
}
