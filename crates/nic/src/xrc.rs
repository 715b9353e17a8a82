//! XRC domains: what a receiving queue pair and the SRQs that senders may name have in common.
//!
//! A domain can be opened more than once, by way of a file, and then is the same one. That holds
//! within this process; another process that opens the same file gets a domain of its own, because
//! a queue pair cannot place data into the memory of another process.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use adverb_link::qpn;

use crate::context::Context;
use crate::cq::Cq;
use crate::error::NicError;
use crate::pd::Pd;
use crate::qp::{Qp, QpCell};
use crate::srq::{Srq, SrqCell};
use crate::sync::LockExt;

/// The file that names a domain: device and inode.
pub type FileId = (u64, u64);

/// An XRC domain as one opener has it (man ibv_open_xrcd).
pub struct Xrcd {
    context: Arc<Context>,
    domain: Arc<Domain>,
    users: Arc<AtomicU64>,
}

/// The domain behind all of its openers.
#[derive(Debug)]
pub(crate) struct Domain;

/// A child's share of a domain; the opener cannot close it while one exists.
pub(crate) struct XrcdUse {
    pub(crate) domain: Arc<Domain>,
    users: Arc<AtomicU64>,
}

impl Drop for XrcdUse {
    fn drop(&mut self) {
        self.users.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The XRC domains and SRQ numbers of a process.
#[derive(Default)]
pub(crate) struct XrcTable {
    named: Mutex<HashMap<(u32, FileId), Weak<Domain>>>,
    srqs: RwLock<HashMap<u32, Arc<SrqCell>>>,
    next: AtomicU32,
}

impl XrcTable {
    /// Gives an SRQ a number. `make` builds it around that.
    pub(crate) fn insert(
        &self,
        slot: u16,
        make: impl FnOnce(u32) -> Arc<SrqCell>,
    ) -> Result<Arc<SrqCell>, NicError> {
        let mut srqs = self.srqs.write().unwrap_or_else(PoisonError::into_inner);
        if srqs.len() as u32 >= qpn::LOCAL_MAX {
            return Err(NicError::Limit {
                what: "XRC SRQ number",
                limit: qpn::LOCAL_MAX.into(),
            });
        }
        // Numbers go round, so a freed one rests for as long as possible.
        let number = loop {
            let local = self.next.fetch_add(1, Ordering::Relaxed) & qpn::LOCAL_MAX;
            let number = qpn::compose(slot, local);
            if local != 0 && !srqs.contains_key(&number) {
                break number;
            }
        };
        let cell = make(number);
        srqs.insert(number, Arc::clone(&cell));
        Ok(cell)
    }

    pub(crate) fn remove(&self, number: u32) {
        self.srqs
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&number);
    }

    /// The SRQ with this number, if it belongs to the domain of the queue pair.
    pub(crate) fn find(&self, qp: &QpCell, number: u32) -> Option<Arc<SrqCell>> {
        let domain = qp.domain.as_ref()?;
        let srqs = self.srqs.read().unwrap_or_else(PoisonError::into_inner);
        srqs.get(&number).filter(|srq| srq.is_in(domain)).cloned()
    }

    fn open(
        &self,
        device: u32,
        file: Option<FileId>,
        create: bool,
        exclusive: bool,
    ) -> Result<Arc<Domain>, NicError> {
        let Some(file) = file else {
            if !create {
                return Err(NicError::io("opening an XRC domain")(
                    std::io::Error::from_raw_os_error(libc::EAGAIN),
                ));
            }
            return Ok(Arc::new(Domain));
        };
        let mut named = self.named.acquire();
        named.retain(|_, domain| domain.strong_count() > 0);
        match named.get(&(device, file)).and_then(Weak::upgrade) {
            Some(_) if exclusive => Err(NicError::BadArgument(
                "the XRC domain of this file is open, and O_EXCL was given",
            )),
            Some(domain) => Ok(domain),
            // The kernel's answer to a domain that is not there, without O_CREAT.
            None if !create => Err(NicError::io("opening an XRC domain")(
                std::io::Error::from_raw_os_error(libc::EAGAIN),
            )),
            None => {
                let domain = Arc::new(Domain);
                named.insert((device, file), Arc::downgrade(&domain));
                Ok(domain)
            }
        }
    }
}

impl Xrcd {
    pub(crate) fn open(
        context: &Arc<Context>,
        file: Option<FileId>,
        create: bool,
        exclusive: bool,
    ) -> Result<Arc<Self>, NicError> {
        let table = &context.nic().xrc;
        let domain = table.open(context.device().index, file, create, exclusive)?;
        Ok(Arc::new(Self {
            context: Arc::clone(context),
            domain,
            users: Arc::default(),
        }))
    }

    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Refuses while queue pairs or SRQs were made through this opening.
    pub fn close(&self) -> Result<(), NicError> {
        self.context.usable()?;
        match self.users.load(Ordering::Acquire) {
            0 => Ok(()),
            count => Err(NicError::Busy {
                what: "XRC domain",
                count,
            }),
        }
    }

    /// An SRQ that senders of the domain's queue pairs can name. Its receives are reported on `cq`.
    pub fn create_srq(
        &self,
        pd: &Pd,
        cq: &Arc<Cq>,
        max_wr: u32,
        max_sge: u32,
        user: u64,
    ) -> Result<Arc<Srq>, NicError> {
        self.context.usable()?;
        Srq::new_xrc(
            &self.context,
            pd.claim(),
            self.claim(),
            cq,
            max_wr,
            max_sge,
            user,
        )
    }

    /// The receiving half of an XRC connection.
    pub fn create_qp(&self, user: u64) -> Result<Arc<Qp>, NicError> {
        self.context.usable()?;
        Qp::new_target(&self.context, self.claim(), user)
    }

    /// Another handle of a receiving half; the queue pair lives until the last one is destroyed.
    pub fn open_qp(&self, number: u32, user: u64) -> Result<Arc<Qp>, NicError> {
        self.context.usable()?;
        Qp::open(&self.context, self.claim(), number, user)
    }

    fn claim(&self) -> XrcdUse {
        self.users.fetch_add(1, Ordering::AcqRel);
        XrcdUse {
            domain: Arc::clone(&self.domain),
            users: Arc::clone(&self.users),
        }
    }
}
