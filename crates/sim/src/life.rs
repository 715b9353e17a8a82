//! How queue pairs come, break and go: setting up, killing on purpose, taking down, building anew.

use adverb_engine::{
    Access, AttrMask, Av, Cq, DeviceLimits, PdId, Qp, QpAttr, QpCaps, QpConfig, QpNum, QpState,
    Role, Srq,
};
use adverb_wire::{Mtu, Transport};

use crate::memory::Memory;
use crate::node::{Cell, Common, Node, OPEN, PD, Port, Queue, Shared, gid_of};
use crate::oracle::{Conn, Endpoint, Setup, WORDS};
use crate::random::Random;
use crate::window::{self, Known};
use crate::world::{FIRST_NUM, World};

const LIMITS: DeviceLimits = DeviceLimits {
    ports: 1,
    pkeys: 1,
    active_mtu: 5,
    max_rd_atom: 16,
    max_init_rd_atom: 16,
};

/// Far more than all queues together hold.
const CQ_SIZE: usize = 16_384;
const ANSWERS: u16 = 6;
const UD_QKEY: u32 = 0x1234;
const UD_HEADER: usize = 40;

impl World {
    /// Nodes with memory and queues, and the first connections between them.
    pub(crate) fn populate(&mut self) {
        for n in 0..self.profile.nodes {
            let seed = self.random.next();
            let mut memory = Memory::new(seed);
            let access = Access::REMOTE_READ | Access::MW_BIND;
            let source = memory.add(self.source_len(), access, PD);
            Random::new(seed).fill(memory.bytes_mut(source));
            let counter = memory.add(8, OPEN, PD);
            let waits = [self.random.chance(5000), self.random.chance(5000)];
            let srq = self.random.chance(self.profile.srq);
            let mut common = Common {
                memory,
                queues: waits.map(new_queue).into(),
                shared: Vec::new(),
            };
            if srq {
                let slots = self.profile.recv_slots * 2;
                let len = usize::from(slots) * self.recv_len();
                let buffers = common.memory.add(len, Access::LOCAL_WRITE, PD);
                common.shared.push(Shared {
                    srq: Srq::new(u32::from(slots), 8),
                    xrc: None,
                    cq: 0,
                    buffers,
                    free: (0..slots).collect(),
                    posted: vec![None; usize::from(slots)],
                    serial: 0,
                });
            }
            self.nodes.push(Node {
                common,
                stalled_until: 0,
                source,
                counter,
            });
            self.add_xrc_queues(n);
            self.trace
                .note(0, format_args!("node {n} shared receive queue: {srq}"));
        }
        let p = &self.profile;
        let connected = [
            (Transport::Rc, p.rc),
            (Transport::Xrc, p.xrc),
            (Transport::Uc, p.uc),
        ];
        let connected = connected.map(|(transport, n)| std::iter::repeat_n(transport, n));
        for transport in connected.into_iter().flatten() {
            let a = self.random.index(self.profile.nodes);
            // A connection of a node with itself is a connection, too.
            let b = if self.random.chance(500) {
                a
            } else {
                (a + 1 + self.random.index(self.profile.nodes - 1)) % self.profile.nodes
            };
            let at = self.endpoints.len();
            let conn = self.conns.len();
            self.add_endpoint(a, transport, conn, at + 1);
            self.add_endpoint(b, transport, conn, at);
            self.conns.push(Conn {
                a: at,
                b: at + 1,
                harm: Default::default(),
                closing: None,
            });
            self.connect(conn);
        }
        for i in 0..self.profile.ud {
            let at = self.endpoints.len();
            let conn = self.conns.len();
            self.add_endpoint(i % self.profile.nodes, Transport::Ud, conn, at);
            self.conns.push(Conn {
                a: at,
                b: at,
                harm: Default::default(),
                closing: None,
            });
            self.connect(conn);
        }
    }

    pub(crate) const fn source_len(&self) -> usize {
        self.profile.max_len * 2 + 4096
    }

    /// Room of one receive buffer.
    pub(crate) const fn recv_len(&self) -> usize {
        self.profile.max_len + UD_HEADER
    }

    pub(crate) const fn target_len(&self) -> usize {
        WORDS + self.profile.max_len * 2
    }

    fn add_endpoint(&mut self, node: usize, transport: Transport, conn: usize, peer: usize) {
        let (target_len, recv_len, max_len) =
            (self.target_len(), self.recv_len(), self.profile.max_len);
        let memory = &mut self.nodes[node].common.memory;
        let connected = transport != Transport::Ud;
        let slots = usize::from(self.profile.recv_slots);
        let target_len = if connected { target_len } else { 8 };
        let answers = answers(transport);
        let target = memory.add(target_len, OPEN, PD);
        let (mut bindable, mut windows) = (target, Vec::new());
        // XRC queue pairs that receive cannot bind, and those that bind do not receive.
        if connected && transport != Transport::Xrc && self.profile.windows > 0 {
            bindable = memory.add_alias(target, Access::LOCAL_WRITE | Access::MW_BIND, PD);
            for kind in window::KINDS {
                let id = memory.add_window(PD, kind);
                windows.push(Known::new(id, kind, memory.window_key(id)));
            }
        }
        let answers_at = memory.add(
            (usize::from(answers) * max_len).max(8),
            Access::LOCAL_WRITE,
            PD,
        );
        let buffers = memory.add(slots * recv_len, Access::LOCAL_WRITE, PD);
        self.endpoints.push(Endpoint {
            node,
            transport,
            conn,
            peer,
            cell: None,
            num: 0,
            lane: 0,
            setup: Setup::default(),
            target,
            base: vec![0; target_len],
            latest: vec![0; target_len],
            bindable,
            windows,
            answers: answers_at,
            free_answers: (0..answers).collect(),
            buffers,
            free_buffers: (0..self.profile.recv_slots).collect(),
            sent: Default::default(),
            doomed: Vec::new(),
            next_send: 0,
            target_read: None,
            arriving: Default::default(),
            to_arrive: 0,
            posted: Default::default(),
            next_recv: 0,
            dead: false,
            killed: false,
            poisoned: false,
            key_gone: false,
            draining: false,
        });
        if transport == Transport::Xrc {
            self.add_twin(node, target);
        }
    }

    /// Gives both ends of a connection a queue pair and connects them.
    pub(crate) fn connect(&mut self, conn: usize) {
        let (a, b) = (self.conns[conn].a, self.conns[conn].b);
        let ends: &[usize] = if a == b { &[a] } else { &[a, b] };
        let transport = self.endpoints[a].transport;
        let mtu = self.random.pick(&Mtu::ALL);
        // Going back over a whole long message for each loss would take for ever.
        let window = if self.profile.max_len > 50_000 {
            self.random.pick(&[16, 64, 256])
        } else {
            self.random.pick(&[u32::MAX, u32::MAX, 1, 2, 5, 16, 64])
        };
        let reads = self.random.below(5) as u8;
        for &e in ends {
            // A queue pair that was reset keeps its number.
            if self.endpoints[e].cell.is_none() {
                self.create(e);
            }
        }
        let psns = [0, 1].map(|_| {
            if self.random.chance(5000) {
                (0xff_ffff - self.random.below(300)) as u32
            } else {
                self.random.below(1 << 24) as u32
            }
        });
        let pmtu = if transport == Transport::Ud {
            Mtu::ALL[4].bytes()
        } else {
            mtu.bytes()
        };
        for (i, &e) in ends.iter().enumerate() {
            let peer = self.endpoints[e].peer;
            let (peer_num, peer_node) = (self.endpoints[peer].num, self.endpoints[peer].node);
            let (retry, rnr) = if self.profile.impatient {
                (self.random.below(8) as u8, self.random.below(8) as u8)
            } else if self.profile.faults.fair {
                (7, 7)
            } else {
                (self.random.below(8) as u8, 7)
            };
            let ep = &mut self.endpoints[e];
            ep.setup.pmtu = pmtu;
            ep.setup.endless_rnr = rnr == 7;
            ep.setup.reads = reads > 0;
            let attr = QpAttr {
                path_mtu: mtu.ibv(),
                qkey: UD_QKEY,
                rq_psn: psns[1 - i],
                sq_psn: psns[i],
                dest_qpn: peer_num,
                access: OPEN,
                av: Av {
                    sgid: gid_of(ep.node),
                    dgid: gid_of(peer_node),
                    ..Av::default()
                },
                max_rd_atomic: reads,
                max_dest_rd_atomic: reads,
                min_rnr_timer: self.random.pick(&[1, 2, 4, 8]),
                timeout: self.profile.timeout,
                retry_cnt: retry,
                rnr_retry: rnr,
                ..QpAttr::default()
            };
            if let Some(cell) = &mut ep.cell {
                cell.peer_node = peer_node;
                cell.qp.set_window(window);
            }
            self.trace.note(
                self.now,
                format_args!(
                    "{:#x} at node {} is connected with {peer_num:#x} at {peer_node}: pmtu {pmtu}, window {window}, reads {reads}, retries {retry}, rnr {rnr}, psn {:#x}",
                    self.endpoints[e].num, self.endpoints[e].node, psns[i]
                ),
            );
            let role = self.endpoints[e].role(&self.conns[conn], e);
            for (state, mask) in path_to_rts(transport, role) {
                self.modify(e, state, &attr, mask);
            }
        }
        self.conns[conn].closing = None;
    }

    pub(crate) fn modify(&mut self, e: usize, state: QpState, attr: &QpAttr, mask: AttrMask) {
        let attr = QpAttr { state, ..*attr };
        let num = self.endpoints[e].num;
        self.trace
            .note(self.now, format_args!("{num:#x} goes to {state:?}"));
        self.with(e, |qp, view, now| {
            qp.modify(now, &attr, mask | AttrMask::STATE, &LIMITS, view)
                .unwrap_or_else(|error| panic!("{num:#x}: {error}"));
        });
    }

    fn create(&mut self, e: usize) {
        let num = FIRST_NUM + self.directory.len() as u32;
        self.directory.push(Some(e));
        let ep = &mut self.endpoints[e];
        let may_share = matches!(ep.transport, Transport::Rc | Transport::Ud);
        let srq = may_share && self.nodes[ep.node].common.shared_of(None).is_some();
        let role = ep.role(&self.conns[ep.conn], e);
        let target = role == Role::Target;
        ep.num = num;
        ep.setup.sig_all = self.random.chance(2000);
        ep.setup.max_inline = self.random.pick(&[0, 64, 256]);
        ep.setup.max_sge = self.random.pick(&[1, 4, 8]);
        let recv_wr = u32::from(self.profile.recv_slots);
        let send_wr = self.random.pick(&[1, 3, 16, 32, 64]);
        let config = QpConfig {
            num: QpNum(num),
            transport: ep.transport,
            role,
            // A target has none of its own, and must not fall back to one.
            pd: if target { PdId(0) } else { PD },
            caps: QpCaps {
                max_send_wr: send_wr,
                max_recv_wr: recv_wr,
                max_send_sge: ep.setup.max_sge as u32,
                max_recv_sge: 8,
                max_inline: ep.setup.max_inline as u32,
            },
            sq_sig_all: ep.setup.sig_all,
            uses_srq: srq || target,
            srq_pd: srq.then_some(PD),
        };
        ep.cell = Some(Cell {
            qp: Qp::new(config),
            port: Port {
                num: QpNum(num),
                send_cq: self.random.index(2),
                recv_cq: self.random.index(2),
                srq,
                target,
                ..Port::default()
            },
            peer_node: ep.node,
            registered: None,
            listed: false,
        });
    }

    /// Destroys a queue pair without a word; what it had completed is removed, too.
    pub(crate) fn destroy(&mut self, e: usize) {
        let ep = &mut self.endpoints[e];
        let Some(mut cell) = ep.cell.take() else {
            return;
        };
        self.directory[(ep.num - FIRST_NUM) as usize] = None;
        let common = &mut self.nodes[ep.node].common;
        for queue in &mut common.queues {
            queue.cq.retain(|c| c.qp_num != cell.port.num);
        }
        common.forget_taken(&mut cell.port);
        self.release_windows(e);
        let ep = &self.endpoints[e];
        let (sum, c) = (&mut self.ledger, cell.qp.counters());
        sum.packets_sent += c.packets_sent;
        sum.packets_received += c.packets_received;
        sum.packets_dropped += c.packets_dropped;
        sum.retries += c.retries;
        sum.timeouts += c.timeouts;
        sum.rnr_naks_sent += c.rnr_naks_sent;
        sum.rnr_naks_received += c.rnr_naks_received;
        sum.sequence_naks_sent += c.sequence_naks_sent;
        sum.sequence_naks_received += c.sequence_naks_received;
        sum.duplicates += c.duplicates;
        self.trace
            .note(self.now, format_args!("{:#x} is destroyed", ep.num));
    }

    /// Hurts a connection on purpose, in one of many ways.
    pub(crate) fn kill(&mut self, e: usize) {
        let conn = self.endpoints[e].conn;
        let way = self.random.below(6);
        match way {
            0 => self.modify(e, QpState::Err, &QpAttr::default(), AttrMask::empty()),
            1 => self.reset(e),
            2 => self.destroy(e),
            3 => {
                let ep = &mut self.endpoints[e];
                ep.key_gone = true;
                self.trace
                    .note(self.now, format_args!("the target of {:#x} goes", ep.num));
                let memory = &mut self.nodes[ep.node].common.memory;
                if !ep.windows.is_empty() && self.random.chance(5000) {
                    for w in &ep.windows {
                        memory.remove_window(w.id);
                    }
                } else {
                    memory.deregister(ep.target);
                    memory.deregister(ep.bindable);
                }
            }
            4 => {
                self.with(e, |qp, view, now| qp.peer_lost(now, view));
            }
            _ => {
                self.restart(self.endpoints[e].node);
                return;
            }
        }
        if way != 3 {
            self.endpoints[e].killed = true;
        }
        self.close(conn);
        self.pump();
    }

    /// Back to RESET: nothing pending completes, and what has completed is removed.
    fn reset(&mut self, e: usize) {
        self.modify(e, QpState::Reset, &QpAttr::default(), AttrMask::empty());
        let ep = &mut self.endpoints[e];
        let num = QpNum(ep.num);
        let common = &mut self.nodes[ep.node].common;
        for queue in &mut common.queues {
            queue.cq.retain(|c| c.qp_num != num);
        }
        if let Some(cell) = &mut ep.cell {
            common.forget_taken(&mut cell.port);
        }
    }

    /// A node loses all its queue pairs, and its keys change.
    fn restart(&mut self, node: usize) {
        self.trace
            .note(self.now, format_args!("node {node} is restarted"));
        for e in 0..self.endpoints.len() {
            if self.endpoints[e].node == node {
                self.destroy(e);
                self.endpoints[e].killed = true;
                self.close(self.endpoints[e].conn);
            }
        }
        let common = &mut self.nodes[node].common;
        common.memory.register_all();
        self.forget_windows(node);
        let common = &mut self.nodes[node].common;
        for queue in &mut common.queues {
            *queue = new_queue(queue.waits);
        }
        for shared in &mut common.shared {
            let slots = shared.posted.len();
            shared.srq = Srq::new(slots as u32, 8);
            shared.free = (0..slots as u16).collect();
            shared.posted = vec![None; slots];
        }
    }

    /// Nothing more is posted to a connection; after a while it is built anew.
    pub(crate) fn close(&mut self, conn: usize) {
        let after = self.now + self.random.below(20 * self.profile.timeout_ns());
        self.conns[conn].closing.get_or_insert(after);
    }

    /// Takes a connection down, compares what is left, and builds it anew.
    pub(crate) fn rebuild(&mut self, conn: usize) {
        let (a, b) = (self.conns[conn].a, self.conns[conn].b);
        let ends: &[usize] = if a == b { &[a] } else { &[a, b] };
        for &e in ends {
            let Some(cell) = &self.endpoints[e].cell else {
                continue;
            };
            if cell.qp.state() != QpState::Reset {
                if cell.qp.state() != QpState::Err {
                    self.endpoints[e].killed = true;
                }
                self.modify(e, QpState::Err, &QpAttr::default(), AttrMask::empty());
                assert!(
                    self.endpoints[e]
                        .cell
                        .as_ref()
                        .is_some_and(|c| c.qp.poll_timeout().is_none())
                );
            }
            self.poll_node(self.endpoints[e].node);
        }
        for &e in ends {
            self.check_last_words(e);
        }
        for &e in ends {
            self.check_target(e);
            self.check_windows(e);
        }
        self.pump();
        for &e in ends {
            // The same number can be used again only when nothing of its old life is on its way.
            let again = self.endpoints[e].cell.as_ref().is_some()
                && ends.len() == 2
                && !self.endpoints[e].lost_a_queue()
                && self.random.chance(3000)
                && !self.fabric.carries_for(self.endpoints[a].num)
                && !self.fabric.carries_for(self.endpoints[b].num);
            if again {
                self.reset(e);
                if let Some(cell) = &mut self.endpoints[e].cell {
                    let port = &mut cell.port;
                    (port.comm_est, port.last_wqe, port.drained) = (0, 0, 0);
                    (port.received, port.refused) = (0, 0);
                }
            } else {
                self.destroy(e);
            }
            self.tidy_windows(e);
            let ep = &mut self.endpoints[e];
            ep.free_answers = (0..answers(ep.transport)).collect();
            ep.free_buffers = (0..self.profile.recv_slots).collect();
            ep.sent.clear();
            ep.doomed.clear();
            ep.posted.clear();
            ep.target_read = None;
            ep.to_arrive = 0;
            (ep.dead, ep.killed, ep.poisoned, ep.draining) = (false, false, false, false);
            if ep.transport != Transport::Ud {
                ep.arriving.clear();
            }
            if std::mem::take(&mut ep.key_gone) {
                let memory = &mut self.nodes[ep.node].common.memory;
                memory.register(ep.target);
                memory.register(ep.bindable);
            }
        }
        self.stats.rebuilt += 1;
        self.note_progress();
        self.connect(conn);
    }
}

pub(crate) fn new_queue(waits: bool) -> Queue {
    let mut cq = Cq::new(CQ_SIZE);
    if waits {
        cq.arm(false);
    }
    Queue {
        cq,
        waits,
        fired: false,
        drained: false,
        broken: false,
    }
}

/// Slots for what READs and atomics bring.
const fn answers(transport: Transport) -> u16 {
    match transport {
        Transport::Rc | Transport::Xrc => ANSWERS,
        Transport::Uc | Transport::Ud => 0,
    }
}

fn path_to_rts(transport: Transport, role: Role) -> [(QpState, AttrMask); 3] {
    type M = AttrMask;
    let path = M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN;
    let receives = path | M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER;
    let sends = M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::MAX_QP_RD_ATOMIC;
    let (init, rtr, rts) = match transport {
        Transport::Xrc if role == Role::Target => (M::ACCESS_FLAGS, receives, M::TIMEOUT),
        Transport::Xrc => (M::ACCESS_FLAGS, path, sends),
        Transport::Rc => (M::ACCESS_FLAGS, receives, sends),
        Transport::Uc => (M::ACCESS_FLAGS, path, M::empty()),
        Transport::Ud => (M::QKEY, M::empty(), M::empty()),
    };
    [
        (QpState::Init, init | M::PKEY_INDEX | M::PORT),
        (QpState::Rtr, rtr),
        (QpState::Rts, rts | M::SQ_PSN),
    ]
}
