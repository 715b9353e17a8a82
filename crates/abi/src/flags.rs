//! Bit sets of the ABI with names, for code that prefers them to bare integers.
//!
//! `from_bits` refuses unknown bits and `from_bits_retain` keeps them; which of the two is right
//! depends on the direction: arguments are checked, results of a newer library are kept.

use bitflags::bitflags;

use crate::types::*;

bitflags! {
    /// Rights of memory regions, windows and QPs.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct AccessFlags: u32 {
        const LOCAL_WRITE = IBV_ACCESS_LOCAL_WRITE;
        const REMOTE_WRITE = IBV_ACCESS_REMOTE_WRITE;
        const REMOTE_READ = IBV_ACCESS_REMOTE_READ;
        const REMOTE_ATOMIC = IBV_ACCESS_REMOTE_ATOMIC;
        const MW_BIND = IBV_ACCESS_MW_BIND;
        const ZERO_BASED = IBV_ACCESS_ZERO_BASED;
        const ON_DEMAND = IBV_ACCESS_ON_DEMAND;
        const HUGETLB = IBV_ACCESS_HUGETLB;
        const FLUSH_GLOBAL = IBV_ACCESS_FLUSH_GLOBAL;
        const FLUSH_PERSISTENT = IBV_ACCESS_FLUSH_PERSISTENT;
        const RELAXED_ORDERING = IBV_ACCESS_RELAXED_ORDERING;
    }

    /// How a send request is handled.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct SendFlags: u32 {
        const FENCE = IBV_SEND_FENCE;
        const SIGNALED = IBV_SEND_SIGNALED;
        const SOLICITED = IBV_SEND_SOLICITED;
        const INLINE = IBV_SEND_INLINE;
        const IP_CSUM = IBV_SEND_IP_CSUM;
    }

    /// What a completion carries.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct WcFlags: u32 {
        const GRH = IBV_WC_GRH;
        const WITH_IMM = IBV_WC_WITH_IMM;
        const IP_CSUM_OK = IBV_WC_IP_CSUM_OK;
        const WITH_INV = IBV_WC_WITH_INV;
        const TM_SYNC_REQ = IBV_WC_TM_SYNC_REQ;
        const TM_MATCH = IBV_WC_TM_MATCH;
        const TM_DATA_VALID = IBV_WC_TM_DATA_VALID;
    }

    /// Which readers an `ibv_cq_ex` must offer.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct CqWcFlags: u64 {
        const BYTE_LEN = IBV_WC_EX_WITH_BYTE_LEN;
        const IMM = IBV_WC_EX_WITH_IMM;
        const QP_NUM = IBV_WC_EX_WITH_QP_NUM;
        const SRC_QP = IBV_WC_EX_WITH_SRC_QP;
        const SLID = IBV_WC_EX_WITH_SLID;
        const SL = IBV_WC_EX_WITH_SL;
        const DLID_PATH_BITS = IBV_WC_EX_WITH_DLID_PATH_BITS;
        const COMPLETION_TIMESTAMP = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
        const CVLAN = IBV_WC_EX_WITH_CVLAN;
        const FLOW_TAG = IBV_WC_EX_WITH_FLOW_TAG;
        const TM_INFO = IBV_WC_EX_WITH_TM_INFO;
        const COMPLETION_TIMESTAMP_WALLCLOCK = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
    }

    /// Which fields of `ibv_qp_attr` count.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct QpAttrMask: u32 {
        const STATE = IBV_QP_STATE;
        const CUR_STATE = IBV_QP_CUR_STATE;
        const EN_SQD_ASYNC_NOTIFY = IBV_QP_EN_SQD_ASYNC_NOTIFY;
        const ACCESS_FLAGS = IBV_QP_ACCESS_FLAGS;
        const PKEY_INDEX = IBV_QP_PKEY_INDEX;
        const PORT = IBV_QP_PORT;
        const QKEY = IBV_QP_QKEY;
        const AV = IBV_QP_AV;
        const PATH_MTU = IBV_QP_PATH_MTU;
        const TIMEOUT = IBV_QP_TIMEOUT;
        const RETRY_CNT = IBV_QP_RETRY_CNT;
        const RNR_RETRY = IBV_QP_RNR_RETRY;
        const RQ_PSN = IBV_QP_RQ_PSN;
        const MAX_QP_RD_ATOMIC = IBV_QP_MAX_QP_RD_ATOMIC;
        const ALT_PATH = IBV_QP_ALT_PATH;
        const MIN_RNR_TIMER = IBV_QP_MIN_RNR_TIMER;
        const SQ_PSN = IBV_QP_SQ_PSN;
        const MAX_DEST_RD_ATOMIC = IBV_QP_MAX_DEST_RD_ATOMIC;
        const PATH_MIG_STATE = IBV_QP_PATH_MIG_STATE;
        const CAP = IBV_QP_CAP;
        const DEST_QPN = IBV_QP_DEST_QPN;
        const RATE_LIMIT = IBV_QP_RATE_LIMIT;
    }

    /// Which `wr_*` functions an `ibv_qp_ex` must offer.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct SendOps: u64 {
        const RDMA_WRITE = IBV_QP_EX_WITH_RDMA_WRITE;
        const RDMA_WRITE_WITH_IMM = IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
        const SEND = IBV_QP_EX_WITH_SEND;
        const SEND_WITH_IMM = IBV_QP_EX_WITH_SEND_WITH_IMM;
        const RDMA_READ = IBV_QP_EX_WITH_RDMA_READ;
        const ATOMIC_CMP_AND_SWP = IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP;
        const ATOMIC_FETCH_AND_ADD = IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
        const LOCAL_INV = IBV_QP_EX_WITH_LOCAL_INV;
        const BIND_MW = IBV_QP_EX_WITH_BIND_MW;
        const SEND_WITH_INV = IBV_QP_EX_WITH_SEND_WITH_INV;
        const TSO = IBV_QP_EX_WITH_TSO;
        const FLUSH = IBV_QP_EX_WITH_FLUSH;
        const ATOMIC_WRITE = IBV_QP_EX_WITH_ATOMIC_WRITE;
    }

    /// What a device can do.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct DeviceCaps: u64 {
        const RESIZE_MAX_WR = IBV_DEVICE_RESIZE_MAX_WR as u64;
        const BAD_PKEY_CNTR = IBV_DEVICE_BAD_PKEY_CNTR as u64;
        const BAD_QKEY_CNTR = IBV_DEVICE_BAD_QKEY_CNTR as u64;
        const RAW_MULTI = IBV_DEVICE_RAW_MULTI as u64;
        const AUTO_PATH_MIG = IBV_DEVICE_AUTO_PATH_MIG as u64;
        const CHANGE_PHY_PORT = IBV_DEVICE_CHANGE_PHY_PORT as u64;
        const UD_AV_PORT_ENFORCE = IBV_DEVICE_UD_AV_PORT_ENFORCE as u64;
        const CURR_QP_STATE_MOD = IBV_DEVICE_CURR_QP_STATE_MOD as u64;
        const SHUTDOWN_PORT = IBV_DEVICE_SHUTDOWN_PORT as u64;
        const INIT_TYPE = IBV_DEVICE_INIT_TYPE as u64;
        const PORT_ACTIVE_EVENT = IBV_DEVICE_PORT_ACTIVE_EVENT as u64;
        const SYS_IMAGE_GUID = IBV_DEVICE_SYS_IMAGE_GUID as u64;
        const RC_RNR_NAK_GEN = IBV_DEVICE_RC_RNR_NAK_GEN as u64;
        const SRQ_RESIZE = IBV_DEVICE_SRQ_RESIZE as u64;
        const N_NOTIFY_CQ = IBV_DEVICE_N_NOTIFY_CQ as u64;
        const MEM_WINDOW = IBV_DEVICE_MEM_WINDOW as u64;
        const UD_IP_CSUM = IBV_DEVICE_UD_IP_CSUM as u64;
        const XRC = IBV_DEVICE_XRC as u64;
        const MEM_MGT_EXTENSIONS = IBV_DEVICE_MEM_MGT_EXTENSIONS as u64;
        const MEM_WINDOW_TYPE_2A = IBV_DEVICE_MEM_WINDOW_TYPE_2A as u64;
        const MEM_WINDOW_TYPE_2B = IBV_DEVICE_MEM_WINDOW_TYPE_2B as u64;
        const RC_IP_CSUM = IBV_DEVICE_RC_IP_CSUM as u64;
        const RAW_IP_CSUM = IBV_DEVICE_RAW_IP_CSUM as u64;
        const MANAGED_FLOW_STEERING = IBV_DEVICE_MANAGED_FLOW_STEERING as u64;
        const RAW_SCATTER_FCS = IBV_DEVICE_RAW_SCATTER_FCS;
        const PCI_WRITE_END_PADDING = IBV_DEVICE_PCI_WRITE_END_PADDING;
        const CC_DMA_BOUNCE = IBV_DEVICE_CC_DMA_BOUNCE;
    }
}
