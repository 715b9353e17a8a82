//! UCX as a peer: its own `ucx_perftest`, between two processes on the cores that ours use.

use std::fs;
use std::io::Read as _;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::cores::Cores;

/// The transport that UCX is held to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Posix,
    Tcp,
}

/// One run of `ucx_perftest`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Test {
    pub(crate) transport: Transport,
    /// Its name there: tag_lat, tag_bw.
    pub(crate) name: &'static str,
    pub(crate) size: usize,
    pub(crate) iterations: u32,
}

/// What it prints at its end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Figures {
    /// One way, median.
    pub(crate) latency_ns: f64,
    pub(crate) gb_per_s: f64,
    pub(crate) msgs_per_s: f64,
}

pub(crate) fn is_installed() -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(PROGRAM).is_file()))
}

pub(crate) fn measure(test: Test, cores: Cores) -> Result<Figures> {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
        .local_addr()?
        .port();
    let mut server = Running(command(test, cores.server, port).spawn()?);
    let deadline = Instant::now() + LIMIT;
    while !is_listening(port) {
        if server.0.try_wait()?.is_some() || Instant::now() > deadline {
            bail!("the server of {PROGRAM} does not listen");
        }
        thread::sleep(LOOK);
    }
    let mut client = command(test, cores.client, port);
    client
        .arg(Ipv4Addr::LOCALHOST.to_string())
        .args(["-f", "-t", test.name, "-w", "1000"])
        .args(["-s", &test.size.to_string()])
        .args(["-n", &test.iterations.to_string()]);
    let mut client = Running(client.spawn()?);
    let status = loop {
        match client.0.try_wait()? {
            Some(status) => break status,
            None if Instant::now() > deadline => bail!("{PROGRAM} gave no result in time"),
            None => thread::sleep(LOOK),
        }
    };
    let mut text = String::new();
    if let Some(out) = &mut client.0.stdout {
        out.read_to_string(&mut text)?;
    }
    if !status.success() {
        bail!("{PROGRAM}: {status}");
    }
    parse(&text).with_context(|| format!("{PROGRAM} printed no result: {text:?}"))
}

fn command(test: Test, core: usize, port: u16) -> Command {
    let mut command = Command::new(PROGRAM);
    let transports = match test.transport {
        Transport::Posix => "posix,self",
        Transport::Tcp => "tcp,self",
    };
    command
        .env("UCX_TLS", transports)
        .args(["-p", &port.to_string(), "-c", &core.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    if test.transport == Transport::Tcp {
        command.env("UCX_NET_DEVICES", "lo");
    }
    command
}

/// Whether somebody listens on a TCP port; connecting would take the server's one peer away. Columns of proc_net_tcp(5):
/// number, local address and port, remote ones, state (0A is LISTEN).
fn is_listening(port: u16) -> bool {
    let suffix = format!(":{port:04X}");
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|table| {
        fs::read_to_string(table).is_ok_and(|text| {
            text.lines().any(|line| {
                let mut fields = line.split_whitespace().skip(1);
                fields.next().is_some_and(|local| local.ends_with(&suffix))
                    && fields.nth(1) == Some("0A")
            })
        })
    })
}

/// The last line of numbers: iterations; median, average and overall latency in µs; average and overall bandwidth in
/// MiB/s; average and overall messages a second.
fn parse(text: &str) -> Option<Figures> {
    let numbers = text.lines().rev().find_map(|line| {
        let numbers: Vec<f64> = line
            .trim_start_matches("Final:")
            .split_whitespace()
            .map_while(|word| word.parse().ok())
            .collect();
        (numbers.len() == 8).then_some(numbers)
    })?;
    Some(Figures {
        latency_ns: numbers[1] * 1e3,
        gb_per_s: numbers[5] * f64::from(1 << 20) / 1e9,
        msgs_per_s: numbers[7],
    })
}

/// Ends with its owner.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Errors: it has ended by itself, which is the rule.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const PROGRAM: &str = "ucx_perftest";
const LIMIT: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_is_the_last_line_of_numbers() {
        let text = "\
|     Test     | # iterations | 50.0%ile | average | overall |  average |  overall |  average  |  overall  |
+--------------+--------------+----------+---------+---------+----------+----------+-----------+-----------+
                       20000      0.250     0.300     0.400      100.00     1000.00     34304       20317
";
        let figures = parse(text).expect("it is there");
        assert_eq!(figures.latency_ns, 250.0);
        assert_eq!(figures.gb_per_s, 1.048_576);
        assert_eq!(figures.msgs_per_s, 20317.0);
        assert_eq!(parse("no such transport\n"), None);
    }
}
