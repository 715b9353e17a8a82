//! What the two sides of a connection tell each other about it.

use adverb_abi::types as c;

use crate::error::{Error, Result};
use crate::qp::{QueuePair, Receives};
use crate::transport::Rc;

/// Most private data of a request for a connection, in bytes: 92 of the REQ (InfiniBand
/// Architecture, volume 1, section 12.7.1), less the 36 that name the addresses.
pub const MAX_REQUEST_DATA: usize = 56;
/// Most private data with an acceptance, in bytes (section 12.7.4).
pub const MAX_ACCEPT_DATA: usize = 196;
/// Most private data with a rejection, in bytes (section 12.7.3).
pub const MAX_REJECT_DATA: usize = 148;

/// How a connection is to be: given with a request ([`Route::connect`](super::Route::connect))
/// and with an acceptance ([`Request::accept`](super::Request::accept)).
///
/// ```
/// # use adverb::cm::Params;
/// let params = Params {
///     private_data: b"key-value store, version 1".to_vec(),
///     initiator_depth: Some(4),
///     ..Params::default()
/// };
/// # let _ = params;
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Params {
    /// Bytes for the peer's program, at most [`MAX_REQUEST_DATA`] or [`MAX_ACCEPT_DATA`]. They
    /// arrive filled up with zeros to that length: the protocol carries no length of its own.
    pub private_data: Vec<u8>,
    /// Reads and atomics that this side answers at a time, at most the device's
    /// [`max_rd_atomic`](crate::DeviceAttr::max_rd_atomic). `None`: all it can; on acceptance as
    /// many of these as the peer asked for.
    pub responder_resources: Option<u8>,
    /// Reads and atomics that this side has outstanding at a time, at most the device's
    /// [`max_init_rd_atomic`](crate::DeviceAttr::max_init_rd_atomic). `None`: as above.
    pub initiator_depth: Option<u8>,
    /// Retries after a timeout, 0 to 7, for both sides; counts in requests only.
    pub retry_count: u8,
    /// Retries of the *peer* when this side has no receive, 0 to 6, or 7 for ever.
    pub rnr_retry: u8,
    /// Code of the pause asked of a peer that finds no receive, 0 to 31.
    pub min_rnr_timer: u8,
    /// Code of the acknowledgement timeout, 0 (for ever) to 31: 4.096 µs times 2 to its power.
    /// `None`: what the connection manager makes of the path.
    pub ack_timeout: Option<u8>,
}

/// No private data; all the reads and atomics that are to be had; seven retries, and for ever when
/// the peer has no receive, 0.64 ms apart.
impl Default for Params {
    fn default() -> Self {
        Self {
            private_data: Vec::new(),
            responder_resources: None,
            initiator_depth: None,
            retry_count: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            ack_timeout: None,
        }
    }
}

/// Reads and atomics at a time: answered, and outstanding.
#[derive(Clone, Copy, Debug)]
pub(super) struct Depths {
    pub(super) answered: u8,
    pub(super) started: u8,
}

/// `value` unless it is beyond `limit`.
pub(super) fn at_most(what: &'static str, value: u64, limit: u64) -> Result<()> {
    if value > limit {
        return Err(Error::Value { what, value, limit });
    }
    Ok(())
}

impl Params {
    /// The usual ones, with private data.
    pub fn with_private_data(bytes: impl Into<Vec<u8>>) -> Self {
        Self {
            private_data: bytes.into(),
            ..Self::default()
        }
    }

    /// Whether every value is one that exists, and what the device makes of the depths. `asked` is
    /// what the peer wants.
    pub(super) fn check(
        &self,
        qp: &QueuePair<Rc>,
        asked: Option<Depths>,
        max_data: usize,
    ) -> Result<Depths> {
        for (what, value, limit) in [
            (
                "private data, in bytes,",
                self.private_data.len() as u64,
                max_data as u64,
            ),
            ("retry_count", self.retry_count.into(), 7),
            ("rnr_retry", self.rnr_retry.into(), 7),
            ("min_rnr_timer", self.min_rnr_timer.into(), 31),
            ("ack_timeout", self.ack_timeout.unwrap_or(0).into(), 31),
        ] {
            at_most(what, value, limit)?;
        }
        let (starts, answers) = qp.rd_atomic;
        Ok(Depths {
            answered: depth(
                "responder_resources",
                self.responder_resources,
                answers,
                asked.map(|a| a.answered),
            )?,
            started: depth(
                "initiator_depth",
                self.initiator_depth,
                starts,
                asked.map(|a| a.started),
            )?,
        })
    }

    /// For C. The private data is borrowed by address.
    pub(super) fn raw(&self, qp: &QueuePair<Rc>, depths: Depths) -> c::rdma_conn_param {
        c::rdma_conn_param {
            private_data: self.private_data.as_ptr().cast(),
            private_data_len: self.private_data.len() as u8,
            responder_resources: depths.answered,
            initiator_depth: depths.started,
            flow_control: 1,
            retry_count: self.retry_count,
            rnr_retry_count: self.rnr_retry,
            srq: matches!(qp.inner.recv, Receives::Shared(..)).into(),
            qp_num: qp.num(),
        }
    }
}

fn depth(what: &'static str, given: Option<u8>, device: u32, asked: Option<u8>) -> Result<u8> {
    let device = u8::try_from(device).unwrap_or(u8::MAX);
    match given {
        Some(given) => at_most(what, given.into(), device.into()).map(|()| given),
        None => Ok(asked.unwrap_or(u8::MAX).min(device)),
    }
}
