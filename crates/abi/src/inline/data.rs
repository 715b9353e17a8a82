//! The classic data path: five slots that every provider fills, and memory windows.

use std::ffi::c_int;

use super::fail;
use crate::types::*;

/// Calls a slot of `ibv_context_ops`, or answers EOPNOTSUPP where a library left it empty.
///
/// C jumps without looking. A NULL here would be a broken provider; an errno costs one compare.
macro_rules! op {
    ($context:expr, $slot:ident($($arg:expr),*)) => {
        match (*$context).ops.$slot {
            Some(function) => function($($arg),*),
            None => libc::EOPNOTSUPP,
        }
    };
}

/// Posts a chain of send requests. On failure `*bad_wr` is the first one not posted.
#[inline]
pub unsafe fn ibv_post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the module's contract.
    unsafe { op!((*qp).context, post_send(qp, wr, bad_wr)) }
}

/// Posts a chain of receive requests. On failure `*bad_wr` is the first one not posted.
#[inline]
pub unsafe fn ibv_post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the module's contract.
    unsafe { op!((*qp).context, post_recv(qp, wr, bad_wr)) }
}

/// Posts a chain of receive requests to an SRQ.
#[inline]
pub unsafe fn ibv_post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the module's contract.
    unsafe { op!((*srq).context, post_srq_recv(srq, wr, bad_wr)) }
}

/// Takes up to `num_entries` completions; returns how many, or a negative number.
///
/// `wc` has room for `num_entries` of them.
#[inline]
pub unsafe fn ibv_poll_cq(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the module's contract.
    unsafe {
        match (*(*cq).context).ops.poll_cq {
            Some(poll) => poll(cq, num_entries, wc),
            None => -libc::EOPNOTSUPP,
        }
    }
}

/// Arms a CQ: the next completion (or solicited completion) makes one event on its channel.
#[inline]
pub unsafe fn ibv_req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: the module's contract.
    unsafe { op!((*cq).context, req_notify_cq(cq, solicited_only)) }
}

/// Posts receive requests to a WQ. The slot is in the WQ itself.
#[inline]
pub unsafe fn ibv_post_wq_recv(
    wq: *mut ibv_wq,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the module's contract.
    unsafe {
        match (*wq).post_recv {
            Some(post) => post(wq, wr, bad_wr),
            None => libc::EOPNOTSUPP,
        }
    }
}

/// Allocates a memory window; NULL and `errno` on failure.
pub unsafe fn ibv_alloc_mw(pd: *mut ibv_pd, kind: ibv_mw_type) -> *mut ibv_mw {
    // SAFETY: the module's contract.
    unsafe {
        match (*(*pd).context).ops.alloc_mw {
            Some(alloc) => alloc(pd, kind),
            None => fail(libc::EOPNOTSUPP),
        }
    }
}

/// Frees a memory window.
pub unsafe fn ibv_dealloc_mw(mw: *mut ibv_mw) -> c_int {
    // SAFETY: the module's contract.
    unsafe { op!((*mw).context, dealloc_mw(mw)) }
}

/// Binds a window of type 1 by a request of its own. Type 2 windows are bound by work requests.
///
/// The range must lie in the region and both must be of one PD; a NULL region unbinds and then
/// takes no range. These checks are the caller's half of the interface: providers rely on them.
pub unsafe fn ibv_bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, bind: *mut ibv_mw_bind) -> c_int {
    // SAFETY: the module's contract.
    unsafe {
        let info = &(*bind).bind_info;
        if (*mw).r#type != IBV_MW_TYPE_1 {
            return libc::EINVAL;
        }
        if info.mr.is_null() {
            if info.addr != 0 || info.length != 0 {
                return libc::EINVAL;
            }
        } else {
            let mr = &*info.mr;
            if (*mw).pd != mr.pd {
                return libc::EPERM;
            }
            let start = mr.addr.addr() as u64;
            let inside = info.addr.checked_sub(start).is_some_and(|offset| {
                offset
                    .checked_add(info.length)
                    .is_some_and(|end| end <= mr.length as u64)
            });
            if !inside {
                return libc::EINVAL;
            }
        }
        op!((*mw).context, bind_mw(qp, mw, bind))
    }
}

/// The next key for a type 2 window: the low byte counts up and wraps, the index stays.
pub fn ibv_inc_rkey(rkey: u32) -> u32 {
    (rkey & !0xff) | (rkey.wrapping_add(1) & 0xff)
}
