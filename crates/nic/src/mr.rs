//! Memory regions.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use adverb_engine::{Access, Key, KeyError, MrSpec};
use adverb_mem::Region;

use crate::context::Context;
use crate::error::NicError;
use crate::pd::{Pd, PdUse};
use crate::sync::LockExt;

/// A registered memory region (man ibv_reg_mr).
pub struct Mr {
    context: Arc<Context>,
    key: Key,
    closed: AtomicBool,
    now: Mutex<Registration>,
}

struct Registration {
    pd: PdUse,
    addr: u64,
    len: u64,
    iova: u64,
    access: Access,
}

impl Mr {
    pub(crate) fn new(
        context: &Arc<Context>,
        pd: PdUse,
        addr: u64,
        len: u64,
        iova: u64,
        access: Access,
    ) -> Result<Arc<Self>, NicError> {
        let limits = context.device().limits();
        if len > limits.max_mr_size {
            return Err(NicError::Invalid { what: "length", value: len, limit: limits.max_mr_size });
        }
        let region = probe(addr, len, access)?;
        context.quotas.mrs.claim("MR", limits.max_mr)?;
        let spec = MrSpec { pd: pd.id, iova, len, access };
        let inserted =
            context.nic().keys.write().unwrap_or_else(PoisonError::into_inner).insert(spec, region);
        let key = match inserted {
            Ok(key) => key,
            Err(e) => {
                context.quotas.mrs.release();
                return Err(key_error(e, addr, len));
            }
        };
        let now = Mutex::new(Registration { pd, addr, len, iova, access });
        Ok(Arc::new(Self { context: Arc::clone(context), key, closed: AtomicBool::new(false), now }))
    }

    pub fn lkey(&self) -> u32 {
        self.key.0
    }

    pub fn rkey(&self) -> u32 {
        self.key.0
    }

    /// Changes place, domain or rights; on an error the old registration stays as it was.
    pub fn rereg(
        &self,
        translation: Option<(u64, u64)>,
        pd: Option<&Arc<Pd>>,
        access: Option<Access>,
    ) -> Result<(), NicError> {
        self.context.usable()?;
        let mut now = self.now.acquire();
        // A new place is addressed by its own addresses again, as after a plain registration.
        let (addr, len, iova) = match translation {
            Some((addr, len)) => (addr, len, addr),
            None => (now.addr, now.len, now.iova),
        };
        let access = access.unwrap_or(now.access);
        let region = probe(addr, len, access)?;
        let new_pd = pd.map(|p| p.claim());
        let pd_id = new_pd.as_ref().map_or(now.pd.id, |p| p.id);
        {
            let mut keys = self.context.nic().keys.write().unwrap_or_else(PoisonError::into_inner);
            keys.rereg(self.key, MrSpec { pd: pd_id, iova, len, access })
                .map_err(|e| key_error(e, addr, len))?;
            if let Some(place) = keys.get_mut(self.key) {
                *place = region;
            }
        }
        if let Some(pd) = new_pd {
            now.pd = pd;
        }
        (now.addr, now.len, now.iova, now.access) = (addr, len, iova, access);
        Ok(())
    }

    /// Ends the registration. After the return nothing of this NIC touches the memory: copies
    /// hold the key table's lock for reading, and this takes it for writing.
    pub fn dereg(&self) -> Result<(), NicError> {
        self.context.usable()?;
        self.release();
        Ok(())
    }

    fn release(&self) {
        if self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        self.context.nic().keys.write().unwrap_or_else(PoisonError::into_inner).remove(self.key);
        self.context.quotas.mrs.release();
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        if self.context.nic().alive() {
            self.release();
        }
    }
}

/// Looks whether the memory is there, so that registration fails with EFAULT and not a copy
/// later with a signal.
fn probe(addr: u64, len: u64, access: Access) -> Result<Region, NicError> {
    if addr.checked_add(len).is_none() {
        return Err(NicError::BadArgument("the region wraps around the end of the address space"));
    }
    let writable = access.intersects(Access::LOCAL_WRITE);
    adverb_mem::probe(addr, len, writable).map_err(|_| NicError::Fault {
        addr,
        len,
        why: if writable { "not mapped, or not writable" } else { "not mapped" },
    })?;
    // SAFETY: just found mapped with these rights. That it stays so until `dereg`, and that the
    // program expects its bytes to change, is what registering memory promises (man ibv_reg_mr).
    Ok(unsafe { Region::new(addr, len) })
}

fn key_error(e: KeyError, addr: u64, len: u64) -> NicError {
    match e {
        KeyError::Limit { limit } => NicError::Limit { what: "memory key", limit: limit as u64 },
        KeyError::NeedsLocalWrite { .. } => {
            NicError::BadArgument("REMOTE_WRITE and REMOTE_ATOMIC also need LOCAL_WRITE")
        }
        KeyError::Wraps { .. } => {
            NicError::BadArgument("the region wraps around the end of the address space")
        }
        KeyError::UnknownAccess { bits } => {
            NicError::Invalid { what: "access flags", value: bits.into(), limit: 0 }
        }
        _ => NicError::Fault { addr, len, why: "refused by the key table" },
    }
}
