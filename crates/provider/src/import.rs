//! Sharing objects between contexts: `ibv_import_device(3)`, `ibv_import_pd(3)`, `ibv_import_mr(3)`, `ibv_import_dm(3)`.
//!
//! The kernel keeps the objects of a device file, so that whoever holds the file may use them. Here they belong to the
//! process: within it, all of this works; a descriptor that came from another process is refused.

use std::ffi::c_int;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr;
use std::sync::Arc;

use adverb_abi::types::*;

use crate::call;
use crate::errno::Error;
use crate::handle::{find, find_context};
use crate::shared::Family;
use crate::{context, dm, mr, pd};

/// `ibv_import_device(3)`. On success the descriptor belongs to the context, which closes it in the end.
///
/// # Safety
/// If the descriptor is one of a device, it is the caller's to give away.
pub unsafe extern "C" fn ibv_import_device(fd: c_int) -> *mut ibv_context {
    let import = || -> Result<*mut ibv_context, Error> {
        let family = Family::of_descriptor(fd)?;
        let nic = adverb_nic::Context::open(&family.device.nic)?;
        // SAFETY: it is open, and the caller gives it away.
        let command = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(context::publish(nic, family, command))
    };
    call::pointer("ibv_import_device", import)
}

/// `ibv_import_pd(3)`: another name for a domain of this context's family.
///
/// # Safety
/// `context` is NULL or a context.
pub unsafe extern "C" fn ibv_import_pd(context: *mut ibv_context, handle: u32) -> *mut ibv_pd {
    let import = || -> Result<*mut ibv_pd, Error> {
        // SAFETY: as our caller promises.
        let found = unsafe { find_context(context) }?;
        let share = found.family.pds.get(handle)?;
        let nic = found.nic.import_pd(&share.nic)?;
        Ok(pd::import(context, &found.family, handle, nic))
    };
    call::pointer("ibv_import_pd", import)
}

/// `ibv_import_mr(3)`. The region's place is not known to the importer: address and length are zero.
///
/// # Safety
/// `pd` is NULL or a domain.
pub unsafe extern "C" fn ibv_import_mr(pd: *mut ibv_pd, handle: u32) -> *mut ibv_mr {
    let import = || -> Result<*mut ibv_mr, Error> {
        // SAFETY: as our caller promises.
        let domain = unsafe { find::<pd::Pd>(pd) }?;
        // SAFETY: the domain and its context are alive.
        let found = unsafe { find_context((*domain.public()).context) }?;
        let nic = found.family.mrs.get(handle)?;
        if !nic.is_in(&domain.share().nic) {
            return Err(Error::Argument("the region belongs to another domain"));
        }
        // SAFETY: as our caller promises.
        unsafe { mr::publish(pd, ptr::null_mut(), 0, nic, Some(handle)) }
    };
    call::pointer("ibv_import_mr", import)
}

/// `ibv_import_dm(3)`.
///
/// # Safety
/// `context` is NULL or a context.
pub unsafe extern "C" fn ibv_import_dm(context: *mut ibv_context, handle: u32) -> *mut ibv_dm {
    let import = || -> Result<*mut ibv_dm, Error> {
        // SAFETY: as our caller promises.
        let found = unsafe { find_context(context) }?;
        let nic = found.family.dms.get(handle)?;
        Ok(dm::publish(context, nic, Arc::clone(&found.family), handle))
    };
    call::pointer("ibv_import_dm", import)
}

/// `ibv_unimport_pd(3)`: the name goes, the domain stays.
///
/// # Safety
/// `pd` is NULL or came from [`ibv_import_pd`].
pub unsafe extern "C" fn ibv_unimport_pd(pd: *mut ibv_pd) {
    // SAFETY: as our caller promises, also that this is the last use.
    let body = || unsafe { find::<pd::Pd>(pd).map(|pd| pd.free()) };
    call::nothing("ibv_unimport_pd", body);
}

/// `ibv_unimport_mr(3)`: the name goes, the region stays.
///
/// # Safety
/// `mr` is NULL or came from [`ibv_import_mr`].
pub unsafe extern "C" fn ibv_unimport_mr(mr: *mut ibv_mr) {
    // SAFETY: as our caller promises, also that this is the last use.
    let body = || unsafe { find::<mr::Mr>(mr).map(|mr| mr.free()) };
    call::nothing("ibv_unimport_mr", body);
}

/// `ibv_unimport_dm(3)`: the name goes, the memory stays.
///
/// # Safety
/// `dm` is NULL or came from [`ibv_import_dm`].
pub unsafe extern "C" fn ibv_unimport_dm(dm: *mut ibv_dm) {
    // SAFETY: as our caller promises, also that this is the last use.
    let body = || unsafe { find::<dm::Dm>(dm).map(|dm| dm.free()) };
    call::nothing("ibv_unimport_dm", body);
}
