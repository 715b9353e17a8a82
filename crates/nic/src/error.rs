//! What can go wrong on the control path. The texts are what a person reads at three in the
//! morning, so they name the field, the value and the limit.

use adverb_engine::ModifyError;

/// Why a control call was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NicError {
    /// An argument out of its range.
    #[error("{what} is {value}, the limit is {limit}")]
    Invalid {
        what: &'static str,
        value: u64,
        limit: u64,
    },
    /// Arguments that do not go together, or that nothing supports.
    #[error("{0}")]
    BadArgument(&'static str),
    /// The object still has users.
    #[error("{what} is still used by {count} object(s)")]
    Busy { what: &'static str, count: u64 },
    /// An advertised limit is reached.
    #[error("no room for another {what}: the limit is {limit}")]
    Limit { what: &'static str, limit: u64 },
    /// Memory that is not mapped, or not in the way the registration asks for.
    #[error("memory at {addr:#x}, {len} bytes: {why}")]
    Fault {
        addr: u64,
        len: u64,
        why: &'static str,
    },
    /// Not built, or not possible in software.
    #[error("{0} is not supported")]
    Unsupported(&'static str),
    /// `modify_qp` was refused; nothing changed.
    #[error(transparent)]
    Modify(#[from] ModifyError),
    /// No link reaches the destination.
    #[error("no link of this process reaches GID {gid}, QP {qpn:#x}: {why}")]
    Unreachable {
        gid: adverb_wire::Gid,
        qpn: u32,
        why: String,
    },
    /// Somebody else has the port: that of RoCE, or one of a port space.
    #[error("{0}")]
    PortTaken(String),
    /// As `PortTaken`, where one of the two is bound to every address: a kernel tells the two cases apart.
    #[error("{0}")]
    PortCovered(String),
    /// An environment variable that cannot be understood.
    #[error("{name}={value}: wants {wants}")]
    Setting {
        name: &'static str,
        value: String,
        wants: &'static str,
    },
    /// A call that does not fit what a connection identifier is doing.
    #[error("{call} on an identifier that {state}")]
    State {
        call: &'static str,
        state: &'static str,
    },
    /// No device of this process stands at an address.
    #[error("no device has address {address}: {why}")]
    NoDevice {
        address: std::net::IpAddr,
        why: String,
    },
    /// The object belongs to the parent of this forked process.
    #[error("the object was made before fork; a child opens the device anew")]
    Forked,
    /// The system refused.
    #[error("{what}: {source}")]
    Io {
        what: &'static str,
        source: std::io::Error,
    },
}

impl NicError {
    pub(crate) fn io(what: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { what, source }
    }
}
