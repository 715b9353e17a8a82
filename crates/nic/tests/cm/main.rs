//! Connections: within a process, between processes, with strangers on the network.
//!
//! The links are those of the environment. `the_same_over_udp` runs everything again where only UDP is allowed; what
//! needs a stranger, which is a plain socket, runs there only.

mod connect;
mod datagrams;
mod events;
mod processes;
mod storm;
mod stranger;
mod world;

use std::process::{Command, Stdio};

#[test]
fn the_same_over_udp() {
    if std::env::var_os("ADVERB_LINKS").is_some() {
        return;
    }
    // A process that is killed takes along what its socket held, also what was for others: whatever is said but once
    // is not to be said while that happens.
    over_udp(world::own_port(), &["--skip", "processes::"]);
    over_udp(world::own_port() + 1, &["processes::", "--test-threads=1"]);
}

fn over_udp(port: u16, tests: &[&str]) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(tests)
        .env("ADVERB_LINKS", "udp")
        .env("ADVERB_UDP_PORT", port.to_string())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    // Nobody else meets there.
    let _ = std::fs::remove_dir_all(adverb_link::shm::private_dir(port).unwrap());
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
}
