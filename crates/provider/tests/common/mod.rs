//! A device, a domain, memory and a connected pair of queue pairs, made through the C calls.
#![allow(dead_code, reason = "each test program uses its part")]
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "the tests are a C program in all but syntax"
)]

use std::ffi::c_int;
use std::io;
use std::ptr::{NonNull, null_mut};
use std::time::{Duration, Instant};

use adverb_abi::inline;
use adverb_abi::types::*;
use adverb_provider::calls::*;

pub(crate) const PORT: u8 = 1;
/// The IPv4 GID of the loopback interface.
pub(crate) const GID_INDEX: u8 = 1;

pub(crate) fn errno() -> c_int {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// An open device with a domain and a CQ; closed with everything else at the end of the process.
pub(crate) struct World {
    pub(crate) context: *mut ibv_context,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) channel: *mut ibv_comp_channel,
    pub(crate) cq: *mut ibv_cq,
    pub(crate) gid: ibv_gid,
}

impl World {
    pub(crate) fn new() -> Self {
        unsafe {
            let mut count = 0;
            let list = ibv_get_device_list(&mut count);
            assert!(
                !list.is_null() && count >= 1,
                "no device: errno {}",
                errno()
            );
            let context = ibv_open_device(*list);
            ibv_free_device_list(list);
            assert!(!context.is_null(), "open_device: errno {}", errno());
            let pd = ibv_alloc_pd(context);
            let channel = ibv_create_comp_channel(context);
            let cq = ibv_create_cq(context, 64, null_mut(), channel, 0);
            assert!(!pd.is_null() && !channel.is_null() && !cq.is_null());
            let mut gid = ibv_gid { raw: [0; 16] };
            assert_eq!(ibv_query_gid(context, PORT, GID_INDEX.into(), &mut gid), 0);
            Self {
                context,
                pd,
                channel,
                cq,
                gid,
            }
        }
    }

    pub(crate) fn table(&self) -> &verbs_context {
        let table = unsafe { inline::verbs_get_ctx(self.context) };
        unsafe {
            NonNull::new(table)
                .expect("the context has a table")
                .as_ref()
        }
    }

    pub(crate) fn init_attr(&self, kind: ibv_qp_type) -> ibv_qp_init_attr {
        let mut init = ibv_qp_init_attr::zeroed();
        init.send_cq = self.cq;
        init.recv_cq = self.cq;
        init.cap = ibv_qp_cap {
            max_send_wr: 8,
            max_recv_wr: 8,
            max_send_sge: 2,
            max_recv_sge: 2,
            max_inline_data: 64,
        };
        init.qp_type = kind;
        init
    }

    pub(crate) fn qp(&self, kind: ibv_qp_type) -> *mut ibv_qp {
        let qp = unsafe { ibv_create_qp(self.pd, &mut self.init_attr(kind)) };
        assert!(!qp.is_null(), "create_qp: errno {}", errno());
        qp
    }

    /// A queue pair with `send_ops_flags`.
    pub(crate) fn qp_ex(&self, kind: ibv_qp_type, operations: u64) -> *mut ibv_qp {
        let plain = self.init_attr(kind);
        let mut init = ibv_qp_init_attr_ex::zeroed();
        init.send_cq = plain.send_cq;
        init.recv_cq = plain.recv_cq;
        init.cap = plain.cap;
        init.qp_type = kind;
        init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        init.pd = self.pd;
        init.send_ops_flags = operations;
        unsafe { self.table().create_qp_ex.expect("slot")(self.context, &mut init) }
    }

    pub(crate) fn address(&self) -> ibv_ah_attr {
        let mut attr = ibv_ah_attr::zeroed();
        attr.is_global = 1;
        attr.grh.dgid = self.gid;
        attr.grh.sgid_index = GID_INDEX;
        attr.grh.hop_limit = 64;
        attr.port_num = PORT;
        attr
    }

    pub(crate) fn init(&self, qp: *mut ibv_qp, access: u32) {
        let mut attr = ibv_qp_attr::zeroed();
        attr.qp_state = IBV_QPS_INIT;
        attr.port_num = PORT;
        attr.qp_access_flags = access;
        attr.qkey = 0x1111_1111;
        let third = if unsafe { (*qp).qp_type } == IBV_QPT_UD {
            IBV_QP_QKEY
        } else {
            IBV_QP_ACCESS_FLAGS
        };
        let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | third;
        assert_eq!(unsafe { ibv_modify_qp(qp, &mut attr, mask as c_int) }, 0);
    }

    /// INIT to RTS; `peer` is the other side's number.
    pub(crate) fn connect(&self, qp: *mut ibv_qp, peer: u32) {
        let mut attr = ibv_qp_attr::zeroed();
        attr.qp_state = IBV_QPS_RTR;
        attr.path_mtu = IBV_MTU_1024;
        attr.dest_qp_num = peer;
        attr.rq_psn = 77;
        attr.max_dest_rd_atomic = 4;
        attr.min_rnr_timer = 12;
        attr.ah_attr = self.address();
        let ud = unsafe { (*qp).qp_type } == IBV_QPT_UD;
        let rtr = if ud {
            IBV_QP_STATE
        } else {
            IBV_QP_STATE
                | IBV_QP_AV
                | IBV_QP_PATH_MTU
                | IBV_QP_DEST_QPN
                | IBV_QP_RQ_PSN
                | IBV_QP_MAX_DEST_RD_ATOMIC
                | IBV_QP_MIN_RNR_TIMER
        };
        assert_eq!(unsafe { ibv_modify_qp(qp, &mut attr, rtr as c_int) }, 0);
        attr.qp_state = IBV_QPS_RTS;
        attr.sq_psn = 77;
        attr.timeout = 14;
        attr.retry_cnt = 7;
        attr.rnr_retry = 7;
        attr.max_rd_atomic = 4;
        let rts = if ud {
            IBV_QP_STATE | IBV_QP_SQ_PSN
        } else {
            IBV_QP_STATE
                | IBV_QP_SQ_PSN
                | IBV_QP_TIMEOUT
                | IBV_QP_RETRY_CNT
                | IBV_QP_RNR_RETRY
                | IBV_QP_MAX_QP_RD_ATOMIC
        };
        assert_eq!(unsafe { ibv_modify_qp(qp, &mut attr, rts as c_int) }, 0);
    }

    /// Two queue pairs that are connected to each other.
    pub(crate) fn pair(&self, a: *mut ibv_qp, b: *mut ibv_qp) {
        let access = IBV_ACCESS_LOCAL_WRITE
            | IBV_ACCESS_REMOTE_WRITE
            | IBV_ACCESS_REMOTE_READ
            | IBV_ACCESS_REMOTE_ATOMIC;
        self.init(a, access);
        self.init(b, access);
        unsafe {
            self.connect(a, (*b).qp_num);
            self.connect(b, (*a).qp_num);
        }
    }

    pub(crate) fn register(&self, memory: &mut [u64], access: u32) -> *mut ibv_mr {
        let mr = unsafe {
            ibv_reg_mr(
                self.pd,
                memory.as_mut_ptr().cast(),
                size_of_val(memory),
                access as c_int,
            )
        };
        assert!(!mr.is_null(), "reg_mr: errno {}", errno());
        mr
    }

    /// Polls until `count` completions have come.
    pub(crate) fn completions(&self, cq: *mut ibv_cq, count: usize) -> Vec<ibv_wc> {
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut all = Vec::new();
        let mut batch = [ibv_wc::zeroed(); 4];
        while all.len() < count {
            let got = unsafe { inline::ibv_poll_cq(cq, 4, batch.as_mut_ptr()) };
            assert!(got >= 0);
            all.extend_from_slice(&batch[..got as usize]);
            assert!(
                Instant::now() < deadline,
                "{} of {count} completions came",
                all.len()
            );
            std::thread::yield_now();
        }
        all
    }

    pub(crate) fn post_recv(&self, qp: *mut ibv_qp, wr_id: u64, piece: &mut ibv_sge) -> c_int {
        let mut wr = ibv_recv_wr::zeroed();
        wr.wr_id = wr_id;
        wr.sg_list = piece;
        wr.num_sge = 1;
        let mut bad = null_mut();
        unsafe { inline::ibv_post_recv(qp, &mut wr, &mut bad) }
    }
}

pub(crate) fn sge(mr: *mut ibv_mr, offset: u64, length: u32) -> ibv_sge {
    unsafe {
        ibv_sge {
            addr: (*mr).addr as u64 + offset,
            length,
            lkey: (*mr).lkey,
        }
    }
}

pub(crate) fn send_wr(wr_id: u64, opcode: ibv_wr_opcode, piece: *mut ibv_sge) -> ibv_send_wr {
    let mut wr = ibv_send_wr::zeroed();
    wr.wr_id = wr_id;
    wr.sg_list = piece;
    wr.num_sge = c_int::from(!piece.is_null());
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr
}
