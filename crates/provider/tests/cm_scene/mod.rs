//! Ids of the connection manager, one in every phase, all in this process.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "the tests are a C program in all but syntax"
)]

use std::ffi::{c_int, c_void};
use std::fmt::Write as _;
use std::mem::size_of;
use std::ptr::null_mut;

use adverb_abi::types::*;
use adverb_provider::calls::*;
use libc::{sockaddr, sockaddr_in};

use crate::common::errno;

/// 127.0.0.1, or another address that ends in `last`.
pub(crate) fn here(port: u16) -> sockaddr_in {
    address([127, 0, 0, 1], port)
}

pub(crate) fn address(octets: [u8; 4], port: u16) -> sockaddr_in {
    let mut to: sockaddr_in = unsafe { std::mem::zeroed() };
    to.sin_family = libc::AF_INET as libc::sa_family_t;
    to.sin_port = port.to_be();
    to.sin_addr.s_addr = u32::from_ne_bytes(octets);
    to
}

pub(crate) fn addr(of: &mut sockaddr_in) -> *mut sockaddr {
    (of as *mut sockaddr_in).cast()
}

pub(crate) fn channel() -> *mut rdma_event_channel {
    let channel = unsafe { rdma_create_event_channel() };
    assert!(!channel.is_null(), "errno {}", errno());
    channel
}

pub(crate) fn id(channel: *mut rdma_event_channel, space: rdma_port_space) -> *mut rdma_cm_id {
    let mut id = null_mut();
    let made = unsafe { rdma_create_id(channel, &mut id, null_mut(), space) };
    assert_eq!(made, 0, "errno {}", errno());
    id
}

/// Waits for an event of a kind, and acknowledges it. Its id.
pub(crate) fn pass(channel: *mut rdma_event_channel, kind: rdma_cm_event_type) -> *mut rdma_cm_id {
    let mut event = null_mut();
    unsafe {
        assert_eq!(
            rdma_get_cm_event(channel, &mut event),
            0,
            "errno {}",
            errno()
        );
        assert_eq!((*event).event, kind, "status {}", (*event).status);
        let id = (*event).id;
        assert_eq!(rdma_ack_cm_event(event), 0);
        id
    }
}

pub(crate) fn resolve(id: *mut rdma_cm_id, port: u16) {
    let mut to = here(port);
    let done = unsafe { rdma_resolve_addr(id, null_mut(), addr(&mut to), 1000) };
    assert_eq!(done, 0, "errno {}", errno());
    pass(unsafe { (*id).channel }, RDMA_CM_EVENT_ADDR_RESOLVED);
}

pub(crate) fn route(id: *mut rdma_cm_id, port: u16) {
    resolve(id, port);
    assert_eq!(unsafe { rdma_resolve_route(id, 1000) }, 0);
    pass(unsafe { (*id).channel }, RDMA_CM_EVENT_ROUTE_RESOLVED);
}

pub(crate) fn init(kind: ibv_qp_type) -> ibv_qp_init_attr {
    let mut init = ibv_qp_init_attr::zeroed();
    init.qp_type = kind;
    init.cap.max_send_wr = 4;
    init.cap.max_recv_wr = 4;
    init.cap.max_send_sge = 1;
    init.cap.max_recv_sge = 1;
    init
}

pub(crate) fn pair(id: *mut rdma_cm_id, kind: ibv_qp_type) {
    let made = unsafe { rdma_create_qp(id, null_mut(), &mut init(kind)) };
    assert_eq!(made, 0, "errno {}", errno());
}

pub(crate) struct Ids {
    pub(crate) active: *mut rdma_event_channel,
    pub(crate) passive: *mut rdma_event_channel,
    pub(crate) idle: *mut rdma_cm_id,
    pub(crate) bound: *mut rdma_cm_id,
    pub(crate) listener: *mut rdma_cm_id,
    pub(crate) resolved: *mut rdma_cm_id,
    /// With a queue pair.
    pub(crate) routed: *mut rdma_cm_id,
    /// Without one.
    pub(crate) bare: *mut rdma_cm_id,
    /// A request not yet answered, with a queue pair, and whoever asked.
    pub(crate) requested: *mut rdma_cm_id,
    pub(crate) connecting: *mut rdma_cm_id,
    /// Both ends of a connection.
    pub(crate) connected: *mut rdma_cm_id,
    pub(crate) accepted: *mut rdma_cm_id,
    /// For datagrams, with an address.
    pub(crate) datagram: *mut rdma_cm_id,
}

/// The port of an id.
pub(crate) fn port_of(id: *mut rdma_cm_id) -> u16 {
    u16::from_be(unsafe { rdma_get_src_port(id) })
}

impl Ids {
    pub(crate) fn new() -> Self {
        let (active, passive) = (channel(), channel());
        let bound = id(active, RDMA_PS_TCP);
        let listener = id(passive, RDMA_PS_TCP);
        let resolved = id(active, RDMA_PS_TCP);
        let routed = id(active, RDMA_PS_TCP);
        let bare = id(active, RDMA_PS_TCP);
        let connected = id(active, RDMA_PS_TCP);
        let connecting = id(active, RDMA_PS_TCP);
        let datagram = id(active, RDMA_PS_UDP);
        unsafe {
            assert_eq!(rdma_bind_addr(bound, addr(&mut here(0))), 0);
            assert_eq!(rdma_bind_addr(listener, addr(&mut here(0))), 0);
            assert_eq!(rdma_listen(listener, 0), 0);
            let port = port_of(listener);
            resolve(resolved, port);
            resolve(datagram, port);
            for id in [routed, bare, connected, connecting] {
                route(id, port);
            }
            for id in [routed, connected, connecting] {
                pair(id, IBV_QPT_RC);
            }
            assert_eq!(rdma_connect(connected, null_mut()), 0);
            let accepted = pass(passive, RDMA_CM_EVENT_CONNECT_REQUEST);
            pair(accepted, IBV_QPT_RC);
            assert_eq!(rdma_accept(accepted, null_mut()), 0);
            pass(active, RDMA_CM_EVENT_ESTABLISHED);
            pass(passive, RDMA_CM_EVENT_ESTABLISHED);
            assert_eq!(rdma_connect(connecting, null_mut()), 0);
            let requested = pass(passive, RDMA_CM_EVENT_CONNECT_REQUEST);
            pair(requested, IBV_QPT_RC);
            for channel in [active, passive] {
                assert_eq!(
                    libc::fcntl((*channel).fd, libc::F_SETFL, libc::O_NONBLOCK),
                    0
                );
            }
            Self {
                active,
                passive,
                idle: id(active, RDMA_PS_TCP),
                bound,
                listener,
                resolved,
                routed,
                bare,
                requested,
                connecting,
                connected,
                accepted,
                datagram,
            }
        }
    }

    fn all(&self) -> [*mut rdma_cm_id; 11] {
        [
            self.idle,
            self.bound,
            self.listener,
            self.resolved,
            self.routed,
            self.bare,
            self.requested,
            self.connecting,
            self.connected,
            self.accepted,
            self.datagram,
        ]
    }

    /// All that a program can see of the ids; and no event has come.
    pub(crate) fn state(&self) -> String {
        let mut text = String::new();
        for id in self.all() {
            unsafe {
                let seen = &*id;
                let ports = (rdma_get_src_port(id), rdma_get_dst_port(id));
                let _ = write!(
                    text,
                    "{:?} {:?} {:?} {:?} {:?} {:?} {} {ports:?}",
                    seen.verbs,
                    seen.pd,
                    seen.qp,
                    seen.srq,
                    seen.event,
                    seen.send_cq,
                    seen.route.num_paths,
                );
                if !seen.qp.is_null() {
                    let (mut attr, mut init) = (ibv_qp_attr::zeroed(), ibv_qp_init_attr::zeroed());
                    assert_eq!(ibv_query_qp(seen.qp, &mut attr, 0, &mut init), 0);
                    let _ = write!(text, " in {}", attr.qp_state);
                }
                text.push_str("; ");
            }
        }
        for channel in [self.active, self.passive] {
            let mut event = null_mut();
            assert_eq!(
                unsafe { rdma_get_cm_event(channel, &mut event) },
                -1,
                "an event came"
            );
            assert_eq!(errno(), libc::EAGAIN);
        }
        text
    }

    pub(crate) fn option<T>(&self, id: *mut rdma_cm_id, name: c_int, mut value: T) -> c_int {
        let value = (&raw mut value).cast::<c_void>();
        unsafe { rdma_set_option(id, RDMA_OPTION_ID, name, value, size_of::<T>()) }
    }

    pub(crate) fn connect(
        &self,
        id: *mut rdma_cm_id,
        change: impl FnOnce(&mut rdma_conn_param),
    ) -> c_int {
        let mut param = rdma_conn_param::zeroed();
        param.retry_count = 7;
        change(&mut param);
        unsafe { rdma_connect(id, &mut param) }
    }

    pub(crate) fn accept(
        &self,
        id: *mut rdma_cm_id,
        change: impl FnOnce(&mut rdma_conn_param),
    ) -> c_int {
        let mut param = rdma_conn_param::zeroed();
        change(&mut param);
        unsafe { rdma_accept(id, &mut param) }
    }

    pub(crate) fn join(&self, change: impl FnOnce(&mut rdma_cm_join_mc_attr_ex)) -> c_int {
        let mut group = address([239, 1, 2, 3], 0);
        let mut attr = rdma_cm_join_mc_attr_ex::zeroed();
        attr.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
        attr.addr = addr(&mut group);
        change(&mut attr);
        unsafe { rdma_join_multicast_ex(self.datagram, &mut attr, null_mut()) }
    }

    pub(crate) fn attributes(&self, id: *mut rdma_cm_id, state: ibv_qp_state) -> c_int {
        let mut attr = ibv_qp_attr::zeroed();
        attr.qp_state = state;
        unsafe { rdma_init_qp_attr(id, &mut attr, &mut 0) }
    }
}
