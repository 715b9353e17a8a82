//! Connections that come about.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use adverb::cm::{Listener, MAX_ACCEPT_DATA, MAX_REQUEST_DATA, Params};
use adverb::transport::Rc;
use adverb::{AccessFlags, QpState};

use super::*;

#[test]
fn messages_go_both_ways() {
    let listener = listener();
    let ends = Ends::on(&listener.context().unwrap());
    let (a, b) = pair(&listener, &ends);
    assert_eq!(a.peer_addr(), Some(listener.local_addr().unwrap()));
    assert_eq!(a.local_addr(), b.peer_addr());
    assert_eq!(b.local_addr(), a.peer_addr());
    for (from, to) in [(&a, &b), (&b, &a)] {
        let _ = to.post_recv(ends.pd.alloc_buf(64).unwrap()).unwrap();
        let _ = from
            .post_send(ends.pd.reg_mr(b"over here".to_vec()).unwrap())
            .unwrap();
        let mut done = ends.completions(2);
        done.retain(|c| c.payload().is_some());
        assert_eq!(done[0].payload().unwrap(), b"over here");
    }
}

#[test]
fn one_sided_operations_work_as_deep_as_was_agreed() {
    let listener = listener();
    let ends = Ends::on(&listener.context().unwrap());
    let shallow = Params {
        initiator_depth: Some(3),
        responder_resources: Some(0),
        ..Params::default()
    };
    let (asking, request) = asked(&listener, &ends, &shallow);
    assert_eq!(
        (request.responder_resources(), request.initiator_depth()),
        (3, 0)
    );
    let window = ends
        .pd
        .expose_bytes(b"read me", AccessFlags::REMOTE_READ)
        .unwrap();
    let accepting = request.start(ends.qp(), &Params::default()).unwrap();
    let (a, b) = (asking.wait(LONG).unwrap(), accepting.wait(LONG).unwrap());
    for _ in 0..8 {
        let _ = a
            .post_read(ends.pd.alloc_buf(7).unwrap(), window.remote())
            .unwrap();
    }
    for c in ends.completions(8) {
        assert_eq!(c.into_buf().as_deref(), Some(&b"read me"[..]));
    }
    // The other side may start none.
    let refused = b.post_read(ends.pd.alloc_buf(7).unwrap(), window.remote());
    if refused.is_ok() {
        assert!(ends.completions(1)[0].result.is_err());
    }
}

#[test]
fn private_data_arrives_up_to_its_limit_filled_up_with_zeros() {
    let listener = listener();
    let ends = Ends::on(&listener.context().unwrap());
    for (ask, answer) in [(0, 0), (1, 1), (MAX_REQUEST_DATA, MAX_ACCEPT_DATA)] {
        let with = |n: usize| Params {
            private_data: (0..n).map(|i| i as u8 | 1).collect(),
            ..Params::default()
        };
        let (asking, request) = asked(&listener, &ends, &with(ask));
        let (said, rest) = request.private_data().split_at(ask);
        assert_eq!(said, with(ask).private_data);
        assert!(rest.iter().all(|b| *b == 0));
        let accepting = request.start(ends.qp(), &with(answer)).unwrap();
        let a = asking.wait(LONG).unwrap();
        let (said, rest) = a.private_data().split_at(answer);
        assert_eq!(said, with(answer).private_data);
        assert!(rest.iter().all(|b| *b == 0));
        assert!(accepting.wait(LONG).unwrap().private_data().is_empty());
    }
}

#[test]
fn contexts_are_shared_while_somebody_holds_them_and_queue_pairs_of_others_serve_too() {
    let listener = listener();
    let ctx = listener.context().unwrap();
    let way = route(&listener);
    assert_eq!(ctx.as_raw(), way.context().unwrap().as_raw());
    let own = ctx.device().open().unwrap();
    assert_ne!(own.as_raw(), ctx.as_raw());
    let ends = Ends::on(&own);
    let asking = way.start(ends.qp(), &Params::default()).unwrap();
    let request = listener.accept(LONG).unwrap().unwrap();
    assert_eq!(ctx.as_raw(), request.context().unwrap().as_raw());
    let accepting = request.start(ends.qp(), &Params::default()).unwrap();
    let a = asking.wait(LONG).unwrap();
    accepting.wait(LONG).unwrap();
    assert_eq!(a.state().unwrap(), QpState::ReadyToSend);
}

#[test]
fn two_threads_share_the_requests_of_a_listener() {
    const EACH: usize = 40;
    let listener = listener();
    let ends = Ends::on(&listener.context().unwrap());
    let accepted: Vec<usize> = thread::scope(|scope| {
        let accept = || {
            let mut count = 0;
            while let Some(request) = listener.accept(Some(Duration::from_secs(2))).unwrap() {
                let accepting = request.start(ends.qp(), &Params::default()).unwrap();
                accepting.wait(LONG).unwrap();
                count += 1;
            }
            count
        };
        let ask = || {
            for _ in 0..EACH {
                let a = route(&listener)
                    .connect(ends.qp(), &Params::default(), LONG)
                    .unwrap();
                assert!(a.close(LONG).unwrap().is_empty());
            }
            0
        };
        let threads = [
            scope.spawn(accept),
            scope.spawn(accept),
            scope.spawn(ask),
            scope.spawn(ask),
        ];
        threads.map(|t| t.join().unwrap()).to_vec()
    });
    assert_eq!(accepted.iter().sum::<usize>(), 2 * EACH, "{accepted:?}");
}

#[test]
fn a_shared_receive_queue_serves_connections() {
    let listener = listener();
    let ends = Ends::on(&listener.context().unwrap());
    let srq = ends.pd.create_srq(16).unwrap();
    let _ = srq.post_recv(ends.pd.alloc_buf(64).unwrap()).unwrap();
    let (asking, request) = asked(&listener, &ends, &Params::default());
    let qp = ends.pd.create_qp::<Rc>(&ends.cq).srq(&srq).build().unwrap();
    let accepting = request.start(qp, &Params::default()).unwrap();
    let (a, _b) = (asking.wait(LONG).unwrap(), accepting.wait(LONG).unwrap());
    let _ = a
        .post_send(ends.pd.reg_mr(b"shared".to_vec()).unwrap())
        .unwrap();
    let done = ends.completions(2);
    assert!(done.iter().any(|c| c.payload() == Some(b"shared")));
}

#[test]
fn the_source_can_be_chosen_and_names_are_looked_up() {
    if place().1 == Origin::System {
        return;
    }
    let listener = Listener::bind("localhost:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let source = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let way = Connector::new()
        .source(source)
        .resolve(("localhost", port), LONG);
    let way = way.unwrap();
    assert!(way.local_addr().unwrap().ip().is_loopback());
    assert_ne!(way.local_addr().unwrap().port(), 0);
}

#[test]
fn a_listener_on_all_devices_has_none_but_its_requests_do() {
    let (address, origin) = place();
    for any in [
        SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    ] {
        let listener = Listener::builder().origin(origin).bind(any).unwrap();
        assert!(listener.context().is_err());
        let to = (address, listener.local_addr().unwrap().port());
        let way = connector().resolve(to, LONG).unwrap();
        let ends = Ends::on(&way.context().unwrap());
        let asking = way.start(ends.qp(), &Params::default()).unwrap();
        let request = listener.accept(LONG).unwrap().unwrap();
        let ends = Ends::on(&request.context().unwrap());
        let accepting = request.start(ends.qp(), &Params::default()).unwrap();
        asking.wait(LONG).unwrap();
        accepting.wait(LONG).unwrap();
    }
}
