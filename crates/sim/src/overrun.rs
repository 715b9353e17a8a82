//! Completion queues that are too small: the program makes one so, and it overruns.
//!
//! What was queued before can still be read. What comes later is lost, each queue pair that wanted to
//! report something there dies and says so, and the others that use the queue die when the program takes
//! it away. Nobody can say then which of the work not reported was done, only that it was done in order.

use adverb_engine::QpState;

use crate::life::new_queue;
use crate::oracle::Endpoint;
use crate::world::World;

impl World {
    /// Leaves hardly any room in one of the queues of a node.
    pub(crate) fn squeeze(&mut self, node: usize) {
        let queues = &mut self.nodes[node].common.queues;
        let q = self.random.index(queues.len());
        let cq = &mut queues[q].cq;
        let capacity = cq.len().max(1) + self.random.index(6);
        cq.resize(capacity).expect("what is in it fits");
        self.trace.note(
            self.now,
            format_args!("completion queue {q} of node {node} holds {capacity}"),
        );
    }

    /// Replaces a queue that has overrun; every queue pair that used it is lost.
    pub(crate) fn replace_queue(&mut self, node: usize, q: usize) {
        self.stats.overruns += 1;
        self.trace.note(
            self.now,
            format_args!("completion queue {q} of node {node} has overrun"),
        );
        self.read_queue(node, q);
        let common = &mut self.nodes[node].common;
        let queue = &mut common.queues[q];
        *queue = new_queue(queue.waits);
        let for_targets = common.shared.iter().any(|s| s.xrc.is_some() && s.cq == q);
        for e in 0..self.endpoints.len() {
            let ep = &mut self.endpoints[e];
            let Some(cell) = ep.cell.as_mut().filter(|_| ep.node == node) else {
                continue;
            };
            let port = &mut cell.port;
            if port.send_cq == q || port.recv_cq == q || port.target && for_targets {
                port.lost[q] = true;
                port.failing = true;
                self.with(e, |_, _, _| ());
            }
        }
        self.pump();
    }

    /// After a call into a queue pair: if it had something to report and nowhere to, it is dead now.
    pub(crate) fn settle_queues(&mut self, e: usize) {
        let now = self.instant();
        let ep = &mut self.endpoints[e];
        let Some(cell) = &mut ep.cell else { return };
        if cell.settle(&mut self.nodes[ep.node].common, now) {
            ep.killed |= cell.qp.state() == QpState::Err;
            self.close(self.endpoints[e].conn);
        }
    }
}

impl Endpoint {
    /// Whether completions of its sends are lost.
    pub(crate) fn lost_sends(&self) -> bool {
        let port = self.cell.as_ref().map(|c| &c.port);
        port.is_some_and(|p| p.lost[p.send_cq])
    }

    /// Whether completions of its receives, or some of them, are lost.
    pub(crate) fn lost_receives(&self) -> bool {
        let port = self.cell.as_ref().map(|c| &c.port);
        port.is_some_and(|p| p.lost[p.recv_cq] || p.target && p.lost.contains(&true))
    }

    /// Whether it used a completion queue that is no more.
    pub(crate) fn lost_a_queue(&self) -> bool {
        self.cell
            .as_ref()
            .is_some_and(|c| c.port.lost.contains(&true))
    }
}
