//! What a connection manager tells, copied out of its hands.

use std::slice;

use adverb_abi::types as c;

use super::params::Depths;
use crate::failure::{Failure, RejectReason};

/// Something that happened to a connection that stood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[doc(alias = "rdma_cm_event_type")]
pub enum ConnectionEvent {
    /// It is over: the peer, this side, or the death of the peer ended it. The queue pair is in the
    /// error state; what was outstanding is flushed.
    Disconnected,
    /// The device is going away; drop everything on it.
    DeviceRemoved,
    /// The address belongs to another device by now. The connection stands.
    AddressChanged,
}

/// An event, acknowledged already.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) kind: c::rdma_cm_event_type,
    status: i32,
    pub(super) private_data: Vec<u8>,
    pub(super) depths: Depths,
}

impl Event {
    /// Copies an event of a connected service.
    ///
    /// # Safety
    /// The event has been got and not acknowledged.
    pub(super) unsafe fn copy(raw: *const c::rdma_cm_event) -> Self {
        // SAFETY: as our caller promises; in ids of this crate the parameters are those of
        // connections, and private data is as long as said.
        unsafe {
            let conn = (*raw).param.conn;
            let len = usize::from(conn.private_data_len);
            let private_data = match conn.private_data.is_null() {
                true => Vec::new(),
                false => slice::from_raw_parts(conn.private_data.cast::<u8>(), len).to_vec(),
            };
            Self {
                kind: (*raw).event,
                status: (*raw).status,
                private_data,
                depths: Depths {
                    answered: conn.responder_resources,
                    started: conn.initiator_depth,
                },
            }
        }
    }

    /// What it means to somebody who waits for another one; `None` if nothing.
    pub(super) fn failure(self) -> Option<Failure> {
        let failed = |event| {
            Some(Failure::Event {
                event,
                errno: self.status.saturating_abs(),
            })
        };
        match self.kind {
            c::RDMA_CM_EVENT_ADDR_ERROR => failed("RDMA_CM_EVENT_ADDR_ERROR"),
            c::RDMA_CM_EVENT_ROUTE_ERROR => failed("RDMA_CM_EVENT_ROUTE_ERROR"),
            c::RDMA_CM_EVENT_CONNECT_ERROR => failed("RDMA_CM_EVENT_CONNECT_ERROR"),
            c::RDMA_CM_EVENT_DEVICE_REMOVAL => Some(Failure::Event {
                event: "RDMA_CM_EVENT_DEVICE_REMOVAL",
                errno: libc::ENODEV,
            }),
            c::RDMA_CM_EVENT_UNREACHABLE => Some(Failure::Unreachable {
                errno: self.status.saturating_abs(),
            }),
            c::RDMA_CM_EVENT_REJECTED => Some(Failure::Rejected {
                reason: RejectReason(self.status),
                private_data: self.private_data,
            }),
            c::RDMA_CM_EVENT_DISCONNECTED => Some(Failure::Disconnected),
            _ => None,
        }
    }

    /// What it means to a connection that stands.
    pub(super) fn of_connection(&self) -> Option<ConnectionEvent> {
        match self.kind {
            c::RDMA_CM_EVENT_DISCONNECTED
            | c::RDMA_CM_EVENT_REJECTED
            | c::RDMA_CM_EVENT_UNREACHABLE
            | c::RDMA_CM_EVENT_CONNECT_ERROR => Some(ConnectionEvent::Disconnected),
            c::RDMA_CM_EVENT_DEVICE_REMOVAL => Some(ConnectionEvent::DeviceRemoved),
            c::RDMA_CM_EVENT_ADDR_CHANGE => Some(ConnectionEvent::AddressChanged),
            // TIMEWAIT_EXIT among them: the number of a queue pair is the device's business.
            _ => None,
        }
    }
}
