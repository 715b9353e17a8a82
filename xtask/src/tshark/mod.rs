//! What our packets look like to others: two processes in two network namespaces talk over a veth pair, dumpcap
//! records it, tshark takes every packet apart, and `icrc` checks each ICRC by code of its own.
//!
//! The pair is told to segment no sends, so the kernel cuts ours itself: what is on the cable is what a real network
//! card would be given, and the identification of each segment is the one that the kernel wrote.

mod icrc;
mod network;

use std::collections::BTreeMap;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use self::network::{Network, Side};
use crate::args::Args;
use crate::process::{Job, tail};
use crate::tally::{Outcome, Tally};
use crate::tree::{self, Release};

const BOUND: Duration = Duration::from_secs(60);
/// How long the recorder may take to begin, and to write down the last packets.
const RECORDER: Duration = Duration::from_secs(15);

/// Each row has that many messages, and no fewer packets.
const ITERATIONS: usize = 20;

/// A client that is run on both sides, and the opcodes that must be seen of it.
struct Row {
    name: &'static str,
    program: &'static str,
    args: &'static [&'static str],
    opcodes: &'static [u8],
}

/// GID 0 is link-local, 1 IPv4, 2 global IPv6. ibv_*_pingpong sends both ways; perftest one way.
const ROWS: &[Row] = &[
    Row {
        name: "RC send, IPv4, 16 segments a message",
        program: "ibv_rc_pingpong",
        args: &["-g", "1", "-m", "4096", "-s", "65536", "-n", "20"],
        opcodes: &[0x00, 0x01, 0x02, 0x11],
    },
    Row {
        name: "RC send, IPv6, short last packet with padding",
        program: "ibv_rc_pingpong",
        args: &["-g", "2", "-m", "1024", "-s", "5001", "-n", "20"],
        opcodes: &[0x00, 0x01, 0x02, 0x11],
    },
    Row {
        name: "RC send, link-local, one packet",
        program: "ibv_rc_pingpong",
        args: &["-g", "0", "-s", "3", "-n", "20"],
        opcodes: &[0x04, 0x11],
    },
    Row {
        name: "UC send, IPv4",
        program: "ibv_uc_pingpong",
        args: &["-g", "1", "-m", "1024", "-s", "2500", "-n", "20"],
        opcodes: &[0x20, 0x21, 0x22],
    },
    Row {
        name: "UC send, IPv6, one packet",
        program: "ibv_uc_pingpong",
        args: &["-g", "2", "-s", "64", "-n", "20"],
        opcodes: &[0x24],
    },
    Row {
        name: "UD send, IPv4",
        program: "ibv_ud_pingpong",
        args: &["-g", "1", "-s", "1001", "-n", "20"],
        opcodes: &[0x64],
    },
    Row {
        name: "UD send, IPv6",
        program: "ibv_ud_pingpong",
        args: &["-g", "2", "-s", "2048", "-n", "20"],
        opcodes: &[0x64],
    },
    Row {
        name: "RC write, IPv4",
        program: "ib_write_bw",
        args: &[
            "-d", "adverb0", "-x", "1", "-F", "-n", "20", "-s", "65536", "-m", "4096",
        ],
        opcodes: &[0x06, 0x07, 0x08, 0x11],
    },
    Row {
        name: "UC write, IPv6",
        program: "ib_write_bw",
        args: &[
            "-d", "adverb0", "-x", "2", "-F", "-n", "20", "-s", "3000", "-m", "1024", "-c", "UC",
        ],
        opcodes: &[0x26, 0x27, 0x28],
    },
    Row {
        name: "RC write, IPv6, one packet",
        program: "ib_write_lat",
        args: &["-d", "adverb0", "-x", "2", "-F", "-n", "20", "-s", "5"],
        opcodes: &[0x0A, 0x11],
    },
    Row {
        name: "RC write with a traffic class, IPv4",
        program: "ib_write_bw",
        args: &[
            "-d",
            "adverb0",
            "-x",
            "1",
            "-F",
            "-n",
            "20",
            "-s",
            "9000",
            "-m",
            "4096",
            "--tclass=104",
        ],
        opcodes: &[0x06, 0x07, 0x08],
    },
    Row {
        name: "RC write with a traffic class, IPv6",
        program: "ib_write_bw",
        args: &[
            "-d",
            "adverb0",
            "-x",
            "2",
            "-F",
            "-n",
            "20",
            "-s",
            "9000",
            "-m",
            "4096",
            "--tclass=104",
        ],
        opcodes: &[0x06, 0x07, 0x08],
    },
    Row {
        name: "RC read, IPv4",
        program: "ib_read_bw",
        args: &[
            "-d", "adverb0", "-x", "1", "-F", "-n", "20", "-s", "20001", "-m", "1024",
        ],
        opcodes: &[0x0C, 0x0D, 0x0E, 0x0F],
    },
    Row {
        name: "RC read, link-local, one packet",
        program: "ib_read_lat",
        args: &["-d", "adverb0", "-x", "0", "-F", "-n", "20", "-s", "8"],
        opcodes: &[0x0C, 0x10],
    },
    Row {
        name: "RC fetch and add, IPv4",
        program: "ib_atomic_lat",
        args: &[
            "-d",
            "adverb0",
            "-x",
            "1",
            "-F",
            "-n",
            "20",
            "-A",
            "FETCH_AND_ADD",
        ],
        opcodes: &[0x14, 0x12],
    },
    Row {
        name: "RC compare and swap, IPv6",
        program: "ib_atomic_lat",
        args: &[
            "-d",
            "adverb0",
            "-x",
            "2",
            "-F",
            "-n",
            "20",
            "-A",
            "CMP_AND_SWAP",
        ],
        opcodes: &[0x13, 0x12],
    },
];

pub(crate) fn command(args: Args) -> Result<bool> {
    let words = args.words()?;
    run(&Release::built()?, &words)
}

pub(crate) fn run(release: &Release, words: &[String]) -> Result<bool> {
    let mut tally = Tally::new("tshark");
    if let Some(why) = impossible() {
        tally.add("all", 0.0, Outcome::Skipped(why));
        return Ok(tally.finish());
    }
    let logs = release.logs("tshark")?;
    let network = match Network::make() {
        Ok(network) => network,
        Err(error) => {
            // A container that may not make namespaces is no fault of ours.
            let why = format!("no network namespaces here: {error:#}");
            tally.add("all", 0.0, Outcome::Skipped(why));
            return Ok(tally.finish());
        }
    };
    for row in ROWS {
        if !words.iter().all(|word| row.name.contains(word.as_str())) {
            continue;
        }
        if !tree::on_path(row.program) {
            let why = format!("{} is not installed", row.program);
            tally.add(row.name, 0.0, Outcome::Skipped(why));
            continue;
        }
        let started = Instant::now();
        let file = logs.join(format!("{}.pcap", row.name.replace([' ', ','], "-")));
        let outcome = record(release, &network, row, &file)
            .and_then(|()| judge(row, &file))
            .map_or_else(
                |error| Outcome::Failed(format!("{error:#}")),
                |()| Outcome::Passed,
            );
        tally.add(row.name, started.elapsed().as_secs_f64(), outcome);
    }
    Ok(tally.finish())
}

fn impossible() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("recording needs root".to_owned());
    }
    let missing = ["tshark", "dumpcap", "ip"]
        .iter()
        .find(|program| !tree::on_path(program))?;
    Some(format!("{missing} is not installed"))
}

/// Runs both sides of a row while side a's interface is recorded into `file`.
fn record(release: &Release, network: &Network, row: &Row, file: &Path) -> Result<()> {
    let mut recorder = network.command(Side::A, "dumpcap");
    recorder
        .args([
            "-q",
            "-P",
            "-f",
            "udp port 4791",
            "-i",
            &network.interface(Side::A),
            "-w",
        ])
        .arg(file);
    let mut recorder = Job::start(&mut recorder, Some(&file.with_extension("dumpcap.log")))?;
    wait_until(RECORDER, || {
        file.metadata().is_ok_and(|found| found.len() >= 24)
    })
    .with_context(|| format!("dumpcap does not begin:\n{}", tail(&recorder.output(), 5)))?;

    let mut server = side(release, network, Side::B, row);
    let mut server = Job::start(&mut server, Some(&file.with_extension("server.log")))?;
    wait_until(RECORDER, || network.listens(Side::B)).with_context(|| {
        format!(
            "the server does not listen:\n{}",
            tail(&server.output(), 10)
        )
    })?;
    let mut client = side(release, network, Side::A, row);
    client.arg(network.address(Side::B));
    let mut client = Job::start(&mut client, Some(&file.with_extension("client.log")))?;
    let until = Instant::now() + BOUND;
    for (name, job) in [("client", &mut client), ("server", &mut server)] {
        match job.wait_until(until)? {
            Some(status) if status.success() => {}
            Some(status) => bail!("{name}: {status}\n{}", tail(&job.output(), 10)),
            None => bail!("{name} does not end\n{}", tail(&job.output(), 10)),
        }
    }
    // The kernel hands over what it has captured four times a second; what dumpcap holds it writes when it is told to
    // stop.
    std::thread::sleep(Duration::from_secs(1));
    if let Some(pid) = Pid::from_raw(recorder.group()) {
        kill_process(pid, Signal::INT)?;
    }
    if recorder.wait_until(Instant::now() + RECORDER)?.is_none() {
        bail!("dumpcap does not end");
    }
    Ok(())
}

fn side(release: &Release, network: &Network, side: Side, row: &Row) -> Command {
    let mut command = network.command(side, &release.adverb.display().to_string());
    command
        .args([
            "run",
            "--links",
            "udp",
            "--netdev",
            &network.interface(side),
            "--",
            row.program,
        ])
        .args(row.args);
    command
}

fn wait_until(bound: Duration, mut holds: impl FnMut() -> bool) -> Result<()> {
    let until = Instant::now() + bound;
    while !holds() {
        if Instant::now() > until {
            bail!("nothing within {} s", bound.as_secs());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// What tshark says of one packet.
struct Dissected {
    opcode: u8,
    psn: u32,
    info: String,
}

/// tshark's view and the bytes must agree with each other and with the row.
fn judge(row: &Row, file: &Path) -> Result<()> {
    let packets = icrc::read(file)?;
    let dissected = dissect(file)?;
    if packets.len() < ITERATIONS || packets.len() != dissected.len() {
        bail!(
            "{} packets recorded, {} dissected",
            packets.len(),
            dissected.len()
        );
    }
    let mut seen: BTreeMap<u8, usize> = BTreeMap::new();
    let mut identified = 0;
    let class = if row.args.contains(&"--tclass=104") {
        104
    } else {
        0
    };
    for (number, (packet, view)) in packets.iter().zip(&dissected).enumerate() {
        let number = number + 1;
        packet
            .check()
            .with_context(|| format!("packet {number} ({})", view.info))?;
        if (packet.opcode(), packet.psn()) != (view.opcode, view.psn) {
            bail!(
                "packet {number}: tshark says {:#x} {:#x}",
                view.opcode,
                view.psn
            );
        }
        if view.info.contains("nknown") || view.info.contains("eserved") {
            bail!("packet {number}: tshark does not know it: {}", view.info);
        }
        if packet.traffic_class() != class {
            bail!(
                "packet {number}: traffic class {}, not {class}",
                packet.traffic_class()
            );
        }
        *seen.entry(view.opcode).or_default() += 1;
        identified += usize::from(packet.identification() > 0);
    }
    if let Some(missing) = row.opcodes.iter().find(|opcode| !seen.contains_key(opcode)) {
        bail!("no packet with opcode {missing:#04x}, only {seen:02x?}");
    }
    println!(
        "      {} packets, {identified} of them segments with an IPv4 identification above 0",
        packets.len()
    );
    if row.args.contains(&"65536") && identified == 0 {
        bail!("the kernel segmented nothing, so nothing was learnt about identifications");
    }
    Ok(())
}

/// tshark's dissectors that guess what is in an InfiniBand packet.
const GUESSERS: [&str; 6] = [
    "rpcordma",
    "smb_direct",
    "nvme-rdma",
    "lnet",
    "iser",
    "infiniband_sdp",
];

fn dissect(file: &Path) -> Result<Vec<Dissected>> {
    let output = Command::new("tshark")
        .args(["-n", "-r"])
        .arg(file)
        // These guess at payloads, and ours are no protocol at all.
        .args(
            GUESSERS
                .iter()
                .flat_map(|name| ["--disable-protocol", name]),
        )
        .args(["-T", "fields", "-E", "separator=|"])
        .args(["-e", "_ws.malformed", "-e", "_ws.expert.message"])
        .args([
            "-e",
            "infiniband.bth.opcode",
            "-e",
            "infiniband.bth.psn",
            "-e",
            "_ws.col.Info",
        ])
        .output()
        .context("cannot run tshark")?;
    if !output.status.success() {
        bail!("tshark: {}", String::from_utf8_lossy(&output.stderr));
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().map(dissected).collect()
}

fn dissected(line: &str) -> Result<Dissected> {
    let mut fields = line.splitn(5, '|');
    let mut next = || {
        fields
            .next()
            .with_context(|| format!("tshark printed {line:?}"))
    };
    let (malformed, expert) = (next()?, next()?);
    if !malformed.is_empty() || expert.to_lowercase().contains("malformed") {
        bail!("malformed: {line}");
    }
    let (opcode, psn, info) = (next()?, next()?, next()?);
    Ok(Dissected {
        opcode: opcode
            .parse()
            .with_context(|| format!("no RoCE packet: {line}"))?,
        psn: psn
            .parse()
            .with_context(|| format!("no sequence number: {line}"))?,
        info: info.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_tshark_is_taken_apart() {
        let packet = dissected("||17|15893677|RC Acknowledge QP=0x5561fc ").unwrap();
        assert_eq!((packet.opcode, packet.psn), (17, 15_893_677));
        assert!(dissected("1|Malformed Packet|17|1|RC").is_err());
        assert!(dissected("||||").is_err());
    }
}
