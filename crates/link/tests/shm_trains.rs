//! Trains through the ring between two processes: what arrives, in which order, and what becomes of those that never do.

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::process::{Command, Stdio};

use adverb_link::{Arrival, Berth, Link, Meta, Place, SendError, ShmLink};

const META: Meta = Meta {
    src: IpAddr::V4(Ipv4Addr::LOCALHOST),
    dst: IpAddr::V4(Ipv4Addr::LOCALHOST),
    traffic_class: 0,
    hop_limit: 64,
    outside: false,
};

/// What has come: head and payload of trains, packets as heads alone.
fn receive_all(link: &ShmLink) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut got = Vec::new();
    let mut sink = |_: &Meta, arrival: Arrival<'_>| match arrival {
        Arrival::Packet(packet) => got.push((packet.to_vec(), Vec::new())),
        Arrival::Train { head, payload } => {
            let mut bytes = vec![0; payload.len()];
            payload.copy(0, &mut bytes);
            got.push((head.to_vec(), bytes));
        }
    };
    while link.receive(16, &mut sink) > 0 {}
    got
}

#[test]
fn trains_keep_their_place_and_void_ones_show_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let [one, two] = [0, 1].map(|_| ShmLink::new(Place::join(dir.path()).unwrap()));
    let to = one.route(two.slot()).unwrap();
    for round in 0..200usize {
        let len = 1 + round * 977 % 65_536;
        // The first record after a change of addresses is one that is given up; the second relies on it.
        let mut meta = META;
        meta.hop_limit = round as u8;
        meta.src = IpAddr::V4(Ipv4Addr::new(10, 0, 0, round as u8));
        let void = Berth::Shm(one.reserve(&to, &meta, len).unwrap());
        let mut first = Berth::Shm(one.reserve(&to, &meta, len).unwrap());
        one.send(&to, &meta, &[1; 12]).unwrap();
        assert_eq!(receive_all(&two), [], "two berths are open before it");
        let payload: Vec<u8> = (0..len).map(|n| (n * 7 + round) as u8).collect();
        first.payload().put(0, &payload);
        first.send(&[9; 60]);
        assert_eq!(receive_all(&two), [], "one berth is open before them");
        drop(void);
        one.wake(&to, 0);
        let got = receive_all(&two);
        assert_eq!(got, [(vec![9; 60], payload), (vec![1; 12], vec![])]);
    }
}

#[test]
fn a_full_ring_takes_no_train_and_rings_when_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let [one, two] = [0, 1].map(|_| ShmLink::new(Place::join(dir.path()).unwrap()));
    let to = one.route(two.slot()).unwrap();
    let mut sent = 0;
    loop {
        match one.reserve(&to, &META, 16_384) {
            Ok(berth) => Berth::Shm(berth).send(&[7; 30]),
            Err(error) => {
                assert_eq!(error, SendError::Full);
                break;
            }
        }
        sent += 1;
    }
    assert!(sent >= 32, "{sent}");
    one.wake(&to, 0);
    assert!(!one.has_inbound());
    assert_eq!(receive_all(&two).len(), sent);
    assert!(one.drain_bell().unwrap(), "the sender waits for room");
    one.reserve(&to, &META, 16_384).unwrap();
}

/// Not a test by itself: what the child does until it is killed, always in the middle of a train.
#[test]
fn the_other_process() {
    let (Some(dir), Some(to)) = (std::env::var_os("SHM_DIR"), std::env::var_os("SHM_TO")) else {
        return;
    };
    let link = ShmLink::new(Place::join(Path::new(&dir)).unwrap());
    let to = to.to_str().unwrap().parse().unwrap();
    let to = link.route(to).unwrap();
    let mut whole = Berth::Shm(link.reserve(&to, &META, 5000).unwrap());
    whole.payload().put(0, &[3; 5000]);
    whole.send(&[4; 30]);
    let mut half = Berth::Shm(link.reserve(&to, &META, 5000).unwrap());
    half.payload().put(0, &[5; 2500]);
    link.send(&to, &META, &[6; 12]).unwrap();
    link.wake(&to, 0);
    println!("\nslot {}", link.slot());
    std::thread::sleep(std::time::Duration::from_secs(60));
    drop(half);
}

#[test]
fn who_dies_in_the_middle_of_a_train_leaves_what_was_whole_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let own = ShmLink::new(Place::join(dir.path()).unwrap());
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_other_process", "--nocapture"])
        .env("SHM_DIR", dir.path())
        .env("SHM_TO", own.slot().to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let slot: u16 = lines
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("slot ")?.parse().ok())
        .unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(receive_all(&own), [(vec![4; 30], vec![3; 5000])]);
    assert!(!own.has_inbound() && !own.probe(slot));
    own.sweep();
    assert_eq!(own.inbound_rings(), 0);
}
