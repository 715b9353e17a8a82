//! What can go wrong when a verb is called. What can go wrong with an operation after it was
//! posted arrives as a completion and is a [`WcError`](crate::WcError).

use std::io;

use adverb_abi::flags::QpAttrMask;

use crate::failure::Failure;
use crate::state::QpState;
use crate::status::WcError;

/// Shorthand for results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a verb was refused. Every variant names what was asked and what the limit was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The library below returned an errno.
    #[error("{verb} on {object}: {} (errno {errno}){}", io::Error::from_raw_os_error(*errno), reason(why, verb, *errno))]
    Verb {
        /// The C name of the verb, as in its man page.
        verb: &'static str,
        /// The errno value.
        errno: i32,
        /// The device or queue pair concerned.
        object: String,
        /// What the software device says besides: the field, the value, the limit. Hardware says nothing.
        why: String,
        /// The errno as the standard library has it.
        source: io::Error,
    },

    /// Neither this library nor this device offers the verb.
    #[error("{object} does not offer {what}")]
    Unsupported {
        /// The missing function or feature.
        what: &'static str,
        /// The device concerned.
        object: String,
    },

    /// No device, or none of the wanted name.
    #[error("no RDMA device{}; present: {}", wanted.as_deref().map(|w| format!(" named {w:?}")).unwrap_or_default(),
        if available.is_empty() { "none".to_owned() } else { available.join(", ") })]
    NoDevice {
        /// The name asked for, if there was one.
        wanted: Option<String>,
        /// The names of the devices that are there.
        available: Vec<String>,
    },

    /// The system's libibverbs or librdmacm is there but cannot be used.
    #[error("a library of the system cannot be used: {0}")]
    Load(String),

    /// An argument is out of its range.
    #[error("{what} is {value}, the limit is {limit}")]
    Value {
        /// Which argument.
        what: &'static str,
        /// What was given.
        value: u64,
        /// The largest value that is accepted.
        limit: u64,
    },

    /// An argument is less than makes sense.
    #[error("{what} is {value}, the least is {least}")]
    TooSmall {
        /// Which argument.
        what: &'static str,
        /// What was given.
        value: u64,
        /// The smallest value that is accepted.
        least: u64,
    },

    /// An argument has to be a multiple of something.
    #[error("{what} is {value}, and has to be a multiple of {multiple_of}")]
    Misfit {
        /// Which argument.
        what: &'static str,
        /// What was given.
        value: u64,
        /// What it has to be a multiple of.
        multiple_of: u64,
    },

    /// The system has no memory of this size.
    #[error("{len} bytes of memory are not to be had")]
    OutOfMemory {
        /// Bytes asked for.
        len: usize,
    },

    /// An atomic load cannot release, nor a store acquire (`std::sync::atomic::Ordering`).
    #[error("an atomic {access} cannot have the order {order:?}")]
    Ordering {
        /// `load` or `store`.
        access: &'static str,
        /// What was given.
        order: std::sync::atomic::Ordering,
    },

    /// A range does not lie within its memory.
    #[error("bytes {offset}..{} are outside a region of {len} bytes", offset.saturating_add(*wanted))]
    OutOfRange {
        /// Where the range starts.
        offset: u64,
        /// How long it is.
        wanted: u64,
        /// How much there is.
        len: u64,
    },

    /// An 8-byte word for an atomic operation is not aligned to 8 bytes, or not 8 bytes long.
    #[error("atomic operations need 8 bytes at a multiple of 8; got {len} bytes at {addr:#x}")]
    Misaligned {
        /// The address given.
        addr: u64,
        /// The length given.
        len: u64,
    },

    /// A list of memory to be written has a piece that somebody else may be reading.
    #[error(
        "piece {index} of the target is shared (an Arc<Buf>), so that nothing may write into it"
    )]
    SharedTarget {
        /// Which, from 0.
        index: usize,
    },

    /// The state machine of queue pairs has no such step.
    #[error("a {transport} queue pair cannot go from {from} to {to}")]
    Transition {
        /// State before.
        from: QpState,
        /// State wanted.
        to: QpState,
        /// Name of the transport.
        transport: &'static str,
    },

    /// The step exists, but attributes that it requires were not given.
    #[error("{from} to {to} needs {missing:?}, which was not given")]
    MissingAttributes {
        /// State before.
        from: QpState,
        /// State wanted.
        to: QpState,
        /// What is missing.
        missing: QpAttrMask,
    },

    /// The step exists, but attributes were given that it does not allow.
    #[error("{from} to {to} does not allow {extra:?}")]
    ForbiddenAttributes {
        /// State before.
        from: QpState,
        /// State wanted.
        to: QpState,
        /// What must go.
        extra: QpAttrMask,
    },

    /// A completion queue could overflow if this queue pair used it.
    #[error(
        "the completion queue holds {capacity} entries, {reserved} are promised to other queues, \
         and {needed} more are needed: create it with at least {}", reserved + needed
    )]
    CompletionQueueTooSmall {
        /// Entries the new queue needs.
        needed: u32,
        /// Entries promised already.
        reserved: u32,
        /// Entries there are.
        capacity: u32,
    },

    /// A queue has no free entry. Poll completions and try again.
    #[error(
        "the {queue} queue is full: {capacity} operations are outstanding; poll its completions and try again"
    )]
    QueueFull {
        /// `send` or `receive`.
        queue: &'static str,
        /// Its size.
        capacity: u32,
    },

    /// Inline data must fit into the work request.
    #[error(
        "{len} bytes of inline data, but this queue pair takes {max} at most (ask for more with max_inline)"
    )]
    InlineTooLong {
        /// What was given.
        len: usize,
        /// The limit granted at creation.
        max: u32,
    },

    /// Objects of two different devices or protection domains cannot work together.
    #[error("{what} belongs to another {owner}")]
    Foreign {
        /// The object that was passed.
        what: &'static str,
        /// `context` or `protection domain`.
        owner: &'static str,
    },

    /// An object is on another device than the one that is needed.
    #[error("{what} is on {is}, and has to be on {wanted}")]
    OtherDevice {
        /// The object that was passed.
        what: &'static str,
        /// The device it is on.
        is: String,
        /// The device that is needed.
        wanted: String,
    },

    /// A connection did not come about.
    #[error("{what}: {failure}")]
    Connection {
        /// Which, with the peer's address.
        what: String,
        /// Why.
        #[source]
        failure: Failure,
    },

    /// Bytes or text that are no endpoint or region descriptor.
    #[error("not a valid {what}: {why}")]
    Malformed {
        /// What was expected.
        what: &'static str,
        /// What is wrong with it.
        why: String,
    },

    /// Waiting for events needs a completion channel, and the queue was created without one.
    #[error("this completion queue has no completion channel: only Wait::Busy works on it")]
    NoChannel,

    /// The completions of this queue go to futures ([`aio::Queue`](crate::aio::Queue)), for as long as that has handles.
    #[error(
        "this completion queue is driven by an aio::Queue, which alone may poll and wait for it"
    )]
    Driven,

    /// An operation failed after it was posted; what its completion says.
    #[error("{0}")]
    Completion(#[from] WcError),

    /// The operating system refused something around the verbs.
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl Error {
    /// The errno behind the error, where there is one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Verb { errno, .. } => Some(*errno),
            Self::Io(e) => e.raw_os_error(),
            Self::OutOfMemory { .. } => Some(libc::ENOMEM),
            Self::Unsupported { .. } => Some(libc::EOPNOTSUPP),
            _ => None,
        }
    }

    /// Whether trying again after polling completions can help.
    pub fn is_would_block(&self) -> bool {
        matches!(self, Self::QueueFull { .. })
    }
}

impl From<Error> for io::Error {
    /// The same words; the kind is that of the errno, where there is one.
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::Io(e) => e.kind(),
            Error::Connection { failure, .. } => failure.kind(),
            e if e.is_would_block() => io::ErrorKind::WouldBlock,
            e => match e.errno() {
                Some(errno) => Self::from_raw_os_error(errno).kind(),
                None => io::ErrorKind::Other,
            },
        };
        Self::new(kind, error)
    }
}

/// What the device says itself, or else the usual reason.
fn reason(why: &str, verb: &str, errno: i32) -> String {
    if why.is_empty() {
        advice(verb, errno).to_owned()
    } else {
        format!(": {why}")
    }
}

/// The usual reason for an errno, where one verb has one.
fn advice(verb: &str, errno: i32) -> &'static str {
    match (verb, errno) {
        ("ibv_reg_mr", libc::ENOMEM) => {
            "; the limit on locked memory (ulimit -l) is the usual reason"
        }
        ("ibv_reg_mr", libc::EFAULT) => {
            "; the range is not mapped, or not writable although write access was asked for"
        }
        ("ibv_modify_qp", libc::ETIMEDOUT | libc::ENETUNREACH | libc::EHOSTUNREACH) => {
            "; the address behind the peer's GID does not answer"
        }
        ("rdma_create_event_channel", libc::ENODEV | libc::ENOENT) => {
            "; the kernel has no connection manager for cards (module rdma_ucm)"
        }
        ("ibv_open_device", libc::EACCES | libc::EPERM) => {
            "; the device node under /dev/infiniband is not accessible to this user"
        }
        _ => "",
    }
}
