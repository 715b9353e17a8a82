//! Texts, rates, the clock, and fork: what needs no object.

use std::ffi::{CStr, c_char, c_int};

use adverb_abi::types::*;

use crate::call;
use crate::errno::Error;
use crate::handle::{find_context, not_null};

/// Time stamps count nanoseconds.
pub(crate) const CLOCK_KHZ: u64 = 1_000_000;

/// Port speed: four lanes of 25 Gbit/s. A number has to be there, and programs divide by it; the real one is that of the
/// machine.
pub(crate) const WIDTH_4X: u8 = 2;
pub(crate) const SPEED_EDR: u8 = 32;
pub(crate) const SPEED_100MBIT: u64 = 1000;

fn nanos(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the clocks asked for always exist, and the place can be written.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The wall clock's time for a time stamp.
pub(crate) fn wall_clock(stamp: u64) -> u64 {
    let age = nanos(libc::CLOCK_MONOTONIC).saturating_sub(stamp);
    nanos(libc::CLOCK_REALTIME).saturating_sub(age)
}

/// `ibv_query_rt_values_ex(3)`, behind the context's table: the clock that time stamps are taken from.
///
/// # Safety
/// `context` is NULL or a context, `values` is NULL or can be read and written.
pub(crate) unsafe extern "C" fn query_rt_values(
    context: *mut ibv_context,
    values: *mut ibv_values_ex,
) -> c_int {
    let query = || -> Result<(), Error> {
        // SAFETY: as our caller promises.
        unsafe { find_context(context) }?;
        not_null(values, "place for the values")?;
        let now = nanos(libc::CLOCK_MONOTONIC);
        // SAFETY: not NULL, so the caller vouches for it.
        unsafe {
            let asked = (*values).comp_mask;
            (*values).comp_mask = asked & IBV_VALUES_MASK_RAW_CLOCK;
            if asked & IBV_VALUES_MASK_RAW_CLOCK != 0 {
                // As with devices that count ticks: the whole count is in the nanoseconds.
                (*values).raw_clock = libc::timespec {
                    tv_sec: 0,
                    tv_nsec: now as libc::c_long,
                };
            }
        }
        Ok(())
    };
    call::status("ibv_query_rt_values_ex", query)
}

/// `ibv_fork_init(3)`: data moves through the process's own addresses, so there is nothing to protect from fork.
///
/// # Safety
/// Always safe to call.
pub unsafe extern "C" fn ibv_fork_init() -> c_int {
    0
}

/// `ibv_is_fork_initialized(3)`.
///
/// # Safety
/// Always safe to call.
pub unsafe extern "C" fn ibv_is_fork_initialized() -> ibv_fork_status {
    IBV_FORK_UNNEEDED
}

/// A table of texts as a function that never fails.
macro_rules! texts {
    ($(#[$doc:meta])* $name:ident($type:ty), $unknown:literal, { $($value:path => $text:literal,)* }) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// Always safe to call.
        pub unsafe extern "C" fn $name(value: $type) -> *const c_char {
            let text: &'static CStr = match value {
                $($value => $text,)*
                _ => $unknown,
            };
            text.as_ptr()
        }
    };
}

texts! {
    /// `ibv_node_type_str(3)`.
    ibv_node_type_str(ibv_node_type), c"unknown", {
        IBV_NODE_CA => c"InfiniBand channel adapter",
        IBV_NODE_SWITCH => c"InfiniBand switch",
        IBV_NODE_ROUTER => c"InfiniBand router",
        IBV_NODE_RNIC => c"iWARP NIC",
        IBV_NODE_USNIC => c"usNIC",
        IBV_NODE_USNIC_UDP => c"usNIC UDP",
        IBV_NODE_UNSPECIFIED => c"unspecified",
    }
}

texts! {
    /// `ibv_port_state_str(3)`.
    ibv_port_state_str(ibv_port_state), c"unknown", {
        IBV_PORT_NOP => c"no state change (NOP)",
        IBV_PORT_DOWN => c"DOWN",
        IBV_PORT_INIT => c"INIT",
        IBV_PORT_ARMED => c"ARMED",
        IBV_PORT_ACTIVE => c"ACTIVE",
        IBV_PORT_ACTIVE_DEFER => c"ACTIVE DEFER",
    }
}

texts! {
    /// `ibv_event_type_str(3)`.
    ibv_event_type_str(ibv_event_type), c"unknown", {
        IBV_EVENT_CQ_ERR => c"CQ error",
        IBV_EVENT_QP_FATAL => c"local work queue catastrophic error",
        IBV_EVENT_QP_REQ_ERR => c"invalid request local work queue error",
        IBV_EVENT_QP_ACCESS_ERR => c"local access violation work queue error",
        IBV_EVENT_COMM_EST => c"communication established",
        IBV_EVENT_SQ_DRAINED => c"send queue drained",
        IBV_EVENT_PATH_MIG => c"path migrated",
        IBV_EVENT_PATH_MIG_ERR => c"path migration request error",
        IBV_EVENT_DEVICE_FATAL => c"local catastrophic error",
        IBV_EVENT_PORT_ACTIVE => c"port active",
        IBV_EVENT_PORT_ERR => c"port error",
        IBV_EVENT_LID_CHANGE => c"LID change",
        IBV_EVENT_PKEY_CHANGE => c"P_Key change",
        IBV_EVENT_SM_CHANGE => c"SM change",
        IBV_EVENT_SRQ_ERR => c"SRQ catastrophic error",
        IBV_EVENT_SRQ_LIMIT_REACHED => c"SRQ limit reached",
        IBV_EVENT_QP_LAST_WQE_REACHED => c"last WQE reached",
        IBV_EVENT_CLIENT_REREGISTER => c"client reregistration",
        IBV_EVENT_GID_CHANGE => c"GID table change",
        IBV_EVENT_WQ_FATAL => c"WQ fatal",
        IBV_EVENT_DEVICE_SPEED_CHANGE => c"device speed change",
    }
}

texts! {
    /// `ibv_wc_status_str(3)`.
    ibv_wc_status_str(ibv_wc_status), c"unknown", {
        IBV_WC_SUCCESS => c"success",
        IBV_WC_LOC_LEN_ERR => c"local length error",
        IBV_WC_LOC_QP_OP_ERR => c"local QP operation error",
        IBV_WC_LOC_EEC_OP_ERR => c"local EE context operation error",
        IBV_WC_LOC_PROT_ERR => c"local protection error",
        IBV_WC_WR_FLUSH_ERR => c"Work Request Flushed Error",
        IBV_WC_MW_BIND_ERR => c"memory window bind error",
        IBV_WC_BAD_RESP_ERR => c"bad response error",
        IBV_WC_LOC_ACCESS_ERR => c"local access error",
        IBV_WC_REM_INV_REQ_ERR => c"remote invalid request error",
        IBV_WC_REM_ACCESS_ERR => c"remote access error",
        IBV_WC_REM_OP_ERR => c"remote operation error",
        IBV_WC_RETRY_EXC_ERR => c"transport retry counter exceeded",
        IBV_WC_RNR_RETRY_EXC_ERR => c"RNR retry counter exceeded",
        IBV_WC_LOC_RDD_VIOL_ERR => c"local RDD violation error",
        IBV_WC_REM_INV_RD_REQ_ERR => c"remote invalid RD request",
        IBV_WC_REM_ABORT_ERR => c"operation aborted by the remote side",
        IBV_WC_INV_EECN_ERR => c"invalid EE context number",
        IBV_WC_INV_EEC_STATE_ERR => c"invalid EE context state",
        IBV_WC_FATAL_ERR => c"fatal error",
        IBV_WC_RESP_TIMEOUT_ERR => c"response timeout error",
        IBV_WC_GENERAL_ERR => c"general error",
        IBV_WC_TM_ERR => c"tag matching error",
        IBV_WC_TM_RNDV_INCOMPLETE => c"tag matching rendezvous incomplete",
    }
}

texts! {
    /// What newer debugging tools print for an opcode.
    ibv_wr_opcode_str(ibv_wr_opcode), c"unknown", {
        IBV_WR_RDMA_WRITE => c"RDMA_WRITE",
        IBV_WR_RDMA_WRITE_WITH_IMM => c"RDMA_WRITE_WITH_IMM",
        IBV_WR_SEND => c"SEND",
        IBV_WR_SEND_WITH_IMM => c"SEND_WITH_IMM",
        IBV_WR_RDMA_READ => c"RDMA_READ",
        IBV_WR_ATOMIC_CMP_AND_SWP => c"ATOMIC_CMP_AND_SWP",
        IBV_WR_ATOMIC_FETCH_AND_ADD => c"ATOMIC_FETCH_AND_ADD",
        IBV_WR_LOCAL_INV => c"LOCAL_INV",
        IBV_WR_BIND_MW => c"BIND_MW",
        IBV_WR_SEND_WITH_INV => c"SEND_WITH_INV",
        IBV_WR_TSO => c"TSO",
        IBV_WR_DRIVER1 => c"DRIVER1",
        IBV_WR_FLUSH => c"FLUSH",
        IBV_WR_ATOMIC_WRITE => c"ATOMIC_WRITE",
    }
}

texts! {
    /// `rdma_event_str(3)`.
    rdma_event_str(rdma_cm_event_type), c"unknown", {
        RDMA_CM_EVENT_ADDR_RESOLVED => c"RDMA_CM_EVENT_ADDR_RESOLVED",
        RDMA_CM_EVENT_ADDR_ERROR => c"RDMA_CM_EVENT_ADDR_ERROR",
        RDMA_CM_EVENT_ROUTE_RESOLVED => c"RDMA_CM_EVENT_ROUTE_RESOLVED",
        RDMA_CM_EVENT_ROUTE_ERROR => c"RDMA_CM_EVENT_ROUTE_ERROR",
        RDMA_CM_EVENT_CONNECT_REQUEST => c"RDMA_CM_EVENT_CONNECT_REQUEST",
        RDMA_CM_EVENT_CONNECT_RESPONSE => c"RDMA_CM_EVENT_CONNECT_RESPONSE",
        RDMA_CM_EVENT_CONNECT_ERROR => c"RDMA_CM_EVENT_CONNECT_ERROR",
        RDMA_CM_EVENT_UNREACHABLE => c"RDMA_CM_EVENT_UNREACHABLE",
        RDMA_CM_EVENT_REJECTED => c"RDMA_CM_EVENT_REJECTED",
        RDMA_CM_EVENT_ESTABLISHED => c"RDMA_CM_EVENT_ESTABLISHED",
        RDMA_CM_EVENT_DISCONNECTED => c"RDMA_CM_EVENT_DISCONNECTED",
        RDMA_CM_EVENT_DEVICE_REMOVAL => c"RDMA_CM_EVENT_DEVICE_REMOVAL",
        RDMA_CM_EVENT_MULTICAST_JOIN => c"RDMA_CM_EVENT_MULTICAST_JOIN",
        RDMA_CM_EVENT_MULTICAST_ERROR => c"RDMA_CM_EVENT_MULTICAST_ERROR",
        RDMA_CM_EVENT_ADDR_CHANGE => c"RDMA_CM_EVENT_ADDR_CHANGE",
        RDMA_CM_EVENT_TIMEWAIT_EXIT => c"RDMA_CM_EVENT_TIMEWAIT_EXIT",
    }
}

/// Rate code, multiple of 2.5 Gbit/s (0 where it is none), Mbit/s on the wire.
const RATES: [(ibv_rate, c_int, c_int); 23] = [
    (IBV_RATE_2_5_GBPS, 1, 2500),
    (IBV_RATE_5_GBPS, 2, 5000),
    (IBV_RATE_10_GBPS, 4, 10000),
    (IBV_RATE_20_GBPS, 8, 20000),
    (IBV_RATE_30_GBPS, 12, 30000),
    (IBV_RATE_40_GBPS, 16, 40000),
    (IBV_RATE_60_GBPS, 24, 60000),
    (IBV_RATE_80_GBPS, 32, 80000),
    (IBV_RATE_120_GBPS, 48, 120_000),
    (IBV_RATE_14_GBPS, 6, 14062),
    (IBV_RATE_56_GBPS, 22, 56250),
    (IBV_RATE_112_GBPS, 45, 112_500),
    (IBV_RATE_168_GBPS, 67, 168_750),
    (IBV_RATE_25_GBPS, 10, 25781),
    (IBV_RATE_100_GBPS, 40, 103_125),
    (IBV_RATE_200_GBPS, 80, 206_250),
    (IBV_RATE_300_GBPS, 120, 309_375),
    (IBV_RATE_28_GBPS, 11, 28125),
    (IBV_RATE_50_GBPS, 20, 53125),
    (IBV_RATE_400_GBPS, 160, 425_000),
    (IBV_RATE_600_GBPS, 240, 637_500),
    (IBV_RATE_800_GBPS, 320, 850_000),
    (IBV_RATE_1200_GBPS, 480, 1_275_000),
];

/// `ibv_rate_to_mult(3)`: -1 for a code that is not known.
///
/// # Safety
/// Always safe to call.
pub unsafe extern "C" fn ibv_rate_to_mult(rate: ibv_rate) -> c_int {
    RATES
        .iter()
        .find(|(code, ..)| *code == rate)
        .map_or(-1, |(_, mult, _)| *mult)
}

/// `mult_to_ibv_rate(3)`: the maximum for a multiple that is not known.
///
/// # Safety
/// Always safe to call.
pub unsafe extern "C" fn mult_to_ibv_rate(mult: c_int) -> ibv_rate {
    RATES
        .iter()
        .find(|(_, known, _)| *known == mult)
        .map_or(IBV_RATE_MAX, |(code, ..)| *code)
}

/// `ibv_rate_to_mbps(3)`: -1 for a code that is not known.
///
/// # Safety
/// Always safe to call.
pub unsafe extern "C" fn ibv_rate_to_mbps(rate: ibv_rate) -> c_int {
    RATES
        .iter()
        .find(|(code, ..)| *code == rate)
        .map_or(-1, |(_, _, mbps)| *mbps)
}

/// `mbps_to_ibv_rate(3)`: the maximum for a rate that is not known.
///
/// # Safety
/// Always safe to call.
pub unsafe extern "C" fn mbps_to_ibv_rate(mbps: c_int) -> ibv_rate {
    RATES
        .iter()
        .find(|(_, _, known)| *known == mbps)
        .map_or(IBV_RATE_MAX, |(code, ..)| *code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_go_back_and_forth() {
        for (code, mult, mbps) in RATES {
            // SAFETY: the functions take any number.
            unsafe {
                assert_eq!(
                    (ibv_rate_to_mult(code), mult_to_ibv_rate(mult)),
                    (mult, code)
                );
                assert_eq!(
                    (ibv_rate_to_mbps(code), mbps_to_ibv_rate(mbps)),
                    (mbps, code)
                );
            }
        }
        // SAFETY: likewise.
        unsafe {
            assert_eq!(
                (ibv_rate_to_mbps(99), mult_to_ibv_rate(3)),
                (-1, IBV_RATE_MAX)
            )
        };
    }

    #[test]
    fn unknown_numbers_have_a_text_too() {
        for value in [0, 4, 23, 24, u32::MAX] {
            // SAFETY: the functions take any number and return static C strings.
            unsafe {
                assert!(!CStr::from_ptr(ibv_wc_status_str(value)).is_empty());
                assert!(!CStr::from_ptr(ibv_event_type_str(value)).is_empty());
                assert!(!CStr::from_ptr(ibv_port_state_str(value)).is_empty());
            }
        }
    }
}
