//! The program that runs on every node: it posts random work, reads completion queues, and now and
//! then breaks something.

use adverb_engine::{AttrMask, QpAttr, QpState, RecvWr, Role, SendData, SendWr, Sge, WcStatus};
use adverb_wire::Transport;

use crate::draft::Draft;
use crate::memory::{Memory, RegionId};
use crate::node::Shared;
use crate::oracle::{Arrival, Effect, RECV};
use crate::random::Random;
use crate::world::World;

impl World {
    /// The program does something at one endpoint.
    pub(crate) fn act(&mut self) {
        let e = self.random.index(self.endpoints.len());
        let (node, conn, peer) = {
            let ep = &self.endpoints[e];
            (ep.node, ep.conn, ep.peer)
        };
        for end in [e, peer] {
            if !self.random.chance(self.profile.lazy) {
                self.fill_receives(end);
            }
        }
        match self.conns[conn].closing {
            Some(at) if self.now >= at => self.rebuild(conn),
            Some(_) => {}
            None if self.now >= self.nodes[node].stalled_until => {
                let burst = self.random.between(1, 8);
                for _ in 0..burst {
                    if !self.post(e) {
                        break;
                    }
                }
                self.pump();
                self.disturb(e);
            }
            None => {}
        }
        if self.fabric.next_arrival().is_none() {
            // Nothing moves any more unless the closing ones are seen to.
            self.rebuild_due(u64::MAX);
        }
        for node in 0..self.nodes.len() {
            let full = self.nodes[node]
                .common
                .queues
                .iter()
                .any(|q| q.cq.len() > 1000);
            if full || self.random.chance(4000) {
                self.poll_queues(node);
            }
        }
    }

    fn disturb(&mut self, e: usize) {
        let ep = &self.endpoints[e];
        let (node, conn) = (ep.node, ep.conn);
        if self.random.chance(self.profile.kill) {
            self.kill(e);
        } else if self.random.chance(self.profile.stall) {
            let until = self.now + self.random.below(self.profile.timeout_ns());
            self.nodes[node].stalled_until = until;
            self.trace.note(
                self.now,
                format_args!("node {node} stalls for {} ns", until - self.now),
            );
            for conn in 0..self.conns.len() {
                let (a, b) = (self.conns[conn].a, self.conns[conn].b);
                if self.endpoints[a].node == node || self.endpoints[b].node == node {
                    self.conns[conn].harm.peace_until = until + self.profile.recovery();
                    self.conns[conn].harm.total += 1;
                }
            }
        } else if self.random.chance(self.profile.overrun) {
            self.squeeze(node);
        } else if self.endpoints[e].draining {
            self.resume(e);
        } else if self.conns[conn].closing.is_none()
            && self.state(e) == Some(QpState::Rts)
            && self.random.chance(self.profile.drain)
        {
            let attr = QpAttr {
                en_sqd_async_notify: true,
                ..QpAttr::default()
            };
            self.modify(e, QpState::Sqd, &attr, AttrMask::EN_SQD_ASYNC_NOTIFY);
            self.endpoints[e].draining = true;
            self.pump();
        }
    }

    /// Starts a stopped queue again, if all that had started is done.
    pub(crate) fn resume(&mut self, e: usize) {
        let Some(cell) = &mut self.endpoints[e].cell else {
            return;
        };
        if cell.qp.state() != QpState::Sqd {
            self.endpoints[e].draining = false;
            return;
        }
        assert_eq!(
            cell.port.drained == 1,
            !cell.qp.attrs().sq_draining,
            "told once, when it has drained"
        );
        if cell.port.drained == 1 {
            cell.port.drained = 0;
            self.endpoints[e].draining = false;
            self.modify(e, QpState::Rts, &QpAttr::default(), AttrMask::empty());
            self.pump();
        }
    }

    fn state(&self, e: usize) -> Option<QpState> {
        self.endpoints[e].cell.as_ref().map(|c| c.qp.state())
    }

    /// Builds anew whatever was closed before `until`.
    pub(crate) fn rebuild_due(&mut self, until: u64) -> bool {
        let mut any = false;
        for conn in 0..self.conns.len() {
            if self.conns[conn].closing.is_some_and(|at| at <= until) {
                self.rebuild(conn);
                any = true;
            }
        }
        any
    }

    /// Posts receives while there are buffers.
    pub(crate) fn fill_receives(&mut self, e: usize) {
        let ep = &self.endpoints[e];
        let Some(cell) = &ep.cell else { return };
        if cell.qp.state() == QpState::Reset || cell.qp.state() == QpState::Err {
            return;
        }
        let len = self.recv_len();
        let node = ep.node;
        if cell.port.srq || cell.port.target {
            let xrc = cell.port.target;
            let common = &mut self.nodes[node].common;
            let of = |s: &&mut Shared| s.xrc.is_some() == xrc;
            for shared in common.shared.iter_mut().filter(of) {
                fill_shared(&mut self.random, &common.memory, shared, len);
            }
            return;
        }
        if cell.qp.config().role == Role::Initiator {
            return;
        }
        while let Some(buffer) = self.endpoints[e].free_buffers.pop() {
            let ep = &mut self.endpoints[e];
            let id = RECV | ep.next_recv << 16 | u64::from(buffer);
            ep.next_recv += 1;
            ep.posted.push_back(id);
            let buffers = ep.buffers;
            let sges = split_evenly(
                &mut self.random,
                &self.nodes[node].common.memory,
                buffers,
                buffer,
                len,
            );
            self.with(e, |qp, view, now| {
                let wr = RecvWr {
                    wr_id: id,
                    sges: &sges,
                };
                qp.post_recv(now, &wr, view)
                    .expect("there is room for every buffer");
            });
        }
    }

    /// Posts one random work request; false when nothing can be posted now.
    fn post(&mut self, e: usize) -> bool {
        let ep = &self.endpoints[e];
        let Some(cell) = &ep.cell else { return false };
        if self.budget == 0
            || cell.port.target
            || !matches!(cell.qp.state(), QpState::Rts | QpState::Sqd)
            || cell.qp.sends_pending() >= cell.qp.config().caps.max_send_wr
            || ep.sent.len() > 200
        {
            return false;
        }
        let draft = match ep.transport {
            Transport::Ud => self.draft_datagram(e),
            Transport::Uc => self.draft_uc(e),
            Transport::Rc | Transport::Xrc => self.draft_rc(e),
        };
        let Some(draft) = draft else { return false };
        self.budget -= 1;
        self.submit(e, draft);
        true
    }

    pub(crate) fn submit(&mut self, e: usize, draft: Draft) {
        let ep = &mut self.endpoints[e];
        if self.trace.is_on() {
            self.trace.note(
                self.now,
                format_args!(
                    "{:#x} posts {} {:?} len {} {:?}",
                    ep.num, draft.sent.id, draft.op, draft.sent.len, draft.flags
                ),
            );
        }
        ep.next_send += 1;
        ep.poisoned |= draft.sent.poison.is_some_and(is_told_by_the_peer);
        let (id, op, flags) = (draft.sent.id, draft.op, draft.flags);
        let mut bytes = [0; 256];
        if draft.inline {
            let node = &self.nodes[ep.node];
            let n = draft.sent.len;
            if let Some(Arrival {
                data: Some(data), ..
            }) = &draft.arrival
            {
                data.copy_to(node.common.memory.bytes(node.source), &mut bytes[..n]);
            } else if let Effect::Write { data, .. } = &draft.sent.effect {
                data.copy_to(node.common.memory.bytes(node.source), &mut bytes[..n]);
            }
        }
        let len = draft.sent.len;
        let (through, peer) = (draft.sent.through, ep.peer);
        ep.sent.push_back(draft.sent);
        if let Some(window) = through {
            self.endpoints[peer].windows[window].uses += 1;
        }
        if let Some(arrival) = draft.arrival {
            let to = match draft.ud {
                Some(ud) => self.directory[(ud.remote_qpn - crate::world::FIRST_NUM) as usize],
                None => Some(peer),
            };
            if let Some(to) = to {
                let there = &mut self.endpoints[to];
                there.arriving.push_back(arrival);
                there.to_arrive += 1;
            }
        }
        let (sges, count, inline, ud) = (draft.sges, draft.count, draft.inline, draft.ud);
        let srqn = draft.srqn;
        self.with(e, |qp, view, now| {
            let data = if inline {
                SendData::Inline(&bytes[..len])
            } else {
                SendData::Sges(&sges[..count])
            };
            let wr = SendWr {
                wr_id: id,
                op,
                flags,
                data,
                ud,
                xrc_srqn: srqn,
            };
            qp.post_send(now, &wr, view)
                .expect("there is room, and the request is well formed");
        });
    }
}

/// Whether it is the peer that finds the mistake in a request, and dies of it, too.
const fn is_told_by_the_peer(status: WcStatus) -> bool {
    !matches!(
        status,
        WcStatus::LocProtErr | WcStatus::LocQpOpErr | WcStatus::MwBindErr
    )
}

/// Posts every free buffer of a shared receive queue.
fn fill_shared(random: &mut Random, memory: &Memory, shared: &mut Shared, len: usize) {
    while let Some(buffer) = shared.free.pop() {
        let id = RECV | shared.serial << 16 | u64::from(buffer);
        shared.serial += 1;
        shared.posted[usize::from(buffer)] = Some(id);
        let sges = split_evenly(random, memory, shared.buffers, buffer, len);
        let wr = RecvWr {
            wr_id: id,
            sges: &sges,
        };
        shared
            .srq
            .post(&wr)
            .expect("there is room for every buffer");
    }
}

/// A receive buffer in up to four pieces.
fn split_evenly(
    random: &mut Random,
    memory: &Memory,
    region: RegionId,
    buffer: u16,
    len: usize,
) -> Vec<Sge> {
    let pieces = random.between(1, 4) as usize;
    let start = usize::from(buffer) * len;
    let mut at = 0;
    let mut sges = Vec::with_capacity(pieces);
    for i in 0..pieces {
        let n = if i + 1 == pieces {
            len - at
        } else {
            random.index(len - at + 1)
        };
        sges.push(memory.sge(region, start + at, n));
        at += n;
    }
    sges
}
