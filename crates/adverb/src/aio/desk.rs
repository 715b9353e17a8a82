//! Where completions are handed out: one for each [`Queue`](super::Queue).
//!
//! Tasks come here when they are polled, and the watcher of the descriptor (the *bell*) when there is an event. Both look
//! into the completion queue under one lock and hand out what is there. The bell never waits for the lock: whoever has
//! it sees that the bell has rung when they let go of it, and looks again in its stead. So a bell may be rung anywhere,
//! even by a `poll_io` that is called under the lock.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::task::{Context, Poll, Wake, Waker};

use super::pace::Pace;
use super::readiness::{Descriptor, Readiness};
use super::table::Table;
use super::thread::Thread;
use crate::channel::ChannelInner;
use crate::cq::{BATCH, CompletionQueue};
use crate::error::Result;
use crate::sync::lock;
use crate::wait::Wait;
use crate::wc::Completion;

/// Looks in a row in the bell's stead. One that rings at once, each time, is left to the tasks, so that they return to
/// their runtime in between: it may be what makes it ring.
const ROUNDS: u32 = 8;

pub(super) struct Desk {
    pub(super) cq: CompletionQueue,
    channel: Arc<ChannelInner>,
    state: Mutex<State>,
    /// The bell has rung, and nobody has looked since.
    rung: AtomicBool,
    bell: Waker,
}

pub(super) struct State {
    pub(super) table: Table,
    pub(super) pace: Pace,
    readiness: Box<dyn Readiness>,
    /// The bell is going to ring when there is an event.
    watched: bool,
    /// A completion is going to raise an event.
    armed: bool,
    found: Vec<Completion>,
}

struct Bell(Weak<Desk>);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(desk) = self.0.upgrade() {
            desk.rung.store(true, Ordering::SeqCst);
            desk.answer_the_bell();
        }
    }
}

impl Desk {
    pub(super) fn new(
        cq: CompletionQueue,
        watch: impl FnOnce(Descriptor) -> io::Result<Box<dyn Readiness>>,
    ) -> Result<Arc<Self>> {
        let channel = Arc::clone(cq.inner.own_channel()?);
        cq.inner.drive()?;
        let readiness = channel.set_nonblocking().and_then(|()| {
            Ok(watch(Descriptor::new(Arc::<ChannelInner>::clone(
                &channel,
            )))?)
        });
        let readiness = readiness.inspect_err(|_| cq.inner.undrive([]))?;
        Ok(Arc::new_cyclic(|desk| Self {
            cq,
            channel,
            state: Mutex::new(State {
                table: Table::new(),
                pace: Pace::new(Wait::default()),
                readiness,
                watched: false,
                armed: false,
                found: Vec::with_capacity(BATCH),
            }),
            rung: AtomicBool::new(false),
            bell: Waker::from(Arc::new(Bell(Weak::clone(desk)))),
        }))
    }

    /// Works under the lock, then wakes whom that concerns.
    pub(super) fn with<R>(&self, work: impl FnOnce(&mut State) -> R) -> R {
        let mut state = lock(&self.state);
        let result = work(&mut state);
        self.let_go(state);
        self.answer_the_bell();
        result
    }

    /// Looks until `take` finds what a task waits for, or else sees to it that the task is woken: `enlist` puts its
    /// waker where that happens.
    pub(super) fn poll<W, R>(
        &self,
        cx: &mut Context<'_>,
        what: &mut W,
        take: impl Fn(&mut W, &mut Table) -> Option<R>,
        enlist: impl Fn(&mut W, &mut Table, &Waker),
    ) -> Poll<Result<R>> {
        self.with(|state| {
            if let Some(taken) = take(what, &mut state.table) {
                return Poll::Ready(Ok(taken));
            }
            if let Err(e) = state.look(self) {
                return Poll::Ready(Err(e));
            }
            if let Some(taken) = take(what, &mut state.table) {
                return Poll::Ready(Ok(taken));
            }
            if state.pace.looks_again() {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            match state.arm(self) {
                Ok(false) => {}
                Ok(true) => {
                    if let Some(taken) = take(what, &mut state.table) {
                        return Poll::Ready(Ok(taken));
                    }
                }
                Err(e) => return Poll::Ready(Err(e)),
            }
            enlist(what, &mut state.table, cx.waker());
            Poll::Pending
        })
    }

    fn let_go(&self, mut state: MutexGuard<'_, State>) {
        if state.table.after.is_empty() {
            return;
        }
        let mut after = std::mem::take(&mut state.table.after);
        drop(state);
        after.run();
        // Its room is for the next ones.
        if let Some(mut state) = self.try_lock()
            && state.table.after.is_empty()
        {
            std::mem::swap(&mut state.table.after, &mut after);
        }
    }

    /// Looks, if the bell has rung. Not if somebody has the lock: they come here after that. What makes this safe is
    /// that both sides have a fence between what they write (that it rang; that the lock is free) and what they read.
    fn answer_the_bell(&self) {
        for _ in 0..ROUNDS {
            fence(Ordering::SeqCst);
            if !self.rung.load(Ordering::SeqCst) {
                return;
            }
            let Some(mut state) = self.try_lock() else {
                return;
            };
            self.rung.store(false, Ordering::SeqCst);
            state.answer(self);
            self.let_go(state);
        }
        let mut state = lock(&self.state);
        state.table.wake_all();
        self.let_go(state);
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, State>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl State {
    /// Hands out all that is in the completion queue.
    pub(super) fn look(&mut self, desk: &Desk) -> Result<()> {
        loop {
            let found = desk.cq.inner.poll_driven(&mut self.found)?;
            if found == 0 {
                return Ok(());
            }
            self.pace.found();
            for completion in self.found.drain(..) {
                self.table.hand_out(completion);
            }
            if found < BATCH {
                return Ok(());
            }
        }
    }

    /// Sees to it that the bell rings for the next completion. Whether it looked once more for that.
    fn arm(&mut self, desk: &Desk) -> Result<bool> {
        if !self.watched {
            self.watch(desk)?;
        }
        if self.armed {
            return Ok(false);
        }
        desk.cq.inner.arm(false)?;
        self.armed = true;
        self.look(desk)?;
        Ok(true)
    }

    /// Takes the events that are there, and has the bell ring for the next.
    fn watch(&mut self, desk: &Desk) -> Result<()> {
        loop {
            let mut failed = None;
            let mut take = || match desk.channel.try_event() {
                Ok(Some(_)) => Ok(()),
                Ok(None) => Err(io::ErrorKind::WouldBlock.into()),
                Err(e) => {
                    failed = Some(e);
                    Err(io::ErrorKind::Other.into())
                }
            };
            let polled = self
                .readiness
                .poll_io(&mut Context::from_waker(&desk.bell), &mut take);
            match (polled, failed) {
                (Poll::Pending, _) => {
                    self.watched = true;
                    return Ok(());
                }
                (Poll::Ready(Ok(())), _) => self.armed = false,
                (Poll::Ready(Err(_)), Some(e)) => return Err(e),
                // The event loop is gone, with its runtime.
                (Poll::Ready(Err(_)), None) => {
                    let descriptor = Descriptor::new(Arc::<ChannelInner>::clone(&desk.channel));
                    self.readiness = Box::new(Thread::new(descriptor)?);
                }
            }
        }
    }

    /// The bell has rung.
    fn answer(&mut self, desk: &Desk) {
        self.watched = false;
        self.pace.woken();
        let mut answered = self.watch(desk).and_then(|()| self.look(desk));
        if answered.is_ok() && self.table.anybody_sleeps() {
            answered = self.arm(desk).map(|_| ());
        }
        if answered.is_err() {
            // Each of them meets the error, and returns it.
            self.table.wake_all();
        }
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let table = std::mem::replace(&mut state.table, Table::new());
        self.cq.inner.undrive(table.into_left());
    }
}
