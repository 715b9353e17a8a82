//! Completion queues. Whoever polls one hands every completion to the operation it ends.

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex};

use adverb_abi::inline;
use adverb_abi::types::{self as c, Zeroed};

use crate::channel::{ChannelInner, CompletionChannel, lock};
use crate::context::{Context, ContextInner};
use crate::error::{Error, Result};
use crate::slab::{QueueKey, Slab};
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
            state: Mutex::new(Dispatch {
                queues: Vec::new(),
                shared: Vec::new(),
                stash: VecDeque::new(),
                reserved: 0,
                stale: 0,
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
    state: Mutex<Dispatch>,
}

// SAFETY: every verb may be called from any thread, and the pointer is owned by this value.
unsafe impl Send for CqInner {}
// SAFETY: as above; polling and dispatching happen under the lock of `state`.
unsafe impl Sync for CqInner {}

/// A queue's place in the dispatcher.
struct Place {
    slab: Option<Arc<Mutex<Slab>>>,
    /// Where the ids of the place's next user start, so that they differ from all before.
    next_generation: u32,
}

/// A shared receive queue that some queue pair on this completion queue uses.
struct SharedPlace {
    number: u32,
    slab: Arc<Mutex<Slab>>,
    users: u32,
}

/// Who gets which completion.
struct Dispatch {
    queues: Vec<Place>,
    shared: Vec<SharedPlace>,
    /// Completions found while a queue pair was closed, which belong to others.
    stash: VecDeque<Completion>,
    /// Entries promised to queues.
    reserved: u32,
    /// Completions that ended nothing.
    stale: u64,
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
            let slab = match QueueKey::of(wc.wr_id) {
                QueueKey::Own(key) => self.queues.get(key as usize).and_then(|p| p.slab.as_ref()),
                QueueKey::Shared(number) => self
                    .shared
                    .iter()
                    .find(|p| p.number == number)
                    .map(|p| &p.slab),
            };
            if !slab.is_some_and(|slab| lock(slab).complete(&wc, out)) {
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
    pub(crate) fn own_channel(&self) -> Result<&ChannelInner> {
        match &self.channel {
            Some(channel) if self.own_channel => Ok(channel),
            _ => Err(Error::NoChannel),
        }
    }

    pub(crate) fn poll(&self, out: &mut Vec<Completion>) -> Result<usize> {
        let mut state = lock(&self.state);
        let before = out.len();
        out.extend(state.stash.drain(..));
        state.poll(self, out)?;
        Ok(out.len() - before)
    }

    /// Promises `entries` to a queue and gives it a place. All its completions will fit.
    pub(crate) fn attach(
        &self,
        entries: u32,
        ordered: bool,
    ) -> Result<(QueueKey, Arc<Mutex<Slab>>)> {
        let mut state = lock(&self.state);
        self.reserve(&mut state, entries)?;
        let index = match state.queues.iter().position(|p| p.slab.is_none()) {
            Some(index) => index,
            None => {
                state.queues.push(Place {
                    slab: None,
                    next_generation: sys::random(),
                });
                state.queues.len() - 1
            }
        };
        if index as u32 > QueueKey::MAX {
            return Err(Error::Value {
                what: "queues on one completion queue",
                value: index as u64,
                limit: QueueKey::MAX.into(),
            });
        }
        let key = QueueKey::Own(index as u32);
        let place = &mut state.queues[index];
        let slab = Arc::new(Mutex::new(Slab::new(
            key,
            entries,
            ordered,
            place.next_generation,
        )));
        place.slab = Some(Arc::clone(&slab));
        Ok((key, slab))
    }

    /// Takes the place back; the device must no longer complete anything for it.
    pub(crate) fn detach(&self, key: QueueKey) {
        let QueueKey::Own(index) = key else { return };
        let mut state = lock(&self.state);
        if let Some(place) = state.queues.get_mut(index as usize)
            && let Some(slab) = place.slab.take()
        {
            let slab = lock(&slab);
            place.next_generation = slab.next_generation();
            state.reserved -= slab.capacity();
        }
    }

    /// Lets completions of a shared receive queue arrive here.
    pub(crate) fn attach_shared(&self, number: u32, slab: &Arc<Mutex<Slab>>) -> Result<()> {
        let mut state = lock(&self.state);
        if let Some(place) = state.shared.iter_mut().find(|p| p.number == number) {
            place.users += 1;
            return Ok(());
        }
        let entries = lock(slab).capacity();
        self.reserve(&mut state, entries)?;
        state.shared.push(SharedPlace {
            number,
            slab: Arc::clone(slab),
            users: 1,
        });
        Ok(())
    }

    /// Undoes one `attach_shared`.
    pub(crate) fn detach_shared(&self, number: u32) {
        let mut state = lock(&self.state);
        let Some(at) = state.shared.iter().position(|p| p.number == number) else {
            return;
        };
        state.shared[at].users -= 1;
        if state.shared[at].users == 0 {
            let place = state.shared.swap_remove(at);
            state.reserved -= lock(&place.slab).capacity();
        }
    }

    fn reserve(&self, state: &mut Dispatch, needed: u32) -> Result<()> {
        if needed > self.capacity.saturating_sub(state.reserved) {
            return Err(Error::CompletionQueueTooSmall {
                needed,
                reserved: state.reserved,
                capacity: self.capacity,
            });
        }
        state.reserved += needed;
        Ok(())
    }

    /// Empties the queue: completions of queue pair `qp_num` go to `out`, those of others wait
    /// for the next poll.
    pub(crate) fn sweep(&self, qp_num: u32, out: &mut Vec<Completion>) {
        let mut state = lock(&self.state);
        let mut found: Vec<Completion> = state.stash.drain(..).collect();
        // An error means that the queue itself is broken; then nothing more comes from it.
        while state.poll(self, &mut found).is_ok_and(|n| n > 0) {}
        for completion in found {
            if completion.qp_num == qp_num {
                out.push(completion);
            } else {
                state.stash.push_back(completion);
            }
        }
    }
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

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionQueue")
            .field("capacity", &self.inner.capacity)
            .field("events", &self.event_fd())
            .finish_non_exhaustive()
    }
}
