//! Processes that share a port: each gets what is for its queue pairs, whoever joins, leaves or dies.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use adverb_link::udp::{Meeting, UdpConfig};
use adverb_link::{Link, Path as Way, Place, UdpLink, qpn};
use adverb_wire::Gid;

/// Whoever shares a port, in one process here: what tells processes apart is their slot.
struct Member {
    place: Place,
    link: UdpLink,
}

impl Member {
    fn join(dir: &Path, address: IpAddr, port: u16) -> Self {
        let place = Place::join(dir).unwrap();
        let meeting = Meeting {
            dir: dir.to_path_buf(),
            slot: place.slot(),
        };
        let link = bind(address, port, Some(meeting));
        Self { place, link }
    }
}

fn bind(address: IpAddr, port: u16, meeting: Option<Meeting>) -> UdpLink {
    UdpLink::bind(&UdpConfig {
        addresses: vec![address],
        port,
        scope_id: 0,
        meeting,
    })
    .unwrap()
}

/// A world of its own for each test: an address, a port on it, and some senders elsewhere.
struct World {
    dir: tempfile::TempDir,
    address: IpAddr,
    port: u16,
    senders: Vec<UdpLink>,
}

impl World {
    fn new(number: u8) -> Self {
        let address = IpAddr::V4(Ipv4Addr::new(127, 0, number, 1));
        let port = bind(address, 0, None).port();
        let sender = |host| bind(Ipv4Addr::new(127, 0, number, host).into(), port, None);
        Self {
            dir: tempfile::tempdir().unwrap(),
            address,
            port,
            senders: (2..10).map(sender).collect(),
        }
    }

    fn order(&self) -> PathBuf {
        self.dir.path().join(format!("order-{}-0", self.address))
    }

    fn join(&self) -> Member {
        Member::join(self.dir.path(), self.address, self.port)
    }

    /// Has every sender send one packet to each queue pair.
    fn send(&self, numbers: &[u32]) {
        let gid = Gid::from_ip(self.address);
        for sender in &self.senders {
            for number in numbers {
                let way = Way {
                    sgid: gid,
                    dgid: gid,
                    traffic_class: 0,
                    hop_limit: 64,
                    flow_label: 0,
                };
                let route = sender.route(&way, &[]).unwrap();
                let mut packet = [4; 64];
                packet[4..8].copy_from_slice(&number.to_be_bytes());
                sender.send(&route, &packet).unwrap();
            }
            sender.flush();
        }
    }

    /// Which queue pairs' packets come to whom, once all that were sent have come.
    fn take(&self, members: &[&Member], count: usize) -> Vec<HashMap<u32, usize>> {
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut taken = vec![HashMap::new(); members.len()];
        let mut total = 0;
        while total < count {
            assert!(Instant::now() < deadline, "{total} of {count} came");
            for (member, taken) in members.iter().zip(&mut taken) {
                total += member.link.receive(64, &mut |_, packet| {
                    let number =
                        u32::from_be_bytes(*packet.packet().unwrap()[4..].first_chunk().unwrap());
                    *taken.entry(number).or_default() += 1;
                });
            }
        }
        taken
    }

    /// Whether each of the members gets all that is for it.
    fn is_steered(&self, members: &[&Member]) -> bool {
        let own = |member: &Member| qpn::compose(member.place.slot(), 5);
        let numbers: Vec<_> = members.iter().map(|member| own(member)).collect();
        self.send(&numbers);
        let taken = self.take(members, numbers.len() * self.senders.len());
        let only = |number: &u32| HashMap::from([(*number, self.senders.len())]);
        taken
            .iter()
            .eq(&numbers.iter().map(only).collect::<Vec<_>>())
    }

    /// Sends until each of the members gets its own, which is how wrong orders are found out.
    fn settles(&self, members: &[&Member]) -> bool {
        (0..100).any(|_| self.is_steered(members) && self.is_steered(members))
    }

    fn start_child(&self) -> (Child, u16) {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_other_process", "--nocapture"])
            .env("STEERING_DIR", self.dir.path())
            .env("STEERING_AT", format!("{} {}", self.address, self.port))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let slot = lines
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("slot ")?.parse().ok());
        (child, slot.expect("the child says its slot"))
    }
}

/// Not a test by itself: what a child runs, until it is killed.
#[test]
fn the_other_process() {
    let Some(dir) = std::env::var_os("STEERING_DIR") else {
        return;
    };
    let at = std::env::var("STEERING_AT").unwrap();
    let (address, port) = at.split_once(' ').unwrap();
    let member = Member::join(
        Path::new(&dir),
        address.parse().unwrap(),
        port.parse().unwrap(),
    );
    println!("\nslot {}", member.place.slot());
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn each_gets_its_own_and_somebody_gets_the_rest() {
    let world = World::new(71);
    let members = [world.join(), world.join(), world.join()];
    let members = members.each_ref();
    assert!(world.is_steered(&members));
    let missed: u64 = members.iter().map(|m| m.link.counters().missed).sum();
    assert_eq!(missed, 0);

    let unknown = (1..=qpn::SLOT_MAX)
        .find(|slot| members.iter().all(|m| m.place.slot() != *slot))
        .unwrap();
    let numbers = [1, qpn::compose(unknown, 5)];
    world.send(&numbers);
    // Comes back only when all have come.
    world.take(&members, 2 * world.senders.len());
}

#[test]
fn the_rest_get_their_own_after_one_has_left() {
    let world = World::new(72);
    let mut members: Vec<_> = (0..5).map(|_| world.join()).collect();
    // The middle, the first, the last; and somebody new in between.
    for leaves in [2, 0, 2] {
        drop(members.remove(leaves));
        assert!(world.is_steered(&members.iter().collect::<Vec<_>>()));
    }
    members.push(world.join());
    assert!(world.is_steered(&members.iter().collect::<Vec<_>>()));
}

#[test]
fn the_rest_get_their_own_after_one_was_killed() {
    let world = World::new(73);
    for newcomer in [false, true] {
        let first = world.join();
        let (mut child, slot) = world.start_child();
        let (mut other_child, _) = world.start_child();
        let last = world.join();
        assert!(first.place.is_alive(slot));
        assert!(world.is_steered(&[&first, &last]));
        for child in [&mut child, &mut other_child] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        if newcomer {
            let new = world.join();
            assert!(world.settles(&[&first, &new, &last]));
        }
        assert!(world.settles(&[&first, &last]));
    }
}

#[test]
fn a_wrong_order_is_put_right_by_what_comes() {
    let world = World::new(74);
    let old: Vec<_> = (0..4).map(|_| world.join()).collect();
    for turn in 1..4 {
        let text = std::fs::read_to_string(world.order()).unwrap();
        let mut lines: Vec<_> = text.lines().skip(1).take(4).collect();
        lines.rotate_left(turn);
        std::fs::write(world.order(), format!("77 4\n{}\n", lines.join("\n"))).unwrap();
        // Whoever joins has the kernel believe it.
        let new = world.join();
        let all: Vec<_> = old.iter().chain([&new]).collect();
        assert!(!world.is_steered(&all));
        assert!(world.settles(&all));
    }
}

#[test]
fn an_order_that_is_lost_loses_no_packets() {
    let world = World::new(76);
    for lost in ["", "9 3\n77", "no order"] {
        let old: Vec<_> = (0..4).map(|_| world.join()).collect();
        std::fs::File::create(world.order())
            .unwrap()
            .write_all(lost.as_bytes())
            .unwrap();
        let new = world.join();
        let all: Vec<_> = old.iter().chain([&new]).collect();
        for _ in 0..20 {
            // All that is sent comes to somebody.
            world.is_steered(&all);
        }
        drop(old);
        let newer = [world.join(), world.join()];
        assert!(world.settles(&[&new, &newer[0], &newer[1]]), "{lost:?}");
    }
}

#[test]
fn an_order_that_somebody_sits_on_keeps_nobody_out() {
    let world = World::new(75);
    let one = world.join();
    let file = std::fs::File::open(world.order()).unwrap();
    file.lock().unwrap();
    let two = world.join();
    let own = qpn::compose(two.place.slot(), 5);
    world.send(&[own]);
    world.take(&[&one, &two], world.senders.len());
    file.unlock().unwrap();
    let three = world.join();
    drop(two);
    assert!(world.settles(&[&one, &three]));
}
