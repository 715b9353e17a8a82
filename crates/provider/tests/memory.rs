//! Windows, device memory, memory on demand, and objects under several names, through the C calls.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "the tests are a C program in all but syntax"
)]

mod common;

use std::ffi::{c_int, c_void};
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::atomic::{AtomicUsize, Ordering};

use adverb_abi::inline;
use adverb_abi::types::*;
use adverb_provider::calls::*;
use common::{World, errno, send_wr, sge};

const EINVAL: c_int = libc::EINVAL;
const REMOTE: u32 = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

/// A domain, memory in it, and two queue pairs that are connected.
struct Pair {
    w: World,
    a: *mut ibv_qp,
    b: *mut ibv_qp,
    memory: Box<[u64; 64]>,
}

impl Pair {
    fn new() -> Self {
        let w = World::new();
        let (a, b) = (w.qp(IBV_QPT_RC), w.qp(IBV_QPT_RC));
        w.pair(a, b);
        let memory = Box::new([0; 64]);
        Self { w, a, b, memory }
    }

    fn post(&self, qp: *mut ibv_qp, wr: &mut ibv_send_wr) -> c_int {
        let mut bad = null_mut();
        unsafe { inline::ibv_post_send(qp, wr, &mut bad) }
    }

    /// The status of one signaled request on `a`.
    fn remote(
        &self,
        opcode: ibv_wr_opcode,
        mut piece: ibv_sge,
        addr: u64,
        rkey: u32,
    ) -> ibv_wc_status {
        let mut wr = send_wr(1, opcode, &mut piece);
        wr.wr.rdma = ibv_send_wr_rdma {
            remote_addr: addr,
            rkey,
        };
        assert_eq!(self.post(self.a, &mut wr), 0);
        self.w.completions(self.w.cq, 1)[0].status
    }
}

fn info(mr: *mut ibv_mr, addr: u64, length: u64, access: u32) -> ibv_mw_bind_info {
    ibv_mw_bind_info {
        mr,
        addr,
        length,
        mw_access_flags: access,
    }
}

fn bind_request(info: ibv_mw_bind_info) -> ibv_mw_bind {
    ibv_mw_bind {
        wr_id: 9,
        send_flags: IBV_SEND_SIGNALED,
        bind_info: info,
    }
}

#[test]
fn a_window_of_type_1_is_bound_counted_up_and_unbound() {
    let mut p = Pair::new();
    unsafe {
        let mr = p.w.register(&mut p.memory[..], REMOTE | IBV_ACCESS_MW_BIND);
        let at = (*mr).addr as u64;
        let mw = inline::ibv_alloc_mw(p.w.pd, IBV_MW_TYPE_1);
        assert!(!mw.is_null());
        let first = (*mw).rkey;
        let mut bind = bind_request(info(mr, at + 8, 16, IBV_ACCESS_REMOTE_WRITE));
        assert_eq!(inline::ibv_bind_mw(p.b, mw, &mut bind), 0);
        assert_eq!(p.w.completions(p.w.cq, 1)[0].opcode, IBV_WC_BIND_MW);
        assert_ne!((*mw).rkey, first);
        assert_eq!((*mw).rkey >> 8, first >> 8);
        assert_eq!(ibv_dereg_mr(mr), libc::EBUSY);
        assert_eq!(ibv_dealloc_pd(p.w.pd), libc::EBUSY);
        let access = IBV_REREG_MR_CHANGE_ACCESS as c_int;
        assert_eq!(
            ibv_rereg_mr(mr, access, null_mut(), null_mut(), 0, 1),
            IBV_REREG_MR_ERR_CMD
        );
        assert_eq!(errno(), libc::EBUSY);

        assert_eq!(
            p.remote(IBV_WR_RDMA_WRITE, sge(mr, 64, 16), at + 8, (*mw).rkey),
            IBV_WC_SUCCESS
        );
        bind.bind_info = info(null_mut(), 0, 0, 0);
        assert_eq!(inline::ibv_bind_mw(p.b, mw, &mut bind), 0);
        assert_eq!(p.w.completions(p.w.cq, 1)[0].status, IBV_WC_SUCCESS);
        assert_eq!(
            p.remote(IBV_WR_RDMA_WRITE, sge(mr, 64, 16), at + 8, (*mw).rkey),
            IBV_WC_REM_ACCESS_ERR
        );
        assert_eq!(inline::ibv_dealloc_mw(mw), 0);
        assert_eq!(ibv_dereg_mr(mr), 0);
    }
}

#[test]
fn windows_refuse_what_cannot_be_bound() {
    let mut p = Pair::new();
    let w = World::new();
    unsafe {
        let mr = p.w.register(&mut p.memory[..], REMOTE | IBV_ACCESS_MW_BIND);
        let at = (*mr).addr as u64;
        assert!(inline::ibv_alloc_mw(p.w.pd, 3).is_null());
        assert_eq!(errno(), EINVAL);
        let ops = &(*p.w.context).ops;
        assert!(ops.alloc_mw.unwrap()(null_mut(), IBV_MW_TYPE_1).is_null());
        assert_eq!(ops.dealloc_mw.unwrap()(null_mut()), EINVAL);
        let one = inline::ibv_alloc_mw(p.w.pd, IBV_MW_TYPE_1);
        let two = inline::ibv_alloc_mw(p.w.pd, IBV_MW_TYPE_2);
        let elsewhere = inline::ibv_alloc_mw(w.pd, IBV_MW_TYPE_1);
        let good = info(mr, at, 8, IBV_ACCESS_REMOTE_WRITE);
        let bind = ops.bind_mw.unwrap();
        let key = (*one).rkey;
        for (qp, mw, what, error) in [
            (p.b, two, good, EINVAL),
            (null_mut(), one, good, EINVAL),
            (p.b, null_mut(), good, EINVAL),
            (p.b, elsewhere, good, libc::EPERM),
            (p.b, one, info(null_mut(), at, 8, 0), EINVAL),
            (p.b, one, info(mr, at, 8, IBV_ACCESS_ZERO_BASED), EINVAL),
            (p.b, one, info(mr, at, 8, IBV_ACCESS_ON_DEMAND), EINVAL),
            (p.b, one, info(mr, at, 8, 1 << 14), EINVAL),
        ] {
            assert_eq!(bind(qp, mw, &mut bind_request(what)), error);
        }
        assert_eq!(bind(p.b, one, null_mut()), EINVAL);
        assert_eq!((*one).rkey, key);

        let mut wr = send_wr(1, IBV_WR_BIND_MW, null_mut());
        for mw in [one, null_mut()] {
            wr.extra.bind_mw = ibv_send_wr_bind_mw {
                mw,
                rkey: key + 1,
                bind_info: good,
            };
            assert_eq!(p.post(p.b, &mut wr), EINVAL);
        }
        // What only the queue can know ends as a completion.
        let beyond = info(mr, at, 513, IBV_ACCESS_REMOTE_WRITE);
        assert_eq!(bind(p.b, one, &mut bind_request(beyond)), 0);
        assert_eq!(p.w.completions(p.w.cq, 1)[0].status, IBV_WC_MW_BIND_ERR);
        assert_eq!((*p.b).state, IBV_QPS_RTS, "as last asked for");
        for mw in [one, two, elsewhere] {
            assert_eq!(inline::ibv_dealloc_mw(mw), 0);
        }
    }
}

#[test]
fn device_memory_is_copied_registered_and_bounded() {
    let mut p = Pair::new();
    unsafe {
        let t = p.w.table();
        let (alloc, free, reg) = (
            t.alloc_dm.unwrap(),
            t.free_dm.unwrap(),
            t.reg_dm_mr.unwrap(),
        );
        let attr = |length, log_align_req, comp_mask| ibv_alloc_dm_attr {
            length,
            log_align_req,
            comp_mask,
        };
        let mut device = ibv_device_attr_ex::zeroed();
        let size = size_of::<ibv_device_attr_ex>();
        let query = t.query_device_ex.unwrap();
        assert_eq!(query(p.w.context, null_mut(), &mut device, size), 0);
        let limit = device.max_dm_size as usize;
        for (bad, error) in [
            (attr(0, 0, 0), EINVAL),
            (attr(limit + 1, 0, 0), EINVAL),
            (attr(usize::MAX, 0, 0), EINVAL),
            (attr(64, 40, 0), EINVAL),
            (attr(64, 0, 1), libc::EOPNOTSUPP),
        ] {
            assert!(alloc(p.w.context, &mut { bad }).is_null());
            assert_eq!(errno(), error);
        }
        assert!(alloc(p.w.context, null_mut()).is_null());
        let all = alloc(p.w.context, &mut attr(limit, 0, 0));
        assert!(alloc(p.w.context, &mut attr(4, 0, 0)).is_null());
        assert_eq!(errno(), libc::ENOMEM);
        assert_eq!(free(all), 0);

        let dm = alloc(p.w.context, &mut attr(100, 6, 0));
        let (to, from) = ((*dm).memcpy_to_dm.unwrap(), (*dm).memcpy_from_dm.unwrap());
        let text = [7u8; 200];
        let mut back = [0u8; 200];
        for (offset, length, error) in [
            (2, 4, EINVAL),
            (4, 3, EINVAL),
            (100, 4, libc::EFAULT),
            (0, 104, libc::EFAULT),
            (u64::MAX - 3, 8, libc::EFAULT),
        ] {
            assert_eq!(to(dm, offset, text.as_ptr().cast(), length), error);
            assert_eq!(from(back.as_mut_ptr().cast(), dm, offset, length), error);
        }
        assert_eq!(to(dm, 8, null_mut(), 4), EINVAL);
        assert_eq!(to(dm, 8, text.as_ptr().cast(), 16), 0);
        assert_eq!(from(back.as_mut_ptr().cast(), dm, 0, 100), 0);
        assert_eq!(back.iter().filter(|b| **b == 7).count(), 16);

        let based = REMOTE | IBV_ACCESS_ZERO_BASED;
        for (offset, length, access) in [
            (0, 100, REMOTE),
            (0, 104, based),
            (96, 8, based),
            (u64::MAX, 8, based),
            (0, 100, based | IBV_ACCESS_ON_DEMAND),
        ] {
            assert!(reg(p.w.pd, dm, offset, length, access).is_null());
            assert_eq!(errno(), EINVAL);
        }
        let other = World::new();
        assert!(
            reg(other.pd, dm, 0, 8, based).is_null(),
            "another device file"
        );
        let mr = reg(p.w.pd, dm, 32, 64, based);
        assert!(!mr.is_null());
        assert_eq!(free(dm), libc::EBUSY);
        assert_eq!(
            ibv_rereg_mr(
                mr,
                IBV_REREG_MR_CHANGE_ACCESS as c_int,
                null_mut(),
                null_mut(),
                0,
                1
            ),
            IBV_REREG_MR_ERR_CMD
        );
        let local = p.w.register(&mut p.memory[..], REMOTE);
        assert_eq!(
            p.remote(IBV_WR_RDMA_READ, sge(local, 0, 64), 0, (*mr).rkey),
            IBV_WC_SUCCESS
        );
        p.memory.fill(u64::MAX);
        assert_eq!(
            p.remote(IBV_WR_RDMA_WRITE, sge(local, 0, 64), 0, (*mr).rkey),
            IBV_WC_SUCCESS
        );
        assert_eq!(from(back.as_mut_ptr().cast(), dm, 0, 100), 0);
        assert_eq!(back.iter().filter(|b| **b == 255).count(), 64);
        assert_eq!(
            p.remote(IBV_WR_RDMA_WRITE, sge(local, 0, 65), 0, (*mr).rkey),
            IBV_WC_REM_ACCESS_ERR
        );
        assert_eq!(ibv_dereg_mr(mr), 0);
        assert_eq!(free(dm), 0);
        assert_eq!(free(null_mut()), EINVAL);
    }
}

/// Two pages, the second of which has been unmapped. They are where the kernel puts nothing by itself: the tests that
/// run beside would fill a hole elsewhere.
fn half_mapped() -> *mut c_void {
    static NEXT: AtomicUsize = AtomicUsize::new(0x10_0000_0000);
    unsafe {
        let at = libc::mmap(
            NEXT.fetch_add(0x1_0000, Ordering::Relaxed) as *mut c_void,
            8192,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        assert_ne!(at, libc::MAP_FAILED);
        assert_eq!(libc::munmap(at.wrapping_byte_add(4096), 4096), 0);
        at
    }
}

#[test]
fn absent_pages_of_regions_on_demand_end_as_completions() {
    for (opcode, expected) in [
        (IBV_WR_RDMA_WRITE, IBV_WC_REM_ACCESS_ERR),
        (IBV_WR_RDMA_READ, IBV_WC_REM_ACCESS_ERR),
    ] {
        for implicit in [false, true] {
            let mut p = Pair::new();
            let at = half_mapped();
            unsafe {
                let access = (REMOTE | IBV_ACCESS_ON_DEMAND) as c_int;
                let mr = match implicit {
                    true => ibv_reg_mr(p.w.pd, null_mut(), usize::MAX, access),
                    false => ibv_reg_mr(p.w.pd, at, 8192, access),
                };
                assert!(!mr.is_null(), "errno {}", errno());
                let local = p.w.register(&mut p.memory[..], REMOTE);
                let addr = at as u64;
                let there = p.remote(opcode, sge(local, 0, 64), addr, (*mr).rkey);
                assert_eq!(there, IBV_WC_SUCCESS);
                let absent = p.remote(opcode, sge(local, 0, 64), addr + 4096 - 32, (*mr).rkey);
                assert_eq!(absent, expected);
            }
        }
    }
    let mut p = Pair::new();
    unsafe {
        let access = (REMOTE | IBV_ACCESS_ON_DEMAND) as c_int;
        let mr = ibv_reg_mr(p.w.pd, null_mut(), usize::MAX, access);
        let local = p.w.register(&mut p.memory[..], REMOTE);
        let piece = ibv_sge {
            addr: 0x10,
            length: 8,
            lkey: (*mr).lkey,
        };
        let status = p.remote(
            IBV_WR_RDMA_WRITE,
            piece,
            (*local).addr as u64,
            (*local).rkey,
        );
        assert_eq!(status, IBV_WC_LOC_PROT_ERR);
        assert!(ibv_reg_mr(p.w.pd, null_mut(), usize::MAX, REMOTE as c_int).is_null());
        assert_eq!(errno(), EINVAL);
    }
}

#[test]
fn advice_looks_at_its_arguments() {
    let mut p = Pair::new();
    let at = half_mapped();
    unsafe {
        let advise = p.w.table().advise_mr.unwrap();
        let access = (IBV_ACCESS_ON_DEMAND) as c_int;
        let mr = ibv_reg_mr(p.w.pd, at, 8192, access);
        let plain = p.w.register(&mut p.memory[..], REMOTE);
        let flush = IBV_ADVISE_MR_FLAG_FLUSH;
        let prefetch = IBV_ADVISE_MR_ADVICE_PREFETCH;
        let write = IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
        let no_fault = IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT;
        let call = |pd, advice, flags, mut piece: ibv_sge| advise(pd, advice, flags, &mut piece, 1);
        let (there, absent) = (sge(mr, 0, 4096), sge(mr, 4000, 200));
        assert_eq!(call(p.w.pd, prefetch, flush, there), 0);
        assert_eq!(
            call(p.w.pd, prefetch, 0, absent),
            0,
            "nobody waits for the outcome"
        );
        assert_eq!(call(p.w.pd, no_fault, flush, absent), 0);
        assert_eq!(call(p.w.pd, prefetch, flush, absent), libc::EFAULT);
        assert_eq!(
            call(p.w.pd, write, flush, there),
            libc::EFAULT,
            "no right to write"
        );
        assert_eq!(
            call(p.w.pd, prefetch, flush, sge(mr, 8000, 400)),
            libc::EFAULT
        );
        assert_eq!(call(p.w.pd, prefetch, flush, sge(plain, 0, 8)), EINVAL);
        assert_eq!(call(p.w.pd, prefetch, 2, there), EINVAL);
        assert_eq!(call(p.w.pd, 99, flush, there), libc::EOPNOTSUPP);
        assert_eq!(call(null_mut(), prefetch, flush, there), EINVAL);
        assert_eq!(advise(p.w.pd, prefetch, flush, &mut { there }, 0), EINVAL);
        assert_eq!(advise(p.w.pd, prefetch, flush, null_mut(), 1), EINVAL);
        let other = ibv_alloc_pd(p.w.context);
        assert_eq!(call(other, prefetch, flush, there), libc::EFAULT);
    }
}

#[test]
fn a_null_region_swallows_writes_and_gives_zeros() {
    let mut p = Pair::new();
    unsafe {
        let null = p.w.table().alloc_null_mr.unwrap()(p.w.pd);
        assert!(!null.is_null());
        p.memory.fill(5);
        let local = p.w.register(&mut p.memory[..], REMOTE);
        let at = (*local).addr as u64;
        let piece = ibv_sge {
            addr: 0x1234_5678,
            length: 64,
            lkey: (*null).lkey,
        };
        assert_eq!(
            p.remote(IBV_WR_RDMA_READ, piece, at, (*local).rkey),
            IBV_WC_SUCCESS
        );
        assert_eq!(
            p.remote(IBV_WR_RDMA_WRITE, piece, at, (*local).rkey),
            IBV_WC_SUCCESS
        );
        assert_eq!(p.memory[..9], [0, 0, 0, 0, 0, 0, 0, 0, 5]);
        let key = (*null).lkey;
        assert_eq!(
            p.remote(IBV_WR_RDMA_WRITE, sge(local, 0, 8), 0, key),
            IBV_WC_REM_ACCESS_ERR
        );
        assert_eq!(ibv_dereg_mr(null), 0);
        assert!(p.w.table().alloc_null_mr.unwrap()(null_mut()).is_null());
    }
}

#[test]
fn objects_are_imported_by_descriptor_and_number() {
    let w = World::new();
    let mut memory = [0u64; 8];
    unsafe {
        let mr = w.register(&mut memory, REMOTE);
        let mut attr = ibv_alloc_dm_attr {
            length: 64,
            log_align_req: 0,
            comp_mask: 0,
        };
        let dm = w.table().alloc_dm.unwrap()(w.context, &mut attr);
        let context = ibv_import_device(libc::dup((*w.context).cmd_fd));
        assert!(!context.is_null(), "errno {}", errno());
        assert_ne!((*context).async_fd, (*w.context).async_fd);
        let pd = ibv_import_pd(context, (*w.pd).handle);
        assert!(!pd.is_null());
        let twin = ibv_import_mr(pd, (*mr).handle);
        assert_eq!((*twin).lkey, (*mr).lkey);
        assert!((*twin).addr.is_null());
        let other = ibv_alloc_pd(context);
        assert!(ibv_import_mr(other, (*mr).handle).is_null());
        assert_eq!(errno(), EINVAL);
        let block = ibv_import_dm(context, (*dm).handle);
        let text = [3u8; 64];
        assert_eq!(
            (*dm).memcpy_to_dm.unwrap()(dm, 0, text.as_ptr().cast(), 64),
            0
        );
        let mut back = [0u8; 64];
        assert_eq!(
            (*block).memcpy_from_dm.unwrap()(back.as_mut_ptr().cast(), block, 0, 64),
            0
        );
        assert_eq!(back, text);

        for handle in [0, 12345, u32::MAX] {
            assert!(ibv_import_pd(context, handle).is_null());
            assert_eq!(errno(), libc::ENOENT);
            assert!(ibv_import_mr(pd, handle).is_null());
            assert!(ibv_import_dm(context, handle).is_null());
        }
        let stranger = World::new();
        assert!(ibv_import_pd(stranger.context, 77).is_null());
        assert!(ibv_import_device(-1).is_null());
        assert_eq!(errno(), libc::EBADF);

        // An object made through the other name keeps the domain busy under both.
        let cq = ibv_create_cq(context, 4, null_mut(), null_mut(), 0);
        let mut init = w.init_attr(IBV_QPT_RC);
        (init.send_cq, init.recv_cq) = (cq, cq);
        let qp = ibv_create_qp(pd, &mut init);
        assert!(!qp.is_null(), "errno {}", errno());
        assert_eq!(ibv_dereg_mr(mr), 0);
        assert_eq!(ibv_dealloc_pd(w.pd), libc::EBUSY);
        assert_eq!(ibv_destroy_qp(qp), 0);
        assert_eq!(ibv_destroy_cq(cq), 0);
        assert!(ibv_import_mr(pd, 1).is_null(), "gone for everybody");
        ibv_unimport_mr(twin);
        ibv_unimport_dm(block);
        ibv_unimport_pd(pd);
        assert_eq!(ibv_dealloc_pd(other), 0);
        assert_eq!(ibv_dealloc_pd(w.pd), 0);
        assert_eq!(w.table().free_dm.unwrap()(dm), 0);
        assert_eq!(ibv_close_device(context), 0);
    }
}

#[test]
fn flush_and_atomic_write_are_built_call_by_call() {
    let w = World::new();
    let operations = IBV_QP_EX_WITH_FLUSH | IBV_QP_EX_WITH_ATOMIC_WRITE | IBV_QP_EX_WITH_BIND_MW;
    let (a, b) = (
        w.qp_ex(IBV_QPT_RC, operations),
        w.qp_ex(IBV_QPT_RC, operations),
    );
    let access = REMOTE | IBV_ACCESS_FLUSH_GLOBAL;
    let mut memory = [0u64; 8];
    unsafe {
        w.init(a, access);
        w.init(b, access);
        w.connect(a, (*b).qp_num);
        w.connect(b, (*a).qp_num);
        let mr = w.register(&mut memory, access);
        let (at, key) = ((*mr).addr as u64, (*mr).rkey);
        let qp = ibv_qp_to_qp_ex(a);
        (*qp).wr_flags = IBV_SEND_SIGNALED;
        let (start, complete) = ((*qp).wr_start.unwrap(), (*qp).wr_complete.unwrap());
        let (write, flush) = ((*qp).wr_atomic_write.unwrap(), (*qp).wr_flush.unwrap());
        start(qp);
        write(qp, key, at + 8, (&raw const EIGHT).cast());
        flush(
            qp,
            key,
            at,
            64,
            IBV_FLUSH_GLOBAL as u8,
            IBV_FLUSH_RANGE as u8,
        );
        flush(qp, key, 0, 0, IBV_FLUSH_GLOBAL as u8, IBV_FLUSH_MR as u8);
        assert_eq!(complete(qp), 0);
        let ended: Vec<_> = w
            .completions(w.cq, 3)
            .iter()
            .map(|c| (c.opcode, c.status))
            .collect();
        assert_eq!(
            ended,
            [
                (IBV_WC_ATOMIC_WRITE, IBV_WC_SUCCESS),
                (IBV_WC_FLUSH, IBV_WC_SUCCESS),
                (IBV_WC_FLUSH, IBV_WC_SUCCESS)
            ]
        );
        assert_eq!((&raw const memory[1]).read_volatile(), EIGHT);

        for (placement, level) in [(0, 0), (4, 0), (1, 2)] {
            start(qp);
            flush(qp, key, at, 8, placement, level);
            assert_eq!(complete(qp), EINVAL);
        }
        start(qp);
        write(qp, key, at + 4, (&raw const EIGHT).cast());
        assert_eq!(complete(qp), EINVAL);
        start(qp);
        write(qp, key, at, null_mut());
        assert_eq!(complete(qp), EINVAL);
        start(qp);
        (*qp).wr_bind_mw.unwrap()(qp, null_mut(), 0, &info(mr, at, 8, 0));
        assert_eq!(complete(qp), EINVAL);
        start(qp);
        (*qp).wr_bind_mw.unwrap()(qp, without_provenance_mut(1), 0, null_mut());
        assert_eq!(complete(qp), EINVAL);
    }
}

static EIGHT: u64 = 0x0102_0304_0506_0708;

/// The kernel's software device takes them, too. They serve accesses of nothing.
#[test]
fn a_region_of_no_bytes_serves_accesses_of_no_bytes() {
    let mut p = Pair::new();
    unsafe {
        let at: *mut c_void = p.memory.as_mut_ptr().cast();
        let empty = ibv_reg_mr(p.w.pd, at, 0, REMOTE as c_int);
        assert!(!empty.is_null(), "errno {}", errno());
        assert_eq!(((*empty).addr, (*empty).length), (at, 0));
        let local = p.w.register(&mut p.memory[..], REMOTE);
        let from = (*local).addr as u64;
        let nothing = sge(local, 0, 0);
        assert_eq!(
            p.remote(IBV_WR_RDMA_WRITE, nothing, from, (*empty).rkey),
            IBV_WC_SUCCESS
        );
        assert_eq!(
            p.remote(IBV_WR_RDMA_WRITE, sge(local, 0, 1), from, (*empty).rkey),
            IBV_WC_REM_ACCESS_ERR
        );
        assert_eq!(ibv_dereg_mr(empty), 0);
        // Also without an address, as `ibv_reg_mr_iova` of soft-RoCE.
        let none = ibv_reg_mr_iova(p.w.pd, null_mut(), 0, 77, REMOTE as c_int);
        assert!(!none.is_null());
        assert_eq!(ibv_dereg_mr(none), 0);
    }
}

/// man ibv_reg_mr: "Use byte offset from beginning of MR to access this MR, instead of a pointer address".
#[test]
fn a_zero_based_region_counts_from_0_by_every_route() {
    let bits = REMOTE | IBV_ACCESS_ZERO_BASED;
    type Register = unsafe fn(*mut ibv_pd, *mut c_void, usize, u32) -> *mut ibv_mr;
    let routes: [Register; 2] = [
        |pd, at, len, bits| unsafe { ibv_reg_mr(pd, at, len, bits as c_int) },
        // What the header's inline function does with bits that are no constant, or optional.
        |pd, at, len, bits| unsafe {
            ibv_reg_mr_iova2(pd, at, len, at as u64, bits | IBV_ACCESS_RELAXED_ORDERING)
        },
    ];
    for register in routes {
        let mut p = Pair::new();
        unsafe {
            p.memory[..8].fill(3);
            let at: *mut c_void = p.memory.as_mut_ptr().cast();
            let local = p.w.register(&mut p.memory[..], REMOTE);
            let mr = register(p.w.pd, at, 512, bits);
            assert!(!mr.is_null(), "errno {}", errno());
            assert_eq!((*mr).addr, at);
            assert_eq!(
                p.remote(IBV_WR_RDMA_WRITE, sge(local, 0, 64), 448, (*mr).rkey),
                IBV_WC_SUCCESS
            );
            assert_eq!(p.memory[56..], [3; 8]);
            assert_eq!(
                p.remote(IBV_WR_RDMA_WRITE, sge(local, 0, 8), at as u64, (*mr).rkey),
                IBV_WC_REM_ACCESS_ERR
            );
        }
    }
}
