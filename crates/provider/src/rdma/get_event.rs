//! Getting events: `rdma_get_cm_event(3)`, `rdma_ack_cm_event(3)`, and what a synchronous id makes of them.

use std::ffi::c_int;
use std::io;
use std::sync::Arc;

use adverb_abi::types::*;
use adverb_nic::cm::CmChannel;
use adverb_nic::{Step, Waiter};
use adverb_wire::cm::RejReason;

use super::channel::EventChannel;
use super::events::{Event, Own, translate};
use super::id::Id;
use crate::call;
use crate::errno::Error;
use crate::handle::{find, not_null};
use crate::signals;
use crate::waiting::{self, Asleep};

/// The next event of a channel, for calls that wait for one as part of what they do.
///
/// # Safety
/// `channel` is NULL or an event channel.
pub(super) unsafe fn next(channel: *mut rdma_event_channel) -> Result<*mut rdma_cm_event, Error> {
    // SAFETY: as our caller promises.
    let channel = Arc::clone(&unsafe { find::<EventChannel>(channel) }?.nic);
    let mut waiter = Waiter::new();
    loop {
        match look(&channel, &mut waiter)? {
            Step::Got(event) => return Ok(event),
            Step::Sleep(sleep) => match sleep.uncancelled() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    if !signals::all_restart() {
                        return Err(error.into());
                    }
                }
                slept => slept?,
            },
        }
    }
}

/// A look for the next event of a channel.
fn look(channel: &CmChannel, waiter: &mut Waiter) -> Result<Step<*mut rdma_cm_event>, Error> {
    loop {
        let event = match channel.next_event(waiter)? {
            Step::Got(event) => event,
            Step::Sleep(sleep) => return Ok(Step::Sleep(sleep)),
        };
        // SAFETY: just got.
        if let Some(event) = unsafe { translate(event) } {
            return Ok(Step::Got(event));
        }
    }
}

/// Whether the event that ends a call of a synchronous id says that it went well.
///
/// # Safety
/// The event is alive.
pub(super) unsafe fn outcome(event: *mut rdma_cm_event) -> Result<(), Error> {
    // SAFETY: as our caller promises.
    let (kind, status) = unsafe { ((*event).event, (*event).status) };
    let nobody = i32::from(RejReason::INVALID_SERVICE_ID.0);
    let (name, why, errno) = match (kind, status) {
        (_, 0) => return Ok(()),
        (RDMA_CM_EVENT_REJECTED, reason) if reason == nobody => (
            "RDMA_CM_EVENT_REJECTED",
            Some("nobody listens on the port"),
            libc::ECONNREFUSED,
        ),
        (RDMA_CM_EVENT_REJECTED, reason) => (
            "RDMA_CM_EVENT_REJECTED",
            u16::try_from(reason).ok().and_then(|r| RejReason(r).name()),
            libc::ECONNREFUSED,
        ),
        (RDMA_CM_EVENT_UNREACHABLE, status) if status > 0 => (
            "RDMA_CM_EVENT_UNREACHABLE",
            Some("nobody serves the port"),
            libc::ECONNREFUSED,
        ),
        (RDMA_CM_EVENT_UNREACHABLE, status) => (
            "RDMA_CM_EVENT_UNREACHABLE",
            Some("no answer"),
            status.saturating_neg(),
        ),
        (_, status) => ("an error event", None, status.saturating_abs()),
    };
    Err(Error::Outcome {
        event: name,
        status,
        why: why.unwrap_or("no reason that is known"),
        errno,
    })
}

/// `rdma_get_cm_event(3)`. Waits, or fails with EAGAIN, as the program has set up the channel's descriptor.
/// A cancellation point.
///
/// # Safety
/// `channel` is NULL or an event channel, `event` is NULL or can be written.
pub unsafe extern "C-unwind" fn rdma_get_cm_event(
    channel: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> c_int {
    thread_local! {
        static ASLEEP: Asleep<Arc<CmChannel>> = const { Asleep::new(None) };
    }
    let find = || -> Result<Arc<CmChannel>, Error> {
        not_null(event, "place for the event")?;
        // SAFETY: as our caller promises.
        Ok(Arc::clone(&unsafe { find::<EventChannel>(channel) }?.nic))
    };
    let look = |on: &Arc<CmChannel>, waiter: &mut Waiter| {
        let got = match look(on, waiter)? {
            Step::Got(got) => got,
            Step::Sleep(sleep) => return Ok(Step::Sleep(sleep)),
        };
        // SAFETY: not NULL, so the caller says that it can be written.
        unsafe { *event = got };
        Ok(Step::Got(()))
    };
    // SAFETY: this function may be unwound, and pointers need no drop.
    unsafe { waiting::minus_one("rdma_get_cm_event", &ASLEEP, find, look) }
}

/// `rdma_ack_cm_event(3)`: the event and what it points to go.
///
/// # Safety
/// `event` is NULL or an event that was not acknowledged.
pub unsafe extern "C" fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    let body = || {
        // SAFETY: as our caller promises.
        unsafe { find::<Event>(event) }.map(|event| {
            let owner = Arc::clone(&event.owner);
            // SAFETY: this was the last use, says the manual.
            unsafe { event.free() };
            owner.ack_events(1);
            0
        })
    };
    call::minus_one("rdma_ack_cm_event", body)
}

/// `rdma_write_cm_event(3)`: an event of the program's own, on the channel of an id.
///
/// # Safety
/// `id` is NULL or an id.
pub unsafe extern "C" fn rdma_write_cm_event(
    id: *mut rdma_cm_id,
    event: rdma_cm_event_type,
    status: c_int,
    arg: u64,
) -> c_int {
    let write = || -> Result<c_int, Error> {
        // SAFETY: as our caller promises.
        let id = unsafe { find::<Id>(id) }?;
        if !matches!(event, RDMA_CM_EVENT_USER | RDMA_CM_EVENT_INTERNAL) {
            return Err(Error::Argument(
                "a program can raise RDMA_CM_EVENT_USER and RDMA_CM_EVENT_INTERNAL only",
            ));
        }
        id.state().own_events.push_back((event, status, arg));
        id.cm.raise(Own::User.number())?;
        Ok(0)
    };
    call::minus_one("rdma_write_cm_event", write)
}
