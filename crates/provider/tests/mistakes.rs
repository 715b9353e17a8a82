//! Common mistakes, and what `ADVERB_LOG=warn` says of each: the page docs/mistakes.md.
//!
//! The test runs itself once more, with logging on, and compares what that process writes to stderr with the page.
//! `ADVERB_BLESS=1 cargo test -p adverb-provider --test mistakes` writes the page anew.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "the tests are a C program in all but syntax"
)]

mod common;

use std::env;
use std::ffi::c_int;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::ptr::null_mut;

use adverb_abi::inline;
use adverb_abi::types::*;
use adverb_provider::calls::*;
use common::{World, errno, send_wr, sge};

const CHILD: &str = "ADVERB_TEST_MISTAKES";
/// Parts the mistakes in the output of the child.
const MARK: &str = "@@mistake";

/// What a mistake comes to: the errno value, however the call reports it.
type Call = fn(&World) -> c_int;

struct Mistake {
    title: &'static str,
    /// What the page says to do instead.
    remedy: &'static str,
    call: Call,
}

/// The errno of a call that returns it, or -1, or NULL.
trait Refused {
    fn refused(self) -> c_int;
}

impl Refused for c_int {
    fn refused(self) -> c_int {
        if self == -1 { errno() } else { self }
    }
}

impl<T> Refused for *mut T {
    fn refused(self) -> c_int {
        if self.is_null() { errno() } else { 0 }
    }
}

fn rtr(w: &World) -> ibv_qp_attr {
    let mut attr = ibv_qp_attr::zeroed();
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = 17;
    attr.max_dest_rd_atomic = 1;
    attr.min_rnr_timer = 12;
    attr.ah_attr = w.address();
    attr
}

const RTR: u32 = IBV_QP_STATE
    | IBV_QP_AV
    | IBV_QP_PATH_MTU
    | IBV_QP_DEST_QPN
    | IBV_QP_RQ_PSN
    | IBV_QP_MAX_DEST_RD_ATOMIC
    | IBV_QP_MIN_RNR_TIMER;

fn modify(qp: *mut ibv_qp, mut attr: ibv_qp_attr, mask: u32) -> c_int {
    unsafe { ibv_modify_qp(qp, &mut attr, mask as c_int) }
}

/// A queue pair in INIT.
fn initialised(w: &World) -> *mut ibv_qp {
    let qp = w.qp(IBV_QPT_RC);
    w.init(qp, IBV_ACCESS_LOCAL_WRITE);
    qp
}

/// A queue pair in RTS, connected to one that takes nothing.
fn connected(w: &World) -> *mut ibv_qp {
    let (a, b) = (w.qp(IBV_QPT_RC), w.qp(IBV_QPT_RC));
    w.pair(a, b);
    a
}

fn post(qp: *mut ibv_qp, mut wr: ibv_send_wr) -> c_int {
    let mut bad = null_mut();
    unsafe { inline::ibv_post_send(qp, &mut wr, &mut bad) }
}

fn memory(w: &World) -> *mut ibv_mr {
    let memory = Box::leak(Box::new([0_u64; 512]));
    w.register(memory, IBV_ACCESS_LOCAL_WRITE)
}

fn register(w: &World, addr: u64, length: usize, access: u32) -> c_int {
    unsafe { ibv_reg_mr(w.pd, addr as *mut _, length, access as c_int) }.refused()
}

fn create_qp(w: &World, change: fn(&mut ibv_qp_init_attr)) -> c_int {
    let mut init = w.init_attr(IBV_QPT_RC);
    change(&mut init);
    unsafe { ibv_create_qp(w.pd, &mut init) }.refused()
}

/// An address of C.
fn ip(octets: [u8; 4], port: u16) -> libc::sockaddr_in {
    let mut to: libc::sockaddr_in = unsafe { std::mem::zeroed() };
    to.sin_family = libc::AF_INET as libc::sa_family_t;
    to.sin_port = port.to_be();
    to.sin_addr.s_addr = u32::from_ne_bytes(octets);
    to
}

/// A synchronous id.
fn id() -> *mut rdma_cm_id {
    let mut id = null_mut();
    let made = unsafe { rdma_create_id(null_mut(), &mut id, null_mut(), RDMA_PS_TCP) };
    assert_eq!(made, 0);
    id
}

/// A synchronous id with a route to a port of this host, and with a queue pair.
fn on_the_way(port: u16) -> *mut rdma_cm_id {
    let (id, mut to) = (id(), ip([127, 0, 0, 1], port));
    let mut init = ibv_qp_init_attr::zeroed();
    init.qp_type = IBV_QPT_RC;
    init.cap.max_send_wr = 1;
    init.cap.max_recv_wr = 1;
    unsafe {
        assert_eq!(
            rdma_resolve_addr(id, null_mut(), (&raw mut to).cast(), 1000),
            0
        );
        assert_eq!(rdma_resolve_route(id, 1000), 0);
        assert_eq!(rdma_create_qp(id, null_mut(), &mut init), 0);
    }
    id
}

const MISTAKES: &[Mistake] = &[
    Mistake {
        title: "An attribute of a step is missing",
        remedy: "Set the attribute and add its bit to the mask: a value whose bit is not in the mask is not read.",
        call: |w| modify(initialised(w), rtr(w), RTR & !IBV_QP_DEST_QPN),
    },
    Mistake {
        title: "A step is left out",
        remedy: "A queue pair goes RESET, INIT, RTR, RTS, one step a call.",
        call: |w| {
            let mut attr = ibv_qp_attr::zeroed();
            attr.qp_state = IBV_QPS_RTS;
            modify(initialised(w), attr, IBV_QP_STATE)
        },
    },
    Mistake {
        title: "An attribute that the step does not take",
        remedy: "The timeouts and the first PSN to send belong to the step to RTS.",
        call: |w| modify(initialised(w), rtr(w), RTR | IBV_QP_TIMEOUT),
    },
    Mistake {
        title: "The access flags of a UD queue pair",
        remedy: "UD has a Q_Key where connections have access flags.",
        call: |w| {
            let mut attr = ibv_qp_attr::zeroed();
            attr.qp_state = IBV_QPS_INIT;
            attr.port_num = 1;
            let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
            modify(w.qp(IBV_QPT_UD), attr, mask)
        },
    },
    Mistake {
        title: "A LID instead of a GID",
        remedy: "RoCE has no LIDs: set is_global and the GRH, with the peer's GID.",
        call: |w| {
            let mut attr = rtr(w);
            attr.ah_attr.is_global = 0;
            attr.ah_attr.dlid = 1;
            modify(initialised(w), attr, RTR)
        },
    },
    Mistake {
        title: "A GID index that the port does not have",
        remedy: "Look at the table first: ibv_query_gid_table, or `ibv_devinfo -v`.",
        call: |w| {
            let mut attr = rtr(w);
            attr.ah_attr.grh.sgid_index = 77;
            modify(initialised(w), attr, RTR)
        },
    },
    Mistake {
        title: "The MTU in bytes",
        remedy: "path_mtu is an enum: IBV_MTU_1024 is 3.",
        call: |w| {
            let mut attr = rtr(w);
            attr.path_mtu = 1024;
            modify(initialised(w), attr, RTR)
        },
    },
    Mistake {
        title: "More reads at a time than the device takes",
        remedy: "Keep within max_qp_rd_atom of ibv_query_device.",
        call: |w| {
            let mut attr = rtr(w);
            attr.max_dest_rd_atomic = 255;
            modify(initialised(w), attr, RTR)
        },
    },
    Mistake {
        title: "Port 0",
        remedy: "Ports count from 1.",
        call: |w| {
            let mut attr = ibv_qp_attr::zeroed();
            attr.qp_state = IBV_QPS_INIT;
            let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
            modify(w.qp(IBV_QPT_RC), attr, mask)
        },
    },
    Mistake {
        title: "Sending too early",
        remedy: "Send in RTS. Receives may be posted from INIT on, and should be.",
        call: |w| {
            let mr = memory(w);
            post(initialised(w), send_wr(1, IBV_WR_SEND, &mut sge(mr, 0, 8)))
        },
    },
    Mistake {
        title: "More requests than the queue holds",
        remedy: "A request leaves the queue when its completion, or that of a later one, is polled.",
        call: |w| {
            let (qp, mr) = (connected(w), memory(w));
            (0..1000)
                .map(|id| post(qp, send_wr(id, IBV_WR_SEND, &mut sge(mr, 0, 8))))
                .find(|errno| *errno != 0)
                .unwrap_or(0)
        },
    },
    Mistake {
        title: "More pieces than the queue pair was created for",
        remedy: "Ask for them at creation: max_send_sge.",
        call: |w| {
            let mr = memory(w);
            let mut pieces = [sge(mr, 0, 8); 5];
            let mut wr = send_wr(1, IBV_WR_SEND, pieces.as_mut_ptr());
            wr.num_sge = 5;
            post(connected(w), wr)
        },
    },
    Mistake {
        title: "Inline data that is too long",
        remedy: "max_inline_data says how much fits, and ibv_create_qp writes back what was granted.",
        call: |w| {
            let mr = memory(w);
            let mut piece = sge(mr, 0, 4000);
            let mut wr = send_wr(1, IBV_WR_SEND, &mut piece);
            wr.send_flags |= IBV_SEND_INLINE;
            post(connected(w), wr)
        },
    },
    Mistake {
        title: "A datagram without an address",
        remedy: "wr.ud.ah, remote_qpn and remote_qkey are set in each request.",
        call: |w| {
            let (a, mr) = (w.qp(IBV_QPT_UD), memory(w));
            w.init(a, 0);
            w.connect(a, 0);
            post(a, send_wr(1, IBV_WR_SEND, &mut sge(mr, 0, 8)))
        },
    },
    Mistake {
        title: "An operation that the transport does not have",
        remedy: "UD sends. READ and atomics need RC, WRITE needs RC or UC.",
        call: |w| {
            let (a, mr) = (w.qp(IBV_QPT_UD), memory(w));
            w.init(a, 0);
            w.connect(a, 0);
            let ah = unsafe { ibv_create_ah(w.pd, &mut w.address()) };
            let mut piece = sge(mr, 0, 8);
            let mut wr = send_wr(1, IBV_WR_RDMA_READ, &mut piece);
            wr.wr.ud = ibv_send_wr_ud {
                ah,
                remote_qpn: 1,
                remote_qkey: 0,
            };
            post(a, wr)
        },
    },
    Mistake {
        title: "A receive on a queue pair with an SRQ",
        remedy: "Post it on the SRQ: ibv_post_srq_recv.",
        call: |w| {
            let mr = memory(w);
            let mut srq_init = ibv_srq_init_attr::zeroed();
            srq_init.attr.max_wr = 4;
            srq_init.attr.max_sge = 1;
            let mut init = w.init_attr(IBV_QPT_RC);
            unsafe {
                init.srq = ibv_create_srq(w.pd, &mut srq_init);
                let qp = ibv_create_qp(w.pd, &mut init);
                w.init(qp, IBV_ACCESS_LOCAL_WRITE);
                w.post_recv(qp, 1, &mut sge(mr, 0, 8))
            }
        },
    },
    Mistake {
        title: "Remote write access without local write access",
        remedy: "Ask for both.",
        call: |w| {
            let memory = [0_u64; 8];
            register(w, memory.as_ptr() as u64, 64, IBV_ACCESS_REMOTE_WRITE)
        },
    },
    Mistake {
        title: "Memory that is not there",
        remedy: "Register what is mapped, and before it is unmapped deregister it.",
        call: |w| register(w, 0x1000, 4096, IBV_ACCESS_LOCAL_WRITE),
    },
    Mistake {
        title: "Constant data registered for writing",
        remedy: "Data in read-only memory can be sent; register it without IBV_ACCESS_LOCAL_WRITE.",
        call: |w| {
            let page = unsafe {
                libc::mmap(
                    0x5_0000_0000 as *mut _,
                    4096,
                    libc::PROT_READ,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                    -1,
                    0,
                )
            };
            register(w, page as u64, 4096, IBV_ACCESS_LOCAL_WRITE)
        },
    },
    Mistake {
        title: "A protection domain goes before what was made in it",
        remedy: "Destroy in the opposite order of creation.",
        call: |w| {
            memory(w);
            unsafe { ibv_dealloc_pd(w.pd) }
        },
    },
    Mistake {
        title: "A completion queue goes before its queue pairs",
        remedy: "Destroy the queue pairs first.",
        call: |w| {
            w.qp(IBV_QPT_RC);
            unsafe { ibv_destroy_cq(w.cq) }
        },
    },
    Mistake {
        title: "A longer queue than the device has",
        remedy: "Keep within max_qp_wr of ibv_query_device.",
        call: |w| create_qp(w, |init| init.cap.max_send_wr = 1 << 20),
    },
    Mistake {
        title: "No completion queue for receives",
        remedy: "Both are needed, even where nothing is received; they may be the same.",
        call: |w| create_qp(w, |init| init.recv_cq = null_mut()),
    },
    Mistake {
        title: "A completion queue without entries",
        remedy: "Ask for as many as can be outstanding on all its queue pairs.",
        call: |w| unsafe { ibv_create_cq(w.context, 0, null_mut(), null_mut(), 0) }.refused(),
    },
    Mistake {
        title: "A completion vector for each core",
        remedy: "Vectors count from 0 to num_comp_vectors of the context, exclusive.",
        call: |w| unsafe { ibv_create_cq(w.context, 16, null_mut(), null_mut(), 8) }.refused(),
    },
    Mistake {
        title: "An SRQ limit beyond its size",
        remedy: "The limit is a number of requests that can be in the queue.",
        call: |w| {
            let mut init = ibv_srq_init_attr::zeroed();
            init.attr.max_wr = 4;
            init.attr.max_sge = 1;
            unsafe {
                let srq = ibv_create_srq(w.pd, &mut init);
                init.attr.srq_limit = 1 << 20;
                ibv_modify_srq(srq, &mut init.attr, IBV_SRQ_LIMIT as c_int)
            }
        },
    },
    Mistake {
        title: "A multicast group that is none",
        remedy: "Multicast GIDs start with ff, or are an IPv4 multicast address behind ::ffff.",
        call: |w| unsafe { ibv_attach_mcast(w.qp(IBV_QPT_UD), &w.gid, 0) },
    },
    Mistake {
        title: "An object of another kind, or one that is gone",
        remedy: "It was recognised this time; memory of a destroyed object may be another object by the next.",
        call: |w| unsafe { ibv_destroy_qp(w.cq.cast()) },
    },
    Mistake {
        title: "Connecting to an address that is not resolved",
        remedy: "First rdma_resolve_addr and rdma_resolve_route, each with its event.",
        call: |_| unsafe { rdma_connect(id(), &mut rdma_conn_param::zeroed()) }.refused(),
    },
    Mistake {
        title: "A queue pair for an id that has no device",
        remedy: "An id gets its device from rdma_resolve_addr, or from rdma_bind_addr with an address of this host.",
        call: |_| {
            let mut init = ibv_qp_init_attr::zeroed();
            unsafe { rdma_create_qp(id(), null_mut(), &mut init) }.refused()
        },
    },
    Mistake {
        title: "More private data than a request has room for",
        remedy: "A request carries 56 bytes of the program's, or 180 on RDMA_PS_UDP; an answer 196 or 136.",
        call: |_| {
            let data = [0_u8; 64];
            let mut param = rdma_conn_param::zeroed();
            param.private_data = data.as_ptr().cast();
            param.private_data_len = 64;
            unsafe { rdma_connect(on_the_way(1), &mut param) }.refused()
        },
    },
    Mistake {
        title: "Nobody listens",
        remedy: "An id with an event channel gets the event RDMA_CM_EVENT_REJECTED with this status instead.",
        call: |_| unsafe { rdma_connect(on_the_way(1), null_mut()) }.refused(),
    },
    Mistake {
        title: "An address that no device has",
        remedy: "Devices stand on the interfaces that ADVERB_NETDEV names, by default on the loopback interface only.",
        call: |_| {
            let mut at = ip([203, 0, 113, 9], 0);
            unsafe { rdma_bind_addr(id(), (&raw mut at).cast()) }.refused()
        },
    },
    Mistake {
        title: "Accepting what is no request",
        remedy: "Each event CONNECT_REQUEST brings an id of its own, beside the listener's; that one is accepted or rejected, once.",
        call: |_| unsafe { rdma_accept(on_the_way(1), null_mut()) }.refused(),
    },
];

/// The child: every mistake, each after its mark.
fn make_them() {
    for (number, mistake) in MISTAKES.iter().enumerate() {
        let world = World::new();
        eprintln!("{MARK} {number}");
        let errno = (mistake.call)(&world);
        eprintln!("{MARK} errno {errno}");
    }
}

fn name_of(errno: &str) -> &'static str {
    match errno.parse() {
        Ok(libc::EINVAL) => "EINVAL",
        Ok(libc::ENOMEM) => "ENOMEM",
        Ok(libc::EBUSY) => "EBUSY",
        Ok(libc::EFAULT) => "EFAULT",
        Ok(libc::EOPNOTSUPP) => "EOPNOTSUPP",
        Ok(libc::ECONNREFUSED) => "ECONNREFUSED",
        Ok(libc::ENODEV) => "ENODEV",
        Ok(0) => "no error",
        _ => "an unexpected errno",
    }
}

/// Numbers that differ from run to run: those of queue pairs, and addresses of objects on the heap.
fn steady(line: &str) -> String {
    // The length of the GID table is the machine's.
    if let Some((before, _)) = line.split_once("sgid_index is 77, the limit is ") {
        return format!("{before}sgid_index is 77, the limit is 2");
    }
    match line.split_once(" on QP 0x") {
        Some((before, rest)) => {
            let rest = rest.trim_start_matches(|c: char| c.is_ascii_hexdigit());
            format!("{before} on QP 0x…{rest}")
        }
        None => line.to_owned(),
    }
}

fn page(stderr: &str) -> String {
    let mut page = String::from(
        "# Common mistakes\n\n\
         With `ADVERB_LOG=warn` each refused call writes one line to stderr: the call, the field, the value, and the\n\
         limit or the bits that are missing. The Rust API has the same words in its errors. This page is written by\n\
         the test `crates/provider/tests/mistakes.rs`, which makes the mistakes.\n",
    );
    let mut number = 0;
    for line in stderr.lines() {
        if let Some(errno) = line.strip_prefix(&format!("{MARK} errno ")) {
            let remedy = MISTAKES[number].remedy;
            page.push_str(&format!(
                "```\n\nThe call gives {}. {remedy}\n",
                name_of(errno)
            ));
        } else if let Some(index) = line.strip_prefix(&format!("{MARK} ")) {
            number = index.parse().expect("a number");
            page.push_str(&format!("\n## {}\n\n```text\n", MISTAKES[number].title));
        } else if line.starts_with("adverb: ") {
            page.push_str(&steady(line));
            page.push('\n');
        }
    }
    page
}

#[test]
fn each_common_mistake_is_told_in_the_words_of_the_page() {
    if env::var_os(CHILD).is_some() {
        make_them();
        return;
    }
    let output = Command::new(env::current_exe().expect("our own path"))
        .args(["--exact", "--nocapture"])
        .arg("each_common_mistake_is_told_in_the_words_of_the_page")
        .env(CHILD, "1")
        .env("ADVERB_LOG", "warn")
        .output()
        .expect("it runs");
    let stderr = String::from_utf8(output.stderr).expect("text");
    assert!(output.status.success(), "{}\n{stderr}", output.status);
    let now = page(&stderr);
    assert_eq!(now.matches("\n## ").count(), MISTAKES.len());
    assert!(
        !now.contains("no error") && !now.contains("unexpected"),
        "{now}"
    );
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/mistakes.md");
    if env::var_os("ADVERB_BLESS").is_some() {
        fs::write(&path, &now).expect("the page can be written");
    }
    let known = fs::read_to_string(&path).expect("the page is there");
    assert_eq!(
        now, known,
        "docs/mistakes.md differs from what is said now; ADVERB_BLESS=1 writes it"
    );
}
