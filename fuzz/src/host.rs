//! The world around a queue pair under fuzzing: real keys, real bounds, and a ledger of what was posted.

use std::collections::VecDeque;

use adverb_engine::{
    Access, Completion, Host, Key, KeyError, KeyTable, MemAccess, MrSpec, MwBind, PdId, QpEvent,
    QpNum, RecvWqe, Side, Srq, WcStatus,
};

use crate::traced;

pub(crate) const PD: PdId = PdId(7);
pub(crate) const SRQ_PD: PdId = PdId(8);
pub(crate) const SRQN: u32 = 0x51;
pub(crate) const REGION: usize = 8192;

/// Work posted to one queue and not reported yet.
#[derive(Default)]
pub(crate) struct Ledger {
    /// Its number, and whether it must be reported when it succeeds.
    pub(crate) posted: VecDeque<(u64, bool)>,
}

const RECEIVE: &str = "receive";

impl Ledger {
    /// A completion reports the oldest work, except that successful unsignaled work before it is not reported.
    fn report(&mut self, c: &Completion, what: &str) {
        while let Some((wr_id, signaled)) = self.posted.pop_front() {
            if wr_id == c.wr_id {
                let silent = !signaled && c.status == WcStatus::Success;
                assert!(
                    !silent || what == RECEIVE,
                    "{what} {wr_id} was not to be reported"
                );
                return;
            }
            assert!(!signaled, "{what} {wr_id} was passed over by {}", c.wr_id);
        }
        panic!("{what} {} completed and is not outstanding", c.wr_id);
    }
}

pub(crate) struct World {
    pub(crate) keys: KeyTable<usize>,
    pub(crate) regions: Vec<Vec<u8>>,
    pub(crate) srq: Option<Srq>,
    pub(crate) xrc: Srq,
    pub(crate) sends: Ledger,
    pub(crate) receives: Ledger,
    /// Receive entries come from a queue that is not the queue pair's own.
    pub(crate) shared: bool,
    pub(crate) events: u32,
}

impl World {
    pub(crate) fn new() -> Self {
        Self {
            keys: KeyTable::new(64, 1),
            regions: Vec::new(),
            srq: None,
            xrc: Srq::new(16, 4),
            sends: Ledger::default(),
            receives: Ledger::default(),
            shared: false,
            events: 0,
        }
    }

    pub(crate) fn register(&mut self, pd: PdId, access: Access) -> (u32, u64) {
        let iova = 0x10_0000 * (self.regions.len() as u64 + 1);
        let spec = MrSpec {
            pd,
            iova,
            len: REGION as u64,
            access,
        };
        let key = self
            .keys
            .insert(spec, self.regions.len())
            .expect("there is room for a few keys");
        self.regions.push(vec![0; REGION]);
        (key.0, iova)
    }

    fn range(&mut self, a: &MemAccess) -> Result<&mut [u8], KeyError> {
        let (&region, offset) = self.keys.resolve(a)?;
        // A panic here is a finding: the key table let something through.
        Ok(&mut self.regions[region][offset as usize..][..a.len as usize])
    }

    fn word(&mut self, a: &MemAccess, change: impl FnOnce(u64) -> u64) -> Result<u64, KeyError> {
        if !a.va.is_multiple_of(8) {
            return Err(KeyError::Misaligned { va: a.va });
        }
        assert_eq!(a.len, 8);
        let cell = self.range(a)?;
        let old = u64::from_ne_bytes(cell.try_into().expect("eight bytes"));
        cell.copy_from_slice(&change(old).to_ne_bytes());
        Ok(old)
    }
}

impl Host for World {
    fn check(&mut self, a: &MemAccess) -> Result<(), KeyError> {
        self.keys.resolve(a).map(|_| ())
    }

    fn write(&mut self, a: &MemAccess, data: &[u8]) -> Result<(), KeyError> {
        assert_eq!(a.len, data.len() as u64);
        assert!(
            !data.is_empty()
                && a.need
                    .intersects(Access::LOCAL_WRITE | Access::REMOTE_WRITE)
        );
        self.range(a)?.copy_from_slice(data);
        Ok(())
    }

    fn read(&mut self, a: &MemAccess, out: &mut [u8]) -> Result<(), KeyError> {
        assert!(a.len == out.len() as u64 && !out.is_empty());
        out.copy_from_slice(self.range(a)?);
        Ok(())
    }

    fn compare_swap(&mut self, a: &MemAccess, compare: u64, swap: u64) -> Result<u64, KeyError> {
        self.word(a, |old| if old == compare { swap } else { old })
    }

    fn fetch_add(&mut self, a: &MemAccess, add: u64) -> Result<u64, KeyError> {
        self.word(a, |old| old.wrapping_add(add))
    }

    fn invalidate(&mut self, key: Key, pd: PdId, qp: QpNum) -> Result<(), KeyError> {
        self.keys.invalidate(key, pd, qp)
    }

    fn bind(&mut self, bind: &MwBind, pd: PdId, qp: QpNum) -> Result<(), KeyError> {
        self.keys.bind(bind, pd, qp)
    }

    fn take_srq(&mut self, into: &mut RecvWqe) -> bool {
        self.srq
            .as_mut()
            .is_some_and(|srq| srq.take(into).is_some())
    }

    fn xrc_srq(&mut self, number: u32) -> Option<PdId> {
        (number == SRQN).then_some(SRQ_PD)
    }

    fn take_xrc_srq(&mut self, number: u32, into: &mut RecvWqe) -> bool {
        number == SRQN && self.xrc.take(into).is_some()
    }

    fn complete(&mut self, queue: Side, c: &Completion) {
        if traced() {
            eprintln!("completed {queue:?} {} {:?}", c.wr_id, c.status);
        }
        match queue {
            Side::Send => self.sends.report(c, "send"),
            Side::Recv | Side::XrcSrq(_) => self.receives.report(c, RECEIVE),
        }
    }

    fn event(&mut self, _: QpEvent) {
        self.events += 1;
    }
}
