//! XRC connections: one end sends, the other receives into the SRQ that each request names.
//!
//! Every node has two such SRQs, in protection domains of their own, so a request through the second one
//! needs keys of the second domain, and its buffers and its completions are the second one's, too.

use adverb_engine::{Access, PdId, Role, Srq, WcStatus};
use adverb_wire::Transport;

use crate::draft::Draft;
use crate::memory::RegionId;
use crate::node::{PD, Shared};
use crate::oracle::{Conn, Endpoint};
use crate::world::World;

/// The SRQs of each node's XRC domain, and the protection domains they bring along.
pub(crate) const QUEUES: [(u32, PdId); 2] = [(0x0a_0001, PD), (0x0a_0002, SECOND)];
const SECOND: PdId = PdId(9);
/// No queue has this number.
const NOWHERE: u32 = 0x77;

impl Endpoint {
    pub(crate) fn role(&self, conn: &Conn, e: usize) -> Role {
        match self.transport {
            Transport::Xrc if conn.b == e => Role::Target,
            Transport::Xrc => Role::Initiator,
            _ => Role::Both,
        }
    }

    /// Whether what is sent arrives, or the connection ends.
    pub(crate) const fn is_reliable(&self) -> bool {
        matches!(self.transport, Transport::Rc | Transport::Xrc)
    }
}

impl World {
    /// The SRQs of a node, if there is XRC in this world.
    pub(crate) fn add_xrc_queues(&mut self, node: usize) {
        if self.profile.xrc == 0 {
            return;
        }
        let slots = self.profile.recv_slots;
        let len = usize::from(slots) * self.recv_len();
        for (lane, (number, pd)) in QUEUES.into_iter().enumerate() {
            let cq = self.random.index(2);
            let common = &mut self.nodes[node].common;
            let buffers = common.memory.add(len, Access::LOCAL_WRITE, pd);
            common.shared.push(Shared {
                srq: Srq::new(u32::from(slots), 8),
                xrc: Some((number, pd)),
                cq,
                buffers,
                free: (0..slots).collect(),
                posted: vec![None; usize::from(slots)],
                // A queue pair takes from both, and must not find the same ids there.
                serial: (lane as u64) << 40,
            });
        }
        let node = &mut self.nodes[node];
        let memory = &mut node.common.memory;
        memory.add_twin(node.source, SECOND);
        memory.add_twin(node.counter, SECOND);
    }

    /// What peers reach through the second SRQ.
    pub(crate) fn add_twin(&mut self, node: usize, of: RegionId) {
        self.nodes[node].common.memory.add_twin(of, SECOND);
    }

    /// Through which of the peer's SRQs the next request goes.
    pub(crate) fn choose_lane(&mut self, e: usize) {
        if self.endpoints[e].transport == Transport::Xrc {
            self.endpoints[e].lane = self.random.index(QUEUES.len());
        }
    }

    /// The number that a request carries.
    pub(crate) fn srq_number(&self, e: usize) -> u32 {
        let ep = &self.endpoints[e];
        match ep.transport {
            Transport::Xrc => QUEUES[ep.lane].0,
            _ => 0,
        }
    }

    /// The key under which requests of `e` reach a region of its peer's node.
    pub(crate) fn remote_key(&self, e: usize, region: RegionId) -> adverb_engine::Key {
        let ep = &self.endpoints[e];
        let memory = &self.nodes[self.endpoints[ep.peer].node].common.memory;
        memory.key(if ep.lane == 0 {
            region
        } else {
            memory.twin(region)
        })
    }

    /// Names an SRQ that is not there, or one whose domain does not know the key.
    pub(crate) fn misdirect(&mut self, e: usize, draft: &mut Draft) -> bool {
        if self.endpoints[e].transport != Transport::Xrc {
            return false;
        }
        let keyed = draft.sent.len > 0 && draft.needs_key();
        if keyed && self.random.chance(5000) {
            draft.srqn = QUEUES[1 - self.endpoints[e].lane].0;
            draft.sent.poison = Some(WcStatus::RemAccessErr);
        } else {
            draft.srqn = NOWHERE;
            draft.sent.poison = Some(WcStatus::RemInvReqErr);
        }
        if let Some(arrival) = &mut draft.arrival {
            (arrival.refused, arrival.srqn) = (true, Some(draft.srqn));
        }
        true
    }
}
