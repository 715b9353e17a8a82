//! Two places in one process, as two processes would see each other: both directions, a full ring, the doorbell.

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use adverb_link::shm::ShmRoute;
use adverb_link::{Link, Meta, Place, SendError, ShmLink};
use adverb_mem::ProcessPage;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

const META: Meta = Meta {
    src: IpAddr::V4(Ipv4Addr::new(10, 1, 2, 3)),
    dst: IpAddr::V4(Ipv4Addr::LOCALHOST),
    traffic_class: 7,
    hop_limit: 9,
    outside: false,
};

fn pair(dir: &tempfile::TempDir) -> (ShmLink, ShmLink) {
    let join = || ShmLink::new(Place::join(dir.path()).unwrap());
    (join(), join())
}

/// The way from one to the other, who has taken the ring and has said so.
fn route(from: &ShmLink, to: &ShmLink) -> ShmRoute {
    let route = from.route(to.slot()).expect("the peer is alive");
    to.drain_bell().unwrap();
    from.drain_bell().unwrap();
    route
}

/// Whether the bell of `link` rings within `wait`.
fn rings(link: &ShmLink, wait: Duration) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(link.bell_fd(), PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::try_from(wait).unwrap())).unwrap() == 1
}

fn receive_all(link: &ShmLink) -> Vec<(Meta, Vec<u8>)> {
    let mut got = Vec::new();
    while link.receive(16, &mut |meta, packet| {
        got.push((*meta, packet.packet().unwrap().to_vec()))
    }) > 0
    {}
    got
}

#[test]
fn packets_cross_in_both_directions() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = pair(&dir);
    let (to_two, to_one) = (route(&one, &two), route(&two, &one));
    assert!(
        one.route(one.slot()).is_none(),
        "to itself a process uses loopback"
    );
    for n in 0..2000u32 {
        let len = 12 + (n as usize * 37) % 4200;
        let mut meta = META;
        meta.hop_limit = n as u8;
        one.send(&to_two, &meta, &vec![n as u8; len]).unwrap();
        two.send(&to_one, &META, &[n as u8; 20]).unwrap();
        one.wake(&to_two, 0);
        two.wake(&to_one, 0);
        assert!(one.has_inbound() && two.has_inbound());
        assert_eq!(receive_all(&two), [(meta, vec![n as u8; len])]);
        assert_eq!(receive_all(&one), [(META, vec![n as u8; 20])]);
        assert!(!one.has_inbound() && !two.has_inbound());
    }
}

#[test]
fn the_bell_rings_for_a_sleeper_and_once() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = pair(&dir);
    let to_two = one.route(two.slot()).expect("the peer is alive");
    two.page().note_drive(1_000);
    assert!(two.drain_bell().unwrap(), "the hand-over of the ring");
    assert!(!two.drain_bell().unwrap());
    assert!(one.drain_bell().unwrap(), "the word that it was taken");

    let now = 5_000;
    one.send(&to_two, &META, &[1; 12]).unwrap();
    one.wake(&to_two, now);
    assert!(!rings(&two, Duration::ZERO), "awake and looked 4 µs ago");

    assert_eq!(receive_all(&two).len(), 1);
    two.page().sleep_flag().announce_sleep();
    assert!(!two.has_inbound());
    for _ in 0..3 {
        one.send(&to_two, &META, &[1; 12]).unwrap();
    }
    one.wake(&to_two, now);
    one.wake(&to_two, now);
    assert!(rings(&two, Duration::ZERO));
    assert!(two.drain_bell().unwrap());
    assert_eq!(receive_all(&two).len(), 3);

    one.send(&to_two, &META, &[1; 12]).unwrap();
    one.wake(&to_two, now);
    assert!(
        !rings(&two, Duration::ZERO),
        "the flag went down with the first bell"
    );
    one.send(&to_two, &META, &[1; 12]).unwrap();
    one.wake(&to_two, now + 1_000_000);
    assert!(rings(&two, Duration::ZERO), "no look for a millisecond");
}

#[test]
fn a_peer_that_stops_looking_is_rung_a_little_later() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = pair(&dir);
    let to_two = route(&one, &two);
    two.page().note_drive(1_000);
    two.drain_bell().unwrap();
    let a_while = ProcessPage::REMIND_AFTER_NS;

    one.send(&to_two, &META, &[1; 12]).unwrap();
    one.wake(&to_two, 2_000);
    one.remind(3_000);
    assert!(!rings(&two, Duration::ZERO), "it looked 2 µs ago");
    one.remind(3_000 + a_while);
    assert!(rings(&two, Duration::ZERO), "it has not looked since");
    two.drain_bell().unwrap();
    one.remind(10_000_000);
    assert!(!rings(&two, Duration::ZERO), "it knows");

    // This one looks all the time, and just before each time it is asked about.
    let mut now = 20_000_000;
    two.page().note_drive(now);
    one.send(&to_two, &META, &[1; 12]).unwrap();
    one.wake(&to_two, now + 1_000);
    for _ in 0..10 {
        now += a_while + 1_000;
        two.page().note_drive(now - 500);
        one.remind(now);
        assert!(!rings(&two, Duration::ZERO));
    }
    one.remind(now + 10 * a_while);
    assert!(
        !rings(&two, Duration::ZERO),
        "it had looked after the packet was there"
    );
}

#[test]
fn a_full_ring_refuses_and_calls_when_there_is_space() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = pair(&dir);
    let to_two = route(&one, &two);
    let packet = [5; 4000];
    let mut sent = 0;
    while one.send(&to_two, &META, &packet) != Err(SendError::Full) {
        sent += 1;
        assert!(sent < 1000, "the ring has a bound");
    }
    assert!(sent > 200);
    assert!(!rings(&one, Duration::ZERO));
    let mut got = 0;
    while !rings(&one, Duration::ZERO) {
        assert!(
            two.receive(1, &mut |_, bytes| assert_eq!(
                bytes.packet().unwrap(),
                packet
            )) == 1,
            "emptied and nobody called"
        );
        got += 1;
    }
    assert!(got <= sent / 2, "called after {got} of {sent}");
    assert!(one.drain_bell().unwrap());
    one.send(&to_two, &META, &packet).unwrap();
    assert_eq!(receive_all(&two).len(), sent - got + 1);
}

#[test]
fn a_peer_that_left_is_unreachable_until_somebody_is_there_again() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = pair(&dir);
    let to_two = route(&one, &two);
    let slot = two.slot();
    assert!(one.probe(slot));
    drop(two);
    assert!(!one.probe(slot));
    assert_eq!(
        one.send(&to_two, &META, &[0; 12]),
        Err(SendError::Unreachable)
    );
    assert!(one.route(slot).is_none());

    // Somebody else gets the slot sooner or later. The old route stays dead, a fresh one works.
    let mut others = Vec::new();
    let next = loop {
        let next = ShmLink::new(Place::join(dir.path()).unwrap());
        if next.slot() == slot {
            break next;
        }
        others.push(next);
    };
    assert_eq!(
        one.send(&to_two, &META, &[0; 12]),
        Err(SendError::Unreachable)
    );
    let fresh = route(&one, &next);
    one.send(&fresh, &META, &[8; 12]).unwrap();
    assert_eq!(receive_all(&next), [(META, vec![8; 12])]);
}

#[test]
fn rings_of_the_gone_are_emptied_and_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = pair(&dir);
    let to_two = route(&one, &two);
    one.send(&to_two, &META, &[3; 12]).unwrap();
    drop((one, to_two));
    assert_eq!(
        receive_all(&two).len(),
        1,
        "what was sent before the end arrives"
    );
    assert_eq!(two.inbound_rings(), 1);
    two.sweep();
    assert_eq!(two.inbound_rings(), 0);
    assert!(!two.has_inbound());
}

#[test]
fn whoever_gets_the_slot_of_another_is_another() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = pair(&dir);
    let (slot, to_one, to_two) = (two.slot(), route(&two, &one), route(&one, &two));
    two.send(&to_one, &META, &[3; 12]).unwrap();
    assert_eq!(receive_all(&one).len(), 1);
    assert_eq!(one.inbound_rings(), 1);
    drop((to_one, two));
    let mut others = Vec::new();
    let next = loop {
        let next = ShmLink::new(Place::join(dir.path()).unwrap());
        if next.slot() == slot {
            break next;
        }
        others.push(next);
    };
    one.sweep();
    assert_eq!(one.inbound_rings(), 0, "the ring was the other one's");
    // Nobody has told us that the first one has gone.
    let fresh = route(&one, &next);
    assert!(to_two.is_dead() && !fresh.is_dead());
    one.send(&fresh, &META, &[8; 12]).unwrap();
    assert_eq!(receive_all(&next), [(META, vec![8; 12])]);
}

#[test]
fn a_ring_that_is_offered_twice_is_one_ring() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = pair(&dir);
    let to_two = one.route(two.slot()).expect("the peer is alive");
    two.drain_bell().unwrap();
    one.send(&to_two, &META, &[1; 12]).unwrap();
    assert_eq!(receive_all(&two).len(), 1);
    // The first of these only begins to count; at the second the answer has not been heard yet.
    one.wake(&to_two, 1);
    one.wake(&to_two, 1_000_000_000);
    assert!(two.drain_bell().unwrap());
    assert_eq!(two.inbound_rings(), 1);
    one.send(&to_two, &META, &[2; 12]).unwrap();
    assert_eq!(
        receive_all(&two),
        [(META, vec![2; 12])],
        "and is read on where it was"
    );
}

#[test]
fn rings_that_somebody_hands_over_have_a_bound() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = pair(&dir);
    let stranger = std::os::unix::net::UnixDatagram::unbound().unwrap();
    stranger
        .connect(dir.path().join(format!("slot-{}.sock", two.slot())))
        .unwrap();
    let slot = one.slot().to_le_bytes();
    let message = [b'a', b'v', b'r', b'2', slot[0], slot[1]];
    // Each has something in it, so none is finished when the next one comes.
    for _ in 0..2300 {
        let (mut producer, fd) = adverb_mem::ring::create(4096).unwrap();
        producer.push(&[&[9; 40]]).unwrap();
        let fds = [fd.as_fd()];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = rustix::net::SendAncillaryBuffer::new(&mut space);
        control.push(rustix::net::SendAncillaryMessage::ScmRights(&fds));
        rustix::net::sendmsg(
            &stranger,
            &[std::io::IoSlice::new(&message)],
            &mut control,
            rustix::net::SendFlags::empty(),
        )
        .unwrap();
        two.drain_bell().unwrap();
    }
    assert_eq!(two.inbound_rings(), 2 * 1023);
}

#[test]
fn nonsense_at_the_socket_is_ignored() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = pair(&dir);
    let stranger = std::os::unix::net::UnixDatagram::unbound().unwrap();
    let path = dir.path().join(format!("slot-{}.sock", two.slot()));
    for message in [
        &b""[..],
        b"avr2",
        b"avr2\0\0",
        b"avr2\xff\xff",
        b"avr2\x05\0",
        &[b'a'; 100],
    ] {
        stranger.send_to(message, &path).unwrap();
    }
    assert!(two.drain_bell().unwrap());
    assert!(!two.has_inbound());

    // A hand-over whose memfd is no ring.
    let fd = rustix::fs::memfd_create("no ring", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let fds = [fd.as_fd()];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = rustix::net::SendAncillaryBuffer::new(&mut space);
    control.push(rustix::net::SendAncillaryMessage::ScmRights(&fds));
    stranger.connect(&path).unwrap();
    let slot = one.slot().to_le_bytes();
    let message = [b'a', b'v', b'r', b'2', slot[0], slot[1]];
    let flags = rustix::net::SendFlags::empty();
    rustix::net::sendmsg(
        &stranger,
        &[std::io::IoSlice::new(&message)],
        &mut control,
        flags,
    )
    .unwrap();
    assert!(two.drain_bell().unwrap());
    assert!(!two.has_inbound());

    let to_two = route(&one, &two);
    one.send(&to_two, &META, &[3; 12]).unwrap();
    assert_eq!(
        receive_all(&two).len(),
        1,
        "the sound peer is not disturbed"
    );
}

#[test]
fn many_senders_lose_nothing_while_the_receiver_sleeps_and_wakes() {
    const EACH: u32 = 8_000;
    // More than are watched at a time.
    const SENDERS: usize = 7;
    let dir = tempfile::tempdir().unwrap();
    let receiver = ShmLink::new(Place::join(dir.path()).unwrap());
    let senders: Vec<_> = (0..SENDERS)
        .map(|_| ShmLink::new(Place::join(dir.path()).unwrap()))
        .collect();
    let deadline = Instant::now() + Duration::from_secs(60);
    std::thread::scope(|scope| {
        for sender in &senders {
            let to = route(sender, &receiver);
            scope.spawn(move || {
                for n in 0..EACH {
                    while sender.send(&to, &META, &n.to_le_bytes().repeat(5))
                        == Err(SendError::Full)
                    {
                        sender.wake(&to, 0);
                        // The bell says when; the bound only keeps a broken link from hanging the test.
                        assert!(
                            rings(sender, Duration::from_secs(20)),
                            "full and never called"
                        );
                        sender.drain_bell().unwrap();
                    }
                    sender.wake(&to, 0);
                    if n % 64 == 0 {
                        std::thread::yield_now();
                    }
                }
            });
        }
        let mut got = 0;
        while got < SENDERS * EACH as usize {
            got += receiver.receive(64, &mut |_, _| ());
            if got < SENDERS * EACH as usize && !receiver.has_inbound() {
                receiver.page().sleep_flag().announce_sleep();
                // Time stands still here (`wake` at 0), so only the exact rule rings: a lost wake-up would show.
                if !receiver.has_inbound() {
                    assert!(
                        rings(&receiver, Duration::from_secs(20)),
                        "slept through, {got} received"
                    );
                }
                receiver.page().sleep_flag().announce_awake();
                receiver.drain_bell().unwrap();
            }
            assert!(Instant::now() < deadline, "{got} received");
        }
    });
    assert!(!receiver.has_inbound());
}
