//! What must hold at each completion: a work request completes once, in order, with a legal status, and
//! the bytes are where the oracle says. What must hold at the end is in `end.rs`.

use adverb_engine::{Completion, QpNum, QpState, WcFlags, WcOpcode, WcStatus};
use adverb_wire::Transport;

use crate::node::PD;
use crate::oracle::{Arrival, Expect, RECV, Sent};
use crate::world::{FIRST_NUM, World};

impl World {
    /// Reads the queues of a node as its programs do: some look, some wait for an event.
    pub(crate) fn poll_queues(&mut self, node: usize) {
        for q in 0..self.nodes[node].common.queues.len() {
            if self.nodes[node].common.queues[q].broken {
                self.replace_queue(node, q);
            }
            let queue = &mut self.nodes[node].common.queues[q];
            // Between reading all and arming again there is time for more to come, and then the
            // arming itself must raise the event.
            if std::mem::take(&mut queue.drained) {
                queue.fired |= queue.cq.arm(false);
            }
            if queue.waits && !std::mem::take(&mut queue.fired) {
                continue;
            }
            self.read_queue(node, q);
            let queue = &mut self.nodes[node].common.queues[q];
            queue.drained = queue.waits;
        }
    }

    /// Reads everything, event or not.
    pub(crate) fn poll_node(&mut self, node: usize) {
        for q in 0..self.nodes[node].common.queues.len() {
            self.read_queue(node, q);
        }
    }

    pub(crate) fn read_queue(&mut self, node: usize, q: usize) {
        while let Some(c) = self.nodes[node].common.queues[q].cq.pop() {
            self.on_completion(node, &c);
        }
    }

    fn on_completion(&mut self, node: usize, c: &Completion) {
        self.note_progress();
        let e = c
            .qp_num
            .0
            .checked_sub(FIRST_NUM)
            .and_then(|i| *self.directory.get(i as usize)?)
            .unwrap_or_else(|| panic!("a completion of nobody: {c:?}"));
        assert_eq!(self.endpoints[e].node, node, "{c:?}");
        if self.trace.is_on() {
            self.trace.note(
                self.now,
                format_args!(
                    "{:#x} completes {}{} {:?}",
                    c.qp_num.0,
                    if c.wr_id & RECV == 0 { "" } else { "receive " },
                    (c.wr_id & !RECV) >> if c.wr_id & RECV == 0 { 0 } else { 16 },
                    c.status
                ),
            );
        }
        if c.wr_id & RECV == 0 {
            self.on_send(e, c);
        } else {
            self.on_receive(e, c);
        }
        if c.status != WcStatus::Success {
            self.close(self.endpoints[e].conn);
        }
    }

    fn on_send(&mut self, e: usize, c: &Completion) {
        loop {
            let ep = &mut self.endpoints[e];
            let s = ep
                .sent
                .pop_front()
                .unwrap_or_else(|| panic!("nothing was posted that {c:?} could complete"));
            if s.id != c.wr_id {
                assert!(
                    !s.signaled && !ep.dead,
                    "{:#x}: request {} never completed, but {c:?} did",
                    ep.num,
                    s.id
                );
                self.finish(e, s);
                continue;
            }
            if c.status == WcStatus::Success {
                assert!(s.signaled, "{c:?} was not asked for");
                assert!(!ep.dead, "{c:?} after an error");
                assert_eq!(c.opcode, s.opcode, "{c:?}");
                let len = match s.opcode {
                    WcOpcode::RdmaRead | WcOpcode::CompSwap | WcOpcode::FetchAdd => s.len,
                    _ => 0,
                };
                assert_eq!(c.byte_len as usize, len, "{c:?}");
                self.finish(e, s);
            } else {
                if ep.dead {
                    assert_eq!(c.status, WcStatus::WrFlushErr, "{c:?} after an error");
                } else {
                    assert!(
                        self.is_legal(e, &s, c.status),
                        "{c:?} is not how {s:?} may end ({:?})",
                        self.endpoints[e]
                            .cell
                            .as_ref()
                            .map(|c| (c.qp.state(), *c.qp.counters()))
                    );
                }
                let ep = &mut self.endpoints[e];
                ep.dead = true;
                ep.doomed.push(s);
            }
            return;
        }
    }

    /// Whether the first error of a send queue can be this.
    fn is_legal(&self, e: usize, s: &Sent, status: WcStatus) -> bool {
        let ep = &self.endpoints[e];
        let peer = &self.endpoints[ep.peer];
        if s.poison == Some(status) {
            return true;
        }
        let peer_gone = peer.killed
            || peer
                .cell
                .as_ref()
                .is_none_or(|c| matches!(c.qp.state(), QpState::Err | QpState::Reset));
        match status {
            // A READ whose answer was lost is not answered again by memory that has gone.
            WcStatus::RetryExcErr => {
                peer_gone || peer.key_gone || ep.killed || !self.profile.faults.fair
            }
            WcStatus::RnrRetryExcErr => !ep.setup.endless_rnr,
            // Its own end, or that of a request of the peer that had to be refused.
            WcStatus::WrFlushErr => ep.killed || peer.poisoned || ep.key_gone,
            WcStatus::RemAccessErr => peer.key_gone,
            // The window went, or what it was to be bound to.
            WcStatus::MwBindErr | WcStatus::LocQpOpErr => ep.key_gone && s.change.is_some(),
            WcStatus::RemOpErr => peer.key_gone && s.change.is_some(),
            _ => false,
        }
    }

    /// A work request has succeeded.
    pub(crate) fn finish(&mut self, e: usize, s: Sent) {
        assert_eq!(s.poison, None, "{s:?} must not succeed");
        self.stats.messages += 1;
        let ep = &self.endpoints[e];
        self.stats.xrc += u64::from(ep.transport == Transport::Xrc);
        let peer = ep.peer;
        if let Some(count) = s.receives
            && let Some(cell) = &self.endpoints[peer].cell
            && cell.qp.state() != QpState::Reset
        {
            assert!(
                cell.port.received >= count,
                "{s:?} is done, but the peer has received {} of {count}",
                cell.port.received
            );
        }
        let num = QpNum(ep.num);
        if let Some(key) = s.invalidates {
            assert!(!self.nodes[ep.node].common.memory.admits(key, PD, num));
        }
        if let Some(change) = s.change {
            self.settle(change);
        }
        if let Some(window) = s.through {
            self.stats.through_windows += 1;
            let w = &mut self.endpoints[peer].windows[window];
            w.uses = w.uses.saturating_sub(1);
        }
        let ep = &self.endpoints[e];
        let node = &self.nodes[ep.node];
        if let Some((slot, free)) = s.answer {
            let at = usize::from(slot) * self.profile.max_len;
            let got = &node.common.memory.bytes(ep.answers)[at..][..s.len];
            let there = self.endpoints[peer].node;
            match &s.expect {
                Expect::Nothing => {}
                Expect::Source(from) => {
                    let there = &self.nodes[there];
                    let expected = &there.common.memory.bytes(there.source)[*from..][..s.len];
                    assert!(
                        got == expected,
                        "{:#x}: {} read something else",
                        ep.num,
                        s.id
                    );
                }
                Expect::Bytes(expected) => {
                    assert!(
                        got == expected,
                        "{:#x}: {} brought {:x?}.., not {:x?}..",
                        ep.num,
                        s.id,
                        &got[..got.len().min(16)],
                        &expected[..expected.len().min(16)]
                    );
                }
                Expect::Counter => {
                    let value = u64::from_ne_bytes(got.try_into().expect("eight bytes"));
                    assert!(
                        self.counter_seen[there].insert(value),
                        "two adders found {value}"
                    );
                }
            }
            if free {
                self.endpoints[e].free_answers.push(slot);
            }
        }
        let source = self.nodes[self.endpoints[e].node].source;
        let source = self.nodes[self.endpoints[e].node]
            .common
            .memory
            .bytes(source);
        // On UC there is no telling, see `check_target`.
        if self.endpoints[e].is_reliable() {
            s.effect.apply(source, &mut self.endpoints[peer].base);
        }
    }

    fn on_receive(&mut self, e: usize, c: &Completion) {
        let ep = &mut self.endpoints[e];
        let node = ep.node;
        let buffer = c.wr_id as u16;
        let srq = ep
            .cell
            .as_ref()
            .is_some_and(|c| c.port.srq || c.port.target);
        let mut into = None;
        let recv_len = self.profile.max_len + 40;
        let region = if srq {
            let cell = ep.cell.as_mut().expect("it has one");
            // Two SRQs may have two completion queues, and then their order is lost.
            let taken = &mut cell.port.taken;
            let at = taken.iter().position(|(_, id)| *id == c.wr_id);
            let (number, _) = at
                .and_then(|at| taken.remove(at))
                .unwrap_or_else(|| panic!("{:#x} completes what it has not taken: {c:?}", ep.num));
            let before = taken.iter().take(at.unwrap_or(0));
            assert!(
                before.into_iter().all(|(n, _)| *n != number),
                "{:#x}: receives out of order: {c:?}",
                ep.num
            );
            into = number;
            let common = &mut self.nodes[node].common;
            let shared = common.shared_of(into).expect("it is shared");
            assert_eq!(shared.posted[usize::from(buffer)].take(), Some(c.wr_id));
            shared.free.push(buffer);
            shared.buffers
        } else {
            assert_eq!(
                ep.posted.pop_front(),
                Some(c.wr_id),
                "{:#x}: receives out of order: {c:?}",
                ep.num
            );
            ep.free_buffers.push(buffer);
            ep.buffers
        };
        let placed = &self.nodes[node].common.memory.bytes(region)
            [usize::from(buffer) * recv_len..][..recv_len];
        let ep = &self.endpoints[e];
        let next = ep.arriving.iter().position(|a| a.srqn == into);
        let arriving = next.and_then(|at| ep.arriving.get(at));
        match (c.status, ep.is_reliable()) {
            (WcStatus::Success, true) => {
                let arrival = next
                    .and_then(|at| self.endpoints[e].arriving.remove(at))
                    .unwrap_or_else(|| panic!("nothing was sent that {c:?} could be"));
                assert!(
                    self.matches(&arrival, c, placed, 0),
                    "{c:?} is not what was sent: {arrival:?}"
                );
                if let Some(key) = arrival.invalidated {
                    let memory = &self.nodes[node].common.memory;
                    assert!(!memory.admits(key, PD, c.qp_num), "{c:?}");
                }
                if let Some(change) = arrival.change {
                    self.settle(change);
                }
            }
            (WcStatus::Success, false) => {
                let skip = if ep.transport == Transport::Ud { 40 } else { 0 };
                assert!(
                    ep.arriving
                        .iter()
                        .rev()
                        .any(|a| self.matches(a, c, placed, skip)),
                    "nobody sent {c:?}, of {}",
                    ep.arriving.len()
                );
            }
            (WcStatus::WrFlushErr, _) => {
                assert!(
                    ep.cell
                        .as_ref()
                        .is_some_and(|c| c.qp.state() == QpState::Err)
                );
            }
            (WcStatus::LocLenErr, true) => {
                assert!(
                    arriving.is_some_and(|a| a.too_long),
                    "{c:?} for what is not too long: {arriving:?}",
                );
            }
            (WcStatus::LocQpOpErr, true) => {
                assert!(
                    arriving.is_some_and(|a| a.refused || a.invalidated.is_some() && ep.key_gone),
                    "{c:?} for what is in order: {arriving:?}",
                );
            }
            (WcStatus::LocAccessErr, true) => {
                let peer = &self.endpoints[ep.peer];
                assert!(peer.poisoned || ep.key_gone, "{c:?} of a good key");
            }
            _ => panic!("{c:?} is not how a receive may end"),
        }
    }

    /// Whether a completion and its buffer show this message, `skip` bytes into the buffer.
    fn matches(&self, a: &Arrival, c: &Completion, placed: &[u8], skip: usize) -> bool {
        let flags = WcFlags::from_bits_truncate(
            if a.imm.is_some() {
                WcFlags::WITH_IMM.bits()
            } else {
                0
            } | if a.invalidated.is_some() {
                WcFlags::WITH_INV.bits()
            } else {
                0
            } | if skip > 0 { WcFlags::GRH.bits() } else { 0 },
        );
        let opcode = if a.data.is_some() {
            WcOpcode::Recv
        } else {
            WcOpcode::RecvRdmaWithImm
        };
        c.byte_len as usize == a.byte_len + skip
            && !a.too_long
            && !a.refused
            && c.opcode == opcode
            && c.flags == flags
            && c.imm == a.imm.unwrap_or_default()
            && a.invalidated.is_none_or(|k| k.0 == c.invalidated_rkey)
            && c.solicited == a.solicited
            && c.src_qp == a.src_qp
            && a.data.as_ref().is_none_or(|data| {
                let from = &self.nodes[a.from_node];
                data.equals(
                    from.common.memory.bytes(from.source),
                    &placed[skip..skip + a.byte_len],
                )
            })
    }
}
