//! Memory regions: `ibv_reg_mr(3)`, `ibv_rereg_mr(3)`, `ibv_reg_dmabuf_mr(3)`.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use adverb_abi::types::*;
use adverb_engine::Access;
use adverb_nic::Advice;

use crate::call;
use crate::context::together;
use crate::errno::Error;
use crate::handle::{Kind, Object, find, not_null};
use crate::pd::{Pd, Share};
use crate::post;
use crate::shared::Family;

/// A memory region.
pub(crate) struct Mr {
    pub(crate) nic: Arc<adverb_nic::Mr>,
    pd: Mutex<Arc<Share>>,
    family: Arc<Family>,
    handle: u32,
}

impl Kind for Mr {
    type Public = ibv_mr;
    const NAME: &'static str = "memory region";
    const MARK: u64 = 0xad3e_0000_0000_0001;

    unsafe fn handle(public: *const Self::Public) -> u32 {
        // SAFETY: as our caller promises.
        unsafe { (*public).handle }
    }

    unsafe fn context(public: *const Self::Public) -> *mut ibv_context {
        // SAFETY: as our caller promises.
        unsafe { (*public).context }
    }
}

/// Checks what is asked for. Bits of the optional range that nobody knows are hints, and dropped.
pub(crate) fn access(bits: c_uint) -> Result<Access, Error> {
    let asked = bits & !IBV_ACCESS_OPTIONAL_RANGE | bits & Access::RELAXED_ORDERING.bits();
    let access = Access::from_bits(asked).ok_or_else(|| Error::Bits {
        what: "access",
        bits: u64::from(asked & !Access::all().bits()),
    })?;
    if access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC)
        && !access.contains(Access::LOCAL_WRITE)
    {
        return Err(Error::NeedsLocalWrite(access));
    }
    // What is in memory here is gone with the power.
    if access.contains(Access::FLUSH_PERSISTENT) {
        return Err(Error::Unsupported("flushing to persistence"));
    }
    Ok(access)
}

/// # Safety
/// `pd` is NULL or a domain. The memory may be anything: registration looks whether it is there.
unsafe fn register(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    bits: c_uint,
) -> Result<*mut ibv_mr, Error> {
    // SAFETY: as our caller promises.
    let domain = unsafe { find::<Pd>(pd) }?;
    let access = access(bits)?;
    let nic = domain
        .share()
        .nic
        .reg_mr(addr as u64, length as u64, iova, access)?;
    // SAFETY: as our caller promises.
    unsafe { publish(pd, addr, length, nic, None) }
}

/// Lays a region out for C, with its number in its family or a new one.
///
/// # Safety
/// `pd` is a domain.
pub(crate) unsafe fn publish(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    nic: Arc<adverb_nic::Mr>,
    handle: Option<u32>,
) -> Result<*mut ibv_mr, Error> {
    // SAFETY: as our caller promises.
    let domain = unsafe { find::<Pd>(pd) }?;
    let family = Arc::clone(domain.family());
    let handle = handle.unwrap_or_else(|| family.mrs.put(&nic));
    let public = ibv_mr {
        // SAFETY: the domain is alive, and its context pointer is never written to.
        context: unsafe { (*domain.public()).context },
        pd,
        addr,
        length,
        handle,
        lkey: nic.lkey(),
        rkey: nic.rkey(),
    };
    let own = Mr {
        nic,
        pd: Mutex::new(domain.share()),
        family,
        handle,
    };
    Ok(Object::create(public, own).public())
}

/// The address that keys use for the first byte, when the program names none.
fn own_iova(addr: *mut c_void, bits: c_uint) -> u64 {
    if bits & IBV_ACCESS_ZERO_BASED != 0 {
        0
    } else {
        addr as u64
    }
}

/// `ibv_reg_mr(3)`.
///
/// # Safety
/// `pd` is NULL or a domain. The memory stays mapped until the region is deregistered.
pub unsafe extern "C" fn ibv_reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    let bits = access as c_uint;
    // SAFETY: as our caller promises.
    call::pointer("ibv_reg_mr", || unsafe {
        register(pd, addr, length, own_iova(addr, bits), bits)
    })
}

/// `ibv_reg_mr_iova(3)`: keys address the region from `iova`.
///
/// # Safety
/// As [`ibv_reg_mr`].
pub unsafe extern "C" fn ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: as our caller promises.
    call::pointer("ibv_reg_mr_iova", || unsafe {
        register(pd, addr, length, iova, access as c_uint)
    })
}

/// What `ibv_reg_mr` and `ibv_reg_mr_iova` of newer headers become when optional access bits are set, or when the compiler
/// does not know the bits. The former passes the address as `iova`, and is to count from 0 all the same if the bits say so.
///
/// # Safety
/// As [`ibv_reg_mr`].
pub unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    let iova = match iova == addr as u64 {
        true => own_iova(addr, access),
        false => iova,
    };
    // SAFETY: as our caller promises.
    call::pointer("ibv_reg_mr_iova2", || unsafe {
        register(pd, addr, length, iova, access)
    })
}

/// `ibv_reg_dmabuf_mr(3)`: memory of another device, which is out of a software device's reach.
///
/// # Safety
/// None of the arguments is looked at.
pub unsafe extern "C" fn ibv_reg_dmabuf_mr(
    _pd: *mut ibv_pd,
    _offset: u64,
    _length: usize,
    _iova: u64,
    _fd: c_int,
    _access: c_int,
) -> *mut ibv_mr {
    call::pointer("ibv_reg_dmabuf_mr", || {
        Err(Error::Unsupported("memory of other devices"))
    })
}

/// `ibv_alloc_null_mr(3)`: writes through its key vanish, reads give zeros.
///
/// # Safety
/// `pd` is NULL or a domain.
pub(crate) unsafe extern "C" fn alloc_null_mr(pd: *mut ibv_pd) -> *mut ibv_mr {
    let alloc = || -> Result<*mut ibv_mr, Error> {
        // SAFETY: as our caller promises.
        let nic = unsafe { find::<Pd>(pd) }?.share().nic.alloc_null_mr()?;
        // SAFETY: as our caller promises.
        let mr = unsafe { publish(pd, std::ptr::null_mut(), 0, nic, None) }?;
        // SAFETY: just made. No peer can use it, so there is no key to give away.
        unsafe { (*mr).rkey = 0 };
        Ok(mr)
    };
    call::pointer("ibv_alloc_null_mr", alloc)
}

/// Most ranges that one piece of advice can be about.
const MOST_RANGES: u32 = 4096;

/// `ibv_advise_mr(3)`, behind the context's table: acts on pages of on-demand regions.
///
/// # Safety
/// `pd` is NULL or a domain, `list` NULL or good for reading `count` entries.
pub(crate) unsafe extern "C" fn advise_mr(
    pd: *mut ibv_pd,
    advice: ibv_advise_mr_advice,
    flags: u32,
    list: *mut ibv_sge,
    count: u32,
) -> c_int {
    let advise = || -> Result<(), Error> {
        // SAFETY: as our caller promises.
        let domain = unsafe { find::<Pd>(pd) }?;
        let advice = match advice {
            IBV_ADVISE_MR_ADVICE_PREFETCH => Advice::Prefetch,
            IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE => Advice::PrefetchWrite,
            IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT => Advice::PrefetchNoFault,
            _ => return Err(Error::Unsupported("the advice")),
        };
        if flags & !IBV_ADVISE_MR_FLAG_FLUSH != 0 {
            return Err(Error::Bits {
                what: "flags",
                bits: u64::from(flags & !IBV_ADVISE_MR_FLAG_FLUSH),
            });
        }
        if count == 0 {
            return Err(Error::Argument("the list of ranges is empty"));
        }
        if count > MOST_RANGES {
            return Err(Error::Value {
                what: "the number of ranges",
                value: count.into(),
                limit: MOST_RANGES.into(),
            });
        }
        not_null(list, "list of ranges")?;
        let ranges: Vec<_> = (0..count as usize)
            // SAFETY: the caller says that there are `count` entries.
            .map(|index| post::sge(unsafe { &*list.add(index) }))
            .collect();
        let wait = flags & IBV_ADVISE_MR_FLAG_FLUSH != 0;
        Ok(domain.share().nic.advise(advice, wait, &ranges)?)
    };
    call::status("ibv_advise_mr", advise)
}

/// `ibv_dereg_mr(3)`. EBUSY while a memory window is bound to the region. When it returns, nothing touches the memory any more.
///
/// # Safety
/// `mr` is NULL or a region.
pub unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    let dereg = || -> Result<(), Error> {
        // SAFETY: as our caller promises.
        let mr = unsafe { find::<Mr>(mr) }?;
        mr.nic.dereg()?;
        mr.family.mrs.remove(mr.handle);
        // SAFETY: the region is gone, so there is nothing more to ask it.
        unsafe { mr.free() };
        Ok(())
    };
    call::status("ibv_dereg_mr", dereg)
}

const REREG_FLAGS: c_uint =
    IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS;

/// Arguments that contradict each other, which the manual tells from what cannot be done.
fn check_input(flags: c_uint, addr: *mut c_void, length: usize, bits: c_uint) -> Result<(), Error> {
    if flags & !REREG_FLAGS != 0 {
        return Err(Error::Bits {
            what: "flags",
            bits: u64::from(flags & !REREG_FLAGS),
        });
    }
    if flags & IBV_REREG_MR_CHANGE_TRANSLATION != 0 && (length == 0 || addr.is_null()) {
        return Err(Error::Argument(
            "the new place of the region has no bytes or no address",
        ));
    }
    if flags & IBV_REREG_MR_CHANGE_ACCESS == 0 && bits != 0 {
        return Err(Error::Argument(
            "access is given without IBV_REREG_MR_CHANGE_ACCESS",
        ));
    }
    Ok(())
}

/// # Safety
/// As [`ibv_rereg_mr`]; the arguments have passed `check_input`.
unsafe fn change(
    mr: &Object<Mr>,
    flags: c_uint,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    bits: c_uint,
) -> Result<(), Error> {
    if flags == 0 {
        return Err(Error::Argument("the flags ask for no change"));
    }
    let translation =
        (flags & IBV_REREG_MR_CHANGE_TRANSLATION != 0).then_some((addr as u64, length as u64));
    let new_access = match flags & IBV_REREG_MR_CHANGE_ACCESS {
        0 => None,
        _ => Some(access(bits)?),
    };
    let share = match flags & IBV_REREG_MR_CHANGE_PD {
        0 => None,
        _ => {
            // SAFETY: as our caller promises.
            let domain = unsafe { find::<Pd>(pd) }?;
            // SAFETY: both objects are alive.
            unsafe {
                together(
                    (*mr.public()).context,
                    (*domain.public()).context,
                    "protection domain",
                )
            }?;
            if !Arc::ptr_eq(domain.family(), &mr.family) {
                return Err(Error::Argument(
                    "region and domain belong to different contexts",
                ));
            }
            Some(domain.share())
        }
    };
    mr.nic.rereg(
        translation,
        share.as_ref().map(|share| &share.nic),
        new_access,
    )?;
    let public = mr.public();
    // SAFETY: the region is alive; the manual forbids to use it while it is changed.
    unsafe {
        if translation.is_some() {
            (*public).addr = addr;
            (*public).length = length;
        }
        if let Some(share) = share {
            (*public).pd = pd;
            *mr.pd.lock().unwrap_or_else(PoisonError::into_inner) = share;
        }
        (*public).lkey = mr.nic.lkey();
        (*public).rkey = mr.nic.rkey();
    }
    Ok(())
}

/// `ibv_rereg_mr(3)`. On failure the old registration is intact and usable: IBV_REREG_MR_ERR_INPUT (-1) for arguments that
/// contradict each other, IBV_REREG_MR_ERR_CMD (-4) for what cannot be done. The other codes are about fork, which needs
/// nothing here.
///
/// # Safety
/// `mr` is NULL or a region, `pd` a domain where the flags name it.
pub unsafe extern "C" fn ibv_rereg_mr(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    let (flags, access) = (flags as c_uint, access as c_uint);
    let mut code = IBV_REREG_MR_ERR_INPUT;
    let body = || {
        not_null(mr, Mr::NAME)?;
        check_input(flags, addr, length, access)?;
        code = IBV_REREG_MR_ERR_CMD;
        // SAFETY: as our caller promises.
        let mr = unsafe { find::<Mr>(mr) }?;
        // SAFETY: likewise.
        unsafe { change(mr, flags, pd, addr, length, access) }.map(|()| 0)
    };
    match call::minus_one("ibv_rereg_mr", body) {
        0 => 0,
        _ => code,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn optional_access_bits_are_hints_and_others_are_not() {
        let local = IBV_ACCESS_LOCAL_WRITE;
        assert_eq!(access(local | 1 << 25).ok(), Some(Access::LOCAL_WRITE));
        assert_eq!(
            access(local | IBV_ACCESS_RELAXED_ORDERING).ok(),
            Some(Access::LOCAL_WRITE | Access::RELAXED_ORDERING)
        );
        assert_eq!(
            access(local | 1 << 12).map_err(|e| e.errno()),
            Err(libc::EINVAL)
        );
        assert_eq!(
            access(local | 1 << 31).map_err(|e| e.errno()),
            Err(libc::EINVAL)
        );
        assert_eq!(
            access(IBV_ACCESS_REMOTE_WRITE).map_err(|e| e.errno()),
            Err(libc::EINVAL)
        );
        assert_eq!(
            access(IBV_ACCESS_FLUSH_PERSISTENT).map_err(|e| e.errno()),
            Err(libc::EOPNOTSUPP)
        );
    }
}
