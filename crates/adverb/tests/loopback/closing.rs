//! States, errors of construction, and what happens to buffers when a queue pair ends.

use adverb::transport::{Rc, Ud};
use adverb::{
    AccessFlags, ConnectOptions, Error, Mtu, QpAttr, QpAttrMask, QpState, WcStatus, leaked_bytes,
};

use crate::{Pair, completions, context, success};

#[test]
fn an_aborted_queue_pair_gives_every_buffer_back() {
    let pair = Pair::<Rc>::new();
    for i in 0..5u8 {
        pair.b
            .post_recv(pair.pd.reg_mr(vec![i; 8]).unwrap())
            .unwrap();
    }
    pair.b.abort().unwrap();
    for (i, done) in completions(&pair.b_cq, 5).into_iter().enumerate() {
        assert_eq!(
            done.result.as_ref().unwrap_err().status,
            WcStatus::WR_FLUSH_ERR
        );
        let mut buf = done.into_buf().unwrap();
        buf.set_len(8).unwrap();
        assert_eq!(buf[0], i as u8);
    }
    // What is posted afterwards is flushed at once.
    let late = pair.b.post_recv(pair.pd.alloc_buf(8).unwrap()).unwrap();
    let done = completions(&pair.b_cq, 1).pop().unwrap();
    assert_eq!((done.id, done.result.is_err()), (late, true));
}

#[test]
fn closing_returns_what_was_outstanding() {
    let pair = Pair::<Rc>::new();
    let ids: Vec<_> = (0..3)
        .map(|_| pair.b.post_recv(pair.pd.alloc_buf(8).unwrap()).unwrap())
        .collect();
    let done = pair.b.close().unwrap();
    assert_eq!(done.iter().map(|c| c.id).collect::<Vec<_>>(), ids);
    assert!(done.iter().all(|c| c.result.is_err() && c.buffer.is_some()));
    assert_eq!(pair.b_cq.stale_completions(), 0);
}

#[test]
fn dropping_with_work_in_flight_frees_everything() {
    for _ in 0..20 {
        let pair = Pair::<Rc>::new();
        let window = pair.pd.expose(1 << 20, AccessFlags::REMOTE_WRITE).unwrap();
        for _ in 0..8 {
            pair.b.post_recv(pair.pd.alloc_buf(4096).unwrap()).unwrap();
            pair.a
                .post_write(pair.pd.alloc_buf(1 << 20).unwrap(), window.remote())
                .unwrap();
        }
        drop(pair);
    }
    assert_eq!(leaked_bytes(), 0);
}

#[test]
fn closing_one_queue_pair_keeps_the_completions_of_others() {
    let ctx = context();
    let pd = ctx.alloc_pd().unwrap();
    let cq = ctx.create_cq(128).build().unwrap();
    let [a, b, other] = [(); 3].map(|()| pd.create_qp::<Rc>(&cq).build().unwrap());
    a.connect(&b.endpoint()).unwrap();
    b.connect(&a.endpoint()).unwrap();
    other.post_recv(pd.alloc_buf(8).unwrap()).unwrap();
    let recv = b.post_recv(pd.alloc_buf(8).unwrap()).unwrap();
    let send = a
        .post_send(pd.reg_mr(b"survives".to_vec()).unwrap())
        .unwrap();
    drop(other);
    let done = completions(&cq, 2);
    assert!(done.iter().any(|c| c.id == send && c.result.is_ok()));
    assert!(
        done.iter()
            .any(|c| c.id == recv && c.payload() == Some(b"survives"))
    );
}

#[test]
fn a_new_queue_pair_in_an_old_place_starts_clean() {
    let ctx = context();
    let pd = ctx.alloc_pd().unwrap();
    let cq = ctx.create_cq(64).build().unwrap();
    let mut ids = std::collections::HashSet::new();
    for _ in 0..10 {
        let qp = pd.create_qp::<Rc>(&cq).build().unwrap();
        assert!(
            ids.insert(qp.post_recv(pd.alloc_buf(8).unwrap()).unwrap()),
            "an id came twice"
        );
    }
    assert_eq!(cq.stale_completions(), 0);
    assert_eq!(cq.poll(&mut Vec::new()).unwrap(), 0);
}

#[test]
fn a_completion_queue_that_could_overflow_is_refused() {
    let ctx = context();
    let pd = ctx.alloc_pd().unwrap();
    let cq = ctx.create_cq(64).build().unwrap();
    let room = cq.capacity();
    let fits = pd
        .create_qp::<Rc>(&cq)
        .max_send_wr(room - 10)
        .max_recv_wr(10)
        .build()
        .unwrap();
    match pd
        .create_qp::<Rc>(&cq)
        .max_send_wr(1)
        .max_recv_wr(0)
        .build()
    {
        Err(Error::CompletionQueueTooSmall {
            needed: 1,
            reserved,
            capacity,
        }) => {
            assert_eq!((reserved, capacity), (room, room));
        }
        other => panic!("{other:?}"),
    }
    drop(fits);
    assert!(
        pd.create_qp::<Rc>(&cq)
            .max_send_wr(1)
            .max_recv_wr(0)
            .build()
            .is_ok()
    );
}

#[test]
fn wrong_steps_are_explained_before_the_device_is_asked() {
    let ctx = context();
    let pd = ctx.alloc_pd().unwrap();
    let cq = ctx.create_cq(64).build().unwrap();
    let qp = pd.create_qp::<Rc>(&cq).build().unwrap();
    assert_eq!(qp.state().unwrap(), QpState::Init);
    let to = |state| QpAttr {
        state: Some(state),
        ..QpAttr::default()
    };
    assert!(matches!(
        qp.modify(&to(QpState::ReadyToSend)),
        Err(Error::Transition { .. })
    ));
    match qp.modify(&to(QpState::ReadyToReceive)) {
        Err(Error::MissingAttributes { missing, .. }) => assert!(missing.contains(QpAttrMask::AV)),
        other => panic!("{other:?}"),
    }
    assert_eq!(qp.state().unwrap(), QpState::Init);
    let too_long = ConnectOptions {
        timeout: 32,
        ..ConnectOptions::default()
    };
    qp.connect_with(&qp.endpoint(), &too_long).unwrap_err();
}

#[test]
fn connecting_twice_is_an_error_and_changes_nothing() {
    let pair = Pair::<Rc>::new();
    assert!(matches!(
        pair.a.connect(&pair.b.endpoint()),
        Err(Error::Transition { .. })
    ));
    let recv = pair.b.post_recv(pair.pd.alloc_buf(8).unwrap()).unwrap();
    pair.a.post_send(pair.pd.alloc_buf(8).unwrap()).unwrap();
    success(&pair.b_cq, recv).ok().unwrap();
}

#[test]
fn a_peer_that_is_not_there_is_an_error_completion() {
    let ctx = context();
    let pd = ctx.alloc_pd().unwrap();
    let cq = ctx.create_cq(64).build().unwrap();
    let qp = pd.create_qp::<Rc>(&cq).build().unwrap();
    let mut nobody = pd.create_qp::<Rc>(&cq).build().unwrap().endpoint();
    nobody.psn = 5;
    let hasty = ConnectOptions {
        timeout: 8,
        retry_count: 1,
        ..ConnectOptions::default()
    };
    // Refusing at once is as good as finding out later.
    if qp.connect_with(&nobody, &hasty).is_ok() {
        qp.post_send(pd.alloc_buf(8).unwrap()).unwrap();
        let done = completions(&cq, 1).pop().unwrap();
        assert_eq!(done.result.unwrap_err().status, WcStatus::RETRY_EXC_ERR);
    }
}

#[test]
fn a_receiver_that_is_never_ready_is_an_error_completion() {
    let hasty = ConnectOptions {
        rnr_retry: 1,
        min_rnr_timer: 1,
        ..ConnectOptions::default()
    };
    let pair = Pair::<Rc>::with(&hasty);
    pair.a.post_send(pair.pd.alloc_buf(8).unwrap()).unwrap();
    let done = completions(&pair.a_cq, 1).pop().unwrap();
    assert_eq!(done.result.unwrap_err().status, WcStatus::RNR_RETRY_EXC_ERR);
}

#[test]
fn sizes_beyond_the_device_are_named() {
    let ctx = context();
    let pd = ctx.alloc_pd().unwrap();
    let cq = ctx.create_cq(64).build().unwrap();
    match pd.create_qp::<Ud>(&cq).max_send_wr(u32::MAX).build() {
        Err(Error::Value {
            what: "max_send_wr",
            value,
            limit,
        }) => {
            assert_eq!(value, u64::from(u32::MAX));
            assert!(limit > 0);
        }
        other => panic!("{other:?}"),
    }
    assert!(pd.create_qp::<Ud>(&cq).max_send_wr(0).build().is_err());
    assert!(pd.create_qp::<Ud>(&cq).gid_index(250).build().is_err());
    assert!(ctx.create_cq(0).build().is_err());
}

#[test]
fn objects_of_two_contexts_do_not_mix() {
    let (one, two) = (context(), context());
    let cq = one.create_cq(64).build().unwrap();
    let refused = two.alloc_pd().unwrap().create_qp::<Rc>(&cq).build();
    assert!(matches!(refused, Err(Error::Foreign { .. })));
}

#[test]
fn devices_say_what_they_are() {
    let devices = adverb::devices().unwrap();
    assert!(
        devices
            .iter()
            .any(|d| d.origin() == adverb::Origin::Software)
    );
    match adverb::open("no-such-device") {
        Err(Error::NoDevice { available, .. }) => assert_eq!(available.len(), devices.len()),
        other => panic!("{other:?}"),
    }
    let ctx = adverb::open(devices[0].name()).unwrap();
    let attr = ctx.query_device().unwrap();
    assert!(attr.max_qp() > 0 && attr.max_cqe() > 0 && attr.ports() >= 1 && attr.has_atomics());
    assert_eq!(attr.guid(), ctx.device().guid());
    assert!(devices[0].uverbs_name().starts_with("uverbs"));
    assert_eq!(
        devices[0].sysfs_attribute("node_type").as_deref(),
        Some("1: CA")
    );
    assert_eq!(devices[0].sysfs_attribute("no such file"), None);
    let port = ctx.query_port(1).unwrap();
    assert!(port.is_active() && port.is_ethernet() && port.active_mtu() >= Mtu::B256);
    assert!(ctx.query_port(0).is_err() && ctx.query_port(200).is_err());
    let best = ctx.best_gid(1).unwrap();
    assert!(ctx.gid_table(1).unwrap().contains(&best));
    assert_eq!(ctx.query_gid(1, best.index).unwrap(), best.gid);
    assert!(best.gid.is_ipv4(), "{best:?}");
    assert_ne!(ctx.query_pkey(1, 0).unwrap(), 0);
}

#[test]
fn handles_can_go_to_other_threads() {
    fn both<T: Send + Sync>() {}
    both::<adverb::Device>();
    both::<adverb::Context>();
    both::<adverb::ProtectionDomain>();
    both::<adverb::CompletionQueue>();
    both::<adverb::CompletionChannel>();
    both::<adverb::QueuePair<Rc>>();
    both::<adverb::SharedReceiveQueue>();
    both::<adverb::AddressHandle>();
    both::<adverb::Buf>();
    both::<adverb::Exposed>();
    both::<adverb::Completion>();
    both::<Error>();
}
