//! Random plans of both users on a random network. The seed is in the message of whatever fails.

use adverb_engine::cm::ConnectionEvent;

use crate::net::*;

const SEEDS: u64 = 3000;

/// A network that loses, repeats, and delays so that messages overtake each other, some by minutes.
fn weather(mut random: Random, loss: u64) -> Weather {
    Box::new(move |_, _| {
        let mut copies = Vec::new();
        if !random.permille(loss) {
            copies.push(random.below(20 * MS));
        }
        if random.permille(150) {
            let latest = [20 * MS, 6 * SECOND, 100 * SECOND][random.below(3) as usize];
            copies.push(random.below(latest));
        }
        copies
    })
}

fn some(random: &mut Random, act: Act) -> Option<(Act, u64)> {
    let longest = [MS, SECOND, 20 * SECOND][random.below(3) as usize];
    Some((act, random.below(longest)))
}

/// What one user was told, whatever happened: each thing once, and nothing after the end.
fn check_order(told: &[ConnectionEvent], is_active: bool) {
    let names: Vec<_> = told.iter().map(name).collect();
    let mut rest = &names[..];
    let opening = if is_active { "response" } else { "established" };
    rest = rest.strip_prefix(&[opening]).unwrap_or(rest);
    // Only who was connected can be disconnected, except that the passive side may not have known.
    let ends: [&[&str]; 5] = [
        &[],
        &["rejected"],
        &["unreachable"],
        &["disconnected"],
        &["disconnected", "timewait exit"],
    ];
    assert!(ends.contains(&rest), "{names:?}");
}

fn check(net: &Net) {
    for host in &net.hosts {
        for entry in &host.entries {
            check_order(&entry.told, entry.machine.is_active());
        }
    }
}

fn with_seeds(run: impl Fn(Random)) {
    for seed in 0..SEEDS {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(Random(seed))));
        assert!(outcome.is_ok(), "seed {seed}");
    }
}

/// Both want the connection and both end it: each is told so once, on any network that lets something through.
#[test]
fn two_willing_sides_agree_in_any_weather() {
    with_seeds(|mut random| {
        let mut plan = || Plan {
            on_request: some(&mut random, Act::Accept),
            on_response: some(&mut random, Act::Establish),
            on_established: None,
            on_disconnected: some(&mut random, Act::Disconnect),
        };
        let (mut plans, loss) = ([plan(), plan()], [0, 100, 250][random.below(3) as usize]);
        // One of them ends it, or both do. The passive side has time until its peer is sure to be connected.
        match random.below(3) {
            0 => plans[A].on_established = some(&mut random, Act::Disconnect),
            1 => plans[B].on_established = some(&mut random, Act::Disconnect),
            _ => {
                plans[A].on_established = some(&mut random, Act::Disconnect);
                plans[B].on_established = some(&mut random, Act::Disconnect);
            }
        }
        let waits_for_rtu = plans[A].on_established.is_some();
        let mut net = Net::new(plans, weather(Random(random.next()), loss));
        net.connect();
        net.run();
        check(&net);
        assert_eq!(net.told(A), ["response", "disconnected", "timewait exit"]);
        // Copies of the REQ that arrive after all is over look like new requests. They come to nothing.
        let connected: Vec<Vec<&str>> = net.hosts[B]
            .entries
            .iter()
            .map(|entry| entry.told.iter().map(name).collect())
            .filter(|told: &Vec<&str>| told.contains(&"disconnected"))
            .collect();
        let whole = vec!["established", "disconnected", "timewait exit"];
        let unaware = vec!["disconnected", "timewait exit"];
        assert!(
            connected == [whole] || waits_for_rtu && connected == [unaware],
            "{connected:?}"
        );
        for host in &net.hosts {
            assert!(host.entries.iter().all(|entry| entry.machine.is_over()));
        }
    });
}

/// Users that do anything at any time: nothing panics, everything ends, and what is told is told in order.
#[test]
fn users_that_do_anything_get_a_legal_story() {
    const ACTS: [Act; 6] = [
        Act::Accept,
        Act::Reject,
        Act::Establish,
        Act::Notify,
        Act::Disconnect,
        Act::Close,
    ];
    with_seeds(|mut random| {
        let mut plan = || {
            let mut any = || {
                let act = ACTS[random.below(ACTS.len() as u64) as usize];
                some(&mut random, act)
            };
            Plan {
                on_request: any(),
                on_response: any(),
                on_established: any(),
                // Without this an ended connection waits for its user for ever, and rightly.
                on_disconnected: Some((Act::Disconnect, MS)),
            }
        };
        let plans = [plan(), plan()];
        let loss = [0, 100, 500, 900][random.below(4) as usize];
        let mut net = Net::new(plans, weather(Random(random.next()), loss));
        net.connect();
        net.connect();
        for _ in 0..random.below(20) {
            net.run_for(random.below(3 * SECOND));
            let host = random.below(2) as usize;
            let entries = &net.hosts[host].entries;
            if entries.is_empty() {
                continue;
            }
            let entry = &entries[random.below(entries.len() as u64) as usize];
            let id = entry.machine.local_id();
            if random.permille(50) {
                net.peer_gone(host, id);
            }
            net.act(host, id, ACTS[random.below(6) as usize]);
        }
        net.run();
        check(&net);
    });
}
