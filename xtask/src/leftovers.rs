//! What programs must not leave behind when they have ended, however they ended: processes, and files in the places where
//! the processes of a user meet.
//!
//! What a process leaves in the meeting place is removed by whoever comes next, so this is to be asked while somebody is
//! there who came after the last death.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// The variable that says of a process which xtask started it.
pub(crate) const MARK: &str = "ADVERB_XTASK_RUN";

/// Its value for what we start.
pub(crate) fn mark() -> String {
    std::process::id().to_string()
}

/// The files that there are before programs run.
pub(crate) struct Before {
    roots: Vec<PathBuf>,
    files: BTreeSet<PathBuf>,
}

impl Before {
    pub(crate) fn look() -> Self {
        Self::look_in(meeting_places())
    }

    fn look_in(roots: Vec<PathBuf>) -> Self {
        let files = files_below(&roots);
        Self { roots, files }
    }

    /// How many files there were.
    pub(crate) fn count(&self) -> usize {
        self.files.len()
    }

    /// Processes that xtask has started and that live.
    pub(crate) fn processes_left_over(&self) -> Vec<String> {
        processes(&mark())
            .iter()
            .map(|(pid, command)| format!("process {pid}: {command}"))
            .collect()
    }

    /// What is there now, was not before, and belongs to no living process: a line for each, with what it is.
    pub(crate) fn left_over(&self) -> Vec<String> {
        let mut found = self.processes_left_over();
        let now = files_below(&self.roots);
        found.extend(
            now.difference(&self.files)
                .filter(|path| !is_lock(path) && !is_held(path))
                .map(|path| format!("file {}", path.display())),
        );
        found
    }
}

/// Where processes meet; `dir.rs` of the link says in which order they are tried.
fn meeting_places() -> Vec<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let name = format!("adverb-{user}");
    vec![
        Path::new("/dev/shm").join(&name),
        PathBuf::from(format!("/run/user/{user}/adverb")),
        Path::new("/tmp").join(name),
    ]
}

fn files_below(roots: &[PathBuf]) -> BTreeSet<PathBuf> {
    let mut files = BTreeSet::new();
    let mut dirs = roots.to_vec();
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                dirs.push(entry.path());
            } else {
                files.insert(entry.path());
            }
        }
    }
    files
}

/// Lock files stay: whoever removed one could do so while another holds it. There is one for each address that had a
/// RoCE socket (`order-…`).
fn is_lock(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name == "lock" || name.starts_with("order-")
}

/// Whether a living process holds the slot whose file or socket this is, or that is named in it (`ADDRESS@SLOT.…`).
fn is_held(path: &Path) -> bool {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
        return false;
    };
    let slot_file = match (name.strip_prefix("slot-"), name.split_once('@')) {
        (Some(slot), _) => {
            let slot = slot.strip_suffix(".sock").unwrap_or(slot);
            path.with_file_name(format!("slot-{slot}"))
        }
        (None, Some((_, holder))) => {
            let slot = holder.split('.').next().unwrap_or_default();
            match path.ancestors().nth(3) {
                Some(place) => place.join(format!("slot-{slot}")),
                None => return false,
            }
        }
        (None, None) => return false,
    };
    let Ok(file) = File::open(slot_file) else {
        return false;
    };
    let free = flock(&file, FlockOperation::NonBlockingLockShared).is_ok();
    if free {
        let _ = flock(&file, FlockOperation::Unlock);
    }
    !free
}

/// Living processes that carry our mark, other than ourselves.
fn processes(mark: &str) -> Vec<(u32, String)> {
    let wanted = format!("{MARK}={mark}");
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else {
            continue;
        };
        let read = |name: &str| fs::read(entry.path().join(name)).unwrap_or_default();
        let marked = read("environ")
            .split(|byte| *byte == 0)
            .any(|word| word == wanted.as_bytes());
        if marked && pid != std::process::id() {
            let command = String::from_utf8_lossy(&read("cmdline")).replace('\0', " ");
            found.push((pid, command));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{Job, command};

    #[test]
    fn a_process_that_is_left_over_is_found_and_then_is_not() {
        let mut job = Job::start(command(Path::new("sleep")).arg("60"), None).expect("it starts");
        let mine = || {
            let found = processes(&mark());
            found
                .iter()
                .any(|(_, command)| command.contains("sleep 60"))
        };
        // It carries the mark from its exec on.
        let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while !mine() && std::time::Instant::now() < until {
            std::thread::yield_now();
        }
        assert!(mine());
        job.end();
        assert!(!mine());
    }

    #[test]
    fn files_of_the_living_and_locks_are_nothing_left_over() {
        let root = std::env::temp_dir().join(format!("xtask-leftovers-{}", std::process::id()));
        let place = root.join("1-4791");
        let port = place.join("ports/106-7471");
        fs::create_dir_all(&port).expect("a directory of our own");
        let before = Before::look_in(vec![root.clone()]);
        let put = |path: PathBuf| File::create(path).expect("a file");
        let held = put(place.join("slot-7"));
        flock(&held, FlockOperation::LockExclusive).expect("nobody else has it");
        put(place.join("slot-7.sock"));
        put(place.join("lock"));
        put(port.join("any@7.1.0"));
        let files = |found: Vec<String>| -> Vec<String> {
            found
                .into_iter()
                .filter(|f| f.starts_with("file"))
                .collect()
        };
        let alive = files(before.left_over());
        drop(held);
        let dead = files(before.left_over());
        fs::remove_dir_all(&root).expect("it is ours");
        assert!(alive.is_empty(), "{alive:?}");
        assert_eq!(dead.len(), 3, "{dead:?}");
    }
}
