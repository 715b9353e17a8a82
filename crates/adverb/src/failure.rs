//! Why a connection did not come about.

use std::fmt;
use std::io;
use std::time::Duration;

/// Why a connection did not come about, or is over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The peer's host or program said no.
    #[error("rejected: {reason}")]
    Rejected {
        /// Why.
        reason: RejectReason,
        /// What the peer's program said, filled up with zeros; empty if nothing came along.
        private_data: Vec<u8>,
    },

    /// Nobody answered; the connection manager asks several times, so this takes a while.
    #[error("no answer: {}", io::Error::from_raw_os_error(*errno))]
    Unreachable {
        /// What the connection manager says (errno).
        errno: i32,
    },

    /// The connection manager failed at it.
    #[error("{event}: {} (errno {errno})", io::Error::from_raw_os_error(*errno))]
    Event {
        /// The event, by its C name.
        event: &'static str,
        /// Its errno.
        errno: i32,
    },

    /// The time given for it was up.
    #[error("{step} took longer than {limit:?}")]
    TimedOut {
        /// What was waited for.
        step: &'static str,
        /// What was given.
        limit: Duration,
    },

    /// The peer ended it before it stood.
    #[error("the peer ended it")]
    Disconnected,
}

impl Failure {
    /// The kind of `io::Error` that says about the same.
    pub(crate) fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Rejected { .. } => io::ErrorKind::ConnectionRefused,
            Self::Unreachable { .. } | Self::TimedOut { .. } => io::ErrorKind::TimedOut,
            Self::Event { errno, .. } => io::Error::from_raw_os_error(*errno).kind(),
            Self::Disconnected => io::ErrorKind::ConnectionAborted,
        }
    }
}

/// Why a peer rejects. A number, because vendors may add to the list: on InfiniBand and RoCE the
/// code of a REJ message (InfiniBand Architecture, volume 1, table 121), on iWARP a negative errno.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RejectReason(pub i32);

macro_rules! reasons {
    ($($name:ident = $value:expr, $text:literal;)*) => {
        impl RejectReason {
            $(#[doc = $text] pub const $name: Self = Self($value);)*

            fn text(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

reasons! {
    NO_QP = 1, "no queue pair available";
    NO_RESOURCES = 3, "no resources available";
    TIMEOUT = 4, "timeout";
    UNSUPPORTED = 5, "unsupported request";
    INVALID_COMM_ID = 6, "invalid communication ID";
    INVALID_SERVICE_ID = 8, "nobody listens on the port";
    INVALID_TRANSPORT = 9, "invalid transport type";
    STALE_CONNECTION = 10, "the peer still knows an older connection of this queue pair";
    INVALID_GID = 12, "invalid GID";
    INVALID_TRAFFIC_CLASS = 15, "invalid traffic class";
    INVALID_MTU = 26, "the path's MTU is larger than the peer's device allows";
    INSUFFICIENT_RESOURCES = 27, "insufficient responder resources";
    CONSUMER_DEFINED = 28, "the peer's program refused";
    INVALID_RNR_RETRY = 29, "invalid RNR retry count";
    DUPLICATE_COMM_ID = 30, "duplicate communication ID";
    VENDOR_OPTION = 35, "vendor option not supported";
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.text(), self.0) {
            (Some(text), code) => write!(f, "{text} (reason {code})"),
            (None, errno @ ..0) => {
                let error = io::Error::from_raw_os_error(errno.saturating_neg());
                write!(f, "{error} (errno {})", errno.saturating_neg())
            }
            (None, code) => write!(f, "reason {code}"),
        }
    }
}

impl fmt::Debug for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RejectReason({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_say_what_they_mean() {
        let text = |code| RejectReason(code).to_string();
        assert_eq!(text(8), "nobody listens on the port (reason 8)");
        assert_eq!(text(99), "reason 99");
        assert!(text(-libc::ECONNREFUSED).contains("errno 111"));
    }
}
