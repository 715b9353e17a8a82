//! Sockets on the loopback interface, with ports that the kernel chooses.

use super::*;
use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::{Duration, Instant};

fn bind(address: IpAddr, port: u16) -> UdpLink {
    UdpLink::bind(&UdpConfig {
        addresses: vec![address],
        port,
        scope_id: 0,
        meeting: None,
    })
    .unwrap()
}

fn path_to(ip: IpAddr) -> Path {
    Path {
        sgid: Gid::from_ip(ip),
        dgid: Gid::from_ip(ip),
        traffic_class: 0,
        hop_limit: 64,
        flow_label: 0,
    }
}

fn packet(n: u8, len: usize) -> Vec<u8> {
    let mut packet = vec![n; len];
    packet[0] = 4;
    // All for one process, or they would not travel together.
    packet[5..8].fill(9);
    packet
}

/// Polls all of `links` until `count` packets have come, or nothing comes for long.
fn collect(links: &[&UdpLink], count: usize) -> Vec<(Meta, Vec<u8>)> {
    let mut got = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(60);
    while got.len() < count && Instant::now() < deadline {
        for link in links {
            link.receive(5, &mut |meta, packet| {
                got.push((*meta, packet.packet().unwrap().to_vec()))
            });
        }
    }
    got
}

#[test]
fn a_batch_arrives_whole_on_both_families() {
    for ip in [
        IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::LOCALHOST),
    ] {
        let link = bind(ip, 0);
        let route = link.route(&path_to(ip), &[]).unwrap();
        // Sizes that fill a batch, shorten it at the end, begin a new one with a longer packet, and go beyond the
        // most segments that one send may have.
        let lens = [[4124; 20].as_slice(), &[36, 36, 32, 4124, 12], &[16; 100]].concat();
        let sent: Vec<_> = lens
            .iter()
            .zip(0..)
            .map(|(&len, n)| packet(n, len))
            .collect();
        for packet in &sent {
            link.send(&route, packet).unwrap();
        }
        link.flush();
        let got = collect(&[&link], sent.len());
        assert_eq!(got.len(), sent.len());
        assert!(got.iter().all(|(meta, _)| meta.src == ip && meta.dst == ip));
        assert!(
            got.into_iter()
                .map(|(_, packet)| packet)
                .eq(sent.iter().cloned()),
            "order and content"
        );
        let counters = link.counters();
        assert_eq!(
            (counters.received, counters.sent),
            (sent.len() as u64, sent.len() as u64)
        );
        assert_eq!(
            (counters.bad_icrc, counters.malformed, counters.send_errors),
            (0, 0, 0)
        );
        assert!(!link.has_inbound());
    }
}

#[test]
fn a_foreign_identification_is_accepted_and_damage_is_not() {
    let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let link = bind(ip, 0);
    let foreign = UdpSocket::bind((ip, 0)).unwrap();
    let send = |datagram: &[u8]| foreign.send_to(datagram, (ip, link.port())).unwrap();
    let good = packet(9, 60);
    let port = foreign.local_addr().unwrap().port();
    let addressing = send::addressing_of(ip, ip, port, link.port()).unwrap();
    let with_sum = |id| {
        [
            &good[..],
            &adverb_wire::icrc::compute(&addressing.with_id(id), &good),
        ]
        .concat()
    };

    send(&with_sum(0));
    send(&with_sum(54_321));
    let mut damaged = 0;
    for at in 0..60 {
        // Byte 4 is one that routers may change; the ICRC does not cover it.
        if at != 4 {
            let mut datagram = with_sum(7);
            datagram[at] ^= 1 << (at % 8);
            send(&datagram);
            damaged += 1;
        }
    }
    for len in [0, 1, 15] {
        send(&vec![0; len]);
    }
    send(&[&good[..], &[0; 5]].concat());
    send(&with_sum(1));

    let got = collect(&[&link], 3);
    assert_eq!(got.len(), 3);
    assert!(got.iter().all(|(_, packet)| *packet == good));
    let counters = link.counters();
    assert_eq!(
        (counters.received, counters.bad_icrc, counters.malformed),
        (3, damaged, 4)
    );
}

#[test]
fn processes_of_one_user_share_the_port() {
    let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let one = bind(ip, 0);
    let two = bind(ip, one.port());
    let route = two.route(&path_to(ip), &[]).unwrap();
    for n in 0..10 {
        two.send(&route, &packet(n, 64)).unwrap();
    }
    two.flush();
    assert_eq!(
        collect(&[&one, &two], 10).len(),
        10,
        "either may get them, together they get all"
    );
}

#[test]
fn a_port_that_somebody_keeps_to_himself_is_named() {
    let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let holder = UdpSocket::bind((ip, 0)).unwrap();
    let port = holder.local_addr().unwrap().port();
    let error = UdpLink::bind(&UdpConfig {
        addresses: vec![ip],
        port,
        scope_id: 0,
        meeting: None,
    })
    .unwrap_err();
    assert!(matches!(error, BindError::PortTaken { .. }));
    let text = error.to_string();
    assert!(
        text.contains(&port.to_string())
            && text.contains("ADVERB_UDP_PORT")
            && text.contains("another user"),
        "{text}"
    );
}

#[test]
fn a_small_budget_leaves_the_rest_for_later() {
    let ip = IpAddr::V6(Ipv6Addr::LOCALHOST);
    let link = bind(ip, 0);
    let route = link.route(&path_to(ip), &[]).unwrap();
    for n in 0..8 {
        link.send(&route, &packet(n, 64)).unwrap();
    }
    link.flush();
    let deadline = Instant::now() + Duration::from_secs(60);
    while link.receive(1, &mut |_, _| {}) == 0 {
        assert!(Instant::now() < deadline);
    }
    assert!(link.has_inbound(), "the rest was fetched with the first");
    assert_eq!(collect(&[&link], 7).len(), 7);
    assert!(!link.has_inbound());
}

#[test]
fn packets_that_no_datagram_holds_are_refused() {
    let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let link = bind(ip, 0);
    let route = link.route(&path_to(ip), &[]).unwrap();
    assert_eq!(link.send(&route, &[0; 8]), Err(SendError::Unreachable));
    assert_eq!(
        link.send(&route, &vec![0; 66_000]),
        Err(SendError::Unreachable)
    );
}

#[test]
fn a_group_reaches_whoever_has_joined_and_nobody_after_leaving() {
    // Index 1 is that of the loopback interface.
    let link = UdpLink::bind(&UdpConfig {
        addresses: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
        port: 0,
        scope_id: 1,
        meeting: None,
    })
    .unwrap();
    let group: IpAddr = "239.77.1.2".parse().unwrap();
    let path = Path {
        sgid: Gid::from_ip(Ipv4Addr::LOCALHOST.into()),
        ..path_to(group)
    };
    let route = link.route(&path, &[]).unwrap();
    let mut watched = 0;
    for _ in 0..2 {
        link.join(group, |_| {
            watched += 1;
            Ok(())
        })
        .unwrap();
    }
    assert_eq!(watched, 1, "joined once, however often it is asked for");
    let packet = [7; 32];
    link.send(&route, &packet).unwrap();
    link.flush();
    let got = collect(&[&link], 1);
    assert_eq!((got[0].0.dst, &got[0].1[..]), (group, &packet[..]));
    link.leave(group, |_| ());
    link.send(&route, &packet).unwrap();
    link.flush();
    assert_eq!(link.receive(8, &mut |_, _| ()), 0);
}

/// A quick look asks one socket; what comes to another is found within a few.
#[test]
fn quick_looks_find_what_comes_to_any_socket() {
    let addresses = [
        IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)),
        IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3)),
    ];
    let link = UdpLink::bind(&UdpConfig {
        addresses: addresses.to_vec(),
        port: 0,
        scope_id: 0,
        meeting: None,
    })
    .unwrap();
    for n in 0..20 {
        let to = addresses[n % 3];
        let route = link.route(&path_to(to), &[]).unwrap();
        link.send(&route, &packet(n as u8, 32)).unwrap();
        link.flush();
        let mut got = None;
        let mut looks = 0;
        while got.is_none() {
            link.receive_quickly(8, &mut |meta, bytes| {
                got = Some((meta.dst, bytes.packet().unwrap().to_vec()))
            });
            looks += 1;
            assert!(looks < 1_000_000, "overlooked what came to {to}");
        }
        assert_eq!(got, Some((to, packet(n as u8, 32))));
    }
}

#[test]
fn the_traffic_class_of_a_path_is_on_the_wire() {
    for ip in [
        IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::LOCALHOST),
    ] {
        let link = bind(ip, 0);
        let to = |traffic_class| {
            let path = Path {
                traffic_class,
                ..path_to(ip)
            };
            link.route(&path, &[]).unwrap()
        };
        for n in 0..3 {
            link.send(&to(0x69), &packet(n, 64)).unwrap();
        }
        link.send(&to(0), &packet(3, 64)).unwrap();
        link.flush();
        let got = collect(&[&link], 4);
        let classes: Vec<_> = got.iter().map(|(meta, _)| meta.traffic_class).collect();
        assert_eq!(classes, [0x69, 0x69, 0x69, 0], "{ip}");
    }
}
