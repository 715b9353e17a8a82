//! How a packet and its addresses lie in a ring record.
//!
//! Four bytes (kind, traffic class, hop limit, length of a train's head), the addresses if they are not those of the
//! record before, then the packet. Two processes mostly use one pair of addresses, and without them an 8-byte SEND or
//! WRITE fits one cache line together with the header word of the ring.
//!
//! A train has its head where the packet would be, and its payload from [`PAYLOAD_AT`] on, which is the beginning of a
//! line: what is believed is copied to private memory before it is looked at, and what is only moved is not. A train
//! that was given up is void: addresses, and nothing that counts.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use adverb_wire::Train;

use crate::Meta;

/// Addresses as in the record before.
const SAME: u8 = 0;
/// Two IPv4 addresses.
const V4: u8 = 1;
/// Two IPv6 addresses; an IPv4 one among them is in its mapped form.
const V6: u8 = 2;
/// The bits of the kind that say so.
const ADDRESSES: u8 = 0x0f;

/// Besides the addresses: a train.
const TRAIN: u8 = 0x10;
/// Besides the addresses: a train that never came.
const VOID: u8 = 0x20;
/// Besides either: it came from a socket.
const OUTSIDE: u8 = 0x40;

/// Room for whatever stands before the packet.
pub(super) const MAX_PREFIX: usize = 4 + 32;

/// Where the payload of a train begins: with the header word of the ring there are two lines before it.
pub(super) const PAYLOAD_AT: usize = 124;
const _: () = assert!(MAX_PREFIX + Train::MAX_HEAD <= PAYLOAD_AT);

/// What a record is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Content<'a> {
    /// All that follows the prefix.
    Packet(&'a [u8]),
    /// The head; the payload is behind [`PAYLOAD_AT`].
    Train(&'a [u8]),
    Void,
}

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
        let kind = if meta.outside { kind | OUTSIDE } else { kind };
        out[..4].copy_from_slice(&[kind, meta.traffic_class, meta.hop_limit, 0]);
        len
    }

    /// The record went out.
    pub(super) fn sent(&mut self, meta: &Meta) {
        self.known = Some((meta.src, meta.dst));
    }
}

/// What a record that is still to be written begins with.
#[derive(Debug)]
pub(super) struct Prefix {
    bytes: [u8; MAX_PREFIX],
    len: usize,
}

impl Prefix {
    pub(super) const fn new(bytes: [u8; MAX_PREFIX], len: usize) -> Self {
        Self { bytes, len }
    }

    /// That of a train with a head of `len` bytes, or of one that will never come.
    pub(super) fn of(&mut self, head: Option<usize>) -> &[u8] {
        let [kind, _, _, head_len, ..] = &mut self.bytes;
        (*kind, *head_len) = match head {
            Some(len) => (*kind & (ADDRESSES | OUTSIDE) | TRAIN, len as u8),
            None => (*kind & (ADDRESSES | OUTSIDE) | VOID, 0),
        };
        &self.bytes[..self.len]
    }
}

/// The receiver's side.
#[derive(Debug, Default)]
pub(super) struct PrefixReader {
    known: Option<(IpAddr, IpAddr)>,
}

impl PrefixReader {
    /// Splits a record, or as much of it as is there; `None` if it is malformed.
    pub(super) fn read<'a>(&mut self, record: &'a [u8]) -> Option<(Meta, Content<'a>)> {
        let ([kind, traffic_class, hop_limit, head], rest) = record.split_first_chunk::<4>()?;
        let (pair, rest) = match *kind & ADDRESSES {
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
                outside: kind & OUTSIDE != 0,
            },
            match kind & !(ADDRESSES | OUTSIDE) {
                0 => Content::Packet(rest),
                TRAIN => Content::Train(rest.get(..usize::from(*head))?),
                VOID => Content::Void,
                _ => return None,
            },
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
            let packet = Content::Packet(&[1, 2, 3]);
            assert_eq!(reader.read(&record), Some((meta, packet)));
        }
    }

    #[test]
    fn trains_and_voids_bring_addresses_along() {
        for meta in [meta("127.0.0.1", "10.0.0.2"), meta("fe80::1", "::1")] {
            let (writer, mut reader) = (PrefixWriter::default(), PrefixReader::default());
            let mut prefix = [0; MAX_PREFIX];
            let len = writer.write(&meta, &mut prefix);
            let mut prefix = Prefix::new(prefix, len);
            let record = [prefix.of(None), &[9; 80]].concat();
            assert_eq!(reader.read(&record), Some((meta, Content::Void)));
            let record = [prefix.of(Some(3)), &[1, 2, 3], &[9; 80]].concat();
            let train = Content::Train(&[1, 2, 3]);
            assert_eq!(reader.read(&record), Some((meta, train)));
            let record = [prefix.of(Some(3)), &[1, 2]].concat();
            assert_eq!(reader.read(&record), None, "the head is longer");
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
            &[0x31; 50],
            &[0x81; 50],
        ] {
            assert_eq!(PrefixReader::default().read(record), None, "{record:?}");
        }
    }
}
