//! A few pages of shared memory per process, which its peers map: who it is, whether it sleeps, when it last looked.
//!
//! Each field that changes has a cache line to itself, because senders read the sleep flag once per batch while the
//! owner writes the time whenever it drives.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::map::Mapping;
#[cfg(not(loom))]
use crate::news::News;
#[cfg(not(loom))]
use crate::sleep::SleepFlag;

/// The page of one process, mapped by its owner or by a peer.
#[derive(Debug)]
pub struct ProcessPage {
    map: Mapping,
}

/// A file that is not a process page.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// The owner has not written its page yet, or this is another program's file.
    #[error("not a process page: {len} bytes, magic {magic:#x}")]
    Foreign {
        /// Length of the file.
        len: u64,
        /// The first word found, zero when the file is too short to have one.
        magic: u64,
    },
    /// The kernel refused.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Length of the file behind a page: the fields, and a counter for each slot.
const PAGE_BYTES: usize = AT_ARRIVALS + 1024 * 8;
/// "adverb" and the version of what processes share: this layout, and that of the records in their rings.
const MAGIC: u64 = 0x0004_6164_7665_7262;

const AT_MAGIC: usize = 0;
const AT_GENERATION: usize = 8;
const AT_PID: usize = 16;
const AT_PID_NAMESPACE: usize = 24;
#[cfg(not(loom))]
const AT_ASLEEP: usize = 64;
const AT_LAST_DRIVE: usize = 128;
const AT_HANDOVERS: usize = 192;
#[cfg(not(loom))]
const AT_NEWS: usize = 256;
const AT_ARRIVALS: usize = 4096;

/// A receiver that has not looked for this long gets a bell even if it does not say that it sleeps.
#[cfg(not(loom))]
const STALE_NS: u64 = 10_000;

impl ProcessPage {
    /// How long a sender waits for an owner that was looking a moment ago. Longer than what a bell costs: a polling owner
    /// whose own thread has been woken on its core does not look meanwhile, and whoever took that for silence would
    /// ring again and again.
    pub const REMIND_AFTER_NS: u64 = 25_000;

    /// Makes `file` (empty, ours) the page of this process.
    pub fn create(
        file: impl AsFd,
        generation: u64,
        pid: u32,
        pid_namespace: u64,
    ) -> io::Result<Self> {
        let file = file.as_fd();
        fill(file, PAGE_BYTES)?;
        let page = Self {
            map: Mapping::new(file, PAGE_BYTES)?,
        };
        page.word(AT_GENERATION)
            .store(generation, Ordering::Relaxed);
        page.word(AT_PID).store(u64::from(pid), Ordering::Relaxed);
        page.word(AT_PID_NAMESPACE)
            .store(pid_namespace, Ordering::Relaxed);
        page.word(AT_MAGIC).store(MAGIC, Ordering::Release);
        Ok(page)
    }

    /// Maps the page of a peer.
    ///
    /// The file lies in a directory of the same user, who is trusted not to truncate it; all else in it is not trusted.
    pub fn open(file: impl AsFd) -> Result<Self, PageError> {
        let file = file.as_fd();
        let len = rustix::fs::fstat(file).map_err(io::Error::from)?.st_size as u64;
        if len != PAGE_BYTES as u64 {
            return Err(PageError::Foreign { len, magic: 0 });
        }
        let page = Self {
            map: Mapping::new(file, PAGE_BYTES)?,
        };
        match page.word(AT_MAGIC).load(Ordering::Acquire) {
            MAGIC => Ok(page),
            magic => Err(PageError::Foreign { len, magic }),
        }
    }

    /// A random number that tells one owner of a slot from the next.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.word(AT_GENERATION).load(Ordering::Relaxed)
    }

    /// The owner's process id, in the namespace of [`Self::pid_namespace`].
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.word(AT_PID).load(Ordering::Relaxed) as u32
    }

    /// The inode of the owner's pid namespace.
    #[must_use]
    pub fn pid_namespace(&self) -> u64 {
        self.word(AT_PID_NAMESPACE).load(Ordering::Relaxed)
    }

    /// The owner notes that it looks into its rings now (CLOCK_MONOTONIC in nanoseconds).
    pub fn note_drive(&self, now_ns: u64) {
        self.word(AT_LAST_DRIVE).store(now_ns, Ordering::Relaxed);
    }

    /// When the owner last looked into its rings.
    #[must_use]
    pub fn last_drive_ns(&self) -> u64 {
        self.word(AT_LAST_DRIVE).load(Ordering::Relaxed)
    }

    /// A peer has handed something over through the owner's socket. This is how an owner that polls and never sleeps
    /// learns of it without a system call.
    pub fn note_handover(&self) {
        self.word(AT_HANDOVERS).fetch_add(1, Ordering::Release);
    }

    /// How often something was handed over, so far.
    #[must_use]
    pub fn handovers(&self) -> u64 {
        self.word(AT_HANDOVERS).load(Ordering::Acquire)
    }

    /// The owner has taken in a packet of the process at `slot` (below 1024) that came through a socket.
    pub fn note_arrival(&self, slot: u16) {
        self.word(at_arrivals(slot)).fetch_add(1, Ordering::Release);
    }

    /// How many such packets the owner has taken in, so far. A sender on the same host paces itself by this.
    #[must_use]
    pub fn arrivals(&self, slot: u16) -> u64 {
        self.word(at_arrivals(slot)).load(Ordering::Acquire)
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at.is_multiple_of(8) && at + 8 <= PAGE_BYTES);
        // SAFETY: `at` is one of the constants above or a counter behind them: aligned (the mapping is page aligned) and inside the mapping,
        // which lives as long as `self`. All processes access these words with atomic operations only.
        unsafe { AtomicU64::from_ptr(self.map.as_ptr().add(at).cast()) }
    }
}

const fn at_arrivals(slot: u16) -> usize {
    AT_ARRIVALS + (slot as usize % 1024) * 8
}

#[cfg(not(loom))]
impl ProcessPage {
    /// The flag of this process. See [`SleepFlag`] for the protocol.
    #[must_use]
    pub fn sleep_flag(&self) -> &SleepFlag {
        // SAFETY: inside the mapping, aligned, and `SleepFlag` is a transparent atomic for which every bit pattern is valid.
        unsafe { &*self.map.as_ptr().add(AT_ASLEEP).cast::<SleepFlag>() }
    }

    /// Who has written something for the owner.
    #[must_use]
    pub fn news(&self) -> &News {
        const { assert!(AT_NEWS + size_of::<News>() <= AT_ARRIVALS) };
        // SAFETY: inside the mapping, aligned, and `News` consists of atomics for which every bit pattern is valid.
        unsafe { &*self.map.as_ptr().add(AT_NEWS).cast::<News>() }
    }

    /// The process at `from` has published records for the owner: tells it if it wants to be told, and says whether its
    /// bell must be rung.
    #[must_use]
    pub fn tell(&self, from: u16, now_ns: u64) -> bool {
        if self.news().tell(from) {
            return self.should_ring(now_ns);
        }
        self.sleep_flag().take_sleeper_after_fence() || !self.has_looked_within(STALE_NS, now_ns)
    }

    /// Whether a sender that has just published records for the owner must ring its bell.
    ///
    /// First rule, exact: the owner said that it sleeps, and this sender took the flag down. Second rule, a hint:
    /// the owner has not looked for 10 µs. That covers an owner which computes while its own thread could serve
    /// the packet, and a sender that was killed after it took the flag down and before it rang.
    #[must_use]
    pub fn should_ring(&self, now_ns: u64) -> bool {
        self.sleep_flag().take_sleeper() || !self.has_looked_within(STALE_NS, now_ns)
    }

    /// Whether a sender that did not ring when it published, because the owner was looking then, must do so now:
    /// [`REMIND_AFTER_NS`](Self::REMIND_AFTER_NS) have passed without a look, or the owner sleeps.
    #[must_use]
    pub fn should_remind(&self, now_ns: u64) -> bool {
        self.sleep_flag().take_sleeper() || !self.has_looked_within(Self::REMIND_AFTER_NS, now_ns)
    }

    fn has_looked_within(&self, span_ns: u64, now_ns: u64) -> bool {
        self.last_drive_ns().saturating_add(span_ns) >= now_ns
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_peer_reads_what_the_owner_wrote() {
        let file = rustix::fs::memfd_create("page", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let own = ProcessPage::create(&file, 7, 42, 99).unwrap();
        let peer = ProcessPage::open(&file).unwrap();
        assert_eq!(
            (peer.generation(), peer.pid(), peer.pid_namespace()),
            (7, 42, 99)
        );
        own.note_drive(1_000_000);
        assert!(
            !peer.should_ring(1_005_000),
            "the owner looked 5 µs ago and does not sleep"
        );
        assert!(peer.should_ring(1_020_000), "20 µs without a look");
        own.sleep_flag().announce_sleep();
        assert!(peer.should_ring(1_000_000));
        assert!(
            !peer.should_ring(1_000_000),
            "the bell is rung once per sleep"
        );
    }

    #[test]
    fn a_file_that_is_no_page_is_refused() {
        let file = rustix::fs::memfd_create("page", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        assert!(matches!(
            ProcessPage::open(&file),
            Err(PageError::Foreign { len: 0, .. })
        ));
        rustix::fs::ftruncate(&file, PAGE_BYTES as u64).unwrap();
        assert!(matches!(
            ProcessPage::open(&file),
            Err(PageError::Foreign { len, magic: 0 }) if len == PAGE_BYTES as u64
        ));
    }
}
/// Writes zeros, so that the file has its memory before anybody maps it: on a full file system this is an error, while a
/// first touch of the mapping would be SIGBUS.
fn fill(file: BorrowedFd<'_>, len: usize) -> io::Result<()> {
    let zeros = [0; 4096];
    let mut at = 0;
    while at < len {
        let rest = &zeros[..zeros.len().min(len - at)];
        at += rustix::io::retry_on_intr(|| rustix::io::pwrite(file, rest, at as u64))?;
    }
    Ok(())
}
