//! What a device, a port and its tables are: `ibv_query_device(3)`, `ibv_query_port(3)`, `ibv_query_gid(3)`, `ibv_query_pkey(3)`.
//!
//! Programs pass structures of the size their header had. What is filled ends there, and what they know and we do not
//! is zeroed. Nothing is advertised here that fails when it is used.

use std::ffi::{c_int, c_uint};
use std::mem::size_of;
use std::ptr;

use adverb_abi::types::*;

use crate::call;
use crate::errno::Error;
use crate::handle::{find_context, not_null};
use crate::{device, misc};

/// Bytes of `ibv_port_attr` that the exported `ibv_query_port` may write: it serves programs that know no more.
const OLD_PORT_ATTR: usize = 48;

/// The one port of a device.
pub(crate) const PORT: u32 = 1;

/// The type of our GIDs in the numbering of sysfs, where InfiniBand and RoCE v1 share 0.
const SYSFS_ROCE_V2: c_uint = 1;

/// Everything in every state that a software device can honestly claim.
const CAPABILITIES: c_uint = IBV_DEVICE_BAD_PKEY_CNTR
    | IBV_DEVICE_BAD_QKEY_CNTR
    | IBV_DEVICE_CURR_QP_STATE_MOD
    | IBV_DEVICE_PORT_ACTIVE_EVENT
    | IBV_DEVICE_SYS_IMAGE_GUID
    | IBV_DEVICE_RC_RNR_NAK_GEN
    | IBV_DEVICE_SRQ_RESIZE
    | IBV_DEVICE_XRC
    | IBV_DEVICE_MEM_WINDOW
    | IBV_DEVICE_MEM_WINDOW_TYPE_2B
    | IBV_DEVICE_MEM_MGT_EXTENSIONS;

/// Capabilities that only the wider set has a bit for: FLUSH to global visibility, and ATOMIC_WRITE.
const CAPABILITIES_EX: u64 = 1 << 38 | 1 << 40;

/// Every operation of a connection reaches memory through the same door, on demand or not. ATOMIC_WRITE does too, but
/// its eight bytes are only sure to appear as one in memory that is known to be there.
const ODP_RC: u32 = IBV_ODP_SUPPORT_SEND
    | IBV_ODP_SUPPORT_RECV
    | IBV_ODP_SUPPORT_WRITE
    | IBV_ODP_SUPPORT_READ
    | IBV_ODP_SUPPORT_ATOMIC
    | IBV_ODP_SUPPORT_SRQ_RECV
    | IBV_ODP_SUPPORT_FLUSH;
const ODP_UC: u32 = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE;
const ODP_UD: u32 = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV;

/// A vendor number that is nobody's: the bit for local administration is set in it. Zero would pass for "unknown", and
/// the number of a vendor would make programs expect that vendor's device.
const VENDOR: u32 = 0x02_adbe;

/// How long an acknowledgement may take, as an exponent: 4 ms. Connection managers add it to their timeouts.
pub(crate) const CA_ACK_DELAY: u8 = 10;

/// Copies a filled structure into one of `size` bytes, which may be older or newer than ours.
///
/// # Safety
/// `to` is good for writing `size` bytes.
unsafe fn fill<T>(to: *mut T, from: &T, size: usize) {
    let known = size.min(size_of::<T>());
    // SAFETY: `known` bytes exist on both sides, and the rest of the caller's lies right behind them.
    unsafe {
        ptr::copy_nonoverlapping(ptr::from_ref(from).cast::<u8>(), to.cast::<u8>(), known);
        ptr::write_bytes(to.cast::<u8>().add(known), 0, size - known);
    }
}

fn device_attr(device: &adverb_nic::Device) -> ibv_device_attr {
    let limits = device.limits();
    let count = |limit: u32| c_int::try_from(limit).unwrap_or(c_int::MAX);
    let mut attr = ibv_device_attr::zeroed();
    device::copy_text(&mut attr.fw_ver, env!("CARGO_PKG_VERSION"));
    attr.node_guid = device.guid.to_be();
    attr.sys_image_guid = device.guid.to_be();
    attr.max_mr_size = limits.max_mr_size;
    attr.page_size_cap = !0xfff;
    attr.vendor_id = VENDOR;
    attr.max_qp = count(limits.max_qp);
    attr.max_qp_wr = count(limits.max_qp_wr);
    attr.device_cap_flags = CAPABILITIES;
    attr.max_sge = count(limits.max_sge);
    attr.max_sge_rd = count(limits.max_sge);
    attr.max_cq = count(limits.max_cq);
    attr.max_cqe = count(limits.max_cqe);
    attr.max_mr = count(limits.max_mr);
    attr.max_mw = count(limits.max_mw);
    attr.max_pd = count(limits.max_pd);
    attr.max_qp_rd_atom = c_int::from(limits.max_rd_atom);
    attr.max_res_rd_atom = attr.max_qp_rd_atom.saturating_mul(attr.max_qp);
    attr.max_qp_init_rd_atom = c_int::from(limits.max_init_rd_atom);
    // Remote atomics are atomic instructions of this machine, so the application's own take part.
    attr.atomic_cap = IBV_ATOMIC_GLOB;
    attr.max_ah = count(limits.max_ah);
    attr.max_srq = count(limits.max_srq);
    attr.max_srq_wr = count(limits.max_srq_wr);
    attr.max_srq_sge = count(limits.max_srq_sge);
    attr.max_mcast_grp = count(limits.max_groups);
    attr.max_mcast_qp_attach = count(limits.max_group_members);
    attr.max_total_mcast_qp_attach = attr.max_mcast_grp.saturating_mul(attr.max_mcast_qp_attach);
    attr.max_pkeys = device.port().pkey_count as u16;
    attr.local_ca_ack_delay = CA_ACK_DELAY;
    attr.phys_port_cnt = PORT as u8;
    attr
}

/// `ibv_query_device(3)`.
///
/// # Safety
/// `context` is NULL or a context; `attr` is NULL or can be written.
pub unsafe extern "C" fn ibv_query_device(
    context: *mut ibv_context,
    attr: *mut ibv_device_attr,
) -> c_int {
    let query = || -> Result<(), Error> {
        // SAFETY: as our caller promises.
        let context = unsafe { find_context(context) }?;
        not_null(attr, "attribute")?;
        // SAFETY: not NULL, so the caller says that it can be written.
        unsafe { attr.write(device_attr(context.nic.device())) };
        Ok(())
    };
    call::status("ibv_query_device", query)
}

/// `ibv_query_device_ex(3)`, behind the context's table.
///
/// # Safety
/// As the manual page has it: NULL, or good for `size` bytes.
pub(crate) unsafe extern "C" fn query_device_ex(
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    attr: *mut ibv_device_attr_ex,
    size: usize,
) -> c_int {
    let query = || -> Result<(), Error> {
        // SAFETY: as our caller promises.
        let context = unsafe { find_context(context) }?;
        not_null(attr, "attribute")?;
        // SAFETY: NULL or readable.
        if let Some(input) = unsafe { input.as_ref() }
            && input.comp_mask != 0
        {
            return Err(Error::Bits {
                what: "comp_mask",
                bits: input.comp_mask.into(),
            });
        }
        if size < size_of::<ibv_device_attr>() {
            return Err(Error::Argument(
                "the attribute structure is smaller than its oldest form",
            ));
        }
        let mut full = ibv_device_attr_ex::zeroed();
        full.orig_attr = device_attr(context.nic.device());
        full.completion_timestamp_mask = u64::MAX;
        full.cq_mod_caps = ibv_cq_moderation_caps {
            max_cq_count: u16::MAX,
            max_cq_period: u16::MAX,
        };
        full.hca_core_clock = misc::CLOCK_KHZ;
        full.device_cap_flags_ex = u64::from(CAPABILITIES) | CAPABILITIES_EX;
        full.odp_caps.general_caps = u64::from(IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT);
        full.odp_caps.per_transport_caps.rc_odp_caps = ODP_RC;
        full.odp_caps.per_transport_caps.uc_odp_caps = ODP_UC;
        full.odp_caps.per_transport_caps.ud_odp_caps = ODP_UD;
        full.xrc_odp_caps = ODP_RC;
        full.max_dm_size = context.nic.device().limits().max_dm_size;
        full.phys_port_cnt_ex = PORT;
        // SAFETY: the caller says that `size` bytes can be written.
        unsafe { fill(attr, &full, size) };
        Ok(())
    };
    call::status("ibv_query_device_ex", query)
}

fn port_attr(device: &adverb_nic::Device) -> ibv_port_attr {
    let port = device.port();
    let mut attr = ibv_port_attr::zeroed();
    attr.state = if port.active {
        IBV_PORT_ACTIVE
    } else {
        IBV_PORT_DOWN
    };
    attr.max_mtu = port.max_mtu;
    attr.active_mtu = port.active_mtu;
    attr.gid_tbl_len = port.gid_count as c_int;
    attr.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
    attr.max_msg_sz = port.max_message;
    attr.pkey_tbl_len = port.pkey_count as u16;
    attr.max_vl_num = 1;
    attr.active_width = misc::WIDTH_4X;
    attr.active_speed = misc::SPEED_EDR;
    attr.phys_state = if port.active { LINK_UP } else { LINK_DISABLED };
    attr.link_layer = IBV_LINK_LAYER_ETHERNET;
    attr.flags = IBV_QPF_GRH_REQUIRED;
    attr
}

const LINK_DISABLED: u8 = 3;
const LINK_UP: u8 = 5;

fn check_port(port: u32) -> Result<(), Error> {
    if port == PORT {
        Ok(())
    } else {
        Err(Error::Value {
            what: "port number",
            value: port.into(),
            limit: PORT.into(),
        })
    }
}

/// # Safety
/// As for [`query_port`].
unsafe fn port_into(
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
    size: usize,
) -> Result<(), Error> {
    // SAFETY: as our caller promises.
    let context = unsafe { find_context(context) }?;
    not_null(attr, "attribute")?;
    check_port(port.into())?;
    // SAFETY: the caller says that `size` bytes can be written.
    unsafe { fill(attr, &port_attr(context.nic.device()), size) };
    Ok(())
}

/// `ibv_query_port(3)` as programs compiled today call it, through the context's table.
///
/// # Safety
/// `context` is NULL or a context; `attr` is NULL or good for `size` bytes.
pub(crate) unsafe extern "C" fn query_port(
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
    size: usize,
) -> c_int {
    // SAFETY: as our caller promises.
    call::status("ibv_query_port", || unsafe {
        port_into(context, port, attr, size)
    })
}

/// `ibv_query_port(3)` as old programs and those that look symbols up call it. Writes 48 bytes.
///
/// # Safety
/// `context` is NULL or a context; `attr` is NULL or good for 48 bytes.
pub unsafe extern "C" fn ibv_query_port(
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
) -> c_int {
    // SAFETY: as our caller promises.
    call::status("ibv_query_port", || unsafe {
        port_into(context, port, attr, OLD_PORT_ATTR)
    })
}

/// `ibv_query_port_speed(3)`, in units of 100 Mbit/s.
///
/// # Safety
/// `context` is NULL or a context; `speed` is NULL or can be written.
pub unsafe extern "C" fn ibv_query_port_speed(
    context: *mut ibv_context,
    port: u32,
    speed: *mut u64,
) -> c_int {
    let query = || -> Result<(), Error> {
        // SAFETY: as our caller promises.
        unsafe { find_context(context) }?;
        not_null(speed, "speed")?;
        check_port(port)?;
        // SAFETY: not NULL, so the caller says that it can be written.
        unsafe { *speed = misc::SPEED_100MBIT };
        Ok(())
    };
    call::status("ibv_query_port_speed", query)
}

/// An entry of the GID table; `None` for one that exists and is empty.
fn gid_at(device: &adverb_nic::Device, port: u32, index: u32) -> Result<Option<ibv_gid>, Error> {
    check_port(port)?;
    let length = device.port().gid_count;
    if index >= length {
        return Err(Error::Value {
            what: "GID index",
            value: index.into(),
            limit: length.saturating_sub(1).into(),
        });
    }
    let gid = device
        .gids()
        .get(index as usize)
        .filter(|gid| !gid.is_zero());
    Ok(gid.map(|gid| ibv_gid { raw: gid.0 }))
}

fn gid_entry(device: &adverb_nic::Device, index: u32, gid: ibv_gid) -> ibv_gid_entry {
    ibv_gid_entry {
        gid,
        gid_index: index,
        port_num: PORT,
        gid_type: IBV_GID_TYPE_ROCE_V2,
        ndev_ifindex: device.ifindex,
    }
}

/// `ibv_query_gid(3)`. An empty entry within the table is the zero GID, not a failure.
///
/// # Safety
/// `context` is NULL or a context; `gid` is NULL or can be written.
pub unsafe extern "C" fn ibv_query_gid(
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    gid: *mut ibv_gid,
) -> c_int {
    let query = || -> Result<c_int, Error> {
        // SAFETY: as our caller promises.
        let context = unsafe { find_context(context) }?;
        not_null(gid, "GID")?;
        let index =
            u32::try_from(index).map_err(|_| Error::Argument("the GID index is negative"))?;
        let found = gid_at(context.nic.device(), port.into(), index)?;
        // SAFETY: not NULL, so the caller says that it can be written.
        unsafe { gid.write(found.unwrap_or(ibv_gid { raw: [0; 16] })) };
        Ok(0)
    };
    call::minus_one("ibv_query_gid", query)
}

/// `ibv_query_gid_ex(3)`. ENODATA for an empty entry.
///
/// # Safety
/// `context` is NULL or a context; `entry` is NULL or good for `size` bytes.
pub unsafe extern "C" fn _ibv_query_gid_ex(
    context: *mut ibv_context,
    port: u32,
    index: u32,
    entry: *mut ibv_gid_entry,
    flags: u32,
    size: usize,
) -> c_int {
    let query = || -> Result<(), Error> {
        // SAFETY: as our caller promises.
        let context = unsafe { find_context(context) }?;
        not_null(entry, "GID entry")?;
        if flags != 0 {
            return Err(Error::Bits {
                what: "flags",
                bits: flags.into(),
            });
        }
        let device = context.nic.device();
        let gid = gid_at(device, port, index)?.ok_or(Error::EmptyGid(index))?;
        // SAFETY: the caller says that `size` bytes can be written.
        unsafe { fill(entry, &gid_entry(device, index, gid), size) };
        Ok(())
    };
    call::status("ibv_query_gid_ex", query)
}

/// `ibv_query_gid_table(3)`: how many entries are in use, written from the front.
///
/// # Safety
/// `context` is NULL or a context; `entries` is NULL or good for `max_entries` times `size` bytes.
pub unsafe extern "C" fn _ibv_query_gid_table(
    context: *mut ibv_context,
    entries: *mut ibv_gid_entry,
    max_entries: usize,
    flags: u32,
    size: usize,
) -> isize {
    let query = || -> Result<isize, Error> {
        // SAFETY: as our caller promises.
        let context = unsafe { find_context(context) }?;
        if flags != 0 {
            return Err(Error::Bits {
                what: "flags",
                bits: flags.into(),
            });
        }
        let device = context.nic.device();
        let mut used = 0;
        for index in 0..device.port().gid_count {
            let Some(gid) = gid_at(device, PORT, index)? else {
                continue;
            };
            if used == max_entries {
                return Err(Error::Argument(
                    "the GID table has more entries than the caller has room for",
                ));
            }
            not_null(entries, "array of GID entries")?;
            // SAFETY: entry number `used` lies within the caller's array.
            unsafe {
                fill(
                    entries.wrapping_byte_add(used * size),
                    &gid_entry(device, index, gid),
                    size,
                )
            };
            used += 1;
        }
        Ok(used as isize)
    };
    call::negative("ibv_query_gid_table", query)
}

/// What `ibv_devinfo` asks for the type of a GID, in the numbering of sysfs.
///
/// # Safety
/// `context` is NULL or a context; `kind` is NULL or can be written.
pub unsafe extern "C" fn ibv_query_gid_type(
    context: *mut ibv_context,
    port: u8,
    index: c_uint,
    kind: *mut c_uint,
) -> c_int {
    let query = || -> Result<c_int, Error> {
        // SAFETY: as our caller promises.
        let context = unsafe { find_context(context) }?;
        not_null(kind, "GID type")?;
        gid_at(context.nic.device(), port.into(), index)?;
        // SAFETY: not NULL, so the caller says that it can be written.
        unsafe { *kind = SYSFS_ROCE_V2 };
        Ok(0)
    };
    call::minus_one("ibv_query_gid_type", query)
}

/// `ibv_query_pkey(3)`: big-endian.
///
/// # Safety
/// `context` is NULL or a context; `pkey` is NULL or can be written.
pub unsafe extern "C" fn ibv_query_pkey(
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    pkey: *mut u16,
) -> c_int {
    let query = || -> Result<c_int, Error> {
        // SAFETY: as our caller promises.
        let context = unsafe { find_context(context) }?;
        not_null(pkey, "P_Key")?;
        check_port(port.into())?;
        let found = u16::try_from(index)
            .ok()
            .and_then(|index| context.nic.device().pkey(index));
        let found = found.ok_or(Error::Argument("the P_Key table has no such entry"))?;
        // SAFETY: not NULL, so the caller says that it can be written.
        unsafe { *pkey = found.to_be() };
        Ok(0)
    };
    call::minus_one("ibv_query_pkey", query)
}

/// `ibv_get_pkey_index(3)`: where a (big-endian) P_Key stands in the table.
///
/// # Safety
/// `context` is NULL or a context.
pub unsafe extern "C" fn ibv_get_pkey_index(
    context: *mut ibv_context,
    port: u8,
    pkey: u16,
) -> c_int {
    let query = || -> Result<c_int, Error> {
        // SAFETY: as our caller promises.
        let context = unsafe { find_context(context) }?;
        check_port(port.into())?;
        let device = context.nic.device();
        let index = (0..device.port().pkey_count as u16)
            .find(|index| device.pkey(*index) == Some(u16::from_be(pkey)));
        index.map(c_int::from).ok_or(Error::Argument(
            "no entry of the P_Key table has this value",
        ))
    };
    call::minus_one("ibv_get_pkey_index", query)
}

/// Where a GID stands in the table of the context's device.
pub(crate) fn index_of_gid(device: &adverb_nic::Device, gid: adverb_wire::Gid) -> Option<u8> {
    device
        .gids()
        .iter()
        .position(|known| *known == gid)
        .and_then(|index| u8::try_from(index).ok())
}
