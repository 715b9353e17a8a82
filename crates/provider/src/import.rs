//! Sharing objects between processes: `ibv_import_device(3)`, `ibv_import_pd(3)`, `ibv_import_mr(3)`, `ibv_import_dm(3)`.
//!
//! The kernel keeps the objects of a device file, so that whoever holds the file may use them. Here they belong to the
//! process, and these calls are refused.

use std::ffi::c_int;

use adverb_abi::types::*;

use crate::errno::{self, Error};

const SHARING: Error = Error::Unsupported("sharing objects between processes");

/// `ibv_import_device(3)`.
///
/// # Safety
/// The argument is not looked at.
pub unsafe extern "C" fn ibv_import_device(_fd: c_int) -> *mut ibv_context {
    errno::pointer("ibv_import_device", Err(SHARING))
}

/// `ibv_import_pd(3)`.
///
/// # Safety
/// The arguments are not looked at.
pub unsafe extern "C" fn ibv_import_pd(_context: *mut ibv_context, _handle: u32) -> *mut ibv_pd {
    errno::pointer("ibv_import_pd", Err(SHARING))
}

/// `ibv_import_mr(3)`.
///
/// # Safety
/// The arguments are not looked at.
pub unsafe extern "C" fn ibv_import_mr(_pd: *mut ibv_pd, _handle: u32) -> *mut ibv_mr {
    errno::pointer("ibv_import_mr", Err(SHARING))
}

/// `ibv_import_dm(3)`.
///
/// # Safety
/// The arguments are not looked at.
pub unsafe extern "C" fn ibv_import_dm(_context: *mut ibv_context, _handle: u32) -> *mut ibv_dm {
    errno::pointer("ibv_import_dm", Err(SHARING))
}

/// `ibv_unimport_pd(3)`: nothing was imported.
///
/// # Safety
/// The argument is not looked at.
pub unsafe extern "C" fn ibv_unimport_pd(_pd: *mut ibv_pd) {}

/// `ibv_unimport_mr(3)`: nothing was imported.
///
/// # Safety
/// The argument is not looked at.
pub unsafe extern "C" fn ibv_unimport_mr(_mr: *mut ibv_mr) {}

/// `ibv_unimport_dm(3)`: nothing was imported.
///
/// # Safety
/// The argument is not looked at.
pub unsafe extern "C" fn ibv_unimport_dm(_dm: *mut ibv_dm) {}
