//! Device memory: `ibv_alloc_dm(3)` and what belongs to it.

use std::ffi::{c_int, c_uint, c_void};
use std::slice;
use std::sync::Arc;

use adverb_abi::types::*;

use crate::call;
use crate::errno::Error;
use crate::handle::{Kind, Object, find, find_context, not_null};
use crate::mr;
use crate::pd::Pd;
use crate::shared::Family;

/// A block of device memory, or another name for one.
pub(crate) struct Dm {
    nic: Arc<adverb_nic::Dm>,
    family: Arc<Family>,
}

impl Kind for Dm {
    type Public = ibv_dm;
    const NAME: &'static str = "device memory";
    const MARK: u64 = 0xadd3_0000_0000_0001;

    unsafe fn handle(public: *const Self::Public) -> u32 {
        // SAFETY: as our caller promises.
        unsafe { (*public).handle }
    }

    unsafe fn context(public: *const Self::Public) -> *mut ibv_context {
        // SAFETY: as our caller promises.
        unsafe { (*public).context }
    }
}

pub(crate) fn publish(
    context: *mut ibv_context,
    nic: Arc<adverb_nic::Dm>,
    family: Arc<Family>,
    handle: u32,
) -> *mut ibv_dm {
    let public = ibv_dm {
        context,
        memcpy_to_dm: Some(memcpy_to_dm),
        memcpy_from_dm: Some(memcpy_from_dm),
        comp_mask: IBV_DM_MASK_HANDLE,
        handle,
    };
    Object::create(public, Dm { nic, family }).public()
}

/// `ibv_alloc_dm(3)`, behind the context's table.
///
/// # Safety
/// `context` is NULL or a context, `attr` NULL or readable.
pub(crate) unsafe extern "C" fn alloc_dm(
    context: *mut ibv_context,
    attr: *mut ibv_alloc_dm_attr,
) -> *mut ibv_dm {
    let alloc = || -> Result<*mut ibv_dm, Error> {
        // SAFETY: as our caller promises.
        let found = unsafe { find_context(context) }?;
        not_null(attr, "attribute")?;
        // SAFETY: not NULL, so the caller says that it can be read.
        let attr = unsafe { *attr };
        if attr.comp_mask != 0 {
            return Err(Error::Unsupported(
                "an attribute of ibv_alloc_dm_attr that is not known",
            ));
        }
        let nic = found.nic.alloc_dm(attr.length as u64, attr.log_align_req)?;
        let handle = found.family.dms.put(&nic);
        Ok(publish(context, nic, Arc::clone(&found.family), handle))
    };
    call::pointer("ibv_alloc_dm", alloc)
}

/// `ibv_free_dm(3)`. EBUSY while a region is registered on the memory.
///
/// # Safety
/// `dm` is NULL or device memory.
pub(crate) unsafe extern "C" fn free_dm(dm: *mut ibv_dm) -> c_int {
    let free = || -> Result<(), Error> {
        // SAFETY: as our caller promises.
        let dm = unsafe { find::<Dm>(dm) }?;
        dm.nic.free()?;
        // SAFETY: the object is alive.
        dm.family.dms.remove(unsafe { (*dm.public()).handle });
        // SAFETY: nothing refers to the memory any more.
        unsafe { dm.free() };
        Ok(())
    };
    call::status("ibv_free_dm", free)
}

/// `ibv_reg_dm_mr(3)`, behind the context's table.
///
/// # Safety
/// `pd` is NULL or a domain, `dm` NULL or device memory.
pub(crate) unsafe extern "C" fn reg_dm_mr(
    pd: *mut ibv_pd,
    dm: *mut ibv_dm,
    offset: u64,
    length: usize,
    bits: c_uint,
) -> *mut ibv_mr {
    let register = || -> Result<*mut ibv_mr, Error> {
        // SAFETY: as our caller promises.
        let (domain, dm) = unsafe { (find::<Pd>(pd)?, find::<Dm>(dm)?) };
        // SAFETY: the domain and its context are alive.
        let context = unsafe { find_context((*domain.public()).context) }?;
        if !Arc::ptr_eq(&context.family, &dm.family) {
            return Err(Error::Argument(
                "the device memory belongs to another context",
            ));
        }
        let access = mr::access(bits)?;
        let nic = domain
            .share()
            .nic
            .reg_dm_mr(&dm.nic, offset, length as u64, access)?;
        // SAFETY: as our caller promises.
        unsafe { mr::publish(pd, std::ptr::null_mut(), length, nic, None) }
    };
    call::pointer("ibv_reg_dm_mr", register)
}

unsafe extern "C" fn memcpy_to_dm(
    dm: *mut ibv_dm,
    offset: u64,
    from: *const c_void,
    length: usize,
) -> c_int {
    let copy = || -> Result<(), Error> {
        // SAFETY: the function was reached through the device memory.
        let dm = unsafe { find::<Dm>(dm) }?;
        let bytes = match length {
            0 => &[],
            // Looked at first: beyond the block there may be no source either.
            _ => {
                check_range(dm, offset, length)?;
                not_null(from, "source")?;
                // SAFETY: the program says that there are as many bytes.
                unsafe { slice::from_raw_parts(from.cast::<u8>(), length) }
            }
        };
        Ok(dm.nic.copy_to(offset, bytes)?)
    };
    call::status("ibv_memcpy_to_dm", copy)
}

unsafe extern "C" fn memcpy_from_dm(
    to: *mut c_void,
    dm: *mut ibv_dm,
    offset: u64,
    length: usize,
) -> c_int {
    let copy = || -> Result<(), Error> {
        // SAFETY: the function was reached through the device memory.
        let dm = unsafe { find::<Dm>(dm) }?;
        let place = match length {
            0 => &mut [],
            _ => {
                check_range(dm, offset, length)?;
                not_null(to, "destination")?;
                // SAFETY: the program says that there is as much room, and uses it for nothing else meanwhile.
                unsafe { slice::from_raw_parts_mut(to.cast::<u8>(), length) }
            }
        };
        Ok(dm.nic.copy_from(offset, place)?)
    };
    call::status("ibv_memcpy_from_dm", copy)
}

fn check_range(dm: &Object<Dm>, offset: u64, length: usize) -> Result<(), Error> {
    let end = offset.checked_add(length as u64);
    if end.is_some_and(|end| end <= dm.nic.len()) {
        Ok(())
    } else {
        Err(adverb_nic::NicError::Fault {
            addr: offset,
            len: length as u64,
            why: "outside the block of device memory",
        }
        .into())
    }
}
