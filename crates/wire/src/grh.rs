//! The 40 bytes that precede a datagram's payload in a receive buffer.
//!
//! A datagram's receiver learns from them who sent it. IPv6 puts its header there; IPv4 leaves the
//! first 20 bytes zero and puts its header behind. A socket does not hand out the header, so it is
//! made up here, with a valid checksum, because libibverbs looks at that to tell the two apart.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::Gid;
use crate::bytes::Reader;

/// Bytes of the area.
pub const LEN: usize = 40;

const V4_LEN: usize = 20;
const IP_PROTOCOL_UDP: u8 = 17;
const FLOW_LABEL: u32 = 0x000F_FFFF;

/// What the area says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grh {
    pub src: Gid,
    pub dst: Gid,
    pub traffic_class: u8,
    pub hop_limit: u8,
    /// 20 bits; always 0 for IPv4.
    pub flow_label: u32,
    /// Length of the UDP datagram: its header, the packet, the ICRC.
    pub datagram_len: u16,
}

impl Grh {
    /// The area for a packet of `packet_len` bytes from BTH to pad. A length that no datagram has
    /// (some links carry larger packets) is given as the largest.
    #[must_use]
    pub fn for_packet(
        src: IpAddr,
        dst: IpAddr,
        traffic_class: u8,
        hop_limit: u8,
        packet_len: usize,
    ) -> Self {
        let headers = 8 + crate::icrc::LEN;
        Self {
            src: Gid::from_ip(src),
            dst: Gid::from_ip(dst),
            traffic_class,
            hop_limit,
            flow_label: 0,
            datagram_len: u16::try_from(packet_len + headers).unwrap_or(u16::MAX),
        }
    }

    /// The area as it goes into the receive buffer: IPv4 when the destination is.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; LEN] {
        match (self.src.to_ip(), self.dst.to_ip()) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => self.v4(src, dst),
            _ => self.v6(),
        }
    }

    /// Which header the area has, as cards say it in the completion, where a service level would be: bit 3 for a UDP header
    /// (RoCEv2), and below it 1 for IPv6, 2 for IPv4. The annex of RoCEv2 (A17.4.5.1) wants the completion to say so, and
    /// verbs.h has no other place for it. UCX 1.13 reads it, and drops datagrams whose area it then misunderstands.
    #[must_use]
    pub fn packet_type(&self) -> u8 {
        const UDP: u8 = 8;
        match (self.src.to_ip(), self.dst.to_ip()) {
            (IpAddr::V4(_), IpAddr::V4(_)) => UDP | 2,
            _ => UDP | 1,
        }
    }

    fn v4(&self, src: Ipv4Addr, dst: Ipv4Addr) -> [u8; LEN] {
        let [len0, len1] = self
            .datagram_len
            .saturating_add(V4_LEN as u16)
            .to_be_bytes();
        let mut header = [0; V4_LEN];
        header[..12].copy_from_slice(&[
            0x45,
            self.traffic_class,
            len0,
            len1,
            0,
            0,
            0x40,
            0,
            self.hop_limit,
            IP_PROTOCOL_UDP,
            0,
            0,
        ]);
        header[12..16].copy_from_slice(&src.octets());
        header[16..].copy_from_slice(&dst.octets());
        let sum = checksum(&header).to_be_bytes();
        header[10..12].copy_from_slice(&sum);
        let mut area = [0; LEN];
        area[V4_LEN..].copy_from_slice(&header);
        area
    }

    fn v6(&self) -> [u8; LEN] {
        let word = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & FLOW_LABEL;
        let mut area = [0; LEN];
        area[..4].copy_from_slice(&word.to_be_bytes());
        area[4..6].copy_from_slice(&self.datagram_len.to_be_bytes());
        area[6] = IP_PROTOCOL_UDP;
        area[7] = self.hop_limit;
        area[8..24].copy_from_slice(&self.src.0);
        area[24..].copy_from_slice(&self.dst.0);
        area
    }

    /// Reads an area back. `None` when neither kind of header is there.
    #[must_use]
    pub fn from_bytes(area: &[u8; LEN]) -> Option<Self> {
        let (_, second_half) = area.split_first_chunk::<V4_LEN>()?;
        let v4 = second_half.first_chunk::<V4_LEN>()?;
        // A sender's address may happen to look like an IPv4 header; hardly with a right checksum.
        let looks_v4 = v4[0] == 0x45 && checksum(v4) == 0;
        match area[0] >> 4 {
            _ if looks_v4 => Self::parse_v4(v4),
            6 => Self::parse_v6(area),
            _ => None,
        }
    }

    fn parse_v4(header: &[u8; V4_LEN]) -> Option<Self> {
        let mut r = Reader::new(header);
        let [_version, traffic_class] = r.take()?;
        let total = r.u16()?;
        let _identification_and_flags = r.u32()?;
        let [hop_limit, _protocol] = r.take()?;
        let _checksum = r.u16()?;
        Some(Self {
            src: Gid::from_ipv4(Ipv4Addr::from(r.u32()?)),
            dst: Gid::from_ipv4(Ipv4Addr::from(r.u32()?)),
            traffic_class,
            hop_limit,
            flow_label: 0,
            datagram_len: total.checked_sub(V4_LEN as u16)?,
        })
    }

    fn parse_v6(area: &[u8; LEN]) -> Option<Self> {
        let mut r = Reader::new(area);
        let word = r.u32()?;
        let datagram_len = r.u16()?;
        let [_next_header, hop_limit] = r.take()?;
        Some(Self {
            src: Gid::from_ipv6(Ipv6Addr::from(r.take::<16>()?)),
            dst: Gid::from_ipv6(Ipv6Addr::from(r.take::<16>()?)),
            traffic_class: (word >> 20) as u8,
            hop_limit,
            flow_label: word & FLOW_LABEL,
            datagram_len,
        })
    }
}

/// The Internet checksum: 0 over a header that already has the right one.
fn checksum(header: &[u8; V4_LEN]) -> u16 {
    let (words, _) = header.as_chunks::<2>();
    let sum: u32 = words
        .iter()
        .map(|&word| u32::from(u16::from_be_bytes(word)))
        .sum();
    // Ten words carry at most 9 over, and adding that carries at most once more.
    let folded = (sum & 0xFFFF) + (sum >> 16);
    !((folded & 0xFFFF) + (folded >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grh(src: &str, dst: &str) -> Grh {
        Grh::for_packet(src.parse().unwrap(), dst.parse().unwrap(), 2, 64, 24)
    }

    #[test]
    fn ipv4_header_stands_in_the_second_half_with_a_valid_checksum() {
        let area = grh("192.0.2.1", "192.0.2.2").to_bytes();
        assert_eq!(area[..20], [0; 20]);
        // The header of the second vector in tests/icrc.rs.
        let header = [
            0x45, 0x02, 0x00, 0x38, 0, 0, 0x40, 0, 0x40, 0x11, 0xB6, 0xAF, 192, 0, 2, 1, 192, 0, 2,
            2,
        ];
        assert_eq!(area[20..], header);
    }

    #[test]
    fn area_is_read_back_as_written() {
        for grh in [
            grh("10.0.0.1", "10.0.0.2"),
            grh("10.0.0.1", "224.0.0.7"),
            Grh {
                flow_label: 0x12345,
                traffic_class: 0xA5,
                ..grh("fe80::1", "ff02::1")
            },
        ] {
            assert_eq!(Grh::from_bytes(&grh.to_bytes()), Some(grh));
        }
    }

    #[test]
    fn address_that_looks_like_an_ipv4_header_does_not_confuse() {
        // Bytes 20 on are the last four of the source and the destination.
        let grh = grh("fd00::4500:38", "fd00::2");
        assert_eq!(Grh::from_bytes(&grh.to_bytes()), Some(grh));
    }

    #[test]
    fn completion_tells_ipv4_from_ipv6() {
        assert_eq!(grh("192.0.2.1", "192.0.2.2").packet_type(), 0b1010);
        assert_eq!(grh("10.0.0.1", "224.0.0.7").packet_type(), 0b1010);
        assert_eq!(grh("fd00::1", "ff02::1").packet_type(), 0b1001);
    }

    #[test]
    fn area_without_a_header_is_refused() {
        assert_eq!(Grh::from_bytes(&[0; LEN]), None);
        assert_eq!(Grh::from_bytes(&[0x45; LEN]), None);
    }
}
