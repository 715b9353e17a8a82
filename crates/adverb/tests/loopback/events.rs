//! Events that belong to no operation.

use std::time::Duration;

use adverb::transport::Rc;
use adverb::{AccessFlags, AsyncEventKind, EventSource};

use crate::{LONG, completions, context};

#[test]
fn a_peer_that_oversteps_its_rights_is_reported_to_the_owner() {
    let ctx = context();
    let pd = ctx.alloc_pd().unwrap();
    let cq = ctx.create_cq(64).build().unwrap();
    let [a, b] = [(); 2].map(|()| pd.create_qp::<Rc>(&cq).build().unwrap());
    a.connect(&b.endpoint()).unwrap();
    b.connect(&a.endpoint()).unwrap();
    assert_eq!(
        ctx.next_event(Some(Duration::from_millis(1))).unwrap(),
        None
    );
    let window = pd.expose(8, AccessFlags::REMOTE_READ).unwrap();
    a.post_write(pd.alloc_buf(8).unwrap(), window.remote())
        .unwrap();
    assert!(completions(&cq, 1)[0].result.is_err());
    let event = ctx.next_event(Some(LONG)).unwrap().unwrap();
    assert_eq!(event.kind, AsyncEventKind::QP_ACCESS_ERR);
    assert_eq!(event.source, EventSource::QueuePair(b.num()));
    // Everything got was acknowledged, so closing does not wait for anybody.
    drop((a, b));
}
