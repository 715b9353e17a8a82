//! One exchange: its machine, and the way to its peer.

use std::sync::Arc;

use adverb_engine::cm::{
    CmDrop, CmError, Connection, ConnectionEvent, ConnectionState, Inquiry, Lookup, LookupEvent,
};
use adverb_engine::{Av, Instant};
use adverb_link::{Meta, Path};
use adverb_wire::cm::Mad;

use super::cell::Cell;
use super::channel::CmEventKind;
use super::ports::Port;
use super::strangers::Standing;
use super::table::{Asker, Keys, slot_of};
use crate::device::Device;
use crate::error::NicError;
use crate::fabric::Way;
use crate::nic::Nic;

/// The protocol's side of it.
pub(super) enum Machine {
    Connection(Box<Connection>),
    /// Ours, for a queue pair to send datagrams to.
    Lookup(Box<Lookup>),
    /// Somebody else's.
    Inquiry(Box<Inquiry>),
}

pub(super) struct Talk {
    pub(super) keys: Keys,
    pub(super) machine: Machine,
    pub(super) device: Arc<Device>,
    pub(super) path: Path,
    /// The queue pair that answers go to, which is QP 1 except behind a proxy.
    pub(super) peer_qp: u32,
    /// What was asked for: until the peer has an ID, it says in which process he is.
    pub(super) port: Option<Port>,
    /// Whether the program hears what becomes of it. Of a request it has not accepted, it does not.
    pub(super) heard: bool,
    way: Option<(u16, Way)>,
    /// The process of this host that the peer is in.
    pub(super) peer_slot: Option<u16>,
    /// What the table thinks of it.
    pub(super) standing_noted: Standing,
    /// When the earliest of our reminders comes up.
    pub(super) reminded: Option<Instant>,
}

impl Talk {
    pub(super) fn new(keys: Keys, machine: Machine, device: &Arc<Device>, path: Path) -> Self {
        Self {
            keys,
            machine,
            device: Arc::clone(device),
            path,
            peer_qp: adverb_wire::GSI_QPN,
            port: None,
            heard: false,
            way: None,
            peer_slot: None,
            standing_noted: Standing::Open,
            reminded: None,
        }
    }

    /// What the table is to think of it.
    pub(super) fn standing(&self) -> Standing {
        match &self.machine {
            Machine::Connection(c) if c.is_active() => Standing::Known,
            Machine::Connection(c) => match c.state() {
                ConnectionState::ReqRcvd | ConnectionState::RepSent => Standing::Open,
                ConnectionState::Refused => Standing::Answered,
                _ => Standing::Known,
            },
            Machine::Lookup(_) => Standing::Known,
            Machine::Inquiry(i) if i.is_answered() => Standing::Answered,
            Machine::Inquiry(_) => Standing::Open,
        }
    }

    /// The key under which the peer's queue pair is connected with one of ours, while it is.
    pub(super) fn connected_key(&self) -> Option<Asker> {
        let Machine::Connection(c) = &self.machine else {
            return None;
        };
        let connected = matches!(
            c.state(),
            ConnectionState::ReqRcvd
                | ConnectionState::RepSent
                | ConnectionState::RepRcvd
                | ConnectionState::Established
        );
        let (guid, qpn) = c.remote_guid().zip(c.remote_qpn())?;
        // Programs that bring no queue pair of their own say 0.
        (connected && qpn != 0).then(|| (self.path.dgid.to_ip(), guid, qpn))
    }
}

impl Machine {
    pub(super) fn handle(&mut self, now: Instant, mad: &Mad) -> Result<(), CmDrop> {
        match self {
            Self::Connection(m) => m.handle(now, mad),
            Self::Lookup(m) => m.handle(now, mad),
            Self::Inquiry(m) => m.handle(now, mad),
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        match self {
            Self::Connection(m) => m.handle_timeout(now),
            Self::Lookup(m) => m.handle_timeout(now),
            Self::Inquiry(m) => m.handle_timeout(now),
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Connection(m) => m.poll_timeout(),
            Self::Lookup(m) => m.poll_timeout(),
            Self::Inquiry(m) => m.poll_timeout(),
        }
    }

    pub(super) fn poll_transmit(&mut self, now: Instant) -> Option<Mad> {
        match self {
            Self::Connection(m) => m.poll_transmit(now),
            Self::Lookup(m) => m.poll_transmit(now),
            Self::Inquiry(m) => m.poll_transmit(now),
        }
    }

    pub(super) fn poll_event(&mut self) -> Option<CmEventKind> {
        match self {
            Self::Connection(m) => m.poll_event().map(CmEventKind::from),
            Self::Lookup(m) => m.poll_event().map(CmEventKind::from),
            Self::Inquiry(_) => None,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        match self {
            Self::Connection(m) => m.is_over(),
            Self::Lookup(m) => m.is_over(),
            Self::Inquiry(m) => m.is_over(),
        }
    }

    /// What the peer calls the exchange, once he has said so.
    fn remote_id(&self) -> Option<u32> {
        match self {
            Self::Connection(m) => m.remote_id(),
            Self::Lookup(_) => None,
            Self::Inquiry(m) => Some(m.request().request_id),
        }
    }
}

impl From<ConnectionEvent> for CmEventKind {
    fn from(event: ConnectionEvent) -> Self {
        match event {
            ConnectionEvent::Response(rep) => Self::Response(Box::new(rep)),
            ConnectionEvent::Established { private } => Self::Established(Box::new(private)),
            ConnectionEvent::Rejected { reason, private } => Self::Rejected {
                reason: reason.0,
                private: Box::new(private),
            },
            ConnectionEvent::Unreachable => Self::Unreachable(libc::ETIMEDOUT),
            ConnectionEvent::Disconnected => Self::Disconnected,
            ConnectionEvent::TimewaitExit => Self::TimewaitExit,
        }
    }
}

impl From<LookupEvent> for CmEventKind {
    fn from(event: LookupEvent) -> Self {
        match event {
            LookupEvent::Answer(rep) => Self::LookupAnswer(Box::new(rep)),
            LookupEvent::Unreachable => Self::Unreachable(libc::ETIMEDOUT),
        }
    }
}

/// An engine's refusal as the NIC words it.
pub(super) fn refusal(error: &CmError) -> NicError {
    match error {
        CmError::State { call, state } => NicError::State {
            call,
            state: in_words(*state),
        },
        CmError::Answered => NicError::State {
            call: "answering",
            state: "has answered already",
        },
    }
}

fn in_words(state: ConnectionState) -> &'static str {
    match state {
        ConnectionState::ReqSent => "waits for an answer to its request",
        ConnectionState::ReqRcvd => "has a request to answer",
        ConnectionState::RepSent => "has accepted and waits for the peer",
        ConnectionState::RepRcvd => "has been accepted and not established yet",
        ConnectionState::Established => "is connected",
        ConnectionState::DreqSent => "is disconnecting",
        ConnectionState::DreqRcvd => "was disconnected by its peer",
        ConnectionState::Timewait => "was disconnected a moment ago",
        ConnectionState::Refused => "has refused or was refused",
        ConnectionState::Over => "has no connection any more",
    }
}

impl Nic {
    /// Sends a message of an exchange. What finds no way is lost, like what the network loses.
    pub(super) fn say(&self, talk: &mut Talk, mad: &Mad, now: Instant) {
        if let Ok(way) = self.way_of_talk(talk) {
            let meta = Meta::of(&talk.path);
            self.send_mad(&way, &meta, talk.peer_qp, mad, now);
        }
    }

    /// The way to the peer. On this host it leads to a process, which the peer's ID names, or before
    /// there is one whoever listens.
    pub(super) fn way_of_talk(&self, talk: &mut Talk) -> Result<Way, NicError> {
        let peer = talk.path.dgid.to_ip();
        let here = talk.device.owns(peer);
        let slot = match talk.machine.remote_id() {
            _ if !here => 0,
            Some(id) => slot_of(id),
            // Nobody listens: our own dispatcher says so.
            None => talk
                .port
                .and_then(|port| self.listener_elsewhere(port, peer))
                .unwrap_or_else(|| self.qps.slot()),
        };
        if let Some((known, way)) = &talk.way
            && *known == slot
            && !way.is_dead()
        {
            return Ok(way.clone());
        }
        let way = self.way_of_mad(&talk.device, &talk.path, slot)?;
        talk.way = Some((slot, way.clone()));
        Ok(way)
    }

    /// Whether somebody of this host who is asked for may be found. If nobody here has the port and there are processes
    /// that meet elsewhere, the error says why they do.
    pub(super) fn meets(&self, talk: &Talk) -> Result<(), NicError> {
        let peer = talk.path.dgid.to_ip();
        let Some(port) = talk.port.filter(|_| talk.device.owns(peer)) else {
            return Ok(());
        };
        let place = self.fabric.place();
        if self.cm.ports.is_claimed(place, port, peer) {
            return Ok(());
        }
        match place.why_not_here() {
            None => Ok(()),
            Some(why) => Err(NicError::Unreachable {
                gid: talk.path.dgid,
                qpn: adverb_wire::GSI_QPN,
                why: format!("no process that we meet has port {}; {why}", port.number),
            }),
        }
    }

    /// Sees to it that the end of the peer's process is noticed, if it is one of this host.
    pub(super) fn mind_peer(&self, cell: &Arc<Cell>, talk: &mut Talk, now: Instant) {
        let slot = match (talk.machine.remote_id(), &talk.way) {
            (Some(id), _) => slot_of(id),
            (None, Some((slot, _))) => *slot,
            (None, None) => return,
        };
        if talk.peer_slot == Some(slot) || slot == self.qps.slot() {
            return;
        }
        if !talk.device.owns(talk.path.dgid.to_ip()) {
            return;
        }
        talk.peer_slot = Some(slot);
        self.fabric.watch_peer(slot);
        if !self.fabric.is_alive(slot) {
            self.cm_bereave(vec![Arc::clone(cell)], now);
        }
    }

    /// As [`crate::fabric::Fabric::way_to`], for a message to QP 1 in the process at `slot`.
    pub(super) fn way_of_mad(
        &self,
        device: &Device,
        path: &Path,
        slot: u16,
    ) -> Result<Way, NicError> {
        let unreachable = |why: &str| NicError::Unreachable {
            gid: path.dgid,
            qpn: adverb_wire::GSI_QPN,
            why: why.to_owned(),
        };
        let here = device.owns(path.dgid.to_ip());
        if here && slot != self.qps.slot() && !self.fabric.is_alive(slot) {
            return Err(unreachable("the process that it names has ended"));
        }
        let av = Av {
            sgid: path.sgid,
            dgid: path.dgid,
            traffic_class: path.traffic_class,
            hop_limit: path.hop_limit,
            flow_label: path.flow_label,
            ..Av::default()
        };
        match self
            .fabric
            .way_to(device, &av, adverb_link::qpn::compose(slot, 0))
        {
            Ok(way) => Ok(way.unpaced()),
            Err(NicError::Unreachable { why, .. }) => Err(unreachable(&why)),
            Err(other) => Err(other),
        }
    }
}
