//! The ICRC against known packets, and how well it rejects damage.

mod common;

use adverb_wire::icrc::{self, Addressing};
use common::OnCable;

/// IP, UDP, packet and ICRC of: an acknowledgement over IPv4; a SEND with padding and a traffic
/// class; one over link-local IPv6 with a UDP checksum; a hardware NIC's congestion notification,
/// whose identification is not 0.
const VECTORS: [&str; 4] = [
    concat!(
        "4500003000004000401126bb0a0000010a000002",
        "c01212b7001c0000",
        "1100ffff00000012000000641f000001",
        "7ab48589",
    ),
    concat!(
        "45020034000040004011b6b3c0000201c0000202",
        "c12312b700200000",
        "04b0ffff00000011800000ab",
        "68656c6c6f000000",
        "91069c24",
    ),
    concat!(
        "60000000001c1140fe800000000000000000000000000001fe800000000000000000000000000002",
        "c01212b7001c1234",
        "1100ffff00000012000000641f000001",
        "965ffb64",
    ),
    concat!(
        "45c2003c718c4000401191610a0011010a001201",
        "000012b700280000",
        "8100ffff400001180000000000000000000000000000000000000000",
        "82fd002a",
    ),
];

fn vectors() -> [OnCable; 4] {
    VECTORS.map(OnCable::from_hex)
}

#[test]
fn known_packets_have_their_known_icrc() {
    for packet in vectors() {
        let addressing = packet.addressing.with_id(packet.id);
        assert_eq!(icrc::compute(&addressing, &packet.bth_to_pad), packet.icrc);
        assert!(icrc::verify(&addressing, &packet.bth_to_pad, packet.icrc));
    }
}

#[test]
fn congestion_bits_of_the_bth_are_not_covered() {
    let [packet, ..] = vectors();
    let mut marked = packet.bth_to_pad.clone();
    marked[4] ^= 0xC0;
    assert!(icrc::verify(&packet.addressing, &marked, packet.icrc));
}

#[test]
fn identification_is_found_from_whatever_was_assumed() {
    for packet in vectors() {
        for assumed in [0, 1, 0x718C, 0xFFFF] {
            let assumed = packet.addressing.with_id(assumed);
            let found = icrc::matches_any_id(&assumed, &packet.bth_to_pad, packet.icrc);
            assert_eq!(found, Some(packet.id));
        }
    }
}

#[test]
fn every_identification_is_found_at_every_length() {
    let [packet, ..] = vectors();
    let body: Vec<u8> = (0..4200).map(|n| (n * 7) as u8).collect();
    for length in [12, 16, 20, 239, 256, 1068, 4152, 4200] {
        let bytes = &body[..length];
        for id in (0..=u16::MAX).step_by(641).chain([1, u16::MAX]) {
            let sent = icrc::compute(&packet.addressing.with_id(id), bytes);
            assert_eq!(
                icrc::matches_any_id(&packet.addressing, bytes, sent),
                Some(id)
            );
        }
    }
}

#[test]
fn damaged_packets_are_rejected_nearly_always() {
    const ROUNDS: u32 = 400_000;
    let mut random = XorShift(0x9E37_79B9_7F4A_7C15);
    let mut accepted = 0;
    let [_, packet, ..] = vectors();
    for _ in 0..ROUNDS {
        let mut bytes = packet.bth_to_pad.clone();
        let mut icrc = packet.icrc;
        // One to four bytes become others, in the packet or its ICRC; byte 4 is not covered.
        for _ in 0..=random.below(4) {
            let damage = 1 + random.below(255) as u8;
            match random.below(bytes.len() + icrc.len()) {
                4 => bytes[5] ^= damage,
                at if at < bytes.len() => bytes[at] ^= damage,
                at => icrc[at - bytes.len()] ^= damage,
            }
        }
        let untouched = bytes == packet.bth_to_pad && icrc == packet.icrc;
        if !untouched && icrc::matches_any_id(&packet.addressing, &bytes, icrc).is_some() {
            accepted += 1;
        }
    }
    // 2^-16 of them, about 6, pass by chance; 99.99 % rejected would be 40.
    assert!(
        accepted <= 40,
        "{accepted} of {ROUNDS} damaged packets were accepted"
    );
}

#[test]
fn any_flipped_bit_is_rejected_even_with_the_identification_unknown() {
    for packet in vectors() {
        for bit in (0..packet.bth_to_pad.len() * 8).filter(|bit| bit / 8 != 4) {
            let mut bytes = packet.bth_to_pad.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(
                icrc::matches_any_id(&packet.addressing, &bytes, packet.icrc),
                None
            );
        }
    }
}

#[test]
fn packet_for_another_address_or_port_is_rejected() {
    let [packet, ..] = vectors();
    let wrong_port = Addressing {
        src_port: 0xC013,
        ..packet.addressing
    };
    let (from, to) = ("10.0.0.1".parse().unwrap(), "10.0.0.3".parse().unwrap());
    let wrong_address = Addressing::new(from, to, 0xC012).unwrap();
    for addressing in [wrong_port, wrong_address] {
        assert_eq!(
            icrc::matches_any_id(&addressing, &packet.bth_to_pad, packet.icrc),
            None
        );
    }
}

#[test]
fn bytes_that_cannot_be_a_packet_never_match() {
    let [packet, ..] = vectors();
    for bytes in [&[][..], &[0; 11], &[0; 65_600]] {
        assert!(!icrc::verify(&packet.addressing, bytes, [0; 4]));
        assert_eq!(
            icrc::matches_any_id(&packet.addressing, bytes, [0; 4]),
            None
        );
    }
}

#[test]
fn addresses_of_two_families_are_refused() {
    let (v4, v6) = ("10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap());
    assert_eq!(Addressing::new(v4, v6, 0xC000), None);
}

struct XorShift(u64);

impl XorShift {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 33) as usize) % limit
    }
}
