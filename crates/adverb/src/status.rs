//! How an operation can fail after it was posted.

use std::fmt;

use adverb_abi::types as c;

/// Why an operation failed. After it the queue pair is in the error state (a UC or UD sender: in
/// SQE) and everything else outstanding on it is flushed.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{status}{}", vendor(*vendor_err))]
pub struct WcError {
    /// The status.
    pub status: WcStatus,
    /// A number whose meaning only the vendor of the device knows.
    pub vendor_err: u32,
}

impl fmt::Debug for WcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WcError({self})")
    }
}

fn vendor(err: u32) -> String {
    if err == 0 {
        String::new()
    } else {
        format!(" (vendor error {err:#x})")
    }
}

/// The status of a work completion (ibv_poll_cq(3); InfiniBand specification volume 1, section
/// 11.6.2). A number, because devices may add to the list.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_wc_status")]
pub struct WcStatus(pub u32);

macro_rules! statuses {
    ($($name:ident = $value:expr, $text:literal, $advice:literal;)*) => {
        impl WcStatus {
            $(#[doc = concat!("The ", $text, ".")] pub const $name: Self = Self($value);)*

            /// Its name, without prefix.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                    _ => "UNKNOWN",
                }
            }

            /// What it means, in a few words.
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                    _ => "status is not one that this library knows",
                }
            }

            /// What to look at first.
            pub fn advice(self) -> &'static str {
                match self {
                    $(Self::$name => $advice,)*
                    _ => "see the documentation of the device",
                }
            }
        }
    };
}

statuses! {
    SUCCESS = c::IBV_WC_SUCCESS, "operation succeeded", "nothing to do";
    LOC_LEN_ERR = c::IBV_WC_LOC_LEN_ERR, "message does not fit",
        "the posted receive buffer is smaller than the message, or a send is longer than the port allows";
    LOC_QP_OP_ERR = c::IBV_WC_LOC_QP_OP_ERR, "local queue pair failed inside",
        "the work request is inconsistent with the queue pair";
    LOC_EEC_OP_ERR = c::IBV_WC_LOC_EEC_OP_ERR, "local EE context failed inside", "RD transport only";
    LOC_PROT_ERR = c::IBV_WC_LOC_PROT_ERR, "local buffer is not accessible",
        "the local key, range, protection domain or write right of the buffer does not fit the operation";
    WR_FLUSH_ERR = c::IBV_WC_WR_FLUSH_ERR, "operation was flushed",
        "the queue pair went into the error state before; an earlier completion has the reason";
    MW_BIND_ERR = c::IBV_WC_MW_BIND_ERR, "memory window could not be bound",
        "check the rights and the state of region and window";
    BAD_RESP_ERR = c::IBV_WC_BAD_RESP_ERR, "peer's response makes no sense",
        "the two ends disagree on the connection's parameters";
    LOC_ACCESS_ERR = c::IBV_WC_LOC_ACCESS_ERR, "peer touched memory it may not",
        "the peer's write with immediate used a key, range or right that is not granted";
    REM_INV_REQ_ERR = c::IBV_WC_REM_INV_REQ_ERR, "peer called the request invalid",
        "its receive buffer is too small, or its queue pair does not permit this kind of operation";
    REM_ACCESS_ERR = c::IBV_WC_REM_ACCESS_ERR, "peer refused access to its memory",
        "the remote key, range or right is wrong, or the region is gone";
    REM_OP_ERR = c::IBV_WC_REM_OP_ERR, "peer could not complete the operation",
        "its receive buffer or completion queue is broken";
    RETRY_EXC_ERR = c::IBV_WC_RETRY_EXC_ERR, "peer did not answer after all retries",
        "the peer is gone, not yet connected, or the path is blocked; check GID, queue pair number, PSN and firewall (UDP 4791)";
    RNR_RETRY_EXC_ERR = c::IBV_WC_RNR_RETRY_EXC_ERR, "peer had no receive posted after all retries",
        "post receives before the peer sends, or raise rnr_retry (7 means for ever)";
    LOC_RDD_VIOL_ERR = c::IBV_WC_LOC_RDD_VIOL_ERR, "local RDD was violated", "RD transport only";
    REM_INV_RD_REQ_ERR = c::IBV_WC_REM_INV_RD_REQ_ERR, "peer called the RD request invalid", "RD transport only";
    REM_ABORT_ERR = c::IBV_WC_REM_ABORT_ERR, "peer aborted the operation", "see the peer's log";
    INV_EECN_ERR = c::IBV_WC_INV_EECN_ERR, "EE context number is invalid", "RD transport only";
    INV_EEC_STATE_ERR = c::IBV_WC_INV_EEC_STATE_ERR, "EE context is in a wrong state", "RD transport only";
    FATAL_ERR = c::IBV_WC_FATAL_ERR, "device failed", "read the async events; the device may need a reset";
    RESP_TIMEOUT_ERR = c::IBV_WC_RESP_TIMEOUT_ERR, "peer's response did not come in time", "as for RETRY_EXC_ERR";
    GENERAL_ERR = c::IBV_WC_GENERAL_ERR, "operation failed", "the vendor error has the detail";
    TM_ERR = c::IBV_WC_TM_ERR, "tag matching failed", "see the vendor error";
    TM_RNDV_INCOMPLETE = c::IBV_WC_TM_RNDV_INCOMPLETE, "rendezvous is incomplete", "finish it in software";
}

impl fmt::Display for WcStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.name(), self.0, self.meaning())?;
        if *self != Self::SUCCESS {
            write!(f, "; {}", self.advice())?;
        }
        Ok(())
    }
}

impl fmt::Debug for WcStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.name(), self.0)
    }
}
