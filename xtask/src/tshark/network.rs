//! Two network namespaces with a veth pair between them, which go when the value is dropped.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process;

#[derive(Clone, Copy)]
pub(crate) enum Side {
    A,
    B,
}

pub(crate) struct Network {
    /// What the names begin with; two xtasks at once have different ones.
    stem: String,
}

const SIDES: [Side; 2] = [Side::A, Side::B];
/// Room for 4096 bytes of payload and all headers.
const MTU: &str = "9000";

impl Side {
    const fn letter(self) -> char {
        match self {
            Self::A => 'a',
            Self::B => 'b',
        }
    }

    const fn number(self) -> u8 {
        match self {
            Self::A => 1,
            Self::B => 2,
        }
    }
}

impl Network {
    pub(crate) fn make() -> Result<Self> {
        let network = Self {
            stem: format!("adv{}", std::process::id()),
        };
        for side in SIDES {
            ip(&["netns", "add", &network.namespace(side)])?;
        }
        let (a, b) = (network.namespace(Side::A), network.namespace(Side::B));
        let (at_a, at_b) = (network.interface(Side::A), network.interface(Side::B));
        ip(&[
            "link", "add", &at_a, "netns", &a, "type", "veth", "peer", "name", &at_b, "netns", &b,
        ])?;
        for side in SIDES {
            network.set_up(side)?;
        }
        Ok(network)
    }

    fn set_up(&self, side: Side) -> Result<()> {
        let (namespace, interface) = (self.namespace(side), self.interface(side));
        // Duplicate address detection would keep the link-local address from being used for a second.
        let dad = format!("net.ipv6.conf.{interface}.accept_dad=0");
        let quiet = ["netns", "exec", &namespace, "sysctl", "-q", "-w", &dad];
        let _ = ip(&quiet);
        let within = |words: &[&str]| {
            let words: Vec<&str> = ["-n", &namespace].iter().chain(words).copied().collect();
            ip(&words)
        };
        within(&["link", "set", "lo", "up"])?;
        // With one segment at most for the device, the kernel cuts every longer send into packets itself.
        within(&["link", "set", &interface, "mtu", MTU, "gso_max_segs", "1"])?;
        within(&["link", "set", &interface, "up"])?;
        within(&[
            "addr",
            "add",
            &format!("{}/24", self.address(side)),
            "dev",
            &interface,
        ])?;
        let six = format!("fd77::{}/64", side.number());
        within(&["addr", "add", &six, "dev", &interface, "nodad"])
    }

    fn namespace(&self, side: Side) -> String {
        format!("{}{}", self.stem, side.letter())
    }

    pub(crate) fn interface(&self, side: Side) -> String {
        format!("{}v{}", self.stem, side.letter())
    }

    pub(crate) fn address(&self, side: Side) -> String {
        format!("10.77.0.{}", side.number())
    }

    /// A program inside a namespace.
    pub(crate) fn command(&self, side: Side, program: &str) -> Command {
        let mut command = process::command(std::path::Path::new("ip"));
        command.args(["netns", "exec", &self.namespace(side), program]);
        command
    }

    /// Whether anything there waits for a TCP connection.
    pub(crate) fn listens(&self, side: Side) -> bool {
        let output = Command::new("ip")
            .args([
                "netns",
                "exec",
                &self.namespace(side),
                "cat",
                "/proc/net/tcp",
                "/proc/net/tcp6",
            ])
            .output();
        output.is_ok_and(|output| {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            text.lines()
                .any(|line| line.split_whitespace().nth(3) == Some("0A"))
        })
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for side in SIDES {
            // One that was never made cannot be removed, which is as good.
            let _ = ip(&["netns", "del", &self.namespace(side)]);
        }
    }
}

fn ip(words: &[&str]) -> Result<()> {
    let output = Command::new("ip")
        .args(words)
        .output()
        .context("cannot run ip")?;
    if !output.status.success() {
        bail!(
            "ip {}: {}",
            words.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(())
}
