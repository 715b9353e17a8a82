//! A whole NIC, and a process beside it that sends it packets through shared memory, as any process of this user can.
//!
//! Nothing is mocked: tables, locks, links, timers, memory and the NIC's own thread are those of every program.

use std::cell::RefCell;
use std::net::IpAddr;
use std::sync::Arc;

use adverb_link::shm::{Place, ShmLink, ShmRoute, private_dir};
use adverb_link::{Berth, Link, Meta, qpn};
use adverb_nic::{
    Access, AttrMask, Av, Completion, Context, Cq, Instant, Mr, Pd, Qp, QpAttr, QpCaps, QpNum,
    QpSpec, QpState, RecvWr, SendData, SendFlags, SendOp, SendWr, Sge, Transport, WcOpcode,
    devices,
};
use adverb_wire::Packet;
use arbitrary::{Arbitrary, Result, Unstructured};

use crate::crafted::{self, Aim};

const REGION: usize = 8192;
/// Bytes around the region that nobody has a key for.
const GUARD: usize = 4096;
const START: u32 = 0xFF_FFF0;
const QKEY: u32 = 0x1234;

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

/// No packet panics, hangs, or changes a byte outside the region.
pub fn run(input: &[u8]) {
    WORLD.with_borrow_mut(|world| {
        let world = world.get_or_insert_with(World::new);
        let mut u = Unstructured::new(input);
        let _ = world.attack(&mut u);
        world.check();
    });
}

struct World {
    attacker: ShmLink,
    route: ShmRoute,
    cq: Arc<Cq>,
    /// One of each transport.
    qps: Vec<(Transport, Arc<Qp>)>,
    mr: Arc<Mr>,
    memory: Box<[u8]>,
    address: IpAddr,
    /// The attacker's own number, as the peer of all queue pairs.
    peer: u32,
    bytes: Vec<u8>,
    _pd: Arc<Pd>,
    _context: Arc<Context>,
}

impl World {
    fn new() -> Self {
        let device = devices().expect("the environment is sane").remove(0);
        let context = Context::open(&device).expect("the loopback device can be opened");
        let pd = context.alloc_pd().expect("a domain");
        let cq = context.create_cq(1 << 12, None, 0, 0).expect("a CQ");
        let memory = vec![0x77; REGION + 2 * GUARD].into_boxed_slice();
        let at = memory.as_ptr() as u64 + GUARD as u64;
        let access = Access::LOCAL_WRITE
            | Access::REMOTE_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_ATOMIC;
        let mr = pd.reg_mr(at, REGION as u64, at, access).expect("a region");
        let caps = QpCaps {
            max_send_wr: 8,
            max_recv_wr: 8,
            max_send_sge: 2,
            max_recv_sge: 2,
            max_inline: 0,
        };
        let qps: Vec<_> = [Transport::Rc, Transport::Uc, Transport::Ud]
            .into_iter()
            .map(|transport| {
                let spec = QpSpec {
                    transport,
                    send_cq: &cq,
                    recv_cq: Some(&cq),
                    srq: None,
                    caps,
                    sq_sig_all: true,
                    user: 0,
                    blocks_own_multicast: false,
                };
                (transport, pd.create_qp(&spec).expect("a queue pair"))
            })
            .collect();
        let port = std::env::var("ADVERB_UDP_PORT")
            .ok()
            .and_then(|port| port.parse().ok());
        let dir =
            private_dir(port.unwrap_or(adverb_wire::UDP_PORT)).expect("the directory of this user");
        let attacker = ShmLink::new(Place::join(&dir).expect("a second slot"));
        let route = attacker
            .route(qpn::slot_of(qps[0].1.number()))
            .expect("the NIC's own slot lives");
        let peer = qpn::compose(attacker.slot(), 1);
        let address = device.gids()[1].to_ip();
        Self {
            attacker,
            route,
            cq,
            qps,
            mr,
            memory,
            address,
            peer,
            bytes: Vec::new(),
            _pd: pd,
            _context: context,
        }
    }

    fn attack(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let mut revived = [false; 3];
        while !u.is_empty() {
            let index = usize::from(u8::arbitrary(u)?) % self.qps.len();
            if !std::mem::replace(&mut revived[index], true) {
                self.revive(index);
            }
            match u8::arbitrary(u)? {
                0..160 => self.crafted(index, u)?,
                160..176 => {
                    let len = u.arbitrary_len::<u8>()?.min(100);
                    let bytes = u.bytes(len)?;
                    self.send(u, bytes)?;
                }
                176..210 => self.post(index, u)?,
                210..220 => self.receive(index),
                _ => self.drive(),
            }
        }
        Ok(())
    }

    /// Every input begins with queue pairs that can talk, and nothing of the input before.
    fn revive(&self, index: usize) {
        let (transport, qp) = &self.qps[index];
        // What was sent last may still be in the hands of the NIC's thread, and end the queue pair anew.
        let alive = (0..1000).any(|_| {
            self.bring_up(index);
            qp.state() == QpState::Rts
        });
        assert!(alive, "{transport:?} is {:?}", qp.state());
        self.receive(index);
    }

    fn bring_up(&self, index: usize) {
        let (transport, qp) = &self.qps[index];
        let attr = QpAttr {
            path_mtu: 1,
            qkey: QKEY,
            rq_psn: START,
            sq_psn: START,
            dest_qpn: self.peer,
            access: Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC,
            av: Av {
                sgid_index: 1,
                dgid: adverb_nic::Gid::from_ip(self.address),
                ..Av::default()
            },
            max_rd_atomic: 4,
            max_dest_rd_atomic: 4,
            retry_cnt: 1,
            ..QpAttr::default()
        };
        let set = |state, mask| {
            let _ = qp.modify(&QpAttr { state, ..attr }, AttrMask::STATE | mask);
        };
        let first = AttrMask::PKEY_INDEX | AttrMask::PORT;
        let path = AttrMask::AV | AttrMask::PATH_MTU | AttrMask::DEST_QPN | AttrMask::RQ_PSN;
        set(QpState::Reset, AttrMask::empty());
        match transport {
            Transport::Ud => {
                set(QpState::Init, first | AttrMask::QKEY);
                set(QpState::Rtr, AttrMask::empty());
                set(QpState::Rts, AttrMask::SQ_PSN);
            }
            Transport::Uc => {
                set(QpState::Init, first | AttrMask::ACCESS_FLAGS);
                set(QpState::Rtr, path);
                set(QpState::Rts, AttrMask::SQ_PSN);
            }
            _ => {
                set(QpState::Init, first | AttrMask::ACCESS_FLAGS);
                set(
                    QpState::Rtr,
                    path | AttrMask::MAX_DEST_RD_ATOMIC | AttrMask::MIN_RNR_TIMER,
                );
                let run = AttrMask::TIMEOUT | AttrMask::RETRY_CNT | AttrMask::RNR_RETRY;
                set(
                    QpState::Rts,
                    run | AttrMask::SQ_PSN | AttrMask::MAX_QP_RD_ATOMIC,
                );
            }
        }
    }

    fn crafted(&mut self, index: usize, u: &mut Unstructured<'_>) -> Result<()> {
        let (transport, qp) = &self.qps[index];
        let attr = qp.attrs();
        let at = self.memory.as_ptr() as u64 + GUARD as u64;
        let aim = Aim {
            transport: *transport,
            qp: qp.number(),
            psns: &[attr.rq_psn, attr.sq_psn, attr.sq_psn.wrapping_sub(1)],
            targets: &[(self.mr.rkey(), at), (self.mr.rkey(), at + 8)],
            srqn: 1,
            qkey: QKEY,
        };
        let mut bytes = std::mem::take(&mut self.bytes);
        let made = crafted::packet(u, &aim, &mut bytes);
        if made.is_ok() {
            self.send(u, &bytes)?;
        }
        self.bytes = bytes;
        made
    }

    /// Sends a packet, or a train that begins like it.
    fn send(&self, u: &mut Unstructured<'_>, bytes: &[u8]) -> Result<()> {
        let meta = Meta {
            src: self.address,
            dst: self.address,
            traffic_class: 0,
            hop_limit: 64,
            outside: false,
        };
        let train = match Packet::parse(bytes) {
            Ok(packet) if u.ratio(1, 3)? => Some(crafted::train(u, &packet)?),
            _ => None,
        };
        let sent = match train {
            Some((head, payload)) => {
                let berth = self.attacker.reserve(&self.route, &meta, payload.len());
                berth.map(|berth| {
                    let mut berth = Berth::Shm(berth);
                    berth.payload().put(0, &payload);
                    if !payload.is_empty() {
                        berth.send(&head);
                    }
                })
            }
            None => self.attacker.send(&self.route, &meta, bytes),
        };
        if sent.is_err() {
            self.drive();
        }
        Ok(())
    }

    fn sge(&self) -> Sge {
        Sge {
            addr: self.memory.as_ptr() as u64 + GUARD as u64,
            len: 1024,
            lkey: adverb_nic::Key(self.mr.lkey()),
        }
    }

    fn receive(&self, index: usize) {
        let _ = self.qps[index].1.posting().recv(&RecvWr {
            wr_id: 1,
            sges: &[self.sge()],
        });
    }

    fn post(&self, index: usize, u: &mut Unstructured<'_>) -> Result<()> {
        let remote_addr = u64::arbitrary(u)? & !7;
        let rkey = adverb_nic::Key(1);
        let op = match u8::arbitrary(u)? % 5 {
            0 => SendOp::Send,
            1 => SendOp::Write { remote_addr, rkey },
            2 => SendOp::Read { remote_addr, rkey },
            3 => SendOp::FetchAdd {
                remote_addr,
                rkey,
                add: 1,
            },
            _ => SendOp::SendImm(*b"imm."),
        };
        let wr = SendWr {
            wr_id: 2,
            op,
            flags: SendFlags::SIGNALED,
            data: SendData::Sges(&[self.sge()]),
            ud: None,
            xrc_srqn: 0,
        };
        let (_, qp) = &self.qps[index];
        let _ = qp.posting().send(&wr);
        Ok(())
    }

    /// Lets both sides look. What the NIC answers is thrown away.
    fn drive(&self) {
        self.attacker
            .page()
            .note_drive(adverb_nic::now().as_nanos());
        self.attacker.receive(1000, &mut |_, _| {});
        let empty = Completion::success(0, WcOpcode::Send, QpNum(0), Instant::ZERO);
        let mut out = [empty; 64];
        while self.cq.poll(&mut out).expect("the NIC is alive") > 0 {}
    }

    fn check(&self) {
        self.drive();
        let (before, rest) = self.memory.split_at(GUARD);
        let (_, after) = rest.split_at(REGION);
        assert!(
            before.iter().chain(after).all(|byte| *byte == 0x77),
            "a byte outside the region has changed"
        );
    }
}
