//! The route header in front of a datagram, and who sent what follows it.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::values::Gid;

/// Bytes in front of every datagram that a UD queue pair receives: the global route header
/// (InfiniBand specification volume 1, section 8.3) or, in its last 20 bytes, the IPv4 header.
pub const GRH_LEN: usize = 40;

/// Who sent the datagram with this route header. On IPv4 the first 20 bytes are undefined and
/// the IPv4 header follows them (RoCEv2 annex A17.4), so only its checksum tells for certain.
pub(crate) fn sender_of_grh(grh: &[u8; GRH_LEN]) -> Option<Gid> {
    if grh[20] >> 4 == 4 && (grh[0] >> 4 != 6 || ipv4_checksum_holds(grh)) {
        let source: [u8; 4] = std::array::from_fn(|i| grh[32 + i]);
        return Some(Ipv4Addr::from(source).into());
    }
    if grh[0] >> 4 == 6 {
        let source: [u8; 16] = std::array::from_fn(|i| grh[8 + i]);
        return Some(Ipv6Addr::from(source).into());
    }
    None
}

/// Whether bytes 20 to 40 sum up as an IPv4 header does (RFC 791).
fn ipv4_checksum_holds(grh: &[u8; GRH_LEN]) -> bool {
    let (words, _) = grh.as_chunks::<2>();
    let sum: u32 = words
        .iter()
        .skip(10)
        .map(|w| u32::from(u16::from_be_bytes(*w)))
        .sum();
    (sum & 0xffff) + (sum >> 16) == 0xffff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sender_is_found_behind_both_kinds_of_header() {
        let mut v6 = [0; GRH_LEN];
        v6[0] = 0x60;
        v6[8] = 0xfe;
        v6[9] = 0x80;
        v6[23] = 1;
        assert_eq!(sender_of_grh(&v6), Some("fe80::1".parse().unwrap()));
        let mut v4 = [0; GRH_LEN];
        v4[20] = 0x45;
        v4[32..36].copy_from_slice(&[127, 0, 0, 9]);
        assert_eq!(sender_of_grh(&v4), Some("127.0.0.9".parse().unwrap()));
        // The bytes in front may hold anything, even what looks like IPv6.
        v4[0] = 0x60;
        let sum: u32 = (10..20)
            .map(|i| u32::from(v4[2 * i]) << 8 | u32::from(v4[2 * i + 1]))
            .sum();
        let folded = (sum & 0xffff) + (sum >> 16);
        v4[30..32].copy_from_slice(&(!(folded as u16)).to_be_bytes());
        assert_eq!(sender_of_grh(&v4), Some("127.0.0.9".parse().unwrap()));
        assert_eq!(sender_of_grh(&[0; GRH_LEN]), None);
    }
}
