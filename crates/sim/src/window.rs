//! Memory windows in the program: every end of a connection binds some over its target, and its peer
//! uses them, in their bounds and (as work that must fail) out of them.
//!
//! The key table is compared with the specification at every step in `memory/windows.rs`. What is here
//! is the life that a window leads: a peer learns of a bind when it completes or from a message behind
//! it, and a program that takes a window back first waits until nobody uses it.

use adverb_engine::{Access, Key, MwBind, SendFlags, SendOp, WcOpcode, WcStatus, WindowType};
use adverb_wire::Transport;

use crate::draft::Draft;
use crate::memory::WindowId;
use crate::node::PD;
use crate::world::World;

/// The windows of one endpoint.
pub(crate) const KINDS: [WindowType; 3] = [WindowType::Two, WindowType::Two, WindowType::One];

/// A window as both programs know it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(crate) id: WindowId,
    pub(crate) kind: WindowType,
    pub(crate) phase: Phase,
    /// The key last asked for, and what it covers.
    pub(crate) key: Key,
    pub(crate) range: Range,
    /// A key of its past.
    pub(crate) stale: Option<Key>,
    /// Accesses by the peer that are not done.
    pub(crate) uses: u32,
    /// Its owner wants it back.
    pub(crate) wanted: bool,
    /// Work that must fail because of what it is now is under way, so it stays that.
    pub(crate) frozen: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    Free,
    /// Work is under way that binds it.
    Binding,
    Open,
    /// Work is under way that unbinds it, here or at the peer.
    Closing,
}

/// Part of a target, and how peers call it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Range {
    pub(crate) at: usize,
    pub(crate) len: usize,
    pub(crate) access: Access,
    /// Address of the first byte.
    pub(crate) va: u64,
}

/// A bind or an invalidation that is done when a work request or a message is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Change {
    owner: usize,
    index: usize,
    key: Key,
    /// What the window is in until then.
    phase: Phase,
}

/// A way to part of the peer's target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Door {
    /// Which window; the region itself if none.
    pub(crate) window: Option<usize>,
    pub(crate) key: Key,
    pub(crate) first: usize,
    pub(crate) end: usize,
    /// Address of the target's first byte, if that could be seen.
    origin: u64,
}

impl Door {
    pub(crate) const fn addr(&self, at: usize) -> u64 {
        self.origin.wrapping_add(at as u64)
    }
}

impl Known {
    pub(crate) fn new(id: WindowId, kind: WindowType, key: Key) -> Self {
        Self {
            id,
            kind,
            phase: Phase::Free,
            key,
            range: Range::default(),
            stale: None,
            uses: 0,
            wanted: false,
            frozen: false,
        }
    }

    /// Nothing can reach through its key any more, and nothing is under way.
    fn free(&mut self) {
        self.stale = Some(self.key);
        self.phase = Phase::Free;
        self.wanted = false;
    }

    /// The program could have been told that it may use this now.
    const fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open) && !self.wanted
    }

    /// A SEND by the peer may unbind it.
    fn can_be_given_back(&self) -> bool {
        self.kind == WindowType::Two && self.phase == Phase::Open && !self.frozen
    }

    /// The next key: the same but for the tag.
    const fn next_key(&self) -> Key {
        Key(self.key.0 & !0xff | self.key.0.wrapping_add(1) & 0xff)
    }
}

impl World {
    /// A way to `first..end` of the peer's target, or to part of it: sometimes through a window.
    pub(crate) fn door(&mut self, e: usize, need: Access, first: usize, end: usize) -> Door {
        let peer = self.endpoints[e].peer;
        if self.profile.windows > 0 && self.random.chance(4000) {
            let turn = self.random.index(KINDS.len());
            for (i, _) in KINDS.iter().enumerate() {
                let at = (turn + i) % KINDS.len();
                let Some(w) = self.endpoints[peer].windows.get(at) else {
                    break;
                };
                let r = w.range;
                let (first, end) = (first.max(r.at), end.min(r.at + r.len));
                if w.is_open() && r.access.contains(need) && first + 8 <= end {
                    return Door {
                        window: Some(at),
                        key: w.key,
                        first,
                        end,
                        origin: r.va.wrapping_sub(r.at as u64),
                    };
                }
            }
        }
        let there = &self.endpoints[peer];
        let memory = &self.nodes[there.node].common.memory;
        Door {
            window: None,
            key: self.remote_key(e, there.target),
            first,
            end,
            origin: memory.addr(there.target, 0),
        }
    }

    /// Work that binds a window, or unbinds one of either side.
    pub(crate) fn draft_window(&mut self, e: usize) -> Option<Draft> {
        if self.endpoints[e].windows.is_empty() {
            return None;
        }
        if self.random.chance(self.profile.poison) {
            return self.draft_bad_window_work(e);
        }
        if self.endpoints[e].transport == Transport::Rc && self.random.chance(1500) {
            return self.draft_send_inv(e);
        }
        let index = self.random.index(KINDS.len());
        let w = self.endpoints[e].windows[index];
        match (w.phase, w.kind) {
            _ if w.frozen => None,
            // Most of the time it is left to those who use it.
            (Phase::Open, _) if !w.wanted && self.random.chance(6000) => None,
            (Phase::Free, _) => Some(self.draft_bind(e, index)),
            (Phase::Open, _) if w.uses > 0 => {
                // Nobody begins anything new with it.
                self.endpoints[e].windows[index].wanted = true;
                None
            }
            (Phase::Open, WindowType::Two) => {
                let mut draft = self.draft_local(e, SendOp::LocalInv(w.key), WcOpcode::LocalInv);
                draft.sent.invalidates = Some(w.key);
                draft.sent.change = self.change(e, index, Phase::Closing);
                Some(draft)
            }
            (Phase::Open, WindowType::One) if self.random.chance(5000) => {
                Some(self.draft_unbind(e, index))
            }
            (Phase::Open, WindowType::One) => Some(self.draft_bind(e, index)),
            (Phase::Binding | Phase::Closing, _) => None,
        }
    }

    fn change(&mut self, owner: usize, index: usize, phase: Phase) -> Option<Change> {
        let w = &mut self.endpoints[owner].windows[index];
        w.phase = phase;
        let key = w.key;
        Some(Change {
            owner,
            index,
            key,
            phase,
        })
    }

    /// The work that changes a window is done, and somebody has been told.
    pub(crate) fn settle(&mut self, change: Change) {
        let w = &mut self.endpoints[change.owner].windows[change.index];
        // Both sides may be told, and one of them long after.
        if (w.key, w.phase) != (change.key, change.phase) {
            return;
        }
        match w.phase {
            Phase::Binding => {
                w.phase = Phase::Open;
                self.stats.binds += 1;
            }
            Phase::Closing => {
                w.free();
                self.stats.unbinds += 1;
            }
            Phase::Free | Phase::Open => {}
        }
    }

    /// The bind under way at `e` that a message behind it can tell of.
    pub(crate) fn news(&mut self, e: usize) -> Option<Change> {
        if self.profile.windows == 0 || !self.random.chance(5000) {
            return None;
        }
        let windows = &self.endpoints[e].windows;
        let index = windows.iter().position(|w| w.phase == Phase::Binding)?;
        let key = windows[index].key;
        Some(Change {
            owner: e,
            index,
            key,
            phase: Phase::Binding,
        })
    }

    fn draft_local(&mut self, e: usize, op: SendOp, opcode: WcOpcode) -> Draft {
        let mut draft = self.blank(e, op, 0, opcode);
        draft.count = 0;
        draft
    }

    /// What a window of `e` could cover.
    fn range(&mut self, e: usize, kind: WindowType) -> Range {
        let whole = self.target_len();
        let (at, len) = match self.random.below(3) {
            0 => (0, whole),
            // The edges lie on words, since atomics do.
            1 => (0, 8 * self.random.between(1, (whole / 8) as u64) as usize),
            _ => {
                let at = 8 * self.random.index(whole / 8);
                (at, self.random.between(1, (whole - at) as u64) as usize)
            }
        };
        let zero_based = kind == WindowType::Two && self.random.chance(5000);
        let mut access = Access::empty();
        for right in [
            Access::REMOTE_WRITE,
            Access::REMOTE_READ,
            Access::REMOTE_ATOMIC,
            Access::FLUSH_GLOBAL,
        ] {
            access.set(right, self.random.chance(7500));
        }
        access.set(Access::ZERO_BASED, zero_based);
        let ep = &self.endpoints[e];
        let va = self.nodes[ep.node].common.memory.addr(ep.target, at);
        Range {
            at,
            len,
            access,
            va: if zero_based { 0 } else { va },
        }
    }

    fn bind_of(&self, e: usize, index: usize, range: Range) -> MwBind {
        let ep = &self.endpoints[e];
        let w = &ep.windows[index];
        let memory = &self.nodes[ep.node].common.memory;
        MwBind {
            window: w.key,
            new_key: w.next_key(),
            region: memory.key(ep.bindable),
            addr: memory.addr(ep.target, range.at),
            len: range.len as u64,
            access: range.access,
        }
    }

    fn draft_bind(&mut self, e: usize, index: usize) -> Draft {
        let kind = self.endpoints[e].windows[index].kind;
        let range = self.range(e, kind);
        let bind = self.bind_of(e, index, range);
        let draft = self.draft_local(e, SendOp::BindMw(bind), WcOpcode::BindMw);
        self.bind_to(e, index, range, Phase::Binding, draft)
    }

    /// Type 1: a bind of nothing.
    fn draft_unbind(&mut self, e: usize, index: usize) -> Draft {
        let bind = self.bind_of(e, index, Range::default());
        let draft = self.draft_local(e, SendOp::BindMw(bind), WcOpcode::BindMw);
        self.bind_to(e, index, Range::default(), Phase::Closing, draft)
    }

    fn bind_to(
        &mut self,
        e: usize,
        index: usize,
        range: Range,
        phase: Phase,
        mut draft: Draft,
    ) -> Draft {
        let w = &mut self.endpoints[e].windows[index];
        w.stale = Some(w.key);
        (w.key, w.range, w.wanted) = (w.next_key(), range, false);
        draft.sent.change = self.change(e, index, phase);
        draft
    }

    /// A SEND that takes a window from the peer.
    fn draft_send_inv(&mut self, e: usize) -> Option<Draft> {
        let peer = self.endpoints[e].peer;
        let index = self.endpoints[peer]
            .windows
            .iter()
            .position(Known::can_be_given_back)?;
        Some(self.draft_give_back(e, index))
    }

    /// Whether a READ that is about to be posted may be the last through a window of the peer: a SEND
    /// that gives it back follows, and there must be room for both.
    pub(crate) fn ends_with(&mut self, e: usize, window: usize) -> bool {
        let ep = &self.endpoints[e];
        let room = ep
            .cell
            .as_ref()
            .is_some_and(|cell| cell.qp.sends_pending() + 2 <= cell.qp.config().caps.max_send_wr);
        room && self.endpoints[ep.peer].windows[window].can_be_given_back()
            && self.random.chance(6000)
    }

    /// A SEND that gives this window back to the peer.
    pub(crate) fn draft_give_back(&mut self, e: usize, index: usize) -> Draft {
        let peer = self.endpoints[e].peer;
        let key = self.endpoints[peer].windows[index].key;
        let len = self.length(self.endpoints[e].setup.pmtu);
        let mut draft = self.blank(e, SendOp::SendInv(key), len, WcOpcode::Send);
        // A READ through the window must have come back before it closes.
        draft.flags |= SendFlags::FENCE;
        let change = self.change(peer, index, Phase::Closing);
        draft.sent.change = change;
        if let Some(arrival) = &mut draft.arrival {
            arrival.change = change;
        }
        draft
    }

    /// Binds and invalidations that must be refused, and change nothing.
    fn draft_bad_window_work(&mut self, e: usize) -> Option<Draft> {
        let index = self.random.index(KINDS.len());
        let ep = &self.endpoints[e];
        let w = ep.windows[index];
        let node = &self.nodes[ep.node];
        let memory = &node.common.memory;
        let elsewhere = self.window_of_another(ep.node, e);
        let two = w.kind == WindowType::Two;
        let settled = matches!(w.phase, Phase::Free | Phase::Open);
        let way = self.random.below(8);
        let bad_key = match way {
            0 => Some(memory.key(ep.target)),
            1 => elsewhere,
            2 => w.stale,
            // Neither what is not bound nor type 1 can be invalidated.
            3 => (w.phase == Phase::Free || !two).then_some(w.key),
            _ => None,
        };
        if let Some(key) = bad_key {
            let mut draft = self.draft_local(e, SendOp::LocalInv(key), WcOpcode::LocalInv);
            draft.sent.poison = Some(WcStatus::LocQpOpErr);
            return Some(draft);
        }
        let (source_key, source_at) = (memory.key(node.source), memory.addr(node.source, 0));
        let open_key = memory.key(ep.target);
        let mut range = self.range(e, w.kind);
        range.access.remove(Access::ZERO_BASED);
        let mut bind = self.bind_of(e, index, range);
        match way {
            4 if two && w.phase == Phase::Open => {}
            4 => bind.access |= Access::ZERO_BASED,
            5 => bind.len = (self.target_len() - range.at) as u64 + 1,
            // This one may be bound, but not so that others write into it.
            6 => {
                (bind.region, bind.addr) = (source_key, source_at);
                bind.access |= Access::REMOTE_WRITE;
            }
            7 if two && settled => bind.len = 0,
            _ => bind.region = open_key,
        }
        if way == 4 && two && w.phase != Phase::Open {
            return None;
        }
        self.endpoints[e].windows[index].frozen = true;
        let mut draft = self.draft_local(e, SendOp::BindMw(bind), WcOpcode::BindMw);
        draft.sent.poison = Some(WcStatus::MwBindErr);
        Some(draft)
    }

    /// The key of a window on this node that another queue pair than that of `e` has bound.
    fn window_of_another(&self, node: usize, e: usize) -> Option<Key> {
        let others = self.endpoints.iter().enumerate();
        others
            .filter(|(other, ep)| *other != e && ep.node == node)
            .flat_map(|(_, ep)| &ep.windows)
            .find(|w| w.kind == WindowType::Two && w.phase == Phase::Open)
            .map(|w| w.key)
    }

    /// A key that a SEND of `e` cannot take from its peer.
    pub(crate) fn uninvalidatable(&mut self, e: usize) -> Key {
        let peer = self.endpoints[e].peer;
        let there = &self.endpoints[peer];
        let one = there.windows.iter().find(|w| w.kind == WindowType::One);
        let key = match self.random.below(3) {
            0 => one.map(|w| w.key),
            1 => self.window_of_another(there.node, peer),
            _ => None,
        };
        let node = &self.nodes[there.node];
        key.unwrap_or_else(|| node.common.memory.key(there.target))
    }

    /// A place behind a window where an access of this kind must be refused.
    pub(crate) fn forbidden_place(
        &mut self,
        e: usize,
        need: Access,
        len: usize,
    ) -> Option<(u64, Key)> {
        let peer = self.endpoints[e].peer;
        let index = self.random.index(KINDS.len());
        let w = *self.endpoints[peer].windows.get(index)?;
        let there = &self.endpoints[peer];
        let target = self.nodes[there.node].common.memory.addr(there.target, 0);
        let r = w.range;
        let open = w.phase == Phase::Open;
        match self.random.below(4) {
            // Begins within it and ends beyond.
            0 if open => {
                let beyond = r.len.saturating_sub(len) as u64 + 1;
                Some((r.va + beyond.next_multiple_of(8), w.key))
            }
            1 if open && r.at >= 8 => Some((r.va.wrapping_sub(8), w.key)),
            2 if open && !r.access.contains(need) => Some((r.va, w.key)),
            3 => self
                .window_of_another(there.node, peer)
                .map(|key| (target, key)),
            _ if open || w.phase == Phase::Free => w.stale.map(|key| (target, key)),
            _ => None,
        }
    }

    /// A queue pair is destroyed, and what only it could use is free again.
    pub(crate) fn release_windows(&mut self, e: usize) {
        let ep = &mut self.endpoints[e];
        let qp = adverb_engine::QpNum(ep.num);
        self.nodes[ep.node].common.memory.release_windows_of(qp);
        for w in &mut ep.windows {
            if w.kind == WindowType::Two && w.phase != Phase::Free {
                w.free();
            }
        }
    }

    /// All windows of a node are new.
    pub(crate) fn forget_windows(&mut self, node: usize) {
        for ep in self.endpoints.iter_mut().filter(|ep| ep.node == node) {
            for w in &mut ep.windows {
                w.free();
                w.key = self.nodes[node].common.memory.window_key(w.id);
            }
        }
    }

    /// For a new life of the connection: windows of which nobody knows whether they are bound, and those
    /// whose region has gone, are replaced.
    pub(crate) fn tidy_windows(&mut self, e: usize) {
        let ep = &mut self.endpoints[e];
        let memory = &mut self.nodes[ep.node].common.memory;
        for w in &mut ep.windows {
            let known = match w.phase {
                Phase::Free | Phase::Open => !ep.key_gone,
                Phase::Binding | Phase::Closing => false,
            };
            (w.uses, w.wanted, w.frozen) = (0, false, false);
            if !known {
                memory.renew_window(w.id);
                w.free();
                w.key = memory.window_key(w.id);
            }
        }
    }

    /// The windows of an endpoint are bound when its program thinks so, and only for its queue pair.
    pub(crate) fn check_windows(&self, e: usize) {
        let ep = &self.endpoints[e];
        if ep.key_gone {
            return;
        }
        let memory = &self.nodes[ep.node].common.memory;
        let qp = |n| adverb_engine::QpNum(n);
        for w in &ep.windows {
            let known = matches!(w.phase, Phase::Free | Phase::Open);
            assert!(
                !known || memory.admits(w.key, PD, qp(ep.num)) == (w.phase == Phase::Open),
                "{:#x}: {w:?}",
                ep.num
            );
            let stranger = qp(ep.num + 1);
            assert!(w.kind == WindowType::One || !memory.admits(w.key, PD, stranger));
            assert!(!known || w.stale.is_none_or(|k| !memory.admits(k, PD, qp(ep.num))));
        }
    }
}
