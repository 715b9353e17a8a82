//! Lookups of datagram services, both ends.

use adverb_engine::Instant;
use adverb_engine::cm::{CmDrop, CmError, Inquiry, Lookup, LookupEvent, refuse};
use adverb_wire::cm::{Mad, Message, RejReason, ServiceId, SidrRep, SidrReq, SidrStatus, padded};

use crate::net::{MS, Random, SECOND, request};

const SERVICE: ServiceId = ServiceId(0x0111_1D2F);

fn question() -> SidrReq {
    SidrReq {
        service_id: SERVICE,
        private: padded(b"who?").expect("it fits"),
        ..SidrReq::default()
    }
}

fn ask(now: Instant) -> (Lookup, Mad) {
    let mut lookup = Lookup::new(now, 7, 70, question());
    let mad = lookup.poll_transmit(now).expect("the question");
    (lookup, mad)
}

fn inquiry(now: Instant, mad: &Mad) -> Inquiry {
    let Message::SidrReq(req) = &mad.message else {
        panic!("a question");
    };
    Inquiry::requested(now, mad.tid, req)
}

fn answer() -> SidrRep {
    SidrRep {
        qpn: 0x53,
        qkey: 0x0123_4567,
        private: padded(b"me").expect("it fits"),
        ..SidrRep::default()
    }
}

#[test]
fn a_question_and_an_answer() {
    let now = Instant::ZERO;
    let (mut lookup, mad) = ask(now);
    let mut inquiry = inquiry(now, &mad);
    assert!(inquiry.request().private.starts_with(b"who?\0"));
    assert_eq!(inquiry.poll_transmit(now), None, "its user has not spoken");
    inquiry.answer(now, answer()).unwrap();
    assert_eq!(inquiry.answer(now, answer()), Err(CmError::Answered));
    let rep = inquiry.poll_transmit(now).unwrap();
    assert_eq!(rep.tid, 70);
    assert_eq!(lookup.handle(now, &rep), Ok(()));
    let expected = SidrRep {
        request_id: 7,
        service_id: SERVICE,
        ..answer()
    };
    assert_eq!(lookup.poll_event(), Some(LookupEvent::Answer(expected)));
    assert!(lookup.is_over() && lookup.poll_timeout().is_none());
    // A copy of the answer finds nobody who asks.
    let dropped = Err(CmDrop::Stranger {
        message: "SIDR_REP",
    });
    assert_eq!(lookup.handle(now, &rep), dropped);
    assert_eq!(lookup.poll_event(), None);
}

/// Trap 54, for datagrams.
#[test]
fn a_repeated_question_gets_the_same_answer_for_a_while() {
    let mut now = Instant::ZERO;
    let (_, mad) = ask(now);
    let mut inquiry = inquiry(now, &mad);
    assert_eq!(inquiry.handle(now, &mad), Ok(()));
    assert_eq!(inquiry.poll_transmit(now), None);
    inquiry.answer(now, answer()).unwrap();
    let first = inquiry.poll_transmit(now);
    for _ in 0..3 {
        now = now.plus_nanos(5 * SECOND);
        inquiry.handle_timeout(now);
        assert!(!inquiry.is_over());
        inquiry.handle(now, &mad).unwrap();
        assert_eq!(inquiry.poll_transmit(now), first);
        assert_eq!(inquiry.poll_transmit(now), None);
    }
    now = inquiry.poll_timeout().unwrap();
    inquiry.handle_timeout(now);
    assert!(inquiry.is_over());
}

#[test]
fn a_lookup_that_nobody_answers_asks_sixteen_times() {
    let mut now = Instant::ZERO;
    let (mut lookup, first) = ask(now);
    let mut asked = 1;
    while let Some(at) = lookup.poll_timeout() {
        now = at;
        lookup.handle_timeout(now);
        while let Some(mad) = lookup.poll_transmit(now) {
            assert_eq!(mad, first);
            asked += 1;
        }
    }
    assert_eq!(asked, 16);
    assert_eq!(lookup.poll_event(), Some(LookupEvent::Unreachable));
    assert!(lookup.is_over());
    assert!((68..70).contains(&(now.as_nanos() / SECOND)));
}

#[test]
fn who_does_not_listen_says_so() {
    let (mut lookup, mad) = ask(Instant::ZERO);
    for (reason, status) in [
        (RejReason::NO_RESOURCES, SidrStatus::REJECT),
        (RejReason::INVALID_SERVICE_ID, SidrStatus::UNSUPPORTED),
    ] {
        let refused = refuse(&mad, reason).unwrap();
        let Message::SidrRep(rep) = refused.message else {
            panic!("an answer");
        };
        assert_eq!((rep.status, rep.request_id, refused.tid), (status, 7, 70));
        assert_eq!(rep.service_id, SERVICE);
    }
    let refused = refuse(&mad, RejReason::INVALID_SERVICE_ID).unwrap();
    lookup.handle(Instant::ZERO, &refused).unwrap();
    assert!(matches!(
        lookup.poll_event(),
        Some(LookupEvent::Answer(rep)) if rep.status == SidrStatus::UNSUPPORTED
    ));
    assert_eq!(
        refuse(&refused, RejReason::NO_QP),
        None,
        "no answer to an answer"
    );
}

#[test]
fn messages_for_others_are_dropped() {
    let now = Instant::ZERO;
    let (mut lookup, mad) = ask(now);
    let mut inquiry = inquiry(now, &mad);
    let req = Mad {
        tid: 1,
        message: Message::Req(request()),
    };
    let kind = Err(CmDrop::Kind { message: "REQ" });
    assert_eq!(
        (lookup.handle(now, &req), inquiry.handle(now, &req)),
        (kind, kind)
    );
    let other = Mad {
        tid: 70,
        message: Message::SidrRep(SidrRep {
            request_id: 8,
            ..answer()
        }),
    };
    assert!(lookup.handle(now, &other).is_err());
    assert_eq!(lookup.poll_event(), None);
}

#[test]
fn a_lossy_network_delays_an_answer_and_shows_the_question_once() {
    for seed in 0..1000 {
        let mut random = Random(seed);
        let mut now = Instant::ZERO;
        let mut lookup = Lookup::new(now, 7, 70, question());
        let mut passive: Option<Inquiry> = None;
        let mut shown = 0;
        let event = loop {
            while let Some(mad) = lookup.poll_transmit(now) {
                if random.permille(300) {
                    continue;
                }
                match &mut passive {
                    Some(inquiry) => inquiry.handle(now, &mad).unwrap(),
                    None => {
                        shown += 1;
                        passive
                            .insert(inquiry(now, &mad))
                            .answer(now, answer())
                            .unwrap();
                    }
                }
            }
            while let Some(mad) = passive.as_mut().and_then(|i| i.poll_transmit(now)) {
                if !random.permille(300) {
                    let _ = lookup.handle(now.plus_nanos(MS), &mad);
                }
            }
            if let Some(event) = lookup.poll_event() {
                break event;
            }
            now = lookup.poll_timeout().expect("it asks again or gives up");
            lookup.handle_timeout(now);
        };
        assert!(matches!(event, LookupEvent::Answer(_)), "seed {seed}");
        assert_eq!(shown, 1, "seed {seed}");
    }
}
