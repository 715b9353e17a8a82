//! The functions of librdmacm. Those of rsockets are not here.

use std::ffi::{c_char, c_int, c_void};

use libc::sockaddr;

use super::library::{Library, LoadError, System};
use super::library_table;
use crate::types::*;

const LIBRDMACM: System = System {
    name: "librdmacm.so.1",
    variable: "ADVERB_SYSTEM_LIBRDMACM",
};

library_table! {
    /// The exported functions of one librdmacm. Unless another word is said, a function returns 0,
    /// or -1 and sets errno.
    Rdmacm from LIBRDMACM;
    required {
        /// Makes a channel for events.
        "rdma_create_event_channel" @ "RDMACM_1.0" create_event_channel() -> *mut rdma_event_channel;
        /// Closes a channel that no id uses.
        "rdma_destroy_event_channel" @ "RDMACM_1.0" destroy_event_channel(channel: *mut rdma_event_channel);
        /// Makes an id; without a channel its calls wait for what comes of them.
        "rdma_create_id" @ "RDMACM_1.0" create_id(channel: *mut rdma_event_channel, id: *mut *mut rdma_cm_id, context: *mut c_void, ps: rdma_port_space) -> c_int;
        /// Ends an id, once its events are acknowledged.
        "rdma_destroy_id" @ "RDMACM_1.0" destroy_id(id: *mut rdma_cm_id) -> c_int;
        /// Moves an id to another channel, once its events are acknowledged.
        "rdma_migrate_id" @ "RDMACM_1.0" migrate_id(id: *mut rdma_cm_id, channel: *mut rdma_event_channel) -> c_int;
        /// Claims an address and a port.
        "rdma_bind_addr" @ "RDMACM_1.0" bind_addr(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int;
        /// Finds the device that leads to an address.
        "rdma_resolve_addr" @ "RDMACM_1.0" resolve_addr(id: *mut rdma_cm_id, src_addr: *mut sockaddr, dst_addr: *mut sockaddr, timeout_ms: c_int) -> c_int;
        /// Finds the way there.
        "rdma_resolve_route" @ "RDMACM_1.0" resolve_route(id: *mut rdma_cm_id, timeout_ms: c_int) -> c_int;
        /// Takes requests.
        "rdma_listen" @ "RDMACM_1.0" listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int;
        /// Waits for a request on an id without a channel.
        "rdma_get_request" @ "RDMACM_1.0" get_request(listen: *mut rdma_cm_id, id: *mut *mut rdma_cm_id) -> c_int;
        /// Asks for a connection.
        "rdma_connect" @ "RDMACM_1.0" connect(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int;
        /// Accepts a request.
        "rdma_accept" @ "RDMACM_1.0" accept(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int;
        /// Refuses a request or an answer.
        "rdma_reject" @ "RDMACM_1.0" reject(id: *mut rdma_cm_id, private_data: *const c_void, private_data_len: u8) -> c_int;
        /// Tells of an event of the queue pair.
        "rdma_notify" @ "RDMACM_1.0" notify(id: *mut rdma_cm_id, event: ibv_event_type) -> c_int;
        /// Ends a connection.
        "rdma_disconnect" @ "RDMACM_1.0" disconnect(id: *mut rdma_cm_id) -> c_int;
        /// Waits for an event.
        "rdma_get_cm_event" @ "RDMACM_1.0" get_cm_event(channel: *mut rdma_event_channel, event: *mut *mut rdma_cm_event) -> c_int;
        /// Frees an event.
        "rdma_ack_cm_event" @ "RDMACM_1.0" ack_cm_event(event: *mut rdma_cm_event) -> c_int;
        /// Text for a kind of event.
        "rdma_event_str" @ "RDMACM_1.0" event_str(event: rdma_cm_event_type) -> *const c_char;
        /// Our port, big-endian.
        "rdma_get_src_port" @ "RDMACM_1.0" get_src_port(id: *mut rdma_cm_id) -> u16;
        /// The peer's port, big-endian.
        "rdma_get_dst_port" @ "RDMACM_1.0" get_dst_port(id: *mut rdma_cm_id) -> u16;
        /// Sets an option.
        "rdma_set_option" @ "RDMACM_1.0" set_option(id: *mut rdma_cm_id, level: c_int, optname: c_int, optval: *mut c_void, optlen: usize) -> c_int;
        /// Makes the queue pair of an id.
        "rdma_create_qp" @ "RDMACM_1.0" create_qp(id: *mut rdma_cm_id, pd: *mut ibv_pd, init: *mut ibv_qp_init_attr) -> c_int;
        /// Makes the queue pair of an id with extended attributes.
        "rdma_create_qp_ex" @ "RDMACM_1.0" create_qp_ex(id: *mut rdma_cm_id, init: *mut ibv_qp_init_attr_ex) -> c_int;
        /// Ends the queue pair of an id.
        "rdma_destroy_qp" @ "RDMACM_1.0" destroy_qp(id: *mut rdma_cm_id);
        /// Makes the shared receive queue of an id.
        "rdma_create_srq" @ "RDMACM_1.0" create_srq(id: *mut rdma_cm_id, pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> c_int;
        /// Makes the shared receive queue of an id with extended attributes.
        "rdma_create_srq_ex" @ "RDMACM_1.0" create_srq_ex(id: *mut rdma_cm_id, attr: *mut ibv_srq_init_attr_ex) -> c_int;
        /// Ends the shared receive queue of an id.
        "rdma_destroy_srq" @ "RDMACM_1.0" destroy_srq(id: *mut rdma_cm_id);
        /// Translates names to addresses.
        "rdma_getaddrinfo" @ "RDMACM_1.0" getaddrinfo(node: *const c_char, service: *const c_char, hints: *const rdma_addrinfo, res: *mut *mut rdma_addrinfo) -> c_int;
        /// Frees what that gave.
        "rdma_freeaddrinfo" @ "RDMACM_1.0" freeaddrinfo(res: *mut rdma_addrinfo);
        /// Makes an id from such an address.
        "rdma_create_ep" @ "RDMACM_1.0" create_ep(id: *mut *mut rdma_cm_id, info: *mut rdma_addrinfo, pd: *mut ibv_pd, init: *mut ibv_qp_init_attr) -> c_int;
        /// Ends such an id.
        "rdma_destroy_ep" @ "RDMACM_1.0" destroy_ep(id: *mut rdma_cm_id);
        /// Joins a multicast group.
        "rdma_join_multicast" @ "RDMACM_1.0" join_multicast(id: *mut rdma_cm_id, addr: *mut sockaddr, context: *mut c_void) -> c_int;
        /// Leaves a multicast group.
        "rdma_leave_multicast" @ "RDMACM_1.0" leave_multicast(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int;
        /// All devices, open, in a list that ends with NULL.
        "rdma_get_devices" @ "RDMACM_1.0" get_devices(count: *mut c_int) -> *mut *mut ibv_context;
        /// Frees the list; the devices stay open.
        "rdma_free_devices" @ "RDMACM_1.0" free_devices(list: *mut *mut ibv_context);
        /// The program's own queue pair is ready.
        "rdma_establish" @ "RDMACM_1.2" establish(id: *mut rdma_cm_id) -> c_int;
        /// What the program's own queue pair has to be set to.
        "rdma_init_qp_attr" @ "RDMACM_1.2" init_qp_attr(id: *mut rdma_cm_id, attr: *mut ibv_qp_attr, mask: *mut c_int) -> c_int;
    }
    optional {
        /// Joins a multicast group with options.
        "rdma_join_multicast_ex" @ "RDMACM_1.1" join_multicast_ex(id: *mut rdma_cm_id, attr: *mut rdma_cm_join_mc_attr_ex, context: *mut c_void) -> c_int;
        /// Refuses because of the vendor's options.
        "rdma_reject_ece" @ "RDMACM_1.3" reject_ece(id: *mut rdma_cm_id, private_data: *const c_void, private_data_len: u8) -> c_int;
        /// Sets the vendor's options.
        "rdma_set_local_ece" @ "RDMACM_1.3" set_local_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int;
        /// The vendor's options of the peer.
        "rdma_get_remote_ece" @ "RDMACM_1.3" get_remote_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int;
        /// Raises an event of the program's own.
        "rdma_write_cm_event" @ "RDMACM_1.4" write_cm_event(id: *mut rdma_cm_id, event: rdma_cm_event_type, status: c_int, arg: u64) -> c_int;
    }
}
