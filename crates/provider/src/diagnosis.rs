//! The words of a refusal: what was asked for and what was wrong with it, in the names that the headers use.
//!
//! Nothing here runs unless somebody wants to read it: `ADVERB_LOG=warn`, or the Rust API, which puts the text of a
//! refused call into its error.

use std::cell::RefCell;
use std::fmt;

use adverb_engine::{Access, AttrMask, ModifyError, PostError, QpState};

thread_local! {
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Keeps the text of this thread's latest refusal.
pub(crate) fn remember(text: &dyn fmt::Display) {
    // A thread that is ending has nobody left to tell.
    let _ = LAST.try_with(|last| {
        if let Ok(mut last) = last.try_borrow_mut() {
            last.clear();
            let _ = fmt::Write::write_fmt(&mut *last, format_args!("{text}"));
        }
    });
}

/// The latest refusal was one whose text nobody keeps.
pub(crate) fn forget() {
    let _ = LAST.try_with(|last| {
        if let Ok(mut last) = last.try_borrow_mut() {
            last.clear();
        }
    });
}

/// Why the call before was refused, for the caller who has just seen that it was. Asked twice, the answer is empty.
pub fn why() -> String {
    LAST.try_with(|last| last.take()).unwrap_or_default()
}

/// A set of flags by the names of the headers: `IBV_QP_STATE|IBV_QP_AV`.
pub(crate) struct Named<T>(pub(crate) &'static str, pub(crate) T);

impl<T: bitflags::Flags> fmt::Display for Named<T>
where
    T::Bits: fmt::LowerHex,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(prefix, flags) = self;
        let mut first = true;
        for (name, _) in flags.iter_names() {
            if !first {
                f.write_str("|")?;
            }
            first = false;
            write!(f, "{prefix}{name}")?;
        }
        if first {
            f.write_str("none")?;
        }
        Ok(())
    }
}

pub(crate) fn attributes(mask: AttrMask) -> Named<AttrMask> {
    Named("IBV_QP_", mask)
}

pub(crate) fn access(access: Access) -> Named<Access> {
    Named("IBV_ACCESS_", access)
}

/// A state as manuals write it.
pub(crate) const fn state(state: QpState) -> &'static str {
    match state {
        QpState::Reset => "RESET",
        QpState::Init => "INIT",
        QpState::Rtr => "RTR",
        QpState::Rts => "RTS",
        QpState::Sqd => "SQD",
        QpState::Sqe => "SQE",
        QpState::Err => "ERR",
    }
}

/// Why `ibv_modify_qp` was refused, given the attributes that the program announced.
pub(crate) struct Modify<'a>(pub(crate) &'a ModifyError, pub(crate) AttrMask);

impl fmt::Display for Modify<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(error, have) = *self;
        match *error {
            ModifyError::BadTransition {
                from,
                to,
                transport,
            } => write!(
                f,
                "{}→{}: a queue pair of type {transport} has no such step",
                state(from),
                state(to)
            ),
            ModifyError::Missing { from, to, missing } => write!(
                f,
                "{}→{}: missing {}; have {}",
                state(from),
                state(to),
                attributes(missing),
                attributes(have)
            ),
            ModifyError::NotAllowed { from, to, extra } => write!(
                f,
                "{}→{}: does not take {}; have {}",
                state(from),
                state(to),
                attributes(extra),
                attributes(have)
            ),
            ModifyError::CurState { given, actual } => write!(
                f,
                "cur_qp_state is given as {}, but the queue pair is in {}",
                state(given),
                state(actual)
            ),
            ModifyError::Unsupported { what } => {
                write!(f, "{} is not supported by this device", attributes(what))
            }
            _ => error.fmt(f),
        }
    }
}

/// Why a work request was refused.
pub(crate) struct Post<'a>(pub(crate) &'a PostError);

impl fmt::Display for Post<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self.0 {
            PostError::WrongState { state: now } => write!(
                f,
                "the queue pair is in {}; receives can be posted from INIT on, sends from RTS on",
                state(now)
            ),
            PostError::QueueFull { limit } => write!(
                f,
                "the queue is full: {limit} work requests are outstanding; poll completions first, and have one \
                 request in every {limit} signaled"
            ),
            ref error => error.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_attributes_are_named_as_in_the_header() {
        let error = ModifyError::Missing {
            from: QpState::Init,
            to: QpState::Rtr,
            missing: AttrMask::DEST_QPN,
        };
        assert_eq!(
            Modify(&error, AttrMask::STATE | AttrMask::AV).to_string(),
            "INIT→RTR: missing IBV_QP_DEST_QPN; have IBV_QP_STATE|IBV_QP_AV"
        );
    }

    #[test]
    fn a_refusal_is_told_once() {
        remember(&"no");
        assert_eq!((why().as_str(), why().as_str()), ("no", ""));
    }
}
