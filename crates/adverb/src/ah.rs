//! Address handles: the way to a peer for datagrams.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ptr::NonNull;
use std::sync::Arc;

use adverb_abi::types::{self as c, Zeroed};

use crate::error::{Error, Result};
use crate::pd::{PdInner, ProtectionDomain};
use crate::sys;
use crate::values::Gid;
use crate::wc::GRH_LEN;

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

/// Who sent the datagram with this route header. On IPv4 the first 20 bytes are undefined and
/// the IPv4 header follows them (RoCEv2 annex A17.4), so only its checksum tells for certain.
pub(crate) fn sender_of_grh(grh: &[u8; GRH_LEN]) -> Option<Gid> {
    if grh[20] >> 4 == 4 && (grh[0] >> 4 != 6 || ipv4_checksum_holds(grh)) {
        let source: [u8; 4] = std::array::from_fn(|i| grh[32 + i]);
        return Some(Ipv4Addr::from(source).into());
    }
    if grh[0] >> 4 == 6 {
        let source: [u8; 16] = std::array::from_fn(|i| grh[8 + i]);
        return Some(Ipv6Addr::from(source).into());
    }
    None
}

/// Whether bytes 20 to 40 sum up as an IPv4 header does (RFC 791).
fn ipv4_checksum_holds(grh: &[u8; GRH_LEN]) -> bool {
    let (words, _) = grh.as_chunks::<2>();
    let sum: u32 = words
        .iter()
        .skip(10)
        .map(|w| u32::from(u16::from_be_bytes(*w)))
        .sum();
    (sum & 0xffff) + (sum >> 16) == 0xffff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sender_is_found_behind_both_kinds_of_header() {
        let mut v6 = [0; GRH_LEN];
        v6[0] = 0x60;
        v6[8] = 0xfe;
        v6[9] = 0x80;
        v6[23] = 1;
        assert_eq!(sender_of_grh(&v6), Some("fe80::1".parse().unwrap()));
        let mut v4 = [0; GRH_LEN];
        v4[20] = 0x45;
        v4[32..36].copy_from_slice(&[127, 0, 0, 9]);
        assert_eq!(sender_of_grh(&v4), Some("127.0.0.9".parse().unwrap()));
        // The bytes in front may hold anything, even what looks like IPv6.
        v4[0] = 0x60;
        let sum: u32 = (10..20)
            .map(|i| u32::from(v4[2 * i]) << 8 | u32::from(v4[2 * i + 1]))
            .sum();
        let folded = (sum & 0xffff) + (sum >> 16);
        v4[30..32].copy_from_slice(&(!(folded as u16)).to_be_bytes());
        assert_eq!(sender_of_grh(&v4), Some("127.0.0.9".parse().unwrap()));
        assert_eq!(sender_of_grh(&[0; GRH_LEN]), None);
    }
}
