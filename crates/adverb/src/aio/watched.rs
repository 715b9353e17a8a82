//! Events of a descriptor that tasks take one by one. They are rare: each that comes wakes all who wait for one.

use std::io;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use super::line::{Line, Place};
use super::readiness::{Descriptor, Readiness, watch};
use super::thread::Thread;
use crate::error::{Error, Result};
use crate::sync::lock;

pub(crate) struct Watched {
    owner: Arc<dyn Fn() -> Descriptor + Send + Sync>,
    readiness: Mutex<Box<dyn Readiness>>,
    waiting: Arc<Waiting>,
    bell: Waker,
}

#[derive(Default)]
struct Waiting(Mutex<Line>);

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let wakers: Vec<Waker> = lock(&self.0).all().cloned().collect();
        for waker in wakers {
            waker.wake();
        }
    }
}

impl Watched {
    /// Watches what `descriptor` makes, which is non-blocking.
    pub(crate) fn new(descriptor: impl Fn() -> Descriptor + Send + Sync + 'static) -> Result<Self> {
        let readiness = watch(descriptor())?;
        let waiting = Arc::<Waiting>::default();
        Ok(Self {
            owner: Arc::new(descriptor),
            readiness: Mutex::new(readiness),
            bell: Waker::from(Arc::clone(&waiting)),
            waiting,
        })
    }

    /// What `take` has, or the task is woken when it may have something. Whoever is dropped has taken nothing.
    pub(crate) fn poll<T>(
        &self,
        cx: &mut Context<'_>,
        place: &mut Place,
        mut take: impl FnMut() -> Result<Option<T>>,
    ) -> Poll<Result<T>> {
        // Before looking, so that it is woken for what comes right after.
        let replaced = lock(&self.waiting.0).enter(place, cx.waker());
        drop(replaced);
        let mut readiness = lock(&self.readiness);
        loop {
            let mut taken = None;
            let mut attempt = || match take().transpose() {
                Some(result) => {
                    taken = Some(result);
                    Ok(())
                }
                None => Err(io::ErrorKind::WouldBlock.into()),
            };
            let polled = readiness.poll_io(&mut Context::from_waker(&self.bell), &mut attempt);
            if let Some(result) = taken {
                drop(readiness);
                self.leave(place);
                return Poll::Ready(result);
            }
            match polled {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) => {}
                // The event loop is gone, with its runtime.
                Poll::Ready(Err(_)) => match Thread::new((self.owner)()) {
                    Ok(thread) => *readiness = Box::new(thread),
                    Err(e) => return Poll::Ready(Err(Error::Io(e))),
                },
            }
        }
    }

    pub(crate) fn leave(&self, place: &mut Place) {
        if place.is_some() {
            let left = lock(&self.waiting.0).leave(place);
            // Its waker is dropped without the lock.
            drop(left);
        }
    }
}
