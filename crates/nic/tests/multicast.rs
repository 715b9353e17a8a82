//! Datagrams to groups, between queue pairs of this process.

use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use adverb_nic::{
    Access, AhSpec, AttrMask, Completion, Context, Cq, Gid, Mr, NicError, Pd, Qp, QpAttr, QpCaps,
    QpNum, QpSpec, QpState, RecvWr, SendData, SendFlags, SendOp, SendWr, Sge, Transport, UdAddress,
    WcOpcode, devices,
};

const QKEY: u32 = 0x1234;
const ALL_MEMBERS: u32 = 0xff_ffff;

struct Member {
    qp: Arc<Qp>,
    cq: Arc<Cq>,
    pd: Arc<Pd>,
    mr: Arc<Mr>,
    memory: Box<[u8]>,
}

fn member(context: &Arc<Context>, blocks_own_multicast: bool) -> Member {
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(16, None, 0, 1).unwrap();
    let caps = QpCaps {
        max_send_wr: 8,
        max_recv_wr: 8,
        max_send_sge: 1,
        max_recv_sge: 1,
        max_inline: 0,
    };
    let spec = QpSpec {
        transport: Transport::Ud,
        send_cq: &cq,
        recv_cq: Some(&cq),
        srq: None,
        caps,
        sq_sig_all: false,
        blocks_own_multicast,
        user: 1,
    };
    let qp = pd.create_qp(&spec).unwrap();
    let attr = QpAttr {
        qkey: QKEY,
        ..QpAttr::default()
    };
    let init = AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::QKEY;
    for (state, mask) in [
        (QpState::Init, init),
        (QpState::Rtr, AttrMask::empty()),
        (QpState::Rts, AttrMask::SQ_PSN),
    ] {
        qp.modify(&QpAttr { state, ..attr }, mask | AttrMask::STATE)
            .unwrap();
    }
    let memory = vec![0u8; 4096].into_boxed_slice();
    let addr = memory.as_ptr() as u64;
    let mr = pd.reg_mr(addr, 4096, addr, Access::LOCAL_WRITE).unwrap();
    Member {
        qp,
        cq,
        pd,
        mr,
        memory,
    }
}

impl Member {
    fn sge(&self, at: usize, len: u32) -> Sge {
        Sge {
            addr: self.memory.as_ptr() as u64 + at as u64,
            len,
            lkey: adverb_nic::Key(self.mr.lkey()),
        }
    }

    fn recv(&self, wr_id: u64) {
        self.qp
            .posting()
            .recv(&RecvWr {
                wr_id,
                sges: &[self.sge(0, 2048)],
            })
            .unwrap();
    }

    fn send_to(&self, group: Gid) {
        let spec = AhSpec {
            sgid_index: 1,
            dgid: group,
            traffic_class: 0,
            hop_limit: 1,
            flow_label: 0,
            sl: 0,
            static_rate: 0,
            port: 1,
        };
        let ah = self.pd.create_ah(&spec).unwrap();
        let ud = UdAddress {
            av: *ah.av(),
            remote_qpn: ALL_MEMBERS,
            remote_qkey: QKEY,
        };
        let wr = SendWr {
            wr_id: 99,
            op: SendOp::Send,
            flags: SendFlags::empty(),
            data: SendData::Sges(&[self.sge(2048, 20)]),
            ud: Some(ud),
            xrc_srqn: 0,
        };
        self.qp.posting().send(&wr).unwrap();
    }

    /// The receives so far; waits for at least `count`.
    fn received(&self, count: usize) -> Vec<u64> {
        let mut out = [Completion::success(0, WcOpcode::Send, QpNum(0), adverb_nic::now()); 8];
        let mut ids = Vec::new();
        let start = Clock::now();
        loop {
            let n = self.cq.poll(&mut out).unwrap();
            ids.extend(out[..n].iter().map(|c| c.wr_id));
            if n == 0 && ids.len() >= count {
                return ids;
            }
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "{ids:?} of {count} receives"
            );
        }
    }
}

fn group(text: &str) -> Gid {
    Gid::from_ip(text.parse().unwrap())
}

#[test]
fn a_datagram_is_copied_to_every_member_and_to_nobody_else() {
    let context = Context::open(&devices().unwrap()[0]).unwrap();
    let members: Vec<Member> = [false, false, true, false]
        .map(|b| member(&context, b))
        .into();
    let [echo, plain, silent, stranger] = &members[..] else {
        unreachable!()
    };
    for family in ["239.5.5.5", "ff05::1:5"] {
        let group = group(family);
        for m in [echo, plain, silent] {
            m.qp.attach_multicast(group).unwrap();
        }
        // Once more is still once.
        plain.qp.attach_multicast(group).unwrap();
        for m in &members {
            m.recv(1);
            m.recv(2);
        }
        echo.send_to(group);
        silent.send_to(group);
        assert_eq!(echo.received(2), [1, 2], "its own and the other's");
        assert_eq!(plain.received(2), [1, 2]);
        assert_eq!(silent.received(1), [1], "not its own");
        assert_eq!(stranger.received(0), []);
        for m in [echo, plain, silent] {
            m.qp.detach_multicast(group).unwrap();
        }
        silent.recv(3);
        assert!(matches!(
            plain.qp.detach_multicast(group),
            Err(NicError::BadArgument(_))
        ));
        for m in [silent, stranger] {
            // The receives that are left would be in the way of the next round.
            let (reset, attr) = (
                AttrMask::STATE,
                QpAttr {
                    qkey: QKEY,
                    ..QpAttr::default()
                },
            );
            m.qp.modify(&attr, reset).unwrap();
            let init = AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::QKEY;
            for (state, mask) in [
                (QpState::Init, init),
                (QpState::Rtr, AttrMask::empty()),
                (QpState::Rts, AttrMask::SQ_PSN),
            ] {
                m.qp.modify(&QpAttr { state, ..attr }, mask | AttrMask::STATE)
                    .unwrap();
            }
        }
    }
}

#[test]
fn a_member_cannot_be_destroyed_and_only_datagrams_have_groups() {
    let context = Context::open(&devices().unwrap()[0]).unwrap();
    let one = member(&context, false);
    let group = group("239.6.6.6");
    one.qp.attach_multicast(group).unwrap();
    assert!(matches!(one.qp.destroy(), Err(NicError::Busy { .. })));
    one.qp.detach_multicast(group).unwrap();
    let unicast = Gid::from_ip("10.0.0.1".parse().unwrap());
    assert!(matches!(
        one.qp.attach_multicast(unicast),
        Err(NicError::BadArgument(_))
    ));
    one.qp.destroy().unwrap();
}
