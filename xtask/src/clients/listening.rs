//! Ports that nobody uses, and whether somebody listens on one: of TCP, and of the connection manager.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// TCP ports for the programs' own out-of-band exchange: below the range the kernel picks from, each used once.
pub(crate) struct Ports {
    next: u16,
}

impl Ports {
    pub(crate) fn new() -> Self {
        // Two xtasks at once should not meet.
        let spread = u16::try_from(std::process::id() % 10_000).expect("below 10000");
        Self {
            next: 20_000 + spread,
        }
    }

    pub(crate) fn take(&mut self) -> u16 {
        loop {
            let port = self.next;
            self.next = if port >= 31_999 { 20_000 } else { port + 1 };
            if !is_listening(port) {
                return port;
            }
        }
    }
}

/// Looks into the kernel's table instead of connecting, because a connection would be taken for the client's.
pub(super) fn is_listening(port: u16) -> bool {
    let wanted = format!(":{port:04X}");
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|table| {
        fs::read_to_string(table)
            .unwrap_or_default()
            .lines()
            .any(|line| {
                let mut fields = line.split_whitespace().skip(1);
                let local = fields.next().unwrap_or_default();
                let state = fields.nth(1).unwrap_or_default();
                local.ends_with(&wanted) && state == "0A"
            })
    })
}

/// Who listened on a port of the connection manager, in any port space, before a server was started. The registry is a
/// directory below the place where processes find each other; each listener has a file there, and the dead leave theirs.
pub(crate) struct Registry {
    port: u16,
    before: BTreeSet<PathBuf>,
}

impl Registry {
    pub(crate) fn look(port: u16) -> Self {
        let before = listeners(&places(), port);
        Self { port, before }
    }

    /// Whether somebody listens who did not then.
    pub(crate) fn has_new_listener(&self) -> bool {
        !listeners(&places(), self.port).is_subset(&self.before)
    }
}

/// The directories of this user's processes, one per network namespace. Those that speak on another UDP port than the
/// programs we start are left out.
fn places() -> Vec<PathBuf> {
    let shm = Path::new("/dev/shm");
    let base = if shm.is_dir() {
        shm.to_path_buf()
    } else {
        std::env::temp_dir()
    };
    let user = rustix::process::geteuid().as_raw();
    let udp = std::env::var("ADVERB_UDP_PORT").unwrap_or_else(|_| "4791".to_owned());
    let mut places = entries(&base.join(format!("adverb-{user}")));
    places.retain(|place| place.to_string_lossy().ends_with(&format!("-{udp}")));
    places
}

fn listeners(places: &[PathBuf], port: u16) -> BTreeSet<PathBuf> {
    let of_port = format!("-{port}");
    places
        .iter()
        .flat_map(|place| entries(&place.join("ports")))
        .filter(|path| path.to_string_lossy().ends_with(&of_port))
        .flat_map(|path| entries(&path))
        .filter(|path| path.to_string_lossy().ends_with("+l"))
        .collect()
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listening_socket_is_seen_without_connecting() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        assert!(is_listening(address.port()));

        // Not "closed and gone": a process that another test is starting holds our files until it executes.
        let connection = std::net::TcpStream::connect(address).expect("it listens");
        let port = connection.local_addr().expect("it is connected").port();
        assert!(!is_listening(port));
    }

    #[test]
    fn a_claim_alone_is_no_listener() {
        let place = std::env::temp_dir().join(format!("xtask-listeners-{}", std::process::id()));
        let dir = place.join("ports/106-7471");
        fs::create_dir_all(&dir).expect("a directory of our own");
        fs::write(dir.join("any@5.1.0"), "").expect("a file");
        let found = || listeners(std::slice::from_ref(&place), 7471).len();
        let claimed = found();
        fs::write(dir.join("any@5.1.0+l"), "").expect("a file");
        let listening = found();
        fs::remove_dir_all(&place).expect("it is ours");
        assert_eq!((claimed, listening), (0, 1));
    }
}
