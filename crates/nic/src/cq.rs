//! Completion queues and their notification.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use adverb_engine::{Completion, Cq as Queue, Instant, Push, QpNum};

use crate::async_events::{AsyncKind, Source};
use crate::channel::Channel;
use crate::context::Context;
use crate::error::NicError;
use crate::fabric;
use crate::ledger::Ledger;
use crate::nic::Nic;
use crate::sync::LockExt;

/// A completion queue (man ibv_create_cq).
pub struct Cq {
    pub(crate) cell: Arc<CqCell>,
    channel: Option<Arc<Channel>>,
    closed: AtomicBool,
}

/// The part that queue pairs and event queues keep alive.
pub(crate) struct CqCell {
    context: Arc<Context>,
    me: Weak<Self>,
    pub(crate) user: u64,
    queue: Mutex<Queue>,
    /// How many completions the queue holds: an empty one is not worth its lock. Changed under that.
    waiting: AtomicUsize,
    capacity: AtomicU32,
    channel: Option<Arc<Channel>>,
    pub(crate) completion_events: Ledger,
    async_events: Arc<Ledger>,
    pub(crate) users: AtomicU64,
    /// Whether this CQ is counted among the armed ones.
    armed: AtomicBool,
    overrun: AtomicBool,
    /// On the NIC's list of CQs with an event that waits.
    held_back: AtomicBool,
}

impl Cq {
    pub(crate) fn new(
        context: &Arc<Context>,
        cqe: u32,
        channel: Option<&Arc<Channel>>,
        vector: u32,
        user: u64,
    ) -> Result<Arc<Self>, NicError> {
        let limits = context.device().limits();
        if cqe == 0 || cqe > limits.max_cqe {
            return Err(NicError::Invalid {
                what: "cqe",
                value: cqe.into(),
                limit: limits.max_cqe.into(),
            });
        }
        if vector >= limits.comp_vectors {
            return Err(NicError::Invalid {
                what: "comp_vector",
                value: vector.into(),
                limit: u64::from(limits.comp_vectors) - 1,
            });
        }
        context.quotas.cqs.claim("CQ", limits.max_cq)?;
        let mut queue = Queue::new(cqe as usize);
        queue.set_strict(context.nic().config.strict_events);
        if let Some(channel) = channel {
            channel.cqs.fetch_add(1, Ordering::AcqRel);
        }
        let async_events = context.track(Source::Cq(user));
        let cell = Arc::new_cyclic(|me| CqCell {
            context: Arc::clone(context),
            me: Weak::clone(me),
            user,
            queue: Mutex::new(queue),
            waiting: AtomicUsize::new(0),
            capacity: AtomicU32::new(cqe),
            channel: channel.cloned(),
            completion_events: Ledger::default(),
            async_events,
            users: AtomicU64::new(0),
            armed: AtomicBool::new(false),
            overrun: AtomicBool::new(false),
            held_back: AtomicBool::new(false),
        });
        Ok(Arc::new(Self {
            cell,
            channel: channel.cloned(),
            closed: AtomicBool::new(false),
        }))
    }

    /// How many completions it holds.
    pub fn capacity(&self) -> u32 {
        self.cell.capacity.load(Ordering::Relaxed)
    }

    /// Takes completions into `out`, oldest first, as [`Cq::poll_each`] does.
    pub fn poll(&self, out: &mut [Completion]) -> Result<usize, NicError> {
        let mut free = out.iter_mut();
        self.poll_each(free.len(), |completion| {
            if let Some(slot) = free.next() {
                *slot = *completion;
            }
        })
    }

    /// Takes at most `most` completions, oldest first, and shows each to `take`, which must not call the NIC. When
    /// there is none, drives the NIC once and looks again.
    pub fn poll_each(
        &self,
        most: usize,
        mut take: impl FnMut(&Completion),
    ) -> Result<usize, NicError> {
        let nic = self.nic();
        if !nic.alive() {
            return Err(NicError::Forked);
        }
        let n = self.cell.take(most, &mut take);
        if n > 0 {
            return Ok(n);
        }
        match nic.drive_for_poll() {
            true => Ok(self.cell.take(most, &mut take)),
            false => Ok(0),
        }
    }

    /// Arms the CQ for one event (architecture: "What stays true", wake-ups).
    pub fn req_notify(&self, solicited_only: bool) -> Result<(), NicError> {
        let nic = self.nic();
        if !nic.alive() {
            return Err(NicError::Forked);
        }
        // What has arrived belongs into the CQ before it is armed: cheaper than an event for it.
        nic.drive_for_user();
        let mut queue = self.cell.queue.acquire();
        if queue.arm(solicited_only) {
            self.cell.announce();
        } else if self.cell.channel.is_some() && !self.cell.armed.swap(true, Ordering::Relaxed) {
            nic.fabric.note_armed();
        }
        Ok(())
    }

    /// Acknowledges `n` events got from the channel.
    pub fn ack_events(&self, n: u32) {
        self.cell.completion_events.acked(n.into());
    }

    /// Changes the capacity; keeps what is queued, its order, and whether the CQ is armed.
    pub fn resize(&self, cqe: u32) -> Result<(), NicError> {
        let limit = self.cell.context.device().limits().max_cqe;
        if cqe == 0 || cqe > limit {
            return Err(NicError::Invalid {
                what: "cqe",
                value: cqe.into(),
                limit: limit.into(),
            });
        }
        let mut queue = self.cell.queue.acquire();
        let queued = queue.len();
        queue.resize(cqe as usize).map_err(|_| NicError::Invalid {
            what: "cqe (fewer than the completions queued now)",
            value: cqe.into(),
            limit: queued as u64,
        })?;
        self.cell.capacity.store(cqe, Ordering::Relaxed);
        Ok(())
    }

    /// Holds events back until `count` completions or `period_us` microseconds have come.
    pub fn moderate(&self, count: u16, period_us: u16) -> Result<(), NicError> {
        self.cell.context.usable()?;
        let mut queue = self.cell.queue.acquire();
        queue.moderate(count.into(), u64::from(period_us) * 1000);
        Ok(())
    }

    /// Refuses while queue pairs use it; then waits until every delivered event is acknowledged,
    /// and takes back those that were not delivered.
    pub fn destroy(&self) -> Result<(), NicError> {
        if !self.nic().alive() {
            return Err(NicError::Forked);
        }
        match self.cell.users.load(Ordering::Acquire) {
            0 => {}
            count => return Err(NicError::Busy { what: "CQ", count }),
        }
        self.release();
        self.cell.completion_events.wait_settled();
        self.cell.async_events.wait_settled();
        self.cell.context.forget(Source::Cq(self.cell.user));
        Ok(())
    }

    fn release(&self) {
        if self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Some(channel) = &self.channel {
            channel.events.purge(|cq| Arc::ptr_eq(cq, &self.cell));
            channel.cqs.fetch_sub(1, Ordering::AcqRel);
        }
        self.cell.context.untrack(Source::Cq(self.cell.user));
        self.cell.disarmed();
        self.cell.context.quotas.cqs.release();
    }

    pub(crate) fn nic(&self) -> &Arc<Nic> {
        self.cell.context.nic()
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        if self.nic().alive() {
            self.release();
        }
    }
}

impl CqCell {
    fn take(&self, most: usize, take: &mut impl FnMut(&Completion)) -> usize {
        if self.waiting.load(Ordering::Acquire) == 0 {
            return 0;
        }
        let mut queue = self.queue.acquire();
        let n = queue.poll_each(most, take);
        self.waiting.store(queue.len(), Ordering::Release);
        n
    }

    /// Adds a completion; false when the CQ has no room and has failed (semantics: CQ overrun).
    pub(crate) fn push(&self, completion: &Completion) -> bool {
        let pushed = {
            let mut queue = self.queue.acquire();
            let pushed = queue.push(completion);
            self.waiting.store(queue.len(), Ordering::Release);
            if let Some(due) = queue.due() {
                self.hold_back_until(due);
            }
            if matches!(pushed, Push::Queued { fire: true }) {
                // Under the lock: an event must be in the channel before its CQE can be polled
                // and the CQ armed again, or the announcement would be counted for the wrong one.
                self.announce();
            }
            pushed
        };
        match pushed {
            Push::Queued { .. } => true,
            Push::Overrun => {
                if !self.overrun.swap(true, Ordering::Relaxed) {
                    self.context.raise(AsyncKind::CqErr, Source::Cq(self.user));
                }
                false
            }
        }
    }

    /// Removes the completions of a queue pair that is reset or destroyed, as the drivers of cards
    /// do: a program that starts the queue pair over must not meet those of its former life.
    pub(crate) fn forget_qp(&self, qp: QpNum) {
        let mut queue = self.queue.acquire();
        queue.retain(|c| c.qp_num != qp);
        self.waiting.store(queue.len(), Ordering::Release);
    }

    /// An event waits for more completions; the timers bring it if they do not come.
    fn hold_back_until(&self, due: Instant) {
        if !self.held_back.swap(true, Ordering::AcqRel) {
            let nic = self.context.nic();
            nic.held_back.acquire().push(Weak::clone(&self.me));
            nic.fabric.look_again(due, fabric::HELD_BACK);
        }
    }

    /// Raises the event that waits, if it has waited long enough. True when it need not be looked
    /// at again.
    fn release_held_back(&self, now: Instant) -> bool {
        let mut queue = self.queue.acquire();
        if queue.fire_if_due(now) {
            self.announce();
        }
        let Some(due) = queue.due() else {
            self.held_back.store(false, Ordering::Release);
            return true;
        };
        self.context.nic().fabric.look_again(due, fabric::HELD_BACK);
        false
    }

    fn announce(&self) {
        self.disarmed();
        if let Some(channel) = &self.channel {
            // A CQ that is being dropped has nobody left to tell.
            if let Some(me) = self.me.upgrade() {
                channel.events.push(me);
            }
        }
    }

    fn disarmed(&self) {
        if self.armed.swap(false, Ordering::Relaxed) {
            self.context.nic().fabric.note_disarmed();
        }
    }
}

impl Nic {
    /// Raises the events of moderated CQs whose time has come.
    pub(crate) fn release_held_back(&self, now: Instant) {
        let waiting = std::mem::take(&mut *self.held_back.acquire());
        for weak in waiting {
            if let Some(cq) = weak.upgrade()
                && !cq.release_held_back(now)
            {
                self.held_back.acquire().push(weak);
            }
        }
    }
}
