//! Well-known numbers, the rule for partition keys, the UDP source port.

/// UDP destination port of RoCEv2.
pub const UDP_PORT: u16 = 4791;
/// Full member of the default partition, the only P_Key there is on RoCE.
pub const DEFAULT_PKEY: u16 = 0xFFFF;
/// Q_Key of the general services queue pair.
pub const GSI_QKEY: u32 = 0x8001_0000;
/// Q_Key that the connection manager gives its datagram queue pairs.
pub const CM_UD_QKEY: u32 = 0x0123_4567;
/// The general services queue pair, which the connection manager talks to.
pub const GSI_QPN: u32 = 1;
/// Destination of datagrams to a multicast group.
pub const MULTICAST_QPN: u32 = 0x00FF_FFFF;

/// Whether holders of these two P_Keys may talk: same partition, and one of them a full member.
#[inline]
#[must_use]
pub const fn pkeys_match(a: u16, b: u16) -> bool {
    const PARTITION: u16 = 0x7FFF;
    const FULL: u16 = 0x8000;
    a & PARTITION == b & PARTITION && a & PARTITION != 0 && (a | b) & FULL != 0
}

/// The UDP source port of a queue pair: entropy for routers that spread flows over paths.
///
/// It comes from the flow label (20 bits) or, when that is 0, from the two queue pair numbers, and
/// is the same for all packets of a queue pair, so that they stay in order.
#[must_use]
pub const fn udp_source_port(flow_label: u32, local_qpn: u32, remote_qpn: u32) -> u16 {
    const LABEL: u32 = 0x000F_FFFF;
    let label = match flow_label & LABEL {
        0 => {
            let mut mix = local_qpn as u64 * remote_qpn as u64;
            mix ^= mix >> 20;
            mix ^= mix >> 40;
            mix as u32 & LABEL
        }
        label => label,
    };
    ((label & 0x3FFF) ^ (label >> 14)) as u16 | 0xC000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pkeys_match_within_a_partition_with_a_full_member() {
        assert!(pkeys_match(0xFFFF, 0xFFFF));
        assert!(pkeys_match(0xFFFF, 0x7FFF));
        assert!(!pkeys_match(0x7FFF, 0x7FFF));
        assert!(!pkeys_match(0x8001, 0x8002));
        assert!(!pkeys_match(0x8000, 0x8000));
    }

    #[test]
    fn source_ports_are_those_that_a_kernel_peer_was_seen_using() {
        assert_eq!(udp_source_port(0x12345, 0x11, 0x11), 58177);
        assert_eq!(udp_source_port(0, 0x11, 0x11), 49441);
    }

    #[test]
    fn source_ports_stay_in_the_dynamic_range() {
        for (label, local, remote) in [(0, 0, 0), (0xF_FFFF, 0, 0), (0, 0xFF_FFFF, 0xFF_FFFF)] {
            assert!(udp_source_port(label, local, remote) >= 0xC000);
        }
    }
}
