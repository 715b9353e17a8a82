//! Making queue pairs.

use std::marker::PhantomData;
use std::ptr;
use std::sync::Arc;

use adverb_abi::flags::AccessFlags;
use adverb_abi::types::{self as c, Zeroed};

use crate::ah::DEFAULT_QKEY;
use crate::attr::QpAttr;
use crate::context::{Context, GidEntry};
use crate::cq::{CompletionQueue, Side};
use crate::error::{Error, Result};
use crate::pd::ProtectionDomain;
use crate::qp::{Place, QpInner, QueuePair, Receives};
use crate::request::Stage;
use crate::slab::MAX_SLOTS;
use crate::srq::SharedReceiveQueue;
use crate::state::{Kind, QpState};
use crate::sync::lock;
use crate::sys;
use crate::transport::Transport;
use crate::values::{Mtu, low24};

/// Makes a queue pair.
#[derive(Debug)]
#[must_use = "nothing happens before `build`"]
pub struct QueuePairBuilder<T: Transport> {
    pd: ProtectionDomain,
    send_cq: CompletionQueue,
    recv_cq: CompletionQueue,
    srq: Option<SharedReceiveQueue>,
    max_send_wr: u32,
    max_recv_wr: u32,
    max_send_sge: u32,
    max_recv_sge: u32,
    max_inline: u32,
    access: AccessFlags,
    port: u8,
    gid_index: Option<u8>,
    pkey_index: u16,
    qkey: u32,
    transport: PhantomData<T>,
}

impl ProtectionDomain {
    /// Starts a queue pair whose sends and receives complete on `cq`; finish with
    /// [`build`](QueuePairBuilder::build).
    ///
    /// ```
    /// # fn main() -> Result<(), adverb::Error> {
    /// # if cfg!(not(feature = "soft")) { return Ok(()) }
    /// use adverb::transport::Rc;
    /// let ctx = adverb::open_default()?;
    /// let cq = ctx.create_cq(64).build()?;
    /// let qp = ctx.alloc_pd()?.create_qp::<Rc>(&cq).max_send_wr(16).build()?;
    /// println!("{}", qp.endpoint());
    /// # Ok(()) }
    /// ```
    #[doc(alias = "ibv_create_qp")]
    pub fn create_qp<T: Transport>(&self, cq: &CompletionQueue) -> QueuePairBuilder<T> {
        QueuePairBuilder::new(self, cq)
    }
}

impl<T: Transport> QueuePairBuilder<T> {
    pub(crate) fn new(pd: &ProtectionDomain, cq: &CompletionQueue) -> Self {
        Self {
            pd: pd.clone(),
            send_cq: cq.clone(),
            recv_cq: cq.clone(),
            srq: None,
            max_send_wr: 16,
            max_recv_wr: 16,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline: 0,
            access: AccessFlags::LOCAL_WRITE
                | AccessFlags::REMOTE_READ
                | AccessFlags::REMOTE_WRITE
                | AccessFlags::REMOTE_ATOMIC,
            port: 1,
            gid_index: None,
            pkey_index: 0,
            qkey: DEFAULT_QKEY,
            transport: PhantomData,
        }
    }

    /// Receives complete on another queue than sends.
    pub fn recv_cq(mut self, cq: &CompletionQueue) -> Self {
        self.recv_cq = cq.clone();
        self
    }

    /// Receives come from a shared queue.
    pub fn srq(mut self, srq: &SharedReceiveQueue) -> Self {
        self.srq = Some(srq.clone());
        self
    }

    /// Most sends, reads, writes and atomics outstanding, 1 to 65536 (default 16).
    pub fn max_send_wr(mut self, n: u32) -> Self {
        self.max_send_wr = n;
        self
    }

    /// Most receives outstanding, up to 65536 (default 16).
    pub fn max_recv_wr(mut self, n: u32) -> Self {
        self.max_recv_wr = n;
        self
    }

    /// Most pieces of memory that one send, write or read has (default 1). What was granted, at
    /// least this, is [`max_send_sge`](QueuePair::max_send_sge).
    pub fn max_send_sge(mut self, n: u32) -> Self {
        self.max_send_sge = n;
        self
    }

    /// Most pieces of memory that one receive has (default 1); a shared receive queue has its own
    /// limit. What was granted, at least this, is [`max_recv_sge`](QueuePair::max_recv_sge).
    pub fn max_recv_sge(mut self, n: u32) -> Self {
        self.max_recv_sge = n;
        self
    }

    /// Bytes that can be sent inline (default 0). What was granted, at least this, is
    /// [`max_inline`](QueuePair::max_inline).
    pub fn max_inline(mut self, bytes: u32) -> Self {
        self.max_inline = bytes;
        self
    }

    /// What the peer may do through this queue pair, on memory that allows it as well (default:
    /// everything).
    pub fn access(mut self, access: AccessFlags) -> Self {
        self.access = access;
        self
    }

    /// Port, from 1 (default 1).
    pub fn port(mut self, port: u8) -> Self {
        self.port = port;
        self
    }

    /// Which of the port's addresses to use (default: [`Context::best_gid`]).
    pub fn gid_index(mut self, index: u8) -> Self {
        self.gid_index = Some(index);
        self
    }

    /// Place of the partition key (default 0).
    pub fn pkey_index(mut self, index: u16) -> Self {
        self.pkey_index = index;
        self
    }

    /// Queue key of a datagram queue pair (default [`DEFAULT_QKEY`]).
    pub fn qkey(mut self, qkey: u32) -> Self {
        self.qkey = qkey;
        self
    }

    /// Makes it and brings it to INIT: receives can be posted.
    ///
    /// # Errors
    /// [`Error::CompletionQueueTooSmall`] when completions could overflow the queue;
    /// [`Error::Value`] for sizes beyond the device's; [`Error::Verb`], [`Error::Unsupported`].
    pub fn build(self) -> Result<QueuePair<T>> {
        let ctx = Context {
            inner: Arc::clone(&self.pd.inner.ctx),
        };
        self.same_context()?;
        let device = ctx.query_device()?;
        let limit = device.max_qp_wr().min(MAX_SLOTS);
        for (what, value, least) in [
            ("max_send_wr", self.max_send_wr, 1),
            ("max_recv_wr", self.max_recv_wr, 0),
        ] {
            if value < least {
                return Err(Error::TooSmall {
                    what,
                    value: value.into(),
                    least: least.into(),
                });
            }
            if value > limit {
                return Err(Error::Value {
                    what,
                    value: value.into(),
                    limit: limit.into(),
                });
            }
        }
        let (gid, mtu, lid) = self.address(&ctx)?;
        let inner = self.create(&ctx, mtu)?;
        let mut access = self.access;
        if !device.has_atomics() {
            access.remove(AccessFlags::REMOTE_ATOMIC);
        }
        let mut init = QpAttr {
            state: Some(QpState::Init),
            pkey_index: Some(self.pkey_index),
            port: Some(self.port),
            ..QpAttr::default()
        };
        match T::KIND {
            Kind::Ud => init.qkey = Some(self.qkey),
            Kind::Uc => {
                init.access = Some(access & (AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE));
            }
            Kind::Rc => init.access = Some(access),
        }
        let qp = QueuePair {
            inner,
            gid,
            mtu,
            lid,
            port: self.port,
            psn: low24(sys::random()),
            qkey: if T::KIND == Kind::Ud { self.qkey } else { 0 },
            rd_atomic: (device.max_init_rd_atomic(), device.max_rd_atomic()),
            staged: Stage::default(),
            transport: PhantomData,
        };
        qp.modify(&init)?;
        Ok(qp)
    }

    fn same_context(&self) -> Result<()> {
        let ctx = &self.pd.inner.ctx;
        let others = [
            ("the send completion queue", &self.send_cq.inner.ctx),
            ("the receive completion queue", &self.recv_cq.inner.ctx),
        ];
        let srq = self
            .srq
            .iter()
            .map(|s| ("the shared receive queue", &s.inner.pd.ctx));
        for (what, other) in others.into_iter().chain(srq) {
            if !Arc::ptr_eq(ctx, other) {
                return Err(Error::Foreign {
                    what,
                    owner: "context",
                });
            }
        }
        Ok(())
    }

    fn address(&self, ctx: &Context) -> Result<(GidEntry, Mtu, u16)> {
        let port = ctx.query_port(self.port)?;
        let gid = match self.gid_index {
            None => ctx.best_gid(self.port)?,
            Some(index) => {
                let table = ctx.gid_table(self.port)?;
                *table
                    .iter()
                    .find(|e| e.index == u32::from(index))
                    .ok_or_else(|| Error::Value {
                        what: "gid_index (that entry is empty)",
                        value: index.into(),
                        limit: port.gid_count().saturating_sub(1).into(),
                    })?
            }
        };
        Ok((gid, port.active_mtu(), port.lid()))
    }

    fn create(&self, ctx: &Context, mtu: Mtu) -> Result<QpInner> {
        let max_recv_wr = if self.srq.is_some() {
            0
        } else {
            self.max_recv_wr
        };
        // Everything that was taken is given back by these guards if a later step fails.
        let (send_cq, recv_cq) = (&self.send_cq.inner, &self.recv_cq.inner);
        // What the receives will ask of the same queue, so that an error's advice is enough.
        let more = match &self.srq {
            _ if !Arc::ptr_eq(send_cq, recv_cq) => 0,
            None => max_recv_wr,
            Some(srq) => recv_cq.shared_entries(&srq.inner.slab),
        };
        let mut send = Place::own(send_cq, Side::Send, self.max_send_wr, more)?;
        let mut recv = match &self.srq {
            None => Receives::Own(Place::own(recv_cq, Side::Recv, max_recv_wr, 0)?),
            Some(srq) => {
                Receives::Shared(Place::shared(recv_cq, &srq.inner)?, Arc::clone(&srq.inner))
            }
        };
        let mut init = c::ibv_qp_init_attr::zeroed();
        init.send_cq = self.send_cq.as_raw();
        init.recv_cq = self.recv_cq.as_raw();
        init.srq = self
            .srq
            .as_ref()
            .map_or(ptr::null_mut(), SharedReceiveQueue::as_raw);
        init.cap.max_send_wr = self.max_send_wr;
        init.cap.max_recv_wr = max_recv_wr;
        init.cap.max_send_sge = self.max_send_sge;
        init.cap.max_recv_sge = match self.srq {
            Some(_) => 0,
            None => self.max_recv_sge,
        };
        init.cap.max_inline_data = self.max_inline;
        init.qp_type = T::QP_TYPE;
        // SAFETY: domain, completion queues and shared receive queue are alive.
        let raw = unsafe { (ctx.inner.verbs.create_qp)(self.pd.as_raw(), &raw mut init) };
        let raw = sys::non_null(raw, "ibv_create_qp", &ctx.inner.name)?;
        // SAFETY: a queue pair just created.
        let num = unsafe { (*raw.as_ptr()).qp_num };
        send.serve(num);
        recv.serve(num);
        let inner = QpInner {
            raw,
            num,
            name: format!("{} QP {num:#08x} of {}", T::NAME, ctx.inner.name),
            max_inline: init.cap.max_inline_data,
            longest: if T::KIND == Kind::Ud {
                mtu.bytes() as u32
            } else {
                u32::MAX
            },
            max_send_sge: init.cap.max_send_sge,
            max_recv_sge: init.cap.max_recv_sge,
            kind: T::KIND,
            open: true,
            send,
            recv,
            pd: Arc::clone(&self.pd.inner),
        };
        if T::KIND == Kind::Ud {
            lock(inner.recv.slab()).serve_datagrams(num);
        }
        Ok(inner)
    }
}
