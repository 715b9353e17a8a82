//! A receiver without a free descriptor: the ring that it loses comes again when it has one.

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use adverb_link::{Link, Meta, Place, ShmLink};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const META: Meta = Meta {
    src: IpAddr::V4(Ipv4Addr::LOCALHOST),
    dst: IpAddr::V4(Ipv4Addr::LOCALHOST),
    traffic_class: 0,
    hop_limit: 64,
    outside: false,
};

fn join(dir: &Path) -> ShmLink {
    ShmLink::new(Place::join(dir).unwrap())
}

/// Not a test by itself: a process without a free descriptor, until it is told to go on.
#[test]
fn the_exhausted_process() {
    let Some(dir) = std::env::var_os("SHM_DIR") else {
        return;
    };
    let link = join(Path::new(&dir));
    let limits = getrlimit(Resource::Nofile);
    let least = Rlimit {
        current: Some(0),
        maximum: limits.maximum,
    };
    setrlimit(Resource::Nofile, least).unwrap();
    println!("\nslot {}", link.slot());
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    assert!(link.drain_bell().unwrap(), "the ring had been sent");
    assert_eq!(link.inbound_rings(), 0, "there was no descriptor for it");
    setrlimit(Resource::Nofile, limits).unwrap();
    println!("looked");
    let deadline = Instant::now() + Duration::from_secs(30);
    while link.receive(1, &mut |_, packet| {
        assert_eq!(packet.packet().unwrap(), [7; 64])
    }) == 0
    {
        link.drain_bell().unwrap();
        assert!(Instant::now() < deadline, "it never came");
        std::thread::yield_now();
    }
    println!("got it");
}

#[test]
fn a_ring_that_found_no_free_descriptor_comes_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_exhausted_process", "--nocapture"])
        .env("SHM_DIR", dir.path())
        .stdout(Stdio::piped())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    let slot = said
        .find_map(|line| line.strip_prefix("slot ")?.parse().ok())
        .expect("the child says its slot");
    let own = join(dir.path());
    let route = own.route(slot).expect("the child lives");
    own.send(&route, &META, &[7; 64]).unwrap();
    own.wake(&route, 1);
    child.stdin.take().unwrap().write_all(b"go on\n").unwrap();
    assert!(said.any(|line| line == "looked"));
    // The next ones have something to say, too. Nothing tells the time here but they.
    let mut now_ns = 1;
    let deadline = Instant::now() + Duration::from_secs(30);
    while child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "the child never got it");
        now_ns += 1_000_000_000;
        let _ = own.send(&route, &META, &[7; 64]);
        own.wake(&route, now_ns);
        own.drain_bell().unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(child.wait().unwrap().success());
    assert!(said.any(|line| line == "got it"));
}
