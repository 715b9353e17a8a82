//! The memory of one node: regions in one flat array, with guards between them that nobody may touch.
//!
//! Addresses are positions in the array, so a range check that fails to stop something shows as a
//! damaged guard or a damaged neighbour, and every write is compared with a second list of regions
//! (and of windows, in `windows.rs`) that the engine's key table knows nothing of.

mod windows;

use std::collections::HashSet;

use adverb_engine::{Access, Key, KeyError, KeyTable, MemAccess, MrSpec, PdId, QpNum, Sge};

use windows::Window;
pub use windows::WindowId;

/// Address of the first byte.
const BASE: u64 = 0x10_0000;
const GUARD: usize = 64;
const CANARY: u8 = 0xc5;

/// A range of memory, registered or not.
#[derive(Clone, Copy, Debug)]
struct Region {
    at: usize,
    len: usize,
    access: Access,
    pd: PdId,
    key: Option<Key>,
    /// Another name for bytes of a region before it.
    alias: bool,
    /// The same bytes for another protection domain.
    twin: Option<RegionId>,
}

impl Region {
    const fn spec(&self) -> MrSpec {
        MrSpec {
            pd: self.pd,
            iova: BASE + self.at as u64,
            len: self.len as u64,
            access: self.access,
        }
    }
}

/// Names a region of one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegionId(usize);

#[derive(Debug)]
pub struct Memory {
    bytes: Vec<u8>,
    regions: Vec<Region>,
    keys: KeyTable<RegionId>,
    windows: Vec<Window>,
    /// Keys that an invalidation may take away.
    invalidatable: HashSet<Key>,
}

impl Memory {
    pub fn new(seed: u64) -> Self {
        Self {
            bytes: vec![CANARY; GUARD],
            regions: Vec::new(),
            keys: KeyTable::new(10_000, seed),
            windows: Vec::new(),
            invalidatable: HashSet::new(),
        }
    }

    /// A new region of zeros, registered.
    pub fn add(&mut self, len: usize, access: Access, pd: PdId) -> RegionId {
        let at = self.bytes.len();
        self.bytes.resize(at + len, 0);
        // Atomics need aligned words, so every region begins on one.
        let end = (self.bytes.len() + GUARD).next_multiple_of(64);
        self.bytes.resize(end, CANARY);
        self.place(Region {
            at,
            len,
            access,
            pd,
            key: None,
            alias: false,
            twin: None,
        })
    }

    /// The bytes of a region with the same rights in another protection domain; both come and go together.
    pub fn add_twin(&mut self, of: RegionId, pd: PdId) {
        let twin = self.add_alias(of, self.regions[of.0].access, pd);
        self.regions[of.0].twin = Some(twin);
    }

    /// The region itself, if it has no twin.
    pub fn twin(&self, id: RegionId) -> RegionId {
        self.regions[id.0].twin.unwrap_or(id)
    }

    /// The bytes of a region once more, with other rights.
    pub fn add_alias(&mut self, of: RegionId, access: Access, pd: PdId) -> RegionId {
        self.place(Region {
            access,
            pd,
            key: None,
            alias: true,
            twin: None,
            ..self.regions[of.0]
        })
    }

    fn place(&mut self, region: Region) -> RegionId {
        let id = RegionId(self.regions.len());
        self.regions.push(region);
        self.register(id);
        id
    }

    /// Registers a region anew; its old key, if any, is gone.
    pub fn register(&mut self, id: RegionId) {
        self.deregister(id);
        let spec = self.regions[id.0].spec();
        let key = self.keys.insert(spec, id).expect("there is room for keys");
        self.regions[id.0].key = Some(key);
        if let Some(twin) = self.regions[id.0].twin {
            self.register(twin);
        }
    }

    pub fn deregister(&mut self, id: RegionId) {
        if let Some(key) = self.regions[id.0].key.take() {
            self.keys.remove(key);
        }
        if let Some(twin) = self.regions[id.0].twin {
            self.deregister(twin);
        }
    }

    /// All keys change, as when the device is opened again.
    pub fn register_all(&mut self) {
        for key in std::mem::take(&mut self.invalidatable) {
            self.keys.remove(key);
        }
        for i in 0..self.regions.len() {
            self.register(RegionId(i));
        }
        for i in 0..self.windows.len() {
            self.renew_window(WindowId::nth(i));
        }
    }

    /// A second key for a region, which an invalidation takes away.
    pub fn add_invalidatable(&mut self, id: RegionId) -> Key {
        let spec = self.regions[id.0].spec();
        let key = self.keys.insert(spec, id).expect("there is room for keys");
        self.invalidatable.insert(key);
        key
    }

    pub fn invalidate(&mut self, key: Key, pd: PdId, qp: QpNum) -> Result<(), KeyError> {
        if self.invalidatable.remove(&key) {
            self.keys.remove(key);
            return Ok(());
        }
        self.invalidate_window(key, pd, qp)
    }

    /// The region's key; a key that never was when it has none.
    pub fn key(&self, id: RegionId) -> Key {
        self.regions[id.0].key.unwrap_or(Key(0))
    }

    pub fn addr(&self, id: RegionId, offset: usize) -> u64 {
        BASE + (self.regions[id.0].at + offset) as u64
    }

    pub fn sge(&self, id: RegionId, offset: usize, len: usize) -> Sge {
        Sge {
            addr: self.addr(id, offset),
            len: len as u32,
            lkey: self.key(id),
        }
    }

    pub fn bytes(&self, id: RegionId) -> &[u8] {
        let r = self.regions[id.0];
        &self.bytes[r.at..r.at + r.len]
    }

    pub fn bytes_mut(&mut self, id: RegionId) -> &mut [u8] {
        let r = self.regions[id.0];
        &mut self.bytes[r.at..r.at + r.len]
    }

    /// Where an access goes, if the keys allow it and our own list agrees that they may.
    fn resolve(&self, a: &MemAccess) -> Result<usize, KeyError> {
        let (&id, offset) = self.keys.resolve(a).inspect_err(|e| {
            assert!(
                self.windows.is_empty() || self.through(a).is_none(),
                "{a:?} was refused ({e}), but there is a window"
            );
        })?;
        let r = self.regions[id.0];
        if r.key != Some(a.key) {
            let window = self.through(a);
            assert_eq!(
                window,
                Some(r.at + offset as usize),
                "{a:?} was allowed, but is no way through a window"
            );
            return window.ok_or(KeyError::Unknown { key: a.key.0 });
        }
        let at = (a.va - BASE) as usize;
        assert!(
            at == r.at + offset as usize && at >= r.at && at + a.len as usize <= r.at + r.len,
            "{a:?} was allowed, but the region is {r:?}"
        );
        assert!(
            r.access.contains(a.need) && r.pd == a.pd,
            "{a:?} was allowed on {r:?}"
        );
        Ok(at)
    }

    pub fn check(&self, a: &MemAccess) -> Result<(), KeyError> {
        if a.len == 0 {
            // Only the key and its rights are asked about.
            let got = self.keys.resolve(a).map(|_| ());
            assert!(
                self.keys.get(a.key).is_some() || got.is_ok() == self.through(a).is_some(),
                "{a:?}: {got:?}, which is not what the windows say"
            );
            return got;
        }
        self.resolve(a).map(|_| ())
    }

    pub fn write(&mut self, a: &MemAccess, data: &[u8]) -> Result<(), KeyError> {
        assert_eq!(a.len, data.len() as u64);
        assert!(
            a.need
                .intersects(Access::LOCAL_WRITE | Access::REMOTE_WRITE),
            "{a:?} writes"
        );
        let at = self.resolve(a)?;
        self.bytes[at..at + data.len()].copy_from_slice(data);
        Ok(())
    }

    pub fn read(&self, a: &MemAccess, out: &mut [u8]) -> Result<(), KeyError> {
        assert_eq!(a.len, out.len() as u64);
        let at = self.resolve(a)?;
        out.copy_from_slice(&self.bytes[at..at + out.len()]);
        Ok(())
    }

    /// Changes a word and returns what it was.
    pub fn word(
        &mut self,
        a: &MemAccess,
        change: impl FnOnce(u64) -> u64,
    ) -> Result<u64, KeyError> {
        let at = self.resolve(a)?;
        assert!(a.va.is_multiple_of(8) && a.len == 8 && a.need.contains(Access::REMOTE_ATOMIC));
        Ok(change_word(&mut self.bytes[at..at + 8], change))
    }

    /// Whether every byte between the regions is as it was.
    pub fn guards_are_intact(&self) -> bool {
        let regions = || self.regions.iter().filter(|r| !r.alias);
        let ends = regions().map(|r| r.at + r.len);
        let starts = regions().map(|r| r.at).chain([self.bytes.len()]);
        std::iter::once(0)
            .chain(ends)
            .zip(starts)
            .all(|(from, to)| self.bytes[from..to].iter().all(|b| *b == CANARY))
    }
}

/// Changes the number in eight bytes and returns what it was.
pub fn change_word(cell: &mut [u8], change: impl FnOnce(u64) -> u64) -> u64 {
    let old = u64::from_ne_bytes(cell.try_into().expect("eight bytes"));
    cell.copy_from_slice(&change(old).to_ne_bytes());
    old
}
