//! Event channels: `rdma_create_event_channel(3)`.

use std::sync::Arc;

use adverb_abi::types::rdma_event_channel;
use adverb_nic::cm::CmChannel;

use crate::call;
use crate::errno::Error;
use crate::handle::{Kind, Object, find};

/// An event channel.
pub(crate) struct EventChannel {
    pub(super) nic: Arc<CmChannel>,
}

impl Kind for EventChannel {
    type Public = rdma_event_channel;
    const NAME: &'static str = "event channel";
    const MARK: u64 = 0xadec_0000_0000_0001;
}

pub(super) fn create() -> Result<&'static Object<EventChannel>, Error> {
    let nic = CmChannel::new()?;
    let public = rdma_event_channel { fd: nic.fd() };
    Ok(Object::create(public, EventChannel { nic }))
}

/// `rdma_create_event_channel(3)`.
///
/// # Safety
/// Always safe to call.
pub unsafe extern "C" fn rdma_create_event_channel() -> *mut rdma_event_channel {
    call::pointer("rdma_create_event_channel", || create().map(Object::public))
}

/// `rdma_destroy_event_channel(3)`. All ids on it must be gone, says the manual; those that are not get no more events.
///
/// # Safety
/// `channel` is NULL or an event channel, which nobody uses any more.
pub unsafe extern "C" fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    // SAFETY: as our caller promises, also that this is the last use.
    let body = || unsafe { find::<EventChannel>(channel).map(|channel| channel.free()) };
    call::nothing("rdma_destroy_event_channel", body);
}
