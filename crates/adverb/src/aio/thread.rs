//! A thread of our own that watches descriptors, where there is no reactor. One for all of the process; it sleeps in epoll.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;

use super::{Descriptor, Readiness};
use crate::sync::lock;

/// Events taken from the kernel at a time.
const EVENTS: usize = 64;

/// Watches by the thread of this library, which starts when it is first needed.
#[derive(Debug)]
pub struct Thread {
    watch: Arc<Watch>,
    key: u64,
    descriptor: Descriptor,
}

impl Thread {
    /// Watches from now on.
    ///
    /// # Errors
    /// The operating system's: no descriptor, no thread, no memory.
    pub fn new(descriptor: Descriptor) -> io::Result<Self> {
        let watch = Watch::of_this_process()?;
        let key = watch.add(&descriptor)?;
        Ok(Self {
            watch,
            key,
            descriptor,
        })
    }
}

impl Readiness for Thread {
    fn poll_io(
        &self,
        cx: &mut Context<'_>,
        attempt: &mut dyn FnMut() -> io::Result<()>,
    ) -> Poll<io::Result<()>> {
        match attempt() {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            result => return Poll::Ready(result),
        }
        // The kernel looks at the descriptor once more when it is asked: what came meanwhile is not missed.
        self.watch.wake_once(self.key, cx.waker());
        match self
            .watch
            .control(libc::EPOLL_CTL_MOD, &self.descriptor, self.key, ONCE)
        {
            Ok(()) => Poll::Pending,
            Err(e) => Poll::Ready(Err(e)),
        }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // A descriptor that is still open can be removed.
        let _ = self
            .watch
            .control(libc::EPOLL_CTL_DEL, &self.descriptor, self.key, 0);
        let waker = lock(&self.watch.wakers).entries.remove(&self.key);
        // Dropped after the lock: it may be the last that holds on to something.
        drop(waker);
    }
}

const ONCE: u32 = (libc::EPOLLIN | libc::EPOLLONESHOT) as u32;

#[derive(Debug)]
struct Watch {
    epoll: OwnedFd,
    wakers: Mutex<Wakers>,
}

#[derive(Debug, Default)]
struct Wakers {
    next: u64,
    entries: HashMap<u64, Option<Waker>>,
}

impl Watch {
    /// The one watch of the process. A forked child, which has not inherited the thread, makes its own.
    fn of_this_process() -> io::Result<Arc<Self>> {
        static WATCH: Mutex<Option<(u32, Arc<Watch>)>> = Mutex::new(None);
        let me = std::process::id();
        let mut known = lock(&WATCH);
        if let Some((process, watch)) = &*known
            && *process == me
        {
            return Ok(Arc::clone(watch));
        }
        // SAFETY: a plain call.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        let watch = Arc::new(Self {
            // SAFETY: a descriptor just made, which nobody else has.
            epoll: unsafe { OwnedFd::from_raw_fd(fd) },
            wakers: Mutex::default(),
        });
        let theirs = Arc::clone(&watch);
        thread::Builder::new()
            .name("adverb-watch".to_owned())
            .spawn(move || theirs.run())?;
        *known = Some((me, Arc::clone(&watch)));
        Ok(watch)
    }

    fn add(&self, descriptor: &Descriptor) -> io::Result<u64> {
        let key = {
            let mut wakers = lock(&self.wakers);
            wakers.next += 1;
            wakers.next
        };
        self.control(libc::EPOLL_CTL_ADD, descriptor, key, 0)?;
        lock(&self.wakers).entries.insert(key, None);
        Ok(key)
    }

    fn wake_once(&self, key: u64, waker: &Waker) {
        let before = lock(&self.wakers).entries.insert(key, Some(waker.clone()));
        drop(before);
    }

    fn control(
        &self,
        how: libc::c_int,
        descriptor: &Descriptor,
        key: u64,
        events: u32,
    ) -> io::Result<()> {
        let mut event = libc::epoll_event { events, u64: key };
        // SAFETY: both descriptors are open, and `event` is valid during the call.
        let rc = unsafe {
            libc::epoll_ctl(
                self.epoll.as_raw_fd(),
                how,
                descriptor.as_raw_fd(),
                &raw mut event,
            )
        };
        if rc < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    fn run(&self) {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS];
        loop {
            // SAFETY: the descriptor is open and there is room for so many events.
            let n = unsafe {
                libc::epoll_wait(
                    self.epoll.as_raw_fd(),
                    events.as_mut_ptr(),
                    EVENTS as libc::c_int,
                    -1,
                )
            };
            // Less than 0 is a signal.
            for event in events.iter().take(usize::try_from(n).unwrap_or(0)) {
                let key = event.u64;
                let waker = lock(&self.wakers)
                    .entries
                    .get_mut(&key)
                    .and_then(Option::take);
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
        }
    }
}
