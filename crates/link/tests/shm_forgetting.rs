//! Processes that come and go: what is held of them goes with them. Alone in its binary, because it counts descriptors.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use adverb_link::{Link, Meta, Place, ShmLink};

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

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn mapped_rings() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains("memfd")).count()
}

/// Rings and peers of the dead that may lie about while others come.
const FEW: usize = 16;

#[test]
fn those_who_come_and_go_leave_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let own = join(dir.path());
    let mut packet = Vec::new();
    let mut most = 0;
    let before = descriptors();
    for n in 0..300_u32 {
        let other = join(dir.path());
        let (there, back) = (
            own.route(other.slot()).unwrap(),
            other.route(own.slot()).unwrap(),
        );
        packet.clear();
        packet.extend([n as u8; 64]);
        own.send(&there, &META, &packet).unwrap();
        other.send(&back, &META, &packet).unwrap();
        own.wake(&there, 0);
        other.wake(&back, 0);
        for link in [&other, &own] {
            let mut got = 0;
            while link.receive(16, &mut |_, bytes| {
                assert_eq!(bytes.packet().unwrap(), packet)
            }) > 0
            {
                got += 1;
            }
            assert_eq!(got, 1);
        }
        own.drain_bell().unwrap();
        own.remind(u64::MAX);
        drop((there, back, other));
        most = most.max(own.inbound_rings());
    }
    assert!(own.wants_roll_call());
    assert!(!own.wants_roll_call());
    assert!(most <= FEW, "{most} rings of the dead at a time");
    assert!(mapped_rings() <= 2 * FEW, "{} rings", mapped_rings());
    // The listing of the descriptors has one, too, both times.
    assert_eq!(descriptors(), before, "descriptors");
    assert!(!own.call_roll(), "somebody is left");
    assert_eq!(own.inbound_rings(), 0);
    assert_eq!(mapped_rings(), 0);
}
