//! One queue pair: its public face. Each part of its behaviour has a file of its own.

mod arrival;
mod attr;
mod departure;
mod flush;
mod post;
mod receive;
pub(crate) mod recv_queue;
mod requester;
mod responder;
mod responses;
mod retry;
mod send_queue;
pub mod state;
mod uc;
mod ud;

use std::net::IpAddr;

use adverb_wire::{Opcode, Packet, Transport};

pub use attr::{DeviceLimits, QpAttr};
pub use departure::{Departure, NotLoaded};

use crate::error::DropReason;
use crate::ids::{PdId, QpNum};
use crate::memory::Host;
use crate::time::Instant;
use crate::wr::UdAddress;
use receive::Receiving;
use recv_queue::RecvQueue;
use requester::Requester;
use responder::Responder;
use send_queue::SendQueue;
use state::{QpKind, QpState};

/// Sizes of the queues; fixed at creation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpCaps {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline: u32,
}

/// Which halves a queue pair has. Only XRC splits them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Role {
    #[default]
    Both,
    /// XRC_SEND: has no receive queue.
    Initiator,
    /// XRC_RECV: has no send queue; each request names the SRQ it is for.
    Target,
}

/// What a queue pair is, for its whole life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpConfig {
    pub num: QpNum,
    pub transport: Transport,
    pub role: Role,
    /// An XRC target has none of its own: the SRQ that a request names brings its domain along.
    pub pd: PdId,
    pub caps: QpCaps,
    /// Every send completes with a CQE, flagged or not.
    pub sq_sig_all: bool,
    pub uses_srq: bool,
    /// The SRQ's protection domain, which receive buffers are checked against when there is one.
    pub srq_pd: Option<PdId>,
}

/// What a link knows of a packet beside its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketMeta {
    pub src: IpAddr,
    pub dst: IpAddr,
    pub traffic_class: u8,
    pub hop_limit: u8,
}

/// A packet that [`Qp::poll_transmit`] has written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// From the BTH to the pad, without ICRC.
    pub len: usize,
    pub dest: Dest,
}

/// Where a packet goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dest {
    /// To the peer of the queue pair, see [`Qp::attrs`].
    Connected,
    Datagram(UdAddress),
}

/// What a queue pair has counted since its creation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    pub packets_sent: u64,
    pub packets_received: u64,
    /// Times the requester went back, for whatever reason but RNR.
    pub retries: u64,
    pub timeouts: u64,
    pub sequence_naks_sent: u64,
    pub sequence_naks_received: u64,
    pub rnr_naks_sent: u64,
    pub rnr_naks_received: u64,
    pub duplicates: u64,
    pub packets_dropped: u64,
    pub qkey_violations: u64,
    pub pkey_violations: u64,
}

/// A queue pair.
#[derive(Debug)]
pub struct Qp {
    config: QpConfig,
    attr: QpAttr,
    state: QpState,
    /// Payload bytes of a full packet.
    pmtu: usize,
    /// Unacknowledged packets allowed.
    window: u64,
    sq: SendQueue,
    rq: RecvQueue,
    requester: Requester,
    responder: Responder,
    receiving: Receiving,
    /// SQD was entered with the wish for an event, which has not been raised yet.
    drain_event_due: bool,
    counters: Counters,
}

/// Far less than the 2^23 - 1 that sequence numbers can tell apart.
const MAX_WINDOW: u64 = 1 << 22;

impl Qp {
    pub fn new(config: QpConfig) -> Self {
        let recv_wr = if config.uses_srq || config.role != Role::Both {
            0
        } else {
            config.caps.max_recv_wr
        };
        Self {
            attr: QpAttr::default(),
            state: QpState::Reset,
            pmtu: 256,
            window: MAX_WINDOW,
            sq: SendQueue::new(&config.caps, config.transport),
            rq: RecvQueue::new(recv_wr, config.caps.max_recv_sge),
            requester: Requester::default(),
            responder: Responder::default(),
            receiving: Receiving::default(),
            drain_event_due: false,
            counters: Counters::default(),
            config,
        }
    }

    pub const fn state(&self) -> QpState {
        self.state
    }

    pub const fn config(&self) -> &QpConfig {
        &self.config
    }

    /// The row of the state table it obeys.
    pub const fn kind(&self) -> QpKind {
        QpKind::of(self.config.transport, self.config.role)
    }

    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Bounds the packets in flight to what the link can hold.
    pub fn set_window(&mut self, packets: u32) {
        self.window = u64::from(packets).clamp(1, MAX_WINDOW);
    }

    /// Work requests posted to the send queue and not completed yet.
    pub fn sends_pending(&self) -> u32 {
        self.sq.len()
    }

    /// A packet for this queue pair has arrived. For RC and UC the caller has compared the packet's
    /// addresses with the queue pair's.
    pub fn handle_packet(
        &mut self,
        now: Instant,
        meta: &PacketMeta,
        packet: &Packet<'_>,
        host: &mut dyn Host,
    ) -> Result<(), DropReason> {
        let result = self.dispatch(now, meta, packet, host);
        match result {
            Ok(()) => self.counters.packets_received += 1,
            Err(reason) => {
                self.counters.packets_dropped += 1;
                match reason {
                    DropReason::PKey => self.counters.pkey_violations += 1,
                    DropReason::QKey => self.counters.qkey_violations += 1,
                    _ => {}
                }
            }
        }
        result
    }

    fn dispatch(
        &mut self,
        now: Instant,
        meta: &PacketMeta,
        packet: &Packet<'_>,
        host: &mut dyn Host,
    ) -> Result<(), DropReason> {
        let Opcode::Roce(transport, op) = packet.bth.opcode else {
            return Err(DropReason::Cnp);
        };
        if transport != self.config.transport {
            return Err(DropReason::Transport);
        }
        match self.state {
            QpState::Reset | QpState::Init | QpState::Err => return Err(DropReason::State),
            QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe => {}
        }
        if !adverb_wire::pkeys_match(packet.bth.pkey, adverb_wire::DEFAULT_PKEY) {
            return Err(DropReason::PKey);
        }
        match transport {
            Transport::Rc if op.is_response() => self.handle_response(now, op, packet, host),
            Transport::Rc => self.handle_request(now, op, packet, host),
            Transport::Uc => self.handle_uc(now, op, packet, host),
            Transport::Ud => self.handle_datagram(now, meta, op, packet, host),
            Transport::Xrc => match (self.config.role, op.is_response()) {
                (Role::Initiator, true) => self.handle_response(now, op, packet, host),
                (Role::Target, false) => self.handle_request(now, op, packet, host),
                _ => Err(DropReason::Transport),
            },
        }
    }

    /// Writes the next packet to send, if there is one: answers before requests. `buf` holds at
    /// least a full packet of the path MTU with all headers.
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        host: &mut dyn Host,
        buf: &mut [u8],
    ) -> Option<Transmit> {
        let sent = match self.poll_response(now, host, buf) {
            Some(sent) => Some(sent),
            None => match self.config.transport {
                Transport::Rc | Transport::Xrc => self.poll_request(now, host, buf),
                Transport::Uc => self.poll_uc(now, host, buf),
                Transport::Ud => self.poll_datagram(now, host, buf),
            },
        };
        if sent.is_some() {
            self.counters.packets_sent += 1;
        }
        sent
    }

    /// Whether all that [`Qp::poll_transmit`] would write is the acknowledgement of what has arrived.
    ///
    /// That may wait a moment for what the application says to it, and travel along: the peer learns nothing from it
    /// that it needs to go on, short of its timeout.
    pub fn owes_only_ack(&self) -> bool {
        self.responder.answers.is_ack_only() && self.sq.cursor == self.sq.head
    }

    /// Whether [`Qp::poll_transmit`] has nothing to write, and nothing changes by asking it.
    pub fn is_silent(&self) -> bool {
        self.responder.answers.is_idle() && self.sq.cursor == self.sq.head
    }

    /// When [`Qp::handle_timeout`] wants to be called, if at all. An idle queue pair has no deadline.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.requester.deadline()
    }
}
