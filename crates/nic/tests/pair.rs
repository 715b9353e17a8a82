//! Two queue pairs of this process, over whatever link the environment allows.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use adverb_nic::{
    Access, AttrMask, Av, Channel, Completion, Context, Cq, Mr, Pd, Qp, QpAttr, QpCaps, QpNum,
    QpSpec, QpState, RecvWr, SendData, SendFlags, SendOp, SendWr, Sge, Transport, WcOpcode,
    WcStatus, devices,
};
use adverb_wire::{Bth, Gid, Opcode, Operation, Packet, Psn, icrc};

struct Side {
    qp: Arc<Qp>,
    cq: Arc<Cq>,
    channel: Arc<Channel>,
    mr: Arc<Mr>,
    memory: Box<[u8]>,
    _pd: Arc<Pd>,
}

fn side(context: &Arc<Context>) -> Side {
    let pd = context.alloc_pd().unwrap();
    let channel = context.create_channel().unwrap();
    let cq = context.create_cq(64, Some(&channel), 0, 7).unwrap();
    let memory = vec![0u8; 1 << 20].into_boxed_slice();
    let access =
        Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    let addr = memory.as_ptr() as u64;
    let mr = pd.reg_mr(addr, memory.len() as u64, addr, access).unwrap();
    let caps = QpCaps {
        max_send_wr: 16,
        max_recv_wr: 16,
        max_send_sge: 2,
        max_recv_sge: 2,
        max_inline: 64,
    };
    let qp = pd
        .create_qp(&QpSpec {
            transport: Transport::Rc,
            send_cq: &cq,
            recv_cq: Some(&cq),
            srq: None,
            caps,
            blocks_own_multicast: false,
            sq_sig_all: false,
            user: 1,
        })
        .unwrap();
    Side {
        qp,
        cq,
        channel,
        mr,
        memory,
        _pd: pd,
    }
}

fn connect(from: &Side, to: &Side, context: &Context) {
    connect_to(from, to.qp.number(), context.device().gids()[1]);
}

fn connect_to(from: &Side, peer: u32, gid: Gid) {
    let attr = QpAttr {
        state: QpState::Init,
        access: Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC,
        ..QpAttr::default()
    };
    from.qp
        .modify(
            &attr,
            AttrMask::STATE | AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::ACCESS_FLAGS,
        )
        .unwrap();
    let attr = QpAttr {
        state: QpState::Rtr,
        av: Av {
            sgid_index: 1,
            dgid: gid,
            ..Av::default()
        },
        path_mtu: 3,
        dest_qpn: peer,
        rq_psn: 100,
        max_dest_rd_atomic: 4,
        min_rnr_timer: 12,
        ..attr
    };
    let mask = AttrMask::STATE
        | AttrMask::AV
        | AttrMask::PATH_MTU
        | AttrMask::DEST_QPN
        | AttrMask::RQ_PSN
        | AttrMask::MAX_DEST_RD_ATOMIC
        | AttrMask::MIN_RNR_TIMER;
    from.qp.modify(&attr, mask).unwrap();
    let attr = QpAttr {
        state: QpState::Rts,
        sq_psn: 100,
        timeout: 14,
        retry_cnt: 7,
        rnr_retry: 7,
        max_rd_atomic: 4,
        ..attr
    };
    let mask = AttrMask::STATE
        | AttrMask::SQ_PSN
        | AttrMask::TIMEOUT
        | AttrMask::RETRY_CNT
        | AttrMask::RNR_RETRY
        | AttrMask::MAX_QP_RD_ATOMIC;
    from.qp.modify(&attr, mask).unwrap();
}

impl Side {
    fn sge(&self, at: usize, len: u32) -> Sge {
        Sge {
            addr: self.memory.as_ptr() as u64 + at as u64,
            len,
            lkey: adverb_nic::Key(self.mr.lkey()),
        }
    }

    fn send(&self, wr_id: u64, op: SendOp, sge: Sge) {
        let wr = SendWr {
            wr_id,
            op,
            flags: SendFlags::SIGNALED,
            data: SendData::Sges(&[sge]),
            ud: None,
            xrc_srqn: 0,
        };
        self.qp.posting().send(&wr).unwrap();
    }

    fn recv(&self, wr_id: u64, sge: Sge) {
        self.qp
            .posting()
            .recv(&RecvWr {
                wr_id,
                sges: &[sge],
            })
            .unwrap();
    }

    fn completion(&self) -> Completion {
        let mut out = [Completion::success(
            0,
            WcOpcode::Send,
            QpNum(0),
            adverb_nic::now(),
        )];
        let start = Clock::now();
        while self.cq.poll(&mut out).unwrap() == 0 {
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "no completion within 5 s"
            );
        }
        out[0]
    }
}

fn pair() -> (Arc<Context>, Side, Side) {
    let context = Context::open(&devices().unwrap()[0]).unwrap();
    let (a, b) = (side(&context), side(&context));
    connect(&a, &b, &context);
    connect(&b, &a, &context);
    (context, a, b)
}

#[test]
fn a_send_arrives_whole_and_completes_once_on_both_sides() {
    let (_context, mut a, b) = pair();
    for (i, len) in [0u32, 1, 4096, 100_000].into_iter().enumerate() {
        for (j, byte) in a.memory[..len as usize].iter_mut().enumerate() {
            *byte = (i + j * 7) as u8;
        }
        b.recv(1, b.sge(0, 1 << 20));
        a.send(2, SendOp::Send, a.sge(0, len));
        let received = b.completion();
        assert_eq!(
            (received.wr_id, received.status, received.byte_len),
            (1, WcStatus::Success, len)
        );
        assert_eq!(a.memory[..len as usize], b.memory[..len as usize]);
        let sent = a.completion();
        assert_eq!((sent.wr_id, sent.status), (2, WcStatus::Success));
    }
}

#[test]
fn one_sided_operations_need_no_call_of_the_target() {
    let (_context, mut a, b) = pair();
    let rkey = adverb_nic::Key(b.mr.rkey());
    let remote = b.memory.as_ptr() as u64;
    a.memory[..5].copy_from_slice(b"hello");
    a.send(
        1,
        SendOp::Write {
            remote_addr: remote + 100,
            rkey,
        },
        a.sge(0, 5),
    );
    assert_eq!(a.completion().status, WcStatus::Success);
    assert_eq!(&b.memory[100..105], b"hello");
    a.send(
        2,
        SendOp::Read {
            remote_addr: remote + 100,
            rkey,
        },
        a.sge(10, 5),
    );
    assert_eq!(a.completion().status, WcStatus::Success);
    assert_eq!(&a.memory[10..15], b"hello");
    a.send(
        3,
        SendOp::FetchAdd {
            remote_addr: remote + 8,
            rkey,
            add: 5,
        },
        a.sge(16, 8),
    );
    assert_eq!(a.completion().status, WcStatus::Success);
    assert_eq!(b.memory[8], 5);
}

#[test]
fn a_foreign_key_ends_in_a_remote_access_error() {
    let (_context, a, b) = pair();
    let rkey = adverb_nic::Key(b.mr.rkey() ^ 0x100);
    let remote_addr = b.memory.as_ptr() as u64;
    a.send(1, SendOp::Write { remote_addr, rkey }, a.sge(0, 8));
    assert_eq!(a.completion().status, WcStatus::RemAccessErr);
    assert_eq!(a.qp.state(), QpState::Err);
}

#[test]
fn a_thread_asleep_on_the_channel_is_woken_by_what_arrives() {
    let (_context, a, b) = pair();
    for round in 0..100 {
        b.recv(round, b.sge(0, 64));
        b.cq.req_notify(false).unwrap();
        std::thread::scope(|s| {
            let waiter = s.spawn(|| adverb_nic::wait(|w| b.channel.next_event(w)).unwrap());
            a.send(round, SendOp::Send, a.sge(0, 8));
            assert_eq!(waiter.join().unwrap(), 7);
        });
        b.cq.ack_events(1);
        assert_eq!(b.completion().wr_id, round);
        assert_eq!(a.completion().wr_id, round);
    }
    drop(b.qp);
}

/// Found by the fuzzer: what a pass needs of its thread may have gone before the queue pair.
#[test]
fn a_thread_that_ends_may_take_its_queue_pairs_along() {
    thread_local! {
        static KEPT: std::cell::RefCell<Option<(Arc<Context>, Side, Side)>> =
            const { std::cell::RefCell::new(None) };
    }
    std::thread::spawn(|| {
        // Registered first, and so dropped last, after everything that the passes below made.
        KEPT.with_borrow_mut(|kept| *kept = None);
        let (context, a, b) = pair();
        b.recv(1, b.sge(0, 64));
        a.send(2, SendOp::Send, a.sge(0, 8));
        assert_eq!(b.completion().wr_id, 1);
        KEPT.with_borrow_mut(|kept| *kept = Some((context, a, b)));
    })
    .join()
    .unwrap();
}

/// A message of one packet to `to`, valid in everything, from whoever has the address `from`.
fn send_as(from: Ipv4Addr, to: &Qp, port: u16, payload: &[u8]) {
    let socket = UdpSocket::bind((from, 0)).unwrap();
    let opcode = Opcode::Roce(Transport::Rc, Operation::SendOnly);
    let packet = Packet {
        payload,
        ..Packet::new(Bth::new(opcode, to.number(), Psn::new(100)))
    };
    let mut datagram = [0; 128];
    let len = packet.emit(&mut datagram);
    let addresses = (IpAddr::V4(from), IpAddr::V4(Ipv4Addr::LOCALHOST));
    let source_port = socket.local_addr().unwrap().port();
    let mut addressing = icrc::Addressing::new(addresses.0, addresses.1, source_port).unwrap();
    addressing.dst_port = port;
    let sum = icrc::compute(&addressing, &datagram[..len]);
    datagram[len..len + sum.len()].copy_from_slice(&sum);
    let len = len + sum.len();
    assert_eq!(
        socket
            .send_to(&datagram[..len], (addresses.1, port))
            .unwrap(),
        len
    );
}

/// Trap 49. In a process of its own, because links and port are chosen once for each.
#[test]
fn a_packet_counts_only_if_it_comes_from_the_address_of_the_peer() {
    const PORT: u16 = 19_049;
    if std::env::var_os("ADVERB_UDP_PORT").is_none_or(|port| port != "19049") {
        let status = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "a_packet_counts_only_if_it_comes_from_the_address_of_the_peer",
            ])
            .env("ADVERB_LINKS", "udp")
            .env("ADVERB_UDP_PORT", PORT.to_string())
            .status()
            .unwrap();
        return assert!(status.success());
    }
    let (_context, mut a, b) = pair();
    b.recv(1, b.sge(0, 64));
    send_as(Ipv4Addr::new(127, 0, 0, 3), &b.qp, PORT, b"stranger");
    // The socket is a queue: when the second one is there, the first has been looked at.
    let (_other, _, c) = pair();
    c.recv(2, c.sge(0, 64));
    send_as(Ipv4Addr::LOCALHOST, &c.qp, PORT, b"the peer");
    assert_eq!(c.completion().wr_id, 2);
    assert_eq!(&c.memory[..8], b"the peer");

    assert_eq!(&b.memory[..8], [0; 8]);
    a.memory[..8].copy_from_slice(b"expected");
    a.send(3, SendOp::Send, a.sge(0, 8));
    assert_eq!(b.completion().wr_id, 1);
    assert_eq!(&b.memory[..8], b"expected");
}

/// In a process of its own, as above.
#[test]
fn a_queue_pair_that_talks_by_memory_takes_nothing_from_a_socket() {
    const PORT: u16 = 19_050;
    if std::env::var_os("ADVERB_UDP_PORT").is_none_or(|port| port != "19050") {
        let status = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "a_queue_pair_that_talks_by_memory_takes_nothing_from_a_socket",
            ])
            .env("ADVERB_LINKS", "loopback,shm,udp")
            .env("ADVERB_UDP_PORT", PORT.to_string())
            .status()
            .unwrap();
        return assert!(status.success());
    }
    let (context, mut a, b) = pair();
    // This one opens the socket, as its peer is at no address of ours.
    let elsewhere = Ipv4Addr::new(127, 0, 0, 9);
    let c = side(&context);
    connect_to(&c, 17, Gid::from_ip(IpAddr::V4(elsewhere)));
    b.recv(1, b.sge(0, 64));
    c.recv(2, c.sge(0, 64));
    send_as(Ipv4Addr::LOCALHOST, &b.qp, PORT, b"stranger");
    send_as(elsewhere, &c.qp, PORT, b"the peer");
    assert_eq!(c.completion().wr_id, 2);
    assert_eq!(&c.memory[..8], b"the peer");
    assert_eq!(&b.memory[..8], [0; 8]);
    a.memory[..8].copy_from_slice(b"expected");
    a.send(3, SendOp::Send, a.sge(0, 8));
    assert_eq!(b.completion().wr_id, 1);
    assert_eq!(&b.memory[..8], b"expected");
}
