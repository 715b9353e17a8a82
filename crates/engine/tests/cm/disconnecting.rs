//! From DREQ to the end of the time wait.

use adverb_engine::cm::{CmDrop, ConnectionState};
use adverb_wire::cm::{Dreq, Mad, Message};

use crate::net::*;

const END: [&str; 2] = ["disconnected", "timewait exit"];

/// Two connected hosts, and the IDs of the two machines.
fn connected(mut net: Net) -> (Net, u32, u32) {
    let a = net.connect();
    net.run();
    assert_eq!(net.state(B), ConnectionState::Established);
    net.said.clear();
    for host in &mut net.hosts {
        host.entries[0].told.clear();
    }
    let b = net.hosts[B].entries[0].machine.local_id();
    (net, a, b)
}

fn patient() -> Plan {
    Plan {
        on_disconnected: None,
        ..Plan::willing()
    }
}

/// Trap 56.
#[test]
fn each_side_is_disconnected_once_whoever_begins() {
    for (first, second) in [(A, B), (B, A)] {
        let (mut net, a, b) = connected(Net::calm([patient(); 2]));
        let ids = [a, b];
        net.act(first, ids[first], Act::Disconnect);
        net.run_for(100 * MS);
        // The DREP goes out when the user of the other side says so, too.
        assert_eq!(net.said, [(first, "DREQ")]);
        assert_eq!(net.told(second), ["disconnected"]);
        assert!(net.told(first).is_empty());
        net.act(second, ids[second], Act::Disconnect);
        net.run();
        assert_eq!(net.said, [(first, "DREQ"), (second, "DREP")]);
        assert_eq!((net.told(A), net.told(B)), (END.to_vec(), END.to_vec()));
        // Saying it again is no mistake.
        net.act(first, ids[first], Act::Disconnect);
        net.run();
        assert_eq!(net.said.len(), 2);
    }
}

/// Trap 56.
#[test]
fn both_sides_at_once_are_disconnected_once_each() {
    let (mut net, a, b) = connected(Net::calm([patient(); 2]));
    net.act(A, a, Act::Disconnect);
    net.act(B, b, Act::Disconnect);
    net.run();
    assert_eq!((net.count("DREQ"), net.count("DREP")), (2, 2));
    assert_eq!((net.told(A), net.told(B)), (END.to_vec(), END.to_vec()));
}

/// Trap 54.
#[test]
fn a_repeated_dreq_gets_the_same_drep() {
    let (mut net, a, _) = connected(Net::repeating([Plan::willing(); 2], "DREQ", 300 * MS));
    net.act(A, a, Act::Disconnect);
    net.run();
    assert_eq!((net.count("DREQ"), net.count("DREP")), (1, 2));
    assert_eq!((net.told(A), net.told(B)), (END.to_vec(), END.to_vec()));
}

/// The time wait is shorter than the peer's patience, so the machine may be gone when the DREQ comes again.
#[test]
fn a_lost_drep_is_made_up_for_by_somebody_without_a_machine() {
    let (mut net, a, _) = connected(Net::losing([Plan::willing(); 2], "DREP", 2));
    net.act(A, a, Act::Disconnect);
    net.run();
    assert_eq!((net.count("DREQ"), net.count("DREP")), (3, 3));
    assert_eq!((net.told(A), net.told(B)), (END.to_vec(), END.to_vec()));
}

#[test]
fn a_dreq_that_nobody_answers_ends_the_connection_all_the_same() {
    let (mut net, a, _) = connected(Net::losing([Plan::willing(); 2], "DREQ", usize::MAX));
    net.act(A, a, Act::Disconnect);
    net.run();
    assert_eq!(net.count("DREQ"), 16);
    assert_eq!(net.told(A), END);
    assert!(net.told(B).is_empty());
}

#[test]
fn the_time_wait_lasts_as_long_as_the_path_says() {
    let (mut net, a, b) = connected(Net::calm([patient(); 2]));
    net.act(A, a, Act::Disconnect);
    net.run_for(10 * MS);
    net.act(B, b, Act::Disconnect);
    assert_eq!(net.state(B), ConnectionState::Timewait);
    // 4.096 µs times 2^17.
    net.run_for(530 * MS);
    assert_eq!(net.told(B), ["disconnected"]);
    net.run_for(10 * MS);
    assert_eq!(net.told(B), END);
}

/// The RTU was lost and the DREQ overtakes its repetition.
#[test]
fn a_connection_may_end_before_the_passive_side_knew_of_it() {
    let mut net = Net::losing([Plan::willing(); 2], "RTU", usize::MAX);
    let a = net.connect();
    net.run_for(100 * MS);
    net.act(A, a, Act::Disconnect);
    net.run();
    assert_eq!(net.told(A), ["response", "disconnected", "timewait exit"]);
    assert_eq!(net.told(B), END);
}

#[test]
fn half_a_connection_that_is_disconnected_is_refused() {
    let mut net = Net::losing([Plan::willing(); 2], "RTU", usize::MAX);
    net.connect();
    net.run_for(100 * MS);
    let b = net.hosts[B].entries[0].machine.local_id();
    net.act(B, b, Act::Disconnect);
    net.run();
    assert_eq!(net.told(B), ["disconnected"]);
    assert_eq!(net.told(A), ["response", "disconnected", "timewait exit"]);
    assert_eq!(net.count("DREP"), 0, "nobody waits for it");
}

#[test]
fn a_dreq_for_another_queue_pair_is_dropped() {
    let (mut net, a, b) = connected(Net::calm([Plan::willing(); 2]));
    let dreq = Dreq {
        local_id: a,
        remote_id: b,
        remote_qpn: 0x33,
        ..Dreq::default()
    };
    let mad = Mad {
        tid: 0,
        message: Message::Dreq(dreq),
    };
    let machine = &mut net.hosts[B].entries[0].machine;
    let dropped = machine.handle(net.now, &mad);
    assert_eq!(
        dropped,
        Err(CmDrop::QueuePair {
            given: 0x33,
            expected: 0x22
        })
    );
    assert_eq!(machine.state(), ConnectionState::Established);
}

#[test]
fn a_peer_that_died_is_a_disconnection_with_nobody_to_answer() {
    let (mut net, _, b) = connected(Net::calm([patient(); 2]));
    let now = net.now;
    net.hosts[B].entries[0].machine.peer_gone(now);
    net.run();
    assert_eq!(
        net.told(B),
        [] as [&str; 0],
        "not told before somebody asks"
    );
    net.act(B, b, Act::Disconnect);
    net.run();
    assert_eq!(net.told(B), END);
    assert!(net.said.is_empty());
}

#[test]
fn a_peer_that_dies_before_its_drep_is_not_waited_for() {
    let (mut net, a, _) = connected(Net::losing([Plan::willing(); 2], "DREQ", usize::MAX));
    net.act(A, a, Act::Disconnect);
    net.peer_gone(A, a);
    assert_eq!(net.told(A), ["disconnected"]);
    net.run();
    assert_eq!(net.told(A), END);
    assert_eq!(net.count("DREQ"), 1);
}

#[test]
fn a_peer_that_dies_while_connecting_is_unreachable() {
    let slow = Plan {
        on_request: Some((Act::Accept, SECOND)),
        ..Plan::willing()
    };
    for wait in [0, 500 * MS, 1002 * MS] {
        let mut net = Net::losing([Plan::willing(), slow], "RTU", 9);
        let a = net.connect();
        net.run_for(wait);
        net.peer_gone(A, a);
        net.run();
        assert_eq!(net.told(A).last(), Some(&"unreachable"), "after {wait}");
    }
}

/// Whoever destroys an ID leaves the rest to the machine.
#[test]
fn closing_says_what_the_state_asks_for() {
    let slow = Plan {
        on_request: Some((Act::Accept, SECOND)),
        ..Plan::willing()
    };
    for (wait, host, last) in [
        (0, A, "REJ"),
        (500 * MS, B, "REJ"),
        (1001 * MS, B, "REJ"),
        (1002 * MS, A, "REJ"),
        (2 * SECOND, A, "DREQ"),
        (2 * SECOND, B, "DREQ"),
    ] {
        let mut net = Net::calm([Plan::willing(), slow]);
        net.connect();
        net.run_for(wait);
        net.said.clear();
        let id = net.hosts[host].entries[0].machine.local_id();
        net.act(host, id, Act::Close);
        assert_eq!(net.said, [(host, last)], "after {wait}");
        net.run();
        for host in [A, B] {
            let entries = &net.hosts[host].entries;
            assert!(entries.iter().all(|entry| entry.machine.is_over()));
        }
    }
}
