//! Two queue pairs and a wire that does one thing wrong, once: the stage of the outcome tests.
//!
//! Everything is as plain as it can be (each packet takes 1 us and is handled by itself, nothing is
//! random), so that what is printed can be read next to the specification.

use std::fmt::Write as _;

use adverb_engine::{
    Access, AttrMask, Av, Cq, DeviceLimits, Instant, PacketMeta, Qp, QpAttr, QpCaps, QpConfig,
    QpNum, QpState, RecvWr, Role, SendData, SendFlags, SendOp, SendWr, Sge, WcStatus,
};
use adverb_wire::{Opcode, Packet, Transport};

use crate::memory::{Memory, RegionId};
use crate::node::{Cell, Common, OPEN, PD, Port, Queue, gid_of, ip_of};

/// What happens to one packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    Drop,
    /// The ICRC finds it out, and it is dropped by the receiver.
    Corrupt,
    Duplicate,
    /// The packet sent after it on the same way arrives before it.
    Reorder,
    /// It arrives after the sender has given up waiting for an answer.
    Delay,
}

impl Fault {
    pub const ALL: [Self; 5] = [
        Self::Drop,
        Self::Corrupt,
        Self::Duplicate,
        Self::Reorder,
        Self::Delay,
    ];
}

/// One way, in nanoseconds.
const LATENCY: u64 = 1_000;
/// 65.536 us.
const TIMEOUT: u8 = 4;
const PMTU: u32 = 1;

#[derive(Debug)]
struct Side {
    cell: Cell,
    common: Common,
    data: RegionId,
}

#[derive(Debug)]
struct Flying {
    at: u64,
    serial: u64,
    to: usize,
    bytes: Vec<u8>,
}

#[derive(Debug)]
pub struct Duet {
    now: u64,
    sides: [Side; 2],
    flying: Vec<Flying>,
    serial: u64,
    /// Which packet, counted from 0 in the order of sending, and what happens to it.
    fault: Option<(usize, Fault)>,
    sent: usize,
    /// Packets that arrive together are handled together.
    batch: bool,
    text: String,
    /// Opcode of each packet sent.
    pub opcodes: Vec<Opcode>,
}

impl Duet {
    pub fn new(fault: Option<(usize, Fault)>, batch: bool) -> Self {
        let mut duet = Self {
            now: 0,
            sides: [side(0), side(1)],
            flying: Vec::new(),
            serial: 0,
            fault,
            sent: 0,
            batch,
            text: String::new(),
            opcodes: Vec::new(),
        };
        for i in 0..2 {
            duet.connect(i);
        }
        let bytes = duet.sides[0].common.memory.bytes_mut(duet.sides[0].data);
        for (i, b) in bytes.iter_mut().enumerate() {
            *b = (i as u8).wrapping_mul(7) ^ (i >> 8) as u8;
        }
        duet
    }

    fn connect(&mut self, i: usize) {
        type M = AttrMask;
        let attr = QpAttr {
            path_mtu: PMTU,
            rq_psn: [200, 100][i],
            sq_psn: [100, 200][i],
            dest_qpn: [0x12, 0x11][i],
            access: OPEN,
            av: Av {
                sgid: gid_of(i),
                dgid: gid_of(1 - i),
                ..Av::default()
            },
            max_rd_atomic: 4,
            max_dest_rd_atomic: 4,
            min_rnr_timer: 1,
            timeout: TIMEOUT,
            retry_cnt: 7,
            rnr_retry: 7,
            ..QpAttr::default()
        };
        let limits = DeviceLimits {
            ports: 1,
            pkeys: 1,
            active_mtu: 5,
            max_rd_atom: 16,
            max_init_rd_atom: 16,
        };
        let path = M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN;
        let steps = [
            (QpState::Init, M::ACCESS_FLAGS | M::PKEY_INDEX | M::PORT),
            (
                QpState::Rtr,
                path | M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER,
            ),
            (
                QpState::Rts,
                M::SQ_PSN | M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::MAX_QP_RD_ATOMIC,
            ),
        ];
        let side = &mut self.sides[i];
        for (state, mask) in steps {
            let (qp, mut view) = side.cell.split(&mut side.common);
            let attr = QpAttr { state, ..attr };
            qp.modify(Instant::ZERO, &attr, mask | M::STATE, &limits, &mut view)
                .expect("the transition is legal");
        }
    }

    /// Where the data of a side is, and its key, as a remote address.
    pub fn target(&self, side: usize, offset: usize) -> (u64, adverb_engine::Key) {
        let s = &self.sides[side];
        (
            s.common.memory.addr(s.data, offset),
            s.common.memory.key(s.data),
        )
    }

    pub fn sge(&self, side: usize, offset: usize, len: usize) -> Sge {
        let s = &self.sides[side];
        s.common.memory.sge(s.data, offset, len)
    }

    pub fn data(&self, side: usize) -> &[u8] {
        let s = &self.sides[side];
        s.common.memory.bytes(s.data)
    }

    pub fn data_mut(&mut self, side: usize) -> &mut [u8] {
        let s = &mut self.sides[side];
        s.common.memory.bytes_mut(s.data)
    }

    pub fn send(&mut self, side: usize, wr_id: u64, op: SendOp, sges: &[Sge]) {
        let now = Instant::from_nanos(self.now);
        let s = &mut self.sides[side];
        let (qp, mut view) = s.cell.split(&mut s.common);
        let wr = SendWr {
            wr_id,
            op,
            flags: SendFlags::SIGNALED,
            data: SendData::Sges(sges),
            ud: None,
            xrc_srqn: 0,
        };
        qp.post_send(now, &wr, &mut view).expect("there is room");
    }

    pub fn recv(&mut self, side: usize, wr_id: u64, sges: &[Sge]) {
        let now = Instant::from_nanos(self.now);
        let s = &mut self.sides[side];
        let (qp, mut view) = s.cell.split(&mut s.common);
        qp.post_recv(now, &RecvWr { wr_id, sges }, &mut view)
            .expect("there is room");
    }

    /// Runs until nothing is left to do.
    pub fn run(&mut self) {
        self.run_until(u64::MAX);
    }

    /// Runs for so many nanoseconds.
    pub fn run_for(&mut self, ns: u64) {
        let until = self.now + ns;
        self.run_until(until);
        self.now = until;
    }

    fn run_until(&mut self, until: u64) {
        self.pump(0);
        self.pump(1);
        for _ in 0..10_000 {
            let arrival = self
                .flying
                .iter()
                .enumerate()
                .min_by_key(|(_, f)| (f.at, f.serial))
                .map(|(i, f)| (i, f.at));
            let timer = (0..2)
                .filter_map(|i| Some((self.sides[i].cell.qp.poll_timeout()?.as_nanos(), i)))
                .min();
            let first = [arrival.map(|(_, at)| at), timer.map(|(at, _)| at)];
            if first
                .into_iter()
                .flatten()
                .min()
                .is_none_or(|at| at > until)
            {
                return;
            }
            match (arrival, timer) {
                (None, None) => return,
                (Some((i, at)), t) if t.is_none_or(|(t, _)| at <= t) => {
                    self.now = at;
                    let first = self.flying.remove(i);
                    let to = first.to;
                    self.give(&first);
                    while self.batch
                        && let Some(i) = self.flying.iter().position(|f| f.at == at && f.to == to)
                    {
                        let next = self.flying.remove(i);
                        self.give(&next);
                    }
                    self.pump(to);
                }
                (_, Some((at, i))) => {
                    self.now = self.now.max(at);
                    let now = Instant::from_nanos(self.now);
                    let s = &mut self.sides[i];
                    let (qp, mut view) = s.cell.split(&mut s.common);
                    qp.handle_timeout(now, &mut view);
                    self.note(format_args!("{}      timer", ["a", "b"][i]));
                    self.pump(i);
                }
                (Some(_), None) => unreachable!("the guard above holds without a timer"),
            }
        }
        panic!("no end:\n{}", self.text);
    }

    fn note(&mut self, text: std::fmt::Arguments<'_>) {
        let _ = writeln!(self.text, "{:10.3}  {text}", self.now as f64 / 1000.0);
    }

    fn give(&mut self, f: &Flying) {
        let packet = Packet::parse(&f.bytes).expect("what is sent can be parsed");
        let meta = PacketMeta {
            src: ip_of(1 - f.to),
            dst: ip_of(f.to),
            traffic_class: 0,
            hop_limit: 64,
        };
        let now = Instant::from_nanos(self.now);
        let s = &mut self.sides[f.to];
        let (qp, mut view) = s.cell.split(&mut s.common);
        // What is dropped shows in what follows, or does not.
        let _ = qp.handle_packet(now, &meta, &packet, &mut view);
    }

    fn pump(&mut self, from: usize) {
        let mut buf = [0; 2048];
        loop {
            let now = Instant::from_nanos(self.now);
            let s = &mut self.sides[from];
            let (qp, mut view) = s.cell.split(&mut s.common);
            let Some(tx) = qp.poll_transmit(now, &mut view, &mut buf) else {
                return;
            };
            let bytes = buf[..tx.len].to_vec();
            let packet = Packet::parse(&bytes).expect("what is sent can be parsed");
            self.opcodes.push(packet.bth.opcode);
            let fault = self.fault.filter(|(n, _)| *n == self.sent).map(|(_, f)| f);
            self.sent += 1;
            let way = ["a > b", "b > a"][from];
            let mark = match fault {
                None => "",
                Some(Fault::Drop) => "   <-- dropped",
                Some(Fault::Corrupt) => "   <-- corrupted",
                Some(Fault::Duplicate) => "   <-- arrives twice",
                Some(Fault::Reorder) => "   <-- arrives after the next",
                Some(Fault::Delay) => "   <-- 100 us late",
            };
            self.note(format_args!("{way}  {packet}{mark}"));
            let at = self.now + LATENCY;
            let to = 1 - from;
            match fault {
                Some(Fault::Drop | Fault::Corrupt) => {}
                Some(Fault::Duplicate) => {
                    self.fly(at, to, bytes.clone());
                    self.fly(at, to, bytes);
                }
                Some(Fault::Reorder) => self.fly(at + LATENCY / 2, to, bytes),
                Some(Fault::Delay) => self.fly(at + 100 * LATENCY, to, bytes),
                None => self.fly(at, to, bytes),
            }
        }
    }

    fn fly(&mut self, at: u64, to: usize, bytes: Vec<u8>) {
        self.serial += 1;
        self.flying.push(Flying {
            at,
            serial: self.serial,
            to,
            bytes,
        });
    }

    /// All packets with their times, then how every work request ended.
    pub fn story(&mut self) -> String {
        let mut text = std::mem::take(&mut self.text);
        for (name, s) in ["a", "b"].into_iter().zip(&mut self.sides) {
            let mut ends = String::new();
            while let Some(c) = s.common.queues[0].cq.pop() {
                let word = if c.status == WcStatus::Success {
                    format!("{:?}", c.opcode)
                } else {
                    format!("{:?}", c.status)
                };
                let _ = write!(ends, "  {} {word} {}", c.wr_id, c.byte_len);
            }
            let c = s.cell.qp.counters();
            let _ = writeln!(
                text,
                "            {name} in {:?}:{ends}   (retries {}, timeouts {})",
                s.cell.qp.state(),
                c.retries,
                c.timeouts
            );
        }
        text
    }
}

fn side(i: usize) -> Side {
    let mut memory = Memory::new(i as u64 + 1);
    let data = memory.add(4096, OPEN | Access::LOCAL_WRITE, PD);
    let num = [0x11, 0x12][i];
    let config = QpConfig {
        num: QpNum(num),
        transport: Transport::Rc,
        role: Role::Both,
        pd: PD,
        caps: QpCaps {
            max_send_wr: 16,
            max_recv_wr: 16,
            max_send_sge: 4,
            max_recv_sge: 4,
            max_inline: 64,
        },
        sq_sig_all: true,
        uses_srq: false,
        srq_pd: None,
    };
    Side {
        cell: Cell {
            qp: Qp::new(config),
            port: Port {
                num: QpNum(num),
                ..Port::default()
            },
            peer_node: 1 - i,
            registered: None,
            listed: false,
        },
        common: Common {
            memory,
            queues: vec![Queue {
                cq: Cq::new(64),
                waits: false,
                fired: false,
                drained: false,
                broken: false,
            }],
            shared: Vec::new(),
        },
        data,
    }
}
