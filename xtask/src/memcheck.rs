//! The C programs of tests/c under valgrind's memcheck, and built with AddressSanitizer: nothing is read or written that
//! should not be, and nothing is lost in the library's start, use and stop.
//!
//! Leaks are counted in programs that close what they open. One program leaks on purpose, and both tools have to say so;
//! otherwise they have seen nothing in the others either.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::args::Args;
use crate::clients::{hang_report, under_adverb};
use crate::ctests;
use crate::process::{Job, tail};
use crate::tally::{Outcome, Tally};
use crate::tree::{self, Release};

/// The programs take two seconds each, and have an alarm of 60 s of their own.
const BOUND: Duration = Duration::from_secs(75);

/// The exit status by which a tool says that it has found something.
const FOUND: i32 = 99;

#[derive(Clone, Copy)]
enum Tool {
    Memcheck,
    Sanitizer,
}

const TOOLS: [(Tool, &str); 2] = [(Tool::Memcheck, "valgrind"), (Tool::Sanitizer, "sanitizer")];

pub(crate) fn command(args: Args) -> Result<bool> {
    let words = args.words()?;
    run(&Release::built()?, &words)
}

pub(crate) fn run(release: &Release, words: &[String]) -> Result<bool> {
    let mut tally = Tally::new("memcheck");
    let logs = release.logs("memcheck")?;
    for (tool, label) in TOOLS {
        let missing = match tool {
            _ if !ctests::possible() => Some("no cc, or no infiniband/verbs.h"),
            Tool::Memcheck if !tree::on_path("valgrind") => Some("valgrind is not installed"),
            _ => None,
        };
        if let Some(why) = missing {
            tally.add(label, 0.0, Outcome::Skipped(why.to_owned()));
            continue;
        }
        for name in ctests::programs(words)? {
            let leaks = ctests::closes_everything(&name)?;
            let log = logs.join(format!("{label}-{name}.log"));
            let started = Instant::now();
            let outcome = match run_one(release, tool, &name, leaks, &log)? {
                End::Good => Outcome::Passed,
                End::Found(text) | End::Failed(text) => Outcome::Failed(text),
            };
            let name = format!("{label:9} {name}{}", if leaks { ", and leaks" } else { "" });
            tally.add(&name, started.elapsed().as_secs_f64(), outcome);
        }
        let started = Instant::now();
        let log = logs.join(format!("{label}-leak.log"));
        let outcome = match run_one(release, tool, ctests::LEAK, true, &log)? {
            End::Found(_) => Outcome::Passed,
            End::Good => Outcome::Failed("it has not seen a leak that is there".to_owned()),
            End::Failed(text) => Outcome::Failed(text),
        };
        let name = format!("{label:9} finds a leak that is there");
        tally.add(&name, started.elapsed().as_secs_f64(), outcome);
    }
    Ok(tally.finish())
}

enum End {
    Good,
    /// The tool has something to say.
    Found(String),
    Failed(String),
}

fn run_one(release: &Release, tool: Tool, name: &str, leaks: bool, log: &Path) -> Result<End> {
    let [link, _] = ctests::links_of(name)?;
    let mut command = match tool {
        Tool::Memcheck => {
            let binary = ctests::compile(release, name)?;
            let mut command = under_adverb(release, link, "valgrind");
            // Valgrind runs one thread at a time, and by its default whoever gives up the turn may take it again at once:
            // beside a thread that polls, the others starve for as long as the machine pleases.
            command
                .args([
                    "-q",
                    "--fair-sched=yes",
                    "--num-callers=30",
                    "--leak-check=full",
                ])
                .arg("--show-leak-kinds=definite")
                .arg(format!(
                    "--errors-for-leak-kinds={}",
                    if leaks { "definite" } else { "none" }
                ))
                .arg(format!("--error-exitcode={FOUND}"))
                .arg(binary);
            command
        }
        Tool::Sanitizer => {
            let options = ["-fsanitize=address", "-fno-omit-frame-pointer"];
            let binary: PathBuf =
                ctests::compile_with(release, name, &format!("{name}-asan"), &options)?;
            let program = binary.to_str().context("a path that is not UTF-8")?;
            let mut command = under_adverb(release, link, program);
            command.env(
                "ASAN_OPTIONS",
                format!("exitcode={FOUND}:detect_leaks={}", u8::from(leaks)),
            );
            command
        }
    };
    let mut job = Job::start(&mut command, Some(log))?;
    Ok(match job.wait_until(Instant::now() + BOUND)? {
        None => End::Failed(format!("did not end\n{}", hang_report(&job))),
        Some(status) if status.success() => End::Good,
        Some(status) if status.code() == Some(FOUND) => End::Found(tail(&job.output(), 60)),
        Some(status) => End::Failed(format!("{status}\n{}", tail(&job.output(), 60))),
    })
}
