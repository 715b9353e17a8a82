//! Parameters that do not exist, and objects that do not suit.

use std::net::SocketAddr;

use adverb::cm::{Listener, MAX_ACCEPT_DATA, MAX_REQUEST_DATA, Params};
use adverb::{QpAttr, QpState};

use super::*;

fn value(error: Error) -> (&'static str, u64, u64) {
    match error {
        Error::Value { what, value, limit } => (what, value, limit),
        other => panic!("{other}"),
    }
}

fn beyond() -> Vec<(Params, &'static str, u64, u64)> {
    let usual = Params::default;
    vec![
        (
            Params {
                retry_count: 8,
                ..usual()
            },
            "retry_count",
            8,
            7,
        ),
        (
            Params {
                rnr_retry: 8,
                ..usual()
            },
            "rnr_retry",
            8,
            7,
        ),
        (
            Params {
                min_rnr_timer: 32,
                ..usual()
            },
            "min_rnr_timer",
            32,
            31,
        ),
        (
            Params {
                ack_timeout: Some(32),
                ..usual()
            },
            "ack_timeout",
            32,
            31,
        ),
    ]
}

#[test]
fn parameters_beyond_their_limits_are_named_and_the_peer_hears_nothing() {
    let listener = listener();
    let ctx = listener.context().unwrap();
    let ends = Ends::on(&ctx);
    let device = ctx.query_device().unwrap();
    let answers = u8::try_from(device.max_rd_atomic()).unwrap();
    let starts = u8::try_from(device.max_init_rd_atomic()).unwrap();
    let mut cases = beyond();
    if answers < 255 && starts < 255 {
        let answered = Params {
            responder_resources: Some(answers + 1),
            ..Params::default()
        };
        let started = Params {
            initiator_depth: Some(255),
            ..Params::default()
        };
        let (a, s) = (u64::from(answers), u64::from(starts));
        cases.push((answered, "responder_resources", a + 1, a));
        cases.push((started, "initiator_depth", 255, s));
    }
    let data = |n: usize| Params {
        private_data: vec![1; n],
        ..Params::default()
    };
    let named = "private data, in bytes,";
    let mut ask = cases.clone();
    ask.push((data(MAX_REQUEST_DATA + 1), named, 57, 56));
    ask.push((data(1 << 16), named, 1 << 16, 56));
    for (params, what, given, limit) in ask {
        let error = route(&listener).start(ends.qp(), &params).unwrap_err();
        assert_eq!(value(error), (what, given, limit));
    }
    assert!(listener.try_accept().unwrap().is_none());
    cases.push((data(MAX_ACCEPT_DATA + 1), named, 197, 196));
    for (params, what, given, limit) in cases {
        let (asking, request) = asked(&listener, &ends, &Params::default());
        let error = request.start(ends.qp(), &params).unwrap_err();
        assert_eq!(value(error), (what, given, limit));
        failure(asking.wait(LONG).unwrap_err());
    }
}

#[test]
fn senseless_addresses_and_backlogs_are_errors() {
    let (address, origin) = place();
    let small = connector().resolve((address, 0), LONG).unwrap_err();
    assert!(matches!(small, Error::TooSmall { value: 0, .. }), "{small}");
    let none: &[SocketAddr] = &[];
    assert!(connector().resolve(none, LONG).is_err());
    let builder = || Listener::builder().origin(origin);
    assert!(builder().bind(none).is_err());
    assert!(matches!(
        builder().backlog(0).bind((address, 0)).unwrap_err(),
        Error::TooSmall {
            what: "backlog",
            value: 0,
            least: 1
        }
    ));
    let error = builder().backlog(1 << 31).bind((address, 0)).unwrap_err();
    assert_eq!(value(error), ("backlog", 1 << 31, (1 << 31) - 1));
    builder().backlog(1).bind((address, 0)).unwrap();
    // Of a network for documentation: nobody has it.
    let foreign = builder().bind("192.0.2.77:0").unwrap_err();
    assert!(foreign.to_string().contains("192.0.2.77"), "{foreign}");
}

#[test]
fn a_port_is_taken_once() {
    let (_, origin) = place();
    let first = listener();
    let address = first.local_addr().unwrap();
    let second = Listener::builder().origin(origin).bind(address);
    let error = second.unwrap_err();
    assert_eq!(error.errno(), Some(libc::EADDRINUSE), "{error}");
    drop(first);
    Listener::builder().origin(origin).bind(address).unwrap();
}

#[test]
fn a_queue_pair_that_is_not_fresh_does_not_suit() {
    let listener = listener();
    let ends = Ends::on(&listener.context().unwrap());
    let qp = ends.qp();
    qp.abort().unwrap();
    let error = route(&listener).start(qp, &Params::default()).unwrap_err();
    assert!(matches!(
        error,
        Error::Transition {
            from: QpState::Error,
            ..
        }
    ));
    let qp = ends.qp();
    qp.modify(&QpAttr {
        state: Some(QpState::Reset),
        ..QpAttr::default()
    })
    .unwrap();
    let error = route(&listener).start(qp, &Params::default()).unwrap_err();
    assert!(matches!(error, Error::Transition { .. }), "{error}");
}

#[test]
fn a_queue_pair_on_another_device_does_not_suit() {
    let listener = listener();
    let here = listener.context().unwrap();
    let others = adverb::devices().unwrap();
    let Some(other) = others.iter().find(|d| d.name() != here.device().name()) else {
        eprintln!("skipped: one device only");
        return;
    };
    let ends = Ends::on(&other.open().unwrap());
    let error = route(&listener)
        .start(ends.qp(), &Params::default())
        .unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::OtherDevice { .. }), "{text}");
    assert!(text.contains(other.name()) && text.contains(here.device().name()));
}
