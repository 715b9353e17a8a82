//! Completion channels: `ibv_create_comp_channel(3)`, `ibv_get_cq_event(3)`.

use std::ffi::{c_int, c_uint, c_void};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use adverb_abi::types::*;
use adverb_nic::{Step, Uncancelled, Waiter};

use crate::call;
use crate::cq::Cq;
use crate::errno::{self, Error};
use crate::handle::{Kind, Object, find, find_context, not_null};
use crate::pace::{LONGEST, Pace};
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

/// As [`ibv_get_cq_event`], but not for longer than that: `None` when the time is up, or after a signal. For the Rust API: a
/// thread that sleeps on the descriptor with a timeout would need the NIC's thread to wake it, which is a context switch more.
/// `ADVERB_WAIT` has no say here.
///
/// # Errors
/// EAGAIN where the descriptor is non-blocking.
///
/// # Safety
/// `channel` is a channel.
pub unsafe fn next_cq_event(
    channel: *mut ibv_comp_channel,
    timeout: Duration,
) -> io::Result<Option<*mut ibv_cq>> {
    let _uncancelled = Uncancelled::new();
    let nic = {
        // SAFETY: as our caller promises.
        let channel = unsafe { find::<Channel>(channel) };
        let channel = channel.map_err(|error| io::Error::from_raw_os_error(error.errno()))?;
        Arc::clone(&channel.nic)
    };
    let start = Instant::now();
    let mut waiter = Waiter::new();
    loop {
        let sleep = match nic.next_event(&mut waiter)? {
            Step::Got(token) => return Ok(Some(token as *mut ibv_cq)),
            Step::Sleep(sleep) => sleep,
        };
        let left = timeout.saturating_sub(start.elapsed());
        if left.is_zero() {
            return Ok(None);
        }
        match sleep.at_most(left.min(LONGEST)).uncancelled() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(None),
            slept => slept?,
        }
    }
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
