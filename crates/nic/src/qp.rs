//! Queue pairs: the engine's machine, its way to the peer, and who may touch them when.

mod cell;
mod posting;

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use adverb_engine::{
    AttrMask, DeviceLimits, Instant, PdId, Qp as Machine, QpAttr, QpCaps, QpConfig, QpNum, QpState,
    Role, UdAddress,
};
use adverb_link::Meta;
use adverb_wire::{Gid, Mtu, Transport};

use crate::async_events::Source;
use crate::context::Context;
use crate::cq::{Cq, CqCell};
use crate::error::NicError;
use crate::fabric::{Way, path_of};
use crate::ledger::Ledger;
use crate::pass::Pass;
use crate::pd::PdUse;
use crate::srq::{Srq, SrqCell};
use crate::sync::LockExt;
use crate::xrc::{Domain, XrcdUse};
use crate::{ah, clock};
pub(crate) use cell::LAST_WORDS_NS;

pub use posting::Posting;

/// What a queue pair is made from.
pub struct QpSpec<'a> {
    pub transport: Transport,
    pub send_cq: &'a Arc<Cq>,
    /// Needed unless the queue pair is an XRC one, which only sends then.
    pub recv_cq: Option<&'a Arc<Cq>>,
    pub srq: Option<&'a Arc<Srq>>,
    pub caps: QpCaps,
    pub sq_sig_all: bool,
    /// Datagrams that it sends to a group it is in do not come back to it.
    pub blocks_own_multicast: bool,
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
    xrcd: Mutex<Option<XrcdUse>>,
    /// Who hears of the queue pair's events through this handle.
    listener: Listener,
    async_events: Arc<Ledger>,
}

/// A context and the token that its events bear.
#[derive(Clone)]
struct Listener {
    context: Arc<Context>,
    user: u64,
}

/// The part that the table, timers and drivers keep alive.
pub(crate) struct QpCell {
    pub(crate) number: u32,
    pub(crate) context: Arc<Context>,
    pub(crate) send_cq: Option<Arc<CqCell>>,
    pub(crate) recv_cq: Option<Arc<CqCell>>,
    pub(crate) srq: Option<Arc<SrqCell>>,
    pub(crate) transport: Transport,
    caps: QpCaps,
    /// The receiving half of an XRC connection: where it looks for SRQs.
    pub(crate) domain: Option<Arc<Domain>>,
    /// One for each handle. The queue pair ends with the last.
    listeners: Mutex<Vec<Listener>>,
    pub(crate) blocks_own_multicast: bool,
    /// How many multicast groups it is in.
    pub(crate) groups: AtomicU32,
    /// Already on somebody's list of queue pairs to pump.
    pub(crate) listed: AtomicBool,
    /// On the list of those whose acknowledgement may wait.
    pub(crate) noted: AtomicBool,
    /// A CQ had no room for a completion of this queue pair.
    pub(crate) cq_failed: AtomicBool,
    /// A receive was reported since somebody last looked: the application has something to answer.
    pub(crate) delivered: AtomicBool,
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
    /// Its acknowledgement waits; counted by [`crate::owed`].
    pub(crate) owes: bool,
    /// When a packet was last given to a link.
    pub(crate) last_sent: Instant,
    /// The peer's number, once known.
    pub(crate) remote_qpn: u32,
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

/// What a queue pair is put together from.
struct Parts<'a> {
    transport: Transport,
    role: Role,
    pd: PdId,
    send_cq: Option<&'a Arc<CqCell>>,
    recv_cq: Option<&'a Arc<CqCell>>,
    srq: Option<&'a Arc<SrqCell>>,
    domain: Option<&'a Arc<Domain>>,
    caps: QpCaps,
    sq_sig_all: bool,
    blocks_own_multicast: bool,
}

/// No domain has this number.
const NO_PD: PdId = PdId(0);

const NO_QUEUES: QpCaps = QpCaps {
    max_send_wr: 0,
    max_recv_wr: 0,
    max_send_sge: 0,
    max_recv_sge: 0,
    max_inline: 0,
};

impl Qp {
    pub(crate) fn new(
        context: &Arc<Context>,
        pd: PdUse,
        spec: &QpSpec<'_>,
    ) -> Result<Arc<Self>, NicError> {
        check_caps(context, spec)?;
        let role = match spec.transport {
            Transport::Xrc => Role::Initiator,
            _ => Role::Both,
        };
        let recv_cq = spec.recv_cq.filter(|_| role == Role::Both);
        if role == Role::Both && recv_cq.is_none() {
            return Err(NicError::BadArgument(
                "a queue pair that receives needs a receive CQ",
            ));
        }
        let parts = Parts {
            transport: spec.transport,
            role,
            pd: pd.id,
            send_cq: Some(&spec.send_cq.cell),
            recv_cq: recv_cq.map(|cq| &cq.cell),
            srq: spec.srq.map(|srq| &srq.cell),
            domain: None,
            caps: granted(spec),
            sq_sig_all: spec.sq_sig_all,
            blocks_own_multicast: spec.blocks_own_multicast,
        };
        Self::make(context, &parts, Some(pd), None, spec.user)
    }

    /// The receiving half of an XRC connection.
    pub(crate) fn new_target(
        context: &Arc<Context>,
        xrcd: XrcdUse,
        user: u64,
    ) -> Result<Arc<Self>, NicError> {
        let domain = Arc::clone(&xrcd.domain);
        let parts = Parts {
            transport: Transport::Xrc,
            role: Role::Target,
            pd: NO_PD,
            send_cq: None,
            recv_cq: None,
            srq: None,
            domain: Some(&domain),
            caps: NO_QUEUES,
            sq_sig_all: false,
            blocks_own_multicast: false,
        };
        Self::make(context, &parts, None, Some(xrcd), user)
    }

    /// Another handle of the receiving half of an XRC connection.
    pub(crate) fn open(
        context: &Arc<Context>,
        xrcd: XrcdUse,
        number: u32,
        user: u64,
    ) -> Result<Arc<Self>, NicError> {
        let unknown =
            || NicError::BadArgument("the XRC domain has no receiving queue pair of this number");
        let cell = context.nic().qps.get(number).ok_or_else(unknown)?;
        if !cell
            .domain
            .as_ref()
            .is_some_and(|domain| Arc::ptr_eq(domain, &xrcd.domain))
        {
            return Err(unknown());
        }
        let listener = Listener {
            context: Arc::clone(context),
            user,
        };
        {
            let mut listeners = cell.listeners.acquire();
            if listeners.is_empty() {
                // Its last handle is being destroyed.
                return Err(unknown());
            }
            listeners.push(listener.clone());
        }
        Ok(Self::handle(cell, listener, None, Some(xrcd)))
    }

    fn make(
        context: &Arc<Context>,
        parts: &Parts<'_>,
        pd: Option<PdUse>,
        xrcd: Option<XrcdUse>,
        user: u64,
    ) -> Result<Arc<Self>, NicError> {
        let nic = context.nic();
        context
            .quotas
            .qps
            .claim("QP", context.device().limits().max_qp)?;
        let number = nic
            .qps
            .reserve()
            .inspect_err(|_| context.quotas.qps.release())?;
        let machine = Machine::new(QpConfig {
            num: QpNum(number),
            transport: parts.transport,
            role: parts.role,
            pd: parts.pd,
            caps: parts.caps,
            sq_sig_all: parts.sq_sig_all,
            uses_srq: parts.srq.is_some() || parts.role == Role::Target,
            srq_pd: parts.srq.map(|srq| srq.pd_id()),
        });
        let users = [parts.send_cq, parts.recv_cq]
            .into_iter()
            .flatten()
            .map(|cq| &cq.users);
        for users in users.chain(parts.srq.map(|srq| &srq.users)) {
            users.fetch_add(1, Ordering::AcqRel);
        }
        let listener = Listener {
            context: Arc::clone(context),
            user,
        };
        let cell = Arc::new(QpCell {
            number,
            context: Arc::clone(context),
            send_cq: parts.send_cq.cloned(),
            recv_cq: parts.recv_cq.cloned(),
            srq: parts.srq.cloned(),
            transport: parts.transport,
            caps: parts.caps,
            domain: parts.domain.cloned(),
            listeners: Mutex::new(vec![listener.clone()]),
            blocks_own_multicast: parts.blocks_own_multicast,
            groups: AtomicU32::new(0),
            listed: AtomicBool::new(false),
            noted: AtomicBool::new(false),
            cq_failed: AtomicBool::new(false),
            delivered: AtomicBool::new(false),
            state: Mutex::new(State {
                machine,
                destroyed: false,
                way: None,
                meta: None,
                owes: false,
                last_sent: Instant::ZERO,
                remote_qpn: 0,
                recent: None,
                stuck: None,
                registered: None,
                fails_at: None,
            }),
        });
        nic.qps.insert(number, &cell);
        Ok(Self::handle(cell, listener, pd, xrcd))
    }

    fn handle(
        cell: Arc<QpCell>,
        listener: Listener,
        pd: Option<PdUse>,
        xrcd: Option<XrcdUse>,
    ) -> Arc<Self> {
        let async_events = listener.context.track(Source::Qp(listener.user));
        Arc::new(Self {
            cell,
            closed: AtomicBool::new(false),
            pd: Mutex::new(pd),
            xrcd: Mutex::new(xrcd),
            listener,
            async_events,
        })
    }

    /// Fails in a forked child, where the locks of the queue pair may be held for ever.
    pub fn usable(&self) -> Result<(), NicError> {
        self.cell.context.usable()
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
        let ends =
            mask.contains(AttrMask::STATE) && matches!(attr.state, QpState::Reset | QpState::Err);
        if ends {
            // Whoever saw the last message and disconnects may be quicker than the thread that delivered it and is to
            // answer.
            self.cell.finish_answers();
        }
        let pass = Pass::begin(nic);
        let now = pass.now();
        let mut attr = *attr;
        let mut state = self.cell.state.acquire();
        if mask.contains(AttrMask::AV) && self.cell.transport != Transport::Ud {
            attr.av = ah::resolve(context.device(), &attr.av)?;
        }
        let limits = device_limits(context);
        // Sought first, because it can fail and the machine's step cannot be taken back.
        let way = self.find_way(&state, &attr, mask)?;
        state
            .machine
            .modify(now, &attr, mask, &limits, &mut self.cell.view())?;
        if let Some(way) = way {
            let bytes = nic.fabric.window_bytes(&way);
            let mtu = Mtu::from_ibv(attr_mtu(&state)).map_or(256, Mtu::bytes);
            state.machine.set_window((bytes / mtu).max(2) as u32);
            let attrs = state.machine.attrs();
            state.remote_qpn = attrs.dest_qpn;
            state.meta = Some(Meta::of(&path_of(&attrs.av)));
            state.way = Some(way);
        }
        if ends {
            state.stuck = None;
        }
        if mask.contains(AttrMask::STATE) && attr.state == QpState::Reset {
            (state.way, state.meta, state.recent, state.fails_at) = (None, None, None, None);
            self.cell.forget_completions();
        }
        let peer = state.watched_peer(self.cell.transport, context.device());
        nic.pump_locked(&self.cell, &mut state, now);
        drop(state);
        if let Some(slot) = peer {
            nic.fabric.watch_peer(slot);
        }
        Ok(())
    }

    /// Joins a multicast group: datagrams to it arrive here, too. A second time changes nothing.
    pub fn attach_multicast(&self, gid: Gid) -> Result<(), NicError> {
        let group = self.check_group(gid)?;
        self.cell.context.nic().join_group(&self.cell, group)
    }

    /// Leaves a multicast group.
    pub fn detach_multicast(&self, gid: Gid) -> Result<(), NicError> {
        let group = self.check_group(gid)?;
        if self.cell.context.nic().leave_group(&self.cell, group) {
            return Ok(());
        }
        Err(NicError::BadArgument(
            "the queue pair is not in the multicast group",
        ))
    }

    fn check_group(&self, gid: Gid) -> Result<IpAddr, NicError> {
        self.cell.context.usable()?;
        if self.cell.transport != Transport::Ud {
            return Err(NicError::BadArgument(
                "only UD queue pairs join multicast groups",
            ));
        }
        if !gid.is_multicast() {
            return Err(NicError::BadArgument(
                "the GID is not that of a multicast group",
            ));
        }
        Ok(gid.to_ip())
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
        match self.cell.groups.load(Ordering::Acquire) {
            0 => {}
            count => {
                return Err(NicError::Busy {
                    what: "QP (by multicast groups)",
                    count: count.into(),
                });
            }
        }
        self.release();
        self.async_events.wait_settled();
        self.listener.context.forget(Source::Qp(self.listener.user));
        Ok(())
    }

    fn release(&self) {
        if self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        let cell = &self.cell;
        let Listener { context, user } = &self.listener;
        let last = {
            let mut listeners = cell.listeners.acquire();
            let me = |l: &Listener| l.user == *user && Arc::ptr_eq(&l.context, context);
            if let Some(at) = listeners.iter().position(me) {
                listeners.swap_remove(at);
            }
            listeners.is_empty()
        };
        if last {
            self.end();
        }
        context.untrack(Source::Qp(*user));
        self.pd.acquire().take();
        self.xrcd.acquire().take();
    }

    /// The last handle goes.
    fn end(&self) {
        let cell = &self.cell;
        let nic = cell.context.nic();
        cell.finish_answers();
        let pass = Pass::begin(nic);
        {
            let mut state = cell.state.acquire();
            state.destroyed = true;
            state.stuck = None;
            nic.owed.forget(cell, &mut state);
            cell.forget_completions();
        }
        nic.keys
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .release_windows_of(QpNum(cell.number));
        nic.leave_all_groups(cell);
        nic.qps.remove(cell.number);
        // Answers that were already handed to a link, such as the last acknowledgement, go out.
        drop(pass);
        nic.empty_sockets(clock::now());
        let users = [&cell.send_cq, &cell.recv_cq]
            .into_iter()
            .flatten()
            .map(|cq| &cq.users);
        for users in users.chain(cell.srq.as_ref().map(|srq| &srq.users)) {
            users.fetch_sub(1, Ordering::AcqRel);
        }
        cell.context.quotas.qps.release();
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
                nic.fabric.listen(context.device())?;
            }
            return Ok(None);
        }
        if !mask.intersects(AttrMask::AV | AttrMask::DEST_QPN) {
            return Ok(None);
        }
        let known = state.machine.attrs();
        let av = if mask.contains(AttrMask::AV) {
            attr.av
        } else {
            known.av
        };
        let remote = if mask.contains(AttrMask::DEST_QPN) {
            attr.dest_qpn
        } else {
            known.dest_qpn
        };
        match nic.fabric.way_to(context.device(), &av, remote) {
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
    if spec.srq.is_none() && spec.transport != Transport::Xrc {
        checks.push(("max_recv_wr", caps.max_recv_wr, limits.max_qp_wr));
        checks.push(("max_recv_sge", caps.max_recv_sge, limits.max_sge));
    }
    for (what, value, limit) in checks {
        if value > limit {
            return Err(NicError::Invalid {
                what,
                value: value.into(),
                limit: limit.into(),
            });
        }
    }
    match spec.transport {
        Transport::Rc | Transport::Ud => Ok(()),
        Transport::Uc if spec.srq.is_none() => Ok(()),
        Transport::Uc => Err(NicError::BadArgument("a UC queue pair cannot use an SRQ")),
        Transport::Xrc if spec.srq.is_none() => Ok(()),
        Transport::Xrc => Err(NicError::BadArgument(
            "an XRC_SEND queue pair cannot use an SRQ",
        )),
    }
}

/// At least what was asked for; some programs give up when told of no scatter/gather entry.
fn granted(spec: &QpSpec<'_>) -> QpCaps {
    let caps = spec.caps;
    let with_srq = spec.srq.is_some() || spec.transport == Transport::Xrc;
    QpCaps {
        max_send_sge: caps.max_send_sge.max(1),
        max_recv_wr: if with_srq { 0 } else { caps.max_recv_wr },
        max_recv_sge: if with_srq {
            0
        } else {
            caps.max_recv_sge.max(1)
        },
        ..caps
    }
}
