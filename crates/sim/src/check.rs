//! The invariants: each work request completes once, in order, with a legal status; bytes are where
//! the oracle says; nothing is left over when a connection or the world ends.

use adverb_engine::{Completion, QpState, WcFlags, WcOpcode, WcStatus};
use adverb_wire::Transport;

use crate::oracle::{Arrival, Effect, Expect, RECV, Sent};
use crate::world::{FIRST_NUM, World};

impl World {
    /// Reads the queues of a node as its programs do: some look, some wait for an event.
    pub(crate) fn poll_queues(&mut self, node: usize) {
        for q in 0..self.nodes[node].common.queues.len() {
            let queue = &mut self.nodes[node].common.queues[q];
            // Between reading all and arming again there is time for more to come, and then the
            // arming itself must raise the event.
            if std::mem::take(&mut queue.drained) {
                queue.fired |= queue.cq.arm(false);
            }
            if queue.waits && !std::mem::take(&mut queue.fired) {
                continue;
            }
            while let Some(c) = self.nodes[node].common.queues[q].cq.pop() {
                self.on_completion(node, &c);
            }
            let queue = &mut self.nodes[node].common.queues[q];
            queue.drained = queue.waits;
        }
    }

    /// Reads everything, event or not.
    pub(crate) fn poll_node(&mut self, node: usize) {
        for q in 0..self.nodes[node].common.queues.len() {
            while let Some(c) = self.nodes[node].common.queues[q].cq.pop() {
                self.on_completion(node, &c);
            }
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
            WcStatus::RetryExcErr => peer_gone || ep.killed || !self.profile.faults.fair,
            WcStatus::RnrRetryExcErr => !ep.setup.endless_rnr,
            // Its own end, or that of a request of the peer that had to be refused.
            WcStatus::WrFlushErr => ep.killed || peer.poisoned || ep.key_gone,
            WcStatus::RemAccessErr => peer.key_gone,
            _ => false,
        }
    }

    /// A work request has succeeded.
    fn finish(&mut self, e: usize, s: Sent) {
        assert_eq!(s.poison, None, "{s:?} must not succeed");
        self.stats.messages += 1;
        let ep = &self.endpoints[e];
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
        if let Some(key) = s.invalidates {
            assert!(!self.nodes[ep.node].common.memory.is_valid(key));
        }
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
        if self.endpoints[e].transport == Transport::Rc {
            s.effect.apply(source, &mut self.endpoints[peer].base);
        }
    }

    fn on_receive(&mut self, e: usize, c: &Completion) {
        let ep = &mut self.endpoints[e];
        let node = ep.node;
        let buffer = c.wr_id as u16;
        let srq = ep.cell.as_ref().is_some_and(|c| c.port.srq);
        let recv_len = self.profile.max_len + 40;
        let region = if srq {
            let cell = ep.cell.as_mut().expect("it has one");
            assert_eq!(
                cell.port.taken.pop_front(),
                Some(c.wr_id),
                "{:#x} completes what it has not taken: {c:?}",
                ep.num
            );
            let shared = self.nodes[node]
                .common
                .shared
                .as_mut()
                .expect("it is shared");
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
        match (c.status, ep.transport) {
            (WcStatus::Success, Transport::Rc) => {
                let arrival = self.endpoints[e]
                    .arriving
                    .pop_front()
                    .unwrap_or_else(|| panic!("nothing was sent that {c:?} could be"));
                assert!(
                    self.matches(&arrival, c, placed, 0),
                    "{c:?} is not what was sent: {arrival:?}"
                );
                if let Some(key) = arrival.invalidated {
                    assert!(!self.nodes[node].common.memory.is_valid(key), "{c:?}");
                }
            }
            (WcStatus::Success, transport) => {
                let skip = if transport == Transport::Ud { 40 } else { 0 };
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
            (WcStatus::LocLenErr, Transport::Rc) => {
                assert!(
                    ep.arriving.front().is_some_and(|a| a.too_long),
                    "{c:?} for what is not too long: {:?}",
                    ep.arriving.front()
                );
            }
            (WcStatus::LocAccessErr, Transport::Rc) => {
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

    /// A queue pair in ERR or RESET has said all it had to say.
    pub(crate) fn check_last_words(&mut self, e: usize) {
        let ep = &self.endpoints[e];
        let Some(cell) = &ep.cell else { return };
        if cell.qp.state() == QpState::Reset {
            return;
        }
        assert_eq!(cell.qp.sends_pending(), 0);
        if cell.port.srq {
            assert_eq!(
                cell.port.last_wqe, 1,
                "{:#x}: the last one is announced once",
                ep.num
            );
            assert!(
                cell.port.taken.is_empty(),
                "{:#x} keeps an entry of the SRQ",
                ep.num
            );
        } else {
            assert_eq!(cell.port.last_wqe, 0);
        }
        assert!(
            ep.posted.is_empty(),
            "{:#x}: receives never completed",
            ep.num
        );
        assert!(cell.port.comm_est <= 1);
        assert!(
            cell.port.refused <= 1,
            "{:#x} dies of one refusal, not of {}",
            ep.num,
            cell.port.refused
        );
        // What completed without a word before the end did complete.
        while let Some(s) = self.endpoints[e].sent.pop_front() {
            assert!(!s.signaled, "{s:?} never completed");
            self.finish(e, s);
        }
    }

    /// The target holds what some prefix of the requests made of it, the next one perhaps in part.
    pub(crate) fn check_target(&mut self, e: usize) {
        let ep = &self.endpoints[e];
        if ep.transport != Transport::Rc {
            return;
        }
        let writer = &self.endpoints[ep.peer];
        let actual = self.nodes[ep.node].common.memory.bytes(ep.target);
        let source = &self.nodes[writer.node];
        let source = source.common.memory.bytes(source.source);
        let mut model = ep.base.clone();
        let mut pending = writer.doomed.iter().chain(&writer.sent);
        loop {
            let next = pending.next();
            if is_between(&model, next.map(|s| &s.effect), source, actual) {
                break;
            }
            let Some(s) = next else {
                let at = model.iter().zip(actual).position(|(a, b)| a != b);
                panic!(
                    "{:#x}: memory differs at {at:?} from what any prefix makes",
                    ep.num
                );
            };
            assert!(s.poison.is_none(), "{:#x}: {s:?} was executed", ep.num);
            s.effect.apply(source, &mut model);
        }
        let actual = actual.to_vec();
        let ep = &mut self.endpoints[e];
        ep.latest.clone_from(&actual);
        ep.base = actual;
    }

    /// Lets everything come to its end: no new work, no more sleep.
    pub(crate) fn wind_down(&mut self) {
        loop {
            // Not to the end at once: who waits for a receive waits for what is posted below.
            for _ in 0..500 {
                if !self.step() {
                    break;
                }
            }
            let before = (
                self.stats.messages,
                self.stats.rebuilt,
                self.fabric.counters.sent,
            );
            for node in 0..self.nodes.len() {
                self.poll_queues(node);
            }
            let queues = self.nodes.iter().flat_map(|n| &n.common.queues);
            let mut resumed = queues.into_iter().any(|q| q.drained || q.fired);
            for e in 0..self.endpoints.len() {
                self.fill_receives(e);
                // What was posted meanwhile may complete without a packet, so another look is due.
                resumed |= self.endpoints[e].draining;
                if self.endpoints[e].draining {
                    self.resume(e);
                }
            }
            self.rebuild_due(u64::MAX);
            self.pump();
            let after = (
                self.stats.messages,
                self.stats.rebuilt,
                self.fabric.counters.sent,
            );
            if before == after && !resumed && self.is_idle() {
                break;
            }
        }
    }

    /// Nothing is left, and everything adds up.
    pub(crate) fn check_end(&mut self) {
        for node in &self.nodes {
            for queue in &node.common.queues {
                assert!(
                    queue.cq.is_empty(),
                    "an event was lost: completions wait unread"
                );
            }
            assert!(
                node.common.memory.guards_are_intact(),
                "bytes outside all regions changed"
            );
        }
        for e in 0..self.endpoints.len() {
            let ep = &self.endpoints[e];
            let cell = ep.cell.as_ref().expect("everybody is connected in the end");
            assert_eq!(cell.qp.state(), QpState::Rts, "{:#x}", ep.num);
            assert_eq!(
                cell.qp.poll_timeout(),
                None,
                "{:#x} waits for nothing",
                ep.num
            );
            assert_eq!(cell.qp.sends_pending(), 0, "{:#x}", ep.num);
            assert!(
                ep.sent.iter().all(|s| !s.signaled),
                "{:#x}: {:?} never completed",
                ep.num,
                ep.sent.iter().find(|s| s.signaled)
            );
            while let Some(s) = self.endpoints[e].sent.pop_front() {
                self.finish(e, s);
            }
            let ep = &self.endpoints[e];
            if ep.transport == Transport::Rc {
                assert!(
                    ep.arriving.is_empty(),
                    "{:#x}: messages never arrived",
                    ep.num
                );
                let cell = ep.cell.as_ref().expect("looked at above");
                let there = self.endpoints[ep.peer]
                    .cell
                    .as_ref()
                    .expect("looked at above");
                assert_eq!(
                    cell.qp.attrs().sq_psn,
                    there.qp.attrs().rq_psn,
                    "{:#x}: both sides count alike",
                    ep.num
                );
            }
        }
        for e in 0..self.endpoints.len() {
            let ep = &self.endpoints[e];
            if ep.transport == Transport::Rc {
                assert!(
                    ep.base == ep.latest,
                    "{:#x}: the oracle contradicts itself",
                    ep.num
                );
                let actual = self.nodes[ep.node].common.memory.bytes(ep.target);
                assert!(
                    actual == ep.base,
                    "{:#x}: written memory differs at {:?}",
                    ep.num,
                    actual.iter().zip(&ep.base).position(|(a, b)| a != b)
                );
            }
        }
        for (n, node) in self.nodes.iter().enumerate() {
            let bytes = node.common.memory.bytes(node.counter);
            let value = u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
            let seen = &self.counter_seen[n];
            assert!(
                seen.len() as u64 <= value && value <= self.counter_posted[n],
                "node {n}: {value} adds of {} posted and {} done",
                self.counter_posted[n],
                seen.len()
            );
            assert!(seen.last().is_none_or(|v| *v < value));
        }
        for e in 0..self.endpoints.len() {
            self.destroy(e);
        }
        let (wire, sum) = (self.fabric.counters, self.ledger);
        assert_eq!(wire.sent, sum.packets_sent);
        assert_eq!(
            wire.delivered,
            sum.packets_received + sum.packets_dropped + self.nowhere,
            "every packet that arrived was counted once"
        );
        let p = &self.profile;
        let undisturbed = !p.faults.any_harm()
            && p.faults.duplicate == 0
            && !p.impatient
            && (p.stall, p.kill, p.poison) == (0, 0, 0);
        if undisturbed {
            assert_eq!(
                (
                    sum.retries,
                    sum.timeouts,
                    sum.sequence_naks_sent,
                    sum.duplicates
                ),
                (0, 0, 0, 0),
                "retries, timeouts, NAKs, duplicates on a perfect wire"
            );
        }
        // The copy of a packet that was sent again can arrive ahead of its turn, too.
        let harm = self.conns.iter().map(|c| c.harm.total).sum::<u64>() + wire.duplicated;
        assert!(
            sum.sequence_naks_sent <= 2 * harm,
            "{} NAKs for {harm} faults of the wire: one per gap is enough",
            sum.sequence_naks_sent
        );
    }
}

/// Whether `actual` is `model` with at most a front part of one more effect.
fn is_between(model: &[u8], next: Option<&Effect>, source: &[u8], actual: &[u8]) -> bool {
    if model == actual {
        return true;
    }
    let Some(Effect::Write { to, data }) = next else {
        return false;
    };
    let mut new = vec![0; data.len()];
    data.copy_to(source, &mut new);
    let end = to + new.len();
    if model[..*to] != actual[..*to] || model[end..] != actual[end..] {
        return false;
    }
    let written = new
        .iter()
        .zip(&actual[*to..end])
        .take_while(|(a, b)| a == b)
        .count();
    model[to + written..end] == actual[to + written..end]
}
