//! Protection domains, `ibv_alloc_pd(3)`, and what stands in for them: parent domains and thread domains.
//!
//! A parent domain is a protection domain with hints. The hints promise that one thread at a time uses an object, so
//! that a driver may leave out locks; ours are cheap when nobody contends. It is another name for its domain, which
//! stays busy as long as the name exists.

use std::ffi::c_int;
use std::sync::Arc;

use adverb_abi::types::*;

use crate::call;
use crate::context::together;
use crate::errno::Error;
use crate::handle::{Kind, Object, find, find_context, find_if_any, not_null};
use crate::shared::Family;

/// A protection domain, or a parent domain.
pub(crate) struct Pd {
    share: Arc<Share>,
    family: Arc<Family>,
    handle: u32,
}

/// What a domain is to the objects made in it: as long as one holds a share, the domain is busy.
pub(crate) struct Share {
    pub(crate) nic: Arc<adverb_nic::Pd>,
    /// The domain behind a parent domain.
    _base: Option<Arc<Self>>,
    /// The thread domain that a parent domain was given.
    _thread: Option<Arc<()>>,
}

impl Kind for Pd {
    type Public = ibv_pd;
    const NAME: &'static str = "protection domain";
    const MARK: u64 = 0xad9d_0000_0000_0001;

    unsafe fn handle(public: *const Self::Public) -> u32 {
        // SAFETY: as our caller promises.
        unsafe { (*public).handle }
    }

    unsafe fn context(public: *const Self::Public) -> *mut ibv_context {
        // SAFETY: as our caller promises.
        unsafe { (*public).context }
    }
}

impl Pd {
    pub(crate) fn family(&self) -> &Arc<Family> {
        &self.family
    }

    /// A share for an object that is made in the domain.
    pub(crate) fn share(&self) -> Arc<Share> {
        Arc::clone(&self.share)
    }
}

/// A thread domain.
pub(crate) struct Td {
    uses: Arc<()>,
}

impl Kind for Td {
    type Public = ibv_td;
    const NAME: &'static str = "thread domain";
    const MARK: u64 = 0xad7d_0000_0000_0001;

    unsafe fn context(public: *const Self::Public) -> *mut ibv_context {
        // SAFETY: as our caller promises.
        unsafe { (*public).context }
    }
}

/// Fails if anybody but the owner holds it.
fn unused<T>(shared: &Arc<T>, what: &'static str) -> Result<(), Error> {
    match Arc::strong_count(shared) - 1 {
        0 => Ok(()),
        users => Err(Error::Busy { what, users }),
    }
}

fn create(context: *mut ibv_context, family: &Arc<Family>, share: Share) -> *mut ibv_pd {
    let share = Arc::new(share);
    let handle = family.pds.put(&share);
    publish(context, family, handle, share)
}

fn publish(
    context: *mut ibv_context,
    family: &Arc<Family>,
    handle: u32,
    share: Arc<Share>,
) -> *mut ibv_pd {
    let own = Pd {
        share,
        family: Arc::clone(family),
        handle,
    };
    Object::create(ibv_pd { context, handle }, own).public()
}

/// A domain under another name, in a context of the same family.
pub(crate) fn import(
    context: *mut ibv_context,
    family: &Arc<Family>,
    handle: u32,
    nic: Arc<adverb_nic::Pd>,
) -> *mut ibv_pd {
    let share = Share {
        nic,
        _base: None,
        _thread: None,
    };
    publish(context, family, handle, Arc::new(share))
}

/// `ibv_alloc_pd(3)`.
///
/// # Safety
/// `context` is NULL or a context.
pub unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    let alloc = || -> Result<*mut ibv_pd, Error> {
        // SAFETY: as our caller promises.
        let found = unsafe { find_context(context) }?;
        let nic = found.nic.alloc_pd()?;
        Ok(create(
            context,
            &found.family,
            Share {
                nic,
                _base: None,
                _thread: None,
            },
        ))
    };
    call::pointer("ibv_alloc_pd", alloc)
}

/// `ibv_dealloc_pd(3)`, for parent domains too. EBUSY while anything made in the domain exists.
///
/// # Safety
/// `pd` is NULL or a domain.
pub unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    let dealloc = || -> Result<(), Error> {
        // SAFETY: as our caller promises.
        let pd = unsafe { find::<Pd>(pd) }?;
        unused(&pd.share, "the protection domain")?;
        if pd.share._base.is_none() {
            pd.share.nic.dealloc()?;
        }
        pd.family.pds.remove(pd.handle);
        // SAFETY: nothing refers to the domain any more.
        unsafe { pd.free() };
        Ok(())
    };
    call::status("ibv_dealloc_pd", dealloc)
}

/// `ibv_alloc_td(3)`, behind the context's table.
///
/// # Safety
/// `context` is NULL or a context, `attr` NULL or readable.
pub(crate) unsafe extern "C" fn alloc_td(
    context: *mut ibv_context,
    attr: *mut ibv_td_init_attr,
) -> *mut ibv_td {
    let alloc = || -> Result<*mut ibv_td, Error> {
        // SAFETY: as our caller promises.
        unsafe { find_context(context) }?;
        not_null(attr, "attribute")?;
        // SAFETY: not NULL, so the caller says that it can be read.
        let mask = unsafe { (*attr).comp_mask };
        if mask != 0 {
            return Err(Error::Unsupported(
                "an attribute of ibv_td_init_attr that is not known",
            ));
        }
        Ok(Object::create(
            ibv_td { context },
            Td {
                uses: Arc::default(),
            },
        )
        .public())
    };
    call::pointer("ibv_alloc_td", alloc)
}

/// `ibv_dealloc_td(3)`. EBUSY while a parent domain refers to it.
///
/// # Safety
/// `td` is NULL or a thread domain.
pub(crate) unsafe extern "C" fn dealloc_td(td: *mut ibv_td) -> c_int {
    let dealloc = || -> Result<(), Error> {
        // SAFETY: as our caller promises.
        let td = unsafe { find::<Td>(td) }?;
        unused(&td.uses, "the thread domain")?;
        // SAFETY: nothing refers to it any more.
        unsafe { td.free() };
        Ok(())
    };
    call::status("ibv_dealloc_td", dealloc)
}

const PARENT_DOMAIN_ATTRS: u32 = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS
    | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT
    | IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC;

/// `ibv_alloc_parent_domain(3)`. The allocators are for memory that a device shares with the program; there is none.
///
/// # Safety
/// `context` is NULL or a context, `attr` NULL or readable, and the objects in it NULL or alive.
pub(crate) unsafe extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    attr: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    let alloc = || -> Result<*mut ibv_pd, Error> {
        // SAFETY: as our caller promises.
        let found = unsafe { find_context(context) }?;
        not_null(attr, "attribute")?;
        // SAFETY: not NULL, so the caller says that it can be read.
        let attr = unsafe { *attr };
        if attr.comp_mask & !PARENT_DOMAIN_ATTRS != 0 {
            return Err(Error::Unsupported(
                "an attribute of ibv_parent_domain_init_attr that is not known",
            ));
        }
        // SAFETY: as our caller promises.
        let (base, thread) = unsafe {
            let base = find::<Pd>(attr.pd)?;
            together(context, (*base.public()).context, "protection domain")?;
            let thread = find_if_any::<Td>(attr.td)?;
            if let Some(td) = thread {
                together(context, (*td.public()).context, "thread domain")?;
            }
            (base.share(), thread.map(|td| Arc::clone(&td.uses)))
        };
        let nic = Arc::clone(&base.nic);
        Ok(create(
            context,
            &found.family,
            Share {
                nic,
                _base: Some(base),
                _thread: thread,
            },
        ))
    };
    call::pointer("ibv_alloc_parent_domain", alloc)
}
