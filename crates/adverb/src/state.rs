//! The states of a queue pair.

use std::fmt;

use adverb_abi::types as c;

/// State of a queue pair. It can fall into [`Error`](QpState::Error) by itself at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_qp_state")]
pub enum QpState {
    /// Nothing set up.
    Reset,
    /// Receives can be posted.
    Init,
    /// RTR: receives and answers.
    ReadyToReceive,
    /// RTS: everything.
    ReadyToSend,
    /// SQD: finishes what was started, starts nothing new.
    SendQueueDrain,
    /// SQE: sending failed, receiving goes on (UC and UD).
    SendQueueError,
    /// Everything posted is flushed.
    Error,
    /// A value this library does not know.
    Unknown(u32),
}

impl QpState {
    pub(crate) fn from_raw(raw: c::ibv_qp_state) -> Self {
        match raw {
            c::IBV_QPS_RESET => Self::Reset,
            c::IBV_QPS_INIT => Self::Init,
            c::IBV_QPS_RTR => Self::ReadyToReceive,
            c::IBV_QPS_RTS => Self::ReadyToSend,
            c::IBV_QPS_SQD => Self::SendQueueDrain,
            c::IBV_QPS_SQE => Self::SendQueueError,
            c::IBV_QPS_ERR => Self::Error,
            other => Self::Unknown(other),
        }
    }

    pub(crate) fn raw(self) -> c::ibv_qp_state {
        match self {
            Self::Reset => c::IBV_QPS_RESET,
            Self::Init => c::IBV_QPS_INIT,
            Self::ReadyToReceive => c::IBV_QPS_RTR,
            Self::ReadyToSend => c::IBV_QPS_RTS,
            Self::SendQueueDrain => c::IBV_QPS_SQD,
            Self::SendQueueError => c::IBV_QPS_SQE,
            Self::Error => c::IBV_QPS_ERR,
            Self::Unknown(other) => other,
        }
    }
}

/// The specification's abbreviations.
impl fmt::Display for QpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reset => "RESET",
            Self::Init => "INIT",
            Self::ReadyToReceive => "RTR",
            Self::ReadyToSend => "RTS",
            Self::SendQueueDrain => "SQD",
            Self::SendQueueError => "SQE",
            Self::Error => "ERR",
            Self::Unknown(raw) => return write!(f, "state {raw}"),
        })
    }
}

/// A row's transports.
#[allow(
    unnameable_types,
    reason = "seen only in a hidden constant of a sealed trait"
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
}
