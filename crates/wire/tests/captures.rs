//! Every packet that a kernel's software RoCE device sent into our capture files.

mod common;
#[path = "common/pcap.rs"]
mod pcap;

use std::path::Path;

use adverb_wire::{Packet, icrc};
use common::OnCable;

/// What the files held when they were made: a file that is lost or cut short must not pass for a success.
const FILES: usize = 76;
const PACKETS: usize = 882;

fn each_packet(mut f: impl FnMut(&Path, usize, OnCable)) {
    let (mut files, mut packets) = (0, 0);
    for path in pcap::all("") {
        files += 1;
        for (index, ip) in pcap::read(&path).iter().enumerate() {
            packets += 1;
            f(&path, index + 1, OnCable::from_bytes(ip));
        }
    }
    assert_eq!((files, packets), (FILES, PACKETS));
}

#[test]
fn every_icrc_is_right_and_tells_the_identification_that_was_sent() {
    each_packet(|path, index, packet| {
        let found = icrc::matches_any_id(&packet.addressing, &packet.bth_to_pad, packet.icrc);
        assert_eq!(found, Some(packet.id), "{} packet {index}", path.display());
        let addressing = packet.addressing.with_id(packet.id);
        assert_eq!(icrc::compute(&addressing, &packet.bth_to_pad), packet.icrc);
    });
}

#[test]
fn every_packet_is_parsed_and_emitted_to_the_same_bytes() {
    each_packet(|path, index, captured| {
        let bytes = &captured.bth_to_pad;
        let packet = Packet::parse(bytes)
            .unwrap_or_else(|error| panic!("{} packet {index}: {error}", path.display()));
        let mut again = vec![0xEE; bytes.len()];
        assert_eq!(packet.emit(&mut again), bytes.len());
        assert_eq!(&again, bytes, "{} packet {index}", path.display());
    });
}

#[test]
fn no_capture_survives_a_flipped_bit() {
    each_packet(|path, index, captured| {
        // One bit per packet, another in each; byte 4 is one that routers may change.
        let bits = captured.bth_to_pad.len() * 8;
        let bit = (index * 7919 + bits / 3) % bits;
        if bit / 8 == 4 {
            return;
        }
        let mut damaged = captured.bth_to_pad.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let found = icrc::matches_any_id(&captured.addressing, &damaged, captured.icrc);
        assert_eq!(found, None, "{} packet {index} bit {bit}", path.display());
    });
}
