//! What somebody gets who asks for a connection and is not to be trusted: whose timers are chosen to make us talk, or to
//! be remembered, or who asks in the name of a peer that we are connected with.

use adverb_engine::Instant;
use adverb_engine::cm::{Connection, ConnectionEvent, ConnectionState};
use adverb_wire::cm::{Mad, Message, RejReason, Rep, Req, Rtu};

use crate::net::*;

const OURS: u32 = 11;
const THEIRS: u32 = 22;

fn asked(timers: u8) -> Connection {
    let mut req = Req {
        local_id: THEIRS,
        local_response_timeout: timers,
        max_cm_retries: 15,
        ..request()
    };
    req.primary.ack_timeout = timers;
    Connection::requested(Instant::ZERO, OURS, 7, &req)
}

/// Lets time pass until the machine has no deadline; what it says, and when it said the last.
fn alone(machine: &mut Connection, from: Instant) -> (Vec<&'static str>, Instant) {
    let (mut said, mut now) = (Vec::new(), from);
    loop {
        while let Some(mad) = machine.poll_transmit(now) {
            said.push(mad.message.name());
        }
        while machine.poll_event().is_some() {}
        let Some(at) = machine.poll_timeout() else {
            return (said, now);
        };
        now = at;
        machine.handle_timeout(now);
    }
}

fn rtu() -> Mad {
    Mad {
        tid: 7,
        message: Message::Rtu(Rtu {
            local_id: THEIRS,
            remote_id: OURS,
            ..Rtu::default()
        }),
    }
}

/// As the side that was asked.
fn established() -> Connection {
    let mut machine = asked(20);
    machine.accept(Instant::ZERO, Rep::default()).unwrap();
    machine.poll_transmit(Instant::ZERO).unwrap();
    machine.handle(Instant::ZERO, &rtu()).unwrap();
    assert!(matches!(
        machine.poll_event(),
        Some(ConnectionEvent::Established { .. })
    ));
    machine
}

#[test]
fn the_shortest_timers_do_not_make_us_talk() {
    let mut machine = asked(0);
    machine.accept(Instant::ZERO, Rep::default()).unwrap();
    let mut said = Vec::new();
    let mut now = Instant::ZERO;
    while machine.state() == ConnectionState::RepSent {
        while let Some(mad) = machine.poll_transmit(now) {
            said.push((mad.message.name(), now.as_nanos()));
        }
        now = machine.poll_timeout().unwrap();
        machine.handle_timeout(now);
    }
    let kernels = 4096 << 20;
    let expected: Vec<_> = (0..=15).map(|n| ("REP", n * kernels)).collect();
    assert_eq!(said, expected);
    let (last, _) = alone(&mut machine, now);
    assert_eq!(last, ["REJ"]);
}

#[test]
fn the_longest_timers_do_not_make_us_remember() {
    let mut refused = asked(31);
    let nothing = [0; adverb_wire::cm::Rej::PRIVATE];
    refused
        .reject(Instant::ZERO, RejReason::CONSUMER_DEFINED, nothing)
        .unwrap();
    let (said, end) = alone(&mut refused, Instant::ZERO);
    assert_eq!(said, ["REJ"]);
    assert_eq!(end.as_nanos(), 10 * SECOND);
    assert!(refused.is_over());

    let mut unanswered = asked(31);
    unanswered.accept(Instant::ZERO, Rep::default()).unwrap();
    let (_, end) = alone(&mut unanswered, Instant::ZERO);
    assert!(unanswered.is_over());
    assert!(
        end.as_nanos() < 150 * SECOND,
        "{} s",
        end.as_nanos() / SECOND
    );
}

#[test]
fn a_peer_that_still_knows_the_connection_keeps_it() {
    let mut machine = established();
    machine.probe(Instant::ZERO);
    // Once, however often somebody asks in the peer's name.
    machine.probe(Instant::ZERO);
    let question = machine.poll_transmit(Instant::ZERO).unwrap();
    assert!(matches!(question.message, Message::Rep(_)));
    assert_eq!(machine.poll_transmit(Instant::ZERO), None);
    machine.handle(Instant::ZERO, &rtu()).unwrap();
    assert_eq!(machine.state(), ConnectionState::Established);
    assert_eq!(machine.poll_timeout(), None);
    assert_eq!(machine.poll_event(), None, "nothing has happened");
    // Without a question an RTU is one too many, as before.
    machine.handle(Instant::ZERO, &rtu()).unwrap_err();
}

#[test]
fn a_peer_that_is_silent_has_forgotten() {
    let mut machine = established();
    machine.probe(Instant::ZERO);
    let mut now = Instant::ZERO;
    let mut said = Vec::new();
    while machine.state() == ConnectionState::Established {
        said.extend(std::iter::from_fn(|| machine.poll_transmit(now)).map(|m| m.message.name()));
        now = machine.poll_timeout().unwrap();
        machine.handle_timeout(now);
    }
    assert_eq!(said, ["REP"; 16]);
    assert_eq!(machine.state(), ConnectionState::DreqSent);
}

#[test]
fn the_side_that_asked_does_not_probe() {
    let mut machine = Connection::connect(Instant::ZERO, OURS, 7, request());
    machine.poll_transmit(Instant::ZERO).unwrap();
    machine.probe(Instant::ZERO);
    assert_eq!(machine.poll_transmit(Instant::ZERO), None);
}
