//! Attributes of queue pairs, for callers that walk the states themselves.

use adverb_abi::flags::{AccessFlags, QpAttrMask};
use adverb_abi::types::{self as c, Zeroed};

use crate::ah::AhAttr;
use crate::error::{Error, Result};
use crate::state::QpState;
use crate::values::{Mtu, low24};

/// What [`QueuePair::modify`](crate::QueuePair::modify) is to set; `None` leaves an attribute
/// alone (ibv_modify_qp(3)).
///
/// ```
/// use adverb::{QpAttr, QpState};
/// let to_error = QpAttr { state: Some(QpState::Error), ..QpAttr::default() };
/// # let _ = to_error;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(alias = "ibv_qp_attr")]
pub struct QpAttr {
    /// The state to go to; without it attributes change and the state stays.
    pub state: Option<QpState>,
    /// The state that the caller believes the queue pair to be in.
    pub current_state: Option<QpState>,
    /// What peers may do through this queue pair.
    pub access: Option<AccessFlags>,
    /// Place of the partition key.
    pub pkey_index: Option<u16>,
    /// Port, from 1.
    pub port: Option<u8>,
    /// Queue key, for datagrams.
    pub qkey: Option<u32>,
    /// The way to the peer.
    pub address: Option<AhAttr>,
    /// Payload bytes in one packet.
    pub path_mtu: Option<Mtu>,
    /// The peer's queue pair, 24 bits.
    pub dest_qpn: Option<u32>,
    /// The first sequence number expected, 24 bits.
    pub rq_psn: Option<u32>,
    /// The first sequence number sent, 24 bits.
    pub sq_psn: Option<u32>,
    /// Reads and atomics that the peer may have outstanding here.
    pub max_dest_rd_atomic: Option<u8>,
    /// Reads and atomics that we may have outstanding.
    pub max_rd_atomic: Option<u8>,
    /// Code of the pause asked of a peer that finds no receive, 0 to 31.
    pub min_rnr_timer: Option<u8>,
    /// Code of the acknowledgement timeout, 0 (for ever) to 31: 4.096 µs times 2 to its power.
    pub timeout: Option<u8>,
    /// Retries after a timeout, 0 to 7.
    pub retry_count: Option<u8>,
    /// Retries when the peer has no receive, 0 to 6, or 7 for ever.
    pub rnr_retry: Option<u8>,
    /// Whether going to SQD raises an event when the queue is drained.
    pub notify_drained: Option<bool>,
}

impl QpAttr {
    /// Which attributes are given.
    pub fn mask(&self) -> QpAttrMask {
        use QpAttrMask as M;
        let bits = [
            (self.state.is_some(), M::STATE),
            (self.current_state.is_some(), M::CUR_STATE),
            (self.access.is_some(), M::ACCESS_FLAGS),
            (self.pkey_index.is_some(), M::PKEY_INDEX),
            (self.port.is_some(), M::PORT),
            (self.qkey.is_some(), M::QKEY),
            (self.address.is_some(), M::AV),
            (self.path_mtu.is_some(), M::PATH_MTU),
            (self.dest_qpn.is_some(), M::DEST_QPN),
            (self.rq_psn.is_some(), M::RQ_PSN),
            (self.sq_psn.is_some(), M::SQ_PSN),
            (self.max_dest_rd_atomic.is_some(), M::MAX_DEST_RD_ATOMIC),
            (self.max_rd_atomic.is_some(), M::MAX_QP_RD_ATOMIC),
            (self.min_rnr_timer.is_some(), M::MIN_RNR_TIMER),
            (self.timeout.is_some(), M::TIMEOUT),
            (self.retry_count.is_some(), M::RETRY_CNT),
            (self.rnr_retry.is_some(), M::RNR_RETRY),
            (self.notify_drained.is_some(), M::EN_SQD_ASYNC_NOTIFY),
        ];
        bits.into_iter()
            .filter(|(given, _)| *given)
            .map(|(_, bit)| bit)
            .collect()
    }

    /// Whether every value is one that exists; which ones the device allows is its business.
    pub(crate) fn check(&self) -> Result<()> {
        let psn = |v: Option<u32>| v.map(u64::from);
        let code = |v: Option<u8>| v.map(u64::from);
        let limits = [
            ("dest_qpn", psn(self.dest_qpn), 0x00ff_ffff),
            ("rq_psn", psn(self.rq_psn), 0x00ff_ffff),
            ("sq_psn", psn(self.sq_psn), 0x00ff_ffff),
            ("min_rnr_timer", code(self.min_rnr_timer), 31),
            ("timeout", code(self.timeout), 31),
            ("retry_count", code(self.retry_count), 7),
            ("rnr_retry", code(self.rnr_retry), 7),
        ];
        for (what, value, limit) in limits {
            if let Some(value) = value.filter(|v| *v > limit) {
                return Err(Error::Value { what, value, limit });
            }
        }
        Ok(())
    }

    pub(crate) fn raw(&self) -> c::ibv_qp_attr {
        let mut raw = c::ibv_qp_attr::zeroed();
        raw.qp_state = self.state.map_or(0, QpState::raw);
        raw.cur_qp_state = self.current_state.map_or(0, QpState::raw);
        raw.qp_access_flags = self.access.unwrap_or_default().bits();
        raw.pkey_index = self.pkey_index.unwrap_or(0);
        raw.port_num = self.port.unwrap_or(0);
        raw.qkey = self.qkey.unwrap_or(0);
        if let Some(address) = self.address {
            raw.ah_attr = address.raw();
        }
        raw.path_mtu = self.path_mtu.map_or(0, |m| m as u32);
        raw.dest_qp_num = self.dest_qpn.unwrap_or(0);
        raw.rq_psn = low24(self.rq_psn.unwrap_or(0));
        raw.sq_psn = low24(self.sq_psn.unwrap_or(0));
        raw.max_dest_rd_atomic = self.max_dest_rd_atomic.unwrap_or(0);
        raw.max_rd_atomic = self.max_rd_atomic.unwrap_or(0);
        raw.min_rnr_timer = self.min_rnr_timer.unwrap_or(0);
        raw.timeout = self.timeout.unwrap_or(0);
        raw.retry_cnt = self.retry_count.unwrap_or(0);
        raw.rnr_retry = self.rnr_retry.unwrap_or(0);
        raw.en_sqd_async_notify = u8::from(self.notify_drained.unwrap_or(false));
        raw
    }
}

/// How a connection behaves; the default suits most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectOptions {
    /// Code of the acknowledgement timeout, 0 (for ever) to 31: 4.096 µs times 2 to its power.
    pub timeout: u8,
    /// Retries after a timeout, 0 to 7.
    pub retry_count: u8,
    /// Retries when the peer has no receive, 0 to 6, or 7 for ever.
    pub rnr_retry: u8,
    /// Code of the pause asked of a peer that finds no receive, 0 to 31.
    pub min_rnr_timer: u8,
    /// Reads and atomics outstanding in each direction, as far as the device allows. Both sides
    /// should say the same.
    pub max_rd_atomic: u8,
    /// Largest MTU to use; the smaller of both ports' counts anyway.
    pub max_mtu: Mtu,
    /// Routers a packet may pass.
    pub hop_limit: u8,
    /// Traffic class: DSCP and ECN bits.
    pub traffic_class: u8,
    /// Service level, 0 to 15.
    pub service_level: u8,
}

/// 67 ms and seven retries; for ever when the peer has no receive; 16 reads and atomics.
impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            timeout: 14,
            retry_count: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            max_rd_atomic: 16,
            max_mtu: Mtu::B4096,
            hop_limit: 64,
            traffic_class: 0,
            service_level: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_names_exactly_what_is_given() {
        assert_eq!(QpAttr::default().mask(), QpAttrMask::empty());
        let attr = QpAttr {
            state: Some(QpState::Init),
            port: Some(1),
            ..QpAttr::default()
        };
        assert_eq!(attr.mask(), QpAttrMask::STATE | QpAttrMask::PORT);
    }

    #[test]
    fn values_that_do_not_exist_are_named_with_their_limit() {
        let attr = QpAttr {
            rnr_retry: Some(8),
            ..QpAttr::default()
        };
        assert!(matches!(
            attr.check(),
            Err(Error::Value {
                what: "rnr_retry",
                value: 8,
                limit: 7
            })
        ));
        let attr = QpAttr {
            sq_psn: Some(1 << 24),
            ..QpAttr::default()
        };
        assert!(attr.check().is_err());
    }
}
