//! One object of every kind in two contexts, and calls that differ in one argument from a good one.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "the tests are a C program in all but syntax"
)]

use std::ffi::{c_int, c_void};
use std::fmt::Write as _;
use std::ptr::null_mut;

use adverb_abi::inline;
use adverb_abi::types::*;
use adverb_provider::calls::*;

use crate::common::{World, errno, send_wr, sge};

/// The errno of a call that returns it, or -1, or NULL; 0 when it was not refused.
pub(crate) trait Refused {
    fn refused(self) -> c_int;
}

impl Refused for c_int {
    fn refused(self) -> c_int {
        // -4 is how ibv_rereg_mr says that it could not be done.
        if matches!(self, -1 | IBV_REREG_MR_ERR_CMD) {
            errno()
        } else {
            self
        }
    }
}

impl<T> Refused for *mut T {
    fn refused(self) -> c_int {
        if self.is_null() { errno() } else { 0 }
    }
}

pub(crate) struct Scene {
    pub(crate) a: World,
    /// Another context of the same device.
    pub(crate) b: World,
    /// In the middle of much memory: for pointers that are taken for something large.
    pub(crate) wide: *mut u64,
    pub(crate) mr: *mut ibv_mr,
    /// In another domain of the same context.
    pub(crate) other_mr: *mut ibv_mr,
    pub(crate) td: *mut ibv_td,
    pub(crate) dm: *mut ibv_dm,
    /// Windows of type 1 and 2.
    pub(crate) mw: *mut ibv_mw,
    pub(crate) mw2: *mut ibv_mw,
    pub(crate) srq: *mut ibv_srq,
    /// In the other context.
    pub(crate) other_srq: *mut ibv_srq,
    /// Queue pairs in INIT, RESET, RTS, and with an SRQ.
    pub(crate) qp: *mut ibv_qp,
    pub(crate) reset: *mut ibv_qp,
    pub(crate) rts: *mut ibv_qp,
    pub(crate) with_srq: *mut ibv_qp,
    /// Datagram queue pairs: in INIT, in RTS, and a member of the group.
    pub(crate) ud: *mut ibv_qp,
    pub(crate) ud_rts: *mut ibv_qp,
    pub(crate) member: *mut ibv_qp,
    pub(crate) group: ibv_gid,
    pub(crate) ah: *mut ibv_ah,
}

fn srq(pd: *mut ibv_pd, max_wr: u32, max_sge: u32) -> *mut ibv_srq {
    let mut init = ibv_srq_init_attr::zeroed();
    init.attr.max_wr = max_wr;
    init.attr.max_sge = max_sge;
    unsafe { ibv_create_srq(pd, &mut init) }
}

fn there<T>(object: *mut T) -> *mut T {
    assert!(!object.is_null(), "errno {}", errno());
    object
}

impl Scene {
    pub(crate) fn new() -> Self {
        let (a, b) = (World::new(), World::new());
        let access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
        let memory: &'static mut [u64; 512] = Box::leak(Box::new([0; 512]));
        let mr = a.register(memory, access);
        let (qp, reset, rts) = (a.qp(IBV_QPT_RC), a.qp(IBV_QPT_RC), a.qp(IBV_QPT_RC));
        a.init(qp, IBV_ACCESS_LOCAL_WRITE);
        a.pair(rts, a.qp(IBV_QPT_RC));
        let (ud, ud_rts, member) = (a.qp(IBV_QPT_UD), a.qp(IBV_QPT_UD), a.qp(IBV_QPT_UD));
        a.init(ud, 0);
        a.init(member, 0);
        a.init(ud_rts, 0);
        a.connect(ud_rts, 0);
        let group = ibv_gid {
            raw: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 3],
        };
        let of_group = srq(a.pd, 8, 2);
        unsafe {
            assert_eq!(ibv_attach_mcast(member, &group, 0), 0);
            let other_pd = there(ibv_alloc_pd(a.context));
            let at = memory.as_mut_ptr().cast();
            let other_mr = there(ibv_reg_mr(other_pd, at, 64, access as c_int));
            let alloc_td = a.table().alloc_td.expect("slot");
            let td = there(alloc_td(a.context, &mut ibv_td_init_attr::zeroed()));
            let mut init = a.init_attr(IBV_QPT_RC);
            init.srq = of_group;
            let with_srq = there(ibv_create_qp(a.pd, &mut init));
            a.init(with_srq, 0);
            let mut scene = Self {
                wide: Box::leak(Box::new([0_u64; 512]))[256..].as_mut_ptr(),
                mr,
                other_mr,
                td,
                dm: null_mut(),
                mw: there(inline::ibv_alloc_mw(a.pd, IBV_MW_TYPE_1)),
                mw2: there(inline::ibv_alloc_mw(a.pd, IBV_MW_TYPE_2)),
                srq: of_group,
                other_srq: there(srq(b.pd, 4, 1)),
                qp,
                reset,
                rts,
                with_srq,
                ud,
                ud_rts,
                member,
                group,
                ah: there(ibv_create_ah(a.pd, &mut a.address())),
                a,
                b,
            };
            scene.dm = there(scene.device_memory(64, 0, 0));
            // Makes the thread domain busy.
            there(scene.parent(scene.a.pd, td, 0));
            scene
        }
    }

    pub(crate) fn table(&self) -> &verbs_context {
        self.a.table()
    }

    /// Memory of the region.
    pub(crate) fn at(&self) -> *mut c_void {
        unsafe { (*self.mr).addr }
    }

    /// All that a program can see of the objects.
    pub(crate) fn state(&self) -> String {
        let mut text = String::new();
        let queue_pairs = [
            self.qp,
            self.reset,
            self.rts,
            self.with_srq,
            self.ud,
            self.ud_rts,
            self.member,
        ];
        for qp in queue_pairs {
            let (mut attr, mut init) = (ibv_qp_attr::zeroed(), ibv_qp_init_attr::zeroed());
            assert_eq!(unsafe { ibv_query_qp(qp, &mut attr, 0, &mut init) }, 0);
            let gid = unsafe { attr.ah_attr.grh.dgid.raw };
            let _ = write!(
                text,
                "{} {} {} {} {} {} {} {} {gid:?} {:?}; ",
                attr.qp_state,
                attr.path_mtu,
                attr.qkey,
                attr.rq_psn,
                attr.sq_psn,
                attr.dest_qp_num,
                attr.qp_access_flags,
                attr.pkey_index,
                attr.cap,
            );
        }
        for srq in [self.srq, self.other_srq] {
            let mut attr = ibv_srq_attr::zeroed();
            assert_eq!(unsafe { ibv_query_srq(srq, &mut attr) }, 0);
            let _ = write!(
                text,
                "{} {} {}; ",
                attr.max_wr, attr.max_sge, attr.srq_limit
            );
        }
        unsafe {
            for mr in [self.mr, self.other_mr] {
                let mr = &*mr;
                let _ = write!(
                    text,
                    "{:?} {} {} {}; ",
                    mr.addr, mr.length, mr.lkey, mr.rkey
                );
            }
            let _ = write!(
                text,
                "{} {} {}",
                (*self.a.cq).cqe,
                (*self.mw).rkey,
                (*self.mw2).rkey
            );
            assert_eq!(
                inline::ibv_poll_cq(self.a.cq, 1, &mut ibv_wc::zeroed()),
                0,
                "a completion came"
            );
        }
        text
    }

    /// A call while a handle says something else.
    pub(crate) fn altered(&self, handle: *mut u32, call: impl FnOnce() -> c_int) -> c_int {
        let was = unsafe { *handle };
        unsafe { *handle = was ^ 0x5a5a };
        let errno = call();
        unsafe { *handle = was };
        errno
    }

    /// A call while an object says that it is of the other context, which has no object of that number.
    pub(crate) fn elsewhere(
        &self,
        context: *mut *mut ibv_context,
        call: impl FnOnce() -> c_int,
    ) -> c_int {
        let was = unsafe { *context };
        unsafe { *context = self.b.context };
        let errno = call();
        unsafe { *context = was };
        errno
    }

    pub(crate) fn parent(&self, pd: *mut ibv_pd, td: *mut ibv_td, mask: u32) -> *mut ibv_pd {
        let mut attr = ibv_parent_domain_init_attr::zeroed();
        (attr.pd, attr.td, attr.comp_mask) = (pd, td, mask);
        unsafe { self.table().alloc_parent_domain.expect("slot")(self.a.context, &mut attr) }
    }

    pub(crate) fn device_memory(&self, length: usize, align: u32, mask: u32) -> *mut ibv_dm {
        let mut attr = ibv_alloc_dm_attr::zeroed();
        (attr.length, attr.log_align_req, attr.comp_mask) = (length, align, mask);
        unsafe { self.table().alloc_dm.expect("slot")(self.a.context, &mut attr) }
    }

    pub(crate) fn bind(&self, mw: *mut ibv_mw, mr: *mut ibv_mr, length: u64) -> c_int {
        let mut bind = ibv_mw_bind::zeroed();
        bind.bind_info.mr = mr;
        bind.bind_info.addr = self.at() as u64;
        bind.bind_info.length = length;
        unsafe { inline::ibv_bind_mw(self.rts, mw, &mut bind) }
    }

    pub(crate) fn cq_ex(&self, change: impl FnOnce(&mut ibv_cq_init_attr_ex)) -> *mut ibv_cq_ex {
        let mut attr = ibv_cq_init_attr_ex::zeroed();
        attr.cqe = 4;
        change(&mut attr);
        unsafe { self.table().create_cq_ex.expect("slot")(self.a.context, &mut attr) }
    }

    pub(crate) fn srq_of(&self, pd: *mut ibv_pd, max_wr: u32, max_sge: u32) -> *mut ibv_srq {
        srq(pd, max_wr, max_sge)
    }

    pub(crate) fn srq_ex(&self, change: impl FnOnce(&mut ibv_srq_init_attr_ex)) -> *mut ibv_srq {
        let mut attr = ibv_srq_init_attr_ex::zeroed();
        attr.attr.max_wr = 4;
        attr.attr.max_sge = 1;
        attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
        attr.srq_type = IBV_SRQT_BASIC;
        attr.pd = self.a.pd;
        change(&mut attr);
        unsafe { self.table().create_srq_ex.expect("slot")(self.a.context, &mut attr) }
    }

    pub(crate) fn xrcd(&self, mask: u32, fd: c_int) -> *mut ibv_xrcd {
        let mut attr = ibv_xrcd_init_attr::zeroed();
        (attr.comp_mask, attr.fd, attr.oflags) = (mask, fd, libc::O_CREAT);
        unsafe { self.table().open_xrcd.expect("slot")(self.a.context, &mut attr) }
    }

    pub(crate) fn create(&self, change: impl FnOnce(&mut ibv_qp_init_attr)) -> c_int {
        let mut init = self.a.init_attr(IBV_QPT_RC);
        change(&mut init);
        unsafe { ibv_create_qp(self.a.pd, &mut init) }.refused()
    }

    pub(crate) fn create_ex(&self, change: impl FnOnce(&mut ibv_qp_init_attr_ex)) -> *mut ibv_qp {
        let plain = self.a.init_attr(IBV_QPT_RC);
        let mut init = ibv_qp_init_attr_ex::zeroed();
        (init.send_cq, init.recv_cq) = (plain.send_cq, plain.recv_cq);
        (init.cap, init.qp_type) = (plain.cap, plain.qp_type);
        (init.comp_mask, init.pd) = (IBV_QP_INIT_ATTR_PD, self.a.pd);
        change(&mut init);
        unsafe { self.table().create_qp_ex.expect("slot")(self.a.context, &mut init) }
    }

    /// Modifies the queue pair that is in INIT.
    pub(crate) fn modify(&self, mask: u32, change: impl FnOnce(&mut ibv_qp_attr)) -> c_int {
        let mut attr = ibv_qp_attr::zeroed();
        attr.path_mtu = IBV_MTU_1024;
        attr.dest_qp_num = 17;
        attr.max_dest_rd_atomic = 1;
        attr.min_rnr_timer = 12;
        attr.ah_attr = self.a.address();
        attr.port_num = 1;
        change(&mut attr);
        unsafe { ibv_modify_qp(self.qp, &mut attr, mask as c_int) }
    }

    pub(crate) fn to_rtr(&self, change: impl FnOnce(&mut ibv_qp_attr)) -> c_int {
        self.to_rtr_with(0, change)
    }

    pub(crate) fn to_rtr_with(&self, also: u32, change: impl FnOnce(&mut ibv_qp_attr)) -> c_int {
        let mask = IBV_QP_STATE
            | IBV_QP_AV
            | IBV_QP_PATH_MTU
            | IBV_QP_DEST_QPN
            | IBV_QP_RQ_PSN
            | IBV_QP_MAX_DEST_RD_ATOMIC
            | IBV_QP_MIN_RNR_TIMER
            | also;
        self.modify(mask, |attr| {
            attr.qp_state = IBV_QPS_RTR;
            change(attr);
        })
    }

    /// Posts one request; it must be named as the bad one.
    pub(crate) fn send(&self, qp: *mut ibv_qp, change: impl FnOnce(&mut ibv_send_wr)) -> c_int {
        let mut piece = sge(self.mr, 0, 4);
        let mut wr = send_wr(1, IBV_WR_SEND, &mut piece);
        change(&mut wr);
        let mut bad = null_mut();
        let errno = unsafe { inline::ibv_post_send(qp, &mut wr, &mut bad) };
        assert_eq!(bad, &raw mut wr);
        errno
    }

    pub(crate) fn send_long_inline(&self) -> c_int {
        let mut piece = sge(self.mr, 0, 4096);
        self.send(self.rts, |wr| {
            wr.sg_list = &raw mut piece;
            wr.send_flags = IBV_SEND_INLINE;
        })
    }

    pub(crate) fn send_datagram(&self, opcode: ibv_wr_opcode, ah: *mut ibv_ah) -> c_int {
        self.send(self.ud_rts, |wr| {
            wr.opcode = opcode;
            wr.wr.ud = ibv_send_wr_ud {
                ah,
                remote_qpn: 1,
                remote_qkey: 0,
            };
        })
    }

    fn recv_wr(
        &self,
        pieces: c_int,
        post: impl FnOnce(*mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int,
    ) -> c_int {
        let mut piece = sge(self.mr, 0, 4);
        let mut wr = ibv_recv_wr::zeroed();
        wr.sg_list = &raw mut piece;
        wr.num_sge = pieces;
        let mut bad = null_mut();
        let errno = post(&raw mut wr, &raw mut bad);
        assert_eq!(bad, &raw mut wr);
        errno
    }

    pub(crate) fn recv(&self, qp: *mut ibv_qp, pieces: c_int) -> c_int {
        self.recv_wr(pieces, |wr, bad| unsafe {
            inline::ibv_post_recv(qp, wr, bad)
        })
    }

    pub(crate) fn srq_recv(&self, srq: *mut ibv_srq, pieces: c_int) -> c_int {
        self.recv_wr(pieces, |wr, bad| unsafe {
            inline::ibv_post_srq_recv(srq, wr, bad)
        })
    }

    pub(crate) fn address(&self, change: impl FnOnce(&mut ibv_ah_attr)) -> *mut ibv_ah {
        let mut attr = self.a.address();
        change(&mut attr);
        unsafe { ibv_create_ah(self.a.pd, &mut attr) }
    }
}
