//! Completions: how a work request ended. The numbers are those of the verbs interface.

use bitflags::bitflags;

use crate::ids::QpNum;
use crate::time::Instant;

/// How a work request ended.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WcStatus {
    Success = 0,
    LocLenErr = 1,
    LocQpOpErr = 2,
    LocEecOpErr = 3,
    LocProtErr = 4,
    WrFlushErr = 5,
    MwBindErr = 6,
    BadRespErr = 7,
    LocAccessErr = 8,
    RemInvReqErr = 9,
    RemAccessErr = 10,
    RemOpErr = 11,
    RetryExcErr = 12,
    RnrRetryExcErr = 13,
    LocRddViolErr = 14,
    RemInvRdReqErr = 15,
    RemAbortErr = 16,
    InvEecnErr = 17,
    InvEecStateErr = 18,
    FatalErr = 19,
    RespTimeoutErr = 20,
    GeneralErr = 21,
    TmErr = 22,
    TmRndvIncomplete = 23,
}

/// What kind of work a successful completion reports.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WcOpcode {
    Send = 0,
    RdmaWrite = 1,
    RdmaRead = 2,
    CompSwap = 3,
    FetchAdd = 4,
    BindMw = 5,
    LocalInv = 6,
    Tso = 7,
    Flush = 8,
    AtomicWrite = 9,
    Recv = 128,
    RecvRdmaWithImm = 129,
}

bitflags! {
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct WcFlags: u32 {
        const GRH = 1;
        const WITH_IMM = 2;
        const WITH_INV = 8;
    }
}

/// One completion queue entry. When `status` is not success only `wr_id`, `status`, `qp_num` and
/// `vendor_err` mean anything to the application.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    pub wr_id: u64,
    pub status: WcStatus,
    pub opcode: WcOpcode,
    pub byte_len: u32,
    /// As on the wire, never swapped.
    pub imm: [u8; 4],
    pub invalidated_rkey: u32,
    pub qp_num: QpNum,
    pub src_qp: u32,
    pub flags: WcFlags,
    pub pkey_index: u16,
    pub sl: u8,
    pub vendor_err: u32,
    /// A receive whose sender asked for an event, or any error: fires a CQ armed for solicited ones.
    pub solicited: bool,
    pub timestamp: Instant,
}

impl Completion {
    /// A successful completion with nothing special about it.
    pub const fn success(wr_id: u64, opcode: WcOpcode, qp_num: QpNum, timestamp: Instant) -> Self {
        Self {
            wr_id,
            status: WcStatus::Success,
            opcode,
            byte_len: 0,
            imm: [0; 4],
            invalidated_rkey: 0,
            qp_num,
            src_qp: 0,
            flags: WcFlags::empty(),
            pkey_index: 0,
            sl: 0,
            vendor_err: 0,
            solicited: false,
            timestamp,
        }
    }

    /// An error completion; every error counts as solicited.
    pub const fn error(
        wr_id: u64,
        status: WcStatus,
        opcode: WcOpcode,
        qp_num: QpNum,
        timestamp: Instant,
    ) -> Self {
        let mut c = Self::success(wr_id, opcode, qp_num, timestamp);
        c.status = status;
        c.solicited = true;
        c
    }
}
