//! Connections that do not come about.

use std::time::Duration;

use adverb::cm::{Failure, MAX_REJECT_DATA, Params, RejectReason};

use super::*;

#[test]
fn nobody_listens() {
    let free = listener();
    let address = free.local_addr().unwrap();
    let ends = Ends::on(&free.context().unwrap());
    let way = route(&free);
    drop(free);
    let error = way
        .connect(ends.qp(), &Params::default(), LONG)
        .unwrap_err();
    let text = error.to_string();
    assert!(text.contains(&address.to_string()), "{text}");
    assert!(text.contains("nobody listens on the port"), "{text}");
    assert!(matches!(
        failure(error),
        Failure::Rejected {
            reason: RejectReason::INVALID_SERVICE_ID,
            ..
        }
    ));
}

#[test]
fn a_refusal_becomes_an_io_error_of_that_kind() {
    let free = listener();
    let ends = Ends::on(&free.context().unwrap());
    let way = route(&free);
    drop(free);
    let error = way.connect(ends.qp(), &Params::default(), LONG);
    let error = std::io::Error::from(error.unwrap_err());
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
}

#[test]
fn a_rejection_brings_what_the_peer_says() {
    let listener = listener();
    let ends = Ends::on(&listener.context().unwrap());
    for len in [0, 1, MAX_REJECT_DATA] {
        let words = vec![7; len];
        let (asking, request) = asked(&listener, &ends, &Params::default());
        request.reject(&words).unwrap();
        match failure(asking.wait(LONG).unwrap_err()) {
            Failure::Rejected {
                reason: RejectReason::CONSUMER_DEFINED,
                private_data,
            } => {
                assert_eq!(private_data.len(), MAX_REJECT_DATA);
                assert_eq!(&private_data[..len], words);
                assert!(private_data[len..].iter().all(|b| *b == 0));
            }
            other => panic!("{other}"),
        }
    }
}

#[test]
fn too_long_a_rejection_still_rejects() {
    let listener = listener();
    let ends = Ends::on(&listener.context().unwrap());
    let (asking, request) = asked(&listener, &ends, &Params::default());
    let error = request.reject(&[0; MAX_REJECT_DATA + 1]).unwrap_err();
    assert!(matches!(
        error,
        Error::Value {
            value: 149,
            limit: 148,
            ..
        }
    ));
    let refused = failure(asking.wait(LONG).unwrap_err());
    assert!(matches!(refused, Failure::Rejected { .. }), "{refused}");
}

#[test]
fn requests_that_nobody_accepts_run_out_of_time() {
    let listener = listener();
    let ends = Ends::on(&listener.context().unwrap());
    let short = Some(Duration::from_millis(20));
    let error = route(&listener)
        .connect(ends.qp(), &Params::default(), short)
        .unwrap_err();
    assert!(matches!(failure(error), Failure::TimedOut { .. }));
    // The request was taken back, or fails when it is accepted.
    if let Some(request) = listener.accept(short).unwrap() {
        let late = request.accept(ends.qp(), &Params::default(), LONG);
        failure(late.unwrap_err());
    }
}

#[test]
fn a_peer_that_never_says_it_is_ready_is_not_waited_for_beyond_the_timeout() {
    let listener = listener();
    let ends = Ends::on(&listener.context().unwrap());
    let (_asking, request) = asked(&listener, &ends, &Params::default());
    let short = Some(Duration::from_millis(20));
    let error = request.accept(ends.qp(), &Params::default(), short);
    assert!(matches!(
        failure(error.unwrap_err()),
        Failure::TimedOut { .. }
    ));
}

#[test]
fn what_waits_at_a_listener_that_goes_is_refused() {
    let listener = listener();
    let ends = Ends::on(&listener.context().unwrap());
    let asking: Vec<_> = (0..4)
        .map(|_| {
            let way = route(&listener);
            way.start(ends.qp(), &Params::default()).unwrap()
        })
        .collect();
    let taken = listener.accept(LONG).unwrap().unwrap();
    drop(listener);
    drop(taken);
    for asking in asking {
        let refused = failure(asking.wait(LONG).unwrap_err());
        assert!(matches!(refused, Failure::Rejected { .. }), "{refused}");
    }
}
