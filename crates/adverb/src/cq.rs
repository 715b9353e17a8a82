//! Completion queues. Whoever polls one hands every completion to the operation it ends.

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, MutexGuard};

use adverb_abi::inline;
use adverb_abi::types::{self as c, Zeroed};

use crate::by_number::ByNumber;
use crate::channel::{ChannelInner, CompletionChannel};
use crate::context::{Context, ContextInner};
use crate::error::{Error, Result};
use crate::pace::Pace;
use crate::slab::Slab;
use crate::sync::lock;
use crate::sys;
use crate::wc::Completion;

/// Completions taken from the device in one call.
pub(crate) const BATCH: usize = 64;

/// Makes a completion queue.
#[derive(Debug)]
#[must_use = "nothing happens before `build`"]
pub struct CompletionQueueBuilder {
    ctx: Context,
    entries: u32,
    vector: u32,
    notify: Notification,
}

#[derive(Debug)]
enum Notification {
    None,
    Own,
    Shared(CompletionChannel),
}

impl Context {
    /// A completion queue with room for at least `entries` (ibv_create_cq(3)). Finish with
    /// [`build`](CompletionQueueBuilder::build).
    #[doc(alias = "ibv_create_cq")]
    pub fn create_cq(&self, entries: u32) -> CompletionQueueBuilder {
        CompletionQueueBuilder::new(self, entries)
    }
}

impl CompletionQueueBuilder {
    pub(crate) fn new(ctx: &Context, entries: u32) -> Self {
        Self {
            ctx: ctx.clone(),
            entries,
            vector: 0,
            notify: Notification::Own,
        }
    }

    /// Sends its events to a channel that other queues use as well. Waiting is then done on the
    /// channel.
    pub fn channel(mut self, channel: &CompletionChannel) -> Self {
        self.notify = Notification::Shared(channel.clone());
        self
    }

    /// Without any channel: one file descriptor less, and only polling works.
    pub fn without_channel(mut self) -> Self {
        self.notify = Notification::None;
        self
    }

    /// Which interrupt vector its events use, below the device's number of vectors.
    pub fn comp_vector(mut self, vector: u32) -> Self {
        self.vector = vector;
        self
    }

    /// Makes it.
    ///
    /// # Errors
    /// [`Error::Verb`] with EINVAL: no entries, or more than the device allows.
    pub fn build(self) -> Result<CompletionQueue> {
        let ctx = &self.ctx.inner;
        let entries = i32::try_from(self.entries).map_err(|_| Error::Value {
            what: "entries of a completion queue",
            value: self.entries.into(),
            limit: i32::MAX as u64,
        })?;
        let (channel, own_channel) = match self.notify {
            Notification::None => (None, false),
            Notification::Own => (Some(ChannelInner::new(ctx)?), true),
            Notification::Shared(channel) => (Some(channel.inner), false),
        };
        let channel_ptr = channel.as_ref().map_or(ptr::null_mut(), |c| c.raw());
        // SAFETY: context and channel are alive.
        let raw = unsafe {
            (ctx.verbs.create_cq)(
                ctx.raw(),
                entries,
                ptr::null_mut(),
                channel_ptr,
                self.vector as libc::c_int,
            )
        };
        let raw = sys::non_null(raw, "ibv_create_cq", &ctx.name)?;
        // SAFETY: a queue just created.
        let granted = unsafe { (*raw.as_ptr()).cqe };
        let inner = Arc::new(CqInner {
            raw,
            ctx: Arc::clone(ctx),
            channel,
            own_channel,
            capacity: u32::try_from(granted).unwrap_or(0),
            pace: Pace::new(),
            state: Mutex::new(Dispatch {
                routes: Routes::default(),
                shared: Vec::new(),
                stash: VecDeque::new(),
                reserved: 0,
                stale: 0,
                driven: false,
                wc: Box::new([c::ibv_wc::zeroed(); BATCH]),
            }),
        });
        if let Some(channel) = &inner.channel {
            channel.join(inner.raw(), Arc::downgrade(&inner));
        }
        Ok(CompletionQueue { inner })
    }
}

pub(crate) struct CqInner {
    raw: NonNull<c::ibv_cq>,
    pub(crate) ctx: Arc<ContextInner>,
    pub(crate) channel: Option<Arc<ChannelInner>>,
    /// Whether nobody else's events arrive on the channel.
    own_channel: bool,
    capacity: u32,
    pub(crate) pace: Pace,
    state: Mutex<Dispatch>,
}

// SAFETY: every verb may be called from any thread, and the pointer is owned by this value.
unsafe impl Send for CqInner {}
// SAFETY: as above; polling and dispatching happen under the lock of `state`.
unsafe impl Sync for CqInner {}

/// The queues of one queue pair that complete here.
#[derive(Default)]
struct Route {
    send: Option<Arc<Mutex<Slab>>>,
    recv: Option<Arc<Mutex<Slab>>>,
}

/// Which of a queue pair's queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Send,
    Recv,
}

impl Route {
    fn side(&mut self, side: Side) -> &mut Option<Arc<Mutex<Slab>>> {
        match side {
            Side::Send => &mut self.send,
            Side::Recv => &mut self.recv,
        }
    }
}

/// By number of the queue pair.
type Routes = ByNumber<u32, Route>;

/// A shared receive queue that some queue pairs on this completion queue use.
struct SharedUse {
    slab: Arc<Mutex<Slab>>,
    users: u32,
}

/// Who gets which completion.
struct Dispatch {
    routes: Routes,
    shared: Vec<SharedUse>,
    /// Completions found while a queue pair was closed or reset, for the next poll.
    stash: VecDeque<Completion>,
    /// Entries promised to queues.
    reserved: u32,
    /// Completions that ended nothing.
    stale: u64,
    /// Futures take the completions, and nobody else may.
    driven: bool,
    wc: Box<[c::ibv_wc; BATCH]>,
}

impl Dispatch {
    /// Takes one batch from the device.
    fn poll(&mut self, cq: &CqInner, out: &mut Vec<Completion>) -> Result<usize> {
        // SAFETY: the queue is alive and `wc` has room for a whole batch.
        let n =
            unsafe { inline::ibv_poll_cq(cq.raw(), BATCH as libc::c_int, self.wc.as_mut_ptr()) };
        // A negative number is no errno: the man page promises only that it is negative.
        let n =
            usize::try_from(n).map_err(|_| sys::failure("ibv_poll_cq", &cq.ctx.name, libc::EIO))?;
        for i in 0..n.min(BATCH) {
            let wc = self.wc[i];
            let route = self.routes.get(&wc.qp_num);
            // After an error the opcode says nothing; the id is in one of the two at most.
            let ended = route.is_some_and(|route| {
                [&route.send, &route.recv]
                    .into_iter()
                    .flatten()
                    .any(|slab| lock(slab).complete(&wc, out))
            });
            if !ended {
                self.stale += 1;
            }
        }
        Ok(n)
    }
}

impl CqInner {
    pub(crate) fn raw(&self) -> *mut c::ibv_cq {
        self.raw.as_ptr()
    }

    /// The channel, if events on it can only be ours.
    pub(crate) fn own_channel(&self) -> Result<&Arc<ChannelInner>> {
        match &self.channel {
            Some(channel) if self.own_channel => Ok(channel),
            _ => Err(Error::NoChannel),
        }
    }

    /// Polls for whoever is not one of the futures.
    pub(crate) fn poll(&self, out: &mut Vec<Completion>) -> Result<usize> {
        let state = lock(&self.state);
        if state.driven {
            return Err(Error::Driven);
        }
        self.poll_locked(state, out)
    }

    /// Polls for the futures.
    pub(crate) fn poll_driven(&self, out: &mut Vec<Completion>) -> Result<usize> {
        self.poll_locked(lock(&self.state), out)
    }

    /// Gives the completions to futures.
    pub(crate) fn drive(&self) -> Result<()> {
        let mut state = lock(&self.state);
        if std::mem::replace(&mut state.driven, true) {
            return Err(Error::Driven);
        }
        Ok(())
    }

    /// The end of that. What they have not taken is for the next poll.
    pub(crate) fn undrive(&self, left: impl IntoIterator<Item = Completion>) {
        let mut state = lock(&self.state);
        state.driven = false;
        state.stash.extend(left);
    }

    /// Whether somebody else than the futures may wait.
    pub(crate) fn check_undriven(&self) -> Result<()> {
        match lock(&self.state).driven {
            true => Err(Error::Driven),
            false => Ok(()),
        }
    }

    /// Arms it (ibv_req_notify_cq(3)).
    pub(crate) fn arm(&self, solicited_only: bool) -> Result<()> {
        // SAFETY: the queue is alive.
        let rc =
            unsafe { inline::ibv_req_notify_cq(self.raw(), libc::c_int::from(solicited_only)) };
        sys::check(rc, "ibv_req_notify_cq", &self.ctx.name)
    }

    fn poll_locked(
        &self,
        mut state: MutexGuard<'_, Dispatch>,
        out: &mut Vec<Completion>,
    ) -> Result<usize> {
        let before = out.len();
        out.extend(state.stash.drain(..));
        state.poll(self, out)?;
        Ok(out.len() - before)
    }

    /// Promises `entries` to a queue, for as long as they are not given back. `more` are going
    /// to be asked for next, and count in the advice of the error only.
    pub(crate) fn promise(&self, entries: u32, more: u32) -> Result<()> {
        self.reserve(&mut lock(&self.state), entries, more)
    }

    pub(crate) fn give_back(&self, entries: u32) {
        lock(&self.state).reserved -= entries;
    }

    /// The same for a shared receive queue, once for all queue pairs that use it here.
    pub(crate) fn promise_shared(&self, slab: &Arc<Mutex<Slab>>) -> Result<()> {
        let mut state = lock(&self.state);
        if let Some(used) = state.shared.iter_mut().find(|u| Arc::ptr_eq(&u.slab, slab)) {
            used.users += 1;
            return Ok(());
        }
        let entries = lock(slab).capacity();
        self.reserve(&mut state, entries, 0)?;
        state.shared.push(SharedUse {
            slab: Arc::clone(slab),
            users: 1,
        });
        Ok(())
    }

    /// What [`promise_shared`](Self::promise_shared) would ask for.
    pub(crate) fn shared_entries(&self, slab: &Arc<Mutex<Slab>>) -> u32 {
        let state = lock(&self.state);
        if state.shared.iter().any(|u| Arc::ptr_eq(&u.slab, slab)) {
            return 0;
        }
        lock(slab).capacity()
    }

    pub(crate) fn give_back_shared(&self, slab: &Arc<Mutex<Slab>>) {
        let mut state = lock(&self.state);
        let Some(at) = state.shared.iter().position(|u| Arc::ptr_eq(&u.slab, slab)) else {
            return;
        };
        state.shared[at].users -= 1;
        if state.shared[at].users == 0 {
            let used = state.shared.swap_remove(at);
            state.reserved -= lock(&used.slab).capacity();
        }
    }

    /// Completions of this queue pair's queue end what is in `slab`.
    pub(crate) fn route(&self, qp_num: u32, side: Side, slab: &Arc<Mutex<Slab>>) {
        *lock(&self.state)
            .routes
            .entry(qp_num)
            .or_default()
            .side(side) = Some(Arc::clone(slab));
    }

    /// The device will complete nothing more for this queue.
    pub(crate) fn unroute(&self, qp_num: u32, side: Side) {
        let mut state = lock(&self.state);
        if let Some(route) = state.routes.get_mut(&qp_num) {
            *route.side(side) = None;
            if route.send.is_none() && route.recv.is_none() {
                state.routes.remove(&qp_num);
            }
        }
    }

    fn reserve(&self, state: &mut Dispatch, entries: u32, more: u32) -> Result<()> {
        let needed = entries.saturating_add(more);
        if needed > self.capacity.saturating_sub(state.reserved) {
            return Err(Error::CompletionQueueTooSmall {
                needed,
                reserved: state.reserved,
                capacity: self.capacity,
            });
        }
        state.reserved += entries;
        Ok(())
    }

    /// Empties the device's queue. Completions of queue pair `qp_num` go where `own` says, those
    /// of others wait for the next poll.
    pub(crate) fn sweep(&self, qp_num: u32, own: &mut Swept<'_>) {
        let mut state = lock(&self.state);
        let mut found = Vec::new();
        // An error means that the queue itself is broken; then nothing more comes from it.
        while state.poll(self, &mut found).is_ok_and(|n| n > 0) {}
        if let Swept::Out(out) = own {
            let (mine, others) = state.stash.drain(..).partition(|c| c.qp_num == qp_num);
            state.stash = others;
            let mine: VecDeque<_> = mine;
            out.extend(mine);
        }
        let mut dropped = Vec::new();
        // What is to be polled must be there before the lock goes: its event may have been taken.
        for completion in found {
            match own {
                Swept::Out(out) if completion.qp_num == qp_num => out.push(completion),
                Swept::Messages if completion.qp_num == qp_num && completion.result.is_err() => {
                    dropped.push(completion);
                }
                _ => state.stash.push_back(completion),
            }
        }
        drop(state);
        // Buffers are freed after the lock: that may deregister memory.
        drop(dropped);
    }
}

/// Where the completions of a queue pair go that is closed, dropped or reset.
pub(crate) enum Swept<'a> {
    /// To whoever closes it.
    Out(&'a mut Vec<Completion>),
    /// What succeeded waits for the next poll, what was flushed goes.
    Messages,
    /// All wait for the next poll.
    All,
}

impl Drop for CqInner {
    fn drop(&mut self) {
        if let Some(channel) = &self.channel {
            channel.leave(self.raw());
        }
        // SAFETY: every queue pair on the queue holds an `Arc` of this value. An error means
        // that one of them was leaked, and leaks the queue.
        unsafe { (self.ctx.verbs.destroy_cq)(self.raw()) };
    }
}

/// A queue of completions. Clones are handles to the same one; polling is safe from several
/// threads, one after the other, and each completion goes to one of them.
///
/// It cannot overflow: queue pairs reserve their room in it when they are made.
#[derive(Clone)]
#[doc(alias = "ibv_cq")]
pub struct CompletionQueue {
    pub(crate) inner: Arc<CqInner>,
}

impl CompletionQueue {
    /// Appends the completions that are there to `out`, without waiting, and says how many
    /// (ibv_poll_cq(3)). At most 64 entries of the device are taken in one call; `out` grows
    /// only if it has less room than that.
    ///
    /// ```
    /// # fn main() -> Result<(), adverb::Error> {
    /// # if cfg!(not(feature = "soft")) { return Ok(()) }
    /// let cq = adverb::open_default()?.create_cq(16).build()?;
    /// let mut done = Vec::with_capacity(64);
    /// assert_eq!(cq.poll(&mut done)?, 0);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Verb`] when the queue is broken.
    #[doc(alias = "ibv_poll_cq")]
    pub fn poll(&self, out: &mut Vec<Completion>) -> Result<usize> {
        self.inner.poll(out)
    }

    /// Entries it has room for.
    pub fn capacity(&self) -> u32 {
        self.inner.capacity
    }

    /// Its number in async events.
    pub fn handle(&self) -> u32 {
        // SAFETY: the queue is alive.
        unsafe { (*self.as_raw()).handle }
    }

    /// The descriptor that becomes readable when the armed queue has news, for event loops;
    /// `None` when the queue has no channel of its own. After it became readable call
    /// [`take_events`](Self::take_events), [`arm`](Self::arm) and poll.
    pub fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.own_channel().ok().map(|c| c.as_fd())
    }

    /// Completions that ended no operation of ours. 0 unless a device misbehaves.
    pub fn stale_completions(&self) -> u64 {
        lock(&self.inner.state).stale
    }

    /// The C object; valid while this handle lives. Neither poll nor destroy it: the completions
    /// taken from it would be missing here.
    pub fn as_raw(&self) -> *mut c::ibv_cq {
        self.inner.raw()
    }
}

crate::sync::equal_by_identity!(CompletionQueue);

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionQueue")
            .field("capacity", &self.inner.capacity)
            .field("events", &self.event_fd())
            .finish_non_exhaustive()
    }
}
