//! Parsing, emitting, showing and summing packets.

use adverb_wire::grh::Grh;
use adverb_wire::icrc::{self, Addressing};
use adverb_wire::{Packet, pad_of};

/// A parsed packet and its emitted bytes say the same, and no byte string is more than an error.
pub fn run(input: &[u8]) {
    receive_area(input);
    sum(input);
    let Ok(packet) = Packet::parse(input) else {
        return;
    };
    assert!(packet.header_len() <= adverb_wire::MAX_HEADERS);
    assert!(packet.header_len() + packet.payload.len() <= input.len());
    let _ = packet.to_string();

    let mut again = vec![0xEE; packet.emitted_len()];
    assert_eq!(packet.emit(&mut again), again.len());
    let mut reparsed = Packet::parse(&again).expect("what was emitted can be parsed");
    // Pad bytes that were more than the payload needs do not come back.
    assert_eq!(usize::from(reparsed.bth.pad), pad_of(packet.payload.len()));
    reparsed.bth.pad = packet.bth.pad;
    assert_eq!(reparsed, packet);
}

fn sum(input: &[u8]) {
    let Some((rest, &icrc)) = input.split_last_chunk::<{ icrc::LEN }>() else {
        return;
    };
    let v4 = Addressing::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 0xC000);
    let v6 = Addressing::new([1u16; 8].into(), [2u16; 8].into(), 0xC000);
    for addressing in [v4, v6].into_iter().flatten() {
        if let Some(id) = icrc::matches_any_id(&addressing, rest, icrc) {
            assert!(icrc::verify(&addressing.with_id(id), rest, icrc));
        } else {
            assert!(!icrc::verify(&addressing, rest, icrc));
        }
    }
}

fn receive_area(input: &[u8]) {
    if let Some(area) = input.first_chunk() {
        // Only what we build is ever parsed, so all that counts is that nothing panics.
        let _ = Grh::from_bytes(area);
    }
}
