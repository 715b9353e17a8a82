//! Whole IP packets as hex, taken apart far enough for the crate under test.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use adverb_wire::icrc::Addressing;

/// A RoCEv2 packet as it was on the cable, from the IP header to the ICRC.
#[allow(dead_code, reason = "not every file of tests looks at all of it")]
pub(crate) struct OnCable {
    /// With identification 0, as a receiver with a socket has to assume.
    pub(crate) addressing: Addressing,
    /// What the IPv4 header really says; 0 for IPv6.
    pub(crate) id: u16,
    pub(crate) bth_to_pad: Vec<u8>,
    pub(crate) icrc: [u8; 4],
}

#[allow(dead_code, reason = "not every file of tests has its packets as text")]
impl OnCable {
    pub(crate) fn from_hex(text: &str) -> Self {
        Self::from_bytes(&hex(text))
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        let (src, dst, id, udp): (IpAddr, IpAddr, u16, usize) = if bytes[0] >> 4 == 4 {
            (
                Ipv4Addr::from(array::<4>(&bytes[12..])).into(),
                Ipv4Addr::from(array::<4>(&bytes[16..])).into(),
                u16::from_be_bytes(array(&bytes[4..])),
                20,
            )
        } else {
            let (src, dst) = (array::<16>(&bytes[8..]), array::<16>(&bytes[24..]));
            (
                Ipv6Addr::from(src).into(),
                Ipv6Addr::from(dst).into(),
                0,
                40,
            )
        };
        let src_port = u16::from_be_bytes(array(&bytes[udp..]));
        let (bth_to_pad, icrc) = bytes[udp + 8..].split_last_chunk().expect("an ICRC");
        Self {
            addressing: Addressing::new(src, dst, src_port).expect("one family"),
            id,
            bth_to_pad: bth_to_pad.to_vec(),
            icrc: *icrc,
        }
    }
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    *bytes.first_chunk().expect("enough bytes")
}

#[allow(dead_code, reason = "as above")]
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text
        .chars()
        .map(|c| c.to_digit(16).expect("a hex digit"))
        .collect();
    digits
        .chunks(2)
        .map(|pair| (pair[0] << 4 | pair[1]) as u8)
        .collect()
}
