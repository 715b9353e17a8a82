//! Shared receive queues.

use adverb::transport::Rc;
use adverb::{AsyncEventKind, Error, EventSource};

use crate::{LONG, completions, context};

#[test]
fn several_queue_pairs_take_from_one_stock() {
    let ctx = context();
    let pd = ctx.alloc_pd().unwrap();
    let srq = pd.create_srq(16).unwrap();
    let inbox = ctx.create_cq(256).build().unwrap();
    let outbox = ctx.create_cq(256).build().unwrap();
    let pairs: Vec<_> = (0..3)
        .map(|_| {
            let sender = pd.create_qp::<Rc>(&outbox).build().unwrap();
            let receiver = pd.create_qp::<Rc>(&inbox).srq(&srq).build().unwrap();
            sender.connect(&receiver.endpoint()).unwrap();
            receiver.connect(&sender.endpoint()).unwrap();
            (sender, receiver)
        })
        .collect();
    for _ in 0..6 {
        srq.post_recv(pd.alloc_buf(32).unwrap()).unwrap();
    }
    assert_eq!((srq.outstanding(), srq.capacity()), (6, 16));
    let refused = pairs[0].1.post_recv(pd.alloc_buf(8).unwrap()).unwrap_err();
    assert!(
        matches!(refused.error, Error::Unsupported { .. }),
        "{refused}"
    );
    for (i, (sender, _)) in pairs.iter().enumerate() {
        for _ in 0..2 {
            sender
                .post_send(pd.reg_mr(vec![i as u8; 4]).unwrap())
                .unwrap();
        }
    }
    for done in completions(&inbox, 6) {
        let from = pairs
            .iter()
            .position(|(_, r)| r.num() == done.qp_num)
            .unwrap();
        assert_eq!(done.payload().unwrap(), [from as u8; 4]);
    }
    assert_eq!(srq.outstanding(), 0);
    assert!(completions(&outbox, 6).iter().all(|c| c.result.is_ok()));
}

#[test]
fn a_stock_that_runs_low_raises_one_event() {
    let ctx = context();
    let pd = ctx.alloc_pd().unwrap();
    let srq = pd.create_srq(8).unwrap();
    let cq = ctx.create_cq(64).build().unwrap();
    let sender = pd.create_qp::<Rc>(&cq).build().unwrap();
    let receiver = pd.create_qp::<Rc>(&cq).srq(&srq).build().unwrap();
    sender.connect(&receiver.endpoint()).unwrap();
    receiver.connect(&sender.endpoint()).unwrap();
    for _ in 0..3 {
        srq.post_recv(pd.alloc_buf(8).unwrap()).unwrap();
    }
    assert!(srq.set_limit(100).is_err());
    srq.set_limit(2).unwrap();
    for _ in 0..3 {
        sender.post_send(pd.alloc_buf(8).unwrap()).unwrap();
    }
    drop(completions(&cq, 6));
    loop {
        let event = ctx
            .next_event(Some(LONG))
            .unwrap()
            .expect("the limit was reached");
        if event.kind == AsyncEventKind::SRQ_LIMIT_REACHED {
            assert_eq!(event.source, EventSource::SharedReceiveQueue(srq.handle()));
            break;
        }
    }
}

#[test]
fn receives_outlive_the_queue_pairs_that_could_have_taken_them() {
    let ctx = context();
    let pd = ctx.alloc_pd().unwrap();
    let srq = pd.create_srq(4).unwrap();
    let cq = ctx.create_cq(64).build().unwrap();
    let qp = pd.create_qp::<Rc>(&cq).srq(&srq).build().unwrap();
    for _ in 0..4 {
        srq.post_recv(pd.alloc_buf(8).unwrap()).unwrap();
    }
    let refused = srq.post_recv(pd.alloc_buf(8).unwrap()).unwrap_err();
    assert!(refused.is_would_block(), "{refused}");
    assert!(qp.close().unwrap().is_empty());
    assert_eq!(srq.outstanding(), 4);
}

#[test]
fn handles_are_equal_when_they_are_to_the_same_object() {
    use std::collections::HashSet;
    let ctx = context();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(4).build().unwrap());
    assert!(ctx == ctx.clone() && ctx != context());
    assert!(pd == pd.clone() && pd != ctx.alloc_pd().unwrap());
    let other = ctx.create_cq(4).build().unwrap();
    #[allow(clippy::mutable_key_type, reason = "they hash by address")]
    let queues: HashSet<_> = [&cq, &other, &cq.clone()].into_iter().cloned().collect();
    assert_eq!(queues.len(), 2);
    let channel = ctx.create_channel().unwrap();
    assert!(channel == channel.clone() && channel != ctx.create_channel().unwrap());
    let srq = pd.create_srq(4).unwrap();
    assert!(srq == srq.clone() && srq != pd.create_srq(4).unwrap());
}

#[test]
fn a_vector_that_the_device_does_not_have_is_refused() {
    let ctx = context();
    let vectors = ctx.num_comp_vectors();
    assert!(vectors > 0);
    ctx.create_cq(4).comp_vector(vectors - 1).build().unwrap();
    assert!(ctx.create_cq(4).comp_vector(vectors).build().is_err());
}
