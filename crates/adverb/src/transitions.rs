//! Which attributes each step of a queue pair's state needs and allows.
//!
//! InfiniBand specification volume 1, section 11.2.5.2 (Modify Queue Pair), as Linux applies it.
//! Steps are checked here first, because the kernel's answer is a bare EINVAL.

use adverb_abi::flags::QpAttrMask;

use crate::error::{Error, Result};
use crate::state::{Kind, QpState};

struct Step {
    from: QpState,
    to: QpState,
    kinds: &'static [Kind],
    required: QpAttrMask,
    optional: QpAttrMask,
}

const fn step(
    from: QpState,
    to: QpState,
    kinds: &'static [Kind],
    required: &[QpAttrMask],
    optional: &[QpAttrMask],
) -> Step {
    Step {
        from,
        to,
        kinds,
        required: all(required),
        optional: all(optional),
    }
}

const fn all(masks: &[QpAttrMask]) -> QpAttrMask {
    let mut sum = QpAttrMask::empty();
    let mut i = 0;
    while i < masks.len() {
        sum = sum.union(masks[i]);
        i += 1;
    }
    sum
}

use Kind::{Rc, Uc, Ud};
use QpAttrMask as M;
use QpState::{
    Error as Err, Init, ReadyToReceive as Rtr, ReadyToSend as Rts, Reset, SendQueueDrain as Sqd,
    SendQueueError as Sqe,
};

/// Every step but those to RESET and ERR, which [`check`] knows.
const STEPS: &[Step] = &[
    step(
        Reset,
        Init,
        &[Rc, Uc],
        &[M::PKEY_INDEX, M::PORT, M::ACCESS_FLAGS],
        &[],
    ),
    step(Reset, Init, &[Ud], &[M::PKEY_INDEX, M::PORT, M::QKEY], &[]),
    step(
        Init,
        Init,
        &[Rc, Uc],
        &[],
        &[M::PKEY_INDEX, M::PORT, M::ACCESS_FLAGS],
    ),
    step(Init, Init, &[Ud], &[], &[M::PKEY_INDEX, M::PORT, M::QKEY]),
    step(
        Init,
        Rtr,
        &[Rc],
        &[
            M::AV,
            M::PATH_MTU,
            M::DEST_QPN,
            M::RQ_PSN,
            M::MAX_DEST_RD_ATOMIC,
            M::MIN_RNR_TIMER,
        ],
        &[M::ALT_PATH, M::ACCESS_FLAGS, M::PKEY_INDEX],
    ),
    step(
        Init,
        Rtr,
        &[Uc],
        &[M::AV, M::PATH_MTU, M::DEST_QPN, M::RQ_PSN],
        &[M::ALT_PATH, M::ACCESS_FLAGS, M::PKEY_INDEX],
    ),
    step(Init, Rtr, &[Ud], &[], &[M::PKEY_INDEX, M::QKEY]),
    step(
        Rtr,
        Rts,
        &[Rc],
        &[
            M::TIMEOUT,
            M::RETRY_CNT,
            M::RNR_RETRY,
            M::SQ_PSN,
            M::MAX_QP_RD_ATOMIC,
        ],
        &[
            M::CUR_STATE,
            M::ALT_PATH,
            M::ACCESS_FLAGS,
            M::PATH_MIG_STATE,
            M::MIN_RNR_TIMER,
        ],
    ),
    step(
        Rtr,
        Rts,
        &[Uc],
        &[M::SQ_PSN],
        &[
            M::CUR_STATE,
            M::ALT_PATH,
            M::ACCESS_FLAGS,
            M::PATH_MIG_STATE,
        ],
    ),
    step(Rtr, Rts, &[Ud], &[M::SQ_PSN], &[M::CUR_STATE, M::QKEY]),
    step(
        Rts,
        Rts,
        &[Rc],
        &[],
        &[
            M::CUR_STATE,
            M::ACCESS_FLAGS,
            M::ALT_PATH,
            M::PATH_MIG_STATE,
            M::MIN_RNR_TIMER,
        ],
    ),
    step(
        Rts,
        Rts,
        &[Uc],
        &[],
        &[
            M::CUR_STATE,
            M::ACCESS_FLAGS,
            M::ALT_PATH,
            M::PATH_MIG_STATE,
        ],
    ),
    step(Rts, Rts, &[Ud], &[], &[M::CUR_STATE, M::QKEY]),
    step(Rts, Sqd, &[Rc, Uc, Ud], &[], &[M::EN_SQD_ASYNC_NOTIFY]),
    step(
        Sqd,
        Sqd,
        &[Rc],
        &[],
        &[
            M::PORT,
            M::AV,
            M::TIMEOUT,
            M::RETRY_CNT,
            M::RNR_RETRY,
            M::MAX_QP_RD_ATOMIC,
            M::MAX_DEST_RD_ATOMIC,
            M::ALT_PATH,
            M::ACCESS_FLAGS,
            M::PKEY_INDEX,
            M::MIN_RNR_TIMER,
            M::PATH_MIG_STATE,
        ],
    ),
    step(
        Sqd,
        Sqd,
        &[Uc],
        &[],
        &[
            M::AV,
            M::ALT_PATH,
            M::ACCESS_FLAGS,
            M::PKEY_INDEX,
            M::PATH_MIG_STATE,
        ],
    ),
    step(Sqd, Sqd, &[Ud], &[], &[M::PKEY_INDEX, M::QKEY]),
    step(
        Sqd,
        Rts,
        &[Rc],
        &[],
        &[
            M::CUR_STATE,
            M::ACCESS_FLAGS,
            M::ALT_PATH,
            M::PATH_MIG_STATE,
            M::MIN_RNR_TIMER,
        ],
    ),
    step(
        Sqd,
        Rts,
        &[Uc],
        &[],
        &[
            M::CUR_STATE,
            M::ACCESS_FLAGS,
            M::ALT_PATH,
            M::PATH_MIG_STATE,
        ],
    ),
    step(Sqd, Rts, &[Ud], &[], &[M::CUR_STATE, M::QKEY]),
    step(Sqe, Rts, &[Uc], &[], &[M::CUR_STATE, M::ACCESS_FLAGS]),
    step(Sqe, Rts, &[Ud], &[], &[M::CUR_STATE, M::QKEY]),
];

/// Whether the step exists for this transport and `given` has what it needs and no more.
pub(crate) fn check(kind: Kind, from: QpState, to: QpState, given: QpAttrMask) -> Result<()> {
    let given = given.difference(M::STATE);
    let row = STEPS
        .iter()
        .find(|s| s.from == from && s.to == to && s.kinds.contains(&kind));
    let (required, optional) = match (row, to) {
        (Some(row), _) => (row.required, row.optional),
        (None, Reset) => (M::empty(), M::empty()),
        (None, Err) if from != Reset => (M::empty(), M::empty()),
        (None, _) => {
            let transport = match kind {
                Rc => "RC",
                Uc => "UC",
                Ud => "UD",
            };
            return Result::Err(Error::Transition {
                from,
                to,
                transport,
            });
        }
    };
    let missing = required.difference(given);
    if !missing.is_empty() {
        return Result::Err(Error::MissingAttributes { from, to, missing });
    }
    let extra = given.difference(required.union(optional));
    if !extra.is_empty() {
        return Result::Err(Error::ForbiddenAttributes { from, to, extra });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [QpState; 7] = [Reset, Init, Rtr, Rts, Sqd, Sqe, Err];

    #[test]
    fn the_usual_way_up_is_open_to_every_transport() {
        for kind in [Rc, Uc, Ud] {
            for (from, to) in [(Reset, Init), (Init, Rtr), (Rtr, Rts)] {
                let row = STEPS
                    .iter()
                    .find(|s| s.from == from && s.to == to && s.kinds.contains(&kind));
                let required = row.unwrap().required;
                assert!(check(kind, from, to, required | M::STATE).is_ok());
                assert!(check(kind, from, to, required | M::CAP).is_err());
            }
        }
    }

    #[test]
    fn what_is_missing_or_too_much_is_named() {
        let given = M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN | M::MIN_RNR_TIMER;
        match check(Rc, Init, Rtr, given) {
            Result::Err(Error::MissingAttributes { missing, .. }) => {
                assert_eq!(missing, M::MAX_DEST_RD_ATOMIC);
            }
            other => panic!("{other:?}"),
        }
        match check(Uc, Init, Rtr, given) {
            Result::Err(
                e @ Error::ForbiddenAttributes {
                    extra: M::MIN_RNR_TIMER,
                    ..
                },
            ) => {
                assert!(e.to_string().contains("INIT to RTR"), "{e}");
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_state_resets_and_all_but_reset_can_be_put_into_error() {
        for kind in [Rc, Uc, Ud] {
            for from in STATES {
                assert!(check(kind, from, Reset, M::STATE).is_ok(), "{from}");
                assert_eq!(
                    check(kind, from, Err, M::STATE).is_ok(),
                    from != Reset,
                    "{from}"
                );
            }
        }
    }

    #[test]
    fn no_shortcut_exists() {
        for (from, to) in [
            (Reset, Rtr),
            (Reset, Rts),
            (Init, Rts),
            (Err, Rts),
            (Sqe, Sqd),
            (Rts, Rtr),
        ] {
            for kind in [Rc, Uc, Ud] {
                assert!(matches!(
                    check(kind, from, to, M::STATE),
                    Result::Err(Error::Transition { .. })
                ));
            }
        }
        // A reliable connection has no SQE state to come back from.
        assert!(check(Rc, Sqe, Rts, M::STATE).is_err());
    }

    #[test]
    fn no_row_is_there_twice() {
        for (i, a) in STEPS.iter().enumerate() {
            for b in &STEPS[i + 1..] {
                let same = a.from == b.from && a.to == b.to;
                assert!(
                    !same || a.kinds.iter().all(|k| !b.kinds.contains(k)),
                    "{} to {}",
                    a.from,
                    a.to
                );
            }
        }
    }
}
