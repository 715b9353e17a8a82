//! From the parameters of a connection to the attributes of its queue pair.
//!
//! Each side says how many READs and atomics it answers (responder resources) and how many it starts (initiator depth);
//! what one answers the other may start, so the two change places between sides. The waiting side's RNR retry count
//! counts for the peer's queue pair, the retry count of whoever asks for both.

use adverb_abi::types::*;
use adverb_nic::cm::Path;

use super::path::PACKET_LIFE;
use crate::query::{CA_ACK_DELAY, PORT};

/// Longest timer code.
const MAX_TIMER: u8 = 31;

/// What the queue pair of a connection is set to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conn {
    pub(super) path: Path,
    pub(super) sgid_index: u8,
    /// As `ibv_mtu`.
    pub(super) mtu: u8,
    /// Local ACK timeout, as a timer code.
    pub(super) timeout: u8,
    pub(super) retry: u8,
    pub(super) rnr_retry: u8,
    pub(super) sq_psn: u32,
    pub(super) rq_psn: u32,
    pub(super) remote_qpn: u32,
    /// READs and atomics that we answer at a time.
    pub(super) responder_resources: u8,
    /// READs and atomics that we have outstanding.
    pub(super) initiator_depth: u8,
}

/// The local ACK timeout for packets that are under way as long as `life` says, and answered within `delay`; all three
/// are exponents, so a sum is the larger of two, or one more.
pub(super) fn ack_timeout(life: u8, delay: u8) -> u8 {
    // There and back.
    let round_trip = life + 1;
    let sum = if round_trip >= delay {
        round_trip + u8::from(delay + 1 >= round_trip)
    } else {
        delay + u8::from(round_trip + 1 >= delay)
    };
    sum.min(MAX_TIMER)
}

/// The timeout that a REQ announces, if the program has not chosen one.
pub(super) fn timeout_of_request(chosen: Option<u8>) -> u8 {
    ack_timeout(
        chosen.map_or(PACKET_LIFE, |code| code.saturating_sub(1)),
        CA_ACK_DELAY,
    )
}

/// The timeout of our queue pair, given the one announced in the REQ and how long the other side takes to answer.
pub(super) fn timeout_of_pair(chosen: Option<u8>, announced: u8, delay: u8) -> u8 {
    chosen.unwrap_or_else(|| ack_timeout(announced.saturating_sub(1), delay))
}

/// A depth as the program gave it: `0xff` means all that the device has.
pub(super) fn depth(given: u8, device: u8) -> u8 {
    if given == RDMA_MAX_RESP_RES {
        device
    } else {
        given.min(device)
    }
}

/// Attributes and the bits that announce them.
pub(super) type Attributes = (ibv_qp_attr, u32);

/// To INIT, also from INIT. What the peer may do is known only when the connection is.
pub(super) fn init(conn: Option<&Conn>) -> Attributes {
    let mut attr = ibv_qp_attr::zeroed();
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = PORT as u8;
    if let Some(conn) = conn {
        attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
        if conn.responder_resources > 0 {
            attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
        }
    }
    let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    (attr, mask)
}

/// How the peer is reached.
pub(super) fn address(path: &Path, sgid_index: u8) -> ibv_ah_attr {
    let mut attr = ibv_ah_attr::zeroed();
    attr.is_global = 1;
    attr.port_num = PORT as u8;
    attr.grh.dgid = ibv_gid { raw: path.dgid.0 };
    attr.grh.sgid_index = sgid_index;
    attr.grh.flow_label = path.flow_label;
    attr.grh.hop_limit = path.hop_limit;
    attr.grh.traffic_class = path.traffic_class;
    attr
}

/// INIT to RTR.
pub(super) fn rtr(conn: &Conn, kind: ibv_qp_type) -> Attributes {
    let mut attr = ibv_qp_attr::zeroed();
    attr.qp_state = IBV_QPS_RTR;
    attr.ah_attr = address(&conn.path, conn.sgid_index);
    attr.path_mtu = conn.mtu.into();
    attr.dest_qp_num = conn.remote_qpn;
    attr.rq_psn = conn.rq_psn;
    let mut mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    if kind != IBV_QPT_UC {
        attr.max_dest_rd_atomic = conn.responder_resources;
        // Timer code 0 is the longest there is, 655 ms. It is what Linux sets, and peers wait for.
        attr.min_rnr_timer = 0;
        mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    }
    (attr, mask)
}

/// RTR to RTS.
pub(super) fn rts(conn: &Conn, kind: ibv_qp_type) -> Attributes {
    let mut attr = ibv_qp_attr::zeroed();
    attr.qp_state = IBV_QPS_RTS;
    attr.sq_psn = conn.sq_psn;
    let mut mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    if kind != IBV_QPT_UC {
        attr.timeout = conn.timeout;
        attr.retry_cnt = conn.retry;
        attr.rnr_retry = conn.rnr_retry;
        attr.max_rd_atomic = conn.initiator_depth;
        mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    }
    (attr, mask)
}

/// The steps of a datagram queue pair.
pub(super) fn datagram(state: ibv_qp_state) -> Attributes {
    let mut attr = ibv_qp_attr::zeroed();
    attr.qp_state = state;
    let mask = match state {
        IBV_QPS_INIT => {
            attr.port_num = PORT as u8;
            attr.qkey = RDMA_UDP_QKEY;
            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY
        }
        IBV_QPS_RTS => IBV_QP_STATE | IBV_QP_SQ_PSN,
        _ => IBV_QP_STATE,
    };
    (attr, mask)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use adverb_nic::Gid;

    pub(in crate::rdma) fn conn() -> Conn {
        Conn {
            path: Path {
                sgid: Gid([1; 16]),
                dgid: Gid([2; 16]),
                traffic_class: 3,
                hop_limit: 64,
                flow_label: 0,
            },
            sgid_index: 1,
            mtu: 3,
            timeout: 17,
            retry: 7,
            rnr_retry: 6,
            sq_psn: 0x11,
            rq_psn: 0x22,
            remote_qpn: 0x33,
            responder_resources: 4,
            initiator_depth: 5,
        }
    }

    #[test]
    fn timeouts_add_up_as_exponents() {
        // Of the connection manager's notes: life 16 and an answer within 15 make 17 and a bit, so 18 is not reached.
        assert_eq!(ack_timeout(16, 15), 17);
        assert_eq!(ack_timeout(16, 16), 18);
        assert_eq!(ack_timeout(16, 10), 17);
        assert_eq!(ack_timeout(3, 20), 20);
        assert_eq!(ack_timeout(31, 31), 31);
        assert_eq!(timeout_of_request(None), 17);
        assert_eq!(timeout_of_request(Some(21)), 21);
        assert_eq!(timeout_of_pair(Some(21), 17, 10), 21);
        assert_eq!(timeout_of_pair(None, 17, 15), 17);
    }

    #[test]
    fn depths_keep_to_the_device() {
        assert_eq!(
            (depth(0xff, 128), depth(3, 128), depth(200, 128)),
            (128, 3, 128)
        );
    }

    #[test]
    fn access_follows_what_is_answered() {
        assert_eq!(init(None).0.qp_access_flags, 0);
        let mut silent = conn();
        silent.responder_resources = 0;
        assert_eq!(
            init(Some(&silent)).0.qp_access_flags,
            IBV_ACCESS_REMOTE_WRITE
        );
        let all = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
        assert_eq!(init(Some(&conn())).0.qp_access_flags, all);
    }

    #[test]
    fn the_steps_of_rc_and_uc_carry_what_they_need() {
        let (attr, mask) = rtr(&conn(), IBV_QPT_RC);
        assert_eq!(
            (attr.dest_qp_num, attr.rq_psn, attr.max_dest_rd_atomic),
            (0x33, 0x22, 4)
        );
        assert_ne!(mask & IBV_QP_MIN_RNR_TIMER, 0);
        let (attr, mask) = rts(&conn(), IBV_QPT_RC);
        assert_eq!(
            (attr.sq_psn, attr.timeout, attr.max_rd_atomic),
            (0x11, 17, 5)
        );
        assert_eq!((attr.retry_cnt, attr.rnr_retry), (7, 6));
        assert_ne!(mask & IBV_QP_TIMEOUT, 0);
        assert_eq!(rtr(&conn(), IBV_QPT_UC).1 & IBV_QP_MIN_RNR_TIMER, 0);
        assert_eq!(rts(&conn(), IBV_QPT_UC).1, IBV_QP_STATE | IBV_QP_SQ_PSN);
    }

    #[test]
    fn datagrams_all_have_one_key() {
        let (attr, mask) = datagram(IBV_QPS_INIT);
        assert_eq!(attr.qkey, 0x0123_4567);
        assert_ne!(mask & IBV_QP_QKEY, 0);
        assert_eq!(datagram(IBV_QPS_RTR).1, IBV_QP_STATE);
    }
}
