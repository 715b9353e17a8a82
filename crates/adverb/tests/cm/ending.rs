//! Ends: from each side, at each step, and what is left of them.

use std::time::Duration;

use adverb::cm::{ConnectionEvent, Params};
use adverb::{QpState, WcStatus};

use super::*;

const OVER: Option<ConnectionEvent> = Some(ConnectionEvent::Disconnected);

#[test]
fn each_side_can_hang_up_and_both_hear_of_it() {
    let listener = listener();
    let ends = Ends::on(&listener.context().unwrap());
    for who in 0..2 {
        let (a, b) = pair(&listener, &ends);
        let (one, other) = if who == 0 { (a, b) } else { (b, a) };
        assert_eq!(other.try_event().unwrap(), None);
        let _ = other.post_recv(ends.pd.alloc_buf(64).unwrap()).unwrap();
        let _ = one.post_recv(ends.pd.alloc_buf(64).unwrap()).unwrap();
        one.disconnect().unwrap();
        one.disconnect().unwrap();
        for side in [&other, &one] {
            assert_eq!(side.next_event(LONG).unwrap(), OVER);
            assert_eq!(side.next_event(None).unwrap(), OVER);
            assert_eq!(side.try_event().unwrap(), OVER);
            assert_eq!(side.state().unwrap(), QpState::Error);
        }
        for c in ends.completions(2) {
            assert_eq!(c.result.unwrap_err().status, WcStatus::WR_FLUSH_ERR);
        }
        other.disconnect().unwrap();
        assert!(one.close(LONG).unwrap().is_empty());
        assert!(other.close(LONG).unwrap().is_empty());
    }
}

#[test]
fn both_can_hang_up_at_once() {
    let listener = listener();
    let ends = Ends::on(&listener.context().unwrap());
    for _ in 0..50 {
        let (a, b) = pair(&listener, &ends);
        std::thread::scope(|scope| {
            scope.spawn(|| a.disconnect().unwrap());
            scope.spawn(|| b.disconnect().unwrap());
        });
        assert_eq!(a.next_event(LONG).unwrap(), OVER);
        assert_eq!(b.next_event(LONG).unwrap(), OVER);
    }
}

#[test]
fn closing_returns_what_was_outstanding() {
    let listener = listener();
    let ends = Ends::on(&listener.context().unwrap());
    let (a, b) = pair(&listener, &ends);
    for _ in 0..3 {
        let _ = a.post_recv(ends.pd.alloc_buf(64).unwrap()).unwrap();
    }
    let short = Some(Duration::from_millis(20));
    let left = a.close(short).unwrap();
    assert_eq!(left.len(), 3);
    assert!(left.into_iter().all(|c| c.into_buf().is_some()));
    assert_eq!(b.next_event(LONG).unwrap(), OVER);
}

#[test]
fn a_dropped_connection_is_a_hang_up() {
    let listener = listener();
    let ends = Ends::on(&listener.context().unwrap());
    for who in 0..2 {
        let (a, b) = pair(&listener, &ends);
        let (one, other) = if who == 0 { (a, b) } else { (b, a) };
        let _ = one.post_recv(ends.pd.alloc_buf(64).unwrap()).unwrap();
        drop(one);
        assert_eq!(other.next_event(LONG).unwrap(), OVER);
    }
}

#[test]
fn every_step_can_be_dropped() {
    let listener = listener();
    let ends = Ends::on(&listener.context().unwrap());
    let usual = Params::default();
    let address = listener.local_addr().unwrap();
    drop(connector().start(address).unwrap());
    drop(route(&listener));
    assert!(listener.try_accept().unwrap().is_none());

    // Who asks gives up before the request is looked at, and after.
    let asking = route(&listener).start(ends.qp(), &usual).unwrap();
    drop(asking);
    if let Some(request) = listener.accept(Some(Duration::from_millis(50))).unwrap() {
        failure(request.accept(ends.qp(), &usual, LONG).unwrap_err());
    }
    let (asking, request) = asked(&listener, &ends, &usual);
    drop(asking);
    failure(request.accept(ends.qp(), &usual, LONG).unwrap_err());

    // A request that is dropped is rejected.
    let (asking, request) = asked(&listener, &ends, &usual);
    drop(request);
    failure(asking.wait(LONG).unwrap_err());

    // An acceptance that is dropped before the peer has answered.
    let (asking, request) = asked(&listener, &ends, &usual);
    drop(request.start(ends.qp(), &usual).unwrap());
    match asking.wait(LONG) {
        Ok(a) => assert_eq!(a.next_event(LONG).unwrap(), OVER),
        Err(error) => drop(failure(error)),
    }

    // An attempt that is dropped when the acceptance is there.
    let (asking, request) = asked(&listener, &ends, &usual);
    let accepting = request.start(ends.qp(), &usual).unwrap();
    drop(asking);
    match accepting.wait(LONG) {
        Ok(b) => assert_eq!(b.next_event(LONG).unwrap(), OVER),
        Err(error) => drop(failure(error)),
    }

    // All that a connection was made from.
    let (a, b) = pair(&listener, &ends);
    drop(listener);
    drop(ends);
    drop(a);
    assert_eq!(b.next_event(LONG).unwrap(), OVER);
    assert_eq!(adverb::leaked_bytes(), 0);
}

/// In a process of its own, which shares its port with none: others open descriptors meanwhile, and so does handing
/// packets to other processes.
#[test]
fn a_thousand_connections_leave_no_descriptor_behind() {
    const ALONE: &str = "ADVERB_TEST_ALONE";
    const NAME: &str = "ending::a_thousand_connections_leave_no_descriptor_behind";
    if env::var_os(ALONE).is_none() {
        let port = match env::var_os("ADVERB_LINKS") {
            Some(_) => "19094",
            None => "19093",
        };
        let output = Command::new(env::current_exe().unwrap())
            .args(["--exact", NAME, "--test-threads=1"])
            .env(ALONE, "1")
            .env("ADVERB_UDP_PORT", port)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        return assert!(output.status.success(), "{text}");
    }
    let listener = listener();
    let ends = Ends::on(&listener.context().unwrap());
    drop(pair(&listener, &ends));
    let before = descriptors();
    for round in 0..1000 {
        let (a, b) = pair(&listener, &ends);
        match round % 3 {
            0 => drop((a, b)),
            1 => drop((b, a)),
            _ => {
                a.disconnect().unwrap();
                assert_eq!(b.next_event(LONG).unwrap(), OVER);
                assert!(a.close(LONG).unwrap().is_empty());
            }
        }
        if round % 10 == 0 {
            let (asking, request) = asked(&listener, &ends, &Params::default());
            request.reject(b"no").unwrap();
            failure(asking.wait(LONG).unwrap_err());
        }
    }
    assert_eq!(descriptors(), before);
}
