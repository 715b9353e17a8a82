//! Every call of the connection manager with arguments it must refuse, or too early, or too late: the documented errno,
//! nothing changed, no event, no crash.
//!
//! One table, as in `bad_input.rs`.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "the tests are a C program in all but syntax"
)]

mod cm_scene;
mod common;

use std::collections::BTreeSet;
use std::ffi::c_int;
use std::fs;
use std::path::Path;
use std::ptr::{null, null_mut};

use adverb_abi::types::*;
use adverb_provider::calls::*;
use cm_scene::{Ids, addr, address, here, init, port_of};
use common::errno;
use libc::{EADDRINUSE, EADDRNOTAVAIL, EAFNOSUPPORT, EINVAL, ENODEV, EOPNOTSUPP};

struct Row {
    export: &'static str,
    what: &'static str,
    errno: c_int,
    call: fn(&Ids) -> c_int,
}

/// Rows as `function, "what is wrong", ERRNO => |s| expression;`, where the expression is -1 or 0.
macro_rules! rows {
    ($($export:ident, $what:literal, $errno:expr => |$s:ident| $call:expr;)*) => {
        &[$(Row {
            export: stringify!($export),
            what: $what,
            errno: $errno,
            call: |$s| {
                let _ = $s;
                #[allow(unused_unsafe, reason = "some rows call nothing that is unsafe")]
                let result: c_int = unsafe { $call };
                if result == -1 { errno() } else { result }
            },
        },)*]
    };
}

/// An id is asked for a number; 0 with errno is a refusal.
fn zero(port: u16) -> c_int {
    if port == 0 { -1 } else { 0 }
}

const LONG: [u8; 255] = [0; 255];

fn private(param: &mut rdma_conn_param, length: u8) {
    param.private_data = LONG.as_ptr().cast();
    param.private_data_len = length;
}

const ROWS: &[Row] = rows! {
    // Channels and ids.
    rdma_create_id, "nowhere to write", EINVAL => |s| rdma_create_id(s.active, null_mut(), null_mut(), RDMA_PS_TCP);
    rdma_create_id, "no port space", EINVAL => |s| rdma_create_id(s.active, &mut null_mut(), null_mut(), 7);
    rdma_create_id, "a channel that is an id", EINVAL => |s| rdma_create_id(s.idle.cast(), &mut null_mut(), null_mut(), RDMA_PS_TCP);
    rdma_destroy_id, "NULL", EINVAL => |s| rdma_destroy_id(null_mut());
    rdma_destroy_id, "a channel", EINVAL => |s| rdma_destroy_id(s.active.cast());
    rdma_migrate_id, "NULL", EINVAL => |s| rdma_migrate_id(null_mut(), s.active);
    rdma_migrate_id, "a channel that is an id", EINVAL => |s| rdma_migrate_id(s.idle, s.idle.cast());
    rdma_get_src_port, "NULL", EINVAL => |s| zero(rdma_get_src_port(null_mut()));
    rdma_get_dst_port, "a queue pair", EINVAL => |s| zero(rdma_get_dst_port((*s.connected).qp.cast()));

    // Events.
    rdma_get_cm_event, "NULL", EINVAL => |s| rdma_get_cm_event(null_mut(), &mut null_mut());
    rdma_get_cm_event, "nowhere to write", EINVAL => |s| rdma_get_cm_event(s.active, null_mut());
    rdma_ack_cm_event, "NULL", EINVAL => |s| rdma_ack_cm_event(null_mut());
    rdma_ack_cm_event, "an id", EINVAL => |s| rdma_ack_cm_event(s.idle.cast());
    rdma_write_cm_event, "NULL", EINVAL => |s| rdma_write_cm_event(null_mut(), RDMA_CM_EVENT_USER, 0, 0);
    rdma_write_cm_event, "an event that means something", EINVAL => |s| rdma_write_cm_event(s.idle, RDMA_CM_EVENT_ESTABLISHED, 0, 0);

    // Addresses and routes.
    rdma_bind_addr, "NULL", EINVAL => |s| rdma_bind_addr(null_mut(), addr(&mut here(0)));
    rdma_bind_addr, "no address", EINVAL => |s| rdma_bind_addr(s.idle, null_mut());
    rdma_bind_addr, "twice", EINVAL => |s| rdma_bind_addr(s.bound, addr(&mut here(0)));
    rdma_bind_addr, "a taken port", EADDRINUSE => |s| rdma_bind_addr(s.idle, addr(&mut here(port_of(s.listener))));
    rdma_bind_addr, "every address of a taken port", EADDRNOTAVAIL => |s| rdma_bind_addr(s.idle, addr(&mut address([0; 4], port_of(s.listener))));
    rdma_bind_addr, "an address of a port taken for all of them", EADDRNOTAVAIL => |s| {
        let (mut wide, mut id) = (address([0; 4], 0), null_mut());
        assert_eq!(rdma_create_id(s.active, &mut id, null_mut(), RDMA_PS_TCP), 0);
        assert_eq!(rdma_bind_addr(id, addr(&mut wide)), 0);
        let refused = match rdma_bind_addr(s.idle, addr(&mut here(port_of(id)))) {
            -1 => errno(),
            other => other,
        };
        assert_eq!(rdma_destroy_id(id), 0);
        refused
    };
    rdma_bind_addr, "another family", EAFNOSUPPORT => |s| {
        let mut other = here(0);
        other.sin_family = 77;
        rdma_bind_addr(s.idle, addr(&mut other))
    };
    rdma_bind_addr, "somebody else's address", ENODEV => |s| rdma_bind_addr(s.idle, addr(&mut address([203, 0, 113, 9], 0)));
    rdma_listen, "NULL", EINVAL => |s| rdma_listen(null_mut(), 0);
    rdma_listen, "twice", EINVAL => |s| rdma_listen(s.listener, 0);
    rdma_listen, "with an address resolved", EINVAL => |s| rdma_listen(s.resolved, 0);
    rdma_resolve_addr, "NULL", EINVAL => |s| rdma_resolve_addr(null_mut(), null_mut(), addr(&mut here(1)), 1);
    rdma_resolve_addr, "no destination", EINVAL => |s| rdma_resolve_addr(s.idle, addr(&mut here(0)), null_mut(), 1);
    rdma_resolve_addr, "twice", EINVAL => |s| rdma_resolve_addr(s.resolved, null_mut(), addr(&mut here(1)), 1);
    rdma_resolve_addr, "a listener", EINVAL => |s| rdma_resolve_addr(s.listener, null_mut(), addr(&mut here(1)), 1);
    rdma_resolve_addr, "from a taken port", EADDRINUSE => |s| rdma_resolve_addr(s.idle, addr(&mut here(port_of(s.listener))), addr(&mut here(1)), 1);
    rdma_resolve_route, "NULL", EINVAL => |s| rdma_resolve_route(null_mut(), 1);
    rdma_resolve_route, "too early", EINVAL => |s| rdma_resolve_route(s.bound, 1);
    rdma_resolve_route, "twice", EINVAL => |s| rdma_resolve_route(s.routed, 1);
    rdma_getaddrinfo, "nothing at all", EINVAL => |s| rdma_getaddrinfo(null(), null(), null(), &mut null_mut());
    rdma_getaddrinfo, "nowhere to write", EINVAL => |s| rdma_getaddrinfo(c"127.0.0.1".as_ptr(), null(), null(), null_mut());

    // Connections.
    rdma_connect, "NULL", EINVAL => |s| rdma_connect(null_mut(), null_mut());
    rdma_connect, "a new id", EINVAL => |s| s.connect(s.idle, |_| ());
    rdma_connect, "without a route", EINVAL => |s| s.connect(s.resolved, |_| ());
    rdma_connect, "a listener", EINVAL => |s| s.connect(s.listener, |_| ());
    rdma_connect, "twice", EINVAL => |s| s.connect(s.connecting, |_| ());
    rdma_connect, "when connected", EINVAL => |s| s.connect(s.connected, |_| ());
    rdma_connect, "no parameters and no queue pair", EINVAL => |s| rdma_connect(s.bare, null_mut());
    rdma_connect, "too much private data", EINVAL => |s| s.connect(s.routed, |param| private(param, 57));
    rdma_connect, "private data at NULL", EINVAL => |s| s.connect(s.routed, |param| param.private_data_len = 1);
    rdma_connect, "more to answer than the device does", EINVAL => |s| s.connect(s.routed, |param| param.responder_resources = 200);
    rdma_connect, "more to start than the device does", EINVAL => |s| s.connect(s.routed, |param| param.initiator_depth = 200);
    rdma_accept, "NULL", EINVAL => |s| rdma_accept(null_mut(), null_mut());
    rdma_accept, "a listener", EINVAL => |s| s.accept(s.listener, |_| ());
    rdma_accept, "twice", EINVAL => |s| s.accept(s.accepted, |_| ());
    rdma_accept, "too much private data", EINVAL => |s| s.accept(s.requested, |param| private(param, 197));
    rdma_accept, "more to answer than the device does", EINVAL => |s| s.accept(s.requested, |param| param.responder_resources = 200);
    rdma_reject, "NULL", EINVAL => |s| rdma_reject(null_mut(), null(), 0);
    rdma_reject, "a listener", EINVAL => |s| rdma_reject(s.listener, null(), 0);
    rdma_reject, "a connection", EINVAL => |s| rdma_reject(s.accepted, null(), 0);
    rdma_reject, "too much private data", EINVAL => |s| rdma_reject(s.requested, LONG.as_ptr().cast(), 149);
    rdma_reject_ece, "an id that connects", EINVAL => |s| rdma_reject_ece(s.connecting, null(), 0);
    rdma_establish, "NULL", EINVAL => |s| rdma_establish(null_mut());
    rdma_establish, "before the answer", EINVAL => |s| rdma_establish(s.connecting);
    rdma_establish, "when connected", EINVAL => |s| rdma_establish(s.connected);
    rdma_notify, "NULL", EINVAL => |s| rdma_notify(null_mut(), IBV_EVENT_COMM_EST);
    rdma_notify, "a new id", EINVAL => |s| rdma_notify(s.idle, IBV_EVENT_COMM_EST);
    rdma_notify, "another event", EINVAL => |s| rdma_notify(s.connected, IBV_EVENT_QP_FATAL);
    rdma_disconnect, "NULL", EINVAL => |s| rdma_disconnect(null_mut());
    rdma_disconnect, "a new id", EINVAL => |s| rdma_disconnect(s.idle);
    rdma_disconnect, "a listener", EINVAL => |s| rdma_disconnect(s.listener);
    rdma_disconnect, "datagrams", EINVAL => |s| rdma_disconnect(s.datagram);

    // Queue pairs.
    rdma_create_qp, "NULL", EINVAL => |s| rdma_create_qp(null_mut(), null_mut(), &mut init(IBV_QPT_RC));
    rdma_create_qp, "no attributes", EINVAL => |s| rdma_create_qp(s.bare, null_mut(), null_mut());
    rdma_create_qp, "no device", EINVAL => |s| rdma_create_qp(s.idle, null_mut(), &mut init(IBV_QPT_RC));
    rdma_create_qp, "a second one", EINVAL => |s| rdma_create_qp(s.routed, null_mut(), &mut init(IBV_QPT_RC));
    rdma_create_qp, "datagrams on a connection", EINVAL => |s| rdma_create_qp(s.bare, null_mut(), &mut init(IBV_QPT_UD));
    rdma_create_qp, "a connection for datagrams", EINVAL => |s| rdma_create_qp(s.datagram, null_mut(), &mut init(IBV_QPT_RC));
    rdma_create_qp, "XRC", EOPNOTSUPP => |s| rdma_create_qp(s.bare, null_mut(), &mut init(IBV_QPT_XRC_SEND));
    rdma_create_qp, "a huge queue", EINVAL => |s| {
        let mut huge = init(IBV_QPT_RC);
        huge.cap.max_send_wr = 1 << 20;
        rdma_create_qp(s.bare, null_mut(), &mut huge)
    };
    rdma_create_qp, "a domain that is an id", EINVAL => |s| rdma_create_qp(s.bare, s.idle.cast(), &mut init(IBV_QPT_RC));
    rdma_create_qp_ex, "no attributes", EINVAL => |s| rdma_create_qp_ex(s.bare, null_mut());
    rdma_create_qp_ex, "unknown attributes", EOPNOTSUPP => |s| {
        let mut init = ibv_qp_init_attr_ex::zeroed();
        (init.qp_type, init.comp_mask) = (IBV_QPT_RC, 1 << 30);
        rdma_create_qp_ex(s.bare, &mut init)
    };
    rdma_create_srq, "NULL", EINVAL => |s| rdma_create_srq(null_mut(), null_mut(), &mut ibv_srq_init_attr::zeroed());
    rdma_create_srq, "no attributes", EINVAL => |s| rdma_create_srq(s.bare, null_mut(), null_mut());
    rdma_create_srq, "no device", EINVAL => |s| rdma_create_srq(s.idle, null_mut(), &mut ibv_srq_init_attr::zeroed());
    rdma_create_srq, "no entries", EINVAL => |s| rdma_create_srq(s.bare, null_mut(), &mut ibv_srq_init_attr::zeroed());
    rdma_create_srq_ex, "no attributes", EINVAL => |s| rdma_create_srq_ex(s.bare, null_mut());
    rdma_init_qp_attr, "NULL", EINVAL => |s| s.attributes(null_mut(), IBV_QPS_INIT);
    rdma_init_qp_attr, "nowhere to write", EINVAL => |s| rdma_init_qp_attr(s.routed, null_mut(), &mut 0);
    rdma_init_qp_attr, "no device", EINVAL => |s| s.attributes(s.idle, IBV_QPS_INIT);
    rdma_init_qp_attr, "no peer yet", EINVAL => |s| s.attributes(s.connecting, IBV_QPS_RTR);
    rdma_init_qp_attr, "a state that is no step", EINVAL => |s| s.attributes(s.connected, IBV_QPS_SQD);

    // Options and groups.
    rdma_set_option, "NULL", EINVAL => |s| s.option(null_mut(), RDMA_OPTION_ID_TOS, 0_u8);
    rdma_set_option, "a value that is too long", EINVAL => |s| s.option(s.idle, RDMA_OPTION_ID_TOS, 0_u32);
    rdma_set_option, "no value", EINVAL => |s| rdma_set_option(s.idle, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, null_mut(), 1);
    rdma_set_option, "too late", EINVAL => |s| s.option(s.bound, RDMA_OPTION_ID_REUSEADDR, 1_i32);
    rdma_set_option, "too late for the family", EINVAL => |s| s.option(s.listener, RDMA_OPTION_ID_AFONLY, 1_i32);
    rdma_set_option, "no timer code", EINVAL => |s| s.option(s.idle, RDMA_OPTION_ID_ACK_TIMEOUT, 32_u8);
    rdma_set_option, "an unknown option", EOPNOTSUPP => |s| s.option(s.idle, 99, 0_u8);
    rdma_set_option, "a path record", EOPNOTSUPP => |s| rdma_set_option(s.idle, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, null_mut(), 0);
    rdma_set_local_ece, "NULL", EINVAL => |s| rdma_set_local_ece(s.bare, null_mut());
    rdma_set_local_ece, "an id with a queue pair", EINVAL => |s| rdma_set_local_ece(s.routed, &mut ibv_ece::zeroed());
    rdma_set_local_ece, "another vendor", EOPNOTSUPP => |s| {
        let mut ece = ibv_ece::zeroed();
        ece.vendor_id = 1;
        rdma_set_local_ece(s.bare, &mut ece)
    };
    rdma_get_remote_ece, "nowhere to write", EINVAL => |s| rdma_get_remote_ece(s.bare, null_mut());
    rdma_get_remote_ece, "an id with a queue pair", EINVAL => |s| rdma_get_remote_ece(s.routed, &mut ibv_ece::zeroed());
    rdma_join_multicast, "NULL", EINVAL => |s| rdma_join_multicast(null_mut(), addr(&mut address([239, 1, 2, 3], 0)), null_mut());
    rdma_join_multicast, "no group", EINVAL => |s| rdma_join_multicast(s.datagram, addr(&mut here(0)), null_mut());
    rdma_join_multicast, "a connection", EINVAL => |s| rdma_join_multicast(s.resolved, addr(&mut address([239, 1, 2, 3], 0)), null_mut());
    rdma_join_multicast, "no address", EINVAL => |s| rdma_join_multicast(s.datagram, null_mut(), null_mut());
    rdma_join_multicast_ex, "no attributes", EINVAL => |s| rdma_join_multicast_ex(s.datagram, null_mut(), null_mut());
    rdma_join_multicast_ex, "unknown attributes", EINVAL => |s| s.join(|attr| attr.comp_mask |= 1 << 9);
    rdma_join_multicast_ex, "no flags", EINVAL => |s| s.join(|attr| attr.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS);
    rdma_join_multicast_ex, "unknown flags", EINVAL => |s| s.join(|attr| attr.join_flags = 2);
    rdma_leave_multicast, "NULL", EINVAL => |s| rdma_leave_multicast(null_mut(), addr(&mut address([239, 1, 2, 3], 0)));
    rdma_leave_multicast, "a group that was not joined", EADDRNOTAVAIL => |s| rdma_leave_multicast(s.datagram, addr(&mut address([239, 1, 2, 3], 0)));

    // Endpoints.
    rdma_create_ep, "nowhere to write", EINVAL => |s| rdma_create_ep(null_mut(), &mut rdma_addrinfo::zeroed(), null_mut(), null_mut());
    rdma_create_ep, "no addresses", EINVAL => |s| rdma_create_ep(&mut null_mut(), null_mut(), null_mut(), null_mut());
    rdma_create_ep, "no port space", EINVAL => |s| rdma_create_ep(&mut null_mut(), &mut rdma_addrinfo::zeroed(), null_mut(), null_mut());
    rdma_create_ep, "XRC", EOPNOTSUPP => |s| {
        let mut info = rdma_addrinfo::zeroed();
        (info.ai_port_space, info.ai_qp_type) = (RDMA_PS_TCP as c_int, IBV_QPT_XRC_SEND as c_int);
        rdma_create_ep(&mut null_mut(), &mut info, null_mut(), null_mut())
    };
    rdma_get_request, "NULL", EINVAL => |s| rdma_get_request(null_mut(), &mut null_mut());
    rdma_get_request, "nowhere to write", EINVAL => |s| rdma_get_request(s.listener, null_mut());
    rdma_get_request, "a listener with a channel", EINVAL => |s| rdma_get_request(s.listener, &mut null_mut());
};

/// Exports that take no argument that could be wrong, or return nothing.
const NO_ROWS: &[&str] = &[
    "rdma_create_event_channel",
    "rdma_destroy_event_channel",
    "rdma_event_str",
    "rdma_get_devices",
    "rdma_free_devices",
    "rdma_freeaddrinfo",
    "rdma_destroy_ep",
    "rdma_destroy_qp",
    "rdma_destroy_srq",
];

#[test]
fn each_bad_argument_has_its_errno_and_changes_nothing() {
    // A call that waits for ever must not outlive the test.
    unsafe { libc::alarm(60) };
    let ids = Ids::new();
    let before = ids.state();
    let mut wrong = Vec::new();
    for row in ROWS {
        let found = (row.call)(&ids);
        if found != row.errno {
            wrong.push(format!(
                "{} ({}): {found} instead of {}",
                row.export, row.what, row.errno
            ));
        }
        assert_eq!(ids.state(), before, "{} ({})", row.export, row.what);
    }
    assert!(
        wrong.is_empty(),
        "{} of {} rows:\n{}",
        wrong.len(),
        ROWS.len(),
        wrong.join("\n")
    );
    // What was refused can still be done right.
    unsafe {
        assert_eq!(rdma_accept(ids.requested, null_mut()), 0);
        assert_eq!(rdma_disconnect(ids.connected), 0);
        for id in [
            ids.requested,
            ids.connecting,
            ids.connected,
            ids.accepted,
            ids.routed,
        ] {
            rdma_destroy_qp(id);
            assert_eq!(rdma_destroy_id(id), 0);
        }
        for id in [
            ids.idle,
            ids.bound,
            ids.listener,
            ids.resolved,
            ids.bare,
            ids.datagram,
        ] {
            assert_eq!(rdma_destroy_id(id), 0);
        }
        rdma_destroy_event_channel(ids.active);
        rdma_destroy_event_channel(ids.passive);
    }
}

#[test]
fn calls_that_return_nothing_come_back_from_nothing() {
    unsafe {
        rdma_destroy_event_channel(null_mut());
        rdma_free_devices(null_mut());
        rdma_freeaddrinfo(null_mut());
        rdma_destroy_ep(null_mut());
        rdma_destroy_qp(null_mut());
        rdma_destroy_srq(null_mut());
        assert!(!rdma_event_str(u32::MAX).is_null());
    }
}

#[test]
fn every_exported_function_has_a_row() {
    let table = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dropin/src/table/rdmacm.rs");
    let text = fs::read_to_string(table).expect("the table of exports");
    let have: BTreeSet<&str> = ROWS
        .iter()
        .map(|row| row.export)
        .chain(NO_ROWS.iter().copied())
        .collect();
    let exported = text.lines().filter_map(|line| {
        let (name, rest) = line.trim().strip_prefix("$row!(")?.split_once(", ")?;
        rest.starts_with("code").then_some(name)
    });
    let without: Vec<&str> = exported.filter(|name| !have.contains(name)).collect();
    assert!(without.is_empty(), "{without:?}");
}
