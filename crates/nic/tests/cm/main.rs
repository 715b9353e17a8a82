//! Connections: within a process, between processes, with strangers on the network.
//!
//! The links are those of the environment. `the_same_over_udp` runs everything again where only UDP is allowed; what
//! needs a stranger, which is a plain socket, runs there only.

mod connect;
mod datagrams;
mod events;
mod processes;
mod stranger;
mod world;

use std::process::{Command, Stdio};

#[test]
fn the_same_over_udp() {
    if std::env::var_os("ADVERB_LINKS").is_some() {
        return;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .env("ADVERB_LINKS", "udp")
        .env("ADVERB_UDP_PORT", world::own_port().to_string())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
}
