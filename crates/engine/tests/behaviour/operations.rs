//! Every operation on a perfect wire.

use adverb_engine::*;
use adverb_wire::{Operation, Transport};

use crate::harness::*;

fn ok(c: &Completion) {
    assert_eq!(c.status, WcStatus::Success, "{c:?}");
}

#[test]
fn sends_of_every_length_arrive_whole() {
    for len in [0usize, 1, 3, 4, 255, 256, 257, 512, 513, 5000] {
        let mut p = Pair::rc();
        let data = pattern(len, 5);
        let from = p.a.world.register(data.clone());
        let to = p.b.world.register(vec![0; len]);
        p.b.recv(9, &[to.sge(0, len as u32)]);
        p.a.send(1, SendOp::Send, &[from.sge(0, len as u32)]);
        p.drive();
        assert_eq!(p.b.world.bytes(to), data);
        let c = p.b.world.receives()[0];
        ok(&c);
        assert_eq!(
            (c.wr_id, c.byte_len, c.opcode, c.qp_num),
            (9, len as u32, WcOpcode::Recv, QpNum(0x12))
        );
        assert_eq!(c.flags, WcFlags::empty());
        assert_eq!(p.a.world.send_statuses(), [(1, WcStatus::Success)]);
        assert_eq!(
            p.count(Way::ToB, Operation::SendFirst),
            usize::from(len > 256)
        );
    }
}

#[test]
fn pieces_of_any_length_are_cut_and_joined() {
    let mut p = Pair::rc();
    let mut random = Random(3);
    for round in 0..20 {
        let lens: Vec<u32> = (0..32)
            .map(|_| {
                if random.chance(250) {
                    0
                } else {
                    random.below(90) as u32
                }
            })
            .collect();
        let total: u32 = lens.iter().sum();
        let data = pattern(4096, round);
        let from = p.a.world.register(data.clone());
        let to = p.b.world.register(vec![0; 4096]);
        let mut sges = Vec::new();
        let mut sent = Vec::new();
        for (i, len) in lens.iter().enumerate() {
            sges.push(from.sge(i as u64 * 100, *len));
            sent.extend_from_slice(&data[i * 100..][..*len as usize]);
        }
        // The receiver cuts the same bytes elsewhere.
        let third = total / 3;
        p.b.recv(
            round,
            &[
                to.sge(0, third),
                to.sge(0, 0),
                to.sge(u64::from(third), total - third),
                to.sge(4000, 0),
            ],
        );
        p.a.send(round, SendOp::Send, &sges);
        p.drive();
        assert_eq!(p.b.world.receives().last().unwrap().byte_len, total);
        assert_eq!(p.b.world.bytes(to)[..total as usize], sent);
    }
}

#[test]
fn immediate_and_solicited_reach_the_receiver() {
    let mut p = Pair::rc();
    let from = p.a.world.register(pattern(600, 1));
    let to = p.b.world.register(vec![0; 600]);
    for id in 0..3 {
        p.b.recv(id, &[to.sge(0, 600)]);
    }
    p.a.send_flags(
        0,
        SendOp::SendImm([1, 2, 3, 4]),
        &[from.sge(0, 600)],
        SendFlags::SOLICITED,
    );
    p.a.send_flags(1, SendOp::Send, &[from.sge(0, 4)], SendFlags::SOLICITED);
    p.a.send(2, SendOp::SendImm([0xff, 0, 0, 1]), &[]);
    p.drive();
    let got = p.b.world.receives();
    assert_eq!(
        (got[0].imm, got[0].flags, got[0].solicited),
        ([1, 2, 3, 4], WcFlags::WITH_IMM, true)
    );
    assert_eq!((got[1].flags, got[1].solicited), (WcFlags::empty(), true));
    assert_eq!(
        (got[2].imm, got[2].byte_len, got[2].solicited),
        ([0xff, 0, 0, 1], 0, false)
    );
}

#[test]
fn write_places_bytes_and_takes_no_receive() {
    let mut p = Pair::rc();
    let data = pattern(1000, 2);
    let from = p.a.world.register(data.clone());
    let to = p.b.world.register(vec![0; 1200]);
    p.b.recv(1, &[]);
    p.a.send(
        1,
        SendOp::Write {
            remote_addr: to.addr + 100,
            rkey: to.key,
        },
        &[from.sge(0, 1000)],
    );
    p.drive();
    assert_eq!(p.b.world.bytes(to)[100..1100], data);
    assert!(
        p.b.world.bytes(to)[..100]
            .iter()
            .chain(&p.b.world.bytes(to)[1100..])
            .all(|b| *b == 0)
    );
    assert!(p.b.world.receives().is_empty());
    ok(&p.a.world.sends()[0]);
    // Only the first packet says where.
    assert_eq!(
        p.ops(Way::ToB)[..2],
        [Operation::WriteFirst, Operation::WriteMiddle]
    );
}

#[test]
fn write_with_immediate_reports_the_write_length_and_leaves_the_buffers_alone() {
    for len in [0u32, 700] {
        let mut p = Pair::rc();
        let from = p.a.world.register(pattern(700, 2));
        let to = p.b.world.register(vec![0; 700]);
        let buffer = p.b.world.register(vec![0xcc; 8]);
        p.b.recv(
            5,
            &[
                buffer.sge(0, 8),
                Sge {
                    addr: 1,
                    len: 99,
                    lkey: Key(0xdead),
                },
            ],
        );
        let op = SendOp::WriteImm {
            remote_addr: to.addr,
            rkey: to.key,
            imm: [9; 4],
        };
        p.a.send(1, op, &[from.sge(0, len)]);
        p.drive();
        let c = p.b.world.receives()[0];
        ok(&c);
        assert_eq!(
            (c.byte_len, c.opcode, c.imm),
            (len, WcOpcode::RecvRdmaWithImm, [9; 4])
        );
        assert_eq!(p.b.world.bytes(buffer), [0xcc; 8]);
    }
}

#[test]
fn read_of_n_packets_takes_n_numbers() {
    let mut p = Pair::rc();
    let data = pattern(1000, 8);
    let from = p.b.world.register(data.clone());
    let to = p.a.world.register(vec![0; 1100]);
    p.a.send(
        1,
        SendOp::Read {
            remote_addr: from.addr,
            rkey: from.key,
        },
        &[to.sge(0, 300), to.sge(400, 700)],
    );
    p.a.send(
        2,
        SendOp::Write {
            remote_addr: from.addr,
            rkey: from.key,
        },
        &[],
    );
    p.drive();
    assert_eq!(p.a.world.bytes(to)[..300], data[..300]);
    assert_eq!(p.a.world.bytes(to)[400..1100], data[300..]);
    assert_eq!(p.a.world.sends()[0].byte_len, 1000);
    use Operation::*;
    assert_eq!(p.seen[1], (Way::ToB, WriteOnly, psn(4)));
    assert_eq!(
        p.ops(Way::ToA),
        [
            ReadResponseFirst,
            ReadResponseMiddle,
            ReadResponseMiddle,
            ReadResponseLast,
            Acknowledge
        ]
    );
}

#[test]
fn reads_and_writes_of_nothing_need_no_key() {
    let mut p = Pair::rc();
    let nowhere = |read: bool| {
        let (remote_addr, rkey) = (0xdead_beef, Key(0x1234_5678));
        if read {
            SendOp::Read { remote_addr, rkey }
        } else {
            SendOp::Write { remote_addr, rkey }
        }
    };
    p.a.send(1, nowhere(true), &[]);
    p.a.send(2, nowhere(false), &[]);
    p.a.send(
        3,
        nowhere(true),
        &[
            Sge::default(),
            Sge {
                addr: 5,
                len: 0,
                lkey: Key(99),
            },
        ],
    );
    p.drive();
    assert_eq!(
        p.a.world.send_statuses(),
        [1, 2, 3].map(|i| (i, WcStatus::Success))
    );
    assert_eq!(p.count(Way::ToA, Operation::ReadResponseOnly), 2);
    assert_eq!(p.a.world.sends()[0].byte_len, 0);
}

#[test]
fn atomics_return_what_was_there() {
    let mut p = Pair::rc();
    let word = p.b.world.register(100u64.to_ne_bytes().to_vec());
    let result = p.a.world.register(vec![0; 32]);
    let add = SendOp::FetchAdd {
        remote_addr: word.addr,
        rkey: word.key,
        add: 5,
    };
    let miss = SendOp::CompareSwap {
        remote_addr: word.addr,
        rkey: word.key,
        compare: 1,
        swap: 2,
    };
    let hit = SendOp::CompareSwap {
        remote_addr: word.addr,
        rkey: word.key,
        compare: 105,
        swap: u64::MAX,
    };
    // The result may be scattered.
    p.a.send(1, add, &[result.sge(0, 3), result.sge(3, 5)]);
    p.a.send(2, miss, &[result.sge(8, 8)]);
    p.a.send(3, hit, &[result.sge(16, 16)]);
    p.a.send(4, add, &[result.sge(24, 8)]);
    p.drive();
    let words: Vec<u64> =
        p.a.world
            .bytes(result)
            .chunks(8)
            .map(|c| u64::from_ne_bytes(c.try_into().unwrap()))
            .collect();
    assert_eq!(words, [100, 105, 105, u64::MAX]);
    assert_eq!(p.b.world.bytes(word), 4u64.to_ne_bytes());
    let opcodes: Vec<_> =
        p.a.world
            .sends()
            .iter()
            .map(|c| (c.opcode, c.byte_len))
            .collect();
    assert_eq!(opcodes[0], (WcOpcode::FetchAdd, 8));
    assert_eq!(opcodes[1], (WcOpcode::CompSwap, 8));
}

#[test]
fn inline_data_is_copied_at_post_and_needs_no_key() {
    let mut p = Pair::rc();
    let to = p.b.world.register(vec![0; 128]);
    p.b.recv(1, &[to.sge(0, 128)]);
    let sent = pattern(100, 4);
    let wr = SendWr {
        wr_id: 1,
        op: SendOp::Send,
        flags: SendFlags::empty(),
        data: SendData::Sges(&[]),
        ud: None,
        xrc_srqn: 0,
    };
    {
        let bytes = sent.clone();
        p.a.try_send(&SendWr {
            data: SendData::Inline(&bytes),
            ..wr
        })
        .unwrap();
    }
    p.drive();
    assert_eq!(p.b.world.bytes(to)[..100], sent);
    let too_long = [0; 129];
    let wr = SendWr {
        data: SendData::Inline(&too_long),
        ..wr
    };
    assert_eq!(
        p.a.try_send(&wr),
        Err(PostError::InlineTooLong {
            given: 129,
            limit: 128
        })
    );
}

#[test]
fn only_signaled_work_completes_visibly() {
    let mut p = Pair::new(Setup {
        sq_sig_all: false,
        ..Setup::rc()
    });
    let to = p.b.world.register(vec![0; 8]);
    let op = SendOp::Write {
        remote_addr: to.addr,
        rkey: to.key,
    };
    for id in 0..10 {
        let flags = if id % 4 == 3 {
            SendFlags::SIGNALED
        } else {
            SendFlags::empty()
        };
        p.a.send_flags(id, op, &[], flags);
    }
    p.drive();
    assert_eq!(
        p.a.world.send_statuses(),
        [(3, WcStatus::Success), (7, WcStatus::Success)]
    );
    assert_eq!(p.a.qp.sends_pending(), 0);
}

#[test]
fn acknowledgements_coalesce_within_a_batch() {
    let mut p = Pair::rc();
    p.random = Random(0);
    for id in 0..20 {
        p.b.recv(id, &[]);
        p.a.send(id, SendOp::Send, &[]);
    }
    p.drive();
    assert_eq!(p.a.world.sends().len(), 20);
    assert!(
        p.count(Way::ToA, Operation::Acknowledge) < 20,
        "{:?}",
        p.ops(Way::ToA)
    );
}

#[test]
fn numbers_wrap_within_a_message_and_within_a_read() {
    let mut p = Pair::rc();
    let data = pattern(256 * 40, 6);
    let from = p.a.world.register(data.clone());
    let to = p.b.world.register(vec![0; data.len()]);
    let back = p.a.world.register(vec![0; data.len()]);
    let all = data.len() as u32;
    p.a.send(
        1,
        SendOp::Write {
            remote_addr: to.addr,
            rkey: to.key,
        },
        &[from.sge(0, all)],
    );
    p.drive();
    assert!(p.seen.iter().any(|(_, _, n)| n.value() == 0));
    assert_eq!(p.b.world.bytes(to), data);

    let setup = Setup {
        attr: QpAttr {
            rq_psn: 0xff_fffe,
            sq_psn: 0xff_fffe,
            ..Setup::rc().attr
        },
        ..Setup::rc()
    };
    let mut q = Pair::new(setup);
    let from = q.b.world.register(data.clone());
    let to = q.a.world.register(vec![0; data.len()]);
    q.lose_nth(Way::ToA, Operation::ReadResponseMiddle, 5);
    q.a.send(
        1,
        SendOp::Read {
            remote_addr: from.addr,
            rkey: from.key,
        },
        &[to.sge(0, all)],
    );
    q.drive();
    assert_eq!(q.a.world.bytes(to), data);
    assert_eq!(q.a.qp.attrs().sq_psn, 38);
    assert_eq!(p.a.world.bytes(back).len(), data.len());
}

#[test]
fn window_bounds_what_is_in_flight_and_always_reopens() {
    for window in [1, 2, 3, 7, 64] {
        let mut p = Pair::new(Setup {
            window: Some(window),
            ..Setup::rc()
        });
        let data = pattern(256 * 50 + 7, 1);
        let from = p.a.world.register(data.clone());
        let to = p.b.world.register(vec![0; data.len()]);
        let back = p.a.world.register(vec![0; data.len()]);
        let all = data.len() as u32;
        p.a.send(
            1,
            SendOp::Write {
                remote_addr: to.addr,
                rkey: to.key,
            },
            &[from.sge(0, all)],
        );
        p.a.send(
            2,
            SendOp::Read {
                remote_addr: to.addr,
                rkey: to.key,
            },
            &[back.sge(0, all)],
        );
        p.pump();
        assert!(p.seen.len() <= window as usize);
        p.drive();
        assert_eq!(p.a.world.bytes(back), data);
        assert_eq!(p.a.qp.counters().timeouts, 0, "window {window} stalled");
        assert_eq!(p.a.qp.counters().retries, 0);
    }
}

#[test]
fn too_many_reads_stall_the_queue_in_order() {
    let mut setup = Setup::rc();
    setup.attr.max_rd_atomic = 2;
    setup.attr.max_dest_rd_atomic = 2;
    let mut p = Pair::new(setup);
    let from = p.b.world.register(pattern(600, 1));
    let to = p.a.world.register(vec![0; 6000]);
    for id in 0..5 {
        p.a.send(
            id,
            SendOp::Read {
                remote_addr: from.addr,
                rkey: from.key,
            },
            &[to.sge(id * 600, 600)],
        );
    }
    p.b.recv(1, &[]);
    p.a.send(5, SendOp::Send, &[]);
    p.pump();
    assert_eq!(
        p.ops(Way::ToB),
        [Operation::ReadRequest; 2],
        "the send waits behind the reads"
    );
    p.drive();
    assert_eq!(
        p.a.world.send_statuses(),
        [0, 1, 2, 3, 4, 5].map(|i| (i, WcStatus::Success))
    );
}

#[test]
fn fence_waits_for_reads_and_atomics_but_not_for_sends() {
    let mut p = Pair::rc();
    let from = p.b.world.register(pattern(600, 1));
    let to = p.a.world.register(vec![0; 600]);
    for id in 0..4 {
        p.b.recv(id, &[]);
    }
    p.a.send(0, SendOp::Send, &[]);
    p.a.send_flags(1, SendOp::Send, &[], SendFlags::FENCE);
    p.a.send(
        2,
        SendOp::Read {
            remote_addr: from.addr,
            rkey: from.key,
        },
        &[to.sge(0, 600)],
    );
    p.a.send(3, SendOp::Send, &[]);
    p.a.send_flags(4, SendOp::Send, &[], SendFlags::FENCE);
    p.pump();
    use Operation::*;
    assert_eq!(p.ops(Way::ToB), [SendOnly, SendOnly, ReadRequest, SendOnly]);
    p.drive();
    assert_eq!(p.a.world.sends().len(), 5);
}

#[test]
fn a_full_queue_refuses_until_work_completes() {
    let mut p = Pair::rc();
    for id in 0..32 {
        p.b.recv(id, &[]);
        p.a.send(id, SendOp::Send, &[]);
    }
    let wr = SendWr {
        wr_id: 99,
        op: SendOp::Send,
        flags: SendFlags::empty(),
        data: SendData::Sges(&[]),
        ud: None,
        xrc_srqn: 0,
    };
    assert_eq!(p.a.try_send(&wr), Err(PostError::QueueFull { limit: 32 }));
    let extra = RecvWr {
        wr_id: 1,
        sges: &[],
    };
    assert_eq!(
        p.b.qp.post_recv(p.b.now, &extra, &mut p.b.world),
        Err(PostError::QueueFull { limit: 32 })
    );
    p.drive();
    p.b.recv(40, &[]);
    p.a.try_send(&wr).unwrap();
    p.drive();
    assert_eq!(p.a.world.sends().len(), 33);
}

#[test]
fn local_invalidate_takes_its_turn() {
    let mut p = Pair::rc();
    let key = p.a.world.register(vec![0; 8]).key;
    p.a.world.invalidatable.push(key);
    p.b.recv(1, &[]);
    p.a.send(1, SendOp::Send, &[]);
    p.a.send(2, SendOp::LocalInv(key), &[]);
    p.pump();
    assert!(
        p.a.world.keys.get(key).is_none(),
        "later work may rely on it"
    );
    assert!(p.a.world.sends().is_empty(), "completions keep their order");
    p.drive();
    assert_eq!(
        p.a.world.send_statuses(),
        [(1, WcStatus::Success), (2, WcStatus::Success)]
    );
    assert_eq!(p.a.world.sends()[1].opcode, WcOpcode::LocalInv);
}

#[test]
fn send_with_invalidate_takes_the_key_before_the_completion() {
    let mut p = Pair::rc();
    let key = p.b.world.register(vec![0; 8]).key;
    p.b.world.invalidatable.push(key);
    let to = p.b.world.register(vec![0; 300]);
    let from = p.a.world.register(pattern(300, 1));
    p.b.recv(1, &[to.sge(0, 300)]);
    p.a.send(1, SendOp::SendInv(key), &[from.sge(0, 300)]);
    p.drive();
    let c = p.b.world.receives()[0];
    assert_eq!(
        (c.status, c.flags, c.invalidated_rkey),
        (WcStatus::Success, WcFlags::WITH_INV, key.0)
    );
    assert!(p.b.world.keys.get(key).is_none());
}

#[test]
fn both_sides_may_talk_at_once() {
    let mut p = Pair::rc();
    let data = [pattern(3000, 1), pattern(3000, 2)];
    let (ma, mb) = (
        p.a.world.register(data[0].clone()),
        p.b.world.register(data[1].clone()),
    );
    let (ra, rb) = (
        p.a.world.register(vec![0; 3000]),
        p.b.world.register(vec![0; 3000]),
    );
    p.a.send(
        1,
        SendOp::Read {
            remote_addr: mb.addr,
            rkey: mb.key,
        },
        &[ra.sge(0, 3000)],
    );
    p.b.send(
        1,
        SendOp::Read {
            remote_addr: ma.addr,
            rkey: ma.key,
        },
        &[rb.sge(0, 3000)],
    );
    p.drive();
    assert_eq!(p.a.world.bytes(ra), data[1]);
    assert_eq!(p.b.world.bytes(rb), data[0]);
}

#[test]
fn what_the_device_cannot_do_is_refused_at_post() {
    let mut p = Pair::rc();
    let wr = |op| SendWr {
        wr_id: 1,
        op,
        flags: SendFlags::empty(),
        data: SendData::Sges(&[]),
        ud: None,
        xrc_srqn: 0,
    };
    let (remote_addr, rkey) = (64, Key(1));
    assert_eq!(
        p.a.try_send(&wr(SendOp::AtomicWrite { remote_addr, rkey })),
        Err(PostError::AtomicLength {
            given: 0,
            needed: 8
        })
    );
    assert_eq!(
        p.a.try_send(&wr(SendOp::FetchAdd {
            remote_addr,
            rkey,
            add: 1
        })),
        Err(PostError::AtomicLength {
            given: 0,
            needed: 8
        })
    );
    let eight = [Sge {
        addr: 0,
        len: 8,
        lkey: Key(1),
    }];
    let misaligned = SendOp::FetchAdd {
        remote_addr: 65,
        rkey,
        add: 1,
    };
    assert_eq!(
        p.a.try_send(&SendWr {
            data: SendData::Sges(&eight),
            ..wr(misaligned)
        }),
        Err(PostError::AtomicMisaligned { addr: 65 })
    );
    let many = [Sge::default(); 33];
    assert_eq!(
        p.a.try_send(&SendWr {
            data: SendData::Sges(&many),
            ..wr(SendOp::Send)
        }),
        Err(PostError::TooManySges {
            given: 33,
            limit: 32
        })
    );
    let mut u = Pair::new(Setup::new(Transport::Uc));
    assert_eq!(
        u.a.try_send(&wr(SendOp::Read { remote_addr, rkey })),
        Err(PostError::OpNotForTransport)
    );
    assert_eq!(
        u.a.try_send(&wr(SendOp::SendInv(rkey))),
        Err(PostError::OpNotForTransport)
    );
    let mut d = Pair::new(Setup::new(Transport::Ud));
    assert_eq!(
        d.a.try_send(&wr(SendOp::Write { remote_addr, rkey })),
        Err(PostError::OpNotForTransport)
    );
    assert_eq!(d.a.try_send(&wr(SendOp::Send)), Err(PostError::NoAddress));
}
