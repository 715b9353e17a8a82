//! Datagrams.

use adverb::transport::Ud;
use adverb::{AhAttr, Error, GRH_LEN};

use crate::{completions, context};

#[test]
fn a_datagram_arrives_and_can_be_answered() {
    let ctx = context();
    let pd = ctx.alloc_pd().unwrap();
    let cqs = [(); 2].map(|()| ctx.create_cq(64).build().unwrap());
    let [a, b] = [0, 1].map(|i| pd.create_qp::<Ud>(&cqs[i]).qkey(0x1234).build().unwrap());
    a.activate().unwrap();
    b.activate().unwrap();
    b.post_recv(pd.alloc_buf(GRH_LEN + 100).unwrap()).unwrap();
    a.post_recv(pd.alloc_buf(GRH_LEN + 100).unwrap()).unwrap();

    let there = pd
        .create_ah(&a.address_of(&b.endpoint()).unwrap())
        .unwrap()
        .to(b.num(), 0x1234);
    a.post_send_imm_to(pd.reg_mr(b"question".to_vec()).unwrap(), &there, 42)
        .unwrap();
    drop(there);
    let got = completions(&cqs[1], 1).pop().unwrap();
    let info = got.result.unwrap();
    assert_eq!(got.payload().unwrap(), b"question");
    assert_eq!(
        (info.imm, info.src_qp, info.has_grh),
        (Some(42), a.num(), true)
    );
    assert_eq!(info.byte_len as usize, GRH_LEN + 8);
    assert_eq!(got.sender(), Some(a.endpoint().gid));

    let back = AhAttr::new(got.sender().unwrap(), b.gid().index as u8);
    let back = pd
        .create_ah(&back)
        .unwrap()
        .to(info.src_qp, a.endpoint().qkey);
    b.post_send_to(pd.reg_mr(b"answer".to_vec()).unwrap(), &back)
        .unwrap();
    let done = completions(&cqs[0], 2);
    assert!(done.iter().any(|c| c.payload() == Some(b"answer")));
    assert!(done.iter().all(|c| c.result.is_ok()));
}

#[test]
fn a_datagram_with_the_wrong_key_is_dropped() {
    let ctx = context();
    let pd = ctx.alloc_pd().unwrap();
    let cq = ctx.create_cq(64).build().unwrap();
    let inbox = ctx.create_cq(64).build().unwrap();
    let a = pd.create_qp::<Ud>(&cq).build().unwrap();
    let b = pd.create_qp::<Ud>(&inbox).build().unwrap();
    a.activate().unwrap();
    b.activate().unwrap();
    b.post_recv(pd.alloc_buf(GRH_LEN + 8).unwrap()).unwrap();
    let ah = pd.create_ah(&a.address_of(&b.endpoint()).unwrap()).unwrap();
    a.post_send_to(pd.alloc_buf(8).unwrap(), &ah.to(b.num(), 1))
        .unwrap();
    a.post_send_imm_to(
        pd.alloc_buf(8).unwrap(),
        &ah.to(b.num(), b.endpoint().qkey),
        2,
    )
    .unwrap();
    drop(completions(&cq, 2));
    // Only the second one arrived.
    assert_eq!(
        completions(&inbox, 1).pop().unwrap().result.unwrap().imm,
        Some(2)
    );
}

#[test]
fn addresses_and_buffers_of_another_domain_are_refused() {
    let ctx = context();
    let (pd, other) = (ctx.alloc_pd().unwrap(), ctx.alloc_pd().unwrap());
    let cq = ctx.create_cq(64).build().unwrap();
    let qp = pd.create_qp::<Ud>(&cq).build().unwrap();
    qp.activate().unwrap();
    let foreign = other
        .create_ah(&qp.address_of(&qp.endpoint()).unwrap())
        .unwrap()
        .to(qp.num(), 0);
    let refused = qp
        .post_send_to(pd.alloc_buf(8).unwrap(), &foreign)
        .unwrap_err();
    assert!(matches!(refused.error, Error::Foreign { .. }), "{refused}");
    let bad = AhAttr {
        service_level: 16,
        ..qp.address_of(&qp.endpoint()).unwrap()
    };
    assert!(pd.create_ah(&bad).is_err());
}
