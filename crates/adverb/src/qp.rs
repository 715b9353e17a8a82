//! Queue pairs: connecting, changing and closing them. They are made in
//! [`builder`](crate::builder); posting is in [`post`](crate::post).

use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use adverb_abi::types::{self as c, Zeroed};

use crate::ah::AhAttr;
use crate::attr::{ConnectOptions, QpAttr};
use crate::channel::lock;
use crate::context::GidEntry;
use crate::cq::CqInner;
use crate::endpoint::Endpoint;
use crate::error::{Error, Result};
use crate::pd::PdInner;
use crate::slab::{QueueKey, Slab};
use crate::srq::SrqInner;
use crate::state;
pub use crate::state::QpState;
use crate::sys;
use crate::transport::{Connected, Transport, Ud};
use crate::values::Mtu;
use crate::wc::{Completion, WcError, WcStatus};

/// How long closing waits for flushed completions before it destroys the queue pair anyway.
const DRAIN: Duration = Duration::from_millis(500);

/// A queue's slots, and its place at its completion queue for as long as this value lives.
pub(crate) struct Place {
    pub(crate) cq: Arc<CqInner>,
    key: QueueKey,
    pub(crate) slab: Arc<Mutex<Slab>>,
}

impl Place {
    pub(crate) fn attach(cq: &Arc<CqInner>, entries: u32, ordered: bool) -> Result<Self> {
        let (key, slab) = cq.attach(entries, ordered)?;
        Ok(Self {
            cq: Arc::clone(cq),
            key,
            slab,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.cq.detach(self.key);
    }
}

/// A shared receive queue, registered at a completion queue for as long as this value lives.
pub(crate) struct SharedPlace {
    cq: Arc<CqInner>,
    srq: Arc<SrqInner>,
}

impl SharedPlace {
    pub(crate) fn attach(cq: &Arc<CqInner>, srq: &Arc<SrqInner>) -> Result<Self> {
        cq.attach_shared(srq.number, &srq.slab)?;
        Ok(Self {
            cq: Arc::clone(cq),
            srq: Arc::clone(srq),
        })
    }
}

impl Drop for SharedPlace {
    fn drop(&mut self) {
        self.cq.detach_shared(self.srq.number);
    }
}

pub(crate) enum Receives {
    Own(Place),
    Shared(SharedPlace),
}

impl Receives {
    pub(crate) fn slab(&self) -> &Mutex<Slab> {
        match self {
            Self::Own(place) => &place.slab,
            Self::Shared(place) => &place.srq.slab,
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
    pub(crate) kind: state::Kind,
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
        state::check(self.kind, from, attr.state.unwrap_or(from), mask)?;
        let mut raw = attr.raw();
        // SAFETY: the queue pair is alive and `raw` is filled as the mask says.
        let rc = unsafe {
            (self.pd.ctx.verbs.modify_qp)(self.raw(), &raw mut raw, mask.bits() as libc::c_int)
        };
        sys::check(rc, "ibv_modify_qp", &self.name)
    }

    fn recv_cq(&self) -> &Arc<CqInner> {
        match &self.recv {
            Receives::Own(place) => &place.cq,
            Receives::Shared(place) => &place.cq,
        }
    }

    /// The slots that belong to this queue pair alone.
    fn own_slabs(&self) -> impl Iterator<Item = &Mutex<Slab>> {
        let recv = match &self.recv {
            Receives::Own(place) => Some(&*place.slab),
            Receives::Shared(_) => None,
        };
        std::iter::once(&*self.send.slab).chain(recv)
    }

    fn outstanding(&self) -> u32 {
        self.own_slabs().map(|slab| lock(slab).outstanding()).sum()
    }

    fn sweep(&self, out: &mut Vec<Completion>) {
        self.send.cq.sweep(self.num, out);
        if !Arc::ptr_eq(&self.send.cq, self.recv_cq()) {
            self.recv_cq().sweep(self.num, out);
        }
    }

    /// Ends everything: error state, drain, destroy. Only when the device has confirmed the
    /// last step are buffers that had no completion released; without that they are leaked.
    fn close(&mut self, out: &mut Vec<Completion>) -> Result<()> {
        if !self.open {
            return Ok(());
        }
        self.open = false;
        let mut error = c::ibv_qp_attr::zeroed();
        error.qp_state = c::IBV_QPS_ERR;
        // It fails for a queue pair in RESET, which has nothing to flush.
        // SAFETY: the queue pair is alive.
        unsafe {
            (self.pd.ctx.verbs.modify_qp)(
                self.raw(),
                &raw mut error,
                c::IBV_QP_STATE as libc::c_int,
            );
        }
        let deadline = Instant::now() + DRAIN;
        self.sweep(out);
        while self.outstanding() > 0 && Instant::now() < deadline {
            thread::yield_now();
            self.sweep(out);
        }
        // SAFETY: the queue pair is alive, and this is its last use.
        let rc = unsafe { (self.pd.ctx.verbs.destroy_qp)(self.raw()) };
        let destroyed = sys::check(rc, "ibv_destroy_qp", &self.name);
        if destroyed.is_ok() {
            // What the device left in the queues must not meet the next user of our place.
            self.sweep(out);
        }
        let flushed = WcError {
            status: WcStatus::WR_FLUSH_ERR,
            vendor_err: 0,
        };
        for slab in self.own_slabs() {
            for (id, op) in lock(slab).drain() {
                match (&destroyed, op.buffer) {
                    (Ok(()), buffer) => out.push(Completion {
                        id,
                        kind: op.kind,
                        qp_num: self.num,
                        result: Err(flushed),
                        buffer,
                    }),
                    (Err(_), Some(buffer)) => buffer.leak(),
                    (Err(_), None) => {}
                }
            }
        }
        destroyed
    }
}

impl Drop for QpInner {
    fn drop(&mut self) {
        // The buffers go with the completions; there is nobody to tell about an error.
        let _ = self.close(&mut Vec::new());
        lock(self.recv.slab()).forget(self.num);
    }
}

/// A queue pair: one end of a connection, or a port for datagrams.
///
/// All methods but [`batch`](QueuePair::batch) take `&self` and may be called from any thread;
/// posting locks the queue concerned.
///
/// Dropping it with work outstanding puts it into the error state, waits (half a second at
/// most) for what is flushed, destroys it, and only then frees the buffers. Completions that
/// nobody polled are gone then; [`close`](QueuePair::close) returns them. Receives that it had
/// taken from a shared queue and not completed are released with that queue.
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
    pub(crate) staged: Vec<crate::poster::Staged>,
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

    /// Operations posted to the send queue that are not over yet.
    pub fn sends_outstanding(&self) -> u32 {
        lock(&self.inner.send.slab).outstanding()
    }

    /// Receives posted that are not over yet; 0 with a shared receive queue.
    pub fn recvs_outstanding(&self) -> u32 {
        match &self.inner.recv {
            Receives::Own(place) => lock(&place.slab).outstanding(),
            Receives::Shared(_) => 0,
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
    #[doc(alias = "ibv_modify_qp")]
    pub fn modify(&self, attr: &QpAttr) -> Result<()> {
        // RESET forgets what was posted without completions, so the buffers could not be given
        // back in order. Nothing is lost by making a new queue pair instead.
        if attr.state == Some(QpState::Reset) && self.inner.outstanding() > 0 {
            return Err(Error::Value {
                what: "operations outstanding at a reset",
                value: self.inner.outstanding().into(),
                limit: 0,
            });
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
        let mut out = Vec::new();
        self.inner.close(&mut out)?;
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
        let reliable = T::KIND == state::Kind::Rc;
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
