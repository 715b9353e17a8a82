//! What holds for all packets and for all bytes.

use adverb_wire::{
    Aeth, AtomicEth, Bth, Deth, Feth, Headers, MAX_HEADERS, Opcode, Operation, Packet, ParseError,
    Placement, Psn, Reth, Selectivity, Syndrome, Transport, grh, grh::Grh, pad_of,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// Everything a packet can hold; `packet` picks what the opcode has.
#[derive(Clone, Debug)]
struct Parts {
    code: u8,
    flags: [bool; 5],
    pkey: u16,
    dest_qp: u32,
    psn: u32,
    numbers: [u64; 3],
    words: [u32; 3],
    imm: [u8; 4],
    feth: u8,
    payload: Vec<u8>,
}

fn parts() -> impl Strategy<Value = Parts> {
    let codes: Vec<u8> = Opcode::all().map(Opcode::to_u8).collect();
    let header = (
        proptest::sample::select(codes),
        any::<[bool; 5]>(),
        any::<u16>(),
        0..1u32 << 24,
        0..1u32 << 24,
    );
    let rest = (
        any::<[u64; 3]>(),
        any::<[u32; 3]>(),
        any::<[u8; 4]>(),
        0..64u8,
        vec(any::<u8>(), 0..80),
    );
    (header, rest).prop_map(|(header, rest)| {
        let (code, flags, pkey, dest_qp, psn) = header;
        let (numbers, words, imm, feth, payload) = rest;
        Parts {
            code,
            flags,
            pkey,
            dest_qp,
            psn,
            numbers,
            words,
            imm,
            feth,
            payload,
        }
    })
}

impl Parts {
    fn packet(&self) -> Packet<'_> {
        let opcode = Opcode::from_u8(self.code).expect("drawn from those that exist");
        let headers = opcode.headers();
        let has = |header| headers.contains(header);
        let [solicited, mig_req, fecn, becn, ack_req] = self.flags;
        let [a, b, c] = self.numbers;
        let [x, y, z] = self.words;
        let low24 = z & 0xFF_FFFF;
        let selectivity = match self.feth >> 4 {
            0 => Selectivity::Range,
            1 => Selectivity::MemoryRegion,
            bits => Selectivity::Reserved(bits),
        };
        let placement = Placement::from_bits_truncate(self.feth);
        Packet {
            bth: Bth {
                opcode,
                solicited,
                mig_req,
                pad: pad_of(self.payload.len()) as u8,
                pkey: self.pkey,
                fecn,
                becn,
                dest_qp: self.dest_qp,
                ack_req,
                psn: Psn::new(self.psn),
            },
            xrc_srqn: has(Headers::XRCETH).then_some(low24),
            deth: has(Headers::DETH).then_some(Deth {
                qkey: x,
                src_qp: low24,
            }),
            reth: has(Headers::RETH).then_some(Reth {
                va: a,
                rkey: x,
                len: y,
            }),
            atomic: has(Headers::ATOMIC_ETH).then_some(AtomicEth {
                va: a,
                rkey: x,
                swap_or_add: b,
                compare: c,
            }),
            aeth: has(Headers::AETH).then_some(Aeth {
                syndrome: Syndrome::from_u8(y as u8),
                msn: low24,
            }),
            atomic_ack: has(Headers::ATOMIC_ACK_ETH).then_some(b),
            imm: has(Headers::IMM_DT).then_some(self.imm),
            ieth: has(Headers::IETH).then_some(y),
            feth: has(Headers::FETH).then_some(Feth {
                placement,
                selectivity,
            }),
            payload: &self.payload,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn parsing_what_was_emitted_gives_the_packet_back(parts in parts()) {
        let packet = parts.packet();
        let mut buffer = [0xEE; 160];
        let length = packet.emit(&mut buffer);
        prop_assert_eq!(length, packet.emitted_len());
        prop_assert_eq!(length % 4, 0);
        prop_assert_eq!(Packet::parse(&buffer[..length]), Ok(packet));
        // Nothing is written behind the packet.
        prop_assert!(buffer[length..].iter().all(|&byte| byte == 0xEE));
    }

    #[test]
    fn headers_alone_are_the_start_of_the_whole(parts in parts()) {
        let packet = parts.packet();
        let (mut whole, mut headers) = ([0; 160], [0; MAX_HEADERS]);
        packet.emit(&mut whole);
        let without = Packet { payload: &[], ..packet };
        let length = without.emit_header(parts.payload.len(), &mut headers);
        prop_assert_eq!(length, packet.header_len());
        prop_assert_eq!(&headers[..length], &whole[..length]);
    }

    #[test]
    fn bytes_that_parse_are_emitted_again(
        code in any::<u8>(),
        start in vec(any::<u8>(), 0..12),
        rest in vec(any::<u8>(), 0..100),
    ) {
        let mut bytes: Vec<u8> = [code].into_iter().chain(start).chain(rest).collect();
        bytes.truncate(bytes.len() & !3);
        if let Some(flags) = bytes.get_mut(1) {
            *flags &= 0xF0;
        }
        if let Ok(packet) = Packet::parse(&bytes) {
            let mut expected = bytes.clone();
            clear_what_is_reserved(&packet, &mut expected);
            let mut again = vec![0xEE; bytes.len()];
            prop_assert_eq!(packet.emit(&mut again), bytes.len());
            prop_assert_eq!(again, expected);
        }
    }

    #[test]
    fn no_bytes_panic(bytes in vec(any::<u8>(), 0..200), area in any::<[u8; grh::LEN]>()) {
        let _ = Grh::from_bytes(&area);
        if let Ok(packet) = Packet::parse(&bytes) {
            // Whatever parses can be shown, too.
            prop_assert!(!packet.to_string().is_empty());
        }
    }

    #[test]
    fn truncated_headers_are_refused(parts in parts(), cut in 0..MAX_HEADERS) {
        let packet = Packet { payload: &[], ..parts.packet() };
        let mut buffer = [0; MAX_HEADERS];
        let length = packet.emit(&mut buffer);
        let cut = cut % length;
        prop_assert!(Packet::parse(&buffer[..cut]).is_err());
    }
}

/// Zeroes the bits and bytes that parsing ignores and emitting leaves 0.
fn clear_what_is_reserved(packet: &Packet<'_>, bytes: &mut [u8]) {
    bytes[4] &= 0xC0;
    bytes[8] &= 0x80;
    let mut at = Bth::LEN;
    for header in packet.bth.opcode.headers().iter() {
        match header {
            Headers::XRCETH => bytes[at] = 0,
            Headers::DETH => bytes[at + 4] = 0,
            Headers::FETH => {
                bytes[at..at + 3].fill(0);
                bytes[at + 3] &= 0x3F;
            }
            Headers::CNP_RESERVED => bytes[at..at + 16].fill(0),
            _ => {}
        }
        at += header.size();
    }
    let pad = bytes.len() - usize::from(packet.bth.pad);
    bytes[pad..].fill(0);
}

#[test]
fn every_opcode_byte_at_every_length_is_parsed_or_refused() {
    for code in 0..=u8::MAX {
        for flags in [0x00, 0x10, 0x30, 0xF0] {
            let mut bytes = [0xFF; 64];
            bytes[0] = code;
            bytes[1] = flags;
            for length in 0..=bytes.len() {
                let whole = length % 4 == 0;
                let room = Opcode::from_u8(code)
                    .and_then(|opcode| length.checked_sub(opcode.header_len()))
                    .is_some_and(|room| room >= usize::from(flags >> 4 & 3));
                let parsed = Packet::parse(&bytes[..length]);
                assert_eq!(
                    parsed.is_ok(),
                    whole && room,
                    "{code:#x} {length}: {parsed:?}"
                );
            }
        }
    }
}

#[test]
fn opcodes_are_exactly_those_of_the_specification() {
    let codes: Vec<u8> = Opcode::all().map(Opcode::to_u8).collect();
    let reliable = || (0..=0x14).chain([0x16, 0x17, 0x1C, 0x1D]);
    let expected: Vec<u8> = reliable()
        .chain(0x20..=0x2B)
        .chain([0x64, 0x65, 0x81])
        .chain(reliable().map(|low| 0xA0 | low))
        .collect();
    assert_eq!(codes, expected);
}

#[test]
fn header_lengths_are_those_of_the_specification() {
    use Operation::*;
    let length = |transport, operation| Opcode::Roce(transport, operation).header_len() - Bth::LEN;
    for (operation, rc, xrc) in [
        (SendFirst, 0, 4),
        (SendLastImm, 4, 8),
        (SendOnlyInv, 4, 8),
        (WriteOnly, 16, 20),
        (WriteOnlyImm, 20, 24),
        (ReadRequest, 16, 20),
        (ReadResponseOnly, 4, 4),
        (ReadResponseMiddle, 0, 0),
        (Acknowledge, 4, 4),
        (AtomicAcknowledge, 12, 12),
        (CompareSwap, 28, 32),
        (Flush, 20, 24),
        (AtomicWrite, 16, 20),
    ] {
        assert_eq!(length(Transport::Rc, operation), rc, "RC {operation}");
        assert_eq!(length(Transport::Xrc, operation), xrc, "XRC {operation}");
    }
    assert_eq!(length(Transport::Ud, SendOnly), 8);
    assert_eq!(length(Transport::Ud, SendOnlyImm), 12);
    assert_eq!(Opcode::Cnp.header_len(), 28);
    let longest = Opcode::all().map(Opcode::header_len).max();
    assert_eq!(longest, Some(MAX_HEADERS));
}

#[test]
fn operations_are_classified_without_gaps_or_overlaps() {
    for operation in Opcode::all().filter_map(Opcode::operation) {
        let places = [
            operation.is_first(),
            operation.is_middle(),
            operation.is_last(),
            operation.is_only(),
        ];
        assert_eq!(
            places.iter().filter(|&&place| place).count(),
            1,
            "{operation}"
        );
        let kinds = [
            operation.is_send(),
            operation.is_write(),
            operation.is_atomic(),
            operation.is_response(),
        ];
        assert!(
            kinds.iter().filter(|&&kind| kind).count() <= 1,
            "{operation}"
        );
    }
    let takers: Vec<_> = Opcode::all()
        .filter(|opcode| opcode.transport() == Some(Transport::Rc))
        .filter_map(Opcode::operation)
        .filter(|operation| operation.takes_receive())
        .collect();
    use Operation::*;
    let expected = [
        SendFirst,
        SendOnly,
        SendOnlyImm,
        WriteLastImm,
        WriteOnlyImm,
        SendOnlyInv,
    ];
    assert_eq!(takers, expected);
}

#[test]
fn payload_lengths_follow_the_place_in_the_message() {
    let fits =
        |operation: Operation| [0, 1, 8, 255, 256, 257].map(|len| operation.payload_fits(len, 256));
    let (yes, no) = (true, false);
    assert_eq!(fits(Operation::SendFirst), [no, no, no, no, yes, no]);
    assert_eq!(
        fits(Operation::ReadResponseMiddle),
        [no, no, no, no, yes, no]
    );
    assert_eq!(fits(Operation::WriteLastImm), [no, yes, yes, yes, yes, no]);
    assert_eq!(
        fits(Operation::ReadResponseOnly),
        [yes, yes, yes, yes, yes, no]
    );
    assert_eq!(fits(Operation::FetchAdd), [yes, no, no, no, no, no]);
    assert_eq!(fits(Operation::AtomicWrite), [no, no, yes, no, no, no]);
}

#[test]
fn malformed_packets_are_refused_with_the_reason() {
    let opcode = Opcode::Roce(Transport::Rc, Operation::Acknowledge);
    let ack = Packet {
        aeth: Some(Aeth {
            syndrome: Syndrome::ACK,
            msn: 1,
        }),
        ..Packet::new(Bth::new(opcode, 0x12, Psn::new(100)))
    };
    let mut good = [0; 16];
    ack.emit(&mut good);
    let with = |at: usize, value: u8| {
        let mut bytes = good;
        bytes[at] = value;
        bytes
    };
    let reason = |bytes: &[u8]| Packet::parse(bytes).unwrap_err();
    assert_eq!(
        reason(&good[..8]),
        ParseError::TooShort { have: 8, need: 12 }
    );
    assert_eq!(
        reason(&good[..12]),
        ParseError::TooShort { have: 12, need: 16 }
    );
    assert_eq!(reason(&good[..15]), ParseError::Unaligned(15));
    assert_eq!(reason(&with(0, 0x15)), ParseError::UnknownOpcode(0x15));
    assert_eq!(reason(&with(0, 0x40)), ParseError::UnknownOpcode(0x40));
    assert_eq!(reason(&with(0, 0xC0)), ParseError::UnknownOpcode(0xC0));
    assert_eq!(reason(&with(1, 0x01)), ParseError::Version(1));
    assert_eq!(reason(&with(1, 0x20)), ParseError::Pad { pad: 2, have: 0 });
}
