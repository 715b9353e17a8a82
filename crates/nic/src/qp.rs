//! Queue pairs: the engine's machine, its way to the peer, and who may touch them when.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use adverb_engine::{
    AttrMask, DeviceLimits, Instant, PostError, Qp as Machine, QpAttr, QpCaps, QpConfig, QpNum, QpState,
    RecvWr, SendWr, UdAddress,
};
use adverb_link::{Meta, qpn};
use adverb_wire::{Mtu, Transport};

use crate::async_events::Source;
use crate::context::Context;
use crate::cq::{Cq, CqCell};
use crate::error::NicError;
use crate::host::View;
use crate::ledger::Ledger;
use crate::nic::Nic;
use crate::pd::PdUse;
use crate::route::{Way, path_of};
use crate::srq::{Srq, SrqCell};
use crate::sync::LockExt;
use crate::{ah, clock};

/// What a queue pair is made from.
pub struct QpSpec<'a> {
    pub transport: Transport,
    pub send_cq: &'a Arc<Cq>,
    pub recv_cq: &'a Arc<Cq>,
    pub srq: Option<&'a Arc<Srq>>,
    pub caps: QpCaps,
    pub sq_sig_all: bool,
    /// Comes back in asynchronous events.
    pub user: u64,
}

/// A queue pair (man ibv_create_qp).
pub struct Qp {
    cell: Arc<QpCell>,
    closed: AtomicBool,
    /// Given back at destroy, not with the last `Arc` of the cell: a pass of another thread may
    /// hold that a little longer, and the domain must be free at once.
    pd: Mutex<Option<PdUse>>,
}

/// The part that the table, timers and drivers keep alive.
pub(crate) struct QpCell {
    pub(crate) number: u32,
    pub(crate) user: u64,
    pub(crate) context: Arc<Context>,
    pub(crate) send_cq: Arc<CqCell>,
    pub(crate) recv_cq: Arc<CqCell>,
    pub(crate) srq: Option<Arc<SrqCell>>,
    pub(crate) transport: Transport,
    caps: QpCaps,
    async_events: Arc<Ledger>,
    /// Already on somebody's list of queue pairs to pump.
    pub(crate) listed: AtomicBool,
    /// A CQ had no room for a completion of this queue pair.
    pub(crate) cq_failed: AtomicBool,
    pub(crate) state: Mutex<State>,
}

/// Everything that one lock guards.
pub(crate) struct State {
    pub(crate) machine: Machine,
    /// Gone for good: packets, timers and pumps that come late leave it alone.
    pub(crate) destroyed: bool,
    /// Connected transports: where the peer is, once known.
    pub(crate) way: Option<Way>,
    pub(crate) meta: Option<Meta>,
    /// Datagrams: the last destination, as most programs have few.
    recent: Option<(UdAddress, Way)>,
    /// A packet that its link had no room for.
    pub(crate) stuck: Option<Stuck>,
    /// When the earliest of our entries among the timers comes up.
    pub(crate) registered: Option<Instant>,
    /// When the queue pair fails because its peer's process has ended.
    pub(crate) fails_at: Option<Instant>,
}

pub(crate) struct Stuck {
    pub(crate) way: Way,
    pub(crate) meta: Meta,
    pub(crate) packet: Vec<u8>,
}

impl Qp {
    pub(crate) fn new(
        context: &Arc<Context>,
        pd: PdUse,
        spec: &QpSpec<'_>,
    ) -> Result<Arc<Self>, NicError> {
        check_caps(context, spec)?;
        let nic = context.nic();
        context.quotas.qps.claim("QP", context.device().limits().max_qp)?;
        let number = nic.qps.reserve().inspect_err(|_| context.quotas.qps.release())?;
        let caps = granted(spec);
        let machine = Machine::new(QpConfig {
            num: QpNum(number),
            transport: spec.transport,
            role: adverb_engine::Role::Both,
            pd: pd.id,
            caps,
            sq_sig_all: spec.sq_sig_all,
            uses_srq: spec.srq.is_some(),
            srq_pd: spec.srq.map(|s| s.cell.pd_id()),
        });
        spec.send_cq.cell.users.fetch_add(1, Ordering::AcqRel);
        spec.recv_cq.cell.users.fetch_add(1, Ordering::AcqRel);
        if let Some(srq) = spec.srq {
            srq.cell.users.fetch_add(1, Ordering::AcqRel);
        }
        let cell = Arc::new(QpCell {
            number,
            user: spec.user,
            context: Arc::clone(context),
            send_cq: Arc::clone(&spec.send_cq.cell),
            recv_cq: Arc::clone(&spec.recv_cq.cell),
            srq: spec.srq.map(|s| Arc::clone(&s.cell)),
            transport: spec.transport,
            caps,
            async_events: context.track(Source::Qp(spec.user)),
            listed: AtomicBool::new(false),
            cq_failed: AtomicBool::new(false),
            state: Mutex::new(State {
                machine,
                destroyed: false,
                way: None,
                meta: None,
                recent: None,
                stuck: None,
                registered: None,
                fails_at: None,
            }),
        });
        nic.qps.insert(number, &cell);
        Ok(Arc::new(Self { cell, closed: AtomicBool::new(false), pd: Mutex::new(Some(pd)) }))
    }

    pub fn number(&self) -> u32 {
        self.cell.number
    }

    /// What was granted, at least what was asked for.
    pub fn caps(&self) -> QpCaps {
        self.cell.caps
    }

    pub fn state(&self) -> QpState {
        self.cell.state.acquire().machine.state()
    }

    pub fn attrs(&self) -> QpAttr {
        self.cell.state.acquire().machine.attrs()
    }

    /// Changes attributes as `mask` says; on an error nothing has changed (man ibv_modify_qp).
    pub fn modify(&self, attr: &QpAttr, mask: AttrMask) -> Result<(), NicError> {
        let context = &self.cell.context;
        context.usable()?;
        let nic = context.nic();
        let now = clock::now();
        let mut attr = *attr;
        let mut state = self.cell.state.acquire();
        if mask.contains(AttrMask::AV) && self.cell.transport != Transport::Ud {
            attr.av = ah::resolve(context.device(), &attr.av)?;
        }
        let limits = device_limits(context);
        // Sought first, because it can fail and the machine's step cannot be taken back.
        let way = self.find_way(&state, &attr, mask)?;
        state.machine.modify(now, &attr, mask, &limits, &mut self.cell.view())?;
        if let Some(way) = way {
            let bytes = nic.capabilities(&way).window_bytes;
            let mtu = Mtu::from_ibv(attr_mtu(&state)).map_or(256, Mtu::bytes);
            state.machine.set_window((bytes / mtu).max(2) as u32);
            let av = state.machine.attrs().av;
            state.meta = Some(Meta::of(&path_of(&av)));
            state.way = Some(way);
        }
        if mask.contains(AttrMask::STATE) && matches!(attr.state, QpState::Reset | QpState::Err) {
            state.stuck = None;
        }
        if mask.contains(AttrMask::STATE) && attr.state == QpState::Reset {
            (state.way, state.meta, state.recent, state.fails_at) = (None, None, None, None);
        }
        let peer = state.watched_peer(self.cell.transport, context.device());
        nic.pump_locked(&self.cell, &mut state, now);
        drop(state);
        if let Some(slot) = peer {
            nic.watch_peer(slot);
        }
        nic.flush(now);
        Ok(())
    }

    /// Queues work; [`Qp::kick`] sends it.
    pub fn post_send(&self, wr: &SendWr<'_>) -> Result<(), PostError> {
        let nic = self.cell.context.nic();
        if !nic.alive() {
            return Err(PostError::WrongState { state: QpState::Err });
        }
        let mut state = self.cell.state.acquire();
        state.machine.post_send(clock::now(), wr, &mut self.cell.view())
    }

    /// Sends what was queued, and lets the NIC do what else is waiting.
    pub fn kick(&self) {
        let nic = self.cell.context.nic();
        if nic.alive() {
            nic.pump(&self.cell, clock::now());
            nic.drive_for_user();
        }
    }

    pub fn post_recv(&self, wr: &RecvWr<'_>) -> Result<(), PostError> {
        if !self.cell.context.nic().alive() {
            return Err(PostError::WrongState { state: QpState::Err });
        }
        let mut state = self.cell.state.acquire();
        state.machine.post_recv(clock::now(), wr, &mut self.cell.view())
    }

    /// How many more send requests fit.
    pub fn send_room(&self) -> u32 {
        let pending = self.cell.state.acquire().machine.sends_pending();
        self.cell.caps.max_send_wr.saturating_sub(pending)
    }

    /// Ends the queue pair: no completion of it comes after the return. Waits until its delivered
    /// asynchronous events are acknowledged.
    pub fn destroy(&self) -> Result<(), NicError> {
        self.cell.context.usable()?;
        self.release();
        self.cell.async_events.wait_settled();
        self.cell.context.forget(Source::Qp(self.cell.user));
        Ok(())
    }

    fn release(&self) {
        if self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        let cell = &self.cell;
        let nic = cell.context.nic();
        {
            let mut state = cell.state.acquire();
            state.destroyed = true;
            state.stuck = None;
        }
        nic.qps.remove(cell.number);
        // Answers that were already handed to a link, such as the last acknowledgement, go out.
        nic.flush(clock::now());
        cell.context.untrack(Source::Qp(cell.user));
        cell.send_cq.users.fetch_sub(1, Ordering::AcqRel);
        cell.recv_cq.users.fetch_sub(1, Ordering::AcqRel);
        if let Some(srq) = &cell.srq {
            srq.users.fetch_sub(1, Ordering::AcqRel);
        }
        cell.context.quotas.qps.release();
        self.pd.acquire().take();
    }

    fn find_way(
        &self,
        state: &State,
        attr: &QpAttr,
        mask: AttrMask,
    ) -> Result<Option<Way>, NicError> {
        let context = &self.cell.context;
        let nic = context.nic();
        if self.cell.transport == Transport::Ud {
            // A datagram queue pair must hear strangers from RTR on.
            let listens = mask.contains(AttrMask::STATE) && attr.state == QpState::Rtr;
            if listens {
                nic.listen(context.device())?;
            }
            return Ok(None);
        }
        if !mask.intersects(AttrMask::AV | AttrMask::DEST_QPN) {
            return Ok(None);
        }
        let known = state.machine.attrs();
        let av = if mask.contains(AttrMask::AV) { attr.av } else { known.av };
        let remote = if mask.contains(AttrMask::DEST_QPN) { attr.dest_qpn } else { known.dest_qpn };
        match nic.way_to(context.device(), &av, remote) {
            Ok(way) => Ok(Some(way)),
            // As with hardware, a peer that is not there shows when packets go unanswered.
            Err(NicError::Unreachable { .. }) => Ok(None),
            Err(e) => Err(e),
        }
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        if self.cell.context.nic().alive() {
            self.release();
        }
    }
}

impl QpCell {
    pub(crate) fn view(&self) -> View<'_> {
        View { nic: self.context.nic(), qp: self }
    }

    /// What follows an engine call: a queue pair whose completion found no room fails.
    pub(crate) fn settle(&self, state: &mut State, now: Instant) {
        if self.cq_failed.load(Ordering::Relaxed) && self.cq_failed.swap(false, Ordering::Relaxed) {
            state.machine.fail(now, &mut self.view());
            // The flushed work finds the CQ full as well, and that is no news.
            self.cq_failed.store(false, Ordering::Relaxed);
        }
    }

    /// The way of a datagram; none when nothing reaches the address, and the datagram is lost.
    pub(crate) fn datagram_way(&self, state: &mut State, to: &UdAddress) -> Option<(Way, Meta)> {
        let meta = Meta::of(&path_of(&to.av));
        if let Some((known, way)) = &state.recent
            && known.av == to.av
            && known.remote_qpn == to.remote_qpn
        {
            return Some((way.clone(), meta));
        }
        let nic = self.context.nic();
        let way = nic.way_to(self.context.device(), &to.av, to.remote_qpn).ok()?;
        state.recent = Some((*to, way.clone()));
        Some((way, meta))
    }

    /// The process at `slot` has ended. If this queue pair is connected to it, it fails once its
    /// retry budget has passed: what the peer sent last may still be under way.
    pub(crate) fn peer_died(&self, nic: &Nic, slot: u16, now: Instant) {
        let mut state = self.state.acquire();
        if state.destroyed || self.transport != Transport::Rc {
            return;
        }
        let peer = state.watched_peer(self.transport, self.context.device());
        if peer != Some(slot) || state.fails_at.is_some() {
            return;
        }
        let attrs = state.machine.attrs();
        // "Never time out" is a promise about packets; that the peer is dead is certain.
        let timeout = adverb_wire::ack_timeout_ns(attrs.timeout).unwrap_or(FORGIVING_TIMEOUT_NS);
        let at = now.plus_nanos(timeout.saturating_mul(u64::from(attrs.retry_cnt) + 1));
        state.fails_at = Some(at);
        nic.timers.register(at, self.number);
    }
}

const FORGIVING_TIMEOUT_NS: u64 = 500_000_000;

impl State {
    /// The slot of the process this queue pair is connected to, if that is on this host.
    fn watched_peer(&self, transport: Transport, device: &crate::device::Device) -> Option<u16> {
        let connected = matches!(self.machine.state(), QpState::Rtr | QpState::Rts | QpState::Sqd);
        if transport != Transport::Rc || !connected {
            return None;
        }
        let attrs = self.machine.attrs();
        let peer: IpAddr = attrs.av.dgid.to_ip();
        device.owns(peer).then(|| qpn::slot_of(attrs.dest_qpn)).filter(|s| *s != 0)
    }
}

fn attr_mtu(state: &State) -> u32 {
    state.machine.attrs().path_mtu
}

fn device_limits(context: &Context) -> DeviceLimits {
    let device = context.device();
    let limits = device.limits();
    DeviceLimits {
        ports: 1,
        pkeys: crate::device::PKEYS.len() as u16,
        active_mtu: device.port().active_mtu,
        max_rd_atom: limits.max_rd_atom,
        max_init_rd_atom: limits.max_init_rd_atom,
    }
}

fn check_caps(context: &Context, spec: &QpSpec<'_>) -> Result<(), NicError> {
    let limits = context.device().limits();
    let caps = &spec.caps;
    let mut checks = vec![
        ("max_send_wr", caps.max_send_wr, limits.max_qp_wr),
        ("max_send_sge", caps.max_send_sge, limits.max_sge),
        ("max_inline_data", caps.max_inline, limits.max_inline),
    ];
    if spec.srq.is_none() {
        checks.push(("max_recv_wr", caps.max_recv_wr, limits.max_qp_wr));
        checks.push(("max_recv_sge", caps.max_recv_sge, limits.max_sge));
    }
    for (what, value, limit) in checks {
        if value > limit {
            return Err(NicError::Invalid { what, value: value.into(), limit: limit.into() });
        }
    }
    match spec.transport {
        Transport::Rc | Transport::Ud => Ok(()),
        Transport::Uc if spec.srq.is_none() => Ok(()),
        Transport::Uc => Err(NicError::BadArgument("a UC queue pair cannot use an SRQ")),
        Transport::Xrc => Err(NicError::Unsupported("XRC")),
    }
}

/// At least what was asked for; some programs give up when told of no scatter/gather entry.
fn granted(spec: &QpSpec<'_>) -> QpCaps {
    let caps = spec.caps;
    let with_srq = spec.srq.is_some();
    QpCaps {
        max_send_sge: caps.max_send_sge.max(1),
        max_recv_wr: if with_srq { 0 } else { caps.max_recv_wr },
        max_recv_sge: if with_srq { 0 } else { caps.max_recv_sge.max(1) },
        ..caps
    }
}
