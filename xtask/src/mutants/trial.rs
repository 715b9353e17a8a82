//! One mutant before one judge.

use std::fs;
use std::path::Path;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::list::Judge;
use super::workspace::{Binaries, Workspace};
use crate::process::{self, Job, tail};

/// Worlds that a mutant has to survive, a few seconds' worth. Everybody lives through the same ones, so that the score
/// depends neither on luck nor on the machine.
const WORLDS: u32 = 200;
const FIRST_SEED: u32 = 1;
/// By then the worlds have ended by themselves, whatever the machine does beside.
const SIM_SECONDS: u32 = 600;

/// Longer than any judge takes for what is right.
const BOUND: Duration = Duration::from_secs(180);
/// Who takes so many times as long as for what is right, and this besides, never ends.
const PATIENCE: u32 = 8;
const AT_LEAST: Duration = Duration::from_secs(20);

pub(super) enum Ruling {
    /// Nothing is wrong; how long it took to say so.
    Right(Duration),
    /// The tests that failed, or how the program ended.
    Wrong(String),
    Endless,
}

/// The bound for mutants before a judge who took so long over what is right.
pub(super) fn bound(took: Duration) -> Duration {
    took * PATIENCE + AT_LEAST
}

pub(super) const UNBROKEN: u32 = 0;

pub(super) fn hold(
    workspace: &Workspace,
    binaries: &Binaries,
    judge: &Judge,
    number: u32,
    bound: Option<Duration>,
    log: &Path,
) -> Result<Ruling> {
    let mut command = process::command(binaries.of(judge)?);
    command
        .current_dir(workspace.directory_of(&judge.package))
        .env("MUTANT", number.to_string());
    let worlds = judge.target == "sim";
    if worlds {
        command
            .args(["--seconds", &SIM_SECONDS.to_string()])
            .args(["--worlds", &WORLDS.to_string()])
            .args(["--first", &FIRST_SEED.to_string()]);
    } else {
        command.args(&judge.filters);
    }
    let started = Instant::now();
    let mut job = Job::start(&mut command, Some(log))?;
    let status = job.wait_until(started + bound.unwrap_or(BOUND))?;
    job.end();
    let said = fs::read_to_string(log).unwrap_or_default();
    let Some(status) = status else {
        return Ok(Ruling::Endless);
    };
    if !worlds && number == UNBROKEN && said.contains("running 0 tests") {
        bail!("{judge}: there is no such test");
    }
    Ok(if status.success() {
        Ruling::Right(started.elapsed())
    } else {
        Ruling::Wrong(complaint(status, &said))
    })
}

/// What a judge says who has found something wrong.
fn complaint(status: ExitStatus, said: &str) -> String {
    let failed: Vec<&str> = said
        .lines()
        .filter_map(|l| l.strip_prefix("test ")?.strip_suffix(" ... FAILED"))
        .collect();
    match failed.as_slice() {
        // libtest says 101; whatever else it is, it is worth a word.
        [first, rest @ ..] if status.code() == Some(101) => match rest.len() {
            0 => (*first).to_owned(),
            more => format!("{first} and {more} more"),
        },
        _ if status.code() == Some(1) => "the worlds".to_owned(),
        _ => format!("{status}: {}", tail(said, 1)),
    }
}
