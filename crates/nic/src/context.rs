//! An opened device.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use adverb_mem::Sleep;

use crate::async_events::{AsyncEvent, AsyncKind, Source};
use crate::channel::Channel;
use crate::cq::Cq;
use crate::device::Device;
use crate::dm::Dm;
use crate::error::NicError;
use crate::event_queue::EventQueue;
use crate::ledger::Ledger;
use crate::nic::Nic;
use crate::pd::Pd;
use crate::quota::Quotas;
use crate::sync::LockExt;
use crate::waiter::Step;
use crate::xrc::{FileId, Xrcd};

/// An opened device (man ibv_open_device). The first one starts this process's NIC.
pub struct Context {
    nic: Arc<Nic>,
    device: Arc<Device>,
    events: EventQueue<AsyncEvent>,
    ledgers: Mutex<HashMap<Source, Arc<Ledger>>>,
    pub(crate) quotas: Quotas,
    /// What the program was last told of its port.
    pub(crate) port_active: AtomicBool,
}

impl Context {
    pub fn open(device: &Arc<Device>) -> Result<Arc<Self>, NicError> {
        let nic = Nic::of_process()?;
        let events = EventQueue::new().map_err(NicError::io("making the async event queue"))?;
        let context = Arc::new(Self {
            port_active: AtomicBool::new(device.port().active),
            nic,
            device: Arc::clone(device),
            events,
            ledgers: Mutex::new(HashMap::new()),
            quotas: Quotas::default(),
        });
        context.nic.watch_port(&context);
        Ok(context)
    }

    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    pub fn async_fd(&self) -> RawFd {
        self.events.fd().as_raw_fd()
    }

    pub fn alloc_pd(self: &Arc<Self>) -> Result<Arc<Pd>, NicError> {
        self.usable()?;
        Pd::new(self)
    }

    /// Device memory, aligned to `1 << log_align`. Works in a forked child, too.
    pub fn alloc_dm(self: &Arc<Self>, len: u64, log_align: u32) -> Result<Arc<Dm>, NicError> {
        Dm::new(self, len, log_align)
    }

    /// Another name for a protection domain, for objects whose events come to this context.
    pub fn import_pd(self: &Arc<Self>, pd: &Pd) -> Result<Arc<Pd>, NicError> {
        self.usable()?;
        Pd::import(self, pd)
    }

    pub fn create_channel(self: &Arc<Self>) -> Result<Arc<Channel>, NicError> {
        self.usable()?;
        Channel::new(self)
    }

    /// Opens an XRC domain: that of `file`, or one of its own. `create` and `exclusive` are O_CREAT
    /// and O_EXCL.
    pub fn open_xrcd(
        self: &Arc<Self>,
        file: Option<FileId>,
        create: bool,
        exclusive: bool,
    ) -> Result<Arc<Xrcd>, NicError> {
        self.usable()?;
        Xrcd::open(self, file, create, exclusive)
    }

    /// `cqe` from 1 to the device's limit; `user` comes back in events.
    pub fn create_cq(
        self: &Arc<Self>,
        cqe: u32,
        channel: Option<&Arc<Channel>>,
        vector: u32,
        user: u64,
    ) -> Result<Arc<Cq>, NicError> {
        self.usable()?;
        Cq::new(self, cqe, channel, vector, user)
    }

    /// Looks for the next asynchronous event.
    ///
    /// Threads that wait here for ever are usual, so they do not drive: the NIC thread does.
    ///
    /// Errors: EAGAIN when the descriptor is in non-blocking mode, EBADF after a fork.
    pub fn next_async_event(&self) -> io::Result<Step<AsyncEvent>> {
        if !self.nic.alive() {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        if let Some(event) = self.events.take() {
            if let Some(ledger) = self.ledgers.acquire().get(&event.source) {
                ledger.delivered();
            }
            return Ok(Step::Got(event));
        }
        if self.events.nonblocking()? {
            return Err(io::Error::from_raw_os_error(libc::EAGAIN));
        }
        Ok(Step::Sleep(Sleep::on(self.events.fd())))
    }

    /// Acknowledges one event got from here (man ibv_ack_async_event).
    pub fn ack_async_event(&self, source: Source) {
        if let Some(ledger) = self.ledgers.acquire().get(&source) {
            ledger.acked(1);
        }
    }

    pub(crate) fn nic(&self) -> &Arc<Nic> {
        &self.nic
    }

    pub(crate) fn usable(&self) -> Result<(), NicError> {
        if self.nic.alive() {
            Ok(())
        } else {
            Err(NicError::Forked)
        }
    }

    pub(crate) fn raise(&self, kind: AsyncKind, source: Source) {
        self.events.push(AsyncEvent { kind, source });
    }

    /// Starts counting the events of an object.
    pub(crate) fn track(&self, source: Source) -> Arc<Ledger> {
        let ledger = Arc::new(Ledger::default());
        self.ledgers.acquire().insert(source, Arc::clone(&ledger));
        ledger
    }

    /// Takes back the undelivered events of an object that goes away.
    pub(crate) fn untrack(&self, source: Source) {
        self.events.purge(|e| e.source == source);
    }

    /// Forgets an object after its last event was acknowledged.
    pub(crate) fn forget(&self, source: Source) {
        self.ledgers.acquire().remove(&source);
    }
}
