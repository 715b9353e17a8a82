//! What the engine sees of the NIC while it works on one queue pair.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use adverb_engine::{
    Completion, Host, Key, KeyError, MemAccess, MwBind, PdId, QpEvent, QpNum, RecvWqe, Side,
};

use crate::backing::Backing;
use crate::nic::Nic;
use crate::qp::QpCell;

pub(crate) struct View<'a> {
    pub(crate) nic: &'a Nic,
    pub(crate) qp: &'a QpCell,
}

impl View<'_> {
    /// Runs `f` on the memory behind a key. The table stays locked for reading meanwhile, which
    /// is what makes `dereg` wait for copies under way.
    pub(crate) fn with<R>(
        &self,
        a: &MemAccess,
        f: impl FnOnce(&Backing, u64) -> Option<R>,
    ) -> Result<R, KeyError> {
        let keys = self.nic.keys.read().unwrap_or_else(PoisonError::into_inner);
        let (backing, offset) = keys.resolve(a)?;
        // The table has checked the range against the registration, so what fails now are pages
        // of a region on demand, and words that are misaligned in memory though not in the key's
        // addresses.
        f(backing, offset).ok_or(KeyError::Fault {
            va: a.va,
            len: a.len,
        })
    }
}

impl Host for View<'_> {
    fn check(&mut self, a: &MemAccess) -> Result<(), KeyError> {
        self.with(a, |_, _| Some(()))
    }

    fn write(&mut self, a: &MemAccess, data: &[u8]) -> Result<(), KeyError> {
        self.with(a, |backing, offset| backing.write(offset, data))
    }

    fn read(&mut self, a: &MemAccess, out: &mut [u8]) -> Result<(), KeyError> {
        self.with(a, |backing, offset| backing.read(offset, out))
    }

    fn compare_swap(&mut self, a: &MemAccess, compare: u64, swap: u64) -> Result<u64, KeyError> {
        self.with(a, |backing, offset| {
            backing.compare_swap(offset, compare, swap)
        })
    }

    fn fetch_add(&mut self, a: &MemAccess, add: u64) -> Result<u64, KeyError> {
        self.with(a, |backing, offset| backing.fetch_add(offset, add))
    }

    fn invalidate(&mut self, key: Key, pd: PdId, qp: QpNum) -> Result<(), KeyError> {
        self.nic
            .keys
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .invalidate(key, pd, qp)
    }

    fn bind(&mut self, bind: &MwBind, pd: PdId, qp: QpNum) -> Result<(), KeyError> {
        self.nic
            .keys
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .bind(bind, pd, qp)
    }

    fn take_srq(&mut self, into: &mut RecvWqe) -> bool {
        self.qp.srq.as_ref().is_some_and(|srq| srq.take(into))
    }

    fn xrc_srq(&mut self, number: u32) -> Option<PdId> {
        self.nic.xrc.find(self.qp, number).map(|srq| srq.pd_id())
    }

    fn take_xrc_srq(&mut self, number: u32, into: &mut RecvWqe) -> bool {
        self.nic
            .xrc
            .find(self.qp, number)
            .is_some_and(|srq| srq.take(into))
    }

    fn complete(&mut self, queue: Side, c: &Completion) {
        if queue != Side::Send {
            self.qp.delivered.store(true, Ordering::Relaxed);
        }
        let pushed = match queue {
            Side::Send => self.qp.send_cq.as_ref().is_none_or(|cq| cq.push(c)),
            Side::Recv => self.qp.recv_cq.as_ref().is_none_or(|cq| cq.push(c)),
            // An SRQ that was destroyed meanwhile took its reports along.
            Side::XrcSrq(number) => {
                let srq = self.nic.xrc.find(self.qp, number);
                srq.is_none_or(|srq| srq.cq().is_none_or(|cq| cq.push(c)))
            }
        };
        if !pushed {
            // Handled once the engine call is over: this queue pair is inside it.
            self.qp.cq_failed.store(true, Ordering::Relaxed);
        }
    }

    fn event(&mut self, e: QpEvent) {
        self.qp.raise(e.into());
    }
}
