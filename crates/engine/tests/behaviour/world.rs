//! Memory, keys and queues of one side, as the engine sees them through `Host`.

use adverb_engine::*;

/// What a host was told, in order.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Told {
    Send(Completion),
    Recv(Completion),
    Event(QpEvent),
}

/// Memory and queues of one side.
pub(crate) struct World {
    pub(crate) keys: KeyTable<usize>,
    regions: Vec<Vec<u8>>,
    pub(crate) invalidatable: Vec<Key>,
    pub(crate) srq: Option<Srq>,
    /// The SRQs of the XRC domain: number, domain, queue.
    pub(crate) xrc: Vec<(u32, PdId, Srq)>,
    /// Which of them each receive was reported for.
    pub(crate) told_xrc: Vec<(u32, u64, WcStatus)>,
    pub(crate) told: Vec<Told>,
    pub(crate) atomics_executed: u32,
}

pub(crate) const PD: PdId = PdId(7);
pub(crate) const SRQ_PD: PdId = PdId(8);

/// A registered range and its key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mr {
    pub(crate) addr: u64,
    pub(crate) key: Key,
}

impl Mr {
    pub(crate) fn sge(&self, offset: u64, len: u32) -> Sge {
        Sge {
            addr: self.addr + offset,
            len,
            lkey: self.key,
        }
    }
}

pub(crate) fn all_access() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            keys: KeyTable::new(1000, seed),
            regions: Vec::new(),
            invalidatable: Vec::new(),
            srq: None,
            xrc: Vec::new(),
            told_xrc: Vec::new(),
            told: Vec::new(),
            atomics_executed: 0,
        }
    }

    pub(crate) fn register(&mut self, bytes: Vec<u8>) -> Mr {
        self.register_with(bytes, all_access(), PD)
    }

    pub(crate) fn register_with(&mut self, bytes: Vec<u8>, access: Access, pd: PdId) -> Mr {
        let addr = 0x1000_0000 * (self.regions.len() as u64 + 1);
        let spec = MrSpec {
            pd,
            iova: addr,
            len: bytes.len() as u64,
            access,
        };
        let key = self.keys.insert(spec, self.regions.len()).unwrap();
        self.regions.push(bytes);
        Mr { addr, key }
    }

    pub(crate) fn bytes(&self, mr: Mr) -> &[u8] {
        &self.regions[(mr.addr / 0x1000_0000 - 1) as usize]
    }

    pub(crate) fn sends(&self) -> Vec<Completion> {
        self.told
            .iter()
            .filter_map(|t| {
                if let Told::Send(c) = t {
                    Some(*c)
                } else {
                    None
                }
            })
            .collect()
    }

    pub(crate) fn receives(&self) -> Vec<Completion> {
        self.told
            .iter()
            .filter_map(|t| {
                if let Told::Recv(c) = t {
                    Some(*c)
                } else {
                    None
                }
            })
            .collect()
    }

    pub(crate) fn events(&self) -> Vec<QpEvent> {
        self.told
            .iter()
            .filter_map(|t| {
                if let Told::Event(e) = t {
                    Some(*e)
                } else {
                    None
                }
            })
            .collect()
    }

    pub(crate) fn send_statuses(&self) -> Vec<(u64, WcStatus)> {
        self.sends().iter().map(|c| (c.wr_id, c.status)).collect()
    }

    pub(crate) fn recv_statuses(&self) -> Vec<(u64, WcStatus)> {
        self.receives()
            .iter()
            .map(|c| (c.wr_id, c.status))
            .collect()
    }

    fn word(&mut self, a: &MemAccess, change: impl FnOnce(u64) -> u64) -> Result<u64, KeyError> {
        let (&region, offset) = self.keys.resolve(a)?;
        if !(a.va).is_multiple_of(8) {
            return Err(KeyError::Misaligned { va: a.va });
        }
        let cell: &mut [u8] = &mut self.regions[region][offset as usize..][..8];
        let old = u64::from_ne_bytes(cell.try_into().unwrap());
        cell.copy_from_slice(&change(old).to_ne_bytes());
        self.atomics_executed += 1;
        Ok(old)
    }
}

impl Host for World {
    fn check(&mut self, a: &MemAccess) -> Result<(), KeyError> {
        let flushes = Access::FLUSH_GLOBAL | Access::FLUSH_PERSISTENT;
        assert!(
            a.len > 0 || a.need.intersects(flushes),
            "no question about nothing"
        );
        self.keys.resolve(a).map(|_| ())
    }

    fn write(&mut self, a: &MemAccess, data: &[u8]) -> Result<(), KeyError> {
        assert_eq!(a.len, data.len() as u64);
        assert!(
            a.need
                .intersects(Access::LOCAL_WRITE | Access::REMOTE_WRITE)
        );
        let (&region, offset) = self.keys.resolve(a)?;
        self.regions[region][offset as usize..][..data.len()].copy_from_slice(data);
        Ok(())
    }

    fn read(&mut self, a: &MemAccess, out: &mut [u8]) -> Result<(), KeyError> {
        assert_eq!(a.len, out.len() as u64);
        let (&region, offset) = self.keys.resolve(a)?;
        out.copy_from_slice(&self.regions[region][offset as usize..][..out.len()]);
        Ok(())
    }

    fn compare_swap(&mut self, a: &MemAccess, compare: u64, swap: u64) -> Result<u64, KeyError> {
        self.word(a, |old| if old == compare { swap } else { old })
    }

    fn fetch_add(&mut self, a: &MemAccess, add: u64) -> Result<u64, KeyError> {
        self.word(a, |old| old.wrapping_add(add))
    }

    fn invalidate(&mut self, key: Key, pd: PdId, qp: QpNum) -> Result<(), KeyError> {
        if let Some(i) = self.invalidatable.iter().position(|k| *k == key) {
            self.invalidatable.remove(i);
            self.keys.remove(key);
            return Ok(());
        }
        self.keys.invalidate(key, pd, qp)
    }

    fn bind(&mut self, bind: &MwBind, pd: PdId, qp: QpNum) -> Result<(), KeyError> {
        self.keys.bind(bind, pd, qp)
    }

    fn take_srq(&mut self, into: &mut RecvWqe) -> bool {
        self.srq.as_mut().is_some_and(|s| s.take(into).is_some())
    }

    fn xrc_srq(&mut self, number: u32) -> Option<PdId> {
        self.xrc.iter().find(|s| s.0 == number).map(|s| s.1)
    }

    fn take_xrc_srq(&mut self, number: u32, into: &mut RecvWqe) -> bool {
        let srq = self.xrc.iter_mut().find(|s| s.0 == number);
        srq.is_some_and(|s| s.2.take(into).is_some())
    }

    fn complete(&mut self, queue: Side, c: &Completion) {
        if let Side::XrcSrq(number) = queue {
            self.told_xrc.push((number, c.wr_id, c.status));
        }
        self.told.push(match queue {
            Side::Send => Told::Send(*c),
            Side::Recv | Side::XrcSrq(_) => Told::Recv(*c),
        });
    }

    fn event(&mut self, e: QpEvent) {
        self.told.push(Told::Event(e));
    }
}
