//! A kernel's connections, with one of our machines in the place of one of the two kernels: it must say what that said.

#[path = "../../wire/tests/common/pcap.rs"]
mod pcap;

use adverb_engine::Instant;
use adverb_engine::cm::{Agreed, Connection, ConnectionEvent, ConnectionState};
use adverb_wire::cm::{Mad, Message, Rej, RejReason, Rep, Req};
use adverb_wire::{GSI_QPN, Packet};

/// The messages in the captures whose name begins so, file by file.
fn captured(prefix: &str) -> Vec<Vec<Mad>> {
    let mad = |ip: &Vec<u8>| {
        let udp = if ip[0] >> 4 == 4 { 20 } else { 40 };
        let packet = Packet::parse(&ip[udp + 8..ip.len() - 4]).expect("a packet");
        (packet.bth.dest_qp == GSI_QPN)
            .then(|| Mad::parse(packet.payload).expect("a message of the connection manager"))
    };
    pcap::all(prefix)
        .iter()
        .map(|path| pcap::read(path).iter().filter_map(mad).collect())
        .collect()
}

fn opening(mads: &[Mad]) -> (Mad, Req, Option<Rep>) {
    let [first, second, ..] = mads else {
        panic!("two messages");
    };
    let Message::Req(req) = first.message else {
        panic!("{first:?}");
    };
    match second.message {
        Message::Rep(rep) => (*first, req, Some(rep)),
        _ => (*first, req, None),
    }
}

/// Gives a machine what its peer said, and compares what it says with what was said in its place.
fn replay(mads: &[Mad], machine: &mut Connection, is_ours: impl Fn(&Mad) -> bool, rep: &Rep) {
    let now = Instant::ZERO;
    for mad in mads {
        if !is_ours(mad) {
            machine
                .handle(now, mad)
                .unwrap_or_else(|e| panic!("{mad:?}: {e}"));
            continue;
        }
        // What its user did at this point.
        match (&mad.message, machine.state()) {
            (Message::Rep(_), ConnectionState::ReqRcvd) => machine.accept(now, *rep).unwrap(),
            (Message::Rep(_), _) => {
                // Unanswered, so it is repeated when its time has come.
                let at = machine.poll_timeout().expect("a deadline");
                machine.handle_timeout(at);
            }
            (Message::Rtu(_), ConnectionState::RepRcvd) => {
                machine.established_by_user(now).unwrap();
            }
            (Message::Dreq(_) | Message::Drep(_), _) => machine.disconnect(now, [0; 220]).unwrap(),
            _ => {}
        }
        let said = machine.poll_transmit(now).expect("something to say");
        assert_eq!(said, *mad);
        assert_eq!(machine.poll_transmit(now), None);
    }
}

#[test]
fn our_active_side_says_what_a_kernel_s_said() {
    for name in ["cm_connect", "rping"] {
        for mads in captured(name) {
            let (first, req, rep) = opening(&mads);
            let rep = rep.expect("a connection");
            let mut machine = Connection::connect(Instant::ZERO, req.local_id, first.tid, req);
            let is_ours = |mad: &Mad| mad.message.local_id() == req.local_id;
            replay(&mads, &mut machine, is_ours, &rep);
            assert_eq!(machine.remote_id(), Some(rep.local_id));
            assert_eq!(machine.poll_event(), Some(ConnectionEvent::Response(rep)));
            assert_eq!(machine.poll_event(), Some(ConnectionEvent::Disconnected));
            let agreed = Agreed::active(&req, &rep);
            assert_eq!((agreed.dest_qpn, agreed.rq_psn), (rep.qpn, rep.psn));
            assert_eq!(agreed.timeout, req.primary.ack_timeout);
        }
    }
}

#[test]
fn our_passive_side_says_what_a_kernel_s_said() {
    for name in ["cm_connect", "cm_lost_rep", "rping"] {
        for mads in captured(name) {
            let (first, req, rep) = opening(&mads);
            let rep = rep.expect("a connection");
            let mut machine = Connection::requested(Instant::ZERO, rep.local_id, first.tid, &req);
            let is_ours = |mad: &Mad| mad.message.local_id() == rep.local_id;
            replay(&mads[1..], &mut machine, is_ours, &rep);
            assert!(matches!(
                machine.poll_event(),
                Some(ConnectionEvent::Established { .. })
            ));
            assert_eq!(machine.poll_event(), Some(ConnectionEvent::Disconnected));
        }
    }
}

#[test]
fn a_kernel_s_refusals_are_understood_and_ours_are_the_same() {
    for (name, expected) in [
        ("cm_nolisten", RejReason::INVALID_SERVICE_ID),
        ("cm_reject", RejReason::CONSUMER_DEFINED),
    ] {
        for mads in captured(name) {
            let now = Instant::ZERO;
            let (first, req, _) = opening(&mads);
            let Message::Rej(rej) = mads[1].message else {
                panic!("{mads:?}");
            };
            let mut active = Connection::connect(now, req.local_id, first.tid, req);
            active.handle(now, &mads[1]).unwrap();
            let Some(ConnectionEvent::Rejected { reason, private }) = active.poll_event() else {
                panic!("rejected");
            };
            assert_eq!((reason, private), (expected, rej.private));

            let ours = if expected == RejReason::INVALID_SERVICE_ID {
                adverb_engine::cm::refuse(&first, expected)
            } else {
                let mut passive = Connection::requested(now, rej.local_id, first.tid, &req);
                passive.reject(now, expected, rej.private).unwrap();
                passive.poll_transmit(now)
            };
            assert_eq!(ours, Some(mads[1]));
            assert_eq!(rej.private.len(), Rej::PRIVATE);
        }
    }
}
