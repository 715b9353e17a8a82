//! The verbs that exist only as `static inline` functions in C headers.
//!
//! No library exports them: they jump through the tables of the context, the QP or the CQ they
//! are given. A missing slot is EOPNOTSUPP, returned where C returns an errno value, and stored
//! in `errno` beside a NULL where C returns a pointer. Names are the C names.
//!
//! Split by table: `data` has the classic data path of `ibv_context_ops`, `control` the
//! sized slots of `verbs_context`, `ex` the per-object tables of `ibv_qp_ex` and `ibv_cq_ex`.
//!
//! # Safety
//! All functions share one contract, that of the C functions: every pointer handed in is live,
//! of the type it claims, came from the library whose table it leads to, and no other thread
//! destroys the object meanwhile. Argument structures are readable, result structures writable.
//! Where NULL is allowed, the function says so.
// The contract above is each function's; repeating it ninety times would hide the differences.
#![allow(clippy::missing_safety_doc)]

mod control;
mod data;
mod ex;

pub use control::*;
pub use data::*;
pub use ex::*;

use std::mem::offset_of;

use crate::types::*;

/// The full table around a context, or NULL when a library too old to have one made it.
///
/// The pointer must come from the library (or provider) that allocated the whole table.
pub unsafe fn verbs_get_ctx(context: *mut ibv_context) -> *mut verbs_context {
    // SAFETY: the caller's context is live. All ones in `abi_compat` is the library's word that
    // the context is the last member of a `verbs_context`, so stepping back stays inside it.
    unsafe {
        if (*context).abi_compat.addr() != VERBS_ABI_IS_EXTENDED {
            return std::ptr::null_mut();
        }
        context.byte_sub(offset_of!(verbs_context, context)).cast()
    }
}

/// The function in a slot of the context's table, if the table is large enough and has it.
///
/// The table grows at its front, so "large enough" compares the distance from the slot to the
/// end with the size the library wrote into `sz`; only then may the slot be read at all.
macro_rules! slot {
    ($context:expr, $slot:ident) => {{
        let vctx = $crate::inline::verbs_get_ctx($context);
        let needed = size_of::<verbs_context>() - std::mem::offset_of!(verbs_context, $slot);
        if vctx.is_null() || (*vctx).sz < needed {
            None
        } else {
            (*vctx).$slot
        }
    }};
}
use slot;

/// Sets `errno` and returns NULL, as C functions that return a pointer fail.
fn fail<T>(errno: i32) -> *mut T {
    set_errno(errno);
    std::ptr::null_mut()
}

/// Stores a value in the calling thread's `errno`.
pub fn set_errno(value: i32) {
    // SAFETY: the C library returns a valid pointer to the thread's own errno.
    unsafe {
        #[cfg(target_os = "linux")]
        let errno = libc::__errno_location();
        #[cfg(not(target_os = "linux"))]
        let errno = libc::__error();
        *errno = value;
    }
}
