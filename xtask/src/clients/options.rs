//! perftest's options, one at a time, on each test and each transport that it has: a table of what completes.
//!
//! `clients` runs the combinations that programs use; this runs what else can be typed.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use anyhow::Result;

use super::listening::Ports;
use super::matrix::{Proof, Row, Shape};
use super::{links, run_row};
use crate::args::Args;
use crate::tally::{Outcome, Tally};
use crate::tree::{self, Release};

/// The tests of one operation, and what goes for them.
struct Operation {
    name: &'static str,
    transports: &'static [&'static str],
    /// Whether both sides can wait for events.
    waits: bool,
    /// Whether there is data that can be sent inline, and of any size.
    has_data: bool,
    inlines: bool,
    /// Whether receives are taken, so that an SRQ makes sense.
    receives: bool,
}

const OPERATIONS: &[Operation] = &[
    Operation {
        name: "send",
        transports: &["RC", "UC", "UD", "XRC"],
        waits: true,
        has_data: true,
        inlines: true,
        receives: true,
    },
    Operation {
        name: "write",
        transports: &["RC", "UC", "XRC"],
        waits: false,
        has_data: true,
        inlines: true,
        receives: false,
    },
    Operation {
        name: "read",
        transports: &["RC", "XRC"],
        waits: true,
        has_data: true,
        inlines: false,
        receives: false,
    },
    Operation {
        name: "atomic",
        transports: &["RC", "XRC"],
        waits: true,
        has_data: false,
        inlines: false,
        receives: false,
    },
];

/// The columns of the table: what is typed beside the transport.
const COLUMNS: &[(&str, &str)] = &[
    ("plain", ""),
    ("events", "-e"),
    ("1 byte", "-s 1"),
    ("MTU+1", "-s 4097"),
    ("64 KiB", "-s 65536"),
    ("MTU 256", "-s 4096 -m 256"),
    ("-q 4", "-q 4"),
    ("-b", "-b"),
    ("-q4 -b", "-q 4 -b"),
    ("-Q 10", "-Q 10"),
    ("-t 16", "-t 16"),
    ("-l 4", "-l 4"),
    ("-D 1", "-D 1"),
    ("old post", "--use_old_post_send"),
    ("inline", "-s 64 -I 64"),
    ("no inline", "-s 64 -I 0"),
    ("gid 0", "-x 0"),
    ("srq", "--use-srq"),
];

/// UC and UD lose what finds no receive, so no row sends more than a receive queue holds.
const COUNT: &str = "-n 200";

impl Operation {
    fn has(&self, column: &str, transport: &str, is_bandwidth: bool) -> bool {
        let connected = transport != "UD";
        match column {
            "events" => self.waits,
            // A datagram ends at the MTU.
            "MTU+1" | "64 KiB" => self.has_data && connected,
            "MTU 256" => self.has_data && connected,
            "1 byte" => self.has_data,
            "inline" | "no inline" => self.inlines,
            "srq" => self.receives && matches!(transport, "RC" | "UD"),
            "-q 4" | "-b" | "-q4 -b" | "-Q 10" | "-t 16" | "-l 4" => is_bandwidth,
            _ => true,
        }
    }
}

pub(crate) fn command(mut args: Args) -> Result<bool> {
    let links = links(&mut args)?;
    let words = args.words()?;
    run(&Release::built()?, &links, &words)
}

/// What the gate has time for: whatever `clients` does not run, over shared memory.
pub(crate) fn run_some(release: &Release) -> Result<bool> {
    let mut table = Table::new(release)?;
    for operation in OPERATIONS {
        for (at, transport) in operation.transports.iter().enumerate() {
            for (column, (label, _)) in COLUMNS.iter().enumerate() {
                let rare = match *label {
                    "plain" | "events" => *transport == "XRC",
                    "old post" | "srq" | "gid 0" | "inline" | "MTU 256" => (at + column) % 2 == 0,
                    _ => false,
                };
                if rare {
                    table.cell(release, "shm", operation, transport, column, true)?;
                }
            }
        }
    }
    Ok(table.finish())
}

fn run(release: &Release, links: &[String], words: &[String]) -> Result<bool> {
    let mut table = Table::new(release)?;
    for link in links {
        for operation in OPERATIONS {
            for transport in operation.transports {
                for is_bandwidth in [false, true] {
                    let name = program(operation, is_bandwidth);
                    for (column, (label, options)) in COLUMNS.iter().enumerate() {
                        let text = format!("{link} {name} {transport} {label} {options}");
                        if words.iter().all(|word| text.contains(word.as_str())) {
                            table.cell(
                                release,
                                link,
                                operation,
                                transport,
                                column,
                                is_bandwidth,
                            )?;
                        }
                    }
                }
            }
        }
    }
    Ok(table.finish())
}

fn program(operation: &Operation, is_bandwidth: bool) -> String {
    let kind = if is_bandwidth { "bw" } else { "lat" };
    format!("ib_{}_{kind}", operation.name)
}

struct Table {
    tally: Tally,
    logs: std::path::PathBuf,
    ports: Ports,
    /// By link, program and transport: a mark for each column.
    marks: BTreeMap<String, Vec<&'static str>>,
}

impl Table {
    fn new(release: &Release) -> Result<Self> {
        Ok(Self {
            tally: Tally::new("perftest-matrix"),
            logs: release.logs("perftest-matrix")?,
            ports: Ports::new(),
            marks: BTreeMap::new(),
        })
    }

    fn cell(
        &mut self,
        release: &Release,
        link: &str,
        operation: &Operation,
        transport: &str,
        column: usize,
        is_bandwidth: bool,
    ) -> Result<()> {
        let (label, options) = COLUMNS[column];
        let name = program(operation, is_bandwidth);
        let line = self
            .marks
            .entry(format!("{link:4} {name:13} {transport:3}"))
            .or_insert_with(|| vec![""; COLUMNS.len()]);
        if !operation.has(label, transport, is_bandwidth) {
            line[column] = "-";
            return Ok(());
        }
        let mut typed = format!("-d adverb0 -F -c {transport}");
        if !options.contains("-x ") {
            typed.push_str(" -x 1");
        }
        if !options.contains("-D ") {
            typed.push_str(&format!(" {COUNT}"));
        }
        let row = Row {
            program: leak(&name),
            args: format!("{typed} {options}")
                .split_whitespace()
                .map(str::to_owned)
                .collect(),
            shape: Shape::Pair(Proof::Results(1)),
        };
        let started = Instant::now();
        let outcome = if tree::on_path(&name) {
            run_row(release, &row, link, Path::new(&self.logs), &mut self.ports)?
        } else {
            Outcome::Skipped(format!("{name} is not installed"))
        };
        line[column] = match outcome {
            Outcome::Passed => "ok",
            Outcome::Failed(_) => "FAIL",
            Outcome::Skipped(_) => "skip",
        };
        self.tally.add(
            &format!("{link:4} {row}"),
            started.elapsed().as_secs_f64(),
            outcome,
        );
        Ok(())
    }

    /// Prints the table; whether nothing in it failed.
    fn finish(self) -> bool {
        print!("\n{:22}", "");
        for (label, _) in COLUMNS {
            print!(" {label:>9}");
        }
        println!();
        for (name, marks) in &self.marks {
            print!("{name:22}");
            for mark in marks {
                print!(" {mark:>9}");
            }
            println!();
        }
        self.tally.finish()
    }
}

/// There are eight names, and a row keeps one for good.
fn leak(name: &str) -> &'static str {
    Box::leak(name.to_owned().into_boxed_str())
}
