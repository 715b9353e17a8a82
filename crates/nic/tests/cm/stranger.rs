//! A stranger on the network: a plain socket that speaks RoCE, and not always well.
//!
//! It says what lost and repeated datagrams would say, so these tests see the messages themselves.

use std::net::{SocketAddr, UdpSocket};

use adverb_nic::cm::CmEventKind;
use adverb_wire::cm::{
    Concerning, Drep, Dreq, MAD_LEN, Mad, Message, Rej, RejReason, Req, Rtu, SPACE_TCP, SPACE_UDP,
    ServiceId, SidrRep, SidrReq,
};
use adverb_wire::{Bth, Deth, GSI_QKEY, Opcode, Operation, Packet, Psn, Transport, icrc};

use crate::world::{
    ACCEPTED, LISTENER, LONG, Server, event, event_within, ip, over_udp, rep, req, serve,
    server_event,
};

struct Stranger {
    socket: UdpSocket,
    address: SocketAddr,
    us: SocketAddr,
    sends: u32,
}

impl Stranger {
    /// Each test has one of its own, at an address that is no device's. None where there is no UDP.
    fn new(address: &str) -> Option<Self> {
        if !over_udp() {
            return None;
        }
        let port = std::env::var("ADVERB_UDP_PORT").unwrap().parse().unwrap();
        let address = SocketAddr::new(ip(address), port);
        let socket = UdpSocket::bind(address).unwrap();
        socket.set_read_timeout(Some(LONG)).unwrap();
        Some(Self {
            socket,
            address,
            us: SocketAddr::new(ip("127.0.0.1"), port),
            sends: 0,
        })
    }

    fn say(&mut self, mad: &Mad) {
        self.say_bytes(&mad.emit(), GSI_QKEY, Operation::SendOnly);
    }

    fn say_bytes(&mut self, payload: &[u8], qkey: u32, operation: Operation) {
        self.sends += 1;
        let bth = Bth::new(
            Opcode::Roce(Transport::Ud, operation),
            1,
            Psn::new(self.sends),
        );
        let packet = Packet {
            deth: Some(Deth { qkey, src_qp: 1 }),
            imm: Some([0; 4]),
            payload,
            ..Packet::new(bth)
        };
        let mut bytes = [0; 512];
        let len = packet.emit(&mut bytes);
        let mut to =
            icrc::Addressing::new(self.address.ip(), self.us.ip(), self.address.port()).unwrap();
        to.dst_port = self.us.port();
        let mut datagram = bytes[..len].to_vec();
        datagram.extend(icrc::compute(&to, &bytes[..len]));
        self.socket.send_to(&datagram, self.us).unwrap();
    }

    fn hear(&self) -> Mad {
        let mut bytes = [0; 512];
        let (len, from) = self.socket.recv_from(&mut bytes).unwrap();
        assert_eq!(from.ip(), self.us.ip());
        let packet = Packet::parse(&bytes[..len - icrc::LEN]).unwrap();
        assert_eq!(
            packet.bth.opcode,
            Opcode::Roce(Transport::Ud, Operation::SendOnly)
        );
        assert_eq!((packet.bth.dest_qp, packet.bth.pkey), (1, 0xffff));
        let deth = packet.deth.unwrap();
        assert_eq!((deth.qkey, deth.src_qp), (0x8001_0000, 1));
        assert_eq!(packet.payload.len(), MAD_LEN);
        Mad::parse(packet.payload).unwrap()
    }

    /// Nothing has come, nor will it.
    fn hears_nothing(&self) {
        let moment = std::time::Duration::from_millis(50);
        self.socket.set_read_timeout(Some(moment)).unwrap();
        self.socket.recv_from(&mut [0; 512]).unwrap_err();
        self.socket.set_read_timeout(Some(LONG)).unwrap();
    }
}

fn asks(server: &Server, local_id: u32) -> Mad {
    let message = Message::Req(Req {
        local_id,
        ca_guid: 0x1234_5678,
        ..req(server.port, b"")
    });
    Mad { tid: 99, message }
}

fn disconnects(local_id: u32, remote_id: u32, remote_qpn: u32) -> Mad {
    let message = Message::Dreq(Dreq {
        local_id,
        remote_id,
        remote_qpn,
        ..Dreq::default()
    });
    Mad { tid: 100, message }
}

#[test]
fn what_is_said_twice_counts_once_and_is_answered_twice() {
    let Some(mut stranger) = Stranger::new("127.0.0.11") else {
        return;
    };
    let server = serve(SPACE_TCP);
    let ask = asks(&server, 0xdead_beef);
    for _ in 0..3 {
        stranger.say(&ask);
    }
    let (id, _) = request(&server, "127.0.0.11");
    assert!(event_within(&server.channel, std::time::Duration::from_millis(50)).is_none());
    // The second and the third heard that we are thinking.
    for _ in 0..2 {
        assert!(matches!(stranger.hear().message, Message::Mra(_)));
    }
    id.accept(rep(b"")).unwrap();
    let first = stranger.hear();
    let Message::Rep(answer) = first.message else {
        panic!("{first:?}");
    };
    assert_eq!((first.tid, answer.remote_id), (99, 0xdead_beef));
    stranger.say(&ask);
    assert_eq!(stranger.hear(), first);
    let message = Message::Rtu(Rtu {
        local_id: 0xdead_beef,
        remote_id: answer.local_id,
        ..Rtu::default()
    });
    for _ in 0..2 {
        stranger.say(&Mad { tid: 99, message });
    }
    assert!(matches!(
        server_event(&server, &id),
        CmEventKind::Established(_)
    ));

    // A DREQ for another queue pair is none of ours.
    stranger.say(&disconnects(0xdead_beef, answer.local_id, answer.qpn ^ 1));
    stranger.hears_nothing();
    let goodbye = disconnects(0xdead_beef, answer.local_id, answer.qpn);
    stranger.say(&goodbye);
    assert!(matches!(
        server_event(&server, &id),
        CmEventKind::Disconnected
    ));
    id.disconnect().unwrap();
    assert!(matches!(stranger.hear().message, Message::Drep(_)));
    assert!(matches!(
        server_event(&server, &id),
        CmEventKind::TimewaitExit
    ));
    // Long forgotten, and answered all the same.
    stranger.say(&goodbye);
    let Message::Drep(Drep { remote_id, .. }) = stranger.hear().message else {
        panic!("no DREP");
    };
    assert_eq!(remote_id, 0xdead_beef);
}

#[test]
fn nonsense_is_dropped_and_the_next_request_is_heard() {
    let Some(mut stranger) = Stranger::new("127.0.0.12") else {
        return;
    };
    let server = serve(SPACE_TCP);
    let ask = asks(&server, 1);
    let mut bytes = ask.emit();
    stranger.say_bytes(&bytes, GSI_QKEY ^ 1, Operation::SendOnly);
    stranger.say_bytes(&bytes, GSI_QKEY, Operation::SendOnlyImm);
    stranger.say_bytes(&bytes[..252], GSI_QKEY, Operation::SendOnly);
    bytes[1] = 3;
    stranger.say_bytes(&bytes, GSI_QKEY, Operation::SendOnly);
    stranger.say_bytes(&[0xff; MAD_LEN], GSI_QKEY, Operation::SendOnly);
    // For an ID that nobody has, from somebody who is not the peer.
    stranger.say(&disconnects(1, 2, 3));
    stranger.hears_nothing();
    stranger.say(&ask);
    let (id, _) = request(&server, "127.0.0.12");
    id.accept(rep(b"")).unwrap();
    let Message::Rep(answer) = stranger.hear().message else {
        panic!("no REP");
    };
    // Somebody else may know the ID, and is not the peer.
    let mut other = Stranger::new("127.0.0.13").unwrap();
    let rtu = Message::Rtu(Rtu {
        local_id: 1,
        remote_id: answer.local_id,
        ..Rtu::default()
    });
    let rtu = Mad {
        tid: 99,
        message: rtu,
    };
    other.say(&rtu);
    assert!(event_within(&server.channel, std::time::Duration::from_millis(50)).is_none());
    stranger.say(&rtu);
    assert!(matches!(
        server_event(&server, &id),
        CmEventKind::Established(_)
    ));
}

#[test]
fn who_gives_up_before_an_answer_is_understood() {
    let Some(mut stranger) = Stranger::new("127.0.0.14") else {
        return;
    };
    let server = serve(SPACE_TCP);
    stranger.say(&asks(&server, 77));
    let (id, _) = request(&server, "127.0.0.14");
    let mut info = [0; Rej::INFO];
    info[..8].copy_from_slice(&0x1234_5678u64.to_be_bytes());
    let message = Message::Rej(Rej {
        local_id: 77,
        remote_id: 0,
        concerning: Concerning::Req,
        info_length: 8,
        reason: RejReason::TIMEOUT,
        info,
        ..Rej::default()
    });
    stranger.say(&Mad { tid: 99, message });
    assert!(event_within(&server.channel, std::time::Duration::from_millis(100)).is_none());
    id.accept(rep(b"")).unwrap_err();
    stranger.hears_nothing();
}

#[test]
fn a_queue_pair_that_asks_while_it_is_connected_is_asked_whether_it_is() {
    let Some(mut stranger) = Stranger::new("127.0.0.15") else {
        return;
    };
    let server = serve(SPACE_TCP);
    let mut ask = asks(&server, 1);
    stranger.say(&ask);
    let (id, _) = request(&server, "127.0.0.15");
    id.accept(rep(b"")).unwrap();
    let Message::Rep(answer) = stranger.hear().message else {
        panic!("no REP");
    };
    let rtu = Message::Rtu(Rtu {
        local_id: 1,
        remote_id: answer.local_id,
        ..Rtu::default()
    });
    stranger.say(&Mad {
        tid: 99,
        message: rtu,
    });
    server_event(&server, &id);
    // Who is the peer knows the connection, and the newcomer was somebody else.
    for newcomer in [2, 3] {
        req_of(&mut ask).local_id = newcomer;
        stranger.say(&ask);
        let heard = [stranger.hear().message, stranger.hear().message];
        assert!(heard.contains(&Message::Rep(answer)), "{heard:?}");
        let stale = |m: &Message| matches!(m, Message::Rej(rej) if rej.reason.0 == 10 && rej.remote_id == newcomer);
        assert!(heard.iter().any(stale), "{heard:?}");
        if newcomer == 2 {
            stranger.say(&Mad {
                tid: 99,
                message: rtu,
            });
            let moment = std::time::Duration::from_millis(50);
            assert!(event_within(&server.channel, moment).is_none());
        }
    }
    // Or it has forgotten.
    let message = Message::Rej(Rej {
        local_id: 1,
        remote_id: answer.local_id,
        concerning: Concerning::Rep,
        reason: RejReason::INVALID_COMM_ID,
        ..Rej::default()
    });
    stranger.say(&Mad { tid: 99, message });
    assert!(matches!(
        server_event(&server, &id),
        CmEventKind::Disconnected
    ));
}

/// A flood has as many places as its source is given; everybody else is served, and it costs nothing once it is answered.
#[test]
fn who_asks_for_much_does_not_take_the_place_of_others() {
    let (Some(mut flood), Some(mut honest)) =
        (Stranger::new("127.0.0.18"), Stranger::new("127.0.0.19"))
    else {
        return;
    };
    let server = serve(SPACE_TCP);
    for n in 1..=100 {
        flood.say(&asks(&server, n));
    }
    let mut kept: Vec<_> = (0..64).map(|_| request(&server, "127.0.0.18").0).collect();
    let moment = std::time::Duration::from_millis(50);
    assert!(event_within(&server.channel, moment).is_none());
    honest.say(&asks(&server, 1));
    request(&server, "127.0.0.19").0.accept(rep(b"")).unwrap();
    assert!(matches!(honest.hear().message, Message::Rep(_)));
    // Refused ones make way, whether the program destroys them or not.
    for id in &kept {
        id.reject(28, b"").unwrap();
    }
    kept.truncate(32);
    for n in 1000..1200 {
        flood.say(&asks(&server, n));
        loop {
            let (id, req) = request(&server, "127.0.0.18");
            id.reject(28, b"").unwrap();
            if req.local_id == n {
                break;
            }
        }
    }
}

#[test]
fn a_lookup_that_is_repeated_is_answered_again() {
    let Some(mut stranger) = Stranger::new("127.0.0.16") else {
        return;
    };
    let server = serve(SPACE_UDP);
    let message = Message::SidrReq(SidrReq {
        request_id: 5,
        service_id: ServiceId::new(SPACE_UDP, server.port),
        ..SidrReq::default()
    });
    let ask = Mad { tid: 6, message };
    stranger.say(&ask);
    stranger.say(&ask);
    let event = event(&server.channel);
    assert_eq!(event.user, LISTENER);
    let CmEventKind::LookupRequest { id, from, .. } = event.kind else {
        panic!("{:?}", event.kind);
    };
    server.listener.ack_events(1);
    assert_eq!(from.src, ip("127.0.0.16"));
    id.answer_lookup(SidrRep {
        qpn: 9,
        ..SidrRep::default()
    })
    .unwrap();
    let first = stranger.hear();
    assert!(matches!(first.message, Message::SidrRep(rep) if rep.qpn == 9 && rep.request_id == 5));
    id.destroy();
    stranger.say(&ask);
    assert_eq!(stranger.hear(), first);
    assert!(event_within(&server.channel, std::time::Duration::from_millis(50)).is_none());
}

#[test]
fn strangers_hear_that_nobody_listens() {
    let Some(mut stranger) = Stranger::new("127.0.0.17") else {
        return;
    };
    let server = serve(SPACE_TCP);
    let mut ask = asks(&server, 3);
    let Message::Req(req) = &mut ask.message else {
        unreachable!();
    };
    req.service_id = ServiceId::new(SPACE_UDP, server.port);
    stranger.say(&ask);
    let Message::Rej(rej) = stranger.hear().message else {
        panic!("no REJ");
    };
    assert_eq!(
        (rej.reason, rej.remote_id),
        (RejReason::INVALID_SERVICE_ID, 3)
    );
    // More bits than librdmacm's have.
    req_of(&mut ask).service_id = ServiceId(1 << 40 | u64::from(server.port));
    req_of(&mut ask).local_id = 4;
    stranger.say(&ask);
    let Message::Rej(rej) = stranger.hear().message else {
        panic!("no REJ");
    };
    assert_eq!(
        (rej.reason, rej.remote_id),
        (RejReason::INVALID_SERVICE_ID, 4)
    );
}

fn req_of(mad: &mut Mad) -> &mut Req {
    match &mut mad.message {
        Message::Req(req) => req,
        other => panic!("{other:?}"),
    }
}

fn request(server: &Server, from: &str) -> (std::sync::Arc<adverb_nic::cm::CmId>, Box<Req>) {
    let event = event(&server.channel);
    assert_eq!(event.user, LISTENER);
    let CmEventKind::Request {
        id,
        req,
        from: peer,
    } = event.kind
    else {
        panic!("{:?}", event.kind);
    };
    assert_eq!((peer.src, peer.dst), (ip(from), ip("127.0.0.1")));
    server.listener.ack_events(1);
    id.set_user(ACCEPTED);
    (id, req)
}
