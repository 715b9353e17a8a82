//! An open device: its attributes, ports and addresses.

use std::ffi::CStr;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use adverb_abi::flags::DeviceCaps;
use adverb_abi::inline;
use adverb_abi::table::Verbs;
use adverb_abi::types::{self as c, Zeroed};

use crate::device::{Device, devices};
use crate::error::{Error, Result};
use crate::sys;
use crate::values::{Gid, Guid, Mtu};

pub(crate) struct ContextInner {
    pub(crate) verbs: &'static Verbs,
    raw: NonNull<c::ibv_context>,
    /// For messages.
    pub(crate) name: String,
    device: Device,
}

// SAFETY: every verb may be called from any thread, and the pointer is owned by this value.
unsafe impl Send for ContextInner {}
// SAFETY: as above.
unsafe impl Sync for ContextInner {}

impl ContextInner {
    pub(crate) fn raw(&self) -> *mut c::ibv_context {
        self.raw.as_ptr()
    }
}

impl AsFd for ContextInner {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the context is open, and so is its event descriptor as long as `self` lives.
        unsafe { BorrowedFd::borrow_raw((*self.raw.as_ptr()).async_fd) }
    }
}

impl Drop for ContextInner {
    fn drop(&mut self) {
        // SAFETY: every object made from the context holds an `Arc` of this value, so none is
        // left (or it was leaked on purpose, and then nobody uses it).
        unsafe { (self.verbs.close_device)(self.raw.as_ptr()) };
    }
}

/// An open device. Clones are handles to the same one; it closes with the last object made
/// from it.
#[derive(Clone)]
#[doc(alias = "ibv_context")]
pub struct Context {
    pub(crate) inner: Arc<ContextInner>,
}

/// Opens the first device of the list.
///
/// # Errors
/// [`Error::NoDevice`] when the list is empty; what [`Device::open`] returns.
pub fn open_default() -> Result<Context> {
    let devices = devices()?;
    let Some(first) = devices.first() else {
        return Err(Error::NoDevice {
            wanted: None,
            available: Vec::new(),
        });
    };
    first.open()
}

/// Opens the device called `name`.
///
/// # Errors
/// [`Error::NoDevice`], which names those that are there; what [`Device::open`] returns.
pub fn open(name: &str) -> Result<Context> {
    let devices = devices()?;
    match devices.iter().find(|d| d.name() == name) {
        Some(device) => device.open(),
        None => Err(Error::NoDevice {
            wanted: Some(name.to_owned()),
            available: devices.iter().map(|d| d.name().to_owned()).collect(),
        }),
    }
}

impl Device {
    /// Opens it (ibv_open_device(3)).
    ///
    /// # Errors
    /// [`Error::Verb`]: no permission, no resources, device gone.
    #[doc(alias = "ibv_open_device")]
    pub fn open(&self) -> Result<Context> {
        // SAFETY: the device is alive while the list is.
        let raw = unsafe { (self.verbs().open_device)(self.as_raw()) };
        let raw = sys::non_null(raw, "ibv_open_device", self.name())?;
        // SAFETY: a context just opened by these verbs, owned by nobody else.
        Ok(unsafe { Context::new(self.verbs(), raw, self.clone()) })
    }
}

impl Context {
    /// # Safety
    /// `raw` was opened by `verbs` and belongs to the caller, who gives it away.
    unsafe fn new(verbs: &'static Verbs, raw: NonNull<c::ibv_context>, device: Device) -> Self {
        let name = device.name().to_owned();
        let inner = ContextInner {
            verbs,
            raw,
            name,
            device,
        };
        // Several threads may wait for events. Whoever comes second must not block in the
        // library after its timeout.
        let _ = sys::set_nonblocking(inner.as_fd());
        Self {
            inner: Arc::new(inner),
        }
    }

    /// The device it was opened from.
    pub fn device(&self) -> &Device {
        &self.inner.device
    }

    /// What the device can do (ibv_query_device(3)).
    ///
    /// # Errors
    /// [`Error::Verb`].
    #[doc(alias = "ibv_query_device")]
    pub fn query_device(&self) -> Result<DeviceAttr> {
        let mut raw = c::ibv_device_attr::zeroed();
        // SAFETY: the context is open and `raw` has room for the answer.
        let rc = unsafe { (self.inner.verbs.query_device)(self.as_raw(), &raw mut raw) };
        sys::check(rc, "ibv_query_device", &self.inner.name)?;
        Ok(DeviceAttr(raw))
    }

    /// Interrupt vectors that [`comp_vector`](crate::CompletionQueueBuilder::comp_vector) can choose
    /// from.
    ///
    /// ```
    /// # fn main() -> Result<(), adverb::Error> {
    /// # if cfg!(not(feature = "soft")) { return Ok(()) }
    /// let ctx = adverb::open_default()?;
    /// let last = ctx.num_comp_vectors() - 1;
    /// ctx.create_cq(16).comp_vector(last).build()?;
    /// # Ok(()) }
    /// ```
    pub fn num_comp_vectors(&self) -> u32 {
        // SAFETY: the context is open.
        count(unsafe { (*self.as_raw()).num_comp_vectors })
    }

    /// State and limits of a port, counted from 1 (ibv_query_port(3)).
    ///
    /// # Errors
    /// [`Error::Verb`] with EINVAL for a port that is not there.
    #[doc(alias = "ibv_query_port")]
    pub fn query_port(&self, port: u8) -> Result<PortAttr> {
        let mut raw = c::ibv_port_attr::zeroed();
        // SAFETY: the context is open and `raw` has room for the answer.
        let rc =
            unsafe { inline::ibv_query_port(self.inner.verbs, self.as_raw(), port, &raw mut raw) };
        sys::check(rc, "ibv_query_port", &self.inner.name)?;
        Ok(PortAttr(raw))
    }

    /// The GID at `index` of a port; empty entries are errors or zero, as the device likes
    /// (ibv_query_gid(3)).
    ///
    /// # Errors
    /// [`Error::Verb`].
    #[doc(alias = "ibv_query_gid")]
    pub fn query_gid(&self, port: u8, index: u32) -> Result<Gid> {
        let mut raw = c::ibv_gid::zeroed();
        // SAFETY: the context is open and `raw` has room for the answer.
        let rc = unsafe {
            (self.inner.verbs.query_gid)(self.as_raw(), port, index as libc::c_int, &raw mut raw)
        };
        sys::check(rc, "ibv_query_gid", &self.inner.name)?;
        Ok(Gid::from_raw(raw))
    }

    /// The addresses of a port, without the empty entries (ibv_query_gid_table(3)).
    ///
    /// # Errors
    /// [`Error::Verb`].
    #[doc(alias = "ibv_query_gid_table")]
    pub fn gid_table(&self, port: u8) -> Result<Vec<GidEntry>> {
        let attr = self.query_port(port)?;
        let Some(query_gid_ex) = self.inner.verbs.query_gid_ex else {
            // An old library: it does not tell the type, and RoCE v2 is what all have now.
            return Ok((0..attr.gid_count())
                .filter_map(|index| {
                    let gid = self.query_gid(port, index).ok().filter(|g| !g.is_zero())?;
                    let kind = if attr.is_ethernet() {
                        GidKind::RoceV2
                    } else {
                        GidKind::Infiniband
                    };
                    Some(GidEntry {
                        gid,
                        index,
                        port,
                        kind,
                        ifindex: 0,
                    })
                })
                .collect());
        };
        let mut entries = Vec::new();
        for index in 0..attr.gid_count() {
            let mut raw = c::ibv_gid_entry::zeroed();
            // SAFETY: the context is open and `raw` has room of the size that is told.
            let rc = unsafe {
                query_gid_ex(
                    self.as_raw(),
                    port.into(),
                    index,
                    &raw mut raw,
                    0,
                    size_of_val(&raw),
                )
            };
            // Whatever it is that makes one entry unreadable, the others still count.
            if rc == 0 {
                entries.push(GidEntry::from_raw(&raw, port));
            }
        }
        Ok(entries.into_iter().filter(|e| !e.gid.is_zero()).collect())
    }

    /// The address to offer to peers: a routable one for IPv4 if there is one, then a routable
    /// one for IPv6, then a link-local one; RoCE v2 before v1.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when the port has no address at all; [`Error::Verb`].
    pub fn best_gid(&self, port: u8) -> Result<GidEntry> {
        let rank = |e: &GidEntry| {
            let reach = if e.gid.is_ipv4() {
                2
            } else {
                u8::from(!e.gid.is_link_local())
            };
            (e.kind != GidKind::RoceV1, reach, std::cmp::Reverse(e.index))
        };
        self.gid_table(port)?
            .into_iter()
            .max_by_key(rank)
            .ok_or_else(|| Error::Unsupported {
                what: "a GID (the port has no address)",
                object: self.inner.name.clone(),
            })
    }

    /// A partition key of a port (ibv_query_pkey(3)).
    ///
    /// # Errors
    /// [`Error::Verb`].
    #[doc(alias = "ibv_query_pkey")]
    pub fn query_pkey(&self, port: u8, index: u16) -> Result<u16> {
        let mut raw = 0u16;
        // SAFETY: the context is open and `raw` has room for the answer.
        let rc = unsafe {
            (self.inner.verbs.query_pkey)(self.as_raw(), port, index.into(), (&raw mut raw).cast())
        };
        sys::check(rc, "ibv_query_pkey", &self.inner.name)?;
        Ok(u16::from_be(raw))
    }

    /// The C object; valid while this handle lives; must not be closed.
    pub fn as_raw(&self) -> *mut c::ibv_context {
        self.inner.raw()
    }
}

/// Readable when [`Context::next_event`] has something.
impl AsFd for Context {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

crate::sync::equal_by_identity!(Context);

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("device", &self.inner.device)
            .finish_non_exhaustive()
    }
}

/// Limits and abilities of a device.
#[derive(Clone, Copy, Debug)]
#[doc(alias = "ibv_device_attr")]
pub struct DeviceAttr(c::ibv_device_attr);

fn count(value: libc::c_int) -> u32 {
    u32::try_from(value).unwrap_or(0)
}

impl DeviceAttr {
    /// Version of its firmware.
    pub fn firmware(&self) -> String {
        let bytes = self.0.fw_ver.map(|c| c as u8);
        CStr::from_bytes_until_nul(&bytes)
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    }

    /// Its identity.
    pub fn guid(&self) -> Guid {
        Guid(u64::from_be(self.0.node_guid))
    }

    /// Largest memory region, in bytes.
    pub fn max_mr_size(&self) -> u64 {
        self.0.max_mr_size
    }

    /// Most queue pairs.
    pub fn max_qp(&self) -> u32 {
        count(self.0.max_qp)
    }

    /// Most operations outstanding on one queue.
    pub fn max_qp_wr(&self) -> u32 {
        count(self.0.max_qp_wr)
    }

    /// Most pieces of memory in one operation.
    pub fn max_sge(&self) -> u32 {
        count(self.0.max_sge)
    }

    /// Most completion queues.
    pub fn max_cq(&self) -> u32 {
        count(self.0.max_cq)
    }

    /// Most entries of a completion queue.
    pub fn max_cqe(&self) -> u32 {
        count(self.0.max_cqe)
    }

    /// Most memory regions.
    pub fn max_mr(&self) -> u32 {
        count(self.0.max_mr)
    }

    /// Most shared receive queues.
    pub fn max_srq(&self) -> u32 {
        count(self.0.max_srq)
    }

    /// Most receives on a shared receive queue.
    pub fn max_srq_wr(&self) -> u32 {
        count(self.0.max_srq_wr)
    }

    /// Most reads and atomics that a queue pair serves at a time.
    pub fn max_rd_atomic(&self) -> u32 {
        count(self.0.max_qp_rd_atom)
    }

    /// Most reads and atomics that a queue pair starts at a time.
    pub fn max_init_rd_atomic(&self) -> u32 {
        count(self.0.max_qp_init_rd_atom)
    }

    /// Number of ports.
    pub fn ports(&self) -> u8 {
        self.0.phys_port_cnt
    }

    /// Whether atomics exist at all.
    pub fn has_atomics(&self) -> bool {
        self.0.atomic_cap != c::IBV_ATOMIC_NONE
    }

    /// Whether the device's atomics are atomic with those of processors and other devices too.
    pub fn atomics_are_global(&self) -> bool {
        self.0.atomic_cap == c::IBV_ATOMIC_GLOB
    }

    /// Its optional abilities.
    pub fn caps(&self) -> DeviceCaps {
        DeviceCaps::from_bits_retain(self.0.device_cap_flags.into())
    }

    /// Everything, as C has it.
    pub fn raw(&self) -> &c::ibv_device_attr {
        &self.0
    }
}

/// State and limits of a port.
#[derive(Clone, Copy, Debug)]
#[doc(alias = "ibv_port_attr")]
pub struct PortAttr(c::ibv_port_attr);

impl PortAttr {
    /// Whether traffic can flow.
    pub fn is_active(&self) -> bool {
        self.0.state == c::IBV_PORT_ACTIVE
    }

    /// The MTU it works with. 256 bytes if the device tells nonsense.
    pub fn active_mtu(&self) -> Mtu {
        Mtu::from_ibv(self.0.active_mtu).unwrap_or(Mtu::B256)
    }

    /// The largest MTU it could work with.
    pub fn max_mtu(&self) -> Mtu {
        Mtu::from_ibv(self.0.max_mtu).unwrap_or(Mtu::B256)
    }

    /// Longest message, in bytes.
    pub fn max_msg_size(&self) -> u32 {
        self.0.max_msg_sz
    }

    /// Size of its GID table, empty entries included.
    pub fn gid_count(&self) -> u32 {
        count(self.0.gid_tbl_len)
    }

    /// Its local identifier; 0 on RoCE.
    pub fn lid(&self) -> u16 {
        self.0.lid
    }

    /// Whether it is an Ethernet port: RoCE, where every address is a GID.
    pub fn is_ethernet(&self) -> bool {
        self.0.link_layer == c::IBV_LINK_LAYER_ETHERNET
    }

    /// Everything, as C has it.
    pub fn raw(&self) -> &c::ibv_port_attr {
        &self.0
    }
}

/// How packets for a GID travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_gid_type")]
pub enum GidKind {
    /// InfiniBand.
    Infiniband,
    /// Directly over Ethernet.
    RoceV1,
    /// Over UDP.
    RoceV2,
    /// Something newer, by its number.
    Other(u32),
}

/// An address of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "ibv_gid_entry")]
pub struct GidEntry {
    /// The address.
    pub gid: Gid,
    /// Its place in the table.
    pub index: u32,
    /// The port, from 1.
    pub port: u8,
    /// How packets travel.
    pub kind: GidKind,
    /// The network interface below; 0 if there is none.
    pub ifindex: u32,
}

impl GidEntry {
    fn from_raw(raw: &c::ibv_gid_entry, port: u8) -> Self {
        Self {
            gid: Gid::from_raw(raw.gid),
            index: raw.gid_index,
            port,
            kind: match raw.gid_type {
                c::IBV_GID_TYPE_IB => GidKind::Infiniband,
                c::IBV_GID_TYPE_ROCE_V1 => GidKind::RoceV1,
                c::IBV_GID_TYPE_ROCE_V2 => GidKind::RoceV2,
                other => GidKind::Other(other),
            },
            ifindex: raw.ndev_ifindex,
        }
    }
}
