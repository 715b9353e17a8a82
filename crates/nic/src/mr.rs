//! Memory regions: registering, changing, advising.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use adverb_engine::{Access, Key, KeyError, MemAccess, MrSpec, PdId, QpNum, Sge};
use adverb_mem::{DemandRegion, Region};

use crate::backing::Backing;
use crate::context::Context;
use crate::dm::{Dm, DmUse};
use crate::error::NicError;
use crate::nic::Nic;
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
    pd_id: PdId,
    /// Given back when the registration ends, though the object may stay on under other names.
    pd: Option<PdUse>,
    addr: u64,
    len: u64,
    iova: u64,
    access: Access,
    /// Memory of the program, which can be registered anew.
    own_memory: bool,
    dm: Option<DmUse>,
}

/// What to do with pages of on-demand regions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Advice {
    /// Bring them in for reading.
    Prefetch,
    /// Bring them in for writing.
    PrefetchWrite,
    /// Use those that are there already.
    PrefetchNoFault,
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
        let backing = back(context, addr, len, access)?;
        let now = Registration {
            pd_id: pd.id,
            pd: Some(pd),
            addr,
            len,
            iova,
            access,
            own_memory: true,
            dm: None,
        };
        Self::insert(context, now, backing)
    }

    pub(crate) fn null(context: &Arc<Context>, pd: PdUse) -> Result<Arc<Self>, NicError> {
        let now = Registration {
            pd_id: pd.id,
            pd: Some(pd),
            addr: 0,
            len: u64::MAX,
            iova: 0,
            access: Access::LOCAL_WRITE,
            own_memory: false,
            dm: None,
        };
        Self::insert(context, now, Backing::Null)
    }

    pub(crate) fn of_dm(
        context: &Arc<Context>,
        pd: PdUse,
        dm: &Dm,
        offset: u64,
        len: u64,
        access: Access,
    ) -> Result<Arc<Self>, NicError> {
        if !access.contains(Access::ZERO_BASED) {
            return Err(NicError::BadArgument(
                "regions of device memory are zero based",
            ));
        }
        if access.contains(Access::ON_DEMAND) {
            return Err(NicError::BadArgument(
                "device memory is always there, not on demand",
            ));
        }
        if offset.checked_add(len).is_none_or(|end| end > dm.len()) {
            return Err(NicError::Invalid {
                what: "end of the region in the device memory",
                value: offset.saturating_add(len),
                limit: dm.len(),
            });
        }
        let now = Registration {
            pd_id: pd.id,
            pd: Some(pd),
            addr: 0,
            len,
            iova: 0,
            access,
            own_memory: false,
            dm: Some(dm.claim()),
        };
        Self::insert(
            context,
            now,
            Backing::Device {
                block: dm.block(),
                offset,
            },
        )
    }

    fn insert(
        context: &Arc<Context>,
        now: Registration,
        backing: Backing,
    ) -> Result<Arc<Self>, NicError> {
        let (addr, len) = (now.addr, now.len);
        context
            .quotas
            .mrs
            .claim("MR", context.device().limits().max_mr)?;
        let spec = MrSpec {
            pd: now.pd_id,
            iova: now.iova,
            len,
            access: now.access,
        };
        let inserted = context
            .nic()
            .keys
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(spec, backing);
        let key = match inserted {
            Ok(key) => key,
            Err(e) => {
                context.quotas.mrs.release();
                return Err(key_error(e, addr, len));
            }
        };
        Ok(Arc::new(Self {
            context: Arc::clone(context),
            key,
            closed: AtomicBool::new(false),
            now: Mutex::new(now),
        }))
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
        if !now.own_memory {
            return Err(NicError::BadArgument(
                "only memory of the program can be registered anew",
            ));
        }
        let access = access.unwrap_or(now.access);
        // A new place is addressed by its own addresses again, as after a plain registration.
        let (addr, len, iova) = match translation {
            Some((addr, len)) if access.contains(Access::ZERO_BASED) => (addr, len, 0),
            Some((addr, len)) => (addr, len, addr),
            None => (now.addr, now.len, now.iova),
        };
        let backing = back(&self.context, addr, len, access)?;
        let new_pd = pd.map(|p| p.claim());
        let pd_id = new_pd.as_ref().map_or(now.pd_id, |p| p.id);
        {
            let mut keys = self
                .context
                .nic()
                .keys
                .write()
                .unwrap_or_else(PoisonError::into_inner);
            keys.rereg(
                self.key,
                MrSpec {
                    pd: pd_id,
                    iova,
                    len,
                    access,
                },
            )
            .map_err(|e| key_error(e, addr, len))?;
            if let Some(place) = keys.get_mut(self.key) {
                *place = backing;
            }
        }
        if let Some(pd) = new_pd {
            now.pd_id = pd.id;
            now.pd = Some(pd);
        }
        (now.addr, now.len, now.iova, now.access) = (addr, len, iova, access);
        Ok(())
    }

    /// Ends the registration. After the return nothing of this NIC touches the memory: copies
    /// hold the key table's lock for reading, and this takes it for writing. Refuses while memory
    /// windows are bound to the region.
    pub fn dereg(&self) -> Result<(), NicError> {
        self.context.usable()?;
        {
            let mut keys = self
                .context
                .nic()
                .keys
                .write()
                .unwrap_or_else(PoisonError::into_inner);
            match keys.windows_of(self.key) {
                0 if self.closed.swap(true, Ordering::AcqRel) => return Ok(()),
                0 => keys.remove(self.key),
                count => {
                    return Err(NicError::Busy {
                        what: "MR",
                        count: count.into(),
                    });
                }
            };
        }
        self.context.quotas.mrs.release();
        let mut now = self.now.acquire();
        (now.pd, now.dm) = (None, None);
        Ok(())
    }

    /// The protection domain it is in now, to compare with others.
    pub fn is_in(&self, pd: &Pd) -> bool {
        self.now.acquire().pd_id == pd.id()
    }

    fn release(&self) {
        if self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        self.context
            .nic()
            .keys
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(self.key);
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

/// Finds what is behind a range of the program's addresses. On demand it may be anything; the
/// whole address space goes by length `u64::MAX` at zero.
fn back(context: &Context, addr: u64, len: u64, access: Access) -> Result<Backing, NicError> {
    let limit = context.device().limits().max_mr_size;
    let on_demand = access.contains(Access::ON_DEMAND);
    let implicit = on_demand && (addr, len) == (0, u64::MAX);
    if len > limit && !implicit {
        return Err(NicError::Invalid {
            what: "length",
            value: len,
            limit,
        });
    }
    if !on_demand {
        return Ok(Backing::Mapped(probe(addr, len, access)?));
    }
    if addr.checked_add(len).is_none() {
        return Err(NicError::BadArgument(
            "the region wraps around the end of the address space",
        ));
    }
    // SAFETY: what is mapped there when a peer or a work request names it is memory that the
    // program has opened to them by registering it (man ibv_reg_mr).
    Ok(Backing::OnDemand(unsafe { DemandRegion::new(addr, len) }))
}

/// Acts on the pages of each range at once, in the caller's thread: there is no better one. Without
/// `wait` the outcome is not the caller's concern, only whether the keys are right.
pub(crate) fn advise(
    nic: &Nic,
    pd: PdId,
    advice: Advice,
    wait: bool,
    ranges: &[Sge],
) -> Result<(), NicError> {
    let write = advice == Advice::PrefetchWrite;
    let locate = |sge: &Sge| {
        let (addr, len) = (sge.addr, u64::from(sge.len));
        let access = MemAccess {
            key: sge.lkey,
            pd,
            qp: QpNum(0),
            va: addr,
            len,
            need: if write {
                Access::LOCAL_WRITE
            } else {
                Access::empty()
            },
            remote: false,
        };
        let keys = nic.keys.read().unwrap_or_else(PoisonError::into_inner);
        match keys.resolve(&access) {
            Ok((Backing::OnDemand(region), offset)) => Ok((*region, offset, len)),
            Ok(_) => Err(NicError::BadArgument(
                "the region is not registered on demand",
            )),
            Err(_) => Err(NicError::Fault {
                addr,
                len,
                why: "no region of this domain allows it",
            }),
        }
    };
    for sge in ranges {
        locate(sge)?;
    }
    if advice == Advice::PrefetchNoFault {
        return Ok(());
    }
    for sge in ranges {
        let (region, offset, len) = locate(sge)?;
        let brought = region.bring(offset, len, write);
        if wait && brought.is_err() {
            return Err(NicError::Fault {
                addr: sge.addr,
                len,
                why: "not mapped",
            });
        }
    }
    Ok(())
}

/// Looks whether the memory is there, so that registration fails with EFAULT and not a copy
/// later with a signal.
fn probe(addr: u64, len: u64, access: Access) -> Result<Region, NicError> {
    if addr.checked_add(len).is_none() {
        return Err(NicError::BadArgument(
            "the region wraps around the end of the address space",
        ));
    }
    let writable = access.intersects(Access::LOCAL_WRITE);
    adverb_mem::probe(addr, len, writable).map_err(|_| NicError::Fault {
        addr,
        len,
        why: if writable {
            "not mapped, or not writable"
        } else {
            "not mapped"
        },
    })?;
    // SAFETY: just found mapped with these rights. That it stays so until `dereg`, and that the
    // program expects its bytes to change, is what registering memory promises (man ibv_reg_mr).
    Ok(unsafe { Region::new(addr, len) })
}

pub(crate) fn key_error(e: KeyError, addr: u64, len: u64) -> NicError {
    match e {
        KeyError::Limit { limit } => NicError::Limit {
            what: "memory key",
            limit: limit as u64,
        },
        KeyError::NeedsLocalWrite { .. } => {
            NicError::BadArgument("REMOTE_WRITE and REMOTE_ATOMIC also need LOCAL_WRITE")
        }
        KeyError::Wraps { .. } => {
            NicError::BadArgument("the region wraps around the end of the address space")
        }
        KeyError::UnknownAccess { bits } => NicError::Invalid {
            what: "access flags",
            value: bits.into(),
            limit: 0,
        },
        KeyError::Bound { count, .. } => NicError::Busy {
            what: "MR",
            count: count.into(),
        },
        _ => NicError::Fault {
            addr,
            len,
            why: "refused by the key table",
        },
    }
}
