//! The few functions of librdmacm that have an answer although connections are not built.

use std::ffi::c_int;
use std::mem::size_of;

use adverb_abi::types::ibv_context;

/// `rdma_get_devices(3)`: the devices that connections can be made on, which are none yet. The list is empty rather than
/// NULL, because libfabric does not survive NULL.
///
/// # Safety
/// `count` is NULL or can be written.
pub unsafe extern "C" fn rdma_get_devices(count: *mut c_int) -> *mut *mut ibv_context {
    if !count.is_null() {
        // SAFETY: the caller says that it can be written.
        unsafe { *count = 0 };
    }
    // SAFETY: plain allocation; the one entry is NULL, which ends the list.
    unsafe { libc::calloc(1, size_of::<*mut ibv_context>()) }.cast()
}

/// `rdma_free_devices(3)`. NULL is allowed.
///
/// # Safety
/// `list` is NULL or came from `rdma_get_devices` and has not been freed.
pub unsafe extern "C" fn rdma_free_devices(list: *mut *mut ibv_context) {
    // SAFETY: `rdma_get_devices` allocated it with calloc.
    unsafe { libc::free(list.cast()) };
}
