//! Devices as the connection manager hands them out: `rdma_get_devices(3)`, and the context and protection domain of ids.
//!
//! There is one context per device and process, and programs compare its pointer: the one in an id with the one in the
//! list. It has a protection domain for ids that were given none. Both stay until the process ends. A forked child has
//! its own.

use std::ffi::c_int;
use std::io;
use std::mem::size_of;
use std::process;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use adverb_abi::types::{ibv_context, ibv_pd};

use crate::call;
use crate::context::ibv_open_device;
use crate::device::{Device, object_for};
use crate::errno::Error;
use crate::handle::Object;
use crate::pd::ibv_alloc_pd;

/// What an id shows of its device.
#[derive(Clone, Copy)]
pub(super) struct Verbs {
    pub(super) context: *mut ibv_context,
    pub(super) pd: *mut ibv_pd,
}

struct Opened {
    process: u32,
    device: *const Object<Device>,
    verbs: Verbs,
}

struct List(Vec<Opened>);

// SAFETY: the pointers are compared and handed out, never followed here; what they point to is for any thread.
unsafe impl Send for List {}

static OPENED: Mutex<List> = Mutex::new(List(Vec::new()));

/// The context of a device, opened at the first use.
pub(super) fn open(device: &Arc<adverb_nic::Device>) -> Result<Verbs, Error> {
    let device = object_for(Arc::clone(device));
    let process = process::id();
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    let known = opened
        .0
        .iter()
        .find(|known| known.process == process && ptr::eq(known.device, device));
    if let Some(known) = known {
        return Ok(known.verbs);
    }
    // SAFETY: a device object, which is never freed.
    let context = unsafe { ibv_open_device(device.public()) };
    if context.is_null() {
        return Err(Error::told());
    }
    // SAFETY: a context just opened.
    let pd = unsafe { ibv_alloc_pd(context) };
    if pd.is_null() {
        return Err(Error::told());
    }
    let verbs = Verbs { context, pd };
    opened.0.push(Opened {
        process,
        device,
        verbs,
    });
    Ok(verbs)
}

/// `rdma_get_devices(3)`: all devices, open, in a list that ends with NULL.
///
/// # Safety
/// `count` is NULL or can be written.
pub unsafe extern "C" fn rdma_get_devices(count: *mut c_int) -> *mut *mut ibv_context {
    let list = || -> Result<*mut *mut ibv_context, Error> {
        let contexts: Vec<*mut ibv_context> = adverb_nic::devices()?
            .iter()
            .map(|device| open(device).map(|verbs| verbs.context))
            .collect::<Result<_, _>>()?;
        // SAFETY: plain allocation; zeroed, so the last entry ends the list.
        let list = unsafe { libc::calloc(contexts.len() + 1, size_of::<*mut ibv_context>()) }
            .cast::<*mut ibv_context>();
        if list.is_null() {
            return Err(io::Error::from_raw_os_error(libc::ENOMEM).into());
        }
        // SAFETY: as many entries were allocated, and the caller says that the count can be written.
        unsafe {
            ptr::copy_nonoverlapping(contexts.as_ptr(), list, contexts.len());
            if !count.is_null() {
                *count = contexts.len() as c_int;
            }
        }
        Ok(list)
    };
    let list = call::pointer("rdma_get_devices", list);
    if list.is_null() && !count.is_null() {
        // SAFETY: the caller says that it can be written.
        unsafe { *count = 0 };
    }
    list
}

/// `rdma_free_devices(3)`. NULL is allowed. The devices stay open.
///
/// # Safety
/// `list` is NULL or came from `rdma_get_devices` and has not been freed.
pub unsafe extern "C" fn rdma_free_devices(list: *mut *mut ibv_context) {
    // SAFETY: `rdma_get_devices` allocated it with calloc.
    unsafe { libc::free(list.cast()) };
}
