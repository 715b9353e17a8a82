//! From REQ to RTU, or to the end of the hope for it.

use adverb_engine::cm::{CmDrop, CmError, Connection, ConnectionEvent, ConnectionState};
use adverb_engine::{Instant, cm};
use adverb_wire::cm::{Mad, Message, Mra, Rej, RejReason, Rep, Req, Rtu};

use crate::net::*;

#[test]
fn three_messages_connect() {
    let mut net = Net::calm([Plan::willing(); 2]);
    net.connect();
    net.run();
    assert_eq!(net.said, [(A, "REQ"), (B, "REP"), (A, "RTU")]);
    assert_eq!(net.told(A), ["response"]);
    assert_eq!(net.told(B), ["established"]);
    for (host, peer) in [(A, B), (B, A)] {
        let machine = &net.hosts[host].entries[0].machine;
        let other = &net.hosts[peer].entries[0].machine;
        assert_eq!(machine.state(), ConnectionState::Established);
        assert_eq!(machine.poll_timeout(), None);
        assert_eq!(machine.remote_id(), Some(other.local_id()));
        assert_eq!(machine.remote_qpn(), other.local_qpn());
        assert_eq!(machine.remote_guid(), Some(net.hosts[peer].guid));
        assert_eq!(
            machine.req().local_id,
            net.hosts[A].entries[0].machine.local_id()
        );
    }
}

/// Trap 52.
#[test]
fn private_data_arrives_at_its_full_length() {
    let mut net = Net::calm([Plan::willing(); 2]);
    net.connect();
    net.run();
    let asked = net.hosts[B].entries[0].machine.req().private;
    assert!(asked.starts_with(b"please\0") && asked[6..] == [0; Req::PRIVATE - 6]);
    let [ConnectionEvent::Response(rep)] = net.hosts[A].entries[0].told[..] else {
        panic!("a response");
    };
    assert!(rep.private.starts_with(b"yes\0") && rep.private[3..] == [0; Rep::PRIVATE - 3]);
}

#[test]
fn a_refusal_carries_reason_and_private_data() {
    let unwilling = Plan {
        on_request: Some((Act::Reject, MS)),
        ..Plan::default()
    };
    let mut net = Net::calm([Plan::willing(), unwilling]);
    net.connect();
    net.run();
    assert_eq!(net.said, [(A, "REQ"), (B, "REJ")]);
    let [ConnectionEvent::Rejected { reason, private }] = net.hosts[A].entries[0].told[..] else {
        panic!("rejected");
    };
    assert_eq!(reason, RejReason::CONSUMER_DEFINED);
    assert!(private.starts_with(b"no\0") && private.len() == Rej::PRIVATE);
    assert_eq!(
        (net.state(A), net.state(B)),
        (ConnectionState::Over, ConnectionState::Over)
    );
    assert!(net.told(B).is_empty());
}

/// Trap 54.
#[test]
fn where_nobody_listens_the_reason_is_8() {
    let mut net = Net::calm([Plan::willing(); 2]);
    net.hosts[B].listens = false;
    net.connect();
    net.run();
    assert!(matches!(
        net.hosts[A].entries[0].told[..],
        [ConnectionEvent::Rejected {
            reason: RejReason::INVALID_SERVICE_ID,
            ..
        }]
    ));
    assert!(net.hosts[B].entries.is_empty());
}

#[test]
fn the_side_that_asked_may_refuse_the_answer() {
    let fickle = Plan {
        on_response: Some((Act::Reject, MS)),
        ..Plan::default()
    };
    // The REJ is lost, the REP comes again, the REJ goes out again.
    let mut net = Net::losing([fickle, Plan::willing()], "REJ", 1);
    net.connect();
    net.run();
    assert_eq!((net.count("REP"), net.count("REJ")), (2, 2));
    assert_eq!(net.told(B), ["rejected"]);
    assert_eq!(
        (net.state(A), net.state(B)),
        (ConnectionState::Over, ConnectionState::Over)
    );
}

/// Trap 54.
#[test]
fn a_repeated_request_gets_the_same_reply() {
    let mut net = Net::losing([Plan::willing(); 2], "REP", 3);
    net.connect();
    net.run();
    assert_eq!(net.hosts[B].entries.len(), 1, "one request is shown");
    assert_eq!(net.told(A), ["response"]);
    assert_eq!(net.told(B), ["established"]);
}

/// Trap 54. It is answered at once, not when the passive side's own patience ends.
#[test]
fn a_request_that_comes_twice_is_answered_twice_at_once() {
    let slow = Plan {
        on_response: Some((Act::Establish, SECOND)),
        ..Plan::willing()
    };
    let mut net = Net::repeating([slow, Plan::willing()], "REQ", 100 * MS);
    net.connect();
    net.run_for(500 * MS);
    assert_eq!((net.count("REQ"), net.count("REP")), (1, 2));
    // The second reply finds a user who thinks.
    assert_eq!(net.count("MRA"), 1);
    net.run();
    assert_eq!(net.told(A), ["response"]);
    assert_eq!(net.told(B), ["established"]);
}

#[test]
fn a_repeated_request_that_is_late_changes_nothing() {
    let mut net = Net::repeating([Plan::willing(); 2], "REQ", 100 * MS);
    net.connect();
    net.run();
    assert_eq!(net.hosts[B].entries.len(), 1);
    assert_eq!(net.told(B), ["established"]);
    assert_eq!(net.count("REP"), 1);
}

/// Trap 53.
#[test]
fn a_lost_rtu_is_made_up_for_by_the_repeated_rep() {
    let mut net = Net::losing([Plan::willing(); 2], "RTU", 2);
    net.connect();
    net.run();
    assert_eq!((net.count("REP"), net.count("RTU")), (3, 3));
    assert_eq!(net.told(A), ["response"]);
    assert_eq!(net.told(B), ["established"]);
}

/// Trap 53.
#[test]
fn data_before_the_rtu_establishes() {
    let mut net = Net::losing([Plan::willing(); 2], "RTU", usize::MAX);
    net.connect();
    net.run_for(10 * MS);
    let id = net.hosts[B].entries[0].machine.local_id();
    assert_eq!(net.state(B), ConnectionState::RepSent);
    net.act(B, id, Act::Notify);
    assert_eq!(net.told(B), ["established"]);
    // Whoever says so a second time is right, and the reply is not repeated any more.
    net.act(B, id, Act::Notify);
    net.run();
    assert_eq!(net.told(B), ["established"]);
    assert_eq!(net.count("REP"), 1);
}

/// The RTU that comes after the data, or twice, is no second event.
#[test]
fn an_rtu_that_comes_late_or_twice_establishes_once() {
    let mut net = Net::repeating([Plan::willing(); 2], "RTU", 100 * MS);
    net.connect();
    net.run();
    assert_eq!(net.told(B), ["established"]);
}

#[test]
fn who_gets_no_answer_gives_up_after_sixteen_requests_and_says_so() {
    let mut net = Net::losing([Plan::willing(); 2], "REQ", usize::MAX);
    net.connect();
    net.run();
    assert_eq!(net.count("REQ"), 16);
    assert_eq!(net.told(A), ["unreachable"]);
    assert_eq!(net.said.last(), Some(&(A, "REJ")));
    assert_eq!(net.state(A), ConnectionState::Over);
    // 16 times 4.3 s and the way there and back, and then some in which the REJ is kept.
    let seconds = net.now.as_nanos() / SECOND;
    assert!((75..110).contains(&seconds), "{seconds}");
}

/// No answer has told the side that asked which ID it talks to: its last word is found by its GUID.
#[test]
fn a_side_that_gave_up_is_heard_while_the_user_thinks() {
    let thoughtful = Plan {
        on_request: None,
        ..Plan::willing()
    };
    let mut net = Net::losing([Plan::willing(), thoughtful], "MRA", usize::MAX);
    net.connect();
    net.run();
    assert_eq!(net.told(A), ["unreachable"]);
    assert!(matches!(
        net.hosts[B].entries[0].told[..],
        [ConnectionEvent::Rejected {
            reason: RejReason::TIMEOUT,
            ..
        }]
    ));
}

#[test]
fn a_reply_that_nobody_takes_up_ends_unreachable_on_both_sides() {
    let mut net = Net::losing([Plan::willing(); 2], "REP", usize::MAX);
    net.connect();
    net.run();
    // Who gives up first takes the other along.
    let (a, b) = (net.told(A), net.told(B));
    assert!(a == ["unreachable"] || a == ["rejected"], "{a:?}");
    assert!(b == ["unreachable"] || b == ["rejected"], "{b:?}");
}

/// An MRA goes out for a repetition only, and keeps the other side waiting for more than a minute.
#[test]
fn a_user_may_think_for_minutes() {
    let slow = Plan {
        on_request: Some((Act::Accept, 200 * SECOND)),
        ..Plan::willing()
    };
    let fast = Plan {
        on_response: Some((Act::Establish, 200 * SECOND)),
        ..Plan::willing()
    };
    let mut net = Net::calm([fast, slow]);
    net.connect();
    net.run();
    assert_eq!(net.told(A), ["response"]);
    assert_eq!(net.told(B), ["established"]);
    let (requests, replies, waits) = (net.count("REQ"), net.count("REP"), net.count("MRA"));
    assert!(requests <= 4 && replies <= 4, "{requests} {replies}");
    assert_eq!(waits, requests - 1 + replies - 1);
}

#[test]
fn an_answer_to_a_copy_of_the_request_is_turned_away() {
    let mut net = Net::calm([Plan::willing(); 2]);
    let id = net.connect();
    net.run();
    let tid = u64::from(id) << 8;
    let second = Rep {
        local_id: 77,
        remote_id: id,
        ..Rep::default()
    };
    let message = Message::Rep(second);
    let machine = &mut net.hosts[A].entries[0].machine;
    assert_eq!(machine.handle(net.now, &Mad { tid, message }), Ok(()));
    let Some(Mad {
        message: Message::Rej(rej),
        ..
    }) = machine.poll_transmit(net.now)
    else {
        panic!("a REJ");
    };
    assert_eq!(
        (rej.remote_id, rej.reason),
        (77, RejReason::INVALID_COMM_ID)
    );
    assert_eq!(machine.state(), ConnectionState::Established);
}

#[test]
fn strangers_change_nothing() {
    let mut net = Net::calm([Plan::willing(); 2]);
    net.connect();
    net.run();
    let machine = &mut net.hosts[B].entries[0].machine;
    let (local_id, remote_id) = (machine.remote_id().unwrap(), machine.local_id());
    let stranger = CmDrop::Stranger { message: "REJ" };
    for (local_id, remote_id) in [
        (local_id + 1, remote_id),
        (local_id, remote_id + 1),
        (local_id, 0),
    ] {
        let rej = Rej {
            local_id,
            remote_id,
            reason: RejReason::CONSUMER_DEFINED,
            ..Rej::default()
        };
        let mad = Mad {
            tid: 0,
            message: Message::Rej(rej),
        };
        assert_eq!(machine.handle(net.now, &mad), Err(stranger));
    }
    assert_eq!(machine.state(), ConnectionState::Established);
    let req = Message::Req(Req {
        local_id,
        ca_guid: 0xBAD,
        ..request()
    });
    let mad = Mad {
        tid: 0,
        message: req,
    };
    assert_eq!(
        machine.handle(net.now, &mad),
        Err(CmDrop::Stranger { message: "REQ" })
    );
}

#[test]
fn calls_that_the_state_does_not_allow_are_refused() {
    let now = Instant::ZERO;
    let mut active = Connection::connect(now, 1, 1, request());
    let state = ConnectionState::ReqSent;
    let refused = |call| Err(CmError::State { call, state });
    assert_eq!(active.accept(now, Rep::default()), refused("accept"));
    assert_eq!(active.established_by_user(now), refused("establish"));
    assert_eq!(active.notify_established(now), refused("notify"));
    assert_eq!(active.disconnect(now, [0; 220]), refused("disconnect"));
    assert_eq!(
        refused("accept").unwrap_err().to_string(),
        "cannot accept a connection in state ReqSent"
    );
    let mut passive = Connection::requested(now, 2, 1, &request());
    assert!(passive.established_by_user(now).is_err());
    assert!(passive.accept(now, Rep::default()).is_ok());
    assert!(passive.accept(now, Rep::default()).is_err());
}

/// What a peer asks for is kept in memory, so no field may ask for hours.
#[test]
fn no_peer_makes_us_wait_for_hours() {
    let now = Instant::ZERO;
    let mut machine = Connection::connect(now, 1, 1, request());
    let mra = Mra {
        local_id: 9,
        remote_id: 1,
        service_timeout: 31,
        ..Mra::default()
    };
    let mad = Mad {
        tid: 1,
        message: Message::Mra(mra),
    };
    machine.handle(now, &mad).unwrap();
    let until = machine.poll_timeout().unwrap();
    assert!(until.as_nanos() < 80 * SECOND, "{until:?}");

    let req = Req {
        local_response_timeout: 31,
        ..request()
    };
    let mut passive = Connection::requested(now, 2, 1, &req);
    passive.accept(now, Rep::default()).unwrap();
    assert!(passive.poll_timeout().unwrap().as_nanos() < 80 * SECOND);
}

/// The way to the cable takes time, too: the wait counts from when the message leaves.
#[test]
fn a_message_that_waits_for_the_link_costs_no_repetition() {
    let mut machine = Connection::connect(Instant::ZERO, 1, 1, request());
    let later = Instant::from_nanos(3 * SECOND);
    assert!(machine.poll_transmit(later).is_some());
    assert!(machine.poll_timeout().unwrap() > later.plus_nanos(4 * SECOND));
    assert!(machine.poll_transmit(later).is_none());
}

#[test]
fn messages_of_lookups_are_not_for_connections() {
    let mut machine = Connection::connect(Instant::ZERO, 1, 1, request());
    let message = Message::SidrRep(adverb_wire::cm::SidrRep {
        request_id: 1,
        ..Default::default()
    });
    let dropped = machine.handle(Instant::ZERO, &Mad { tid: 1, message });
    assert_eq!(
        dropped,
        Err(CmDrop::Kind {
            message: "SIDR_REP"
        })
    );
    let rtu = Message::Rtu(Rtu {
        local_id: 0,
        remote_id: 1,
        ..Rtu::default()
    });
    assert!(
        machine
            .handle(
                Instant::ZERO,
                &Mad {
                    tid: 1,
                    message: rtu
                }
            )
            .is_err()
    );
    assert!(
        cm::answer_stray(&Mad {
            tid: 1,
            message: rtu
        })
        .is_none()
    );
}
