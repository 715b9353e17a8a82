//! Mistakes made on purpose: work that the peer, or this side, must refuse.

use adverb_engine::{Access, Key, SendOp, WcStatus};

use crate::draft::Draft;
use crate::oracle::{Effect, Expect};
use crate::world::World;

/// Requests that the peer, or this side, must refuse.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Poison {
    None,
    Remote,
    Local,
    TooLong,
}

impl World {
    /// Makes a draft fail, if it can be made to.
    pub(crate) fn poison(&mut self, e: usize, draft: &mut Draft, poison: Poison) {
        match poison {
            Poison::None => {}
            Poison::TooLong => {
                draft.sent.poison = Some(WcStatus::RemInvReqErr);
                draft.inline = false;
                if let Some(arrival) = &mut draft.arrival {
                    arrival.too_long = true;
                }
            }
            Poison::Local => {
                if draft.inline || draft.sent.len == 0 || draft.count == 0 {
                    return;
                }
                let at = self.random.index(draft.count);
                if draft.sges[at].len == 0 {
                    return;
                }
                draft.sges[at].lkey = Key(0xdead_0000);
                draft.sent.poison = Some(WcStatus::LocProtErr);
            }
            Poison::Remote if draft.sent.poison.is_some() => {}
            Poison::Remote if self.random.chance(5000) && self.misdirect(e, draft) => {}
            Poison::Remote => {
                if draft.sent.len == 0 {
                    return;
                }
                let behind_window = match &draft.op {
                    _ if self.profile.windows == 0 || self.random.chance(4000) => None,
                    SendOp::Read { .. } => Some(Access::REMOTE_READ),
                    SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => {
                        Some(Access::REMOTE_ATOMIC)
                    }
                    SendOp::Write { .. } | SendOp::WriteImm { .. } | SendOp::AtomicWrite { .. } => {
                        Some(Access::REMOTE_WRITE)
                    }
                    _ => None,
                };
                let behind_window =
                    behind_window.and_then(|need| self.forbidden_place(e, need, draft.sent.len));
                let there = &self.endpoints[self.endpoints[e].peer];
                let target_key = self.remote_key(e, there.target);
                let last = self.target_len() - 1;
                let last = self.nodes[there.node]
                    .common
                    .memory
                    .addr(there.target, last);
                match &mut draft.op {
                    SendOp::Write { remote_addr, rkey }
                    | SendOp::WriteImm {
                        remote_addr, rkey, ..
                    }
                    | SendOp::Read { remote_addr, rkey }
                    | SendOp::CompareSwap {
                        remote_addr, rkey, ..
                    }
                    | SendOp::FetchAdd {
                        remote_addr, rkey, ..
                    }
                    | SendOp::AtomicWrite { remote_addr, rkey }
                        if let Some(place) = behind_window =>
                    {
                        (*remote_addr, *rkey) = place;
                    }
                    // The key is good, but the range ends beyond the region's end.
                    SendOp::Write { remote_addr, rkey } | SendOp::Read { remote_addr, rkey }
                        if draft.sent.len > 1 && self.random.chance(6000) =>
                    {
                        *remote_addr = last;
                        *rkey = target_key;
                    }
                    SendOp::Write { rkey, .. }
                    | SendOp::WriteImm { rkey, .. }
                    | SendOp::Read { rkey, .. }
                    | SendOp::CompareSwap { rkey, .. }
                    | SendOp::FetchAdd { rkey, .. }
                    | SendOp::AtomicWrite { rkey, .. } => *rkey = Key(0xdead_0000),
                    _ => return,
                }
                draft.sent.poison = Some(WcStatus::RemAccessErr);
            }
        }
        if draft.sent.poison.is_some() && !draft.sent.is_answered_in_vain() {
            draft.sent.through = None;
            draft.sent.effect = Effect::None;
            draft.sent.expect = Expect::Nothing;
        }
    }
}
