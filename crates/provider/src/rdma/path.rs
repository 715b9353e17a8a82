//! Path records. On InfiniBand a subnet manager answers with them; on RoCE they are made up here, from what is known.

use adverb_abi::types::{Zeroed as _, ibv_gid, ibv_sa_path_rec};
use adverb_nic::cm::Path;

/// How long a packet may be under way, as an exponent: a quarter of a second, as Linux has it for RoCE.
pub(super) const PACKET_LIFE: u8 = 16;

/// Routers that a packet may pass: the default of IP on Linux.
pub(super) const HOP_LIMIT: u8 = 64;

/// "Exactly this much", of the selectors of a path record.
const EXACTLY: u8 = 2;

/// 100 Gbit/s in the numbering of `ibv_rate`, as the port's speed is given.
const RATE: u8 = 16;

/// The record of a path.
pub(super) fn record(path: &Path, mtu: u8) -> ibv_sa_path_rec {
    let mut record = ibv_sa_path_rec::zeroed();
    record.dgid = ibv_gid { raw: path.dgid.0 };
    record.sgid = ibv_gid { raw: path.sgid.0 };
    record.flow_label = path.flow_label.to_be();
    record.hop_limit = path.hop_limit;
    record.traffic_class = path.traffic_class;
    record.reversible = 1;
    record.numb_path = 1;
    record.pkey = adverb_nic::PKEYS[0].to_be();
    record.mtu_selector = EXACTLY;
    record.mtu = mtu;
    record.rate_selector = EXACTLY;
    record.rate = RATE;
    record.packet_life_time_selector = EXACTLY;
    record.packet_life_time = PACKET_LIFE;
    record
}

#[cfg(test)]
mod tests {
    use super::*;
    use adverb_nic::Gid;

    #[test]
    fn a_record_says_where_from_where_to_and_how() {
        let path = Path {
            sgid: Gid([1; 16]),
            dgid: Gid([2; 16]),
            traffic_class: 0x20,
            hop_limit: HOP_LIMIT,
            flow_label: 7,
        };
        let record = record(&path, 3);
        // SAFETY: every byte of the union is initialised.
        unsafe { assert_eq!((record.sgid.raw, record.dgid.raw), ([1; 16], [2; 16])) };
        assert_eq!((record.mtu, record.traffic_class), (3, 0x20));
        assert_eq!(u32::from_be(record.flow_label), 7);
        assert_eq!(record.pkey, 0xffff);
    }
}
