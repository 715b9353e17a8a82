//! Two ends in this process.

use adverb_nic::NicError;
use adverb_nic::cm::{CmChannel, CmEventKind, CmId};
use adverb_wire::cm::{CmaHeader, RejReason, SPACE_TCP, ServiceId};

use crate::world::{Client, ask, connected, device, ip, path_to, rep, req, serve, server_event};

#[test]
fn a_connection_from_request_to_timewait() {
    let server = serve(SPACE_TCP);
    let client = ask(&server, b"let me in");
    let (id, req) = server.request();
    assert_eq!(req.service_id, ServiceId::new(SPACE_TCP, server.port));
    let (header, private) = CmaHeader::split(&req.private).unwrap();
    assert_eq!((header.src_port, header.dst), (40_000, ip("127.0.0.1")));
    assert!(private.starts_with(b"let me in\0") && private.len() == 56);
    assert_eq!(id.device().unwrap().name, device().name);

    id.accept(rep(b"welcome")).unwrap();
    let CmEventKind::Response(rep) = client.event() else {
        panic!("no response");
    };
    assert!(rep.private.starts_with(b"welcome\0"));
    client.id.establish().unwrap();
    let CmEventKind::Established(private) = server_event(&server, &id) else {
        panic!("not established");
    };
    assert_eq!(private.len(), 224);

    client.id.disconnect().unwrap();
    let kind = server_event(&server, &id);
    assert!(matches!(kind, CmEventKind::Disconnected), "{kind:?}");
    id.disconnect().unwrap();
    let kind = client.event();
    assert!(matches!(kind, CmEventKind::Disconnected), "{kind:?}");
    for kind in [client.event(), server_event(&server, &id)] {
        assert!(matches!(kind, CmEventKind::TimewaitExit), "{kind:?}");
    }
}

#[test]
fn both_may_disconnect_and_each_hears_it_once() {
    let server = serve(SPACE_TCP);
    let (client, id) = connected(&server);
    id.disconnect().unwrap();
    client.id.disconnect().unwrap();
    for kind in [client.event(), server_event(&server, &id)] {
        assert!(matches!(kind, CmEventKind::Disconnected), "{kind:?}");
    }
    for kind in [client.event(), server_event(&server, &id)] {
        assert!(matches!(kind, CmEventKind::TimewaitExit), "{kind:?}");
    }
}

#[test]
fn where_nobody_listens_that_is_said() {
    let bound = CmId::new(&CmChannel::new().unwrap(), 0).unwrap();
    let port = bound.bind(SPACE_TCP, None, 0, false).unwrap();
    let client = Client::new();
    client.connect("127.0.0.1", req(port, b""));
    let CmEventKind::Rejected { reason, private } = client.event() else {
        panic!("not rejected");
    };
    assert_eq!(reason, RejReason::INVALID_SERVICE_ID.0);
    assert_eq!(private.len(), 148);
}

#[test]
fn who_is_quicker_than_the_listener_waits_for_it() {
    let channel = CmChannel::new().unwrap();
    let listener = CmId::new(&channel, 0).unwrap();
    let port = listener.bind(SPACE_TCP, None, 0, false).unwrap();
    let client = Client::new();
    client.connect("127.0.0.1", req(port, b""));
    std::thread::sleep(std::time::Duration::from_millis(10));
    listener.listen(&[device()], 0).unwrap();
    let CmEventKind::Request { id, .. } = crate::world::event(&channel).kind else {
        panic!("no request");
    };
    listener.ack_events(1);
    id.accept(rep(b"")).unwrap();
    assert!(matches!(client.event(), CmEventKind::Response(_)));
}

#[test]
fn a_program_may_refuse_and_say_why() {
    let server = serve(SPACE_TCP);
    let client = ask(&server, b"");
    let (id, _) = server.request();
    let consumer = RejReason::CONSUMER_DEFINED.0;
    let error = id.reject(consumer, &[0; 149]).unwrap_err().to_string();
    assert!(error.contains("149") && error.contains("148"), "{error}");
    id.reject(consumer, b"full").unwrap();
    let CmEventKind::Rejected { reason, private } = client.event() else {
        panic!("not rejected");
    };
    assert_eq!(reason, 28);
    assert!(private.starts_with(b"full\0"));
    let error = id.accept(rep(b"")).unwrap_err();
    assert!(matches!(error, NicError::State { .. }), "{error}");
}

#[test]
fn a_request_that_is_destroyed_is_refused() {
    let server = serve(SPACE_TCP);
    let client = ask(&server, b"");
    server.request().0.destroy();
    let kind = client.event();
    assert!(
        matches!(kind, CmEventKind::Rejected { reason: 28, .. }),
        "{kind:?}"
    );
}

#[test]
fn requests_that_nobody_fetched_are_refused_when_the_listener_goes() {
    let server = serve(SPACE_TCP);
    let clients = [ask(&server, b""), ask(&server, b"")];
    // Over UDP they may still be under way.
    let (id, _) = server.request();
    if !crate::world::over_udp() {
        server.listener.destroy();
        drop(id);
        for client in clients {
            let kind = client.event();
            assert!(
                matches!(kind, CmEventKind::Rejected { reason: 28, .. }),
                "{kind:?}"
            );
        }
    }
}

#[test]
fn an_answer_that_is_not_to_ones_liking_is_refused() {
    let server = serve(SPACE_TCP);
    let client = ask(&server, b"");
    let (id, _) = server.request();
    id.accept(rep(b"")).unwrap();
    client.event();
    client.id.reject(28, b"changed my mind").unwrap();
    let CmEventKind::Rejected { reason, private } = server_event(&server, &id) else {
        panic!("not rejected");
    };
    assert_eq!(reason, 28);
    assert!(private.starts_with(b"changed my mind\0"));
}

#[test]
fn who_is_destroyed_while_connected_says_goodbye() {
    let server = serve(SPACE_TCP);
    let (client, id) = connected(&server);
    client.id.destroy();
    let kind = server_event(&server, &id);
    assert!(matches!(kind, CmEventKind::Disconnected), "{kind:?}");
}

#[test]
fn where_nobody_answers_the_asker_gives_up() {
    let client = Client::new();
    let mut req = req(7, b"");
    // Two repetitions, four milliseconds each.
    req.remote_response_timeout = 10;
    req.primary.ack_timeout = 8;
    req.max_cm_retries = 2;
    // No device of ours and nobody else has this address.
    if crate::world::over_udp() {
        client.connect("127.0.0.9", req);
        let kind = client.event();
        assert!(
            matches!(kind, CmEventKind::Unreachable(libc::ETIMEDOUT)),
            "{kind:?}"
        );
    }
}

#[test]
fn data_tells_that_the_peer_is_ready_if_its_word_is_lost() {
    let server = serve(SPACE_TCP);
    let client = ask(&server, b"");
    let (id, _) = server.request();
    let error = id.notify_established().unwrap_err();
    assert!(matches!(error, NicError::State { .. }), "{error}");
    id.accept(rep(b"")).unwrap();
    client.event();
    id.notify_established().unwrap();
    let kind = server_event(&server, &id);
    assert!(matches!(kind, CmEventKind::Established(_)), "{kind:?}");
    // The word itself changes nothing then.
    client.id.establish().unwrap();
    id.disconnect().unwrap();
    let kind = client.event();
    assert!(matches!(kind, CmEventKind::Disconnected), "{kind:?}");
}

#[test]
fn whoever_asks_in_the_name_of_a_connected_queue_pair_ends_nothing() {
    let server = serve(SPACE_TCP);
    let old = Client::new();
    let asked = req(server.port, b"");
    old.connect("127.0.0.1", asked);
    let (id, _) = server.request();
    id.accept(rep(b"")).unwrap();
    old.event();
    old.id.establish().unwrap();
    server_event(&server, &id);

    let newcomer = Client::new();
    newcomer.connect("127.0.0.1", asked);
    let kind = newcomer.event();
    assert!(
        matches!(kind, CmEventKind::Rejected { reason: 10, .. }),
        "{kind:?}"
    );
    // The first either of them hears after that.
    old.id.disconnect().unwrap();
    let kind = server_event(&server, &id);
    assert!(matches!(kind, CmEventKind::Disconnected), "{kind:?}");
    id.disconnect().unwrap();
    let kind = server_event(&server, &id);
    assert!(matches!(kind, CmEventKind::TimewaitExit), "{kind:?}");

    let third = Client::new();
    third.connect("127.0.0.1", asked);
    server.request().0.accept(rep(b"")).unwrap();
    assert!(matches!(third.event(), CmEventKind::Response(_)));
}

#[test]
fn calls_that_do_not_fit_are_refused() {
    let server = serve(SPACE_TCP);
    let channel = CmChannel::new().unwrap();
    let id = CmId::new(&channel, 0).unwrap();
    let refused = |result: Result<(), NicError>, word: &str| {
        let error = result.unwrap_err();
        assert!(matches!(error, NicError::State { .. }), "{error}");
        assert!(error.to_string().contains(word), "{error}");
    };
    refused(id.listen(&[device()], 1), "not bound");
    refused(id.accept(rep(b"")), "no connection");
    refused(id.disconnect(), "no connection");
    refused(server.listener.listen(&[device()], 1), "listens");
    let spec = adverb_nic::cm::ConnectSpec {
        device: device(),
        path: path_to("127.0.0.1"),
        req: req(server.port, b""),
    };
    refused(server.listener.connect(&spec), "listens");
    id.connect(&spec).unwrap();
    refused(id.connect(&spec), "asked already");
    refused(id.establish(), "waits for an answer");
    id.bind(SPACE_TCP, None, 0, false).unwrap();
    refused(id.listen(&[], 1), "has a connection");
    id.destroy();
    id.destroy();
    refused(id.disconnect(), "destroyed");
    let error = CmId::new(&channel, 0)
        .unwrap()
        .bind(SPACE_TCP, Some(ip("127.0.0.1")), server.port, false)
        .unwrap_err();
    assert!(
        matches!(error, NicError::PortTaken(_) | NicError::PortCovered(_)),
        "{error}"
    );
}
