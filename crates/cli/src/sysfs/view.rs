//! Puts entries below /sys/class and /dev/infiniband, for this process and what becomes of it.
//!
//! A class cannot be added to sysfs from outside the kernel. So a small file system of our own covers /sys/class, in a mount
//! namespace that only this process has: what was there is mounted into it again, class by class, and ours stand beside
//! it. The links in the classes lead upwards (`../../devices/…`) and still arrive. Classes that the kernel adds later do
//! not show; devices that it adds to a class do. /dev is treated likewise, because only root could make a directory in it,
//! and for all to see; where there is a /dev/infiniband, only that.
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
use super::{Entry, Node, nodes};

const CLASS: &str = "/sys/class";
const NULL: &str = "/dev/null";

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
    show(entries).map_err(|(what, error)| Refusal::new(&what, Some(error)).into())
}

fn show(entries: &[Entry]) -> Step {
    let (directory, nodes) = nodes::of(entries);
    let none = None::<&str>;
    let class = Path::new(CLASS);
    cover(class, entries)?;
    // As sysfs, where nobody can make a file either.
    let read_only = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY | HARMLESS;
    mount(none, class, none, read_only, none).map_err(at(class))?;
    cover(directory, &nodes)
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

fn cover(directory: &Path, entries: &[Entry]) -> Step {
    let before = Original::open(directory)?;
    let null = File::open(NULL).map_err(io(Path::new(NULL)))?;
    mount(
        Some("adverb"),
        directory,
        Some("tmpfs"),
        HARMLESS,
        Some("mode=755,size=8m"),
    )
    .map_err(at(directory))?;
    let mut mixed = BTreeSet::new();
    for entry in entries {
        mixed.extend(entry.path.split_once('/').map(|(first, _)| first));
        lay(directory, entry, &null)?;
    }
    for name in before.names("")? {
        if mixed.contains(name.as_str()) {
            for below in before.names(&name)? {
                before.show(&format!("{name}/{below}"))?;
            }
        } else {
            before.show(&name)?;
        }
    }
    Ok(())
}

fn lay(directory: &Path, entry: &Entry, null: &File) -> Step {
    let path = directory.join(&entry.path);
    let parent = path.parent().unwrap_or(&path);
    fs::create_dir_all(parent).map_err(io(parent))?;
    match &entry.node {
        Node::Directory => fs::create_dir_all(&path),
        Node::File(text) => fs::write(&path, text),
        Node::Link(target) => symlink(target, &path),
        Node::Null => {
            fs::write(&path, "").map_err(io(&path))?;
            return bind(&descriptor(null), &path);
        }
    }
    .map_err(io(&path))
}

fn descriptor(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// With all that is mounted below: a part alone may not be taken out of what another user mounted.
fn bind(from: &Path, to: &Path) -> Step {
    let none = None::<&str>;
    let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
    mount(Some(from), to, none, flags, none).map_err(at(to))
}

/// A directory as it was before it was covered, reached by a descriptor.
struct Original<'a> {
    place: &'a Path,
    before: File,
}

impl<'a> Original<'a> {
    fn open(place: &'a Path) -> Result<Self, (String, Errno)> {
        let before = File::open(place).map_err(io(place))?;
        Ok(Self { place, before })
    }

    fn path(&self, below: &str) -> PathBuf {
        let here = descriptor(&self.before);
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
        let (from, to) = (self.path(below), self.place.join(below));
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
        bind(&from, &to)
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
