//! Who is there: the slot that a process holds in the private directory of its user.
//!
//! A process claims one of 1023 slots at random. Slot N is the file `slot-N` (a [`ProcessPage`]) and the datagram
//! socket `slot-N.sock` (its bell). The process holds a lock on the file as long as it lives; the kernel drops the
//! lock however the process ends. So a file without a lock is the rest of a dead process, and whoever claims a slot
//! next removes it. Nothing ever needs cleaning by hand.
//!
//! A slot is claimed under a lock on the directory. Each claim makes a new file, so whoever has mapped the page of
//! the previous owner can tell by the inode that the slot has changed hands.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use adverb_mem::ProcessPage;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

use super::beacon;
use super::dir::named;
use super::lock::{LOCK_PATIENCE, Lock, lock_exclusive};
use super::rope::Rope;
use crate::qpn::SLOT_MAX;

/// The slot that this process holds, as long as the value lives.
#[derive(Debug)]
pub struct Place {
    dir: PathBuf,
    slot: u16,
    page: ProcessPage,
    bell: UnixDatagram,
    /// Sends to the bells of all others.
    socket: Arc<UnixDatagram>,
    own_rope: Rope,
    /// Tells those who meet elsewhere that we meet here.
    _beacon: Option<UnixDatagram>,
    pid_namespace: u64,
    /// Holds the lock. A forked child inherits it, and must neither unlock it nor remove the files.
    locked: File,
    owner: u32,
}

impl Place {
    /// Claims a free slot in `dir` and removes what dead processes left there.
    pub fn join(dir: &Path) -> io::Result<Self> {
        let path = dir.join("lock");
        let claim = open_file(&path, OpenOptions::new().create(true))?;
        let _claim = Lock::acquire(claim, &path, LOCK_PATIENCE)?;
        sweep(dir)?;
        let pid_namespace = pid_namespace();
        let start = random()? as u16 % SLOT_MAX;
        for slot in (0..SLOT_MAX).map(|step| (start + step) % SLOT_MAX + 1) {
            match open_file(&slot_path(dir, slot), OpenOptions::new().create_new(true)) {
                Ok(file) => return Self::claim(dir, slot, file, pid_namespace),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::new(
            io::ErrorKind::QuotaExceeded,
            format!(
                "all {SLOT_MAX} slots in {} are held by living processes (fuser {}/slot-* names them)",
                dir.display(),
                dir.display()
            ),
        ))
    }

    fn claim(dir: &Path, slot: u16, file: File, pid_namespace: u64) -> io::Result<Self> {
        // Somebody who wonders whether the slot is alive may hold a shared lock for an instant; so this one waits.
        lock_exclusive(&file, &slot_path(dir, slot), LOCK_PATIENCE)?;
        let owner = std::process::id();
        let page = ProcessPage::create(&file, random()?, owner, pid_namespace)
            .map_err(|error| named(error, &slot_path(dir, slot)))?;
        let path = bell_path(dir, slot);
        let _ = fs::remove_file(&path);
        let bell = UnixDatagram::bind(&path).map_err(|error| named(error, &path))?;
        bell.set_nonblocking(true)?;
        let socket = Arc::new(UnixDatagram::unbound()?);
        socket.set_nonblocking(true)?;
        let own_rope = Rope::new(&socket, &path)?;
        Ok(Self {
            dir: dir.to_path_buf(),
            slot,
            page,
            bell,
            socket,
            own_rope,
            _beacon: beacon::light(dir, slot),
            pid_namespace,
            locked: file,
            owner,
        })
    }

    /// Our slot.
    #[must_use]
    pub fn slot(&self) -> u16 {
        self.slot
    }

    /// The directory in which the processes meet.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Our page.
    #[must_use]
    pub fn page(&self) -> &ProcessPage {
        &self.page
    }

    /// The socket on which bells and rings arrive; to be waited for with epoll.
    #[must_use]
    pub fn bell_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// The descriptor whose lock says that this process lives. A forked child should close its copy.
    #[must_use]
    pub fn life_fd(&self) -> BorrowedFd<'_> {
        self.locked.as_fd()
    }

    /// The process at `slot`, if it lives and its number means something in our PID namespace.
    #[must_use]
    pub fn pid_of(&self, slot: u16) -> Option<u32> {
        let (file, _) = self.living(slot)?;
        let page = ProcessPage::open(&file).ok()?;
        (page.pid_namespace() == self.pid_namespace).then(|| page.pid())
    }

    /// Whether a living process holds `slot`.
    #[must_use]
    pub fn is_alive(&self, slot: u16) -> bool {
        self.living(slot).is_some()
    }

    /// The random number of the living process that holds `slot`, which tells it from earlier holders.
    #[must_use]
    pub fn generation_of(&self, slot: u16) -> Option<u64> {
        generation_of(&self.dir, slot)
    }

    /// Why somebody on this host may not be found here: there are processes that meet elsewhere, of other users or in
    /// containers with another `/dev/shm`.
    #[must_use]
    pub fn why_not_here(&self) -> Option<String> {
        beacon::elsewhere(&self.dir)
    }

    /// The slot file of a living process, and its inode.
    pub(super) fn living(&self, slot: u16) -> Option<(File, u64)> {
        living(&self.dir, slot)
    }

    /// Whether the process that wrote `page` is known to have died. The lock says it surely, but a child that it
    /// forked can hold the lock a while longer; the process id tells earlier, where it means anything to us.
    pub(super) fn is_known_dead(&self, page: &ProcessPage) -> bool {
        page.pid_namespace() == self.pid_namespace
            && i32::try_from(page.pid())
                .ok()
                .and_then(rustix::process::Pid::from_raw)
                .is_some_and(|pid| rustix::process::test_kill_process(pid) == Err(Errno::SRCH))
    }

    /// Rings our own bell, for a thread of ours that sleeps.
    pub(super) fn ring_own(&self) {
        // Without an owner of the bell nobody sleeps on it.
        let _ = self.own_rope.ring();
    }

    /// What rings the bell of `slot`.
    pub(super) fn rope_to(&self, slot: u16) -> io::Result<Rope> {
        Rope::new(&self.socket, &bell_path(&self.dir, slot))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if std::process::id() == self.owner {
            let _ = fs::remove_file(bell_path(&self.dir, self.slot));
            let _ = fs::remove_file(slot_path(&self.dir, self.slot));
        }
    }
}

fn living(dir: &Path, slot: u16) -> Option<(File, u64)> {
    let file = open_file(&slot_path(dir, slot), &mut OpenOptions::new()).ok()?;
    let inode = file.metadata().ok()?.ino();
    (!is_unlocked(&file)).then_some((file, inode))
}

/// As [`Place::generation_of`], for who has no place in `dir`.
pub(crate) fn generation_of(dir: &Path, slot: u16) -> Option<u64> {
    let (file, _) = living(dir, slot)?;
    ProcessPage::open(&file).ok().map(|page| page.generation())
}

/// Removes the files of dead processes. The caller holds the lock of the directory.
fn sweep(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        let Some(slot) = name.to_str().and_then(|name| name.strip_prefix("slot-")) else {
            continue;
        };
        let slot = slot.strip_suffix(".sock").unwrap_or(slot);
        let Ok(slot) = slot.parse::<u16>() else {
            continue;
        };
        let dead = match open_file(&slot_path(dir, slot), &mut OpenOptions::new()) {
            Ok(file) => is_unlocked(&file),
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        };
        if dead {
            let _ = fs::remove_file(bell_path(dir, slot));
            let _ = fs::remove_file(slot_path(dir, slot));
        }
    }
    Ok(())
}

/// Whether nobody holds the lock of a slot file. Takes a shared lock for an instant.
fn is_unlocked(file: &File) -> bool {
    let taken = flock(file, FlockOperation::NonBlockingLockShared).is_ok();
    if taken {
        let _ = flock(file, FlockOperation::Unlock);
    }
    taken
}

pub(crate) fn open_file(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let no_links = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
    options
        .read(true)
        .write(true)
        .mode(0o600)
        .custom_flags(no_links)
        .open(path)
        .map_err(|error| named(error, path))
}

fn slot_path(dir: &Path, slot: u16) -> PathBuf {
    dir.join(format!("slot-{slot}"))
}

fn bell_path(dir: &Path, slot: u16) -> PathBuf {
    dir.join(format!("slot-{slot}.sock"))
}

/// The inode of our pid namespace; zero, which equals no other, where /proc is missing.
fn pid_namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |found| found.ino())
}

/// A random number from the kernel.
fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    let mut left = &mut bytes[..];
    while !left.is_empty() {
        match getrandom(&mut *left, GetRandomFlags::empty()) {
            Ok(n) => left = &mut left[n..],
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_held_until_its_owner_goes() {
        let dir = tempfile::tempdir().unwrap();
        let one = Place::join(dir.path()).unwrap();
        let two = Place::join(dir.path()).unwrap();
        assert_ne!(one.slot(), two.slot());
        assert!(one.is_alive(two.slot()) && one.is_alive(one.slot()));
        let gone = two.slot();
        drop(two);
        assert!(!one.is_alive(gone));
        drop(one);
        let left: Vec<_> = fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(left, ["lock"]);
    }

    #[test]
    fn when_all_slots_are_taken_the_error_says_so() {
        let dir = tempfile::tempdir().unwrap();
        // One file and one lock by all the names, as there need not be so many descriptors.
        let held = File::create(slot_path(dir.path(), 1)).unwrap();
        flock(&held, FlockOperation::LockExclusive).unwrap();
        for slot in 2..=SLOT_MAX {
            fs::hard_link(slot_path(dir.path(), 1), slot_path(dir.path(), slot)).unwrap();
        }
        let error = Place::join(dir.path()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::QuotaExceeded);
        assert!(error.to_string().contains("all 1023 slots"), "{error}");
        drop(held);
        Place::join(dir.path()).unwrap();
    }

    #[test]
    fn what_the_dead_left_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["slot-5", "slot-5.sock", "slot-77.sock", "slot-9"] {
            fs::write(dir.path().join(name), "left over").unwrap();
        }
        let place = Place::join(dir.path()).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
        assert!((1..=SLOT_MAX).contains(&place.slot()));
    }
}
