//! Event channels: where a program hears what becomes of its connections.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use adverb_wire::cm::{Rep, Req, SidrRep, SidrReq};

use super::cell::Cell;
use super::id::CmId;
use crate::error::NicError;
use crate::event_queue::EventQueue;
use crate::nic::Nic;
use crate::waiter::{Step, Waiter};

/// An event channel (man rdma_create_event_channel). Many identifiers report to one.
pub struct CmChannel {
    nic: Arc<Nic>,
    pub(super) events: EventQueue<Entry>,
}

/// An event that nobody has fetched yet.
pub(super) struct Entry {
    pub(super) of: Arc<Cell>,
    pub(super) kind: CmEventKind,
}

/// What [`CmChannel::next_event`] gives.
#[derive(Debug)]
pub struct CmEvent {
    /// The token of the identifier that the event belongs to; of requests that is the listener.
    pub user: u64,
    pub kind: CmEventKind,
}

/// What has happened.
#[derive(Debug)]
#[non_exhaustive]
pub enum CmEventKind {
    /// Somebody wants to be connected. `id` is new and reports to the listener's channel; its token
    /// is yet to be set.
    Request {
        id: Arc<CmId>,
        req: Box<Req>,
        from: Peer,
    },
    /// Somebody asks for a queue pair to send datagrams to.
    LookupRequest {
        id: Arc<CmId>,
        req: Box<SidrReq>,
        from: Peer,
    },
    /// The peer accepts. It hears nothing until [`CmId::establish`] or [`CmId::reject`].
    Response(Box<Rep>),
    /// The side that asked is ready; with the private data of its message.
    Established(Box<[u8]>),
    /// There is no connection, and why; see `adverb_wire::cm::RejReason`.
    Rejected {
        reason: u16,
        private: Box<[u8]>,
    },
    /// Nobody answered; with an errno.
    Unreachable(i32),
    Disconnected,
    /// The queue pair's number may be used again.
    TimewaitExit,
    /// What became of a lookup; the status says whether it found something.
    LookupAnswer(Box<SidrRep>),
    /// What [`CmId::raise`] was given.
    Own(u64),
}

/// Between whom a request travelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Who asks.
    pub src: IpAddr,
    /// Which of our addresses.
    pub dst: IpAddr,
}

impl CmChannel {
    /// The first channel or context of a process starts its NIC.
    pub fn new() -> Result<Arc<Self>, NicError> {
        let nic = Nic::of_process()?;
        let events = EventQueue::new().map_err(NicError::io("making an event channel"))?;
        Ok(Arc::new(Self { nic, events }))
    }

    /// Readable exactly while an event can be got.
    pub fn fd(&self) -> RawFd {
        self.events.fd().as_raw_fd()
    }

    /// Looks for the next event. Whoever waits for it drives the NIC meanwhile.
    /// The event counts as delivered until [`CmId::ack_events`].
    ///
    /// Errors: EAGAIN when the descriptor is in non-blocking mode, EBADF after a fork.
    pub fn next_event(&self, waiter: &mut Waiter) -> io::Result<Step<CmEvent>> {
        let take = || {
            // Noted under the queue's lock, so that a destroy either removes an event or waits for it.
            let entry = self.events.take_noting(|e| e.of.note_delivery(&e.kind))?;
            Some(CmEvent {
                user: entry.of.user(),
                kind: entry.kind,
            })
        };
        waiter.look(
            &self.nic,
            self.events.fd(),
            || self.events.nonblocking(),
            take,
        )
    }

    pub(super) fn nic(&self) -> &Arc<Nic> {
        &self.nic
    }
}

impl std::fmt::Debug for CmChannel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CmChannel").field("fd", &self.fd()).finish()
    }
}
