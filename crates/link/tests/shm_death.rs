//! A peer that is killed: the survivor notices, the slot can be used again, nothing is left behind.

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use adverb_link::{Link, Meta, Place, SendError, ShmLink};

const META: Meta = Meta {
    src: IpAddr::V4(Ipv4Addr::LOCALHOST),
    dst: IpAddr::V4(Ipv4Addr::LOCALHOST),
    traffic_class: 0,
    hop_limit: 64,
    outside: false,
};

/// Starts this test binary again as a process that joins `dir` and echoes; gives its slot.
fn start(dir: &Path) -> (Child, u16) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_other_process", "--nocapture"])
        .env("SHM_DIR", dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let slot = lines
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("slot ")?.parse().ok());
    (child, slot.expect("the child says its slot"))
}

/// Not a test by itself: what the child runs, until it is killed.
#[test]
fn the_other_process() {
    let Some(dir) = std::env::var_os("SHM_DIR") else {
        return;
    };
    let link = ShmLink::new(Place::join(Path::new(&dir)).unwrap());
    println!("\nslot {}", link.slot());
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut back = None;
    while Instant::now() < deadline {
        let mut echo = Vec::new();
        link.receive(16, &mut |_, packet| {
            echo.push(packet.packet().unwrap().to_vec())
        });
        for packet in echo {
            let slot = u16::from_le_bytes([packet[0], packet[1]]);
            let back = back.get_or_insert_with(|| link.route(slot).unwrap());
            let _ = link.send(back, &META, &packet);
            link.wake(back, 0);
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_killed_peer_is_noticed_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let own = ShmLink::new(Place::join(dir.path()).unwrap());
    let mut packet = [0; 64];
    packet[..2].copy_from_slice(&own.slot().to_le_bytes());
    for round in 0..15 {
        let (mut child, slot) = start(dir.path());
        let route = own.route(slot).expect("the child lives");
        let deadline = Instant::now() + Duration::from_secs(30);
        // Killed after a while of ping-pong, each time at another moment.
        let mut echoes = 0;
        while echoes < round * 37 {
            own.send(&route, &META, &packet).unwrap();
            own.wake(&route, 0);
            while own.receive(1, &mut |_, echo| assert_eq!(echo.packet().unwrap(), packet)) == 0 {
                assert!(Instant::now() < deadline, "round {round}: no echo");
                std::thread::yield_now();
            }
            echoes += 1;
        }
        for _ in 0..round {
            own.send(&route, &META, &packet).unwrap();
        }
        child.kill().unwrap();
        child.wait().unwrap();

        assert!(!own.probe(slot), "round {round}");
        assert_eq!(
            own.send(&route, &META, &packet),
            Err(SendError::Unreachable)
        );
        assert!(own.route(slot).is_none());
        while own.receive(16, &mut |_, _| ()) > 0 {}
        own.sweep();
        assert!(!own.has_inbound());
    }
    // Whoever joins next tidies up: its own two files, our two, and the lock.
    let next = Place::join(dir.path()).unwrap();
    assert!(own.is_alive(next.slot()));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 5);
}

#[test]
fn waking_the_dead_finds_out_too() {
    let dir = tempfile::tempdir().unwrap();
    let own = ShmLink::new(Place::join(dir.path()).unwrap());
    let (mut child, slot) = start(dir.path());
    let route = own.route(slot).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    own.send(&route, &META, &[0; 64]).unwrap();
    own.wake(&route, u64::MAX);
    assert_eq!(
        own.send(&route, &META, &[0; 64]),
        Err(SendError::Unreachable)
    );
}
