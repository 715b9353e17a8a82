//! Requests a responder must refuse: what the peer is told, and what is reported on each side.

use adverb_engine::*;
use adverb_wire::{AtomicEth, Bth, NakCode, Opcode, Operation, Packet, Reth, Syndrome, Transport};

use crate::harness::*;

fn request(op: Operation, n: u32) -> Packet<'static> {
    let bth = Bth {
        ack_req: true,
        ..Bth::new(Opcode::Roce(Transport::Rc, op), 0x12, psn(n))
    };
    let op_has = |yes: bool| {
        yes.then_some(Reth {
            va: 0,
            rkey: 0,
            len: 0,
        })
    };
    Packet {
        reth: op_has(op.has_reth()),
        imm: op.has_imm().then_some([0; 4]),
        ..Packet::new(bth)
    }
}

/// The NAK that b answers with, if any.
fn nak_of(p: &mut Pair) -> Option<Syndrome> {
    let mut buf = [0; 4096];
    let mut found = None;
    while let Some(t) =
        p.b.qp
            .poll_transmit(Instant::ZERO, &mut p.b.world, &mut buf)
    {
        if let Some(aeth) = Packet::parse(&buf[..t.len]).unwrap().aeth
            && !matches!(aeth.syndrome, Syndrome::Ack { .. })
        {
            found = Some(aeth.syndrome);
        }
    }
    found
}

struct Case {
    requester: WcStatus,
    responder: &'static [(u64, WcStatus)],
    events: &'static [QpEvent],
}

fn expect(p: &mut Pair, case: &Case) {
    p.drive();
    assert_eq!(p.a.world.sends().last().unwrap().status, case.requester);
    assert_eq!(p.b.world.recv_statuses(), case.responder);
    assert_eq!(p.b.world.events(), case.events);
    assert_eq!(
        (p.a.qp.state(), p.b.qp.state()),
        (QpState::Err, QpState::Err)
    );
}

#[test]
fn receive_buffer_too_small() {
    for len in [20, 700] {
        let mut p = Pair::rc();
        let from = p.a.world.register(pattern(700, 1));
        let to = p.b.world.register(vec![0; 700]);
        p.b.recv(1, &[to.sge(0, 19)]);
        p.b.recv(2, &[]);
        p.a.send(1, SendOp::Send, &[from.sge(0, len)]);
        let responder = &[(1, WcStatus::LocLenErr), (2, WcStatus::WrFlushErr)];
        expect(
            &mut p,
            &Case {
                requester: WcStatus::RemInvReqErr,
                responder,
                events: &[],
            },
        );
        assert!(
            p.b.world.bytes(to)[19..].iter().all(|b| *b == 0),
            "not a byte beyond the buffer"
        );
    }
}

#[test]
fn receive_buffer_with_a_bad_key() {
    let mut p = Pair::rc();
    let from = p.a.world.register(pattern(8, 1));
    p.b.recv(
        1,
        &[Sge {
            addr: 0,
            len: 8,
            lkey: Key(77),
        }],
    );
    p.a.send(1, SendOp::Send, &[from.sge(0, 8)]);
    let case = Case {
        requester: WcStatus::RemOpErr,
        responder: &[(1, WcStatus::LocProtErr)],
        events: &[],
    };
    expect(&mut p, &case);
}

#[test]
fn keys_ranges_and_rights_of_the_remote_region() {
    type Spoil = fn(&mut Mr, &mut Pair, &mut u32);
    let spoils: [Spoil; 5] = [
        |mr, _, _| mr.key = Key(mr.key.0 ^ 1),
        |mr, _, _| mr.addr += 8,
        |mr, _, _| mr.addr = u64::MAX - 7,
        |mr, p, _| {
            *mr =
                p.b.world
                    .register_with(vec![0; 1000], Access::LOCAL_WRITE, PD)
        },
        |mr, p, _| *mr = p.b.world.register_with(vec![0; 1000], all_access(), SRQ_PD),
    ];
    for spoil in spoils {
        for kind in 0..4 {
            let mut p = Pair::rc();
            let here = p.a.world.register(vec![0; 1000]);
            let mut there = p.b.world.register(vec![0; 1000]);
            let mut len = 1000;
            spoil(&mut there, &mut p, &mut len);
            let (remote_addr, rkey) = (there.addr, there.key);
            let word = SendOp::FetchAdd {
                remote_addr: remote_addr.wrapping_add(992) & !7,
                rkey,
                add: 1,
            };
            let (op, len) = match kind {
                0 => (SendOp::Write { remote_addr, rkey }, len),
                1 => (SendOp::Read { remote_addr, rkey }, len),
                2 => (word, 8),
                _ => (
                    SendOp::WriteImm {
                        remote_addr,
                        rkey,
                        imm: [0; 4],
                    },
                    len,
                ),
            };
            p.a.send(1, op, &[here.sge(0, len)]);
            p.drive();
            assert_eq!(p.a.world.send_statuses(), [(1, WcStatus::RemAccessErr)]);
            assert_eq!(p.b.world.events(), [QpEvent::AccessError]);
            assert_eq!(p.b.qp.state(), QpState::Err);
        }
    }
}

/// Cards look at where an answer goes when it is there, and so the peer is asked first.
#[test]
fn where_an_answer_goes_is_looked_at_when_it_comes() {
    let nowhere = |len| Sge {
        addr: 0,
        len,
        lkey: Key(0xdead),
    };
    let read_only = |p: &mut Pair, len| {
        let mr =
            p.a.world
                .register_with(vec![0; len as usize], Access::empty(), PD);
        mr.sge(0, len)
    };
    for (bad_remote, status) in [
        (false, WcStatus::LocProtErr),
        (true, WcStatus::RemAccessErr),
    ] {
        for kind in 0..3 {
            let mut p = Pair::rc();
            let mut bytes = vec![0; 3000];
            bytes[..8].copy_from_slice(&100u64.to_ne_bytes());
            let there = p.b.world.register(bytes);
            let after = p.b.world.register(vec![0; 1]);
            let here = p.a.world.register(vec![7]);
            let rkey = Key(there.key.0 ^ u32::from(bad_remote));
            let remote_addr = there.addr;
            let (op, len) = match kind {
                0 => (SendOp::Read { remote_addr, rkey }, 3000),
                1 => (
                    SendOp::FetchAdd {
                        remote_addr,
                        rkey,
                        add: 5,
                    },
                    8,
                ),
                _ => (
                    SendOp::CompareSwap {
                        remote_addr,
                        rkey,
                        compare: 100,
                        swap: 105,
                    },
                    8,
                ),
            };
            let landing = match kind {
                0 => read_only(&mut p, len),
                _ => nowhere(len),
            };
            p.a.send(1, op, &[landing]);
            let write = SendOp::Write {
                remote_addr: after.addr,
                rkey: after.key,
            };
            p.a.send(2, write, &[here.sge(0, 1)]);
            p.drive();
            assert_eq!(
                p.a.world.send_statuses(),
                [(1, status), (2, WcStatus::WrFlushErr)]
            );
            assert_eq!(p.a.qp.state(), QpState::Err);
            let happened = !bad_remote && kind > 0;
            assert_eq!(
                p.b.world.bytes(there)[..8],
                (if happened { 105u64 } else { 100 }).to_ne_bytes(),
                "an atomic has happened although its result has nowhere to go"
            );
            let dead = if bad_remote {
                QpState::Err
            } else {
                QpState::Rts
            };
            assert_eq!(p.b.qp.state(), dead, "its own answer is good");
        }
    }
}

#[test]
fn write_with_immediate_that_has_taken_a_receive() {
    let mut p = Pair::rc();
    let here = p.a.world.register(vec![0; 100]);
    p.b.recv(1, &[]);
    let op = SendOp::WriteImm {
        remote_addr: 0,
        rkey: Key(5),
        imm: [0; 4],
    };
    p.a.send(1, op, &[here.sge(0, 100)]);
    let case = Case {
        requester: WcStatus::RemAccessErr,
        responder: &[(1, WcStatus::LocAccessErr)],
        events: &[],
    };
    expect(&mut p, &case);
}

#[test]
fn operations_not_enabled_on_the_queue_pair() {
    for (missing, kind) in [
        (Access::REMOTE_WRITE, 0),
        (Access::REMOTE_READ, 1),
        (Access::REMOTE_ATOMIC, 2),
    ] {
        let mut setup = Setup::rc();
        setup.attr.access -= missing;
        let mut p = Pair::new(setup);
        let here = p.a.world.register(vec![0; 8]);
        let there = p.b.world.register(vec![0; 8]);
        let (remote_addr, rkey) = (there.addr, there.key);
        let op = match kind {
            0 => SendOp::Write { remote_addr, rkey },
            1 => SendOp::Read { remote_addr, rkey },
            _ => SendOp::FetchAdd {
                remote_addr,
                rkey,
                add: 1,
            },
        };
        p.a.send(1, op, &[here.sge(0, 8)]);
        let case = Case {
            requester: WcStatus::RemInvReqErr,
            responder: &[],
            events: &[QpEvent::RequestError],
        };
        expect(&mut p, &case);
        assert_eq!(p.b.world.bytes(there), [0; 8]);
    }
}

#[test]
fn more_reads_than_the_responder_has_room_for() {
    let mut setup = Setup::rc();
    setup.attr.max_dest_rd_atomic = 1;
    let mut p = Pair::new(setup);
    let there = p.b.world.register(vec![0; 8]);
    for n in 0..2 {
        let reth = Some(Reth {
            va: there.addr,
            rkey: there.key.0,
            len: 8,
        });
        let result = p.inject(
            Way::ToB,
            &Packet {
                reth,
                ..request(Operation::ReadRequest, n)
            },
        );
        assert_eq!(result.is_ok(), n == 0);
    }
    assert_eq!(p.b.world.events(), [QpEvent::AccessError]);
    // The first is still answered, then comes the NAK.
    let mut buf = [0; 4096];
    let mut ops = Vec::new();
    while let Some(t) =
        p.b.qp
            .poll_transmit(Instant::ZERO, &mut p.b.world, &mut buf)
    {
        ops.push(
            Packet::parse(&buf[..t.len])
                .unwrap()
                .bth
                .opcode
                .operation()
                .unwrap(),
        );
    }
    assert_eq!(ops, [Operation::ReadResponseOnly, Operation::Acknowledge]);
}

#[test]
fn misaligned_atomic() {
    let mut p = Pair::rc();
    let there = p.b.world.register(vec![0; 64]);
    let atomic = Some(AtomicEth {
        va: there.addr + 4,
        rkey: there.key.0,
        swap_or_add: 1,
        compare: 0,
    });
    let _ = p.inject(
        Way::ToB,
        &Packet {
            atomic,
            ..request(Operation::FetchAdd, 0)
        },
    );
    assert_eq!(nak_of(&mut p), Some(Syndrome::Nak(NakCode::InvalidRequest)));
    assert_eq!(p.b.world.events(), [QpEvent::AccessError]);
    assert_eq!(p.b.world.atomics_executed, 0);
}

/// A random world found it: the answers to earlier requests still go out, and one of them finds that
/// its region has gone meanwhile. The queue pair has told already that it dies.
#[test]
fn a_queue_pair_dies_of_one_refusal_even_if_an_earlier_answer_fails_after_it() {
    let mut p = Pair::rc();
    let there = p.b.world.register(pattern(64, 1));
    for (n, key) in [(0, there.key.0), (1, there.key.0 ^ 0x5500)] {
        let reth = Some(Reth {
            va: there.addr,
            rkey: key,
            len: 8,
        });
        let result = p.inject(
            Way::ToB,
            &Packet {
                reth,
                ..request(Operation::ReadRequest, n)
            },
        );
        assert_eq!(result.is_ok(), n == 0);
    }
    p.b.world.keys.remove(there.key);
    let mut buf = [0; 4096];
    while p
        .b
        .qp
        .poll_transmit(Instant::ZERO, &mut p.b.world, &mut buf)
        .is_some()
    {}
    assert_eq!(p.b.world.events(), [QpEvent::AccessError]);
    assert_eq!(p.b.qp.state(), QpState::Err);
}

#[test]
fn opcodes_out_of_order() {
    use Operation::*;
    let full = vec![0; 256];
    for (first, second) in [
        (None, SendMiddle),
        (None, SendLast),
        (None, WriteLast),
        (Some(SendFirst), SendOnly),
        (Some(SendFirst), WriteMiddle),
        (Some(SendFirst), ReadRequest),
        (Some(SendFirst), SendFirst),
        (None, Flush),
    ] {
        let mut p = Pair::rc();
        let to = p.b.world.register(vec![0; 1000]);
        p.b.recv(1, &[to.sge(0, 1000)]);
        for (n, op) in (0..).zip(first.into_iter().chain([second])) {
            let feth = (op == Flush).then_some(Default::default());
            let reth = op.has_reth().then_some(Reth::default());
            let packet = Packet {
                payload: &full,
                reth,
                feth,
                ..request(op, n)
            };
            let _ = p.inject(Way::ToB, &packet);
        }
        assert_eq!(
            nak_of(&mut p),
            Some(Syndrome::Nak(NakCode::InvalidRequest)),
            "{first:?} {second:?}"
        );
        assert_eq!(p.b.qp.state(), QpState::Err);
        if first.is_some() {
            assert_eq!(p.b.world.recv_statuses(), [(1, WcStatus::LocQpOpErr)]);
        } else {
            assert_eq!(p.b.world.events(), [QpEvent::RequestError]);
        }
    }
}

#[test]
fn lengths_that_do_not_add_up() {
    use Operation::*;
    let full = vec![7; 256];
    let there = |p: &mut Pair, len| {
        let mr = p.b.world.register(vec![0; 1000]);
        (
            mr,
            Some(Reth {
                va: mr.addr,
                rkey: mr.key.0,
                len,
            }),
        )
    };
    // A FIRST that is not full, an ONLY that is too long, a WRITE unlike its announcement.
    for (op, announced, sent) in [
        (WriteFirst, 300, 255),
        (WriteFirst, 256, 256),
        (WriteOnly, 5, 4),
        (WriteOnly, 4, 5),
        (WriteOnly, 0, 4),
        (WriteOnly, u32::MAX, 4),
        (SendFirst, 0, 100),
    ] {
        let mut p = Pair::rc();
        p.b.recv(1, &[]);
        let (mr, reth) = there(&mut p, announced);
        let reth = if op == SendFirst { None } else { reth };
        let _ = p.inject(
            Way::ToB,
            &Packet {
                reth,
                payload: &full[..sent],
                ..request(op, 0)
            },
        );
        assert_eq!(
            nak_of(&mut p),
            Some(Syndrome::Nak(NakCode::InvalidRequest)),
            "{op:?} {announced} {sent}"
        );
        assert!(p.b.world.bytes(mr).iter().all(|b| *b == 0));
    }
    let mut p = Pair::rc();
    let (_, reth) = there(&mut p, 500);
    p.inject(
        Way::ToB,
        &Packet {
            reth,
            payload: &full,
            ..request(WriteFirst, 0)
        },
    )
    .unwrap();
    let _ = p.inject(
        Way::ToB,
        &Packet {
            payload: &full[..200],
            ..request(WriteLast, 1)
        },
    );
    assert_eq!(nak_of(&mut p), Some(Syndrome::Nak(NakCode::InvalidRequest)));
    let mut p = Pair::rc();
    let (_, reth) = there(&mut p, u32::MAX);
    let _ = p.inject(
        Way::ToB,
        &Packet {
            reth,
            ..request(ReadRequest, 0)
        },
    );
    assert_eq!(nak_of(&mut p), Some(Syndrome::Nak(NakCode::InvalidRequest)));
}

#[test]
fn a_region_that_goes_away_in_mid_message() {
    let mut p = Pair::rc();
    let full = vec![7; 256];
    let mr = p.b.world.register(vec![0; 1000]);
    let reth = Some(Reth {
        va: mr.addr,
        rkey: mr.key.0,
        len: 512,
    });
    p.inject(
        Way::ToB,
        &Packet {
            reth,
            payload: &full,
            ..request(Operation::WriteFirst, 0)
        },
    )
    .unwrap();
    p.b.world.keys.remove(mr.key);
    let _ = p.inject(
        Way::ToB,
        &Packet {
            payload: &full,
            ..request(Operation::WriteLast, 1)
        },
    );
    assert_eq!(nak_of(&mut p), Some(Syndrome::Nak(NakCode::RemoteAccess)));
}

#[test]
fn a_region_that_goes_away_before_a_read_is_answered() {
    let mut p = Pair::rc();
    let mr = p.b.world.register(vec![0; 1000]);
    let reth = Some(Reth {
        va: mr.addr,
        rkey: mr.key.0,
        len: 512,
    });
    p.inject(
        Way::ToB,
        &Packet {
            reth,
            ..request(Operation::ReadRequest, 0)
        },
    )
    .unwrap();
    p.b.world.keys.remove(mr.key);
    assert_eq!(nak_of(&mut p), Some(Syndrome::Nak(NakCode::RemoteAccess)));
    assert_eq!(p.b.qp.state(), QpState::Err);
}

#[test]
fn send_with_invalidate_of_a_key_that_stays() {
    let mut p = Pair::rc();
    let key = p.b.world.register(vec![0; 8]).key;
    p.b.recv(1, &[]);
    p.a.send(1, SendOp::SendInv(key), &[]);
    let case = Case {
        requester: WcStatus::RemOpErr,
        responder: &[(1, WcStatus::LocQpOpErr)],
        events: &[],
    };
    expect(&mut p, &case);
    assert!(p.b.world.keys.get(key).is_some());
}

#[test]
fn strangers_are_dropped_without_effect() {
    let mut p = Pair::rc();
    p.b.recv(1, &[]);
    let good = request(Operation::SendOnly, 0);
    let cnp = Packet::new(Bth::new(Opcode::Cnp, 0x12, psn(0)));
    assert_eq!(p.inject(Way::ToB, &cnp), Err(DropReason::Cnp));
    let uc = Packet::new(Bth::new(
        Opcode::Roce(Transport::Uc, Operation::SendOnly),
        0x12,
        psn(0),
    ));
    assert_eq!(p.inject(Way::ToB, &uc), Err(DropReason::Transport));
    let alien = Packet {
        bth: Bth {
            pkey: 0x1234,
            ..good.bth
        },
        ..good
    };
    assert_eq!(p.inject(Way::ToB, &alien), Err(DropReason::PKey));
    assert_eq!(p.b.qp.counters().pkey_violations, 1);
    assert!(p.b.world.told.is_empty());
    let limited = Packet {
        bth: Bth {
            pkey: 0x7fff,
            ..good.bth
        },
        ..good
    };
    p.inject(Way::ToB, &limited).unwrap();
    assert_eq!(p.b.world.receives().len(), 1);
}

#[test]
fn no_packet_whatsoever_panics() {
    for seed in 0..3000 {
        let mut random = Random(seed);
        let transport = [Transport::Rc, Transport::Uc, Transport::Ud][random.below(3) as usize];
        let mut p = Pair::new(Setup::new(transport));
        let mr = p.b.world.register(vec![0; 1000]);
        for id in 0..3 {
            p.b.recv(id, &[mr.sge(0, random.below(1000) as u32)]);
            if transport == Transport::Rc {
                let op = SendOp::Read {
                    remote_addr: mr.addr,
                    rkey: mr.key,
                };
                p.b.send(id, op, &[mr.sge(0, random.below(1000) as u32)]);
            }
        }
        p.pump();
        for _ in 0..20 {
            let mut bytes: Vec<u8> = (0..4 * random.below(90))
                .map(|_| random.next() as u8)
                .collect();
            // Mostly plausible headers, or nothing would get past the first check.
            for (i, byte) in bytes.iter_mut().enumerate().take(12) {
                match i {
                    0 => *byte = transport as u8 | *byte & 0x1f,
                    1 => *byte &= 0xb0,
                    2 | 3 => *byte = 0xff,
                    9..12 => *byte = psn(random.below(6) as u32).value().to_be_bytes()[i - 8],
                    _ => {}
                }
            }
            if bytes.len() >= 28 && random.chance(700) {
                bytes[12..20].copy_from_slice(&mr.addr.to_be_bytes());
                bytes[20..24].copy_from_slice(&mr.key.0.to_be_bytes());
                bytes[24..26].fill(0);
            }
            if let Ok(packet) = Packet::parse(&bytes) {
                let _ = p.inject(Way::ToB, &packet);
            }
            p.pump();
        }
    }
}
