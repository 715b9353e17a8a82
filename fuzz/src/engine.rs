//! One queue pair between a stranger and an application that does what it likes.

use adverb_engine::{
    Access, AttrMask, Av, DeviceLimits, FlushTarget, Instant, Key, MwBind, PacketMeta, Qp, QpAttr,
    QpCaps, QpConfig, QpKind, QpNum, QpState, RecvWr, Role, SendData, SendFlags, SendOp, SendWr,
    Sge, Srq, UdAddress, WindowType,
};
use adverb_wire::{Gid, MAX_HEADERS, Packet, Train, Transport};
use arbitrary::{Arbitrary, Result, Unstructured};

use crate::crafted::{self, Aim};
use crate::host::{PD, SRQ_PD, SRQN, World};
use crate::traced;

const NUMBER: u32 = 0x4011;
const PEER: u32 = 0x8012;
const QKEY: u32 = 0x1234;
const START: u32 = 0xFF_FFF0;
const LIMITS: DeviceLimits = DeviceLimits {
    ports: 1,
    pkeys: 1,
    active_mtu: 5,
    max_rd_atom: 16,
    max_init_rd_atom: 16,
};
/// No queue pair has more to say than this before it is spoken to: 16 work requests of at most 33 regions.
const MOST_PACKETS: usize = 100_000;

/// Runs the calls that the input stands for, then lets time pass until nothing is left to do.
pub fn run(input: &[u8]) {
    let mut u = Unstructured::new(input);
    let Ok(mut side) = Side::new(&mut u) else {
        return;
    };
    while !u.is_empty() {
        if side.step(&mut u).is_err() {
            break;
        }
        side.check();
    }
    side.settle();
}

struct Side {
    qp: Qp,
    world: World,
    now: Instant,
    targets: Vec<(u32, u64)>,
    local: Vec<(u32, u64)>,
    next_wr: u64,
    bytes: Vec<u8>,
}

impl Side {
    fn new(u: &mut Unstructured<'_>) -> Result<Self> {
        let (transport, role) = *u.choose(&[
            (Transport::Rc, Role::Both),
            (Transport::Rc, Role::Both),
            (Transport::Uc, Role::Both),
            (Transport::Ud, Role::Both),
            (Transport::Xrc, Role::Initiator),
            (Transport::Xrc, Role::Target),
        ])?;
        let bits = u8::arbitrary(u)?;
        let srq = bits & 1 != 0 && transport != Transport::Xrc;
        let mut world = World::new();
        world.srq = srq.then(|| Srq::new(16, 4));
        world.shared = srq || role == Role::Target;
        let everything = Access::LOCAL_WRITE
            | Access::REMOTE_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_ATOMIC
            | Access::MW_BIND
            | Access::FLUSH_GLOBAL
            | Access::FLUSH_PERSISTENT;
        let responder_pd = if role == Role::Target { SRQ_PD } else { PD };
        let mut targets = vec![
            world.register(responder_pd, everything),
            world.register(responder_pd, Access::REMOTE_READ),
            world.register(PD, everything),
        ];
        let local = vec![
            world.register(PD, everything),
            world.register(PD, Access::empty()),
            world.register(SRQ_PD, everything),
        ];
        for kind in [WindowType::One, WindowType::Two] {
            if let Ok(key) = world.keys.insert_window(PD, kind) {
                targets.push((key.0, targets[0].1));
            }
        }
        let qp = Qp::new(QpConfig {
            num: QpNum(NUMBER),
            transport,
            role,
            pd: PD,
            caps: QpCaps {
                max_send_wr: 8,
                max_recv_wr: 8,
                max_send_sge: 4,
                max_recv_sge: 4,
                max_inline: 64,
            },
            sq_sig_all: bits & 2 != 0,
            uses_srq: world.shared,
            srq_pd: srq.then_some(SRQ_PD),
        });
        let mut side = Self {
            qp,
            world,
            now: Instant::ZERO,
            targets,
            local,
            next_wr: 0,
            bytes: Vec::new(),
        };
        let goal = match bits >> 5 {
            0 => QpState::Init,
            1 => QpState::Rtr,
            _ => QpState::Rts,
        };
        for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
            side.modify(state, side.usual(state), bits);
            if state == goal {
                break;
            }
        }
        if bits & 4 != 0 {
            side.qp.set_window(u32::from(bits >> 3 & 3));
        }
        Ok(side)
    }

    /// The attributes that a transition to this state needs.
    fn usual(&self, state: QpState) -> AttrMask {
        let path = AttrMask::AV | AttrMask::PATH_MTU | AttrMask::DEST_QPN | AttrMask::RQ_PSN;
        let kind = self.qp.kind();
        AttrMask::STATE
            | match (state, kind) {
                (QpState::Init, QpKind::Ud) => {
                    AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::QKEY
                }
                (QpState::Init, _) => {
                    AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::ACCESS_FLAGS
                }
                (QpState::Rtr, QpKind::Rc | QpKind::XrcRecv) => {
                    path | AttrMask::MAX_DEST_RD_ATOMIC | AttrMask::MIN_RNR_TIMER
                }
                (QpState::Rtr, QpKind::Ud) => AttrMask::empty(),
                (QpState::Rtr, _) => path,
                (QpState::Rts, QpKind::Rc | QpKind::XrcSend) => {
                    AttrMask::SQ_PSN
                        | AttrMask::TIMEOUT
                        | AttrMask::RETRY_CNT
                        | AttrMask::RNR_RETRY
                        | AttrMask::MAX_QP_RD_ATOMIC
                }
                (QpState::Rts, QpKind::XrcRecv) => AttrMask::TIMEOUT,
                (QpState::Rts, _) => AttrMask::SQ_PSN,
                _ => AttrMask::empty(),
            }
    }

    fn modify(&mut self, state: QpState, mask: AttrMask, bits: u8) {
        let attr = QpAttr {
            state,
            cur_state: self.qp.state(),
            path_mtu: 1 + u32::from(bits >> 3 & 1),
            qkey: QKEY,
            rq_psn: START,
            sq_psn: START,
            dest_qpn: PEER,
            access: Access::REMOTE_WRITE
                | Access::REMOTE_READ
                | Access::REMOTE_ATOMIC
                | Access::FLUSH_GLOBAL
                | Access::FLUSH_PERSISTENT,
            av: Av {
                dgid: Gid::from_ipv4([10, 0, 0, 2].into()),
                ..Av::default()
            },
            max_rd_atomic: 1 + (bits >> 6),
            max_dest_rd_atomic: 1 + (bits >> 4 & 3),
            min_rnr_timer: bits & 31,
            timeout: bits >> 3,
            retry_cnt: bits & 7,
            rnr_retry: bits >> 2 & 7,
            en_sqd_async_notify: bits & 16 != 0,
            ..QpAttr::default()
        };
        if traced() {
            eprintln!("{:?} modify to {state:?}, {mask:?}, {attr:?}", self.now);
        }
        let done = self
            .qp
            .modify(self.now, &attr, mask, &LIMITS, &mut self.world)
            .is_ok();
        if done && state == QpState::Reset && mask.contains(AttrMask::STATE) {
            // Reset forgets without a word.
            self.world.sends.posted.clear();
            if !self.world.shared {
                self.world.receives.posted.clear();
            } else {
                // The oldest may have been taken for a message that is forgotten now; so may those of earlier resets.
                let mut waiting = self.world.receives.posted.iter_mut();
                if let Some(oldest) = waiting.find(|(_, waits)| *waits) {
                    oldest.1 = false;
                }
            }
        }
    }

    fn step(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        match u8::arbitrary(u)? {
            0..110 => self.packet(u)?,
            110..116 => {
                let len = u.arbitrary_len::<u8>()?.min(64);
                let bytes = u.bytes(len)?.to_vec();
                self.give(u, &bytes)?;
            }
            116..170 => self.post_send(u)?,
            170..200 => self.post_recv(u)?,
            200..230 => self.transmit(usize::from(u8::arbitrary(u)?)),
            230..240 => self.wait(u64::from(u16::arbitrary(u)?) << 14),
            240..251 => {
                let state = *u.choose(&QpState::ALL)?;
                let bits = u8::arbitrary(u)?;
                let mask = if u.ratio(1, 8)? {
                    AttrMask::from_bits_truncate(u32::arbitrary(u)?)
                } else {
                    self.usual(state)
                };
                self.modify(state, mask, bits);
            }
            251 => self.qp.fail(self.now, &mut self.world),
            252 => self.qp.peer_lost(self.now, &mut self.world),
            253 => self.qp.defer_timeout(self.now),
            254 => self.qp.set_window(u32::arbitrary(u)?),
            255 => {
                let (key, _) = *u.choose(&self.targets)?;
                self.world.keys.remove(Key(key));
            }
        }
        Ok(())
    }

    fn packet(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let attr = self.qp.attrs();
        let aim = Aim {
            transport: self.qp.config().transport,
            qp: NUMBER,
            psns: &[attr.rq_psn, attr.sq_psn, attr.sq_psn.wrapping_sub(1)],
            targets: &self.targets,
            srqn: SRQN,
            qkey: QKEY,
        };
        let mut bytes = std::mem::take(&mut self.bytes);
        let made = crafted::packet(u, &aim, &mut bytes);
        if made.is_ok() {
            self.give(u, &bytes)?;
        }
        self.bytes = bytes;
        made
    }

    /// Brings a packet, or a train that begins like it.
    fn give(&mut self, u: &mut Unstructured<'_>, bytes: &[u8]) -> Result<()> {
        let Ok(packet) = Packet::parse(bytes) else {
            return Ok(());
        };
        let meta = PacketMeta {
            src: [10, 0, 0, 2].into(),
            dst: [10, 0, 0, 1].into(),
            traffic_class: 0,
            hop_limit: 64,
        };
        if u.ratio(1, 3)? {
            let (head, mut payload) = crafted::train(u, &packet)?;
            if let Ok(train) = Train::parse(&head, payload.len() as u32) {
                let dropped =
                    self.qp
                        .handle_train(self.now, &meta, &train, &mut self.world, &mut payload);
                assert!(dropped <= train.packets());
            }
            return Ok(());
        }
        let taken = self
            .qp
            .handle_packet(self.now, &meta, &packet, &mut self.world);
        if traced() {
            eprintln!(
                "{:?} got {packet}: {taken:?}, now {:?}",
                self.now,
                self.qp.state()
            );
        }
        Ok(())
    }

    fn sges(&self, u: &mut Unstructured<'_>) -> Result<Vec<Sge>> {
        let count = usize::from(u8::arbitrary(u)? & 3) + usize::from(u.ratio(1, 32)?) * 2;
        let mut sges = Vec::new();
        for _ in 0..count {
            let (lkey, addr) = crafted::target(u, &self.local)?;
            sges.push(Sge {
                addr,
                len: crafted::length(u)?,
                lkey: Key(lkey),
            });
        }
        Ok(sges)
    }

    fn post_send(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let (rkey, remote_addr) = crafted::target(u, &self.targets)?;
        let rkey = Key(rkey);
        let op = match u8::arbitrary(u)? % 13 {
            0 => SendOp::Send,
            1 => SendOp::SendImm(*b"imm?"),
            2 => SendOp::SendInv(rkey),
            3 => SendOp::Write { remote_addr, rkey },
            4 => SendOp::WriteImm {
                remote_addr,
                rkey,
                imm: *b"IMM!",
            },
            5 | 6 => SendOp::Read { remote_addr, rkey },
            7 => SendOp::CompareSwap {
                remote_addr,
                rkey,
                compare: 0,
                swap: 1,
            },
            8 => SendOp::FetchAdd {
                remote_addr,
                rkey,
                add: 1,
            },
            9 => SendOp::LocalInv(rkey),
            10 => SendOp::BindMw(MwBind {
                window: rkey,
                new_key: Key(rkey.0 ^ u32::from(u8::arbitrary(u)?)),
                region: Key(self.targets[0].0),
                addr: remote_addr,
                len: u64::from(crafted::length(u)?),
                access: Access::from_bits_truncate(u32::from(u8::arbitrary(u)?)),
            }),
            11 => SendOp::AtomicWrite { remote_addr, rkey },
            _ => SendOp::Flush(FlushTarget {
                remote_addr,
                len: crafted::length(u)?,
                rkey,
                placement: u8::arbitrary(u)?,
                whole_region: bool::arbitrary(u)?,
            }),
        };
        let flags = SendFlags::from_bits_truncate(u32::from(u8::arbitrary(u)?));
        let sges = self.sges(u)?;
        let inline = [7; 70];
        let data = if u.ratio(1, 4)? {
            SendData::Inline(&inline[..usize::from(u8::arbitrary(u)?) % 71])
        } else {
            SendData::Sges(&sges)
        };
        let av = Av {
            dgid: Gid::from_ipv4([10, 0, 0, 2].into()),
            ..Av::default()
        };
        let ud = u.ratio(15, 16)?.then_some(UdAddress {
            av,
            remote_qpn: PEER,
            remote_qkey: u32::arbitrary(u)?,
        });
        self.next_wr += 1;
        let wr = SendWr {
            wr_id: self.next_wr,
            op,
            flags,
            data,
            ud,
            xrc_srqn: SRQN,
        };
        let dead = matches!(self.qp.state(), QpState::Err | QpState::Sqe);
        let signaled = dead || self.qp.config().sq_sig_all || flags.contains(SendFlags::SIGNALED);
        self.world.sends.posted.push_back((self.next_wr, signaled));
        let taken = self.qp.post_send(self.now, &wr, &mut self.world);
        if traced() {
            eprintln!(
                "{:?} {:?} posted {wr:?}: {taken:?}",
                self.now,
                self.qp.state()
            );
        }
        if taken.is_err() {
            assert_eq!(
                self.world.sends.posted.pop_back(),
                Some((self.next_wr, signaled)),
                "refused and reported"
            );
        }
        Ok(())
    }

    fn post_recv(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let sges = self.sges(u)?;
        self.next_wr += 1;
        let wr = RecvWr {
            wr_id: self.next_wr,
            sges: &sges,
        };
        self.world.receives.posted.push_back((self.next_wr, true));
        let taken = if let Some(srq) = &mut self.world.srq {
            srq.post(&wr)
        } else if self.qp.config().role == Role::Target {
            self.world.xrc.post(&wr)
        } else {
            self.qp.post_recv(self.now, &wr, &mut self.world)
        };
        if taken.is_err() {
            assert_eq!(
                self.world.receives.posted.pop_back(),
                Some((self.next_wr, true)),
                "refused and reported"
            );
        }
        Ok(())
    }

    /// Sends at most `most` packets. What is sent can be parsed and is no longer than a packet may be.
    fn transmit(&mut self, most: usize) {
        let mut buf = [0xEE; 4096 + MAX_HEADERS + 4];
        for _ in 0..most {
            let train = self.qp.next_train(self.now, &mut self.world, 2000, 16_384);
            if let Some(departure) = train {
                let mut payload = vec![0xEE; departure.train().len() as usize];
                let world = &mut self.world;
                if self
                    .qp
                    .depart(self.now, &departure, world, &mut payload)
                    .is_ok()
                {
                    continue;
                }
            }
            let Some(sent) = self.qp.poll_transmit(self.now, &mut self.world, &mut buf) else {
                return;
            };
            let packet = Packet::parse(&buf[..sent.len]).expect("what we send can be parsed");
            assert!(packet.payload.len() <= 4096);
            if traced() {
                eprintln!("{:?} sent {packet}", self.now);
            }
        }
        assert!(most < MOST_PACKETS, "the queue pair never stops sending");
    }

    fn wait(&mut self, ns: u64) {
        let until = self.now.plus_nanos(ns);
        for _ in 0..64 {
            let Some(at) = self.qp.poll_timeout().filter(|at| *at <= until) else {
                break;
            };
            self.now = self.now.max(at);
            self.qp.handle_timeout(self.now, &mut self.world);
        }
        self.now = self.now.max(until);
    }

    fn check(&mut self) {
        if self.qp.state() == QpState::Err {
            assert_eq!(
                self.qp.sends_pending(),
                0,
                "work is left in the send queue of a dead queue pair"
            );
            let posted = &mut self.world.sends.posted;
            assert!(
                !posted.iter().any(|(_, signaled)| *signaled),
                "a signaled send was never reported: {posted:?}"
            );
            posted.clear();
            if !self.world.shared {
                assert!(
                    self.world.receives.posted.is_empty(),
                    "receives are left in a dead queue pair"
                );
            }
        }
    }

    /// Without a peer everything ends: by an error, or by waiting for what no timer is armed for.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            self.transmit(MOST_PACKETS);
            self.check();
            let Some(at) = self.qp.poll_timeout() else {
                return;
            };
            self.now = self.now.max(at);
            self.qp.handle_timeout(self.now, &mut self.world);
        }
        panic!("still a timer after 10,000 timeouts");
    }
}
