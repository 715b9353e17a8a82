//! A recording, and the ICRC of each packet by code that shares nothing with ours: bit by bit, over the headers as they
//! were on the cable with the changeable fields set to ones.

use std::path::Path;

use anyhow::{Context, Result, bail};

/// One packet from its IP header to its ICRC.
pub(crate) struct Recorded {
    bytes: Vec<u8>,
    /// Bytes of the IP header.
    ip: usize,
}

const ETHERNET: usize = 14;
const UDP: usize = 8;
const BTH: usize = 12;

/// All packets of a classic little-endian pcap of Ethernet frames.
pub(crate) fn read(file: &Path) -> Result<Vec<Recorded>> {
    let bytes = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let mut packets = Vec::new();
    let mut rest = bytes.get(24..).context("no pcap header")?;
    while let Some((record, after)) = rest.split_at_checked(16) {
        let length = |at: usize| {
            record
                .get(at..at + 4)
                .and_then(|b| b.try_into().ok())
                .map_or(0, u32::from_le_bytes) as usize
        };
        if length(8) != length(12) {
            bail!("a frame was cut short");
        }
        let (frame, after) = after
            .split_at_checked(length(8))
            .context("the file is cut short")?;
        rest = after;
        packets.push(Recorded::new(
            frame.get(ETHERNET..).context("a short frame")?,
        )?);
    }
    Ok(packets)
}

impl Recorded {
    fn new(bytes: &[u8]) -> Result<Self> {
        let ip = match bytes.first().map(|first| first >> 4) {
            Some(4) => 20,
            Some(6) => 40,
            other => bail!("IP version {other:?}"),
        };
        // Short Ethernet frames are filled up; the IP header knows better.
        let word = |at: usize| usize::from(bytes[at]) << 8 | usize::from(bytes[at + 1]);
        if bytes.len() < ip + UDP + BTH + 4 {
            bail!("{} bytes are no RoCE packet", bytes.len());
        }
        let total = if ip == 20 { word(2) } else { 40 + word(4) };
        let bytes = bytes
            .get(..total)
            .context("the IP header says more than there is")?
            .to_vec();
        if word(ip + 4) != total - ip {
            bail!("UDP says {} bytes, IP leaves {}", word(ip + 4), total - ip);
        }
        Ok(Self { bytes, ip })
    }

    pub(crate) fn opcode(&self) -> u8 {
        self.bytes[self.ip + UDP]
    }

    pub(crate) fn psn(&self) -> u32 {
        let at = self.ip + UDP + 9;
        self.bytes[at..at + 3]
            .iter()
            .fold(0, |sum, byte| sum << 8 | u32::from(*byte))
    }

    /// That of IPv4; 0 for IPv6, which has none.
    pub(crate) fn identification(&self) -> u16 {
        if self.ip == 20 {
            u16::from_be_bytes([self.bytes[4], self.bytes[5]])
        } else {
            0
        }
    }

    /// Traffic class, or type of service.
    pub(crate) fn traffic_class(&self) -> u8 {
        if self.ip == 20 {
            self.bytes[1]
        } else {
            self.bytes[0] << 4 | self.bytes[1] >> 4
        }
    }

    /// Whether the ICRC is right for the packet as it was on the cable, and "don't fragment" is set.
    pub(crate) fn check(&self) -> Result<()> {
        let mut masked = self.bytes.clone();
        let udp = self.ip;
        if self.ip == 20 {
            if masked[6] & 0x40 == 0 {
                bail!("the packet may be fragmented");
            }
            // Type of service, time to live, header checksum.
            for at in [1, 8, 10, 11] {
                masked[at] = 0xFF;
            }
        } else {
            // Traffic class and flow label, hop limit.
            masked[0] |= 0x0F;
            for at in [1, 2, 3, 7] {
                masked[at] = 0xFF;
            }
        }
        masked[udp + 6] = 0xFF;
        masked[udp + 7] = 0xFF;
        masked[udp + UDP + 4] = 0xFF;
        let end = masked.len() - 4;
        let sum = crc32([0xFF; 8].iter().chain(&masked[..end]));
        let found = u32::from_le_bytes([
            masked[end],
            masked[end + 1],
            masked[end + 2],
            masked[end + 3],
        ]);
        if sum != found {
            bail!(
                "ICRC {found:#010x}, must be {sum:#010x}; identification {}",
                self.identification()
            );
        }
        Ok(())
    }
}

fn crc32<'a>(bytes: impl Iterator<Item = &'a u8>) -> u32 {
    !bytes.fold(u32::MAX, |mut sum, byte| {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = if sum & 1 == 1 {
                sum >> 1 ^ 0xEDB8_8320
            } else {
                sum >> 1
            };
        }
        sum
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree;

    #[test]
    fn the_sums_of_the_kernels_own_packets_are_right() {
        let dir = tree::root().join("tests/captures");
        for name in [
            "rc_send_only_v4",
            "rc_traffic_class_v4",
            "rc_traffic_class_v6",
            "ud_send_v6",
        ] {
            let packets = read(&dir.join(format!("{name}.pcap"))).unwrap();
            assert!(!packets.is_empty());
            for packet in packets {
                packet.check().unwrap();
            }
        }
    }

    #[test]
    fn a_wrong_identification_is_a_wrong_sum() {
        let file = tree::root().join("tests/captures/rc_send_only_v4.pcap");
        let mut packet = read(&file).unwrap().remove(0);
        packet.bytes[5] ^= 1;
        assert!(packet.check().is_err());
    }
}
