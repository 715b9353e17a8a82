//! UD: addressing, Q_Keys, the area in front of the payload, and what vanishes silently.

use adverb_engine::*;
use adverb_wire::{Bth, Deth, Opcode, Operation, Packet, Psn, Transport, grh};

use crate::harness::*;

fn pair() -> Pair {
    Pair::new(Setup::new(Transport::Ud))
}

#[test]
fn a_datagram_arrives_behind_forty_bytes() {
    let mut p = pair();
    let data = pattern(100, 1);
    let from = p.a.world.register(data.clone());
    let to = p.b.world.register(vec![0xee; 200]);
    p.b.recv(4, &[to.sge(0, 20), to.sge(20, 180)]);
    p.a.send_flags(
        1,
        SendOp::SendImm([1, 2, 3, 4]),
        &[from.sge(0, 100)],
        SendFlags::SOLICITED,
    );
    p.pump();
    assert_eq!(
        p.a.world.send_statuses(),
        [(1, WcStatus::Success)],
        "done when it is on its way"
    );
    p.drive();
    let c = p.b.world.receives()[0];
    assert_eq!(
        (c.byte_len, c.src_qp, c.imm, c.solicited),
        (140, 0x11, [1, 2, 3, 4], true)
    );
    assert_eq!(c.flags, WcFlags::GRH | WcFlags::WITH_IMM);
    assert_eq!(c.sl, 0b1010, "RoCEv2 over IPv4");
    let bytes = p.b.world.bytes(to);
    assert_eq!(bytes[40..140], data);
    assert_eq!(bytes[..20], [0; 20]);
    // An IPv4 header whose checksum comes out even.
    assert_eq!((bytes[20], bytes[29]), (0x45, 17));
    let sum: u32 = bytes[20..40]
        .chunks(2)
        .map(|w| u32::from(w[0]) << 8 | u32::from(w[1]))
        .sum();
    assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
    let area = grh::Grh::from_bytes(bytes[..40].try_into().unwrap()).unwrap();
    assert_eq!((area.src, area.dst, area.hop_limit), (gid(1), gid(2), 64));
    assert!(
        p.a.qp.poll_timeout().is_none(),
        "nobody waits for an answer"
    );
}

#[test]
fn what_does_not_fit_or_finds_no_receive_vanishes_and_the_receive_stays() {
    let mut p = pair();
    let from = p.a.world.register(pattern(100, 1));
    let to = p.b.world.register(vec![0; 200]);
    p.a.send(1, SendOp::Send, &[from.sge(0, 100)]);
    p.drive();
    p.b.recv(1, &[to.sge(0, 139)]);
    p.a.send(2, SendOp::Send, &[from.sge(0, 100)]);
    p.drive();
    assert!(p.b.world.told.is_empty());
    p.a.send(3, SendOp::Send, &[from.sge(0, 99)]);
    p.drive();
    assert_eq!(p.b.world.receives()[0].byte_len, 139);
    assert_eq!(p.b.qp.counters().packets_dropped, 2);
    assert_eq!(p.a.world.sends().len(), 3);
}

#[test]
fn q_keys_must_agree_and_the_high_bit_means_the_senders_own() {
    let mut p = pair();
    for id in 0..3 {
        p.b.recv(id, &[]);
    }
    let to = p.b.world.register(vec![0; 100]);
    let send = |p: &mut Pair, remote_qkey| {
        let ud = UdAddress {
            remote_qkey,
            ..p.a.datagram_address()
        };
        let data = SendData::Sges(&[]);
        p.a.try_send(&SendWr {
            wr_id: 1,
            op: SendOp::Send,
            flags: SendFlags::empty(),
            data,
            ud: Some(ud),
            xrc_srqn: 0,
        })
        .unwrap();
        p.drive();
        p.b.qp.counters().qkey_violations
    };
    assert_eq!(send(&mut p, 0x1235), 1);
    assert_eq!(send(&mut p, 0x1234), 1);
    assert_eq!(
        send(&mut p, 0x8000_0000),
        1,
        "the sender's own is 0x1234, which fits"
    );
    assert_eq!(p.b.world.bytes(to), [0; 100]);
}

#[test]
fn a_datagram_longer_than_the_port_allows_is_done_without_being_sent() {
    let mut p = pair();
    let from = p.a.world.register(vec![0; 5000]);
    p.a.send(1, SendOp::Send, &[from.sge(0, 4097)]);
    p.a.send(2, SendOp::Send, &[from.sge(0, 4096)]);
    p.drive();
    assert_eq!(
        p.a.world.send_statuses(),
        [(1, WcStatus::Success), (2, WcStatus::Success)]
    );
    assert_eq!(p.seen.len(), 1);
}

#[test]
fn a_bad_local_key_stops_sending_but_not_receiving() {
    let mut p = pair();
    p.a.send(
        1,
        SendOp::Send,
        &[Sge {
            addr: 0,
            len: 4,
            lkey: Key(9),
        }],
    );
    p.a.send(2, SendOp::Send, &[]);
    p.drive();
    assert_eq!(
        p.a.world.send_statuses(),
        [(1, WcStatus::LocProtErr), (2, WcStatus::WrFlushErr)]
    );
    assert_eq!(p.a.qp.state(), QpState::Sqe);
    p.a.send(3, SendOp::Send, &[]);
    assert_eq!(
        p.a.world.sends()[2].status,
        WcStatus::WrFlushErr,
        "flushed at once"
    );
    let to = p.a.world.register(vec![0; 100]);
    p.a.recv(7, &[to.sge(0, 100)]);
    p.b.send(1, SendOp::Send, &[]);
    p.drive();
    assert_eq!(p.a.world.recv_statuses(), [(7, WcStatus::Success)]);
    p.a.enter(QpState::Rts).unwrap();
    p.a.send(4, SendOp::Send, &[]);
    p.drive();
    assert_eq!(p.a.world.sends()[3].status, WcStatus::Success);
}

#[test]
fn a_receive_with_a_bad_key_kills_the_receiver() {
    let mut p = pair();
    p.b.recv(
        1,
        &[Sge {
            addr: 0,
            len: 100,
            lkey: Key(9),
        }],
    );
    p.a.send(1, SendOp::Send, &[]);
    p.drive();
    assert_eq!(p.b.world.recv_statuses(), [(1, WcStatus::LocProtErr)]);
    assert_eq!(p.b.qp.state(), QpState::Err);
}

#[test]
fn each_datagram_has_its_own_address() {
    let mut p = pair();
    let mut buf = [0; 8192];
    for qpn in [5, 6] {
        let ud = UdAddress {
            remote_qpn: qpn,
            ..p.a.datagram_address()
        };
        let data = SendData::Inline(b"hi");
        p.a.try_send(&SendWr {
            wr_id: 1,
            op: SendOp::Send,
            flags: SendFlags::empty(),
            data,
            ud: Some(ud),
            xrc_srqn: 0,
        })
        .unwrap();
    }
    for qpn in [5, 6] {
        let t =
            p.a.qp
                .poll_transmit(Instant::ZERO, &mut p.a.world, &mut buf)
                .unwrap();
        assert!(matches!(t.dest, Dest::Datagram(to) if to.remote_qpn == qpn));
        assert_eq!(Packet::parse(&buf[..t.len]).unwrap().bth.dest_qp, qpn);
    }
}

#[test]
fn a_datagram_longer_than_any_packet_costs_a_shared_queue_nothing() {
    let mut setup = Setup::new(Transport::Ud);
    setup.srq = true;
    let mut p = Pair::new(setup);
    let to = p.b.world.register_with(vec![0; 8192], all_access(), SRQ_PD);
    p.b.recv(1, &[to.sge(0, 8192)]);
    let opcode = Opcode::Roce(Transport::Ud, Operation::SendOnly);
    let mut packet = Packet::new(Bth::new(opcode, 0x12, Psn::new(0)));
    packet.deth = Some(Deth {
        qkey: 0x1234,
        src_qp: 0x11,
    });
    packet.payload = &[1; 4100];
    assert_eq!(p.inject(Way::ToB, &packet), Err(DropReason::TooLong));
    let waiting = p.b.world.srq.as_ref().map(Srq::len);
    assert_eq!(waiting, Some(1), "others may have the entry");
}
