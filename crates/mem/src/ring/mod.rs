//! A one-way queue of packets between two processes, in a memfd that both map.
//!
//! # Layout
//!
//! One page of control words, then `size` bytes of records (a power of two). Positions are free-running `u32`s,
//! masked on access. A record begins at a multiple of 64 bytes: a header word (the length, and a bit that says
//! "valid"), then the bytes, then unused space up to the next multiple of 64. Records run over the end of the ring
//! into its beginning.
//!
//! # Why the header is in the record, and not an index beside the ring
//!
//! What costs time between two cores is the number of cache lines that change hands. A consumer that polls a shared
//! tail index pays two transfers per packet: the line of the index, then, only after that, the line of the data.
//! A consumer that polls the header word of the next record pays one, because a small packet arrives in the very
//! line it polls. Measured on the machine we build on (two virtual cores of an AMD EPYC, both busy with other things
//! too), 60 bytes one way, ping-pong, best of 60 runs: one bare word 0.23 µs, tail index and data apart 0.48 µs, this
//! ring 0.09 to 0.24 µs.
//!
//! The price: a consumer must never mistake old bytes for a header. So the place where the next record will begin
//! always holds zero. The producer sees to that: it zeroes the place behind a record before the record is there, and
//! never fills the last line of the free space. Behind a short record it zeroes one line further, after the fact, so that
//! it need not fetch a line while somebody waits. The consumer writes nothing to the records, and it gives space back in
//! pieces of an eighth of the ring, so on most packets it writes nothing shared at all.
//!
//! # Memory ordering
//!
//! - The producer writes the bytes of a record, then its header with release. The consumer loads the header with
//!   acquire, so it sees the bytes.
//! - The consumer reads the bytes, then stores `head` with release. The producer loads `head` with acquire, so its
//!   writes to that space come after that.
//! - The zero behind a record is written before its header, by whoever takes its space; spaces are taken under a lock.
//!
//! # Records in place
//!
//! A record need not pass through a buffer on either side. [`Producer::reserve`] gives a [`Slot`], which is filled without
//! the lock around the producer and is there for the consumer once it is dropped; one that is dropped late holds up those
//! behind it, because the consumer stops at the zero where its header will be. [`Consumer::next`] gives a [`Record`],
//! whose space goes back when it is dropped. Both hand out spans and never slices, for the other side may write there.
//!
//! # Why a producer that waits for space is woken
//!
//! A producer that finds the ring full stores `waiting`, fences (SeqCst) and loads `head` again. A consumer that
//! gives space back stores `head`, fences (SeqCst) and loads `waiting`. As in [`crate::SleepFlag`], one fence is
//! first, so either the producer sees the space or the consumer sees that it is waited for. And the consumer does
//! give space back after the producer decided to wait: the producer waits only if more than half of the ring is full
//! counted from the `head` it saw, the consumer will read all of that, and it gives back each eighth.
//!
//! # Memory
//!
//! A ring takes as much memory as it has been used, a page at a time. Who has nothing to send for a while calls
//! [`Producer::trim`], which gives the free space back to the system; the consumer, when it finds the ring empty, sees to it
//! that nearly all is free. The zero behind the last record stays in its place.
//!
//! # Trust
//!
//! The other process is not trusted. Each side keeps its own position to itself and takes the size from its own
//! copy; a length or position that cannot be right is [`RingError::Corrupt`]. Every access is masked into the ring.

mod consumer;
#[cfg(all(test, loom))]
mod loom_tests;
mod producer;
mod storage;

pub use consumer::{Consumer, Record, Watch};
pub use producer::{Producer, PushError, Slot};

#[cfg(not(loom))]
use std::io;
#[cfg(not(loom))]
use std::os::fd::{AsFd, OwnedFd};

#[cfg(not(loom))]
use crate::{map::Mapping, memfd};

/// Records begin at multiples of this: a cache line. Loom gets by with two words.
pub(crate) const LINE: u32 = if cfg!(loom) { 8 } else { 64 };
/// Length of the header word.
pub(crate) const HEADER: u32 = 4;
/// The bit of a header word that says: here begins a record.
pub(crate) const VALID: u32 = 1 << 31;
/// Space in front of the records: a page, so that the records are page aligned.
#[cfg(not(loom))]
pub(crate) const CONTROL_BYTES: usize = 4096;

/// So many bytes of records are there before they are used, and so much an idle ring may keep.
pub(crate) const AT_ONCE: u32 = if cfg!(loom) { 16 } else { 16 << 10 };

/// The smallest ring.
pub const MIN_SIZE: u32 = if cfg!(loom) { 64 } else { 4096 };
/// The largest ring.
pub const MAX_SIZE: u32 = 1 << 26;

/// The longest record a ring of this size takes.
#[must_use]
pub const fn max_record(size: u32) -> u32 {
    size / 4 - HEADER
}

/// What space a record takes, header and padding included. Callers have checked `len` against [`max_record`].
pub(crate) const fn record_space(len: u32) -> u32 {
    (HEADER + len).next_multiple_of(LINE)
}

/// The other side broke the ring. There is no way to go on with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// A word in shared memory has a value that a sound peer cannot have written.
    #[error("ring of {size} bytes is corrupt: found {found:#x} at position {position}")]
    Corrupt {
        /// Size of the ring.
        size: u32,
        /// Our position when we found it.
        position: u32,
        /// The word that was found.
        found: u32,
    },
    /// A record is longer than the caller's buffer.
    #[error("record of {len} bytes at position {position} does not fit a buffer of {buffer}")]
    TooLong {
        /// Length of the record.
        len: u32,
        /// Our position.
        position: u32,
        /// Length of the buffer.
        buffer: usize,
    },
}

/// Makes a ring for `size` bytes of records (a power of two) and gives its sending end, with the memfd to hand over.
#[cfg(not(loom))]
pub fn create(size: u32) -> io::Result<(Producer, OwnedFd)> {
    if !size.is_power_of_two() || !(MIN_SIZE..=MAX_SIZE).contains(&size) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("a ring cannot have {size} bytes"),
        ));
    }
    let len = CONTROL_BYTES + size as usize;
    let fd = memfd::create_sealed("adverb-ring", len)?;
    let map = Mapping::sparse(&fd, len, CONTROL_BYTES + AT_ONCE as usize)?;
    Ok((Producer::new(storage::Storage::new(map, size)), fd))
}

/// The receiving end of a ring whose memfd came from a peer. Its size and its seals are checked; it must be fresh.
#[cfg(not(loom))]
pub fn open(fd: impl AsFd) -> io::Result<Consumer> {
    let fd = fd.as_fd();
    let len = memfd::sealed_len(fd)?;
    let size = len
        .checked_sub(CONTROL_BYTES)
        .and_then(|size| u32::try_from(size).ok());
    let size = size.filter(|size| size.is_power_of_two() && (MIN_SIZE..=MAX_SIZE).contains(size));
    let size = size.ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("a memfd of {len} bytes is no ring"),
        )
    })?;
    let map = Mapping::sparse(fd, len, CONTROL_BYTES + AT_ONCE as usize)?;
    Ok(Consumer::new(storage::Storage::new(map, size)))
}

#[cfg(all(test, not(loom)))]
mod tests;
