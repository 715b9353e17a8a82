//! How a packet and its addresses lie in a ring record.
//!
//! Four bytes (kind, traffic class, hop limit, whether it came from a socket), the addresses if they are not those of the record before, then
//! the packet. Two processes mostly use one pair of addresses, and without them an 8-byte SEND or WRITE fits one
//! cache line together with the header word of the ring.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::Meta;

/// Addresses as in the record before.
const SAME: u8 = 0;
/// Two IPv4 addresses.
const V4: u8 = 1;
/// Two IPv6 addresses; an IPv4 one among them is in its mapped form.
const V6: u8 = 2;

/// Room for whatever stands before the packet.
pub(super) const MAX_PREFIX: usize = 4 + 32;

/// The sender's side: remembers which addresses the receiver knows.
#[derive(Debug, Default)]
pub(super) struct PrefixWriter {
    known: Option<(IpAddr, IpAddr)>,
}

impl PrefixWriter {
    /// Writes the prefix and gives its length. Nothing is remembered before [`Self::sent`].
    pub(super) fn write(&self, meta: &Meta, out: &mut [u8; MAX_PREFIX]) -> usize {
        let (kind, len) = match (meta.src, meta.dst) {
            pair if Some(pair) == self.known => (SAME, 4),
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                out[4..8].copy_from_slice(&src.octets());
                out[8..12].copy_from_slice(&dst.octets());
                (V4, 12)
            }
            (src, dst) => {
                out[4..20].copy_from_slice(&wide(src));
                out[20..36].copy_from_slice(&wide(dst));
                (V6, 36)
            }
        };
        out[..4].copy_from_slice(&[
            kind,
            meta.traffic_class,
            meta.hop_limit,
            u8::from(meta.outside),
        ]);
        len
    }

    /// The record went out.
    pub(super) fn sent(&mut self, meta: &Meta) {
        self.known = Some((meta.src, meta.dst));
    }
}

/// The receiver's side.
#[derive(Debug, Default)]
pub(super) struct PrefixReader {
    known: Option<(IpAddr, IpAddr)>,
}

impl PrefixReader {
    /// Splits a record; `None` if it is malformed.
    pub(super) fn read<'a>(&mut self, record: &'a [u8]) -> Option<(Meta, &'a [u8])> {
        let ([kind, traffic_class, hop_limit, outside], rest) = record.split_first_chunk::<4>()?;
        let (pair, packet) = match *kind {
            SAME => (self.known?, rest),
            V4 => {
                let (src, rest) = rest.split_first_chunk::<4>()?;
                let (dst, rest) = rest.split_first_chunk::<4>()?;
                (
                    (Ipv4Addr::from(*src).into(), Ipv4Addr::from(*dst).into()),
                    rest,
                )
            }
            V6 => {
                let (src, rest) = rest.split_first_chunk::<16>()?;
                let (dst, rest) = rest.split_first_chunk::<16>()?;
                ((narrow(*src), narrow(*dst)), rest)
            }
            _ => return None,
        };
        self.known = Some(pair);
        let (src, dst) = pair;
        Some((
            Meta {
                src,
                dst,
                traffic_class: *traffic_class,
                hop_limit: *hop_limit,
                outside: *outside != 0,
            },
            packet,
        ))
    }
}

fn wide(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

fn narrow(octets: [u8; 16]) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from(octets)).to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(src: &str, dst: &str) -> Meta {
        Meta {
            src: src.parse().unwrap(),
            dst: dst.parse().unwrap(),
            traffic_class: 3,
            hop_limit: 64,
            outside: src.contains(':'),
        }
    }

    #[test]
    fn addresses_are_sent_once_and_again_when_they_change() {
        let (mut writer, mut reader) = (PrefixWriter::default(), PrefixReader::default());
        let (v4, v6) = (meta("127.0.0.1", "10.0.0.2"), meta("fe80::1", "::1"));
        let mixed = meta("127.0.0.1", "::1");
        for (meta, len) in [
            (v4, 12),
            (v4, 4),
            (v6, 36),
            (v6, 4),
            (v4, 12),
            (mixed, 36),
            (mixed, 4),
        ] {
            let mut prefix = [0; MAX_PREFIX];
            assert_eq!(writer.write(&meta, &mut prefix), len);
            writer.sent(&meta);
            let record = [&prefix[..len], &[1, 2, 3]].concat();
            assert_eq!(reader.read(&record), Some((meta, &[1, 2, 3][..])));
        }
    }

    #[test]
    fn malformed_records_are_refused() {
        for record in [
            &[][..],
            &[0, 0, 0],
            &[0, 0, 0, 0],
            &[1, 0, 0, 0, 9],
            &[2; 35],
            &[3; 50],
        ] {
            assert_eq!(PrefixReader::default().read(record), None, "{record:?}");
        }
    }
}
