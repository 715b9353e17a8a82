//! Who has which port: a registry that the processes of a user share, in the directory where they find each other.
//!
//! A claim is a file `ports/SPACE-PORT/ADDRESS@SLOT.GENERATION.SERIAL`, and a second one with `+l` behind it once somebody
//! listens there; `+r` says that the claimant does not mind company. Slot and generation name the process, so what the
//! dead left shows, and whoever meets it removes it. Claims are made under a file lock; looking needs none.
//!
//! The ports of a port space have nothing to do with those of TCP and UDP.

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use adverb_link::Place;
use adverb_link::shm::{LOCK_PATIENCE, Lock};

use super::scope::Scope;
use crate::error::NicError;
use crate::random;

/// Ports for those who leave the choice to us.
const EPHEMERAL: std::ops::RangeInclusive<u16> = 32_768..=60_999;

/// Somebody else may remove an empty directory just before a file is made in it.
const ATTEMPTS: u32 = 16;

/// The registry.
pub(super) struct Ports {
    dir: PathBuf,
    serial: AtomicU64,
    swept: Once,
    /// How long the lock is waited for.
    patience: Duration,
}

/// A port in a port space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Port {
    pub(super) space: u16,
    pub(super) number: u16,
}

/// What this process holds; given back when dropped.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) port: Port,
    pub(super) scope: Scope,
    dir: PathBuf,
    name: String,
    /// A forked child inherits the value, and not the port.
    owner: u32,
}

/// What a file says.
struct Entry {
    scope: Scope,
    slot: u16,
    generation: u64,
    reuse: bool,
    listens: bool,
    /// The name without flags, which names the claimant.
    stem: String,
}

impl Ports {
    /// `place` is the directory in which the processes of this user find each other.
    pub(super) fn new(place: &Path) -> Self {
        Self {
            dir: place.join("ports"),
            serial: AtomicU64::new(0),
            swept: Once::new(),
            patience: LOCK_PATIENCE,
        }
    }

    /// Claims a port; number 0 means any that is free.
    pub(super) fn claim(
        &self,
        place: &Place,
        space: u16,
        scope: Scope,
        number: u16,
        reuse: bool,
    ) -> Result<Claim, NicError> {
        let _lock = self.lock().map_err(NicError::io("claiming a port"))?;
        self.swept.call_once(|| self.sweep(place));
        if number != 0 {
            let port = Port { space, number };
            if let Some(holder) = self.in_the_way(place, port, scope, reuse, None) {
                return Err(taken(place, port, scope, &holder));
            }
            return self.make(place, port, scope, reuse);
        }
        let (first, count) = (*EPHEMERAL.start(), EPHEMERAL.len() as u64);
        let start = random::seed() % count;
        for step in 0..count {
            let number = first + ((start + step) % count) as u16;
            let port = Port { space, number };
            // Nobody else's at all: a port that was not asked for is not to be shared.
            if self.entries(place, port).is_empty() {
                return self.make(place, port, scope, reuse);
            }
        }
        Err(NicError::PortTaken(format!(
            "all ports from {first} to {} of port space {space:#x} are taken",
            EPHEMERAL.end()
        )))
    }

    /// Shows a claim to those who look for a listener. Listeners share with nobody.
    pub(super) fn listen(&self, place: &Place, claim: &Claim) -> Result<(), NicError> {
        let _lock = self.lock().map_err(NicError::io("listening on a port"))?;
        let stem = Some(claim.name.as_str());
        if let Some(holder) = self.in_the_way(place, claim.port, claim.scope, false, stem) {
            return Err(taken(place, claim.port, claim.scope, &holder));
        }
        // Beside the claim and not instead of it, so that nobody who looks meanwhile misses both.
        self.create(claim.port, &format!("{}+l", claim.name))
            .map_err(NicError::io("listening on a port"))
    }

    /// The slot of the process that listens at an address, if one does.
    pub(super) fn find(&self, place: &Place, port: Port, address: IpAddr) -> Option<u16> {
        let entries = self.entries(place, port);
        let fits = entries
            .iter()
            .filter(|e| e.listens)
            .filter_map(|e| Some((e.scope.rank(address)?, e.slot)));
        fits.min().map(|(_, slot)| slot)
    }

    /// Whether somebody holds the port at an address, listening or not.
    pub(super) fn is_claimed(&self, place: &Place, port: Port, address: IpAddr) -> bool {
        let entries = self.entries(place, port);
        entries.iter().any(|e| e.scope.rank(address).is_some())
    }

    fn make(
        &self,
        place: &Place,
        port: Port,
        scope: Scope,
        reuse: bool,
    ) -> Result<Claim, NicError> {
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        let generation = place.page().generation();
        let flag = if reuse { "+r" } else { "" };
        let name = format!("{scope}@{}.{generation:x}.{serial}{flag}", place.slot());
        self.create(port, &name)
            .map_err(NicError::io("claiming a port"))?;
        Ok(Claim {
            port,
            scope,
            dir: self.dir_of(port),
            name,
            owner: std::process::id(),
        })
    }

    fn create(&self, port: Port, name: &str) -> io::Result<()> {
        let dir = self.dir_of(port);
        let mut left = ATTEMPTS;
        loop {
            // Inside a directory that only this user can enter, so modes do not matter.
            fs::create_dir_all(&dir)?;
            match fs::write(dir.join(name), []) {
                Err(e) if e.kind() == ErrorKind::NotFound && left > 0 => left -= 1,
                done => return done,
            }
        }
    }

    /// Somebody who holds what `scope` contains and does not want to share it, or with whom we do not. `own` is left out.
    fn in_the_way(
        &self,
        place: &Place,
        port: Port,
        scope: Scope,
        reuse: bool,
        own: Option<&str>,
    ) -> Option<Entry> {
        self.entries(place, port).into_iter().find(|e| {
            own.is_none_or(|own| stem_of(own) != e.stem)
                && e.scope.overlaps(scope)
                && !(reuse && e.reuse && !e.listens)
        })
    }

    /// The claims of the living; those of the dead are removed.
    fn entries(&self, place: &Place, port: Port) -> Vec<Entry> {
        let mut living = HashMap::new();
        entries_in(place, &self.dir_of(port), &mut living)
    }

    /// Removes what the dead left behind in all of the ports.
    fn sweep(&self, place: &Place) {
        let Ok(dirs) = fs::read_dir(&self.dir) else {
            return;
        };
        let mut living = HashMap::new();
        for dir in dirs.filter_map(Result::ok).map(|d| d.path()) {
            if dir.is_dir() && entries_in(place, &dir, &mut living).is_empty() {
                let _ = fs::remove_dir(&dir);
            }
        }
    }

    fn dir_of(&self, port: Port) -> PathBuf {
        self.dir.join(format!("{:x}-{}", port.space, port.number))
    }

    fn lock(&self) -> io::Result<Lock> {
        fs::create_dir_all(&self.dir)?;
        let path = self.dir.join("lock");
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)?;
        Lock::acquire(file, &path, self.patience)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if std::process::id() == self.owner {
            let _ = fs::remove_file(self.dir.join(format!("{}+l", self.name)));
            let _ = fs::remove_file(self.dir.join(&self.name));
            // Fails while others have claims there.
            let _ = fs::remove_dir(&self.dir);
        }
    }
}

/// `living` keeps which generation holds a slot, as asking costs system calls.
fn entries_in(place: &Place, dir: &Path, living: &mut HashMap<u16, Option<u64>>) -> Vec<Entry> {
    let Ok(files) = fs::read_dir(dir) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for file in files.filter_map(Result::ok) {
        // What we cannot read is not ours to judge.
        let Some(entry) = file.file_name().to_str().and_then(parse) else {
            continue;
        };
        let holder = *living
            .entry(entry.slot)
            .or_insert_with(|| place.generation_of(entry.slot));
        if holder == Some(entry.generation) {
            found.push(entry);
        } else {
            let _ = fs::remove_file(file.path());
        }
    }
    found
}

fn parse(name: &str) -> Option<Entry> {
    let stem = stem_of(name);
    let flags = name.get(stem.len()..)?;
    let (scope, holder) = stem.split_once('@')?;
    let mut holder = holder.split('.');
    Some(Entry {
        scope: scope.parse().ok()?,
        slot: holder.next()?.parse().ok()?,
        generation: u64::from_str_radix(holder.next()?, 16).ok()?,
        reuse: flags.contains("+r"),
        listens: flags.contains("+l"),
        stem: stem.to_owned(),
    })
}

fn stem_of(name: &str) -> &str {
    name.split('+').next().unwrap_or(name)
}

fn taken(place: &Place, port: Port, scope: Scope, holder: &Entry) -> NicError {
    let who = match place.pid_of(holder.slot) {
        Some(pid) => format!("process {pid}"),
        None => "another process".to_owned(),
    };
    let doing = if holder.listens {
        "listens on"
    } else {
        "is bound to"
    };
    let text = format!(
        "{who} {doing} port {} of port space {:#x} (address {}); choose another port, or 0 for any",
        port.number, port.space, holder.scope
    );
    match (scope, holder.scope) {
        (Scope::One(_), Scope::One(_)) => NicError::PortTaken(text),
        _ => NicError::PortCovered(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{FlockOperation, flock};
    use std::fs::File;

    const TCP: u16 = 0x106;
    const UDP: u16 = 0x111;

    struct World {
        dir: tempfile::TempDir,
        place: Place,
        ports: Ports,
    }

    fn world() -> World {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::join(dir.path()).unwrap();
        let ports = Ports::new(dir.path());
        World { dir, place, ports }
    }

    impl World {
        fn claim(&self, address: &str, number: u16, reuse: bool) -> Result<Claim, NicError> {
            let scope = address.parse().unwrap();
            self.ports.claim(&self.place, TCP, scope, number, reuse)
        }
    }

    #[test]
    fn a_port_is_held_until_its_claim_goes_and_leaves_nothing() {
        let w = world();
        let claim = w.claim("any", 7471, false).unwrap();
        let error = w.claim("10.0.0.1", 7471, false).unwrap_err().to_string();
        let pid = std::process::id().to_string();
        assert!(error.contains("7471") && error.contains(&pid), "{error}");
        w.ports
            .claim(&w.place, UDP, Scope::Any, 7471, false)
            .unwrap();
        drop(claim);
        w.claim("10.0.0.1", 7471, false).unwrap();
        let left = fs::read_dir(w.dir.path().join("ports")).unwrap().count();
        assert_eq!(left, 1, "the lock only");
    }

    #[test]
    fn a_lock_that_is_never_given_back_is_an_error_and_no_hang() {
        let mut w = world();
        w.ports.patience = Duration::from_millis(20);
        drop(w.claim("any", 5, false).unwrap());
        let held = File::open(w.dir.path().join("ports/lock")).unwrap();
        flock(&held, FlockOperation::LockExclusive).unwrap();
        let error = w.claim("any", 5, false).unwrap_err();
        let NicError::Io { source, .. } = &error else {
            panic!("{error}");
        };
        assert!(source.to_string().contains("ports/lock"), "{source}");
        drop(held);
        w.claim("any", 5, false).unwrap();
    }

    #[test]
    fn different_addresses_may_have_the_same_port() {
        let w = world();
        let one = w.claim("10.0.0.1", 5, false).unwrap();
        let two = w.claim("10.0.0.2", 5, false).unwrap();
        w.ports.listen(&w.place, &one).unwrap();
        w.ports.listen(&w.place, &two).unwrap();
        for wide in ["any", "any4", "10.0.0.1"] {
            w.claim(wide, 5, false).unwrap_err();
        }
        w.claim("any6", 5, false).unwrap();
    }

    #[test]
    fn sharing_takes_two_who_agree_and_neither_listens() {
        let w = world();
        let one = w.claim("any", 5, true).unwrap();
        w.claim("any", 5, false).unwrap_err();
        let two = w.claim("any", 5, true).unwrap();
        w.ports.listen(&w.place, &one).unwrap_err();
        drop(two);
        w.ports.listen(&w.place, &one).unwrap();
        w.claim("any", 5, true).unwrap_err();
    }

    #[test]
    fn ports_left_to_us_are_free_ones() {
        let w = world();
        let claims: Vec<_> = (0..200).map(|_| w.claim("any", 0, true).unwrap()).collect();
        let mut numbers: Vec<_> = claims.iter().map(|c| c.port.number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 200);
        assert!(numbers.iter().all(|n| EPHEMERAL.contains(n)));
    }

    #[test]
    fn the_listener_with_the_closest_address_is_found() {
        let w = world();
        let port = Port {
            space: TCP,
            number: 9,
        };
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let find = |address| w.ports.find(&w.place, port, ip(address));
        let v4 = w.claim("10.0.0.1", 9, false).unwrap();
        assert_eq!(find("10.0.0.1"), None, "it does not listen yet");
        assert!(w.ports.is_claimed(&w.place, port, ip("10.0.0.1")));
        assert!(!w.ports.is_claimed(&w.place, port, ip("10.0.0.2")));
        w.ports.listen(&w.place, &v4).unwrap();
        let other = Place::join(w.dir.path()).unwrap();
        let v6 = w.ports.claim(&other, TCP, Scope::AnyV6, 9, false).unwrap();
        w.ports.listen(&other, &v6).unwrap();
        assert_eq!(find("10.0.0.1"), Some(w.place.slot()));
        assert_eq!(find("fd00::1"), Some(other.slot()));
        assert_eq!(find("10.0.0.2"), None);
    }

    #[test]
    fn what_the_dead_held_is_taken_over() {
        let w = world();
        let dead = Place::join(w.dir.path()).unwrap();
        let claim = w.ports.claim(&dead, TCP, Scope::Any, 5, false).unwrap();
        w.ports.listen(&dead, &claim).unwrap();
        // It ends without giving anything back, and another one may get its slot.
        std::mem::forget(claim);
        w.claim("any", 5, false).unwrap_err();
        drop(dead);
        let claim = w.claim("any", 5, false).unwrap();
        w.ports.listen(&w.place, &claim).unwrap();
        let dir = w.dir.path().join("ports/106-5");
        assert_eq!(fs::read_dir(dir).unwrap().count(), 2);
    }

    #[test]
    fn a_slot_that_changed_hands_does_not_bring_its_ports() {
        let w = world();
        let dir = w.dir.path().join("ports/106-5");
        fs::create_dir_all(&dir).unwrap();
        let old = w.place.page().generation() ^ 1;
        fs::write(dir.join(format!("any@{}.{old:x}.0+l", w.place.slot())), []).unwrap();
        fs::write(dir.join("something else"), []).unwrap();
        let port = Port {
            space: TCP,
            number: 5,
        };
        let address = "10.0.0.1".parse().unwrap();
        assert_eq!(w.ports.find(&w.place, port, address), None);
        w.claim("any", 5, false).unwrap();
    }
}
