//! Identifiers of the connection manager, each with an event channel of its own.
//!
//! An id is used by one object of this crate, which owns it. Its channel never blocks: whoever
//! wants to wait watches the descriptor. Events are copied and acknowledged as they are got, so
//! that ending an id, which waits for that, never waits.

use std::ffi::{CStr, c_int, c_void};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use adverb_abi::types::{self as c, Zeroed};

use super::address;
use super::event::Event;
use super::library::{self, Library};
use crate::aio::{Descriptor, Watched};
use crate::context::Context;
use crate::device::Origin;
use crate::error::{Error, Result};
use crate::failure::Failure;
use crate::sync::{left, lock};
use crate::sys;

/// An event channel.
struct Channel {
    library: Library,
    raw: NonNull<c::rdma_event_channel>,
}

impl Channel {
    fn new(library: Library) -> Result<Self> {
        // SAFETY: the call has no conditions.
        let raw = unsafe { (library.calls.create_event_channel)() };
        let raw = sys::non_null(raw, "rdma_create_event_channel", "the connection manager")?;
        let channel = Self { library, raw };
        let fd = channel.fd();
        // SAFETY: plain calls on a descriptor that the channel owns.
        let set = unsafe {
            let flags = libc::fcntl(fd, libc::F_GETFL);
            libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK)
        };
        sys::check(set, "fcntl", "the event channel")?;
        Ok(channel)
    }

    fn fd(&self) -> c_int {
        // SAFETY: the channel is alive.
        unsafe { (*self.raw.as_ptr()).fd }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel is alive, and its descriptor with it.
        unsafe { BorrowedFd::borrow_raw(self.fd()) }
    }
}

// SAFETY: the functions of librdmacm may be called from any thread, and the pointer is owned by
// this value.
unsafe impl Send for Channel {}
// SAFETY: as above.
unsafe impl Sync for Channel {}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: the channel's only id is gone, or never was.
        unsafe { (self.library.calls.destroy_event_channel)(self.raw.as_ptr()) };
    }
}

/// An identifier and its channel.
pub(super) struct Id {
    raw: NonNull<c::rdma_cm_id>,
    channel: Arc<Channel>,
    /// Calls come one after the other, and the event of one is not taken by another.
    calls: Mutex<()>,
    /// Who wakes the tasks that wait for an event, once there was one.
    watched: OnceLock<Watched>,
    /// For messages.
    pub(super) name: String,
}

// SAFETY: the functions of librdmacm may be called from any thread, and the pointers are owned by
// this value.
unsafe impl Send for Id {}
// SAFETY: as above; whatever changes the id or gets an event holds the lock `calls`.
unsafe impl Sync for Id {}

impl Id {
    pub(super) fn new(origin: Origin, name: String) -> Result<Self> {
        let library = Library::of(origin)?;
        let channel = Channel::new(library)?;
        let mut raw = ptr::null_mut();
        // SAFETY: the channel is alive and `raw` has room for the answer.
        let rc = unsafe {
            (library.calls.create_id)(
                channel.raw.as_ptr(),
                &raw mut raw,
                ptr::null_mut(),
                c::RDMA_PS_TCP,
            )
        };
        sys::check(rc, "rdma_create_id", &name)?;
        let raw = sys::non_null(raw, "rdma_create_id", &name)?;
        Ok(Self {
            raw,
            channel: Arc::new(channel),
            calls: Mutex::new(()),
            watched: OnceLock::new(),
            name,
        })
    }

    pub(super) fn origin(&self) -> Origin {
        self.channel.library.origin
    }

    /// Makes a call that returns 0, or -1 and sets errno.
    ///
    /// # Safety
    /// What `call` does with the id is allowed.
    unsafe fn call(
        &self,
        verb: &'static str,
        call: impl FnOnce(*mut c::rdma_cm_id) -> c_int,
    ) -> Result<()> {
        let _one_at_a_time = lock(&self.calls);
        sys::check(call(self.raw.as_ptr()), verb, &self.name)
    }

    pub(super) fn set_option<T: Copy>(&self, option: c_int, value: T) -> Result<()> {
        let mut value = value;
        let set = self.channel.library.calls.set_option;
        let place = (&raw mut value).cast::<c_void>();
        // SAFETY: the id is alive, and the value is as long as said.
        unsafe {
            self.call("rdma_set_option", |id| {
                set(id, c::RDMA_OPTION_ID, option, place, size_of::<T>())
            })
        }
    }

    pub(super) fn bind(&self, to: SocketAddr) -> Result<()> {
        let mut to = address::write(to);
        let bind = self.channel.library.calls.bind_addr;
        // SAFETY: the id is alive, and every member of the union begins as an address does.
        unsafe { self.call("rdma_bind_addr", |id| bind(id, (&raw mut to).cast())) }
    }

    pub(super) fn listen(&self, backlog: c_int) -> Result<()> {
        let listen = self.channel.library.calls.listen;
        // SAFETY: the id is alive.
        unsafe { self.call("rdma_listen", |id| listen(id, backlog)) }
    }

    pub(super) fn resolve_addr(&self, to: SocketAddr, timeout_ms: c_int) -> Result<()> {
        let mut to = address::write(to);
        let resolve = self.channel.library.calls.resolve_addr;
        // SAFETY: the id is alive, and every member of the union begins as an address does.
        unsafe {
            self.call("rdma_resolve_addr", |id| {
                resolve(id, ptr::null_mut(), (&raw mut to).cast(), timeout_ms)
            })
        }
    }

    pub(super) fn resolve_route(&self, timeout_ms: c_int) -> Result<()> {
        let resolve = self.channel.library.calls.resolve_route;
        // SAFETY: the id is alive.
        unsafe { self.call("rdma_resolve_route", |id| resolve(id, timeout_ms)) }
    }

    /// # Safety
    /// The private data that `param` points to is there.
    pub(super) unsafe fn connect(&self, param: &mut c::rdma_conn_param) -> Result<()> {
        let connect = self.channel.library.calls.connect;
        // SAFETY: the id is alive, and its queue pair is not the library's.
        unsafe { self.call("rdma_connect", |id| connect(id, param)) }
    }

    /// # Safety
    /// The private data that `param` points to is there.
    pub(super) unsafe fn accept(&self, param: &mut c::rdma_conn_param) -> Result<()> {
        let accept = self.channel.library.calls.accept;
        // SAFETY: the id is alive, and its queue pair is not the library's.
        unsafe { self.call("rdma_accept", |id| accept(id, param)) }
    }

    pub(super) fn reject(&self, data: &[u8]) -> Result<()> {
        let reject = self.channel.library.calls.reject;
        // SAFETY: the id is alive; the caller has checked that the length is one.
        unsafe {
            self.call("rdma_reject", |id| {
                reject(id, data.as_ptr().cast(), data.len() as u8)
            })
        }
    }

    pub(super) fn establish(&self) -> Result<()> {
        let establish = self.channel.library.calls.establish;
        // SAFETY: the id is alive.
        unsafe { self.call("rdma_establish", |id| establish(id)) }
    }

    pub(super) fn disconnect(&self) -> Result<()> {
        let disconnect = self.channel.library.calls.disconnect;
        // SAFETY: the id is alive.
        unsafe { self.call("rdma_disconnect", |id| disconnect(id)) }
    }

    /// What a queue pair has to be set to for its step to `state`: attributes and mask.
    pub(super) fn init_qp_attr(&self, state: c::ibv_qp_state) -> Result<(c::ibv_qp_attr, c_int)> {
        let mut attr = c::ibv_qp_attr::zeroed();
        attr.qp_state = state;
        let mut mask = 0;
        let init = self.channel.library.calls.init_qp_attr;
        // SAFETY: the id is alive, and both places are valid.
        unsafe {
            self.call("rdma_init_qp_attr", |id| {
                init(id, &raw mut attr, &raw mut mask)
            })?;
        }
        Ok((attr, mask))
    }

    /// The next event, without waiting.
    pub(super) fn try_event(&self) -> Result<Option<Event>> {
        let _one_at_a_time = lock(&self.calls);
        let Some(raw) = self.get_event()? else {
            return Ok(None);
        };
        // SAFETY: an event just got, acknowledged once.
        let (event, rc) = unsafe {
            let event = Event::copy(raw);
            (event, (self.channel.library.calls.ack_cm_event)(raw))
        };
        sys::check(rc, "rdma_ack_cm_event", &self.name)?;
        Ok(Some(event))
    }

    /// The next event of a listener: a request, with an id that has a channel of its own, or
    /// something else. Nobody else gets an event of the new id before it has moved.
    pub(super) fn try_request(&self) -> Result<Option<(Event, Option<Self>)>> {
        let _one_at_a_time = lock(&self.calls);
        let Some(raw) = self.get_event()? else {
            return Ok(None);
        };
        let library = self.channel.library;
        // SAFETY: an event just got, acknowledged once. The id of a request is ours from then on.
        let (event, id, rc) = unsafe {
            let event = Event::copy(raw);
            let id = (*raw).id;
            (event, id, (library.calls.ack_cm_event)(raw))
        };
        sys::check(rc, "rdma_ack_cm_event", &self.name)?;
        if event.kind != c::RDMA_CM_EVENT_CONNECT_REQUEST {
            return Ok(Some((event, None)));
        }
        let id = sys::non_null(id, "rdma_get_cm_event", &self.name)?;
        let moved = Channel::new(library).and_then(|channel| {
            // SAFETY: both are alive, and no event of the id is unacknowledged.
            let rc = unsafe { (library.calls.migrate_id)(id.as_ptr(), channel.raw.as_ptr()) };
            sys::check(rc, "rdma_migrate_id", &self.name)?;
            Ok(channel)
        });
        match moved {
            Ok(channel) => {
                let mut id = Self {
                    raw: id,
                    channel: Arc::new(channel),
                    calls: Mutex::new(()),
                    watched: OnceLock::new(),
                    name: String::new(),
                };
                id.name = match id.peer_addr() {
                    Some(peer) => format!("the connection from {peer}"),
                    None => "a connection".to_owned(),
                };
                Ok(Some((event, Some(id))))
            }
            Err(error) => {
                // Which refuses the request.
                // SAFETY: nobody else has seen the id.
                unsafe { (library.calls.destroy_id)(id.as_ptr()) };
                Err(error)
            }
        }
    }

    fn get_event(&self) -> Result<Option<*mut c::rdma_cm_event>> {
        let mut event = ptr::null_mut();
        let channel = self.channel.raw.as_ptr();
        // SAFETY: the channel is alive and `event` has room for the answer.
        let rc = unsafe { (self.channel.library.calls.get_cm_event)(channel, &raw mut event) };
        if rc == 0 {
            return Ok(Some(event));
        }
        match sys::last_errno() {
            libc::EAGAIN | libc::EINTR => Ok(None),
            errno => Err(sys::failure("rdma_get_cm_event", &self.name, errno)),
        }
    }

    /// Waits until the channel may have an event; `false` when the time is up.
    pub(super) fn wait(&self, deadline: Option<Instant>) -> Result<bool> {
        let left = left(deadline);
        let ready = sys::wait_readable(self.as_fd().as_raw_fd(), left)?;
        Ok(ready || left.is_none_or(|left| !left.is_zero()))
    }

    /// Who wakes tasks that wait for an event.
    pub(super) fn watched(&self) -> Result<&Watched> {
        if let Some(watched) = self.watched.get() {
            return Ok(watched);
        }
        let channel = Arc::clone(&self.channel);
        let watched = Watched::new(move || Descriptor::new(Arc::<Channel>::clone(&channel)))?;
        Ok(self.watched.get_or_init(|| watched))
    }

    /// The address on this side.
    pub(super) fn local_addr(&self) -> Option<SocketAddr> {
        let _one_at_a_time = lock(&self.calls);
        // SAFETY: the id is alive, and only calls on it write these fields.
        unsafe { address::read(&(*self.raw.as_ptr()).route.addr.src) }
    }

    /// The peer's address.
    pub(super) fn peer_addr(&self) -> Option<SocketAddr> {
        let _one_at_a_time = lock(&self.calls);
        // SAFETY: the id is alive, and only calls on it write these fields.
        unsafe { address::read(&(*self.raw.as_ptr()).route.addr.dst) }
    }

    /// The name of the device, once there is one.
    pub(super) fn device_name(&self) -> Option<String> {
        let _one_at_a_time = lock(&self.calls);
        // SAFETY: the id is alive, only calls on it write the field; the context of an id lives as
        // long as the id, its device as long as the context, and the name ends with a zero.
        unsafe {
            let verbs = (*self.raw.as_ptr()).verbs.as_ref()?;
            let name = CStr::from_ptr((*verbs.device).name.as_ptr());
            Some(name.to_string_lossy().into_owned())
        }
    }

    /// The device, open.
    pub(super) fn context(&self) -> Result<Context> {
        match self.device_name() {
            Some(name) => library::context(self.origin(), &name),
            None => Err(Error::Unsupported {
                what: "a device of its own (it listens on all of them)",
                object: self.name.clone(),
            }),
        }
    }

    /// What it means that an answer to the peer was refused: usually that nobody waits for it any
    /// more.
    pub(super) fn gone(&self, error: Error) -> Error {
        if !matches!(error.errno(), Some(libc::EINVAL | libc::ENOTCONN)) {
            return error;
        }
        let mut failure = Failure::Disconnected;
        while let Ok(Some(event)) = self.try_event() {
            if let Some(said) = event.failure() {
                failure = said;
            }
        }
        self.failed(failure)
    }

    /// The failure of what this id was to become.
    pub(super) fn failed(&self, failure: Failure) -> Error {
        Error::Connection {
            what: self.name.clone(),
            failure,
        }
    }
}

impl AsFd for Id {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        // An error can only mean that the id was inherited through a fork; it is the parent's.
        // SAFETY: this is its last use, before that of its channel; all its events are acknowledged.
        unsafe { (self.channel.library.calls.destroy_id)(self.raw.as_ptr()) };
    }
}
