//! Messages of the connection manager: what holds for all bytes, and what a kernel says.

mod common;
#[path = "common/pcap.rs"]
mod pcap;

use std::collections::BTreeMap;

use adverb_wire::cm::{
    CmTransport, CmaHeader, Concerning, MAD_LEN, Mad, MadError, Message, Path, Rej, RejReason, Rep,
    Req, SPACE_TCP, SPACE_UDP, ServiceId, SidrRep, SidrStatus,
};
use adverb_wire::{GSI_QKEY, GSI_QPN, Gid, Packet, Psn};
use common::OnCable;
use proptest::collection::vec;
use proptest::prelude::*;

const ATTRIBUTES: [u8; 9] = [0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18];
const BODY: usize = 24;

/// A header with this attribute, and these bytes behind the transaction ID.
fn mad(attribute: u8, tid: u64, rest: &[u8]) -> [u8; MAD_LEN] {
    let mut bytes = [0; MAD_LEN];
    bytes[..4].copy_from_slice(&[1, 7, 2, 3]);
    bytes[8..16].copy_from_slice(&tid.to_be_bytes());
    bytes[17] = attribute;
    bytes[20..].copy_from_slice(rest);
    bytes
}

/// Zeroes what the layouts of chapter 12 call reserved.
fn clear_what_is_reserved(bytes: &mut [u8; MAD_LEN]) {
    let attribute = bytes[17];
    if !matches!(attribute, 0x10 | 0x13) {
        bytes[20..24].fill(0);
    }
    let body = &mut bytes[BODY..];
    match attribute {
        0x10 => {
            body[4] = 0;
            body[24..28].fill(0);
            // The extended transport counts when the transport says that there is one.
            if body[43] >> 1 & 3 != 3 {
                body[51] &= 0xF8;
            }
            for path in [52, 96] {
                body[path + 38] &= 0xF0;
                body[path + 39] &= 0x3F;
                body[path + 42] &= 0xF8;
                body[path + 43] &= 0xF8;
            }
        }
        0x11 => {
            body[8] &= 0xC0;
            body[9] &= 0xF8;
        }
        0x12 => {
            body[8] &= 0xC0;
            body[9] &= 0xFE;
        }
        0x13 => body[27] &= 0xF0,
        0x15 => body[11] = 0,
        0x17 => body[6..8].fill(0),
        0x18 => {
            body[6..8].fill(0);
            body[11] = 0;
        }
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_message_is_emitted_to_the_bytes_it_was_parsed_from(
        attribute in proptest::sample::select(&ATTRIBUTES[..]),
        tid in any::<u64>(),
        rest in vec(any::<u8>(), MAD_LEN - 20),
    ) {
        let mut bytes = mad(attribute, tid, &rest);
        let parsed = Mad::parse(&bytes).expect("any content makes sense");
        prop_assert_eq!(parsed.tid, tid);
        clear_what_is_reserved(&mut bytes);
        let emitted = parsed.emit();
        prop_assert_eq!(&emitted[..], &bytes[..]);
        prop_assert_eq!(Mad::parse(&emitted), Ok(parsed));
    }

    #[test]
    fn ids_stand_at_the_same_place_in_all_messages(
        attribute in proptest::sample::select(&ATTRIBUTES[..]),
        local in any::<u32>(),
        remote in any::<u32>(),
    ) {
        let mut bytes = mad(attribute, 1, &[0; MAD_LEN - 20]);
        bytes[BODY..BODY + 4].copy_from_slice(&local.to_be_bytes());
        bytes[BODY + 4..BODY + 8].copy_from_slice(&remote.to_be_bytes());
        let message = Mad::parse(&bytes).unwrap().message;
        prop_assert_eq!(message.local_id(), local);
        let expected = match message {
            Message::Req(_) | Message::SidrReq(_) => None,
            // There is one ID only, the one that the question had.
            Message::SidrRep(_) => Some(local),
            _ => Some(remote),
        };
        prop_assert_eq!(message.remote_id(), expected);
    }

    #[test]
    fn no_bytes_panic(bytes in vec(any::<u8>(), 0..300), private in vec(any::<u8>(), 0..60)) {
        let _ = Mad::parse(&bytes);
        if let Ok((header, data)) = CmaHeader::split(&private) {
            prop_assert_eq!(data.len() + CmaHeader::LEN, private.len());
            prop_assert_eq!(CmaHeader::parse(&header.emit()), Ok(header));
        }
    }
}

/// A field that is wider than its place must not spill into its neighbours.
#[test]
fn values_are_cut_to_their_fields() {
    let path = Path {
        flow_label: u32::MAX,
        packet_rate: u8::MAX,
        sl: u8::MAX,
        ack_timeout: u8::MAX,
        ..Path::default()
    };
    let req = Req {
        qpn: u32::MAX,
        retry_count: u8::MAX,
        rnr_retry: u8::MAX,
        path_mtu: u8::MAX,
        max_cm_retries: u8::MAX,
        local_response_timeout: u8::MAX,
        remote_response_timeout: u8::MAX,
        transport: CmTransport::Reserved(u8::MAX),
        primary: path,
        ..Req::default()
    };
    let emitted = Mad {
        tid: 1,
        message: Message::Req(req),
    }
    .emit();
    let Ok(Mad {
        message: Message::Req(again),
        ..
    }) = Mad::parse(&emitted)
    else {
        panic!("a REQ");
    };
    let expected = Req {
        qpn: 0xFF_FFFF,
        retry_count: 7,
        rnr_retry: 7,
        path_mtu: 15,
        max_cm_retries: 15,
        local_response_timeout: 31,
        remote_response_timeout: 31,
        transport: CmTransport::Reserved(7),
        primary: Path {
            flow_label: 0xF_FFFF,
            packet_rate: 63,
            sl: 15,
            ack_timeout: 31,
            ..Path::default()
        },
        ..Req::default()
    };
    assert_eq!(again, expected);
}

#[test]
fn what_is_no_message_of_ours_is_refused_with_the_reason() {
    let good = mad(0x14, 1, &[0; MAD_LEN - 20]);
    assert!(Mad::parse(&good).is_ok());
    let with = |at: usize, value: u8| {
        let mut bytes = good;
        bytes[at] = value;
        Mad::parse(&bytes).unwrap_err()
    };
    assert_eq!(with(0, 2), MadError::BaseVersion(2));
    assert_eq!(with(1, 3), MadError::Class(3));
    assert_eq!(with(2, 1), MadError::ClassVersion(1));
    // Get(ClassPortInfo) and the like.
    assert_eq!(with(3, 1), MadError::Method(1));
    assert_eq!(with(16, 1), MadError::Attribute(0x114));
    for (attribute, name) in [(0x01, "ClassPortInfo"), (0x19, "LAP"), (0x1A, "APR")] {
        assert_eq!(
            with(17, attribute),
            MadError::Attribute(attribute.into()),
            "{name}"
        );
    }
    assert_eq!(Mad::parse(&good[..255]), Err(MadError::Length(255)));
    assert_eq!(Mad::parse(&[0; 260]), Err(MadError::Length(260)));
}

#[test]
fn reasons_are_numbered_as_the_specification_numbers_them() {
    let unnamed: Vec<u16> = (0..40).filter(|&n| RejReason(n).name().is_none()).collect();
    assert_eq!(unnamed, [0, 34, 36, 37, 38, 39]);
    assert_eq!(RejReason(28).to_string(), "28, consumer defined");
    assert_eq!(RejReason(99).to_string(), "99, unknown");
}

#[test]
fn who_gives_up_tells_its_guid() {
    let mut rej = Rej {
        reason: RejReason::TIMEOUT,
        ..Rej::default()
    };
    rej.info[..8].copy_from_slice(&0x0123_4567_89AB_CDEF_u64.to_be_bytes());
    assert_eq!(rej.gives_up(), Some(0x0123_4567_89AB_CDEF));
    rej.reason = RejReason::CONSUMER_DEFINED;
    assert_eq!(rej.gives_up(), None);
}

/// The messages of the captures whose name begins so, with the bytes they were.
fn captured(prefix: &str) -> Vec<(Mad, Vec<u8>)> {
    let mut mads = Vec::new();
    for path in pcap::all(prefix) {
        for (index, ip) in pcap::read(&path).iter().enumerate() {
            let captured = OnCable::from_bytes(ip);
            let packet = Packet::parse(&captured.bth_to_pad).expect("a packet");
            if packet.bth.dest_qp != GSI_QPN {
                continue;
            }
            let at = format!("{} packet {}", path.display(), index + 1);
            assert_eq!(packet.deth.expect("a datagram").qkey, GSI_QKEY, "{at}");
            let mad = Mad::parse(packet.payload).unwrap_or_else(|error| panic!("{at}: {error}"));
            mads.push((mad, packet.payload.to_vec()));
        }
    }
    mads
}

/// So many of each kind were in the files when they were made.
#[test]
fn every_message_of_a_kernel_is_parsed_and_emitted_to_the_same_bytes() {
    let mut names = BTreeMap::new();
    for (mad, bytes) in captured("") {
        *names.entry(mad.message.name()).or_insert(0) += 1;
        assert_eq!(&mad.emit()[..], &bytes[..], "{mad:?}");
    }
    let expected = [
        ("DREP", 6),
        ("DREQ", 6),
        ("REJ", 4),
        ("REP", 8),
        ("REQ", 10),
        ("RTU", 6),
        ("SIDR_REP", 2),
        ("SIDR_REQ", 2),
    ];
    assert_eq!(names, BTreeMap::from(expected));
}

#[test]
fn a_kernel_s_connection_reads_well() {
    let mads = captured("cm_connect_v4");
    let names: Vec<_> = mads.iter().map(|(mad, _)| mad.message.name()).collect();
    assert_eq!(names, ["REQ", "REP", "RTU", "DREQ", "DREP"]);
    assert!(mads.iter().all(|(mad, _)| mad.tid == mads[0].0.tid));
    let [(Message::Req(req), Message::Rep(rep))] = [(mads[0].0.message, mads[1].0.message)] else {
        panic!("REQ and REP");
    };
    let Req {
        ref private,
        ref primary,
        ..
    } = req;
    assert_eq!(req.service_id, ServiceId::new(SPACE_TCP, 7471));
    assert_eq!(
        (req.remote_response_timeout, req.local_response_timeout),
        (20, 20)
    );
    assert_eq!((req.max_cm_retries, req.transport), (15, CmTransport::Rc));
    assert_eq!((req.path_mtu, req.pkey, req.srq), (5, 0xFFFF, false));
    assert_eq!((req.retry_count, req.rnr_retry), (5, 5));
    assert_eq!(
        (req.qpn, req.initiator_depth, req.responder_resources),
        (0x51, 4, 4)
    );
    assert_eq!(primary.local_gid, Gid::from_ipv4([10, 0, 0, 1].into()));
    assert_eq!(primary.remote_gid, Gid::from_ipv4([10, 0, 0, 2].into()));
    assert_eq!((primary.ack_timeout, primary.hop_limit), (17, 64));
    // Trap 55: local identifiers mean nothing, and there is no other path.
    assert!(primary.exists() && !req.alternate.exists());
    assert_eq!(req.alternate, Path::default());
    let (header, data) = CmaHeader::split(private).expect("librdmacm's header");
    assert_eq!(header.src.to_string(), "10.0.0.1");
    assert_eq!(header.dst.to_string(), "10.0.0.2");
    assert_eq!(data.len(), 56);

    assert_eq!((rep.remote_id, rep.qpn), (req.local_id, 0x51));
    assert_eq!((rep.responder_resources, rep.initiator_depth), (4, 4));
    assert_eq!(
        (rep.target_ack_delay, rep.rnr_retry, rep.srq),
        (15, 5, false)
    );
    assert_eq!(rep.psn, Psn::new(0x1386C9));
    assert!(
        rep.private
            .starts_with(b"private data of the passive side\0")
    );
    assert_eq!(rep.private.len(), Rep::PRIVATE);
}

#[test]
fn a_kernel_s_refusals_and_lookups_read_well() {
    let rej = |prefix: &str| match captured(prefix)[1].0.message {
        Message::Rej(rej) => rej,
        other => panic!("{other:?}"),
    };
    let nobody = rej("cm_nolisten_v6");
    assert_eq!(nobody.reason, RejReason::INVALID_SERVICE_ID);
    assert_eq!((nobody.local_id, nobody.concerning), (0, Concerning::Req));
    let refused = rej("cm_reject_v6");
    assert_eq!(refused.reason, RejReason::CONSUMER_DEFINED);
    assert!(refused.private.starts_with(b"no, thank you\0"));

    let mads = captured("cm_sidr_v6");
    let [Message::SidrReq(req), Message::SidrRep(rep)] = [mads[0].0.message, mads[1].0.message]
    else {
        panic!("{mads:?}");
    };
    assert_eq!(req.service_id, ServiceId::new(SPACE_UDP, 7471));
    let (header, data) = CmaHeader::split(&req.private).expect("librdmacm's header");
    assert_eq!(header.src.to_string(), "fd00::1");
    assert!(data.starts_with(b"private data of the active side\0"));
    let expected = SidrRep {
        request_id: req.request_id,
        status: SidrStatus::SUCCESS,
        service_id: req.service_id,
        qkey: 0x0123_4567,
        qpn: rep.qpn,
        private: rep.private,
        ..SidrRep::default()
    };
    assert_eq!(rep, expected);
}

/// What a message says of sequence numbers is for the other side: each begins with the number that it was told.
#[test]
fn each_side_sends_from_the_number_that_the_other_side_named() {
    let mut connections = 0;
    for prefix in ["cm_connect", "cm_lost_rep"] {
        for path in pcap::all(prefix) {
            let (mut named, mut first) = (Vec::new(), Vec::new());
            for ip in pcap::read(&path) {
                let captured = OnCable::from_bytes(&ip);
                let packet = Packet::parse(&captured.bth_to_pad).expect("a packet");
                let psn = match Mad::parse(packet.payload).map(|mad| mad.message) {
                    Ok(Message::Req(req)) => Some((&mut named, req.psn)),
                    Ok(Message::Rep(rep)) => Some((&mut named, rep.psn)),
                    // Data, and not its acknowledgement.
                    Err(_) if packet.payload.len() > 4 => Some((&mut first, packet.bth.psn)),
                    _ => None,
                };
                if let Some((list, psn)) = psn
                    && !list.contains(&psn)
                {
                    list.push(psn);
                }
            }
            // The one who asked sends first.
            named.reverse();
            assert_eq!(first, named, "{}", path.display());
            connections += 1;
        }
    }
    assert_eq!(connections, 4);
}
