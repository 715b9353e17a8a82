//! Work for a queue pair that is posted in one go, however much of it there is.

use std::sync::{Arc, MutexGuard};

use adverb_engine::{Instant, PostError, QpState, RecvWr, SendWr};

use super::{Qp, QpCell, State};
use crate::clock;
use crate::pass::Pass;
use crate::sync::LockExt;

/// A list of requests for one queue pair: one turn at its lock, one look at the clock, one batch on the links. Dropped, it
/// sends what was queued, and now and then lets the NIC do what else is waiting.
///
/// Nobody else gets at the queue pair meanwhile, so the caller must not call it otherwise before this is dropped.
pub struct Posting<'a> {
    /// None in a forked child, where the lock of the queue pair may be held for ever.
    work: Option<Work<'a>>,
}

struct Work<'a> {
    cell: &'a Arc<QpCell>,
    now: Instant,
    state: MutexGuard<'a, State>,
    /// Something for the send queue was among it.
    sends: bool,
}

/// What posting says when it is too late for it.
const GONE: PostError = PostError::WrongState {
    state: QpState::Err,
};

impl Qp {
    /// Begins a list of requests. Waits while another thread posts to the queue pair.
    pub fn posting(&self) -> Posting<'_> {
        let cell = &self.cell;
        let nic = cell.context.nic();
        Posting {
            work: nic.alive().then(|| Work {
                cell,
                now: clock::now(),
                state: cell.state.acquire(),
                sends: false,
            }),
        }
    }
}

impl Posting<'_> {
    /// Queues a request for the send queue (man ibv_post_send).
    ///
    /// Errors: what the engine says of the request, and [`PostError::WrongState`] in a forked child. A refused request
    /// leaves no trace; what was queued before it is sent.
    pub fn send(&mut self, wr: &SendWr<'_>) -> Result<(), PostError> {
        let work = self.work.as_mut().ok_or(GONE)?;
        work.sends = true;
        let machine = &mut work.state.machine;
        machine.post_send(work.now, wr, &mut work.cell.view())
    }

    /// Queues a buffer for the receive queue (man ibv_post_recv).
    ///
    /// Errors: as [`Posting::send`].
    pub fn recv(&mut self, wr: &RecvWr<'_>) -> Result<(), PostError> {
        let work = self.work.as_mut().ok_or(GONE)?;
        let machine = &mut work.state.machine;
        machine.post_recv(work.now, wr, &mut work.cell.view())
    }
}

impl Drop for Posting<'_> {
    fn drop(&mut self) {
        let Some(Work {
            cell,
            now,
            mut state,
            sends,
        }) = self.work.take()
        else {
            return;
        };
        if !sends {
            return;
        }
        let nic = cell.context.nic();
        let pass = Pass::at(nic, now);
        nic.pump_locked(cell, &mut state, now);
        drop(state);
        drop(pass);
        nic.drive_for_post(now);
    }
}
