//! Errors of calls (the application's mistakes) and reasons to drop a packet (the peer's).

use crate::qp::state::{AttrMask, QpState};

/// Why a work request was not posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PostError {
    #[error("the queue holds {limit} work requests already")]
    QueueFull { limit: u32 },
    #[error("work cannot be posted in state {state:?}")]
    WrongState { state: QpState },
    #[error("{given} scatter/gather entries, the queue allows {limit}")]
    TooManySges { given: usize, limit: u32 },
    #[error("{given} inline bytes, the queue allows {limit}")]
    InlineTooLong { given: usize, limit: u32 },
    #[error("inline data is for SEND and WRITE only")]
    InlineNotAllowed,
    #[error("the operation does not exist on this transport")]
    OpNotForTransport,
    #[error("an atomic operation needs {needed} bytes of local memory, {given} given")]
    AtomicLength { given: u64, needed: u64 },
    #[error("address {addr:#x} of an atomic operation is not a multiple of 8")]
    AtomicMisaligned { addr: u64 },
    #[error("a datagram needs an address handle")]
    NoAddress,
    #[error("the queue pair receives from a shared receive queue")]
    UsesSrq,
    #[error("an XRC_SEND queue pair does not receive")]
    SendsOnly,
    #[error("an XRC_RECV queue pair does not send")]
    ReceivesOnly,
}

/// Why a modify was refused. Nothing has changed then.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ModifyError {
    #[error("{transport} queue pairs cannot go from {from:?} to {to:?}")]
    BadTransition {
        from: QpState,
        to: QpState,
        transport: &'static str,
    },
    #[error("{from:?} to {to:?} also needs {missing:?}")]
    Missing {
        from: QpState,
        to: QpState,
        missing: AttrMask,
    },
    #[error("{from:?} to {to:?} does not take {extra:?}")]
    NotAllowed {
        from: QpState,
        to: QpState,
        extra: AttrMask,
    },
    #[error("the current state was given as {given:?} but is {actual:?}")]
    CurState { given: QpState, actual: QpState },
    #[error("{field} is {value}, allowed is up to {limit}")]
    Value {
        field: &'static str,
        value: u64,
        limit: u64,
    },
    #[error("{field} is {value}, which is not a valid value")]
    Invalid { field: &'static str, value: u64 },
    #[error("work that had started is not done yet")]
    StillDraining,
    #[error("{what:?} is not supported by this device")]
    Unsupported { what: AttrMask },
}

/// Why a packet had no effect.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum DropReason {
    #[error("the queue pair is in a state that takes no packets")]
    State,
    #[error("the opcode belongs to another transport")]
    Transport,
    #[error("congestion notification, which this device does not act on")]
    Cnp,
    #[error("P_Key does not match")]
    PKey,
    #[error("Q_Key does not match")]
    QKey,
    #[error("a header that the opcode requires is missing")]
    Malformed,
    #[error("packets before it are missing")]
    Gap,
    #[error("a duplicate that nothing is saved for")]
    DuplicateUnknown,
    #[error("no receive entry is posted")]
    NoReceive,
    #[error("the message does not fit the receive entry")]
    TooLong,
    #[error("the opcode does not fit the message under way")]
    Sequence,
    #[error("the operation or the key is not allowed")]
    Access,
    #[error("an answer to nothing that is outstanding")]
    Ghost,
    #[error("an answer with a reserved syndrome")]
    Reserved,
}
