//! Queue pair states and the table of allowed transitions, as data.

use std::fmt::Write as _;

use adverb_wire::Transport;
use bitflags::bitflags;

use super::Role;
use crate::error::ModifyError;

/// The state of a queue pair; the numbers are those of the verbs interface.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum QpState {
    #[default]
    Reset = 0,
    Init = 1,
    Rtr = 2,
    Rts = 3,
    Sqd = 4,
    Sqe = 5,
    Err = 6,
}

impl QpState {
    pub const ALL: [Self; 7] = [
        Self::Reset,
        Self::Init,
        Self::Rtr,
        Self::Rts,
        Self::Sqd,
        Self::Sqe,
        Self::Err,
    ];

    pub fn from_ibv(value: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|s| *s as u32 == value)
    }
}

bitflags! {
    /// Which attributes a modify sets; the bits are those of the verbs interface.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct AttrMask: u32 {
        const STATE = 1;
        const CUR_STATE = 1 << 1;
        const EN_SQD_ASYNC_NOTIFY = 1 << 2;
        const ACCESS_FLAGS = 1 << 3;
        const PKEY_INDEX = 1 << 4;
        const PORT = 1 << 5;
        const QKEY = 1 << 6;
        const AV = 1 << 7;
        const PATH_MTU = 1 << 8;
        const TIMEOUT = 1 << 9;
        const RETRY_CNT = 1 << 10;
        const RNR_RETRY = 1 << 11;
        const RQ_PSN = 1 << 12;
        const MAX_QP_RD_ATOMIC = 1 << 13;
        const ALT_PATH = 1 << 14;
        const MIN_RNR_TIMER = 1 << 15;
        const SQ_PSN = 1 << 16;
        const MAX_DEST_RD_ATOMIC = 1 << 17;
        const PATH_MIG_STATE = 1 << 18;
        const CAP = 1 << 19;
        const DEST_QPN = 1 << 20;
        const RATE_LIMIT = 1 << 25;
    }
}

/// The kinds of queue pair that the table below tells apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum QpKind {
    Rc,
    Uc,
    Ud,
    XrcSend,
    XrcRecv,
}

impl QpKind {
    pub const ALL: [Self; 5] = [Self::Rc, Self::Uc, Self::Ud, Self::XrcSend, Self::XrcRecv];

    pub const fn of(transport: Transport, role: Role) -> Self {
        match (transport, role) {
            (Transport::Rc, _) => Self::Rc,
            (Transport::Uc, _) => Self::Uc,
            (Transport::Ud, _) => Self::Ud,
            (Transport::Xrc, Role::Target) => Self::XrcRecv,
            (Transport::Xrc, _) => Self::XrcSend,
        }
    }

    /// The specification's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Ud => "UD",
            Self::XrcSend => "XRC_SEND",
            Self::XrcRecv => "XRC_RECV",
        }
    }
}

/// One allowed transition: bits that must be given besides STATE, and bits that may be.
pub struct Transition {
    pub kind: QpKind,
    pub from: QpState,
    pub to: QpState,
    pub required: AttrMask,
    pub optional: AttrMask,
}

const NONE: AttrMask = AttrMask::empty();

macro_rules! mask {
    ($($bit:ident)|*) => { NONE$(.union(AttrMask::$bit))* };
}

macro_rules! row {
    ($t:ident $from:ident -> $to:ident: $required:expr, $optional:expr) => {
        Transition {
            kind: QpKind::$t,
            from: QpState::$from,
            to: QpState::$to,
            required: $required,
            optional: $optional,
        }
    };
}

const INIT_CONNECTED: AttrMask = mask!(PKEY_INDEX | PORT | ACCESS_FLAGS);
const INIT_DATAGRAM: AttrMask = mask!(PKEY_INDEX | PORT | QKEY);
const PATH: AttrMask = mask!(AV | PATH_MTU | DEST_QPN | RQ_PSN);
const RTR_OPTIONAL: AttrMask = mask!(ALT_PATH | ACCESS_FLAGS | PKEY_INDEX);
const RUN_RC: AttrMask =
    mask!(CUR_STATE | ALT_PATH | ACCESS_FLAGS | PATH_MIG_STATE | MIN_RNR_TIMER);
const RUN_UC: AttrMask = mask!(CUR_STATE | ALT_PATH | ACCESS_FLAGS | PATH_MIG_STATE);
const RUN_UD: AttrMask = mask!(CUR_STATE | QKEY);
const SQD_UC: AttrMask = mask!(AV | ALT_PATH | ACCESS_FLAGS | PKEY_INDEX | PATH_MIG_STATE);
const RUN_XRC: AttrMask = RUN_UC;
const SQD_XRC_SEND: AttrMask = SQD_RC.difference(mask!(MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER));
const SQD_XRC_RECV: AttrMask = SQD_RC.difference(mask!(RETRY_CNT | RNR_RETRY | MAX_QP_RD_ATOMIC));
const SQD_RC: AttrMask = mask!(
    PORT | AV
        | TIMEOUT
        | RETRY_CNT
        | RNR_RETRY
        | MAX_QP_RD_ATOMIC
        | MAX_DEST_RD_ATOMIC
        | ALT_PATH
        | ACCESS_FLAGS
        | PKEY_INDEX
        | MIN_RNR_TIMER
        | PATH_MIG_STATE
);

/// Every transition except those to RESET (from anywhere) and to ERR (from anywhere but RESET),
/// which take no attribute.
pub const TRANSITIONS: &[Transition] = &[
    row!(Rc Reset -> Init: INIT_CONNECTED, NONE),
    row!(Uc Reset -> Init: INIT_CONNECTED, NONE),
    row!(Ud Reset -> Init: INIT_DATAGRAM, NONE),
    row!(Rc Init -> Init: NONE, INIT_CONNECTED),
    row!(Uc Init -> Init: NONE, INIT_CONNECTED),
    row!(Ud Init -> Init: NONE, INIT_DATAGRAM),
    row!(Rc Init -> Rtr: PATH.union(mask!(MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER)), RTR_OPTIONAL),
    row!(Uc Init -> Rtr: PATH, RTR_OPTIONAL),
    row!(Ud Init -> Rtr: NONE, mask!(PKEY_INDEX | QKEY)),
    row!(Rc Rtr -> Rts: mask!(TIMEOUT | RETRY_CNT | RNR_RETRY | SQ_PSN | MAX_QP_RD_ATOMIC), RUN_RC),
    row!(Uc Rtr -> Rts: mask!(SQ_PSN), RUN_UC),
    row!(Ud Rtr -> Rts: mask!(SQ_PSN), RUN_UD),
    row!(Rc Rts -> Rts: NONE, RUN_RC),
    row!(Uc Rts -> Rts: NONE, RUN_UC),
    row!(Ud Rts -> Rts: NONE, RUN_UD),
    row!(Rc Rts -> Sqd: NONE, mask!(EN_SQD_ASYNC_NOTIFY)),
    row!(Uc Rts -> Sqd: NONE, mask!(EN_SQD_ASYNC_NOTIFY)),
    row!(Ud Rts -> Sqd: NONE, mask!(EN_SQD_ASYNC_NOTIFY)),
    row!(Rc Sqd -> Sqd: NONE, SQD_RC),
    row!(Uc Sqd -> Sqd: NONE, SQD_UC),
    row!(Ud Sqd -> Sqd: NONE, mask!(PKEY_INDEX | QKEY)),
    row!(Rc Sqd -> Rts: NONE, RUN_RC),
    row!(Uc Sqd -> Rts: NONE, RUN_UC),
    row!(Ud Sqd -> Rts: NONE, RUN_UD),
    row!(XrcSend Reset -> Init: INIT_CONNECTED, NONE),
    row!(XrcRecv Reset -> Init: INIT_CONNECTED, NONE),
    row!(XrcSend Init -> Init: NONE, INIT_CONNECTED),
    row!(XrcRecv Init -> Init: NONE, INIT_CONNECTED),
    row!(XrcSend Init -> Rtr: PATH, RTR_OPTIONAL),
    row!(XrcRecv Init -> Rtr: PATH.union(mask!(MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER)), RTR_OPTIONAL),
    row!(XrcSend Rtr -> Rts: mask!(TIMEOUT | RETRY_CNT | RNR_RETRY | SQ_PSN | MAX_QP_RD_ATOMIC), RUN_XRC),
    row!(XrcRecv Rtr -> Rts: mask!(TIMEOUT | SQ_PSN), RUN_RC),
    row!(XrcSend Rts -> Rts: NONE, RUN_XRC),
    row!(XrcRecv Rts -> Rts: NONE, RUN_RC),
    row!(XrcSend Rts -> Sqd: NONE, mask!(EN_SQD_ASYNC_NOTIFY)),
    row!(XrcRecv Rts -> Sqd: NONE, mask!(EN_SQD_ASYNC_NOTIFY)),
    row!(XrcSend Sqd -> Sqd: NONE, SQD_XRC_SEND),
    row!(XrcRecv Sqd -> Sqd: NONE, SQD_XRC_RECV),
    row!(XrcSend Sqd -> Rts: NONE, RUN_XRC),
    row!(XrcRecv Sqd -> Rts: NONE, RUN_RC),
    row!(Uc Sqe -> Rts: NONE, mask!(CUR_STATE | ACCESS_FLAGS)),
    row!(Ud Sqe -> Rts: NONE, RUN_UD),
];

/// Checks the attribute mask of a transition; `mask` without STATE means "stay".
pub fn check_transition(
    kind: QpKind,
    from: QpState,
    to: QpState,
    mask: AttrMask,
) -> Result<(), ModifyError> {
    let given = mask.difference(AttrMask::STATE);
    let from_anywhere = to == QpState::Reset || to == QpState::Err && from != QpState::Reset;
    let (required, optional) = if from_anywhere && mask.contains(AttrMask::STATE) {
        (NONE, NONE)
    } else {
        TRANSITIONS
            .iter()
            .find(|t| t.kind == kind && t.from == from && t.to == to)
            .map(|t| (t.required, t.optional))
            .ok_or_else(|| ModifyError::BadTransition {
                from,
                to,
                transport: kind.name(),
            })?
    };
    let extra = given.difference(required.union(optional));
    if !extra.is_empty() {
        return Err(ModifyError::NotAllowed { from, to, extra });
    }
    let missing = required.difference(given);
    if !missing.is_empty() {
        return Err(ModifyError::Missing { from, to, missing });
    }
    Ok(())
}

/// The whole table as text, one line per kind and pair of states, for the test that pins it.
pub fn describe_transitions() -> String {
    let mut out = String::new();
    for kind in QpKind::ALL {
        for from in QpState::ALL {
            for to in QpState::ALL {
                let name = kind.name();
                let _ = write!(out, "{name} {from:?} -> {to:?}: ");
                let row = TRANSITIONS
                    .iter()
                    .find(|t| t.kind == kind && t.from == from && t.to == to);
                let _ = match row {
                    Some(t) => writeln!(
                        out,
                        "needs [{}] takes [{}]",
                        names(t.required),
                        names(t.optional)
                    ),
                    None if check_transition(kind, from, to, AttrMask::STATE).is_ok() => {
                        writeln!(out, "needs [] takes []")
                    }
                    None => writeln!(out, "no"),
                };
            }
        }
    }
    out
}

fn names(mask: AttrMask) -> String {
    mask.iter_names()
        .map(|(name, _)| name)
        .collect::<Vec<_>>()
        .join(" ")
}
