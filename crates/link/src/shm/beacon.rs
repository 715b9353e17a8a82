//! What the processes of a network namespace know of each other that do not meet in one directory: those of other users, and
//! those of containers that have the network in common and not `/dev/shm`.
//!
//! Each process holds an abstract Unix socket whose name says where it meets others. Nobody connects to it. The kernel lists
//! the names of a network namespace to everybody in it, so whoever finds no peer can say why. Anybody can hold such a name, so
//! nothing but the wording of an error depends on it.

use std::fs;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;

/// A meeting place as others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Meeting {
    uid: u32,
    /// Of UDP.
    port: String,
    /// Device and inode of the directory.
    dir: String,
}

impl Meeting {
    fn at(dir: &Path) -> Option<Self> {
        let found = fs::metadata(dir).ok()?;
        // The directory is named for network namespace and port.
        let (_, port) = dir.file_name()?.to_str()?.split_once('-')?;
        Some(Self {
            uid: found.uid(),
            port: port.to_owned(),
            dir: format!("{:x}.{:x}", found.dev(), found.ino()),
        })
    }

    fn name(&self, slot: u16) -> String {
        format!("adverb/{}/{}/{}/{slot}", self.uid, self.port, self.dir)
    }

    fn parse(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix("adverb/")?.split('/');
        let uid = parts.next()?.parse().ok()?;
        let port = parts.next()?.parse::<u16>().ok()?.to_string();
        let dir = parts.next()?.to_owned();
        Some(Self { uid, port, dir })
    }
}

/// Shows that the process at `slot` meets others in `dir`, as long as the socket lives. Without it others only get a poorer
/// explanation, so that it cannot be had is no error.
pub(super) fn light(dir: &Path, slot: u16) -> Option<UnixDatagram> {
    let name = Meeting::at(dir)?.name(slot);
    let address = SocketAddr::from_abstract_name(name).ok()?;
    UnixDatagram::bind_addr(&address).ok()
}

/// Why nobody in `dir` is the one who was looked for: there are processes in this network namespace that meet elsewhere.
pub(super) fn elsewhere(dir: &Path) -> Option<String> {
    let own = Meeting::at(dir)?;
    let sockets = fs::read_to_string("/proc/net/unix").ok()?;
    let mut others: Vec<_> = sockets
        .lines()
        .filter_map(|line| Meeting::parse(line.rsplit_once('@')?.1))
        .filter(|other| *other != own)
        .collect();
    // Who has chosen another UDP port has chosen other company.
    others.retain(|other| other.uid != own.uid || other.port == own.port);
    others.sort_by_key(|other| other.uid != own.uid);
    others.first().map(|other| explain(&own, other))
}

fn explain(own: &Meeting, other: &Meeting) -> String {
    if other.uid != own.uid {
        return format!(
            "there are processes of user {} here, and we are user {}: on one host only processes of one user reach each other",
            other.uid, own.uid
        );
    }
    "there are processes of this user in this network namespace that have another /dev/shm: containers that share a network need to \
     share /dev/shm, too (docker run --ipc=host, or a common volume at /dev/shm), or have networks of their own"
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_meets_elsewhere_is_seen_while_he_lives() {
        let base = tempfile::tempdir().unwrap();
        let port = std::process::id() as u16;
        let dirs = ["a", "b"].map(|name| base.path().join(name).join(format!("7-{port}")));
        for dir in &dirs {
            fs::create_dir_all(dir).unwrap();
        }
        let _ours = light(&dirs[0], 1).unwrap();
        let is_ours = || elsewhere(&dirs[1]).is_some_and(|text| text.contains("/dev/shm"));
        assert!(is_ours());
        drop(_ours);
        assert!(!is_ours());
    }

    #[test]
    fn each_reason_has_its_words_and_nonsense_has_none() {
        let own = Meeting::parse("adverb/1000/4791/1.2/3").unwrap();
        let said = |name: &str| explain(&own, &Meeting::parse(name).unwrap());
        assert!(said("adverb/0/4791/1.2/3").contains("user 0"));
        assert!(said("adverb/1000/4791/9.2/3").contains("/dev/shm"));
        for name in [
            "adverb/",
            "adverb/x/1/2/3",
            "adverb/1/99999/1.2/3",
            "other/1/2/3/4",
        ] {
            assert_eq!(Meeting::parse(name), None);
        }
    }
}
