//! A train is its packets: two pairs of queue pairs live the same life, one with trains and one without, and nothing may
//! tell them apart.

use std::panic::{AssertUnwindSafe, catch_unwind};

use adverb_engine::*;
use adverb_wire::{Bth, Opcode, Operation, Packet, Psn, Train, Transport};

use crate::harness::*;

const SRQN: u32 = 0x0a_0001;
const AREA: usize = 40_000;

/// What travels between the sides.
#[derive(Clone, Debug)]
enum Unit {
    Packet(Vec<u8>),
    Train(Vec<u8>, Vec<u8>),
}

impl Unit {
    /// The packets it stands for.
    fn packets(&self) -> Vec<Vec<u8>> {
        match self {
            Self::Packet(bytes) => vec![bytes.clone()],
            Self::Train(head, payload) => {
                let train = Train::parse(head, payload.len() as u32).unwrap();
                let packets = (0..train.packets()).map(|n| {
                    let (packet, range) = train.packet(n);
                    let payload = &payload[range.start as usize..range.end as usize];
                    let packet = Packet { payload, ..packet };
                    let mut buf = vec![0; packet.emitted_len()];
                    packet.emit(&mut buf);
                    buf
                });
                packets.collect()
            }
        }
    }

    /// Something similar that nobody sent; whether it is a train or a packet at all.
    fn falsify(&mut self, random: &mut Random) -> bool {
        let flip = |random: &mut Random, bytes: &mut Vec<u8>| {
            let at = random.below(bytes.len().clamp(1, 60) as u64) as usize;
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        };
        match self {
            Self::Packet(bytes) => {
                flip(random, bytes);
                Packet::parse(bytes).is_ok()
            }
            Self::Train(head, payload) => {
                match random.below(3) {
                    0 => payload.truncate(random.below(payload.len() as u64 + 1) as usize),
                    1 => payload.extend_from_slice(&vec![7; random.below(600) as usize]),
                    _ => {}
                }
                if random.chance(800) {
                    flip(random, head);
                }
                Train::parse(head, payload.len() as u32).is_ok()
            }
        }
    }
}

fn node(pair: &mut Pair, way: Way) -> &mut Node {
    match way {
        Way::ToB => &mut pair.a,
        Way::ToA => &mut pair.b,
    }
}

fn receiver(pair: &mut Pair, way: Way) -> &mut Node {
    match way {
        Way::ToB => &mut pair.b,
        Way::ToA => &mut pair.a,
    }
}

const META: PacketMeta = PacketMeta {
    src: std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST),
    dst: std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST),
    traffic_class: 0,
    hop_limit: 64,
};

struct Double {
    packets: Pair,
    trains: Pair,
    random: Random,
    now: u64,
    least: u32,
    most: u32,
    mrs: [[Mr; 3]; 2],
    flying: Vec<(Way, Unit)>,
    next_id: u64,
    /// Trains seen.
    trains_sent: u64,
}

impl Double {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let transport = match random.below(4) {
            0 => Transport::Uc,
            1 => Transport::Xrc,
            _ => Transport::Rc,
        };
        let mut setup = Setup::new(transport);
        setup.caps = QpCaps {
            max_send_wr: 8,
            max_recv_wr: 8,
            max_send_sge: 4,
            max_recv_sge: 4,
            max_inline: 64,
        };
        setup.sq_sig_all = random.chance(500);
        setup.srq = transport == Transport::Rc && random.chance(300);
        setup.attr.path_mtu = 1 + random.below(2) as u32;
        setup.attr.rnr_retry = if random.chance(800) { 7 } else { 1 };
        setup.attr.retry_cnt = if random.chance(800) { 7 } else { 1 };
        setup.window = random.chance(700).then(|| 1 + random.below(60) as u32);
        let mut mrs = None;
        let mut make = || {
            let mut pair = Pair::new(setup);
            pair.b.world.xrc = vec![(SRQN, PD, Srq::new(8, 4))];
            pair.a.srqn = SRQN;
            let of = |node: &mut Node, seed: u64| {
                let world = &mut node.world;
                let all = pattern(AREA, seed);
                let receives = world.srq.is_some();
                [
                    world.register(all),
                    world.register(vec![0; AREA]),
                    world.register_with(
                        vec![0; AREA],
                        all_access(),
                        if receives { SRQ_PD } else { PD },
                    ),
                ]
            };
            mrs = Some([of(&mut pair.a, 1), of(&mut pair.b, 2)]);
            for node in [&mut pair.a, &mut pair.b] {
                for _ in 0..4 {
                    let mr = node.world.register(vec![0; 16]);
                    node.world.invalidatable.push(mr.key);
                }
            }
            pair
        };
        let (packets, trains) = (make(), make());
        let least = random.below(2) as u32 * 600;
        let most = 600 + random.below(12_000) as u32;
        Self {
            packets,
            trains,
            random,
            now: 0,
            least,
            most,
            mrs: mrs.unwrap(),
            flying: Vec::new(),
            next_id: 0,
            trains_sent: 0,
        }
    }

    fn both<R: PartialEq + std::fmt::Debug>(&mut self, act: impl Fn(&mut Pair) -> R) -> R {
        let (one, other) = (act(&mut self.packets), act(&mut self.trains));
        assert_eq!(one, other);
        other
    }

    fn step(&mut self) {
        match self.random.below(10) {
            0..3 => self.post(),
            3 => self.post_receive(),
            4..8 => self.deliver(),
            8 => self.wait(),
            _ if self.random.chance(20) => self.deregister(),
            _ => self.deliver(),
        }
        self.pump();
    }

    fn side(&mut self) -> Way {
        let xrc = self.packets.setup.transport == Transport::Xrc;
        if xrc || self.random.chance(500) {
            Way::ToB
        } else {
            Way::ToA
        }
    }

    fn sges(&mut self, mr: Mr, len: u32) -> Vec<Sge> {
        let mut at = self.random.below((AREA as u32 - len) as u64);
        let mut left = len;
        let mut sges = Vec::new();
        while sges.len() < 3 && left > 0 && self.random.chance(400) {
            let n = self.random.below(u64::from(left) + 1) as u32;
            sges.push(mr.sge(at, n));
            at += u64::from(n);
            left -= n;
        }
        sges.push(mr.sge(at, left));
        sges
    }

    fn post(&mut self) {
        let way = self.side();
        let (here, there) = match way {
            Way::ToB => (self.mrs[0], self.mrs[1]),
            Way::ToA => (self.mrs[1], self.mrs[0]),
        };
        let len = match self.random.below(4) {
            0 => self.random.below(600) as u32,
            1 => 256 * self.random.below(40) as u32,
            _ => self.random.below(12_000) as u32,
        };
        let target = there[1 + usize::from(self.random.chance(50))];
        let remote_addr = target.addr + self.random.below((AREA as u64 - u64::from(len)) + 40);
        let rkey = if self.random.chance(990) {
            target.key
        } else {
            Key(target.key.0 ^ 1)
        };
        let imm = [self.random.next() as u8; 4];
        let invalid = self.packets.b.world.invalidatable.first().copied();
        let reads = self.packets.setup.transport != Transport::Uc;
        let (op, local) = match self.random.below(9) {
            0 | 1 => (SendOp::Send, here[0]),
            2 => (SendOp::SendImm(imm), here[0]),
            3 => match invalid {
                Some(key) if reads && way == Way::ToB => (SendOp::SendInv(key), here[0]),
                _ => (SendOp::Send, here[0]),
            },
            4 | 5 => (SendOp::Write { remote_addr, rkey }, here[0]),
            6 => (
                SendOp::WriteImm {
                    remote_addr,
                    rkey,
                    imm,
                },
                here[0],
            ),
            _ if reads => (SendOp::Read { remote_addr, rkey }, here[1]),
            _ => (SendOp::Write { remote_addr, rkey }, here[0]),
        };
        let sges = self.sges(local, len);
        let mut flags = SendFlags::empty();
        flags.set(SendFlags::FENCE, self.random.chance(100));
        flags.set(SendFlags::SIGNALED, self.random.chance(700));
        flags.set(SendFlags::SOLICITED, self.random.chance(300));
        self.next_id += 1;
        let wr_id = self.next_id;
        let _ = self.both(|pair| {
            let node = node(pair, way);
            let wr = SendWr {
                wr_id,
                op,
                flags,
                data: SendData::Sges(&sges),
                ud: None,
                xrc_srqn: node.srqn,
            };
            node.try_send(&wr)
        });
    }

    fn post_receive(&mut self) {
        let way = self.side();
        let mr = match way {
            Way::ToB => self.mrs[1][2],
            Way::ToA => self.mrs[0][2],
        };
        let len = self.random.below(16_000) as u32;
        let mut sges = self.sges(mr, len);
        if self.random.chance(20) {
            sges[0].lkey = Key(1);
        }
        self.next_id += 1;
        let wr_id = self.next_id;
        self.both(|pair| {
            let xrc = pair.setup.transport == Transport::Xrc;
            let node = receiver(pair, way);
            let wr = RecvWr { wr_id, sges: &sges };
            match &mut node.world.srq {
                _ if xrc => node.world.xrc[0].2.post(&wr).is_ok(),
                Some(srq) => srq.post(&wr).is_ok(),
                None => node.qp.post_recv(node.now, &wr, &mut node.world).is_ok(),
            }
        });
    }

    /// Takes a key away from under the work that uses it.
    fn deregister(&mut self) {
        let side = self.random.below(2) as usize;
        let which = self.random.below(3) as usize;
        let key = self.mrs[side][which].key;
        self.both(|pair| {
            let node = if side == 0 { &mut pair.a } else { &mut pair.b };
            node.world.keys.remove(key).is_some()
        });
    }

    fn wait(&mut self) {
        self.now += self.random.below(2) * 40_000 + self.random.below(60_000);
        let now = Instant::from_nanos(self.now);
        self.both(|pair| {
            for node in [&mut pair.a, &mut pair.b] {
                node.now = now;
                if node.qp.poll_timeout().is_some_and(|t| t <= now) {
                    node.qp.handle_timeout(now, &mut node.world);
                }
            }
        });
    }

    /// What both pairs want to send must be the same packets.
    fn pump(&mut self) {
        let mut buf = vec![0xee; 8192];
        for way in [Way::ToB, Way::ToA] {
            let plain = node(&mut self.packets, way);
            let mut expected = Vec::new();
            while let Some(t) = plain
                .qp
                .poll_transmit(plain.now, &mut plain.world, &mut buf)
            {
                expected.push(buf[..t.len].to_vec());
            }
            let node = node(&mut self.trains, way);
            let mut units = Vec::new();
            loop {
                let (now, world) = (node.now, &mut node.world);
                let departure = node.qp.next_train(now, world, self.least, self.most);
                if let Some(departure) = departure {
                    let train = departure.train();
                    assert!((self.least..=self.most).contains(&train.len()));
                    let mut payload = vec![0xdd; train.len() as usize];
                    if node.qp.depart(now, &departure, world, &mut payload).is_ok() {
                        let mut head = [0; Train::MAX_HEAD];
                        let len = train.emit(&mut head);
                        assert_eq!(Train::parse(&head[..len], train.len()), Ok(*train));
                        units.push(Unit::Train(head[..len].to_vec(), payload));
                        self.trains_sent += 1;
                        continue;
                    }
                }
                let Some(t) = node.qp.poll_transmit(now, world, &mut buf) else {
                    break;
                };
                units.push(Unit::Packet(buf[..t.len].to_vec()));
            }
            let sent: Vec<_> = units.iter().flat_map(Unit::packets).collect();
            assert!(sent == expected, "{way:?}: {units:?}");
            self.flying
                .extend(units.into_iter().map(|unit| (way, unit)));
        }
    }

    /// Something arrives: the next, or one that it was not the turn of, once or twice, or never, as it was or otherwise.
    fn deliver(&mut self) {
        if self.flying.is_empty() {
            return;
        }
        let at = match self.random.below(20) {
            0 => self.random.below(self.flying.len() as u64) as usize,
            _ => 0,
        };
        let (way, mut unit) = self.flying[at].clone();
        if !self.random.chance(30) {
            self.flying.remove(at);
        }
        if self.random.chance(30) {
            return;
        }
        if self.random.chance(30) && !unit.falsify(&mut self.random) {
            return;
        }
        let mut dropped = 0;
        for bytes in unit.packets() {
            let node = receiver(&mut self.packets, way);
            let packet = Packet::parse(&bytes).unwrap();
            let handled = node
                .qp
                .handle_packet(node.now, &META, &packet, &mut node.world);
            dropped += u32::from(handled.is_err());
        }
        let node = receiver(&mut self.trains, way);
        let also = match &mut unit {
            Unit::Packet(bytes) => {
                let packet = Packet::parse(bytes).unwrap();
                let handled = node
                    .qp
                    .handle_packet(node.now, &META, &packet, &mut node.world);
                u32::from(handled.is_err())
            }
            Unit::Train(head, payload) => {
                let train = Train::parse(head, payload.len() as u32).unwrap();
                node.qp
                    .handle_train(node.now, &META, &train, &mut node.world, payload)
            }
        };
        assert_eq!(also, dropped, "{unit:?}");
    }

    /// State, reports and memory.
    fn compare(&mut self) {
        let (one, other) = (&self.packets, &self.trains);
        for (one, other, mrs) in [
            (&one.a, &other.a, self.mrs[0]),
            (&one.b, &other.b, self.mrs[1]),
        ] {
            assert_eq!(format!("{:?}", one.qp), format!("{:?}", other.qp));
            let (one, other) = (&one.world, &other.world);
            assert_eq!(one.told, other.told);
            assert_eq!(one.told_xrc, other.told_xrc);
            assert_eq!(one.invalidatable, other.invalidatable);
            let queues = |w: &World| format!("{:?} {:?}", w.srq, w.xrc);
            assert_eq!(queues(one), queues(other));
            for mr in mrs {
                assert!(one.bytes(mr) == other.bytes(mr), "memory differs");
            }
        }
    }
}

#[test]
fn nobody_can_tell_a_train_from_its_packets() {
    let mut trains = 0;
    for seed in 0..400 {
        let lived = catch_unwind(AssertUnwindSafe(|| {
            let mut double = Double::new(seed);
            for _ in 0..10 {
                for _ in 0..12 {
                    double.step();
                }
                double.compare();
            }
            double.trains_sent
        }));
        trains += lived.unwrap_or_else(|_| panic!("seed {seed}"));
    }
    assert!(trains > 3000, "{trains} trains are too few to mean much");
}

/// The ordinary case takes the short way: the payload is never looked at, only moved, and with one question for each run.
#[test]
fn what_is_in_order_is_not_taken_apart() {
    struct Blind(Vec<u8>, u32);
    impl Unload for Blind {
        fn unload(&mut self, host: &mut dyn Host, to: &MemAccess, at: u64) -> Result<(), KeyError> {
            self.1 += 1;
            self.0.unload(host, to, at)
        }
        fn look(&mut self, at: u64, _out: &mut [u8]) {
            panic!("byte {at} is looked at");
        }
    }
    for op in [
        Operation::SendFirst,
        Operation::WriteFirst,
        Operation::ReadResponseFirst,
    ] {
        let mut p = Pair::rc();
        let here = p.a.world.register(pattern(5000, 3));
        let there = p.b.world.register(pattern(5000, 4));
        p.b.recv(1, &[there.sge(0, 5000)]);
        let (remote_addr, rkey) = (there.addr, there.key);
        let work = match op {
            Operation::SendFirst => SendOp::Send,
            Operation::WriteFirst => SendOp::Write { remote_addr, rkey },
            _ => SendOp::Read { remote_addr, rkey },
        };
        p.a.send(1, work, &[here.sge(0, 5000)]);
        let mut buf = [0; 8192];
        if op == Operation::ReadResponseFirst {
            let t =
                p.a.qp
                    .poll_transmit(p.a.now, &mut p.a.world, &mut buf)
                    .unwrap();
            let packet = Packet::parse(&buf[..t.len]).unwrap();
            p.b.qp
                .handle_packet(p.b.now, &META, &packet, &mut p.b.world)
                .unwrap();
        }
        let (from, to) = match op {
            Operation::ReadResponseFirst => (&mut p.b, &mut p.a),
            _ => (&mut p.a, &mut p.b),
        };
        let mut handled = 0;
        while let Some(d) = from.qp.next_train(from.now, &mut from.world, 1, 2000) {
            let train = *d.train();
            let mut payload = vec![0; train.len() as usize];
            from.qp
                .depart(from.now, &d, &mut from.world, &mut payload)
                .unwrap();
            let mut payload = Blind(payload, 0);
            let dropped = to
                .qp
                .handle_train(to.now, &META, &train, &mut to.world, &mut payload);
            assert_eq!((dropped, payload.1), (0, 1));
            handled += train.packets();
        }
        assert_eq!(handled, 20, "{op:?}");
        let expected = p.a.world.bytes(here).to_vec();
        assert_eq!(p.b.world.bytes(there), expected, "{op:?}");
    }
}

/// A train that was interrupted by a refusal goes on where the refusal says, with a train that begins there.
#[test]
fn a_train_goes_on_from_its_middle() {
    let mut p = Pair::rc();
    let here = p.a.world.register(pattern(4000, 3));
    let there = p.b.world.register(vec![0; 4000]);
    let (remote_addr, rkey) = (there.addr, there.key);
    p.a.send(1, SendOp::Write { remote_addr, rkey }, &[here.sge(0, 4000)]);
    let d = p.a.qp.next_train(p.a.now, &mut p.a.world, 1, 4096).unwrap();
    let train = *d.train();
    let mut payload = vec![0; 4000];
    p.a.qp
        .depart(p.a.now, &d, &mut p.a.world, &mut payload)
        .unwrap();
    // Its first five packets arrive.
    for n in 0..5 {
        let (packet, range) = train.packet(n);
        let payload = &payload[range.start as usize..range.end as usize];
        let packet = Packet { payload, ..packet };
        p.b.qp
            .handle_packet(p.b.now, &META, &packet, &mut p.b.world)
            .unwrap();
    }
    let bth = Bth::new(
        Opcode::Roce(Transport::Rc, Operation::Acknowledge),
        0x11,
        train.first().bth.psn.add(5),
    );
    let nak = Packet {
        aeth: Some(adverb_wire::Aeth {
            syndrome: adverb_wire::Syndrome::Nak(adverb_wire::NakCode::PsnSequence),
            msn: 0,
        }),
        ..Packet::new(bth)
    };
    p.a.qp
        .handle_packet(p.a.now, &META, &nak, &mut p.a.world)
        .unwrap();
    let d = p.a.qp.next_train(p.a.now, &mut p.a.world, 1, 4096).unwrap();
    assert_eq!(d.train().first().bth.psn, Psn::new(0xff_fff5));
    assert_eq!((d.train().packets(), d.train().len()), (11, 4000 - 5 * 256));
    // The whole of the first one comes as well: what is known is no news, and the rest is in order.
    let dropped =
        p.b.qp
            .handle_train(p.b.now, &META, &train, &mut p.b.world, &mut payload);
    assert_eq!(dropped, 0);
    assert_eq!(p.b.qp.counters().duplicates, 5);
    assert_eq!(p.b.world.bytes(there), p.a.world.bytes(here));
}

/// What cannot be moved in one go is moved packet by packet, from where the entry was filled to before the attempt.
#[test]
fn a_train_that_is_stuck_half_way_leaves_the_entry_as_it_was() {
    /// Memory that cannot be reached at the second request, and can later.
    struct Stuck(Vec<u8>, u32);
    impl Unload for Stuck {
        fn unload(&mut self, host: &mut dyn Host, to: &MemAccess, at: u64) -> Result<(), KeyError> {
            self.1 += 1;
            match self.1 {
                2 => Err(KeyError::Unknown { key: to.key.0 }),
                _ => self.0.unload(host, to, at),
            }
        }
        fn look(&mut self, at: u64, out: &mut [u8]) {
            self.0.look(at, out);
        }
    }
    let mut p = Pair::rc();
    let here = p.a.world.register(pattern(5000, 3));
    let there = p.b.world.register(vec![0; 5000]);
    p.b.recv(7, &[there.sge(0, 2000), there.sge(2000, 3000)]);
    p.a.send(1, SendOp::Send, &[here.sge(0, 5000)]);
    // The first train goes well; the second one is stuck where the pieces of the entry meet.
    for (most, stuck) in [(1024, 9), (8192, 0)] {
        let d = p.a.qp.next_train(p.a.now, &mut p.a.world, 1, most).unwrap();
        let train = *d.train();
        let mut payload = vec![0; train.len() as usize];
        p.a.qp
            .depart(p.a.now, &d, &mut p.a.world, &mut payload)
            .unwrap();
        let mut payload = Stuck(payload, stuck);
        let dropped =
            p.b.qp
                .handle_train(p.b.now, &META, &train, &mut p.b.world, &mut payload);
        assert_eq!(dropped, 0);
    }
    p.drive();
    assert_eq!(p.b.world.bytes(there), p.a.world.bytes(here));
    assert_eq!(p.b.world.recv_statuses(), [(7, WcStatus::Success)]);
}
