//! What a kernel's software RoCE device asked of its peer, asked of a queue pair of ours: the answers must be those
//! that its own kind gave, packet by packet, where the specification leaves no choice.

#[path = "../../wire/tests/common/pcap.rs"]
mod pcap;

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use adverb_engine::*;
use adverb_wire::{Gid, MAX_HEADERS, Opcode, Operation, Packet, Syndrome, Transport};

/// What an answer says, as far as two responders have to agree.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Answer {
    psn: u32,
    kind: Kind,
    msn: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// The bytes of the syndrome.
    Acknowledge(u8),
    /// Bytes of payload. FIRST, MIDDLE, LAST or ONLY is no matter here: rxe goes on where a READ broke off.
    Read(usize),
    Atomic(u64),
}

fn answer(packet: &Packet<'_>) -> Answer {
    let op = packet
        .bth
        .opcode
        .operation()
        .expect("no congestion notification");
    let syndrome = packet.aeth.map(|aeth| aeth.syndrome.to_u8());
    let kind = match op {
        Operation::Acknowledge => Kind::Acknowledge(syndrome.expect("an AETH")),
        Operation::AtomicAcknowledge => Kind::Atomic(packet.atomic_ack.expect("a value")),
        _ => Kind::Read(packet.payload.len()),
    };
    let msn = match kind {
        // A MIDDLE has none to compare.
        Kind::Read(_) => 0,
        _ => packet.aeth.map_or(0, |aeth| aeth.msn),
    };
    Answer {
        psn: packet.bth.psn.value(),
        kind,
        msn,
    }
}

/// Memory that grants what the recorded host granted.
#[derive(Default)]
struct World {
    refuse_remote: bool,
    refuse_local: bool,
    invalidated: HashSet<u32>,
    words: BTreeMap<u64, u64>,
    /// What every word holds at first.
    start: u64,
    received: Vec<Completion>,
}

const LOCAL: Key = Key(1);

impl World {
    fn permit(&self, a: &MemAccess) -> Result<(), KeyError> {
        let refused = if a.key == LOCAL {
            self.refuse_local
        } else {
            self.refuse_remote
        };
        if refused || self.invalidated.contains(&a.key.0) {
            return Err(KeyError::Unknown { key: a.key.0 });
        }
        Ok(())
    }
}

impl Host for World {
    fn check(&mut self, a: &MemAccess) -> Result<(), KeyError> {
        self.permit(a)
    }

    fn write(&mut self, a: &MemAccess, _: &[u8]) -> Result<(), KeyError> {
        self.permit(a)
    }

    fn read(&mut self, a: &MemAccess, out: &mut [u8]) -> Result<(), KeyError> {
        out.fill(0);
        self.permit(a)
    }

    fn compare_swap(&mut self, a: &MemAccess, compare: u64, swap: u64) -> Result<u64, KeyError> {
        self.permit(a)?;
        let word = self.words.entry(a.va).or_insert(self.start);
        let old = *word;
        if old == compare {
            *word = swap;
        }
        Ok(old)
    }

    fn fetch_add(&mut self, a: &MemAccess, add: u64) -> Result<u64, KeyError> {
        self.permit(a)?;
        let word = self.words.entry(a.va).or_insert(self.start);
        let old = *word;
        *word = old.wrapping_add(add);
        Ok(old)
    }

    fn invalidate(&mut self, key: Key, _: PdId, _: QpNum) -> Result<(), KeyError> {
        self.invalidated.insert(key.0);
        Ok(())
    }

    fn bind(&mut self, bind: &MwBind, _: PdId, _: QpNum) -> Result<(), KeyError> {
        Err(KeyError::Unknown { key: bind.window.0 })
    }

    fn take_srq(&mut self, _: &mut RecvWqe) -> bool {
        false
    }

    fn complete(&mut self, queue: Side, c: &Completion) {
        assert_eq!(queue, Side::Recv);
        self.received.push(*c);
    }

    fn event(&mut self, _: QpEvent) {}
}

/// Host b: the queue pair that the requests are for.
struct Responder {
    qp: Qp,
    world: World,
    answers: Vec<Answer>,
}

const LIMITS: DeviceLimits = DeviceLimits {
    ports: 1,
    pkeys: 1,
    active_mtu: 5,
    max_rd_atom: 64,
    max_init_rd_atom: 64,
};
const META: PacketMeta = PacketMeta {
    src: std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)),
    dst: std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2)),
    traffic_class: 0,
    hop_limit: 64,
};

impl Responder {
    fn new(transport: Transport, mtu: u32, first: u32) -> Self {
        let qp = Qp::new(QpConfig {
            num: QpNum(0x11),
            transport,
            role: Role::Both,
            pd: PdId(1),
            caps: QpCaps {
                max_send_wr: 1,
                max_recv_wr: 64,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline: 0,
            },
            sq_sig_all: false,
            uses_srq: false,
            srq_pd: None,
        });
        let mut side = Self {
            qp,
            world: World::default(),
            answers: Vec::new(),
        };
        let attr = QpAttr {
            path_mtu: mtu,
            qkey: 0x1111_1111,
            rq_psn: first,
            dest_qpn: 0x11,
            access: Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC,
            av: Av {
                dgid: Gid::from_ipv4([10, 0, 0, 1].into()),
                ..Av::default()
            },
            max_dest_rd_atomic: 16,
            min_rnr_timer: 12,
            ..QpAttr::default()
        };
        let path = AttrMask::AV | AttrMask::PATH_MTU | AttrMask::DEST_QPN | AttrMask::RQ_PSN;
        let (init, rtr) = match transport {
            Transport::Ud => (AttrMask::QKEY, AttrMask::empty()),
            Transport::Uc => (AttrMask::ACCESS_FLAGS, path),
            _ => (
                AttrMask::ACCESS_FLAGS,
                path | AttrMask::MAX_DEST_RD_ATOMIC | AttrMask::MIN_RNR_TIMER,
            ),
        };
        for (state, mask) in [
            (QpState::Init, init | AttrMask::PKEY_INDEX | AttrMask::PORT),
            (QpState::Rtr, rtr),
        ] {
            let attr = QpAttr { state, ..attr };
            side.qp
                .modify(
                    Instant::ZERO,
                    &attr,
                    AttrMask::STATE | mask,
                    &LIMITS,
                    &mut side.world,
                )
                .expect("the usual way to RTR");
        }
        side
    }

    fn post(&mut self, count: u64, len: u32) {
        for wr_id in 0..count {
            let sges = [Sge {
                addr: 0,
                len,
                lkey: LOCAL,
            }];
            self.qp
                .post_recv(
                    Instant::ZERO,
                    &RecvWr { wr_id, sges: &sges },
                    &mut self.world,
                )
                .expect("there is room");
        }
    }

    fn give(&mut self, bytes: &[u8]) {
        let packet = Packet::parse(bytes).expect("captures parse");
        // What is dropped shows in the answers that come or do not come.
        let _ = self
            .qp
            .handle_packet(Instant::ZERO, &META, &packet, &mut self.world);
        let mut buf = [0; 4096 + MAX_HEADERS + 4];
        while let Some(sent) = self
            .qp
            .poll_transmit(Instant::ZERO, &mut self.world, &mut buf)
        {
            let packet = Packet::parse(&buf[..sent.len]).expect("what we send can be parsed");
            self.answers.push(answer(&packet));
        }
    }
}

/// The recorded packets of one direction, from the BTH to the pad.
struct Recording {
    requests: Vec<Vec<u8>>,
    answers: Vec<Answer>,
}

fn recording(path: &Path) -> Recording {
    let mut found = Recording {
        requests: Vec::new(),
        answers: Vec::new(),
    };
    for ip in pcap::read(path) {
        let (udp, source) = if ip[0] >> 4 == 4 {
            (20, ip[15])
        } else {
            (40, ip[23])
        };
        let bytes = ip[udp + 8..ip.len() - 4].to_vec();
        if source == 1 {
            found.requests.push(bytes);
        } else {
            found
                .answers
                .push(answer(&Packet::parse(&bytes).expect("captures parse")));
        }
    }
    found
}

fn first_psn(recording: &Recording) -> u32 {
    Packet::parse(&recording.requests[0])
        .expect("captures parse")
        .bth
        .psn
        .value()
}

fn mtu_of(name: &str) -> u32 {
    match name {
        _ if name.contains("mtu256") => 1,
        _ if name.contains("mtu4096") => 5,
        _ => 3,
    }
}

/// Gives all requests of a file to a fresh responder; those that never reached host b are left out.
fn replay(path: &Path) -> (String, Recording, Responder) {
    let name = path
        .file_stem()
        .expect("a name")
        .to_string_lossy()
        .into_owned();
    let recording = recording(path);
    let mut b = Responder::new(Transport::Rc, mtu_of(&name), first_psn(&recording));
    b.world.start = match recording.answers.first() {
        Some(Answer {
            kind: Kind::Atomic(value),
            ..
        }) => *value,
        _ => 0,
    };
    b.world.refuse_remote = name.contains("nak_access");
    b.world.refuse_local = name.contains("nak_op");
    let late = name.starts_with("rc_rnr");
    match () {
        () if name.contains("too_long") => b.post(1, 1500),
        () if !late => b.post(60, 16384),
        () => {}
    }
    for (index, request) in recording.requests.iter().enumerate() {
        let lost = match index {
            0 => {
                name.contains("loss_timeout")
                    || name.contains("retry_exceeded") && !name.contains("rnr")
            }
            2 => {
                name.contains("loss_nak")
                    || name.contains("retry_exceeded") && !name.contains("rnr")
            }
            _ => name.contains("retry_exceeded") && !name.contains("rnr"),
        };
        if lost {
            continue;
        }
        if index == 3 && late && !name.contains("exceeded") {
            b.post(1, 64);
        }
        b.give(request);
    }
    (name, recording, b)
}

#[test]
fn reliable_requests_get_the_answers_that_rxe_gave() {
    let mut files = 0;
    for path in pcap::all("rc_") {
        let (name, mut recorded, b) = replay(&path);
        if name.contains("netem") {
            continue;
        }
        if name.contains("too_long") {
            // rxe says "remote operational error" where the specification has "invalid request".
            let last = recorded.answers.last_mut().expect("a NAK");
            assert_eq!(last.kind, Kind::Acknowledge(0x63));
            last.kind = Kind::Acknowledge(0x61);
        }
        assert_eq!(b.answers, recorded.answers, "{name}");
        files += 1;
    }
    assert_eq!(files, 54);
}

/// Some of the recorded answers were lost on the way, so each that was not must be among ours.
#[test]
fn every_answer_in_a_storm_is_one_that_we_give() {
    for path in pcap::all("rc_loss_netem") {
        let (name, recorded, b) = replay(&path);
        for wanted in &recorded.answers {
            let found = b
                .answers
                .iter()
                .any(|ours| ours.psn == wanted.psn && same_class(&ours.kind, &wanted.kind));
            assert!(found, "{name}: {wanted:?}");
        }
    }
}

fn same_class(a: &Kind, b: &Kind) -> bool {
    match (a, b) {
        (Kind::Acknowledge(a), Kind::Acknowledge(b)) => {
            Syndrome::from_u8(*a) == Syndrome::from_u8(*b)
        }
        (a, b) => a == b,
    }
}

#[test]
fn unreliable_messages_are_received_whole() {
    for (transport, prefix) in [
        (Transport::Uc, "uc_send"),
        (Transport::Uc, "uc_write"),
        (Transport::Ud, "ud_send"),
    ] {
        for path in pcap::all(prefix) {
            let recorded = recording(&path);
            let mut b = Responder::new(transport, 3, first_psn(&recorded));
            b.post(60, 16384);
            let (mut expected, mut sum) = (Vec::new(), 0);
            for request in &recorded.requests {
                let packet = Packet::parse(request).expect("captures parse");
                let op = packet
                    .bth
                    .opcode
                    .operation()
                    .expect("no congestion notification");
                sum = if op.starts_message() { 0 } else { sum } + packet.payload.len() as u32;
                if op.ends_message() && (op.is_send() || op.has_imm()) {
                    // A datagram's 40 bytes of addresses count.
                    let addresses = if transport == Transport::Ud { 40 } else { 0 };
                    expected.push((
                        WcStatus::Success,
                        sum + addresses,
                        packet.imm.unwrap_or_default(),
                    ));
                }
                b.give(request);
            }
            let received: Vec<_> = b
                .world
                .received
                .iter()
                .map(|c| (c.status, c.byte_len, c.imm))
                .collect();
            assert_eq!(received, expected, "{}", path.display());
            assert_eq!(b.answers, [], "{}", path.display());
        }
    }
}

/// The first message lost its second packet. rxe dropped the next message too, which arrived whole.
#[test]
fn an_unreliable_message_with_a_hole_costs_only_itself() {
    for path in pcap::all("uc_loss") {
        let recorded = recording(&path);
        let mut b = Responder::new(Transport::Uc, 3, first_psn(&recorded));
        b.post(10, 16384);
        for (index, request) in recorded.requests.iter().enumerate() {
            if index != 1 {
                b.give(request);
            }
        }
        let lengths: Vec<_> = b
            .world
            .received
            .iter()
            .map(|c| (c.status, c.byte_len))
            .collect();
        assert_eq!(
            lengths,
            [100, 101, 102].map(|len| (WcStatus::Success, len)),
            "{}",
            path.display()
        );
    }
}

#[test]
fn opcodes_of_the_captures_are_those_of_their_files() {
    for (prefix, transport) in [
        ("rc_", Transport::Rc),
        ("uc_", Transport::Uc),
        ("ud_", Transport::Ud),
    ] {
        for path in pcap::all(prefix) {
            for request in recording(&path).requests {
                let packet = Packet::parse(&request).expect("captures parse");
                assert!(
                    matches!(packet.bth.opcode, Opcode::Roce(t, _) if t == transport),
                    "{packet}"
                );
            }
        }
    }
}
