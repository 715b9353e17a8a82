//! File locks that are waited for within a bound, and who holds them.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock, major, minor};
use rustix::io::Errno;

/// How long a lock is waited for. Whoever has one needs it for an instant, unless somebody has stopped him.
pub const LOCK_PATIENCE: Duration = Duration::from_secs(5);

/// How often it is looked at meanwhile.
const PAUSE: Duration = Duration::from_micros(200);

/// A lock on a file, held until dropped.
#[derive(Debug)]
pub struct Lock(File);

impl Lock {
    /// Locks `file`, which lies at `path`. Who holds it for longer than `patience` is named in the error, whose kind is
    /// [`io::ErrorKind::TimedOut`].
    pub fn acquire(file: File, path: &Path, patience: Duration) -> io::Result<Self> {
        lock_exclusive(&file, path, patience)?;
        Ok(Self(file))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Said in so many words: a child that was forked meanwhile has a copy of the descriptor, and would go on holding
        // the lock.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// As [`Lock::acquire`], and the lock stays until the last copy of the descriptor is closed.
pub(super) fn lock_exclusive(file: &File, path: &Path, patience: Duration) -> io::Result<()> {
    let until = Instant::now() + patience;
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if Instant::now() < until => std::thread::sleep(PAUSE),
            Err(Errno::AGAIN) => return Err(held(file, path, patience)),
            Err(error) => return Err(error.into()),
        }
    }
}

fn held(file: &File, path: &Path, patience: Duration) -> io::Error {
    let path = path.display();
    let text = match holder_of(file) {
        Some(pid) => {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            format!(
                "process {pid} ({}) has held the lock on {path} for {patience:?}; if it is stopped, let it go on (kill -CONT {pid}) or end it",
                name.trim()
            )
        }
        None => format!(
            "another process has held the lock on {path} for {patience:?} (fuser {path} names it); if it is stopped, let it go on or end it"
        ),
    };
    io::Error::new(io::ErrorKind::TimedOut, text)
}

/// The process that has locked a file, if the kernel tells and it is one of our PID namespace.
fn holder_of(file: &File) -> Option<u32> {
    let found = file.metadata().ok()?;
    let (dev, inode) = (found.dev(), found.ino());
    let wanted = format!("{:02x}:{:02x}:{inode}", major(dev), minor(dev));
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    // "1: FLOCK  ADVISORY  WRITE 1234 00:2d:567 0 EOF"; those that wait have an arrow after the number.
    locks.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        (words.next() == Some("FLOCK")).then_some(())?;
        let pid = words.nth(2)?.parse().ok().filter(|pid| *pid != 0)?;
        (words.next() == Some(&wanted)).then_some(pid)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_holds_a_lock_for_long_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let open = || {
            File::options()
                .write(true)
                .create(true)
                .truncate(false)
                .open(&path)
                .unwrap()
        };
        let ours = Lock::acquire(open(), &path, LOCK_PATIENCE).unwrap();
        let error = Lock::acquire(open(), &path, Duration::ZERO).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let text = error.to_string();
        assert!(text.contains(&path.display().to_string()), "{text}");
        assert!(text.contains(&std::process::id().to_string()), "{text}");
        drop(ours);
        Lock::acquire(open(), &path, Duration::ZERO).unwrap();
    }
}
