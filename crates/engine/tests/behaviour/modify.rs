//! States and attributes: what a modify needs, takes, refuses, and leaves alone.

use adverb_engine::qp::state::describe_transitions;
use adverb_engine::*;
use adverb_wire::Transport;

use crate::harness::*;

#[test]
fn transition_table_is_the_one_written_down() {
    let expected = include_str!("transitions.txt");
    let actual = describe_transitions();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(
            concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/tests/behaviour/transitions.txt"
            ),
            &actual,
        )
        .unwrap();
        return;
    }
    assert_eq!(
        actual, expected,
        "a wanted change is written down with BLESS=1"
    );
}

#[test]
fn a_refused_modify_changes_nothing() {
    let setup = Setup::rc();
    let mut p = Pair::unconnected(setup);
    p.a.enter_init(&setup);
    let before = p.a.qp.attrs();
    let attr = QpAttr {
        state: QpState::Rtr,
        path_mtu: 3,
        dest_qpn: 5,
        ..setup.attr
    };
    let path = AttrMask::AV | AttrMask::PATH_MTU | AttrMask::DEST_QPN | AttrMask::RQ_PSN;
    let rtr = AttrMask::STATE | path | AttrMask::MAX_DEST_RD_ATOMIC | AttrMask::MIN_RNR_TIMER;
    let (from, to) = (QpState::Init, QpState::Rtr);
    assert_eq!(
        p.a.modify(&attr, rtr - AttrMask::RQ_PSN),
        Err(ModifyError::Missing {
            from,
            to,
            missing: AttrMask::RQ_PSN
        })
    );
    assert_eq!(
        p.a.modify(&attr, rtr | AttrMask::TIMEOUT),
        Err(ModifyError::NotAllowed {
            from,
            to,
            extra: AttrMask::TIMEOUT
        })
    );
    for bit in [AttrMask::CAP, AttrMask::RATE_LIMIT, AttrMask::CUR_STATE] {
        assert_eq!(
            p.a.modify(&attr, rtr | bit),
            Err(ModifyError::NotAllowed {
                from,
                to,
                extra: bit
            })
        );
    }
    assert_eq!(
        p.a.modify(&attr, rtr | AttrMask::ALT_PATH),
        Err(ModifyError::Unsupported {
            what: AttrMask::ALT_PATH
        })
    );
    assert_eq!(
        p.a.modify(
            &QpAttr {
                path_mtu: 6,
                ..attr
            },
            rtr
        ),
        Err(ModifyError::Value {
            field: "path_mtu",
            value: 6,
            limit: 5
        })
    );
    assert_eq!(p.a.qp.attrs(), before);
    p.a.modify(&attr, rtr).unwrap();
    assert_eq!((p.a.qp.state(), p.a.qp.attrs().path_mtu), (QpState::Rtr, 3));
}

#[test]
fn values_are_checked_against_the_device() {
    let setup = Setup::rc();
    let mut p = Pair::unconnected(setup);
    p.a.enter_init(&setup);
    let init = |attr: QpAttr, mask| {
        (
            QpAttr {
                state: QpState::Init,
                ..attr
            },
            AttrMask::STATE | mask,
        )
    };
    for (attr, mask, field) in [
        (
            QpAttr {
                port: 2,
                ..setup.attr
            },
            AttrMask::PORT,
            "port",
        ),
        (
            QpAttr {
                pkey_index: 1,
                ..setup.attr
            },
            AttrMask::PKEY_INDEX,
            "pkey_index",
        ),
    ] {
        let (attr, mask) = init(attr, mask);
        let error = p.a.modify(&attr, mask).unwrap_err();
        assert!(
            matches!(error, ModifyError::Value { field: f, .. } if f == field),
            "{error}"
        );
    }
    let (attr, mask) = init(
        QpAttr {
            port: 0,
            ..setup.attr
        },
        AttrMask::PORT,
    );
    assert_eq!(
        p.a.modify(&attr, mask),
        Err(ModifyError::Invalid {
            field: "port",
            value: 0
        })
    );

    p.a.enter_rtr(&setup, 0x12);
    let rts = AttrMask::STATE
        | AttrMask::SQ_PSN
        | AttrMask::TIMEOUT
        | AttrMask::RETRY_CNT
        | AttrMask::RNR_RETRY
        | AttrMask::MAX_QP_RD_ATOMIC;
    let good = QpAttr {
        state: QpState::Rts,
        ..setup.attr
    };
    for (attr, field) in [
        (
            QpAttr {
                timeout: 32,
                ..good
            },
            "timeout",
        ),
        (
            QpAttr {
                retry_cnt: 8,
                ..good
            },
            "retry_cnt",
        ),
        (
            QpAttr {
                rnr_retry: 8,
                ..good
            },
            "rnr_retry",
        ),
        (
            QpAttr {
                max_rd_atomic: 17,
                ..good
            },
            "max_rd_atomic",
        ),
    ] {
        let error = p.a.modify(&attr, rts).unwrap_err();
        assert!(
            matches!(error, ModifyError::Value { field: f, .. } if f == field),
            "{error}"
        );
    }
    // Sequence numbers are cut to 24 bits, not refused.
    p.a.modify(
        &QpAttr {
            sq_psn: 0x5500_0007,
            ..good
        },
        rts,
    )
    .unwrap();
    assert_eq!(p.a.qp.attrs().sq_psn, 7);
}

#[test]
fn init_may_be_set_again_and_again() {
    let setup = Setup::rc();
    let mut p = Pair::unconnected(setup);
    p.a.enter_init(&setup);
    let attr = QpAttr {
        state: QpState::Init,
        access: Access::REMOTE_WRITE,
        ..setup.attr
    };
    p.a.modify(&attr, AttrMask::STATE | AttrMask::ACCESS_FLAGS)
        .unwrap();
    p.a.modify(&attr, AttrMask::PORT).unwrap();
    assert_eq!(p.a.qp.attrs().access, Access::REMOTE_WRITE);
}

#[test]
fn current_state_must_be_the_real_one() {
    let mut p = Pair::rc();
    let attr = QpAttr {
        state: QpState::Rts,
        cur_state: QpState::Rts,
        ..QpAttr::default()
    };
    p.a.modify(&attr, AttrMask::STATE | AttrMask::CUR_STATE)
        .unwrap();
    let stale = QpAttr {
        cur_state: QpState::Rtr,
        ..attr
    };
    assert_eq!(
        p.a.modify(&stale, AttrMask::STATE | AttrMask::CUR_STATE),
        Err(ModifyError::CurState {
            given: QpState::Rtr,
            actual: QpState::Rts
        })
    );
}

#[test]
fn reset_forgets_everything_without_a_completion() {
    let mut p = Pair::rc();
    let to = p.b.world.register(vec![0; 600]);
    let from = p.a.world.register(pattern(600, 1));
    p.a.recv(1, &[]);
    p.a.send(
        1,
        SendOp::Write {
            remote_addr: to.addr,
            rkey: to.key,
        },
        &[from.sge(0, 600)],
    );
    p.lose_first(Way::ToB, adverb_wire::Operation::WriteMiddle);
    p.step();
    for node in [&mut p.a, &mut p.b] {
        node.enter(QpState::Reset).unwrap();
        assert!(node.world.told.is_empty());
        assert_eq!((node.qp.sends_pending(), node.qp.poll_timeout()), (0, None));
    }
    p.no_sieve();
    p.drive();
    // And it can be connected anew.
    let setup = p.setup;
    for (node, peer) in [(&mut p.a, 0x12), (&mut p.b, 0x11)] {
        node.enter_init(&setup);
        node.enter_rtr(&setup, peer);
        node.enter_rts(&setup);
    }
    p.b.recv(5, &[]);
    p.a.send(2, SendOp::Send, &[]);
    p.drive();
    assert_eq!(p.a.world.send_statuses(), [(2, WcStatus::Success)]);
    assert_eq!(p.b.world.recv_statuses(), [(5, WcStatus::Success)]);
}

#[test]
fn posting_depends_on_the_state() {
    let setup = Setup::rc();
    let mut p = Pair::unconnected(setup);
    let send = SendWr {
        wr_id: 1,
        op: SendOp::Send,
        flags: SendFlags::empty(),
        data: SendData::Sges(&[]),
        ud: None,
        xrc_srqn: 0,
    };
    let recv = RecvWr {
        wr_id: 1,
        sges: &[],
    };
    let state = QpState::Reset;
    assert_eq!(p.a.try_send(&send), Err(PostError::WrongState { state }));
    assert_eq!(
        p.a.qp.post_recv(p.a.now, &recv, &mut p.a.world),
        Err(PostError::WrongState { state })
    );
    p.a.enter_init(&setup);
    assert_eq!(
        p.a.try_send(&send),
        Err(PostError::WrongState {
            state: QpState::Init
        })
    );
    p.a.qp.post_recv(p.a.now, &recv, &mut p.a.world).unwrap();
    p.a.enter_rtr(&setup, 0x12);
    assert_eq!(
        p.a.try_send(&send),
        Err(PostError::WrongState {
            state: QpState::Rtr
        })
    );
    p.a.enter_rts(&setup);
    p.a.try_send(&send).unwrap();
}

#[test]
fn first_request_in_rtr_announces_the_peer_once() {
    let setup = Setup::rc();
    let mut p = Pair::unconnected(setup);
    p.a.enter_init(&setup);
    p.a.enter_rtr(&setup, 0x12);
    p.a.enter_rts(&setup);
    p.b.enter_init(&setup);
    p.b.recv(1, &[]);
    p.b.recv(2, &[]);
    p.b.enter_rtr(&setup, 0x11);
    p.a.send(1, SendOp::Send, &[]);
    p.a.send(2, SendOp::Send, &[]);
    p.drive();
    // The request is executed and answered before the passive side can send itself.
    assert_eq!(p.a.world.sends().len(), 2);
    assert_eq!(p.b.world.events(), [QpEvent::CommEst]);
    assert!(matches!(p.b.world.told[0], Told::Event(_)));
}

#[test]
fn sqd_finishes_what_has_started_and_holds_the_rest() {
    let mut p = Pair::new(Setup {
        window: Some(2),
        ..Setup::rc()
    });
    let to = p.b.world.register(vec![0; 2000]);
    let from = p.a.world.register(pattern(2000, 1));
    p.a.send(
        1,
        SendOp::Write {
            remote_addr: to.addr,
            rkey: to.key,
        },
        &[from.sge(0, 2000)],
    );
    p.a.send(
        2,
        SendOp::Write {
            remote_addr: to.addr,
            rkey: to.key,
        },
        &[],
    );
    p.pump();
    let attr = QpAttr {
        state: QpState::Sqd,
        en_sqd_async_notify: true,
        ..QpAttr::default()
    };
    p.a.modify(&attr, AttrMask::STATE | AttrMask::EN_SQD_ASYNC_NOTIFY)
        .unwrap();
    assert!(p.a.qp.attrs().sq_draining);
    assert_eq!(p.a.enter(QpState::Rts), Err(ModifyError::StillDraining));
    p.a.send(
        3,
        SendOp::Write {
            remote_addr: to.addr,
            rkey: to.key,
        },
        &[],
    );
    p.drive();
    assert_eq!(p.a.world.send_statuses(), [(1, WcStatus::Success)]);
    assert_eq!(
        p.a.world.told.last(),
        Some(&Told::Event(QpEvent::SqDrained))
    );
    assert!(!p.a.qp.attrs().sq_draining);
    let attr = QpAttr {
        timeout: 9,
        ..QpAttr::default()
    };
    p.a.modify(&attr, AttrMask::TIMEOUT).unwrap();
    p.a.enter(QpState::Rts).unwrap();
    p.drive();
    assert_eq!(p.a.world.sends().len(), 3);
    assert_eq!(p.a.world.events().len(), 1);
    assert_eq!(p.a.qp.attrs().timeout, 9);
}

#[test]
fn an_idle_queue_is_drained_at_once() {
    let mut p = Pair::rc();
    let attr = QpAttr {
        state: QpState::Sqd,
        en_sqd_async_notify: true,
        ..QpAttr::default()
    };
    p.a.modify(&attr, AttrMask::STATE | AttrMask::EN_SQD_ASYNC_NOTIFY)
        .unwrap();
    assert_eq!(p.a.world.events(), [QpEvent::SqDrained]);
    // Without the wish there is no event.
    p.b.enter(QpState::Sqd).unwrap();
    assert!(p.b.world.events().is_empty());
}

#[test]
fn error_texts_say_what_is_missing() {
    let setup = Setup::rc();
    let mut p = Pair::unconnected(setup);
    let text = p.a.enter(QpState::Init).unwrap_err().to_string();
    assert!(
        text.contains("PKEY_INDEX") && text.contains("Reset to Init"),
        "{text}"
    );
    let text = p.a.enter(QpState::Rts).unwrap_err().to_string();
    assert_eq!(text, "RC queue pairs cannot go from Reset to Rts");
    assert_eq!(
        p.a.enter(QpState::Err),
        Err(ModifyError::BadTransition {
            from: QpState::Reset,
            to: QpState::Err,
            transport: "RC"
        })
    );
    let mut p = Pair::new(Setup::new(Transport::Ud));
    p.a.enter(QpState::Err).unwrap();
}
