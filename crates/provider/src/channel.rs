//! Completion channels: `ibv_create_comp_channel(3)`, `ibv_get_cq_event(3)`.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use adverb_abi::types::*;
use adverb_nic::{Step, Waiter};

use crate::call;
use crate::cq::Cq;
use crate::errno::{self, Error};
use crate::handle::{Kind, Object, find, find_context, not_null};
use crate::pace::Pace;
use crate::setting::setting;
use crate::waiting::{self, Asleep};

/// A completion channel.
pub(crate) struct Channel {
    pub(crate) nic: Arc<adverb_nic::Channel>,
    pace: Arc<Pace>,
}

impl Kind for Channel {
    type Public = ibv_comp_channel;
    const NAME: &'static str = "completion channel";
    const MARK: u64 = 0xadcc_0000_0000_0001;

    unsafe fn context(public: *const Self::Public) -> *mut ibv_context {
        // SAFETY: as our caller promises.
        unsafe { (*public).context }
    }
}

/// `ibv_create_comp_channel(3)`.
///
/// # Safety
/// `context` is NULL or a context.
pub unsafe extern "C" fn ibv_create_comp_channel(
    context: *mut ibv_context,
) -> *mut ibv_comp_channel {
    let create = || -> Result<*mut ibv_comp_channel, Error> {
        // SAFETY: as our caller promises.
        let nic = unsafe { find_context(context) }?.nic.create_channel()?;
        let pace = Arc::new(Pace::new(setting()?.events));
        Ok(Object::create(
            ibv_comp_channel {
                context,
                fd: nic.fd(),
                refcnt: 0,
            },
            Channel { nic, pace },
        )
        .public())
    };
    call::pointer("ibv_create_comp_channel", create)
}

/// `ibv_destroy_comp_channel(3)`. EBUSY while CQs report here.
///
/// # Safety
/// `channel` is NULL or a channel.
pub unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    let destroy = || -> Result<(), Error> {
        // SAFETY: as our caller promises.
        let channel = unsafe { find::<Channel>(channel) }?;
        channel.nic.destroy()?;
        // SAFETY: no CQ refers to it, so this was the last use.
        unsafe { channel.free() };
        Ok(())
    };
    call::status("ibv_destroy_comp_channel", destroy)
}

/// `ibv_get_cq_event(3)`. Waits, or fails with EAGAIN, as the program has set up the channel's descriptor.
/// A cancellation point. `ADVERB_WAIT` has it poll for a while before it sleeps.
///
/// # Safety
/// `channel` is NULL or a channel; `cq` and `cq_context` are NULL or can be written.
pub unsafe extern "C-unwind" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    thread_local! {
        static ASLEEP: Asleep<(Arc<adverb_nic::Channel>, Arc<Pace>)> = const { Asleep::new(None) };
    }
    let find = || -> Result<(Arc<adverb_nic::Channel>, Arc<Pace>), Error> {
        // SAFETY: as our caller promises.
        let channel = unsafe { find::<Channel>(channel) }?;
        not_null(cq, "place for the CQ")?;
        not_null(cq_context, "place for the CQ's context")?;
        Ok((Arc::clone(&channel.nic), Arc::clone(&channel.pace)))
    };
    let look = |(on, pace): &(Arc<adverb_nic::Channel>, Arc<Pace>), waiter: &mut Waiter| {
        let fired = match pace.look(on, waiter)? {
            Step::Got(token) => token as *mut ibv_cq,
            Step::Sleep(sleep) => return Ok(Step::Sleep(sleep)),
        };
        // SAFETY: the token is the pointer of a CQ that cannot be destroyed before this event is acknowledged, and
        // the places can be written, says the caller.
        unsafe {
            *cq = fired;
            *cq_context = (*fired).cq_context;
        }
        Ok(Step::Got(()))
    };
    // SAFETY: this function may be unwound, and pointers need no drop.
    unsafe { waiting::minus_one("ibv_get_cq_event", &ASLEEP, find, look) }
}

/// `ibv_ack_cq_events(3)`.
///
/// # Safety
/// `cq` is NULL or a CQ.
pub unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, count: c_uint) {
    // SAFETY: as our caller promises.
    match unsafe { find::<Cq>(cq.cast()) } {
        Ok(cq) => cq.nic.ack_events(count),
        Err(error) => errno::report("ibv_ack_cq_events", &error),
    }
}
