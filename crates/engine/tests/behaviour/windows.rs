//! Memory windows: what can be bound, who may use it, and how it ends.

use adverb_engine::*;
use adverb_wire::Operation;

use crate::harness::*;

const QP: QpNum = QpNum(0x12);

/// A region of 1000 bytes at 0x1000_0000 that windows may be bound to, and a window.
fn table(kind: WindowType, access: Access) -> (KeyTable<u8>, Key, Key) {
    let mut keys = KeyTable::new(10, 3);
    let spec = MrSpec {
        pd: PD,
        iova: 0x1000,
        len: 1000,
        access,
    };
    let region = keys.insert(spec, 1).unwrap();
    let window = keys.insert_window(PD, kind).unwrap();
    (keys, region, window)
}

fn bindable() -> Access {
    Access::LOCAL_WRITE | Access::MW_BIND
}

fn next(key: Key) -> Key {
    Key(key.0 & !0xff | key.0.wrapping_add(1) & 0xff)
}

fn bind_of(window: Key, region: Key) -> MwBind {
    MwBind {
        window,
        new_key: next(window),
        region,
        addr: 0x1100,
        len: 100,
        access: Access::REMOTE_WRITE | Access::LOCAL_WRITE,
    }
}

fn ask(key: Key, va: u64, len: u64) -> MemAccess {
    MemAccess {
        key,
        pd: PD,
        qp: QP,
        va,
        len,
        need: Access::REMOTE_WRITE,
        remote: true,
    }
}

#[test]
fn a_window_opens_its_range_and_no_more() {
    for kind in [WindowType::One, WindowType::Two] {
        let (mut keys, region, window) = table(kind, bindable());
        assert!(keys.resolve(&ask(window, 0x1100, 1)).is_err(), "not bound");
        keys.bind(&bind_of(window, region), PD, QP).unwrap();
        let key = next(window);
        assert_eq!(keys.resolve(&ask(key, 0x1100, 100)), Ok((&1, 0x100)));
        assert_eq!(keys.resolve(&ask(key, 0x1163, 1)), Ok((&1, 0x163)));
        assert!(matches!(
            keys.resolve(&ask(window, 0x1100, 1)),
            Err(KeyError::Unknown { .. })
        ));
        for (va, len) in [(0x10ff, 1), (0x1100, 101), (0x1164, 1), (u64::MAX, 2)] {
            assert!(matches!(
                keys.resolve(&ask(key, va, len)),
                Err(KeyError::Range { .. })
            ));
        }
        let read = MemAccess {
            need: Access::REMOTE_READ,
            ..ask(key, 0x1100, 1)
        };
        assert!(matches!(keys.resolve(&read), Err(KeyError::Denied { .. })));
        let local = MemAccess {
            remote: false,
            need: Access::empty(),
            ..ask(key, 0x1100, 1)
        };
        assert!(keys.resolve(&local).is_err(), "windows have no L_Key");
        let foreign = MemAccess {
            pd: SRQ_PD,
            ..ask(key, 0x1100, 1)
        };
        assert!(matches!(
            keys.resolve(&foreign),
            Err(KeyError::WrongPd { .. })
        ));
        let other_qp = MemAccess {
            qp: QpNum(0x99),
            ..ask(key, 0x1100, 1)
        };
        assert_eq!(keys.resolve(&other_qp).is_ok(), kind == WindowType::One);
    }
}

#[test]
fn binds_that_the_region_or_the_window_forbids_change_nothing() {
    let (mut keys, region, window) = table(WindowType::Two, bindable());
    let good = bind_of(window, region);
    let plain = MrSpec {
        pd: PD,
        iova: 0,
        len: 1000,
        access: Access::LOCAL_WRITE,
    };
    let unbindable = keys.insert(plain, 2).unwrap();
    let read_only = MrSpec {
        access: Access::MW_BIND,
        ..plain
    };
    let read_only = keys.insert(read_only, 3).unwrap();
    let zero_based = MrSpec {
        access: bindable() | Access::ZERO_BASED,
        ..plain
    };
    let zero_based = keys.insert(zero_based, 4).unwrap();
    let at_zero = MwBind { addr: 0, ..good };
    for bad in [
        MwBind { len: 0, ..good },
        MwBind { len: 1000, ..good },
        MwBind {
            addr: 0xfff,
            ..good
        },
        MwBind {
            region: Key(0),
            ..good
        },
        MwBind {
            region: window,
            ..good
        },
        MwBind {
            window: region,
            new_key: region,
            ..good
        },
        MwBind {
            access: Access::ON_DEMAND,
            ..good
        },
        MwBind {
            region: unbindable,
            ..at_zero
        },
        MwBind {
            region: read_only,
            ..at_zero
        },
        MwBind {
            region: zero_based,
            ..at_zero
        },
    ] {
        assert!(keys.bind(&bad, PD, QP).is_err(), "{bad:?}");
        assert_eq!(keys.windows_of(region), 0);
    }
    assert!(keys.bind(&good, SRQ_PD, QP).is_err());
    keys.bind(&good, PD, QP).unwrap();
    assert_eq!(keys.windows_of(region), 1);
    assert!(
        keys.bind(&good, PD, QP).is_err(),
        "type 2 is bound once only"
    );
    assert!(keys.resolve(&ask(good.new_key, 0x1100, 1)).is_ok());
}

/// IBTA 10.6.7.2.2: the consumer chooses the low 8 bits. Soft-RoCE and cards read no others.
#[test]
fn of_a_new_key_only_the_low_eight_bits_count() {
    for kind in [WindowType::One, WindowType::Two] {
        let (mut keys, region, window) = table(kind, bindable());
        let good = bind_of(window, region);
        let bind = MwBind {
            new_key: Key(!good.new_key.0 & !0xff | good.new_key.0 & 0xff),
            ..good
        };
        keys.bind(&bind, PD, QP).unwrap();
        assert!(keys.resolve(&ask(good.new_key, 0x1100, 100)).is_ok());
        assert!(matches!(
            keys.resolve(&ask(bind.new_key, 0x1100, 1)),
            Err(KeyError::Unknown { .. })
        ));
    }
}

#[test]
fn type_1_is_bound_again_and_unbound_by_nothing() {
    let (mut keys, region, window) = table(WindowType::One, bindable());
    let first = bind_of(window, region);
    keys.bind(&first, PD, QP).unwrap();
    let second = MwBind {
        new_key: next(first.new_key),
        addr: 0x1000,
        ..first
    };
    keys.bind(&second, PD, QP).unwrap();
    assert_eq!(keys.windows_of(region), 1);
    assert!(keys.resolve(&ask(first.new_key, 0x1100, 1)).is_err());
    assert!(keys.resolve(&ask(second.new_key, 0x1000, 1)).is_ok());
    assert!(matches!(
        keys.invalidate(second.new_key, PD, QP),
        Err(KeyError::NotInvalidatable { .. })
    ));
    let zero_based = MwBind {
        access: Access::REMOTE_READ | Access::ZERO_BASED,
        ..second
    };
    assert!(keys.bind(&zero_based, PD, QP).is_err());
    let nothing = MwBind {
        new_key: next(second.new_key),
        len: 0,
        region: Key(0),
        ..second
    };
    keys.bind(&nothing, PD, QP).unwrap();
    assert_eq!(keys.windows_of(region), 0);
    for key in [second.new_key, nothing.new_key] {
        assert!(keys.resolve(&ask(key, 0x1000, 1)).is_err());
    }
}

#[test]
fn type_2_is_invalidated_by_its_queue_pair_only() {
    let (mut keys, region, window) = table(WindowType::Two, bindable());
    let bind = MwBind {
        access: Access::REMOTE_WRITE | Access::ZERO_BASED,
        ..bind_of(window, region)
    };
    keys.bind(&bind, PD, QP).unwrap();
    let key = bind.new_key;
    assert_eq!(keys.resolve(&ask(key, 0, 100)), Ok((&1, 0x100)));
    assert!(keys.resolve(&ask(key, 0x1100, 1)).is_err(), "zero based");
    assert!(matches!(
        keys.invalidate(key, PD, QpNum(5)),
        Err(KeyError::WrongQp { .. })
    ));
    assert!(matches!(
        keys.invalidate(key, SRQ_PD, QP),
        Err(KeyError::WrongPd { .. })
    ));
    assert!(matches!(
        keys.invalidate(window, PD, QP),
        Err(KeyError::Unknown { .. })
    ));
    keys.invalidate(key, PD, QP).unwrap();
    assert!(matches!(
        keys.invalidate(key, PD, QP),
        Err(KeyError::NotBound { .. })
    ));
    assert!(keys.resolve(&ask(key, 0, 1)).is_err());
    assert_eq!(keys.windows_of(region), 0);
}

#[test]
fn windows_end_with_themselves_their_queue_pair_or_their_region() {
    let (mut keys, region, window) = table(WindowType::Two, bindable());
    let bind = bind_of(window, region);
    keys.bind(&bind, PD, QP).unwrap();
    let same = *keys.get(region).unwrap().0;
    assert!(matches!(
        keys.rereg(region, same),
        Err(KeyError::Bound { count: 1, .. })
    ));
    keys.release_windows_of(QpNum(5));
    assert_eq!(keys.windows_of(region), 1);
    keys.release_windows_of(QP);
    assert_eq!(keys.windows_of(region), 0);
    keys.rereg(region, same).unwrap();

    keys.bind(&bind, PD, QP).unwrap();
    keys.remove_window(window);
    assert_eq!((keys.windows_of(region), keys.len()), (0, 1));
    assert!(keys.resolve(&ask(bind.new_key, 0x1100, 1)).is_err());
    keys.remove_window(window);
    keys.remove_window(region);
    assert_eq!(keys.len(), 1, "a region is not a window");

    let window = keys.insert_window(PD, WindowType::Two).unwrap();
    let bind = bind_of(window, region);
    keys.bind(&bind, PD, QP).unwrap();
    assert!(keys.remove(window).is_none(), "a window is not a region");
    assert_eq!(keys.remove(region), Some(1));
    assert!(keys.resolve(&ask(bind.new_key, 0x1100, 1)).is_err());
    keys.remove_window(window);
    assert!(keys.is_empty());
}

/// Binds on b, so that a can write; in the order of b's send queue.
fn bound_pair() -> (Pair, Mr, Key) {
    let mut p = Pair::rc();
    let to = p.b.world.register_with(vec![0; 400], bindable(), PD);
    let window = p.b.world.keys.insert_window(PD, WindowType::Two).unwrap();
    let bind = MwBind {
        addr: to.addr + 100,
        len: 200,
        ..bind_of(window, to.key)
    };
    p.b.send(7, SendOp::BindMw(bind), &[]);
    p.drive();
    assert_eq!(p.b.world.send_statuses(), [(7, WcStatus::Success)]);
    assert_eq!(p.b.world.sends()[0].opcode, WcOpcode::BindMw);
    (p, to, bind.new_key)
}

fn write(p: &mut Pair, wr_id: u64, remote_addr: u64, rkey: Key) -> WcStatus {
    let from = p.a.world.register(pattern(50, 1));
    p.a.send(
        wr_id,
        SendOp::Write { remote_addr, rkey },
        &[from.sge(0, 50)],
    );
    p.drive();
    p.a.world.sends().last().unwrap().status
}

#[test]
fn a_bound_window_is_written_through_and_local_invalidation_ends_it() {
    let (mut p, to, key) = bound_pair();
    assert_eq!(write(&mut p, 1, to.addr + 250, key), WcStatus::Success);
    assert_eq!(p.b.world.bytes(to)[250..300], pattern(50, 1));
    p.b.send(8, SendOp::LocalInv(key), &[]);
    p.drive();
    assert_eq!(
        p.b.world.sends().last().map(|c| (c.opcode, c.status)),
        Some((WcOpcode::LocalInv, WcStatus::Success))
    );
    assert_eq!(write(&mut p, 2, to.addr + 250, key), WcStatus::RemAccessErr);
}

#[test]
fn a_send_can_invalidate_the_receivers_window() {
    let (mut p, to, key) = bound_pair();
    p.b.recv(1, &[]);
    p.a.send(1, SendOp::SendInv(key), &[]);
    p.drive();
    let receive = p.b.world.receives()[0];
    assert_eq!(receive.status, WcStatus::Success);
    assert_eq!(receive.invalidated_rkey, key.0);
    assert_eq!(write(&mut p, 2, to.addr + 100, key), WcStatus::RemAccessErr);
}

#[test]
fn a_failed_bind_completes_in_error_and_stops_the_queue() {
    let mut p = Pair::rc();
    let to =
        p.b.world
            .register_with(vec![0; 400], Access::LOCAL_WRITE, PD);
    let window = p.b.world.keys.insert_window(PD, WindowType::Two).unwrap();
    p.b.send(1, SendOp::BindMw(bind_of(window, to.key)), &[]);
    p.b.send(2, SendOp::Send, &[]);
    p.drive();
    assert_eq!(
        p.b.world.send_statuses(),
        [(1, WcStatus::MwBindErr), (2, WcStatus::WrFlushErr)]
    );
    assert_eq!(p.b.qp.state(), QpState::Err);
}

fn flushing(placement: u8, whole_region: bool, to: Mr, len: u32) -> SendOp {
    SendOp::Flush(FlushTarget {
        remote_addr: to.addr,
        len,
        rkey: to.key,
        placement,
        whole_region,
    })
}

/// A pair whose queue pairs allow FLUSH, and a region of b's that does.
fn flushable() -> (Pair, Mr) {
    let mut setup = Setup::rc();
    setup.attr.access |= Access::FLUSH_GLOBAL;
    let mut p = Pair::new(setup);
    let access = all_access() | Access::FLUSH_GLOBAL;
    let to = p.b.world.register_with(vec![0; 64], access, PD);
    (p, to)
}

#[test]
fn flush_and_atomic_write_complete_also_when_packets_are_lost() {
    for lost in [None, Some((Way::ToB, 1)), Some((Way::ToA, 1))] {
        for op in [Operation::Flush, Operation::AtomicWrite] {
            let (mut p, to) = flushable();
            match lost {
                Some((Way::ToB, n)) => p.lose_nth(Way::ToB, op, n),
                Some((Way::ToA, n)) => p.lose_nth(Way::ToA, Operation::ReadResponseOnly, n),
                None => {}
            }
            let (from, word) = (p.a.world.register(pattern(8, 9)), pattern(8, 9));
            let write = SendOp::AtomicWrite {
                remote_addr: to.addr + 8,
                rkey: to.key,
            };
            p.a.send(1, write, &[from.sge(0, 8)]);
            p.a.send(2, flushing(1, false, to, 16), &[]);
            p.a.send(3, flushing(1, true, to, 0), &[]);
            p.drive();
            let ended: Vec<_> =
                p.a.world
                    .sends()
                    .iter()
                    .map(|c| (c.opcode, c.status))
                    .collect();
            assert_eq!(
                ended,
                [
                    (WcOpcode::AtomicWrite, WcStatus::Success),
                    (WcOpcode::Flush, WcStatus::Success),
                    (WcOpcode::Flush, WcStatus::Success),
                ]
            );
            assert_eq!(p.b.world.bytes(to)[8..16], word);
        }
    }
}

#[test]
fn flush_needs_the_right_of_queue_pair_and_region() {
    let cases: [(bool, bool, u8, u32, WcStatus); 4] = [
        (false, true, 1, 8, WcStatus::RemInvReqErr),
        (true, false, 1, 8, WcStatus::RemAccessErr),
        (true, true, 2, 8, WcStatus::RemInvReqErr),
        (true, true, 1, 65, WcStatus::RemAccessErr),
    ];
    for (qp, region, placement, len, status) in cases {
        let mut setup = Setup::rc();
        setup.attr.access.set(Access::FLUSH_GLOBAL, qp);
        let mut p = Pair::new(setup);
        let mut access = all_access();
        access.set(Access::FLUSH_GLOBAL, region);
        let to = p.b.world.register_with(vec![0; 64], access, PD);
        p.a.send(1, flushing(placement, false, to, len), &[]);
        p.drive();
        assert_eq!(p.a.world.send_statuses(), [(1, status)]);
    }
}

#[test]
fn an_atomic_write_is_eight_aligned_bytes() {
    let (mut p, to) = flushable();
    let from = p.a.world.register(vec![0; 16]);
    let write = |remote_addr| SendOp::AtomicWrite {
        remote_addr,
        rkey: to.key,
    };
    let post = |a: &mut Node, op, len| {
        let sges = [from.sge(0, len)];
        a.try_send(&SendWr {
            wr_id: 1,
            op,
            flags: SendFlags::empty(),
            data: SendData::Sges(&sges),
            ud: None,
            xrc_srqn: 0,
        })
    };
    for len in [0, 4, 16] {
        assert!(matches!(
            post(&mut p.a, write(to.addr), len),
            Err(PostError::AtomicLength { needed: 8, .. })
        ));
    }
    assert!(matches!(
        post(&mut p.a, write(to.addr + 4), 8),
        Err(PostError::AtomicMisaligned { .. })
    ));
    let mut unable = Setup::rc();
    unable.attr.access = Access::REMOTE_READ;
    let mut p = Pair::new(unable);
    let to = p.b.world.register(vec![0; 8]);
    let from = p.a.world.register(vec![1; 8]);
    let write = SendOp::AtomicWrite {
        remote_addr: to.addr,
        rkey: to.key,
    };
    p.a.send(1, write, &[from.sge(0, 8)]);
    p.drive();
    assert_eq!(p.a.world.send_statuses(), [(1, WcStatus::RemInvReqErr)]);
    assert_eq!(p.b.world.bytes(to), [0; 8]);
}
