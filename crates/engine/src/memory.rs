//! Memory, completions and events as the engine asks for them: the trait a NIC implements.

use bitflags::bitflags;

use crate::completion::Completion;
use crate::event::QpEvent;
use crate::ids::{Key, PdId, QpNum};
use crate::wr::{MwBind, RecvWqe};

bitflags! {
    /// Access flags of regions and queue pairs. Reading locally is always allowed.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Access: u32 {
        const LOCAL_WRITE = 1;
        const REMOTE_WRITE = 2;
        const REMOTE_READ = 4;
        const REMOTE_ATOMIC = 8;
        const MW_BIND = 0x10;
        const ZERO_BASED = 0x20;
        const ON_DEMAND = 0x40;
        const HUGETLB = 0x80;
        const FLUSH_GLOBAL = 0x100;
        const FLUSH_PERSISTENT = 0x200;
        const RELAXED_ORDERING = 1 << 20;
    }
}

/// Bits that a device may ignore when it does not know them.
const OPTIONAL_ACCESS: u32 = 0x3ff0_0000;

impl Access {
    /// The flags an application asked for. Unknown optional bits are ignored, others are refused.
    pub fn from_request(bits: u32) -> Result<Self, KeyError> {
        let known = Self::from_bits_truncate(bits);
        let unknown = bits & !Self::all().bits() & !OPTIONAL_ACCESS;
        if unknown != 0 {
            return Err(KeyError::UnknownAccess { bits: unknown });
        }
        known.consistent()
    }

    /// Remote rights to change memory need the local one.
    pub fn consistent(self) -> Result<Self, KeyError> {
        if self.intersects(Self::REMOTE_WRITE | Self::REMOTE_ATOMIC)
            && !self.contains(Self::LOCAL_WRITE)
        {
            return Err(KeyError::NeedsLocalWrite {
                access: self.bits(),
            });
        }
        Ok(self)
    }
}

/// A wish to touch memory through a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemAccess {
    pub key: Key,
    pub pd: PdId,
    pub qp: QpNum,
    pub va: u64,
    pub len: u64,
    /// Rights the region must grant; empty for a local read.
    pub need: Access,
    /// Asked for by the peer (an R_Key) rather than by the application.
    pub remote: bool,
}

/// Why a key or a range was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeyError {
    #[error("no region has key {key:#010x}")]
    Unknown { key: u32 },
    #[error("key {key:#010x} belongs to protection domain {owner}, not {asked}")]
    WrongPd { key: u32, owner: u32, asked: u32 },
    #[error("key {key:#010x} grants access {granted:#x}, {needed:#x} is needed")]
    Denied { key: u32, granted: u32, needed: u32 },
    #[error("[{va:#x}, +{len}) is outside the region [{start:#x}, +{size}) of key {key:#010x}")]
    Range {
        key: u32,
        va: u64,
        len: u64,
        start: u64,
        size: u64,
    },
    #[error("key {key:#010x} is bound to another queue pair than {qp:#x}")]
    WrongQp { key: u32, qp: u32 },
    #[error("address {va:#x} of an atomic operation is not a multiple of 8")]
    Misaligned { va: u64 },
    #[error("key {key:#010x} is of a kind that cannot be invalidated")]
    NotInvalidatable { key: u32 },
    #[error("region [{start:#x}, +{size}) wraps around the end of the address space")]
    Wraps { start: u64, size: u64 },
    #[error("unknown access bits {bits:#x}")]
    UnknownAccess { bits: u32 },
    #[error("access {access:#x} lets the peer change memory and so needs LOCAL_WRITE")]
    NeedsLocalWrite { access: u32 },
    #[error("key {key:#010x} cannot be bound: {why}")]
    NotBindable { key: u32, why: &'static str },
    #[error("the window of key {key:#010x} is not bound")]
    NotBound { key: u32 },
    #[error("{count} window(s) are bound to the region of key {key:#010x}")]
    Bound { key: u32, count: u32 },
    #[error("{len} bytes at {va:#x} are not there to be accessed")]
    Fault { va: u64, len: u64 },
    #[error("all {limit} memory keys are in use")]
    Limit { limit: usize },
}

/// The queue of a queue pair a completion belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    Send,
    Recv,
    /// XRC: the queue of the SRQ with this number.
    XrcSrq(u32),
}

/// What the engine needs from the world around a queue pair.
///
/// A call with `len` zero is never made for memory, except `check` for a whole region.
pub trait Host {
    /// Whether the access would be granted; no byte moves. With a length of zero only the key and
    /// its rights count.
    fn check(&mut self, a: &MemAccess) -> Result<(), KeyError>;
    /// Checks and copies `data` to the range. The last bytes of a message come in the last call,
    /// and must not be visible before all others.
    fn write(&mut self, a: &MemAccess, data: &[u8]) -> Result<(), KeyError>;
    /// Checks and copies the range into `out`.
    fn read(&mut self, a: &MemAccess, out: &mut [u8]) -> Result<(), KeyError>;
    /// Returns the value before the operation.
    fn compare_swap(&mut self, a: &MemAccess, compare: u64, swap: u64) -> Result<u64, KeyError>;
    /// Returns the value before the operation.
    fn fetch_add(&mut self, a: &MemAccess, add: u64) -> Result<u64, KeyError>;
    /// LOCAL_INV here, or SEND_WITH_INV from the peer.
    fn invalidate(&mut self, key: Key, pd: PdId, qp: QpNum) -> Result<(), KeyError>;
    /// BIND_MW.
    fn bind(&mut self, bind: &MwBind, pd: PdId, qp: QpNum) -> Result<(), KeyError>;
    /// The oldest entry of the queue pair's SRQ, if there is one.
    fn take_srq(&mut self, into: &mut RecvWqe) -> bool;
    /// XRC: the protection domain of the SRQ with this number, if the queue pair's XRC domain has one.
    fn xrc_srq(&mut self, _number: u32) -> Option<PdId> {
        None
    }
    /// XRC: as `take_srq`, from the SRQ with this number.
    fn take_xrc_srq(&mut self, _number: u32, _into: &mut RecvWqe) -> bool {
        false
    }
    fn complete(&mut self, queue: Side, c: &Completion);
    fn event(&mut self, e: QpEvent);
}
