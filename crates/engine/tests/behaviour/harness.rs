//! A pair of queue pairs with memory of their own, joined by a wire that obeys a seed.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

pub(crate) use crate::world::*;
use adverb_engine::*;
use adverb_wire::{Gid, Opcode, Operation, Packet, Psn, Transport};

/// SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub(crate) fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }
}

/// How two queue pairs are made.
#[derive(Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) transport: Transport,
    pub(crate) caps: QpCaps,
    pub(crate) sq_sig_all: bool,
    /// Side b receives from an SRQ.
    pub(crate) srq: bool,
    pub(crate) attr: QpAttr,
    pub(crate) window: Option<u32>,
}

impl Setup {
    pub(crate) fn new(transport: Transport) -> Self {
        Self {
            transport,
            caps: QpCaps {
                max_send_wr: 32,
                max_recv_wr: 32,
                max_send_sge: 32,
                max_recv_sge: 32,
                max_inline: 128,
            },
            sq_sig_all: true,
            srq: false,
            attr: QpAttr {
                path_mtu: 1,
                qkey: 0x1234,
                rq_psn: 0xff_fff0,
                sq_psn: 0xff_fff0,
                access: all_access(),
                max_rd_atomic: 4,
                max_dest_rd_atomic: 4,
                min_rnr_timer: 1,
                timeout: 4,
                retry_cnt: 7,
                rnr_retry: 7,
                av: Av {
                    sgid: gid(1),
                    dgid: gid(2),
                    ..Av::default()
                },
                ..QpAttr::default()
            },
            window: None,
        }
    }

    pub(crate) fn rc() -> Self {
        Self::new(Transport::Rc)
    }
}

pub(crate) fn gid(last: u8) -> Gid {
    Gid::from_ipv4([10, 0, 0, last].into())
}

pub(crate) const LIMITS: DeviceLimits = DeviceLimits {
    ports: 1,
    pkeys: 1,
    active_mtu: 5,
    max_rd_atom: 16,
    max_init_rd_atom: 16,
};

/// One side.
pub(crate) struct Node {
    pub(crate) qp: Qp,
    pub(crate) world: World,
    pub(crate) now: Instant,
    /// XRC: the SRQ that sends are for.
    pub(crate) srqn: u32,
}

impl Node {
    fn new(setup: &Setup, num: u32, srq: bool) -> Self {
        let role = match (setup.transport, num) {
            (Transport::Xrc, 0x11) => Role::Initiator,
            (Transport::Xrc, _) => Role::Target,
            _ => Role::Both,
        };
        let qp = Qp::new(QpConfig {
            num: QpNum(num),
            transport: setup.transport,
            role,
            pd: PD,
            caps: setup.caps,
            sq_sig_all: setup.sq_sig_all,
            uses_srq: srq || role == Role::Target,
            srq_pd: srq.then_some(SRQ_PD),
        });
        let mut world = World::new(u64::from(num));
        world.srq = srq.then(|| Srq::new(32, 32));
        Self {
            qp,
            world,
            now: Instant::ZERO,
            srqn: 0,
        }
    }

    pub(crate) fn modify(&mut self, attr: &QpAttr, mask: AttrMask) -> Result<(), ModifyError> {
        self.qp
            .modify(self.now, attr, mask, &LIMITS, &mut self.world)
    }

    pub(crate) fn enter(&mut self, state: QpState) -> Result<(), ModifyError> {
        let attr = QpAttr {
            state,
            ..QpAttr::default()
        };
        self.modify(&attr, AttrMask::STATE)
    }

    pub(crate) fn enter_init(&mut self, setup: &Setup) {
        let attr = QpAttr {
            state: QpState::Init,
            ..setup.attr
        };
        let extra = if setup.transport == Transport::Ud {
            AttrMask::QKEY
        } else {
            AttrMask::ACCESS_FLAGS
        };
        self.modify(
            &attr,
            AttrMask::STATE | AttrMask::PKEY_INDEX | AttrMask::PORT | extra,
        )
        .unwrap();
    }

    pub(crate) fn enter_rtr(&mut self, setup: &Setup, peer: u32) {
        let attr = QpAttr {
            state: QpState::Rtr,
            dest_qpn: peer,
            ..setup.attr
        };
        let path = AttrMask::AV | AttrMask::PATH_MTU | AttrMask::DEST_QPN | AttrMask::RQ_PSN;
        let mask = match setup.transport {
            _ if matches!(self.qp.kind(), QpKind::Rc | QpKind::XrcRecv) => {
                path | AttrMask::MAX_DEST_RD_ATOMIC | AttrMask::MIN_RNR_TIMER
            }
            Transport::Ud => AttrMask::empty(),
            _ => path,
        };
        self.modify(&attr, AttrMask::STATE | mask).unwrap();
    }

    pub(crate) fn enter_rts(&mut self, setup: &Setup) {
        let attr = QpAttr {
            state: QpState::Rts,
            ..setup.attr
        };
        let mask = match self.qp.kind() {
            QpKind::XrcRecv => AttrMask::TIMEOUT,
            QpKind::Rc | QpKind::XrcSend => {
                AttrMask::TIMEOUT
                    | AttrMask::RETRY_CNT
                    | AttrMask::RNR_RETRY
                    | AttrMask::MAX_QP_RD_ATOMIC
            }
            _ => AttrMask::empty(),
        };
        self.modify(&attr, AttrMask::STATE | AttrMask::SQ_PSN | mask)
            .unwrap();
        if let Some(window) = setup.window {
            self.qp.set_window(window);
        }
    }

    pub(crate) fn try_send(&mut self, wr: &SendWr<'_>) -> Result<(), PostError> {
        self.qp.post_send(self.now, wr, &mut self.world)
    }

    pub(crate) fn send(&mut self, wr_id: u64, op: SendOp, sges: &[Sge]) {
        self.send_flags(wr_id, op, sges, SendFlags::empty());
    }

    pub(crate) fn send_flags(&mut self, wr_id: u64, op: SendOp, sges: &[Sge], flags: SendFlags) {
        self.try_send(&SendWr {
            wr_id,
            op,
            flags,
            data: SendData::Sges(sges),
            ud: Some(self.datagram_address()),
            xrc_srqn: self.srqn,
        })
        .unwrap();
    }

    pub(crate) fn datagram_address(&self) -> UdAddress {
        // Sides are numbered 0x11 and 0x12.
        UdAddress {
            av: Av::default(),
            remote_qpn: self.qp.config().num.0 ^ 3,
            remote_qkey: 0x1234,
        }
    }

    pub(crate) fn recv(&mut self, wr_id: u64, sges: &[Sge]) {
        let wr = RecvWr { wr_id, sges };
        match &mut self.world.srq {
            Some(srq) => srq.post(&wr).unwrap(),
            None => self.qp.post_recv(self.now, &wr, &mut self.world).unwrap(),
        }
    }
}

/// Which way a packet goes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Way {
    ToB,
    ToA,
}

/// Faults of the wire, in per mille.
#[derive(Clone, Copy, Default)]
pub(crate) struct Faults {
    pub(crate) loss: u64,
    pub(crate) duplicate: u64,
    pub(crate) late: u64,
}

type Sieve = Box<dyn FnMut(Way, &Packet<'_>) -> bool>;

/// A packet on its way: when it arrives, a number to keep order, where it goes, its bytes.
type Flight = (u64, u64, Way, Vec<u8>);

pub(crate) const DELAY: u64 = 500;

/// Two sides and the wire between them.
pub(crate) struct Pair {
    pub(crate) a: Node,
    pub(crate) b: Node,
    pub(crate) setup: Setup,
    pub(crate) random: Random,
    pub(crate) faults: Faults,
    now: u64,
    flying: BinaryHeap<Reverse<Flight>>,
    serial: u64,
    /// Returns false for packets to lose.
    sieve: Option<Sieve>,
    /// Every packet sent, also those lost.
    pub(crate) seen: Vec<(Way, Operation, Psn)>,
    pub(crate) text: Vec<String>,
}

impl Pair {
    pub(crate) fn new(setup: Setup) -> Self {
        let mut pair = Self::unconnected(setup);
        for (node, peer) in [(&mut pair.a, 0x12), (&mut pair.b, 0x11)] {
            node.enter_init(&setup);
            node.enter_rtr(&setup, peer);
            node.enter_rts(&setup);
        }
        pair
    }

    pub(crate) fn unconnected(setup: Setup) -> Self {
        Self {
            a: Node::new(&setup, 0x11, false),
            b: Node::new(&setup, 0x12, setup.srq),
            setup,
            random: Random(1),
            faults: Faults::default(),
            now: 0,
            flying: BinaryHeap::new(),
            serial: 0,
            sieve: None,
            seen: Vec::new(),
            text: Vec::new(),
        }
    }

    pub(crate) fn rc() -> Self {
        Self::new(Setup::rc())
    }

    pub(crate) fn sieve(&mut self, keep: impl FnMut(Way, &Packet<'_>) -> bool + 'static) {
        self.sieve = Some(Box::new(keep));
    }

    pub(crate) fn no_sieve(&mut self) {
        self.sieve = None;
    }

    /// Loses the first packet of this kind.
    pub(crate) fn lose_first(&mut self, way: Way, op: Operation) {
        self.lose_nth(way, op, 1);
    }

    pub(crate) fn lose_nth(&mut self, way: Way, op: Operation, n: u32) {
        let mut count = 0;
        self.sieve(move |w, p| {
            if w == way && p.bth.opcode.operation() == Some(op) {
                count += 1;
                return count != n;
            }
            true
        });
    }

    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    /// Takes what both sides want to send.
    pub(crate) fn pump(&mut self) {
        let mut buf = [0xee; 8192];
        for way in [Way::ToB, Way::ToA] {
            let mut sent = Vec::new();
            let node = if way == Way::ToB {
                &mut self.a
            } else {
                &mut self.b
            };
            while let Some(t) = node.qp.poll_transmit(node.now, &mut node.world, &mut buf) {
                sent.push(buf[..t.len].to_vec());
                assert!(sent.len() < 100_000, "a queue pair never stops sending");
            }
            for bytes in sent {
                self.throw(way, bytes);
            }
        }
    }

    fn throw(&mut self, way: Way, bytes: Vec<u8>) {
        let packet = Packet::parse(&bytes).expect("what we send can be parsed");
        let Opcode::Roce(_, op) = packet.bth.opcode else {
            panic!("no such packet is ever sent")
        };
        self.seen.push((way, op, packet.bth.psn));
        let kept = self.sieve.as_mut().is_none_or(|s| s(way, &packet))
            && !self.random.chance(self.faults.loss);
        let mark = if kept { "" } else { "  (lost)" };
        self.text
            .push(format!("{:>8} {way:?} {packet}{mark}", self.now));
        if !kept {
            return;
        }
        let copies = 1 + u64::from(self.random.chance(self.faults.duplicate));
        for _ in 0..copies {
            let late = if self.random.chance(self.faults.late) {
                self.random.below(4 * DELAY)
            } else {
                0
            };
            self.fly(way, self.now + DELAY + late, bytes.clone());
        }
    }

    pub(crate) fn fly(&mut self, way: Way, at: u64, bytes: Vec<u8>) {
        self.serial += 1;
        self.flying.push(Reverse((at, self.serial, way, bytes)));
    }

    /// Gives a packet of the test's own making to one side, at once.
    pub(crate) fn inject(&mut self, way: Way, packet: &Packet<'_>) -> Result<(), DropReason> {
        let mut buf = [0; 8192];
        let len = packet.emit(&mut buf);
        self.give(way, &buf[..len])
    }

    fn give(&mut self, way: Way, bytes: &[u8]) -> Result<(), DropReason> {
        let packet = Packet::parse(bytes).unwrap();
        let (src, dst, node) = match way {
            Way::ToB => (gid(1), gid(2), &mut self.b),
            Way::ToA => (gid(2), gid(1), &mut self.a),
        };
        let meta = PacketMeta {
            src: src.to_ip(),
            dst: dst.to_ip(),
            traffic_class: 0,
            hop_limit: 64,
        };
        node.qp
            .handle_packet(node.now, &meta, &packet, &mut node.world)
    }

    fn set_now(&mut self, now: u64) {
        self.now = now;
        self.a.now = Instant::from_nanos(now);
        self.b.now = Instant::from_nanos(now);
    }

    /// One step: what is due first happens. False when nothing ever will.
    pub(crate) fn step(&mut self) -> bool {
        self.pump();
        let arrival = self.flying.peek().map(|Reverse((at, ..))| *at);
        let timer = [&self.a, &self.b]
            .into_iter()
            .filter_map(|n| n.qp.poll_timeout())
            .min()
            .map(Instant::as_nanos);
        match (arrival, timer) {
            (None, None) => return false,
            (Some(at), t) if t.is_none_or(|t| at <= t) => {
                self.set_now(at);
                // A batch, as a NIC would find it, or just one.
                let batch = self.random.chance(500);
                while let Some(Reverse((when, serial, way, bytes))) = self.flying.pop() {
                    if when > at {
                        self.flying.push(Reverse((when, serial, way, bytes)));
                        break;
                    }
                    let _ = self.give(way, &bytes);
                    if !batch {
                        break;
                    }
                }
            }
            (_, Some(t)) => {
                self.set_now(self.now.max(t));
                let now = Instant::from_nanos(self.now);
                for node in [&mut self.a, &mut self.b] {
                    if node.qp.poll_timeout().is_some_and(|t| t <= now) {
                        node.qp.handle_timeout(now, &mut node.world);
                    }
                }
            }
            (Some(_), None) => unreachable!("the guard above holds without a timer"),
        }
        self.pump();
        true
    }

    /// Runs until nothing is left to do. An idle world has no deadline.
    pub(crate) fn drive(&mut self) {
        for _ in 0..200_000 {
            if !self.step() {
                assert_eq!(self.a.qp.poll_timeout(), None);
                assert_eq!(self.b.qp.poll_timeout(), None);
                return;
            }
        }
        panic!(
            "still busy after 200,000 steps; the last:\n{}",
            self.tail(60)
        );
    }

    pub(crate) fn tail(&self, n: usize) -> String {
        self.text[self.text.len().saturating_sub(n)..].join("\n")
    }

    pub(crate) fn count(&self, way: Way, op: Operation) -> usize {
        self.seen
            .iter()
            .filter(|(w, o, _)| *w == way && *o == op)
            .count()
    }

    pub(crate) fn ops(&self, way: Way) -> Vec<Operation> {
        self.seen
            .iter()
            .filter(|(w, ..)| *w == way)
            .map(|(_, o, _)| *o)
            .collect()
    }

    /// Counts by operation, for failures that want to be read.
    #[expect(dead_code, reason = "a tool for whoever debugs a failing test")]
    pub(crate) fn census(&self) -> HashMap<String, usize> {
        let mut counts = HashMap::new();
        for (way, op, _) in &self.seen {
            *counts.entry(format!("{way:?} {op:?}")).or_default() += 1;
        }
        counts
    }
}

/// Bytes that differ at every offset and for every seed.
pub(crate) fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut random = Random(seed);
    (0..len).map(|_| random.next() as u8).collect()
}

/// `n` sequence numbers after the one the tests' connections begin with, which is 16 before the wrap.
pub(crate) fn psn(n: u32) -> Psn {
    Psn::new(0xff_fff0).add(n)
}
