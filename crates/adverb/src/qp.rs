//! Queue pairs: connecting, changing and closing them. They are made in
//! [`builder`](crate::builder); posting is in [`post`](crate::post).

use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use adverb_abi::inline;
use adverb_abi::types::{self as c, Zeroed};

use crate::ah::AhAttr;
use crate::attr::{ConnectOptions, QpAttr};
use crate::context::GidEntry;
use crate::cq::{CqInner, Side, Swept};
use crate::endpoint::Endpoint;
use crate::error::{Error, Result};
use crate::pd::PdInner;
use crate::request::Stage;
use crate::slab::{Op, Slab};
use crate::srq::SrqInner;
use crate::state::{Kind, QpState};
use crate::sync::lock;

use crate::status::{WcError, WcStatus};
use crate::sys;
use crate::transitions;
use crate::transport::{Connected, Transport, Ud};
use crate::values::Mtu;
use crate::wc::{Completion, OpKind};

/// How long closing waits for flushed completions before it destroys the queue pair anyway. The
/// software NIC flushes at once: whatever is outstanding, it is over in less than a millisecond. Some
/// devices flush late, and some only when the queue pair is destroyed.
const DRAIN: Duration = Duration::from_millis(500);

/// A queue's slots, and its place at its completion queue for as long as this value lives.
pub(crate) struct Place {
    pub(crate) cq: Arc<CqInner>,
    pub(crate) slab: Arc<Mutex<Slab>>,
    side: Side,
    /// The queue pair whose completions come here, once it is made.
    qp_num: Option<u32>,
    /// Entries promised to it, unless the queue is shared.
    entries: Option<u32>,
}

impl Place {
    /// `more` entries are going to be asked for next.
    pub(crate) fn own(cq: &Arc<CqInner>, side: Side, entries: u32, more: u32) -> Result<Self> {
        cq.promise(entries, more)?;
        Ok(Self {
            cq: Arc::clone(cq),
            slab: Arc::new(Mutex::new(Slab::new(entries, side == Side::Send))),
            side,
            qp_num: None,
            entries: Some(entries),
        })
    }

    pub(crate) fn shared(cq: &Arc<CqInner>, srq: &Arc<SrqInner>) -> Result<Self> {
        cq.promise_shared(&srq.slab)?;
        Ok(Self {
            cq: Arc::clone(cq),
            slab: Arc::clone(&srq.slab),
            side: Side::Recv,
            qp_num: None,
            entries: None,
        })
    }

    pub(crate) fn serve(&mut self, qp_num: u32) {
        self.cq.route(qp_num, self.side, &self.slab);
        self.qp_num = Some(qp_num);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(qp_num) = self.qp_num {
            self.cq.unroute(qp_num, self.side);
        }
        match self.entries {
            Some(entries) => self.cq.give_back(entries),
            None => self.cq.give_back_shared(&self.slab),
        }
    }
}

pub(crate) enum Receives {
    Own(Place),
    /// The queue lives as long as the queue pair.
    Shared(
        Place,
        #[allow(dead_code, reason = "kept alive")] Arc<SrqInner>,
    ),
}

impl Receives {
    fn place(&self) -> &Place {
        match self {
            Self::Own(place) | Self::Shared(place, _) => place,
        }
    }

    pub(crate) fn cq(&self) -> &Arc<CqInner> {
        &self.place().cq
    }

    pub(crate) fn slab(&self) -> &Mutex<Slab> {
        &self.place().slab
    }

    pub(crate) fn serve(&mut self, qp_num: u32) {
        match self {
            Self::Own(place) | Self::Shared(place, _) => place.serve(qp_num),
        }
    }
}

/// The part of a queue pair that does not depend on its transport.
pub(crate) struct QpInner {
    pub(crate) raw: NonNull<c::ibv_qp>,
    pub(crate) num: u32,
    /// For messages.
    pub(crate) name: String,
    pub(crate) max_inline: u32,
    /// Longest message that one work request may carry.
    pub(crate) longest: u32,
    /// Pieces that one operation may have.
    pub(crate) max_send_sge: u32,
    pub(crate) max_recv_sge: u32,
    pub(crate) kind: Kind,
    /// Whether it still has to be destroyed.
    pub(crate) open: bool,
    pub(crate) send: Place,
    pub(crate) recv: Receives,
    pub(crate) pd: Arc<PdInner>,
}

// SAFETY: every verb may be called from any thread, and the pointer is owned by this value.
unsafe impl Send for QpInner {}
// SAFETY: as above; posting happens under the lock of the queue's slab.
unsafe impl Sync for QpInner {}

impl QpInner {
    pub(crate) fn raw(&self) -> *mut c::ibv_qp {
        self.raw.as_ptr()
    }

    fn query(&self) -> Result<c::ibv_qp_attr> {
        let mut attr = c::ibv_qp_attr::zeroed();
        let mut init = c::ibv_qp_init_attr::zeroed();
        // SAFETY: the queue pair is alive and both places are valid.
        let rc = unsafe {
            (self.pd.ctx.verbs.query_qp)(
                self.raw(),
                &raw mut attr,
                c::IBV_QP_STATE as libc::c_int,
                &raw mut init,
            )
        };
        sys::check(rc, "ibv_query_qp", &self.name)?;
        Ok(attr)
    }

    fn modify(&self, attr: &QpAttr) -> Result<()> {
        attr.check()?;
        let mask = attr.mask();
        let live = QpState::from_raw(self.query()?.qp_state);
        let from = attr.current_state.unwrap_or(live);
        transitions::check(self.kind, from, attr.state.unwrap_or(from), mask)?;
        let mut raw = attr.raw();
        // SAFETY: the queue pair is alive and `raw` is filled as the mask says.
        let rc = unsafe {
            (self.pd.ctx.verbs.modify_qp)(self.raw(), &raw mut raw, mask.bits() as libc::c_int)
        };
        sys::check(rc, "ibv_modify_qp", &self.name)
    }

    /// The slots that belong to this queue pair alone.
    fn own_slabs(&self) -> impl Iterator<Item = &Mutex<Slab>> {
        let recv = match &self.recv {
            Receives::Own(place) => Some(&*place.slab),
            Receives::Shared(..) => None,
        };
        std::iter::once(&*self.send.slab).chain(recv)
    }

    /// Brings it to RESET, which forgets what was posted without completions. So it is refused
    /// while anything of its own is outstanding, and posts wait meanwhile.
    fn reset(&self, attr: &QpAttr) -> Result<()> {
        if let Receives::Shared(..) = self.recv {
            // What it has taken from the shared queue comes back with a completion first. That
            // it is in RESET already, and cannot, is no error.
            self.fail();
            self.sweep(&mut Swept::All);
        }
        let locks: Vec<_> = self.own_slabs().map(lock).collect();
        let outstanding: u32 = locks.iter().map(|slab| slab.outstanding()).sum();
        if outstanding > 0 {
            return Err(Error::Value {
                what: "operations outstanding at a reset",
                value: outstanding.into(),
                limit: 0,
            });
        }
        self.modify(attr)
    }

    fn sweep(&self, own: &mut Swept<'_>) {
        self.send.cq.sweep(self.num, own);
        let recv = &self.recv.place().cq;
        if !Arc::ptr_eq(&self.send.cq, recv) {
            recv.sweep(self.num, own);
        }
    }

    /// To the error state. It fails for a queue pair in RESET, which has nothing to flush.
    fn fail(&self) {
        let mut error = c::ibv_qp_attr::zeroed();
        error.qp_state = c::IBV_QPS_ERR;
        // SAFETY: the queue pair is alive.
        unsafe {
            (self.pd.ctx.verbs.modify_qp)(
                self.raw(),
                &raw mut error,
                c::IBV_QP_STATE as libc::c_int,
            );
        }
    }

    /// Operations of its own that are going to have a completion, now that it has failed. One
    /// that asked for none has one if it was flushed, but if it was over before, nothing comes.
    fn expected(&self) -> u32 {
        self.own_slabs()
            .map(|slab| {
                let slab = lock(slab);
                slab.outstanding() - slab.silent()
            })
            .sum()
    }

    /// Posts a message that is flushed at once, behind operations whose success is silent: when
    /// it is over they are.
    fn mark_end(&self) -> bool {
        let mut slab = lock(&self.send.slab);
        let mark = Op {
            kind: OpKind::Raw,
            buffer: None,
            named: None,
            tag: 0,
        };
        let Ok(slot) = slab.reserve(mark) else {
            return false;
        };
        slab.commit_mark(slot);
        let mut wr = c::ibv_send_wr::zeroed();
        wr.wr_id = slot.wr_id();
        wr.opcode = c::IBV_WR_SEND;
        wr.send_flags = c::IBV_SEND_SIGNALED;
        let mut bad = std::ptr::null_mut();
        // SAFETY: the queue pair is alive, and the request names no memory. It is in the error
        // state, so that no address handle is looked at.
        let rc = unsafe { inline::ibv_post_send(self.raw(), &raw mut wr, &raw mut bad) };
        if rc != 0 {
            slab.retract(slot);
        }
        rc == 0
    }

    /// Gives up requests that were never posted, with their slots and buffers.
    pub(crate) fn discard(&self, stage: &mut Stage) {
        let mut slab = lock(&self.send.slab);
        let dropped: Vec<_> = stage
            .requests
            .drain(..)
            .map(|s| slab.retract(s.slot))
            .collect();
        drop(slab);
        stage.inline.clear();
        // Buffers are freed after the lock: that may deregister memory.
        drop(dropped);
    }

    fn drain(&self, own: &mut Swept<'_>) {
        let deadline = Instant::now() + DRAIN;
        self.sweep(own);
        while self.expected() > 0 && Instant::now() < deadline {
            thread::yield_now();
            self.sweep(own);
        }
    }

    /// Ends everything: error state, drain, destroy. Only when the device has confirmed the
    /// last step are buffers that had no completion released; without that they are leaked.
    fn close(&mut self, own: &mut Swept<'_>) -> Result<()> {
        if !self.open {
            return Ok(());
        }
        self.open = false;
        self.fail();
        self.drain(own);
        let silent = lock(&self.send.slab).silent() > 0;
        if silent && self.kind != Kind::Ud && self.mark_end() {
            self.drain(own);
        }
        // SAFETY: the queue pair is alive, and this is its last use.
        let rc = unsafe { (self.pd.ctx.verbs.destroy_qp)(self.raw()) };
        let destroyed = sys::check(rc, "ibv_destroy_qp", &self.name);
        if destroyed.is_ok() {
            // What the device left in the queues must not meet the next user of our number.
            self.sweep(own);
        }
        let flushed = WcError {
            status: WcStatus::WR_FLUSH_ERR,
            vendor_err: 0,
        };
        for slab in self.own_slabs() {
            let rest = lock(slab).drain();
            for (id, op) in rest {
                match (&destroyed, &mut *own, op.buffer) {
                    (Ok(()), Swept::Out(out), buffer) => out.push(Completion {
                        id,
                        kind: op.kind,
                        qp_num: self.num,
                        tag: op.tag,
                        result: Err(flushed),
                        buffer,
                    }),
                    (Err(_), _, Some(buffer)) => buffer.leak(),
                    _ => {}
                }
            }
        }
        destroyed
    }
}

impl Drop for QpInner {
    fn drop(&mut self) {
        // There is nobody to tell about an error.
        let _ = self.close(&mut Swept::Messages);
        lock(self.recv.slab()).forget(self.num);
    }
}

/// A queue pair: one end of a connection, or a port for datagrams.
///
/// All methods but [`batch`](QueuePair::batch) take `&self` and may be called from any thread;
/// posting locks the queue concerned.
///
/// Dropping it with work outstanding puts it into the error state, waits for what is flushed (for
/// less than a millisecond on the software NIC, half a second at most on devices that flush late),
/// destroys it, and only then frees the buffers. What had succeeded
/// and nobody has polled, such as a message that the peer knows to be delivered, is left for the
/// next [`poll`](crate::CompletionQueue::poll) of its completion queue; what was flushed is gone
/// with its buffers. [`close`](QueuePair::close) returns both. Receives that it had taken from a
/// shared queue and not completed are released with that queue.
#[doc(alias = "ibv_qp")]
pub struct QueuePair<T: Transport> {
    pub(crate) inner: QpInner,
    pub(crate) gid: GidEntry,
    pub(crate) mtu: Mtu,
    pub(crate) lid: u16,
    pub(crate) port: u8,
    pub(crate) psn: u32,
    pub(crate) qkey: u32,
    /// The device's limits for reads and atomics: started, served.
    pub(crate) rd_atomic: (u32, u32),
    /// Requests of an unfinished batch; kept for its room.
    pub(crate) staged: Stage,
    pub(crate) transport: PhantomData<T>,
}

impl<T: Transport> QueuePair<T> {
    /// Its number, 24 bits.
    pub fn num(&self) -> u32 {
        self.inner.num
    }

    /// Where it can be reached: to be sent to the peer.
    pub fn endpoint(&self) -> Endpoint {
        Endpoint {
            gid: self.gid.gid,
            lid: self.lid,
            qpn: self.inner.num,
            psn: self.psn,
            mtu: self.mtu,
            qkey: self.qkey,
        }
    }

    /// The address it uses.
    pub fn gid(&self) -> GidEntry {
        self.gid
    }

    /// Bytes that it sends inline at most.
    pub fn max_inline(&self) -> u32 {
        self.inner.max_inline
    }

    /// Pieces of memory that one send, write or read has at most.
    pub fn max_send_sge(&self) -> u32 {
        self.inner.max_send_sge
    }

    /// Pieces of memory that one receive of its own has at most.
    pub fn max_recv_sge(&self) -> u32 {
        self.inner.max_recv_sge
    }

    /// Operations posted to the send queue that are not over yet.
    pub fn sends_outstanding(&self) -> u32 {
        lock(&self.inner.send.slab).outstanding()
    }

    /// Receives posted that are not over yet; 0 with a shared receive queue.
    pub fn recvs_outstanding(&self) -> u32 {
        match &self.inner.recv {
            Receives::Own(place) => lock(&place.slab).outstanding(),
            Receives::Shared(..) => 0,
        }
    }

    /// The state it is in now (ibv_query_qp(3)).
    ///
    /// # Errors
    /// [`Error::Verb`].
    #[doc(alias = "ibv_query_qp")]
    pub fn state(&self) -> Result<QpState> {
        Ok(QpState::from_raw(self.inner.query()?.qp_state))
    }

    /// Sets attributes and state (ibv_modify_qp(3)), after checking them against the table of
    /// steps, so that an error names what is missing or too much.
    ///
    /// # Errors
    /// [`Error::Transition`], [`Error::MissingAttributes`], [`Error::ForbiddenAttributes`],
    /// [`Error::Value`]; what the device still refuses is [`Error::Verb`]. Nothing has changed then.
    ///
    /// RESET is refused with [`Error::Value`] while operations of its own are outstanding, since
    /// it would forget their buffers. With a shared receive queue it goes through the error state,
    /// so that the receives it had taken complete first.
    #[doc(alias = "ibv_modify_qp")]
    pub fn modify(&self, attr: &QpAttr) -> Result<()> {
        if attr.state == Some(QpState::Reset) {
            return self.inner.reset(attr);
        }
        self.inner.modify(attr)
    }

    /// Puts it into the error state: everything outstanding is flushed, and its completions
    /// bring the buffers back.
    ///
    /// # Errors
    /// [`Error::Verb`].
    pub fn abort(&self) -> Result<()> {
        self.modify(&QpAttr {
            state: Some(QpState::Error),
            ..QpAttr::default()
        })
    }

    /// Ends it and returns the completions that nobody has polled; whatever was still
    /// outstanding is among them as flushed.
    ///
    /// # Errors
    /// [`Error::Verb`] when the device does not let go of it; the buffers are leaked then and
    /// counted in [`leaked_bytes`](crate::leaked_bytes).
    #[doc(alias = "ibv_destroy_qp")]
    pub fn close(mut self) -> Result<Vec<Completion>> {
        self.end()
    }

    /// What is left of it may only be dropped.
    pub(crate) fn end(&mut self) -> Result<Vec<Completion>> {
        let mut out = Vec::new();
        self.inner.discard(&mut self.staged);
        self.inner.close(&mut Swept::Out(&mut out))?;
        Ok(out)
    }

    /// The C object; valid while this value lives. It must not be destroyed, nor brought to
    /// RESET, nor posted to but through [`post_raw`](Self::post_raw).
    pub fn as_raw(&self) -> *mut c::ibv_qp {
        self.inner.raw()
    }
}

impl<T: Connected> QueuePair<T> {
    /// Connects to `peer`, which must connect to this one's [`endpoint`](Self::endpoint): INIT
    /// to RTR to RTS. Post receives before, if the peer may send at once.
    ///
    /// # Errors
    /// [`Error::Transition`] when it is connected already; [`Error::Verb`] with ETIMEDOUT or
    /// ENETUNREACH when the peer's address does not answer.
    pub fn connect(&self, peer: &Endpoint) -> Result<()> {
        self.connect_with(peer, &ConnectOptions::default())
    }

    /// Connects with other options than the usual ones.
    ///
    /// # Errors
    /// As [`connect`](Self::connect); [`Error::Value`].
    pub fn connect_with(&self, peer: &Endpoint, options: &ConnectOptions) -> Result<()> {
        let reliable = T::KIND == Kind::Rc;
        let only_rc = |value: u8| reliable.then_some(value);
        let at_most = |limit: u32| {
            options
                .max_rd_atomic
                .min(u8::try_from(limit).unwrap_or(u8::MAX))
        };
        let mut address = AhAttr::new(peer.gid, self.gid_index()?);
        address.port = self.port;
        address.lid = peer.lid;
        address.hop_limit = options.hop_limit;
        address.traffic_class = options.traffic_class;
        address.service_level = options.service_level;
        self.modify(&QpAttr {
            state: Some(QpState::ReadyToReceive),
            address: Some(address),
            path_mtu: Some(self.mtu.min(peer.mtu).min(options.max_mtu)),
            dest_qpn: Some(peer.qpn),
            rq_psn: Some(peer.psn),
            max_dest_rd_atomic: only_rc(at_most(self.rd_atomic.1)),
            min_rnr_timer: only_rc(options.min_rnr_timer),
            ..QpAttr::default()
        })?;
        self.modify(&QpAttr {
            state: Some(QpState::ReadyToSend),
            sq_psn: Some(self.psn),
            timeout: only_rc(options.timeout),
            retry_count: only_rc(options.retry_count),
            rnr_retry: only_rc(options.rnr_retry),
            max_rd_atomic: only_rc(at_most(self.rd_atomic.0)),
            ..QpAttr::default()
        })
    }
}

impl QueuePair<Ud> {
    /// Makes it ready to receive and send: INIT to RTR to RTS.
    ///
    /// # Errors
    /// [`Error::Transition`] when it is active already; [`Error::Verb`].
    pub fn activate(&self) -> Result<()> {
        self.modify(&QpAttr {
            state: Some(QpState::ReadyToReceive),
            ..QpAttr::default()
        })?;
        self.modify(&QpAttr {
            state: Some(QpState::ReadyToSend),
            sq_psn: Some(self.psn),
            ..QpAttr::default()
        })
    }

    /// What an address handle from this queue pair to `peer` needs.
    ///
    /// # Errors
    /// [`Error::Value`] when our address is beyond the first 256 of the table.
    pub fn address_of(&self, peer: &Endpoint) -> Result<AhAttr> {
        let mut attr = AhAttr::new(peer.gid, self.gid_index()?);
        attr.port = self.port;
        attr.lid = peer.lid;
        Ok(attr)
    }
}

impl<T: Transport> QueuePair<T> {
    fn gid_index(&self) -> Result<u8> {
        u8::try_from(self.gid.index).map_err(|_| Error::Value {
            what: "gid_index",
            value: self.gid.index.into(),
            limit: u8::MAX.into(),
        })
    }
}

impl<T: Transport> fmt::Debug for QueuePair<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePair")
            .field("transport", &T::NAME)
            .field("endpoint", &self.endpoint())
            .field("sends_outstanding", &self.sends_outstanding())
            .field("recvs_outstanding", &self.recvs_outstanding())
            .finish_non_exhaustive()
    }
}
