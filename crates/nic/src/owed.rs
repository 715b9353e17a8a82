//! Acknowledgements that wait a moment for the answer.
//!
//! A program that polls is about to say something to what it has just received. An acknowledgement that left before it
//! returns from `ibv_poll_cq` would cost it a record or a system call of its own, on the way of the answer. So the queue
//! pair is put down here, and the acknowledgement leaves with the answer; with the next pass at the latest, whoever makes
//! it; before its queue pair goes to RESET or ERR or is destroyed; before the process sleeps, and when it exits.
//!
//! A program that neither answers nor calls any verb is found out by its peer, which asks after 25 µs if it polls
//! ([`adverb_link::shm`]), and by the NIC thread when it next ticks, within a millisecond or two. Peers that say that they
//! sleep are not kept waiting, nor is anybody while a thread of the program leads the watch in the NIC thread's stead.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Once};

use crate::clock;
use crate::driver::list;
use crate::fabric::Way;
use crate::nic::Nic;
use crate::qp::{QpCell, State};
use crate::sync::LockExt;

/// Queue pairs that owe an acknowledgement and nothing else.
#[derive(Default)]
pub(crate) struct Owed {
    /// Those that owe, and some that have paid since.
    noted: Mutex<Vec<Arc<QpCell>>>,
    /// How many owe. In a conversation each answer pays, and nobody looks at the list.
    count: AtomicUsize,
}

impl Owed {
    /// Whether anybody is owed anything. Cheap.
    pub(crate) fn any(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    /// Puts a queue pair down.
    pub(crate) fn note(&self, cell: &Arc<QpCell>, state: &mut State) {
        if state.owes {
            return;
        }
        state.owes = true;
        self.count.fetch_add(1, Ordering::AcqRel);
        if !cell.noted.swap(true, Ordering::AcqRel) {
            self.noted.acquire().push(Arc::clone(cell));
        }
    }

    /// The queue pair has said all that it had to say.
    pub(crate) fn paid(&self, state: &mut State) {
        if state.owes {
            state.owes = false;
            self.count.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// The pass that asks sees to those put down so far. With `may_wait`, one that has got something more to answer since
    /// it was last looked at stays.
    pub(crate) fn take(&self, dirty: &mut Vec<Arc<QpCell>>, may_wait: bool) {
        if !self.any() {
            return;
        }
        self.noted.acquire().retain(|cell| {
            if may_wait && cell.delivered.swap(false, Ordering::Relaxed) {
                return true;
            }
            // Before it is listed: whoever puts it down again finds it off this list.
            cell.noted.store(false, Ordering::Release);
            list(dirty, cell);
            false
        });
    }

    /// The queue pair has ended.
    pub(crate) fn forget(&self, cell: &Arc<QpCell>, state: &mut State) {
        self.paid(state);
        if cell.noted.swap(false, Ordering::AcqRel) {
            self.noted.acquire().retain(|c| !Arc::ptr_eq(c, cell));
        }
    }
}

/// Whether the acknowledgement that `cell` owes may wait for what the application says: it has just got something to
/// answer, owes nothing else, and its peer is awake.
pub(crate) fn may_wait(cell: &QpCell, state: &State) -> bool {
    cell.delivered.load(Ordering::Relaxed)
        && state.machine.owes_only_ack()
        && state.stuck.is_none()
        && state.way.as_ref().is_some_and(Way::leaves_an_awake_peer)
}

/// Has what is owed leave when the program returns from `main` or calls `exit`. `_exit` and signals that kill are as
/// sudden as they are for a card whose host loses power.
pub(crate) fn pay_at_exit() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        // SAFETY: the handler touches nothing but statics and what they own, and neither this library nor a program
        // that contains it is unloaded while its NIC thread runs, which is as long as the process.
        unsafe { libc::atexit(pay) };
    });
}

extern "C" fn pay() {
    if let Some(nic) = Nic::if_any()
        && nic.owed.any()
    {
        let now = clock::now();
        nic.drive(now);
        nic.empty_sockets(now);
    }
}
