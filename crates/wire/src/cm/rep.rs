//! REP: the answer that accepts a REQ.

use super::req::Ece;
use crate::Psn;
use crate::bytes::{Reader, Writer};

/// Reply to a request for a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rep {
    pub local_id: u32,
    pub remote_id: u32,
    pub qkey: u32,
    /// The queue pair that accepts, 24 bits; XRC has its target in [`Rep::eecn`].
    pub qpn: u32,
    /// 24 bits: the target queue pair of XRC.
    pub eecn: u32,
    /// The first sequence number that the *receiver* of this will use when it sends.
    pub psn: Psn,
    /// READs and atomics that the sender answers at a time.
    pub responder_resources: u8,
    /// READs and atomics that the sender will have outstanding.
    pub initiator_depth: u8,
    /// Timer code, 5 bits.
    pub target_ack_delay: u8,
    /// 2 bits: whether an alternate path was accepted.
    pub failover: u8,
    pub flow_control: bool,
    /// 3 bits. The receiver's queue pair uses it.
    pub rnr_retry: u8,
    /// The sender receives from a shared receive queue.
    pub srq: bool,
    /// GUID of the channel adapter that accepts.
    pub ca_guid: u64,
    pub ece: Ece,
    pub private: [u8; Self::PRIVATE],
}

impl Rep {
    pub(super) const ATTRIBUTE: u16 = 0x13;
    pub const PRIVATE: usize = 196;

    pub(super) fn parse(modifier: u32, r: &mut Reader<'_>) -> Option<Self> {
        let local_id = r.u32()?;
        let remote_id = r.u32()?;
        let qkey = r.u32()?;
        let (qpn, vendor_high) = (r.u24()?, r.u8()?);
        let (eecn, vendor_middle) = (r.u24()?, r.u8()?);
        let (psn, vendor_low) = (Psn::new(r.u24()?), r.u8()?);
        let [responder_resources, initiator_depth, ack, retry] = r.take()?;
        Some(Self {
            local_id,
            remote_id,
            qkey,
            qpn,
            eecn,
            psn,
            responder_resources,
            initiator_depth,
            target_ack_delay: ack >> 3,
            failover: ack >> 1 & 3,
            flow_control: ack & 1 != 0,
            rnr_retry: retry >> 5,
            srq: retry & 0x10 != 0,
            ca_guid: r.u64()?,
            ece: Ece {
                // The vendor ID lies in what the three numbers before leave over of their words.
                vendor_id: u32::from_be_bytes([0, vendor_high, vendor_middle, vendor_low]),
                options: modifier,
            },
            private: r.take()?,
        })
    }

    pub(super) fn emit(&self, out: &mut Writer<'_>) {
        let [_, vendor_high, vendor_middle, vendor_low] = self.ece.vendor_id.to_be_bytes();
        out.put(self.local_id.to_be_bytes());
        out.put(self.remote_id.to_be_bytes());
        out.put(self.qkey.to_be_bytes());
        out.put_u24_then(self.qpn, vendor_high);
        out.put_u24_then(self.eecn, vendor_middle);
        out.put_u24_then(self.psn.value(), vendor_low);
        out.put([
            self.responder_resources,
            self.initiator_depth,
            self.target_ack_delay << 3 | (self.failover & 3) << 1 | u8::from(self.flow_control),
            self.rnr_retry << 5 | u8::from(self.srq) << 4,
        ]);
        out.put(self.ca_guid.to_be_bytes());
        out.put(self.private);
    }
}

impl Default for Rep {
    fn default() -> Self {
        Self {
            local_id: 0,
            remote_id: 0,
            qkey: 0,
            qpn: 0,
            eecn: 0,
            psn: Psn::default(),
            responder_resources: 0,
            initiator_depth: 0,
            target_ack_delay: 0,
            failover: 0,
            flow_control: false,
            rnr_retry: 0,
            srq: false,
            ca_guid: 0,
            ece: Ece::default(),
            private: [0; Self::PRIVATE],
        }
    }
}
