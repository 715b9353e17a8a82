//! Connection identifiers: what a program does with one.

use std::net::IpAddr;
use std::sync::Arc;

use adverb_engine::Instant;
use adverb_engine::cm::{Connection, Inquiry, Lookup};
use adverb_link::Path;
use adverb_wire::cm::{
    Dreq, Rej, RejReason, Rep, Req, ServiceId, SidrRep, SidrReq, SidrStatus, padded,
};

use super::cell::{Cell, Listening, State};
use super::channel::{CmChannel, CmEventKind};
use super::ports::Port;
use super::scope::Scope;
use super::table::Keys;
use super::talk::{Machine, Talk, refusal};
use crate::device::Device;
use crate::error::NicError;
use crate::nic::Nic;
use crate::sync::LockExt;
use crate::{clock, random};

/// Requests that wait unless the program says how many.
const BACKLOG: u32 = 1024;

/// A connection identifier (man rdma_create_id): a listener, one end of a connection, or a lookup.
/// Dropping it is destroying it without waiting for acknowledgements.
pub struct CmId {
    cell: Arc<Cell>,
}

/// What a connection is asked for with.
pub struct ConnectSpec {
    pub device: Arc<Device>,
    pub path: Path,
    /// The communication ID is filled in.
    pub req: Req,
}

/// What a queue pair for datagrams is asked for with.
pub struct LookupSpec {
    pub device: Arc<Device>,
    pub path: Path,
    /// The request ID is filled in.
    pub req: SidrReq,
}

impl CmId {
    /// An identifier that reports to `channel`. `user` comes back in events.
    pub fn new(channel: &Arc<CmChannel>, user: u64) -> Result<Arc<Self>, NicError> {
        usable(channel.nic())?;
        let cell = Cell::new(channel.nic(), channel, user, State::default());
        Ok(Self::of(Arc::new(cell)))
    }

    pub(super) fn of(cell: Arc<Cell>) -> Arc<Self> {
        Arc::new(Self { cell })
    }

    pub(super) fn cell(&self) -> &Arc<Cell> {
        &self.cell
    }

    pub fn user(&self) -> u64 {
        self.cell.user()
    }

    /// Events fetched from now on bear another token.
    pub fn set_user(&self, user: u64) {
        self.cell.set_user(user);
    }

    /// The device that the exchange is on, once there is one.
    pub fn device(&self) -> Option<Arc<Device>> {
        let state = self.state().ok()?;
        state.talk.as_ref().map(|talk| Arc::clone(&talk.device))
    }

    /// The port, once it is bound.
    pub fn port(&self) -> Option<u16> {
        let state = self.state().ok()?;
        state.claim.as_ref().map(|claim| claim.port.number)
    }

    /// Claims a port of a port space, on this host and for this user, and says which. `None` is
    /// every address, the unspecified address of a family every one of that family. Port 0 is any
    /// that is free. `reuse` allows others that do so too, until somebody listens.
    pub fn bind(
        &self,
        space: u16,
        address: Option<IpAddr>,
        port: u16,
        reuse: bool,
    ) -> Result<u16, NicError> {
        let mut state = self.state()?;
        if state.claim.is_some() {
            return Err(misplaced("bind", "is bound already"));
        }
        let nic = &self.cell.nic;
        let scope = Scope::of(address);
        let claim = nic
            .cm
            .ports
            .claim(nic.fabric.place(), space, scope, port, reuse)?;
        let number = claim.port.number;
        state.claim = Some(claim);
        Ok(number)
    }

    /// From now on requests for the port arrive, from `devices` as far as they are not of this host.
    /// Beyond `backlog` that nobody has fetched they are dropped, and said again; 0 leaves it to us.
    pub fn listen(&self, devices: &[Arc<Device>], backlog: u32) -> Result<(), NicError> {
        let mut state = self.state()?;
        if state.listening.is_some() {
            return Err(misplaced("listen", "listens already"));
        }
        if state.talk.is_some() {
            return Err(misplaced("listen", "has a connection"));
        }
        let Some(claim) = &state.claim else {
            return Err(misplaced("listen", "is not bound"));
        };
        let nic = &self.cell.nic;
        for device in devices {
            nic.fabric.listen(device)?;
        }
        nic.cm.ports.listen(nic.fabric.place(), claim)?;
        nic.cm.table.listen(claim.port, claim.scope, &self.cell);
        state.listening = Some(Listening {
            devices: devices.to_vec(),
            backlog: if backlog == 0 { BACKLOG } else { backlog },
        });
        Ok(())
    }

    /// Asks for a connection. What becomes of it is an event.
    pub fn connect(&self, spec: &ConnectSpec) -> Result<(), NicError> {
        let begin = |now, number| {
            let machine = Connection::connect(now, number, random::seed(), spec.req);
            Machine::Connection(Box::new(machine))
        };
        self.open(
            &spec.device,
            spec.path,
            spec.req.service_id,
            "connect",
            begin,
        )
    }

    /// Asks for the queue pair that serves datagrams.
    pub fn lookup(&self, spec: &LookupSpec) -> Result<(), NicError> {
        let begin = |now, number| {
            let machine = Lookup::new(now, number, random::seed(), spec.req);
            Machine::Lookup(Box::new(machine))
        };
        self.open(
            &spec.device,
            spec.path,
            spec.req.service_id,
            "lookup",
            begin,
        )
    }

    fn open(
        &self,
        device: &Arc<Device>,
        path: Path,
        service: ServiceId,
        call: &'static str,
        begin: impl FnOnce(Instant, u32) -> Machine,
    ) -> Result<(), NicError> {
        let mut state = self.state()?;
        if state.listening.is_some() {
            return Err(misplaced(call, "listens"));
        }
        if state.talk.is_some() {
            return Err(misplaced(call, "has asked already"));
        }
        let nic = &self.cell.nic;
        let now = clock::now();
        let number = nic.cm.table.reserve()?;
        let keys = Keys {
            number,
            ..Keys::default()
        };
        let mut talk = Talk::new(keys, begin(now, number), device, path);
        talk.heard = true;
        talk.port = Some(Port {
            space: service.space(),
            number: service.port(),
        });
        // Sought first: an address that nothing reaches is the caller's to know at once, and so are peers on this host
        // that are in nobody's reach.
        let sought = nic.way_of_talk(&mut talk).and_then(|_| nic.meets(&talk));
        if let Err(error) = sought {
            nic.cm.table.leave(&keys, &self.cell);
            return Err(error);
        }
        nic.cm.table.enter(&keys, &self.cell);
        state.talk = Some(Box::new(talk));
        self.cell.settle(&mut state, now);
        drop(state);
        self.send();
        Ok(())
    }

    /// Accepts a request for a connection. Both IDs are filled in.
    pub fn accept(&self, rep: Rep) -> Result<(), NicError> {
        self.connection("accept", |c, now| c.accept(now, rep), true)
    }

    /// Answers a lookup. Request and service ID are filled in.
    pub fn answer_lookup(&self, rep: SidrRep) -> Result<(), NicError> {
        self.inquiry("answer_lookup", |i, now| i.answer(now, rep))
    }

    /// Refuses a request or a lookup, or a response that was not to the program's liking.
    pub fn reject(&self, reason: u16, private: &[u8]) -> Result<(), NicError> {
        let is_inquiry = {
            let state = self.state()?;
            let talk = state.talk.as_ref();
            talk.is_some_and(|t| matches!(t.machine, Machine::Inquiry(_)))
        };
        if is_inquiry {
            let rep = SidrRep {
                private: field(private)?,
                ..REFUSED_LOOKUP
            };
            return self.inquiry("reject", |i, now| i.answer(now, rep));
        }
        let private = field::<{ Rej::PRIVATE }>(private)?;
        self.connection(
            "reject",
            |c, now| c.reject(now, RejReason(reason), private),
            false,
        )
    }

    /// After [`CmEventKind::Response`], with the queue pair ready: tells the peer.
    pub fn establish(&self) -> Result<(), NicError> {
        self.connection("establish", |c, now| c.established_by_user(now), false)
    }

    /// The peer's first message came before its word that it is ready.
    pub fn notify_established(&self) -> Result<(), NicError> {
        self.connection("notify", |c, now| c.notify_established(now), false)
    }

    /// Ends the connection, or confirms that the peer has ended it.
    pub fn disconnect(&self) -> Result<(), NicError> {
        let private = [0; Dreq::PRIVATE];
        self.connection("disconnect", |c, now| c.disconnect(now, private), false)
    }

    /// Queues an event of the caller's own.
    pub fn raise(&self, own: u64) -> Result<(), NicError> {
        let state = self.state()?;
        self.cell.push(CmEventKind::Own(own));
        drop(state);
        Ok(())
    }

    /// Reports to another channel from now on, and takes along what nobody has fetched. Waits until
    /// all that was fetched is acknowledged.
    pub fn migrate(&self, to: &Arc<CmChannel>) -> Result<(), NicError> {
        drop(self.state()?);
        if !self.cell.move_to(to) {
            return Err(misplaced("migrate", DESTROYED));
        }
        self.cell.wait_for_acks();
        Ok(())
    }

    /// Acknowledges events (man rdma_ack_cm_event). Those of requests are the listener's.
    pub fn ack_events(&self, n: u64) {
        if self.cell.nic.alive() {
            self.cell.ack_events(n);
        }
    }

    /// Ends it: refuses what was asked, ends a connection, gives back the port, drops what nobody has
    /// fetched. Waits until all that was fetched is acknowledged. A second time does nothing.
    pub fn destroy(&self) {
        if self.cell.nic.alive() {
            self.end();
            self.cell.wait_for_acks();
        }
    }

    fn end(&self) {
        self.cell.close(clock::now());
        self.send();
    }

    /// One step of a connection. With `heard` the program hears from then on what becomes of it.
    fn connection(
        &self,
        call: &'static str,
        step: impl FnOnce(&mut Connection, Instant) -> Result<(), adverb_engine::cm::CmError>,
        heard: bool,
    ) -> Result<(), NicError> {
        let mut state = self.state()?;
        let now = clock::now();
        let Some(talk) = state.talk.as_mut() else {
            return Err(misplaced(call, "has no connection"));
        };
        let Machine::Connection(machine) = &mut talk.machine else {
            return Err(misplaced(call, "is a lookup"));
        };
        step(machine, now).map_err(|e| refusal(&e))?;
        talk.heard |= heard;
        self.cell.settle(&mut state, now);
        drop(state);
        self.send();
        Ok(())
    }

    fn inquiry(
        &self,
        call: &'static str,
        step: impl FnOnce(&mut Inquiry, Instant) -> Result<(), adverb_engine::cm::CmError>,
    ) -> Result<(), NicError> {
        let mut state = self.state()?;
        let now = clock::now();
        let machine = state.talk.as_mut().map(|talk| &mut talk.machine);
        let Some(Machine::Inquiry(machine)) = machine else {
            return Err(misplaced(call, "nobody looked up"));
        };
        step(machine, now).map_err(|e| refusal(&e))?;
        self.cell.settle(&mut state, now);
        drop(state);
        self.send();
        Ok(())
    }

    /// Ends the batch, and lets the NIC do what else is waiting: the peer may be in this process.
    fn send(&self) {
        self.cell.nic.fabric.flush();
        self.cell.nic.drive_for_user();
    }

    fn state(&self) -> Result<std::sync::MutexGuard<'_, State>, NicError> {
        usable(&self.cell.nic)?;
        let state = self.cell.state.acquire();
        if state.closed {
            return Err(misplaced("a call", DESTROYED));
        }
        Ok(state)
    }
}

impl Drop for CmId {
    fn drop(&mut self) {
        if self.cell.nic.alive() {
            self.end();
        }
    }
}

impl std::fmt::Debug for CmId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CmId").field("user", &self.user()).finish()
    }
}

const DESTROYED: &str = "has been destroyed";

/// The answer to a lookup that nobody wants to serve.
pub(super) const REFUSED_LOOKUP: SidrRep = SidrRep {
    request_id: 0,
    status: SidrStatus::REJECT,
    info_length: 0,
    qpn: 0,
    service_id: ServiceId(0),
    qkey: 0,
    info: [0; SidrRep::INFO],
    private: [0; SidrRep::PRIVATE],
};

fn misplaced(call: &'static str, state: &'static str) -> NicError {
    NicError::State { call, state }
}

fn usable(nic: &Nic) -> Result<(), NicError> {
    if nic.alive() {
        Ok(())
    } else {
        Err(NicError::Forked)
    }
}

/// Private data in a field of `N` bytes.
fn field<const N: usize>(data: &[u8]) -> Result<[u8; N], NicError> {
    padded(data).ok_or(NicError::Invalid {
        what: "private_data_len",
        value: data.len() as u64,
        limit: N as u64,
    })
}
