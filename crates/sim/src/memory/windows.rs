//! Memory windows of a node as the specification has them: which are bound, to what, and for whom.
//!
//! This is kept beside the engine's key table and asked about every bind, every invalidation and every
//! access through a window; the two must always agree, in what they allow and in what they refuse.

use adverb_engine::{Access, Key, KeyError, MemAccess, MwBind, PdId, QpNum, WindowType};

use super::{BASE, Memory, RegionId};

/// Names a window of one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WindowId(usize);

impl WindowId {
    pub(super) const fn nth(n: usize) -> Self {
        Self(n)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pd: PdId,
    kind: WindowType,
    /// The key that counts now; the tag changes with each bind.
    key: Key,
    bound: Option<Bound>,
}

#[derive(Clone, Copy, Debug)]
struct Bound {
    region: RegionId,
    /// The region's key then: with another one it is another region.
    region_key: Key,
    /// What the peer calls the first byte, and where in the array that is.
    va: u64,
    at: usize,
    len: usize,
    access: Access,
    /// Type 2: the queue pair that may use it.
    qp: Option<QpNum>,
}

impl Memory {
    /// A new window, bound to nothing.
    pub fn add_window(&mut self, pd: PdId, kind: WindowType) -> WindowId {
        let key = self.keys.insert_window(pd, kind);
        self.windows.push(Window {
            pd,
            kind,
            key: key.expect("there is room for keys"),
            bound: None,
        });
        WindowId(self.windows.len() - 1)
    }

    /// Another window in the place of this one, which is gone with whatever it was bound to.
    pub fn renew_window(&mut self, id: WindowId) {
        self.remove_window(id);
        let window = &mut self.windows[id.0];
        let key = self.keys.insert_window(window.pd, window.kind);
        window.key = key.expect("there is room for keys");
    }

    /// Ends a window, bound or not; [`Memory::renew_window`] puts another one in its place.
    pub fn remove_window(&mut self, id: WindowId) {
        let window = &mut self.windows[id.0];
        window.bound = None;
        self.keys.remove_window(window.key);
        // No key has this one's slot, whatever its tag.
        window.key = Key(0);
    }

    pub fn window_key(&self, id: WindowId) -> Key {
        self.windows[id.0].key
    }

    /// BIND_MW.
    pub fn bind(&mut self, bind: &MwBind, pd: PdId, qp: QpNum) -> Result<(), KeyError> {
        let expected = self.what_a_bind_makes(bind, pd, qp);
        let got = self.keys.bind(bind, pd, qp);
        assert_eq!(
            got.is_ok(),
            expected.is_some(),
            "{bind:x?} by {qp:?}: {got:?}, but it makes {expected:x?}"
        );
        if let Some((window, bound)) = expected {
            let window = &mut self.windows[window];
            window.key = bind.new_key;
            window.bound = bound;
        }
        got
    }

    /// The window that a legal bind changes, and what it is bound to then.
    fn what_a_bind_makes(&self, b: &MwBind, pd: PdId, qp: QpNum) -> Option<(usize, Option<Bound>)> {
        let index = |key: Key| key.0 >> 8;
        let of_key = |w: &Window| index(w.key) == index(b.window);
        let at = self.windows.iter().position(of_key)?;
        let window = &self.windows[at];
        let two = window.kind == WindowType::Two;
        if window.pd != pd || index(b.new_key) != index(b.window) || two && window.bound.is_some() {
            return None;
        }
        if b.len == 0 {
            return (!two).then_some((at, None));
        }
        let region = self.regions.iter().position(|r| r.key == Some(b.region))?;
        let r = &self.regions[region];
        let changes = b
            .access
            .intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
        let zero_based = b.access.contains(Access::ZERO_BASED);
        let start = BASE + r.at as u64;
        let legal = r.pd == pd
            && r.access.contains(Access::MW_BIND)
            && (!changes || r.access.contains(Access::LOCAL_WRITE))
            && (two || !zero_based)
            && b.addr >= start
            && b.addr + b.len <= start + r.len as u64;
        let bound = Bound {
            region: RegionId(region),
            region_key: b.region,
            va: if zero_based { 0 } else { b.addr },
            at: (b.addr.wrapping_sub(BASE)) as usize,
            len: b.len as usize,
            access: b.access,
            qp: two.then_some(qp),
        };
        legal.then_some((at, Some(bound)))
    }

    /// LOCAL_INV and SEND_WITH_INV of what is a window.
    pub(super) fn invalidate_window(
        &mut self,
        key: Key,
        pd: PdId,
        qp: QpNum,
    ) -> Result<(), KeyError> {
        let window = self.windows.iter_mut().find(|w| {
            let ours = w.bound.is_some_and(|b| b.qp == Some(qp));
            w.key == key && w.pd == pd && ours
        });
        let got = self.keys.invalidate(key, pd, qp);
        assert_eq!(
            got.is_ok(),
            window.is_some(),
            "{key:x?} for {qp:?}: {got:?}, but of {window:x?}"
        );
        if let Some(window) = window {
            window.bound = None;
        }
        got
    }

    /// A queue pair is gone.
    pub fn release_windows_of(&mut self, qp: QpNum) {
        self.keys.release_windows_of(qp);
        for window in &mut self.windows {
            if window.bound.is_some_and(|b| b.qp == Some(qp)) {
                window.bound = None;
            }
        }
    }

    /// Where in the array an access through a window goes, if it may.
    pub(super) fn through(&self, a: &MemAccess) -> Option<usize> {
        let window = self.windows.iter().find(|w| w.key == a.key)?;
        let bound = window.bound.filter(|b| {
            self.regions[b.region.0].key == Some(b.region_key) && b.qp.is_none_or(|qp| qp == a.qp)
        })?;
        let end = u128::from(a.va) + u128::from(a.len);
        let inside = a.va >= bound.va && end <= u128::from(bound.va) + bound.len as u128;
        let allowed = a.remote
            && window.pd == a.pd
            && bound.access.contains(a.need)
            && (inside || a.len == 0);
        allowed.then(|| bound.at.wrapping_add(a.va.wrapping_sub(bound.va) as usize))
    }

    /// Whether the peer of a queue pair gets anywhere with a key.
    pub fn admits(&self, key: Key, pd: PdId, qp: QpNum) -> bool {
        let access = MemAccess {
            key,
            pd,
            qp,
            va: 0,
            len: 0,
            need: Access::empty(),
            remote: true,
        };
        self.check(&access).is_ok()
    }

    /// Whether the regions know how many windows are bound to them.
    pub fn windows_are_counted(&self) -> bool {
        self.regions.iter().all(|r| {
            let bound = |w: &&Window| w.bound.is_some_and(|b| Some(b.region_key) == r.key);
            let count = self.windows.iter().filter(bound).count();
            r.key
                .is_none_or(|key| self.keys.windows_of(key) as usize == count)
        })
    }
}
