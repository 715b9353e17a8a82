//! The functions of libibverbs.

use std::ffi::{c_char, c_int, c_uint, c_void};

use super::library::{Library, LoadError, System};
use super::library_table;
use crate::types::*;

/// The runtime name: the one without `.1` belongs to the development package.
const LIBIBVERBS: System = System {
    name: "libibverbs.so.1",
    variable: "ADVERB_SYSTEM_LIBIBVERBS",
};

library_table! {
    /// The exported functions of one libibverbs.
    Verbs from LIBIBVERBS;
    required {
        /// The devices, NULL-terminated; `num_devices` may be NULL. NULL with ENOSYS means no hardware.
        "ibv_get_device_list" @ "IBVERBS_1.1" get_device_list(num_devices: *mut c_int) -> *mut *mut ibv_device;
        /// Frees the list; devices that are open stay.
        "ibv_free_device_list" @ "IBVERBS_1.1" free_device_list(list: *mut *mut ibv_device);
        /// The device's name.
        "ibv_get_device_name" @ "IBVERBS_1.1" get_device_name(device: *mut ibv_device) -> *const c_char;
        /// The node GUID, big-endian.
        "ibv_get_device_guid" @ "IBVERBS_1.1" get_device_guid(device: *mut ibv_device) -> u64;
        /// Text for a node type.
        "ibv_node_type_str" @ "IBVERBS_1.1" node_type_str(node_type: ibv_node_type) -> *const c_char;
        /// Text for a port state.
        "ibv_port_state_str" @ "IBVERBS_1.1" port_state_str(port_state: ibv_port_state) -> *const c_char;
        /// Text for an asynchronous event.
        "ibv_event_type_str" @ "IBVERBS_1.1" event_type_str(event: ibv_event_type) -> *const c_char;
        /// Text for a completion status.
        "ibv_wc_status_str" @ "IBVERBS_1.1" wc_status_str(status: ibv_wc_status) -> *const c_char;
        /// Opens a device.
        "ibv_open_device" @ "IBVERBS_1.1" open_device(device: *mut ibv_device) -> *mut ibv_context;
        /// Closes a context.
        "ibv_close_device" @ "IBVERBS_1.1" close_device(context: *mut ibv_context) -> c_int;
        /// Waits for an asynchronous event; -1 and errno on failure.
        "ibv_get_async_event" @ "IBVERBS_1.1" get_async_event(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int;
        /// Acknowledges an asynchronous event.
        "ibv_ack_async_event" @ "IBVERBS_1.1" ack_async_event(event: *mut ibv_async_event);
        /// Queries a device.
        "ibv_query_device" @ "IBVERBS_1.1" query_device(context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int;
        /// Queries a port, the first 48 bytes only: prefer [`crate::inline::ibv_query_port`].
        "ibv_query_port" @ "IBVERBS_1.1" query_port(context: *mut ibv_context, port_num: u8, attr: *mut ibv_port_attr) -> c_int;
        /// Reads a GID table entry; -1 on failure.
        "ibv_query_gid" @ "IBVERBS_1.1" query_gid(context: *mut ibv_context, port_num: u8, index: c_int, gid: *mut ibv_gid) -> c_int;
        /// Reads a partition key (big-endian); -1 on failure.
        "ibv_query_pkey" @ "IBVERBS_1.1" query_pkey(context: *mut ibv_context, port_num: u8, index: c_int, pkey: *mut u16) -> c_int;
        /// Allocates a protection domain.
        "ibv_alloc_pd" @ "IBVERBS_1.1" alloc_pd(context: *mut ibv_context) -> *mut ibv_pd;
        /// Frees a protection domain.
        "ibv_dealloc_pd" @ "IBVERBS_1.1" dealloc_pd(pd: *mut ibv_pd) -> c_int;
        /// Registers memory: prefer [`crate::inline::ibv_reg_mr`].
        "ibv_reg_mr" @ "IBVERBS_1.1" reg_mr(pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int) -> *mut ibv_mr;
        /// Changes a registration.
        "ibv_rereg_mr" @ "IBVERBS_1.1" rereg_mr(mr: *mut ibv_mr, flags: c_int, pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int) -> c_int;
        /// Ends a registration.
        "ibv_dereg_mr" @ "IBVERBS_1.1" dereg_mr(mr: *mut ibv_mr) -> c_int;
        /// Creates a completion channel.
        "ibv_create_comp_channel" @ "IBVERBS_1.0" create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel;
        /// Destroys a completion channel.
        "ibv_destroy_comp_channel" @ "IBVERBS_1.0" destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int;
        /// Creates a CQ; `channel` may be NULL.
        "ibv_create_cq" @ "IBVERBS_1.1" create_cq(context: *mut ibv_context, cqe: c_int, cq_context: *mut c_void, channel: *mut ibv_comp_channel, comp_vector: c_int) -> *mut ibv_cq;
        /// Changes the size of a CQ.
        "ibv_resize_cq" @ "IBVERBS_1.1" resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int;
        /// Destroys a CQ, after all its events were acknowledged.
        "ibv_destroy_cq" @ "IBVERBS_1.1" destroy_cq(cq: *mut ibv_cq) -> c_int;
        /// Waits for a completion event; -1 and errno on failure.
        "ibv_get_cq_event" @ "IBVERBS_1.1" get_cq_event(channel: *mut ibv_comp_channel, cq: *mut *mut ibv_cq, cq_context: *mut *mut c_void) -> c_int;
        /// Acknowledges completion events.
        "ibv_ack_cq_events" @ "IBVERBS_1.1" ack_cq_events(cq: *mut ibv_cq, nevents: c_uint);
        /// Creates a QP and writes the granted sizes back.
        "ibv_create_qp" @ "IBVERBS_1.1" create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp;
        /// Changes the state and attributes of a QP.
        "ibv_modify_qp" @ "IBVERBS_1.1" modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, attr_mask: c_int) -> c_int;
        /// Reads the state and attributes of a QP.
        "ibv_query_qp" @ "IBVERBS_1.1" query_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, attr_mask: c_int, init_attr: *mut ibv_qp_init_attr) -> c_int;
        /// Destroys a QP.
        "ibv_destroy_qp" @ "IBVERBS_1.1" destroy_qp(qp: *mut ibv_qp) -> c_int;
        /// Creates an SRQ.
        "ibv_create_srq" @ "IBVERBS_1.1" create_srq(pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> *mut ibv_srq;
        /// Changes the size or limit of an SRQ.
        "ibv_modify_srq" @ "IBVERBS_1.1" modify_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr, attr_mask: c_int) -> c_int;
        /// Reads the size and limit of an SRQ.
        "ibv_query_srq" @ "IBVERBS_1.1" query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int;
        /// Destroys an SRQ.
        "ibv_destroy_srq" @ "IBVERBS_1.1" destroy_srq(srq: *mut ibv_srq) -> c_int;
        /// Creates an address handle.
        "ibv_create_ah" @ "IBVERBS_1.1" create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah;
        /// Fills the address of whoever sent a datagram.
        "ibv_init_ah_from_wc" @ "IBVERBS_1.1" init_ah_from_wc(context: *mut ibv_context, port_num: u8, wc: *mut ibv_wc, grh: *mut ibv_grh, attr: *mut ibv_ah_attr) -> c_int;
        /// Creates an address handle to whoever sent a datagram.
        "ibv_create_ah_from_wc" @ "IBVERBS_1.1" create_ah_from_wc(pd: *mut ibv_pd, wc: *mut ibv_wc, grh: *mut ibv_grh, port_num: u8) -> *mut ibv_ah;
        /// Destroys an address handle.
        "ibv_destroy_ah" @ "IBVERBS_1.1" destroy_ah(ah: *mut ibv_ah) -> c_int;
        /// Joins a UD QP to a multicast group.
        "ibv_attach_mcast" @ "IBVERBS_1.1" attach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int;
        /// Takes a QP out of a multicast group.
        "ibv_detach_mcast" @ "IBVERBS_1.1" detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int;
        /// Prepares registered memory for `fork`.
        "ibv_fork_init" @ "IBVERBS_1.1" fork_init() -> c_int;
    }
    optional {
        /// Reads `dir/file` without the end of its last line; how many bytes, or -1.
        "ibv_read_sysfs_file" @ "IBVERBS_1.0" read_sysfs_file(dir: *const c_char, file: *const c_char, buf: *mut c_char, size: usize) -> c_int;
        /// The index of a partition key (big-endian).
        "ibv_get_pkey_index" @ "IBVERBS_1.5" get_pkey_index(context: *mut ibv_context, port_num: u8, pkey: u16) -> c_int;
        /// The extended face of a QP, NULL if it was created without.
        "ibv_qp_to_qp_ex" @ "IBVERBS_1.6" qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex;
        /// Registers memory under another address.
        "ibv_reg_mr_iova" @ "IBVERBS_1.7" reg_mr_iova(pd: *mut ibv_pd, addr: *mut c_void, length: usize, iova: u64, access: c_int) -> *mut ibv_mr;
        /// Registers memory under another address, with hints in `access`.
        "ibv_reg_mr_iova2" @ "IBVERBS_1.8" reg_mr_iova2(pd: *mut ibv_pd, addr: *mut c_void, length: usize, iova: u64, access: c_uint) -> *mut ibv_mr;
        /// The kernel's index of a device.
        "ibv_get_device_index" @ "IBVERBS_1.9" get_device_index(device: *mut ibv_device) -> c_int;
        /// Reads the ECE options of a QP.
        "ibv_query_ece" @ "IBVERBS_1.10" query_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int;
        /// Sets the ECE options of a QP.
        "ibv_set_ece" @ "IBVERBS_1.10" set_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int;
        /// Opens a device from another process's descriptor.
        "ibv_import_device" @ "IBVERBS_1.10" import_device(cmd_fd: c_int) -> *mut ibv_context;
        /// Takes up another process's PD.
        "ibv_import_pd" @ "IBVERBS_1.10" import_pd(context: *mut ibv_context, pd_handle: u32) -> *mut ibv_pd;
        /// Lets go of an imported PD.
        "ibv_unimport_pd" @ "IBVERBS_1.10" unimport_pd(pd: *mut ibv_pd);
        /// Takes up another process's MR.
        "ibv_import_mr" @ "IBVERBS_1.10" import_mr(pd: *mut ibv_pd, mr_handle: u32) -> *mut ibv_mr;
        /// Lets go of an imported MR.
        "ibv_unimport_mr" @ "IBVERBS_1.10" unimport_mr(mr: *mut ibv_mr);
        /// Reads a GID table entry; ENODATA for an empty one.
        "_ibv_query_gid_ex" @ "IBVERBS_1.11" query_gid_ex(context: *mut ibv_context, port_num: u32, gid_index: u32, entry: *mut ibv_gid_entry, flags: u32, entry_size: usize) -> c_int;
        /// Reads all valid GID table entries; how many, or a negative errno.
        "_ibv_query_gid_table" @ "IBVERBS_1.11" query_gid_table(context: *mut ibv_context, entries: *mut ibv_gid_entry, max_entries: usize, flags: u32, entry_size: usize) -> isize;
        /// Registers a dma-buf.
        "ibv_reg_dmabuf_mr" @ "IBVERBS_1.12" reg_dmabuf_mr(pd: *mut ibv_pd, offset: u64, length: usize, iova: u64, fd: c_int, access: c_int) -> *mut ibv_mr;
        /// Whether `fork` is safe.
        "ibv_is_fork_initialized" @ "IBVERBS_1.13" is_fork_initialized() -> ibv_fork_status;
        /// Takes up another process's device memory.
        "ibv_import_dm" @ "IBVERBS_1.13" import_dm(context: *mut ibv_context, dm_handle: u32) -> *mut ibv_dm;
        /// Lets go of imported device memory.
        "ibv_unimport_dm" @ "IBVERBS_1.13" unimport_dm(dm: *mut ibv_dm);
        /// Whether payload arrives in address order.
        "ibv_query_qp_data_in_order" @ "IBVERBS_1.14" query_qp_data_in_order(qp: *mut ibv_qp, op: ibv_wr_opcode, flags: u32) -> c_int;
        /// Allocates a DMA handle.
        "ibv_alloc_dmah" @ "IBVERBS_1.15" alloc_dmah(context: *mut ibv_context, attr: *mut ibv_dmah_init_attr) -> *mut ibv_dmah;
        /// Frees a DMA handle.
        "ibv_dealloc_dmah" @ "IBVERBS_1.15" dealloc_dmah(dmah: *mut ibv_dmah) -> c_int;
        /// Registers memory with extended attributes.
        "ibv_reg_mr_ex" @ "IBVERBS_1.15" reg_mr_ex(pd: *mut ibv_pd, attr: *mut ibv_mr_init_attr) -> *mut ibv_mr;
        /// A dma-buf of device memory.
        "ibv_dm_export_dmabuf_fd" @ "IBVERBS_1.16" dm_export_dmabuf_fd(dm: *mut ibv_dm) -> c_int;
        /// The effective speed of a port in units of 100 Mb/s.
        "ibv_query_port_speed" @ "IBVERBS_1.16" query_port_speed(context: *mut ibv_context, port_num: u32, port_speed: *mut u64) -> c_int;
        /// Allocates a buffer the provider chooses a place for.
        "ibv_alloc_buf" @ "IBVERBS_1.17" alloc_buf(pd: *mut ibv_pd, size: usize, buf: *mut *mut ibv_buf) -> *mut c_void;
        /// Frees such a buffer.
        "ibv_free_buf" @ "IBVERBS_1.17" free_buf(buf: *mut ibv_buf);
    }
}
