//! Address handles: the way to a peer for datagrams.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use adverb_abi::types::{self as c, Zeroed};

use crate::error::{Error, Result};
use crate::pd::{PdInner, ProtectionDomain};
use crate::sys;
use crate::values::Gid;

/// Queue key that datagram queue pairs get unless told otherwise.
pub const DEFAULT_QKEY: u32 = 0x1111_1111;

/// What an address handle needs to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "ibv_ah_attr")]
pub struct AhAttr {
    /// Where to.
    pub gid: Gid,
    /// Our address, by its place in the GID table.
    pub gid_index: u8,
    /// Our port, from 1.
    pub port: u8,
    /// Routers a packet may pass, 1 to 255.
    pub hop_limit: u8,
    /// Traffic class: DSCP and ECN bits.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Service level, 0 to 15.
    pub service_level: u8,
    /// The peer's local identifier; 0 on RoCE.
    pub lid: u16,
}

impl AhAttr {
    /// To `gid` from the address at `gid_index` of port 1, everything else as usual.
    pub fn new(gid: Gid, gid_index: u8) -> Self {
        Self {
            gid,
            gid_index,
            port: 1,
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
            service_level: 0,
            lid: 0,
        }
    }

    pub(crate) fn raw(&self) -> c::ibv_ah_attr {
        let mut raw = c::ibv_ah_attr::zeroed();
        raw.grh.dgid = self.gid.raw();
        raw.grh.flow_label = self.flow_label;
        raw.grh.sgid_index = self.gid_index;
        raw.grh.hop_limit = self.hop_limit;
        raw.grh.traffic_class = self.traffic_class;
        raw.is_global = u8::from(!self.gid.is_zero());
        raw.dlid = self.lid;
        raw.sl = self.service_level;
        raw.port_num = self.port;
        raw
    }
}

pub(crate) struct AhInner {
    raw: NonNull<c::ibv_ah>,
    pd: Arc<PdInner>,
}

// SAFETY: every verb may be called from any thread, and the pointer is owned by this value.
unsafe impl Send for AhInner {}
// SAFETY: as above.
unsafe impl Sync for AhInner {}

impl AhInner {
    pub(crate) fn raw(&self) -> *mut c::ibv_ah {
        self.raw.as_ptr()
    }

    pub(crate) fn pd(&self) -> &Arc<PdInner> {
        &self.pd
    }
}

impl fmt::Debug for AhInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AhInner").finish_non_exhaustive()
    }
}

impl Drop for AhInner {
    fn drop(&mut self) {
        // SAFETY: no handle and no operation refers to it any more. An error leaks it.
        unsafe { (self.pd.ctx.verbs.destroy_ah)(self.raw.as_ptr()) };
    }
}

/// The way to a peer for datagrams. Clones are handles to the same one.
#[derive(Clone, Debug)]
#[doc(alias = "ibv_ah")]
pub struct AddressHandle {
    pub(crate) inner: Arc<AhInner>,
}

impl ProtectionDomain {
    /// The way to a peer for datagrams (ibv_create_ah(3)).
    ///
    /// # Errors
    /// [`Error::Verb`].
    #[doc(alias = "ibv_create_ah")]
    pub fn create_ah(&self, attr: &AhAttr) -> Result<AddressHandle> {
        AddressHandle::new(self, attr)
    }
}

impl AddressHandle {
    pub(crate) fn new(pd: &ProtectionDomain, attr: &AhAttr) -> Result<Self> {
        if attr.service_level > 15 {
            return Err(Error::Value {
                what: "service level",
                value: attr.service_level.into(),
                limit: 15,
            });
        }
        let mut raw = attr.raw();
        // SAFETY: the domain is alive and `raw` is filled.
        let ah = unsafe { (pd.inner.ctx.verbs.create_ah)(pd.as_raw(), &raw mut raw) };
        let raw = sys::non_null(ah, "ibv_create_ah", &pd.inner.ctx.name)?;
        Ok(Self {
            inner: Arc::new(AhInner {
                raw,
                pd: Arc::clone(&pd.inner),
            }),
        })
    }

    /// This peer's queue pair `qpn`, with the queue key `qkey`.
    pub fn to(&self, qpn: u32, qkey: u32) -> Destination {
        Destination {
            ah: self.clone(),
            qpn,
            qkey,
        }
    }

    /// The C object; valid while this handle lives; must not be destroyed.
    pub fn as_raw(&self) -> *mut c::ibv_ah {
        self.inner.raw()
    }
}

/// Whom a datagram is for.
#[derive(Clone, Debug)]
pub struct Destination {
    /// The way there.
    pub ah: AddressHandle,
    /// The peer's queue pair, 24 bits.
    pub qpn: u32,
    /// The peer's queue key.
    pub qkey: u32,
}
