//! Looking up the queue pair that serves datagrams.

use std::sync::Arc;

use adverb_nic::cm::{CmEventKind, CmId, LookupSpec};
use adverb_wire::cm::{SPACE_UDP, ServiceId, SidrRep, SidrReq, SidrStatus, padded};

use crate::world::{ACCEPTED, Client, LISTENER, Server, device, event, path_to, serve};

fn look_up(port: u16) -> Client {
    let client = Client::new();
    let spec = LookupSpec {
        device: device(),
        path: path_to("127.0.0.1"),
        req: SidrReq {
            service_id: ServiceId::new(SPACE_UDP, port),
            private: padded(b"anybody there?").unwrap(),
            ..SidrReq::default()
        },
    };
    client.id.lookup(&spec).unwrap();
    client
}

fn request(server: &Server) -> Arc<CmId> {
    let event = event(&server.channel);
    assert_eq!(event.user, LISTENER);
    let CmEventKind::LookupRequest { id, req, .. } = event.kind else {
        panic!("{:?}", event.kind);
    };
    assert!(req.private.starts_with(b"anybody there?\0"));
    server.listener.ack_events(1);
    id.set_user(ACCEPTED);
    id
}

fn answer(client: &Client) -> Box<SidrRep> {
    match client.event() {
        CmEventKind::LookupAnswer(rep) => rep,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_lookup_finds_the_queue_pair() {
    let server = serve(SPACE_UDP);
    let client = look_up(server.port);
    let id = request(&server);
    let rep = SidrRep {
        qpn: 0x1234,
        qkey: 77,
        private: padded(b"here").unwrap(),
        ..SidrRep::default()
    };
    id.answer_lookup(rep).unwrap();
    id.answer_lookup(rep).unwrap_err();
    let found = answer(&client);
    assert_eq!((found.qpn, found.qkey), (0x1234, 77));
    assert_eq!(found.service_id, ServiceId::new(SPACE_UDP, server.port));
    assert!(found.private.starts_with(b"here\0"));
    id.destroy();
    client.id.destroy();
}

#[test]
fn a_lookup_may_be_refused_or_find_nobody() {
    let server = serve(SPACE_UDP);
    let client = look_up(server.port);
    request(&server).reject(28, b"no").unwrap();
    let refused = answer(&client);
    assert_eq!(refused.status, SidrStatus::REJECT);
    assert!(refused.private.starts_with(b"no\0"));

    let client = look_up(server.port);
    drop(request(&server));
    assert_eq!(answer(&client).status, SidrStatus::REJECT);

    let port = server.port;
    drop(server);
    assert_eq!(answer(&look_up(port)).status, SidrStatus::UNSUPPORTED);
}
