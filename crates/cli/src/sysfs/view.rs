//! Puts entries below /sys/class, for this process and what becomes of it.
//!
//! A class cannot be added to sysfs from outside the kernel. So a small file system of our own covers /sys/class, in a mount
//! namespace that only this process has: what was there is mounted into it again, class by class, and ours stand beside
//! it. The links in the classes lead upwards (`../../devices/…`) and still arrive. Classes that the kernel adds later do
//! not show; devices that it adds to a class do.
//!
//! Where the host has a device with a name of ours, ours is seen: it is the one that the program's libibverbs has.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::Result;
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use rustix::process::{getegid, geteuid};

use super::refusal::Refusal;
use super::{Entry, Node};

const CLASS: &str = "/sys/class";

/// What a file system without devices and programs should be mounted with.
const HARMLESS: MsFlags = MsFlags::MS_NOSUID
    .union(MsFlags::MS_NODEV)
    .union(MsFlags::MS_NOEXEC);

pub(super) fn enter(entries: &[Entry]) -> Result<()> {
    if !Path::new(CLASS).is_dir() {
        return Err(
            Refusal::new(&format!("there is no {CLASS} (sysfs is not mounted)"), None).into(),
        );
    }
    namespace()?;
    cover(entries).map_err(|(what, error)| Refusal::new(&what, Some(error)).into())
}

/// A mount namespace of our own. Nothing that is mounted in it reaches the host; what the host mounts later is seen.
fn namespace() -> Result<()> {
    let user = (geteuid().as_raw(), getegid().as_raw());
    match unshare(CloneFlags::CLONE_NEWNS) {
        Ok(()) => {}
        // Whoever may not have a mount namespace may in a user namespace of his own, if he may have that.
        Err(Errno::EPERM) => {
            unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS).map_err(|error| {
                Refusal::new("it is not allowed to make a namespace", Some(error))
            })?;
            own_user(user)?;
        }
        Err(error) => return Err(Refusal::new("cannot make a mount namespace", Some(error)).into()),
    }
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_SLAVE, none)
        .map_err(|error| Refusal::new("cannot keep mounts away from the host", Some(error)).into())
}

/// The user stays who he is. A user may map only himself, and his group only once he can no longer leave groups.
fn own_user((user, group): (u32, u32)) -> Result<()> {
    for (file, text) in [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("{user} {user} 1")),
        ("gid_map", format!("{group} {group} 1")),
    ] {
        let path = Path::new("/proc/self").join(file);
        fs::write(&path, text).map_err(|error| {
            let errno = error.raw_os_error().map(Errno::from_raw);
            Refusal::new(&format!("cannot write {}", path.display()), errno)
        })?;
    }
    Ok(())
}

type Step = Result<(), (String, Errno)>;

fn cover(entries: &[Entry]) -> Step {
    let none = None::<&str>;
    let before = Original::open()?;
    mount(
        Some("adverb"),
        CLASS,
        Some("tmpfs"),
        HARMLESS,
        Some("mode=755,size=8m"),
    )
    .map_err(at(Path::new(CLASS)))?;
    let mut mixed = BTreeSet::new();
    for entry in entries {
        mixed.extend(entry.path.split('/').next());
        lay(entry)?;
    }
    for class in before.names("")? {
        if mixed.contains(class.as_str()) {
            for device in before.names(&class)? {
                before.show(&format!("{class}/{device}"))?;
            }
        } else {
            before.show(&class)?;
        }
    }
    // As sysfs, where nobody can make a file either.
    let read_only = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY | HARMLESS;
    mount(none, CLASS, none, read_only, none).map_err(at(Path::new(CLASS)))
}

fn lay(entry: &Entry) -> Step {
    let path = Path::new(CLASS).join(&entry.path);
    let parent = path.parent().unwrap_or(&path);
    fs::create_dir_all(parent).map_err(io(parent))?;
    match &entry.node {
        Node::Directory => fs::create_dir_all(&path),
        Node::File(text) => fs::write(&path, text),
        Node::Link(target) => symlink(target, &path),
    }
    .map_err(io(&path))
}

/// /sys/class as it was before it was covered, reached by a descriptor.
struct Original(File);

impl Original {
    fn open() -> Result<Self, (String, Errno)> {
        File::open(CLASS).map(Self).map_err(io(Path::new(CLASS)))
    }

    fn path(&self, below: &str) -> PathBuf {
        let here = PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()));
        if below.is_empty() {
            here
        } else {
            here.join(below)
        }
    }

    fn names(&self, below: &str) -> Result<Vec<String>, (String, Errno)> {
        let path = self.path(below);
        let entries = fs::read_dir(&path).map_err(io(&path))?;
        Ok(entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect())
    }

    /// Shows something in its old place, unless one of ours is there.
    fn show(&self, below: &str) -> Step {
        let (from, to) = (self.path(below), Path::new(CLASS).join(below));
        if to.symlink_metadata().is_ok() {
            return Ok(());
        }
        let kind = from.symlink_metadata().map_err(io(&from))?.file_type();
        if kind.is_symlink() {
            let target = fs::read_link(&from).map_err(io(&from))?;
            return symlink(target, &to).map_err(io(&to));
        }
        if kind.is_dir() {
            fs::create_dir(&to).map_err(io(&to))?;
        } else {
            fs::write(&to, "").map_err(io(&to))?;
        }
        let none = None::<&str>;
        // With all that is mounted below: a part alone may not be taken out of what another user mounted.
        mount(
            Some(&from),
            &to,
            none,
            MsFlags::MS_BIND | MsFlags::MS_REC,
            none,
        )
        .map_err(at(&to))
    }
}

fn at(path: &Path) -> impl FnOnce(Errno) -> (String, Errno) {
    let text = format!("cannot mount on {}", path.display());
    move |error| (text, error)
}

fn io(path: &Path) -> impl FnOnce(std::io::Error) -> (String, Errno) {
    let text = path.display().to_string();
    move |error| {
        (
            text,
            Errno::from_raw(error.raw_os_error().unwrap_or(nix::libc::EIO)),
        )
    }
}
