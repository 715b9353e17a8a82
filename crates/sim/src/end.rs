//! What must hold when a connection is taken down and when the world ends: every word has been said,
//! memory holds what the work made of it, nothing is left over, and everything adds up.

use adverb_engine::QpState;

use crate::oracle::Effect;
use crate::world::World;

impl World {
    /// A queue pair in ERR or RESET has said all it had to say.
    pub(crate) fn check_last_words(&mut self, e: usize) {
        let ep = &self.endpoints[e];
        let Some(cell) = &ep.cell else { return };
        if cell.qp.state() == QpState::Reset {
            return;
        }
        assert_eq!(cell.qp.sends_pending(), 0);
        if cell.port.srq || cell.port.target {
            assert_eq!(
                cell.port.last_wqe, 1,
                "{:#x}: the last one is announced once",
                ep.num
            );
            assert!(
                cell.port.taken.is_empty() || ep.lost_receives(),
                "{:#x} keeps an entry of the SRQ",
                ep.num
            );
        } else {
            assert_eq!(cell.port.last_wqe, 0);
        }
        assert!(
            ep.posted.is_empty() || ep.lost_receives(),
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
        if ep.lost_sends() {
            // Nobody knows how far these came; memory will tell that they came in order.
            let ep = &mut self.endpoints[e];
            ep.doomed.extend(ep.sent.drain(..));
        }
        // What completed without a word before the end did complete.
        while let Some(s) = self.endpoints[e].sent.pop_front() {
            assert!(!s.signaled, "{s:?} never completed");
            self.finish(e, s);
        }
    }

    /// The target holds what some prefix of the requests made of it, the next one perhaps in part.
    pub(crate) fn check_target(&mut self, e: usize) {
        let ep = &self.endpoints[e];
        if !ep.is_reliable() {
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
            assert!(
                s.poison.is_none() || s.is_answered_in_vain(),
                "{:#x}: {s:?} was executed",
                ep.num
            );
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
                assert!(!queue.broken, "somebody has yet to learn of an overrun");
            }
            assert!(
                node.common.memory.guards_are_intact(),
                "bytes outside all regions changed"
            );
            assert!(node.common.memory.windows_are_counted());
        }
        for e in 0..self.endpoints.len() {
            self.check_windows(e);
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
            if ep.is_reliable() {
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
            if ep.is_reliable() {
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
            && (p.stall, p.kill, p.poison, p.overrun) == (0, 0, 0, 0);
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
