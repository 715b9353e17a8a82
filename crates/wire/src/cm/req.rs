//! REQ: who wants to be connected, with what, along which path.

use super::ServiceId;
use crate::bytes::{Reader, Writer};
use crate::{DEFAULT_PKEY, Gid, Psn};

/// Enhanced connection establishment: vendors' extensions. Zeros offer none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ece {
    /// 24 bits.
    pub vendor_id: u32,
    /// Travels in the attribute modifier of the common header.
    pub options: u32,
}

/// Which kind of queue pairs are to be connected.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum CmTransport {
    #[default]
    Rc,
    Uc,
    Rd,
    Xrc,
    /// An extended transport (3 bits) other than XRC.
    Reserved(u8),
}

impl CmTransport {
    const EXTENDED: u8 = 3;
    const EXTENDED_XRC: u8 = 1;

    const fn from_bits(transport: u8, extended: u8) -> Self {
        match (transport, extended) {
            (0, _) => Self::Rc,
            (1, _) => Self::Uc,
            (2, _) => Self::Rd,
            (_, Self::EXTENDED_XRC) => Self::Xrc,
            (_, other) => Self::Reserved(other),
        }
    }

    const fn to_bits(self) -> (u8, u8) {
        match self {
            Self::Rc => (0, 0),
            Self::Uc => (1, 0),
            Self::Rd => (2, 0),
            Self::Xrc => (Self::EXTENDED, Self::EXTENDED_XRC),
            Self::Reserved(bits) => (Self::EXTENDED, bits & 7),
        }
    }
}

/// A path as REQ describes it: local is the side that asks. Default: none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Path {
    /// Without a meaning on RoCE; 0xFFFF says that only the GIDs count.
    pub local_lid: u16,
    pub remote_lid: u16,
    pub local_gid: Gid,
    pub remote_gid: Gid,
    /// 20 bits.
    pub flow_label: u32,
    /// 6 bits.
    pub packet_rate: u8,
    pub traffic_class: u8,
    pub hop_limit: u8,
    /// Service level, 4 bits.
    pub sl: u8,
    pub subnet_local: bool,
    /// Local ACK timeout code, 5 bits.
    pub ack_timeout: u8,
}

impl Path {
    /// Whether there is such a path: an alternate one is absent when all is zero, and this field decides.
    #[must_use]
    pub const fn exists(&self) -> bool {
        self.local_lid != 0
    }

    fn parse(r: &mut Reader<'_>) -> Option<Self> {
        let local_lid = r.u16()?;
        let remote_lid = r.u16()?;
        let local_gid = Gid(r.take()?);
        let remote_gid = Gid(r.take()?);
        let label_and_rate = r.u32()?;
        let [traffic_class, hop_limit, level, timeout] = r.take()?;
        Some(Self {
            local_lid,
            remote_lid,
            local_gid,
            remote_gid,
            flow_label: label_and_rate >> 12,
            packet_rate: (label_and_rate & 0x3F) as u8,
            traffic_class,
            hop_limit,
            sl: level >> 4,
            subnet_local: level & 0x08 != 0,
            ack_timeout: timeout >> 3,
        })
    }

    fn emit(&self, out: &mut Writer<'_>) {
        out.put(self.local_lid.to_be_bytes());
        out.put(self.remote_lid.to_be_bytes());
        out.put(self.local_gid.0);
        out.put(self.remote_gid.0);
        let label_and_rate = self.flow_label << 12 | u32::from(self.packet_rate & 0x3F);
        out.put(label_and_rate.to_be_bytes());
        out.put([
            self.traffic_class,
            self.hop_limit,
            self.sl << 4 | u8::from(self.subnet_local) << 3,
            self.ack_timeout << 3,
        ]);
    }
}

/// Request for a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Req {
    pub local_id: u32,
    pub ece: Ece,
    pub service_id: ServiceId,
    /// GUID of the channel adapter that asks.
    pub ca_guid: u64,
    pub qkey: u32,
    /// The queue pair that asks, 24 bits.
    pub qpn: u32,
    /// READs and atomics that the sender answers at a time.
    pub responder_resources: u8,
    /// 24 bits, reliable datagrams only.
    pub local_eecn: u32,
    /// READs and atomics that the sender wants to have outstanding.
    pub initiator_depth: u8,
    /// 24 bits, reliable datagrams only.
    pub remote_eecn: u32,
    /// Timer code (5 bits): how soon the receiver of this is expected to answer.
    pub remote_response_timeout: u8,
    pub transport: CmTransport,
    pub flow_control: bool,
    /// The first sequence number that the *receiver* of this will use when it sends.
    pub psn: Psn,
    /// Timer code (5 bits): how soon the sender of this answers a REP.
    pub local_response_timeout: u8,
    /// 3 bits.
    pub retry_count: u8,
    pub pkey: u16,
    /// Path MTU code, 4 bits; see [`Mtu::from_ibv`](crate::Mtu::from_ibv).
    pub path_mtu: u8,
    /// A reliable datagram channel exists already.
    pub rdc_exists: bool,
    /// 3 bits. The receiver's queue pair uses it.
    pub rnr_retry: u8,
    /// How often each side repeats an unanswered message, 4 bits.
    pub max_cm_retries: u8,
    /// The sender receives from a shared receive queue.
    pub srq: bool,
    pub primary: Path,
    pub alternate: Path,
    pub private: [u8; Self::PRIVATE],
}

impl Req {
    pub(super) const ATTRIBUTE: u16 = 0x10;
    /// Bytes of private data. librdmacm's header takes 36 of them.
    pub const PRIVATE: usize = 92;

    pub(super) fn parse(modifier: u32, r: &mut Reader<'_>) -> Option<Self> {
        let local_id = r.u32()?;
        let _reserved = r.u8()?;
        let vendor_id = r.u24()?;
        let service_id = ServiceId(r.u64()?);
        let ca_guid = r.u64()?;
        let _reserved = r.u32()?;
        let qkey = r.u32()?;
        let qpn = r.u24()?;
        let responder_resources = r.u8()?;
        let local_eecn = r.u24()?;
        let initiator_depth = r.u8()?;
        let remote_eecn = r.u24()?;
        let remote = r.u8()?;
        let psn = Psn::new(r.u24()?);
        let local = r.u8()?;
        let pkey = r.u16()?;
        let mtu = r.u8()?;
        let retries = r.u8()?;
        Some(Self {
            local_id,
            ece: Ece {
                vendor_id,
                options: modifier,
            },
            service_id,
            ca_guid,
            qkey,
            qpn,
            responder_resources,
            local_eecn,
            initiator_depth,
            remote_eecn,
            remote_response_timeout: remote >> 3,
            transport: CmTransport::from_bits(remote >> 1 & 3, retries & 7),
            flow_control: remote & 1 != 0,
            psn,
            local_response_timeout: local >> 3,
            retry_count: local & 7,
            pkey,
            path_mtu: mtu >> 4,
            rdc_exists: mtu & 0x08 != 0,
            rnr_retry: mtu & 7,
            max_cm_retries: retries >> 4,
            srq: retries & 0x08 != 0,
            primary: Path::parse(r)?,
            alternate: Path::parse(r)?,
            private: r.take()?,
        })
    }

    pub(super) fn emit(&self, out: &mut Writer<'_>) {
        let (transport, extended) = self.transport.to_bits();
        out.put(self.local_id.to_be_bytes());
        out.put_u24(0, self.ece.vendor_id);
        out.put(self.service_id.0.to_be_bytes());
        out.put(self.ca_guid.to_be_bytes());
        out.put([0; 4]);
        out.put(self.qkey.to_be_bytes());
        out.put_u24_then(self.qpn, self.responder_resources);
        out.put_u24_then(self.local_eecn, self.initiator_depth);
        out.put_u24_then(
            self.remote_eecn,
            self.remote_response_timeout << 3 | transport << 1 | u8::from(self.flow_control),
        );
        out.put_u24_then(
            self.psn.value(),
            self.local_response_timeout << 3 | self.retry_count & 7,
        );
        out.put(self.pkey.to_be_bytes());
        out.put([
            self.path_mtu << 4 | u8::from(self.rdc_exists) << 3 | self.rnr_retry & 7,
            self.max_cm_retries << 4 | u8::from(self.srq) << 3 | extended,
        ]);
        self.primary.emit(out);
        self.alternate.emit(out);
        out.put(self.private);
    }
}

impl Default for Req {
    /// Zeros, in the default partition.
    fn default() -> Self {
        Self {
            local_id: 0,
            ece: Ece::default(),
            service_id: ServiceId::default(),
            ca_guid: 0,
            qkey: 0,
            qpn: 0,
            responder_resources: 0,
            local_eecn: 0,
            initiator_depth: 0,
            remote_eecn: 0,
            remote_response_timeout: 0,
            transport: CmTransport::Rc,
            flow_control: false,
            psn: Psn::default(),
            local_response_timeout: 0,
            retry_count: 0,
            pkey: DEFAULT_PKEY,
            path_mtu: 0,
            rdc_exists: false,
            rnr_retry: 0,
            max_cm_retries: 0,
            srq: false,
            primary: Path::default(),
            alternate: Path::default(),
            private: [0; Self::PRIVATE],
        }
    }
}
