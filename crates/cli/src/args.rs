//! What was typed. Nothing here looks at the machine or the environment; `plan.rs` does.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::shape::{self, Shape};
use crate::way::{self, Bounds, Way};

/// RDMA verbs on any Linux machine, and a measured answer to how your program should wait.
#[derive(Debug, Parser)]
#[command(name = "adverb", version, about, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure ways to wait under several shapes of traffic, and say which fits which
    Compare(CompareArgs),
    /// Measure one operation between two processes, beside the machine's own limit
    Bench(BenchArgs),
    /// Run a verbs program, unmodified, on the software NIC
    Run(RunArgs),
    /// Print the directory of the drop-in libraries (for LD_LIBRARY_PATH)
    Libdir,
    /// List RDMA devices, software and system ones alike
    Devices(DevicesArgs),
    /// List the chapters of the book, or run the program of one and print what happens at each verb
    Learn(LearnArgs),
    /// One of the two processes of a measurement; started by `compare` and `bench`
    #[command(hide = true)]
    Peer,
    /// What `run --sysfs` shows, as JSON
    #[command(name = crate::sysfs::COMMAND, hide = true)]
    Sysfs,
    /// The program of a chapter; started by `learn`
    #[command(name = crate::cmd::learn::COMMAND, hide = true)]
    Lesson { chapter: String },
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Network interfaces that become devices: a name, a list with commas, or `all` (default: lo)
    #[arg(long, value_name = "IF")]
    pub(crate) netdev: Option<String>,
    /// Ways that packets may take: a subset of loopback,shm,udp (default: all of them)
    #[arg(long, value_name = "L", value_delimiter = ',')]
    pub(crate) links: Vec<Link>,
    /// Show the devices in /sys/class/infiniband and /dev/infiniband too (needs root or user namespaces)
    #[arg(long)]
    pub(crate) sysfs: bool,
    /// The program and its arguments; its exit status and signals become those of this command
    #[arg(
        value_name = "CMD",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct DevicesArgs {
    /// Show limits and the table of GIDs too
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct LearnArgs {
    /// Number or name of a chapter
    pub(crate) chapter: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// Write a report to FILE: one page of HTML that needs nothing else
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Write all figures to FILE as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Shapes of traffic: closed-N, gap-T, jitter-T, poisson-T, burst-N, burst-N-T, such as closed-64,gap-1ms,burst-16
    #[arg(long, value_name = "S", value_delimiter = ',', value_parser = shape::parse)]
    pub(crate) shapes: Vec<Shape>,
    /// Gaps between requests, such as 10us,1ms: short for `--shapes closed-1,gap-10us,gap-1ms`
    #[arg(long, value_name = "GAP", value_delimiter = ',', value_parser = gap_shape)]
    pub(crate) gaps: Vec<Shape>,
    /// A recorded trace as one more shape: a gap a line, in ns or with us, ms or s
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Vec<PathBuf>,
    /// Ways to wait: busy, event, event-batch, adaptive, adaptive:30%, adaptive:50us, tcp, unix
    #[arg(long, value_name = "W", value_delimiter = ',', value_parser = way::parse)]
    pub(crate) ways: Vec<Way>,
    /// All shapes, more ways to wait, and ten minutes
    #[arg(long)]
    pub(crate) thorough: bool,
    /// Time for all measurements together, in seconds (default: 45, thorough 570)
    #[arg(long, value_name = "N", value_parser = seconds)]
    pub(crate) seconds: Option<f64>,
    /// Device to use (default: the first one, adverb0); `adverb devices` lists them
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Option<String>,
    /// Ways that packets may take: a subset of shm,udp (default: both, which is shm)
    #[arg(long, value_name = "L", value_delimiter = ',')]
    pub(crate) links: Vec<Link>,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// What to measure
    #[arg(required_unless_present = "targets", value_name = "TEST")]
    pub(crate) tests: Vec<Test>,
    /// Measure what the data path is held to, each line in turns with its limit or peer (about two minutes)
    #[arg(long, conflicts_with_all = ["tests", "link", "size", "wait"])]
    pub(crate) targets: bool,
    /// Links to measure over; loopback is one process, the others two
    #[arg(long, value_name = "L", value_delimiter = ',', default_values_t = [Link::Shm])]
    pub(crate) link: Vec<Link>,
    /// Message size in bytes; K and M are powers of two (default: 8 for latency, 64K for bandwidth)
    #[arg(long, value_name = "B", value_parser = size)]
    pub(crate) size: Option<usize>,
    /// How both sides wait
    #[arg(long, value_name = "W", value_delimiter = ',', default_values_t = [Model::Busy])]
    pub(crate) wait: Vec<Model>,
    /// Device to use (default: the first one)
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Option<String>,
    /// Time for each figure, in seconds
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Write all figures to FILE as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

/// A way that packets take (`ADVERB_LINKS`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Link {
    /// Inside one process
    Loopback,
    /// Shared memory between processes of one user on one host
    Shm,
    /// RoCEv2 over UDP sockets
    Udp,
}

/// How a process waits for completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Model {
    /// Poll without pause
    Busy,
    /// Arm, sleep on the event, drain in batches
    Event,
    /// Poll for as long as pays, then arm, poll once more, sleep
    Adaptive,
}

/// One measurement of `bench`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Test {
    SendLat,
    SendBw,
    WriteLat,
    WriteBw,
    ReadLat,
    ReadBw,
    AtomicLat,
    AtomicBw,
}

macro_rules! name_as_typed {
    ($($kind:ty),*) => {$(
        impl $kind {
            /// The name on the command line, in tables and in JSON.
            pub(crate) fn name(self) -> String {
                self.to_possible_value()
                    .expect("no value is hidden")
                    .get_name()
                    .to_owned()
            }
        }
        impl std::fmt::Display for $kind {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(&self.name())
            }
        }
    )*};
}
name_as_typed!(Link, Model, Test);

impl Model {
    pub(crate) fn way(self) -> Way {
        match self {
            Self::Busy => Way::Busy,
            Self::Event => Way::EventBatch,
            Self::Adaptive => Way::Adaptive(Bounds::NONE),
        }
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(n) if (0.1..=3600.0).contains(&n) => Ok(n),
        _ => Err("a number from 0.1 to 3600 is needed".to_owned()),
    }
}

fn gap_shape(text: &str) -> Result<Shape, String> {
    shape::gap(text)?;
    shape::parse(&format!("gap-{text}"))
}

fn size(text: &str) -> Result<usize, String> {
    let (number, shift) = match text.as_bytes().last() {
        Some(b'K' | b'k') => (&text[..text.len() - 1], 10),
        Some(b'M' | b'm') => (&text[..text.len() - 1], 20),
        _ => (text, 0),
    };
    match number.parse::<usize>() {
        Ok(n) if n >= 1 && n <= MAX_SIZE >> shift => Ok(n << shift),
        _ => Err(format!(
            "a size from 1 to {MAX_SIZE} bytes is needed, such as 4096, 4K or 1M"
        )),
    }
}

/// Largest message that `bench` sends: a window of them has to fit in memory on both sides.
pub(crate) const MAX_SIZE: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_binary_suffixes() {
        assert_eq!(size("8"), Ok(8));
        assert_eq!(size("4K"), Ok(4096));
        assert_eq!(size("1M"), Ok(1 << 20));
        for bad in ["0", "", "K", "17M", "1G", "-1"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_command_of_run_keeps_its_own_options() {
        let cli = Cli::try_parse_from([
            "adverb", "run", "--links", "shm,udp", "--", "x", "--links", "y",
        ])
        .unwrap();
        let Command::Run(run) = cli.command else {
            panic!("not run")
        };
        assert_eq!(run.links, [Link::Shm, Link::Udp]);
        assert_eq!(run.command, ["x", "--links", "y"]);
    }

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
