//! Coverage-guided fuzzing (fuzz/): libFuzzer on the stable toolchain.
//!
//! The instrumentation is that of LLVM's own pass, which the compiler can be told to run; nothing nightly, no
//! sanitizer. Every run begins with the seeds in fuzz/seeds, each of which was a finding once or reaches far, and goes
//! on from what earlier runs on this machine have learnt (target/fuzz/corpus).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::args::Args;
use crate::process::{Job, tail};
use crate::step;
use crate::tally::{Outcome, Tally};
use crate::tree;

pub(crate) const TARGETS: [&str; 6] = ["packet", "mad", "engine", "ring", "shm", "nic"];

const BUILD_BOUND: Duration = Duration::from_secs(15 * 60);
/// An input that takes longer than this is a finding.
const INPUT_SECONDS: u32 = 20;
/// What a target may take beyond its time: the seeds and the corpus come first.
const MARGIN: Duration = Duration::from_secs(120);

/// One counter for each edge, their addresses, and the operands of comparisons, as libFuzzer wants them. One unit per
/// crate, because each unit's counters would be registered by themselves.
const INSTRUMENTATION: &str = "-Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Ccodegen-units=1";

pub(crate) fn command(mut args: Args) -> Result<bool> {
    let seconds = args.value("--seconds")?.unwrap_or(60);
    let words = args.words()?;
    run(seconds, &words)
}

/// Runs each target whose name is among `words` (all of them if there are none) for so many seconds.
pub(crate) fn run(seconds: u32, words: &[String]) -> Result<bool> {
    if let Some(unknown) = words.iter().find(|word| !TARGETS.contains(&word.as_str())) {
        bail!("{unknown}: the targets are {}", TARGETS.join(", "));
    }
    let mut tally = Tally::new("fuzz");
    if !tree::on_path("c++") {
        let why = "no C++ compiler, which libFuzzer needs (package g++)";
        tally.add("all", 0.0, Outcome::Skipped(why.to_owned()));
        return Ok(tally.finish());
    }
    let target = tree::target_dir()?.join("fuzz");
    let Some(binaries) = build(&target)? else {
        bail!("the fuzz targets do not build");
    };
    for name in TARGETS {
        if !words.is_empty() && !words.iter().any(|word| word == name) {
            continue;
        }
        let started = Instant::now();
        let outcome = fuzz(name, seconds, &binaries.join(name), &target)?;
        tally.add(name, started.elapsed().as_secs_f64(), outcome);
    }
    Ok(tally.finish())
}

/// Builds for the host by its name, so that build scripts are not instrumented; gives the folder of the programs.
fn build(target: &Path) -> Result<Option<PathBuf>> {
    let host = tree::host()?;
    let mut cargo = tree::cargo();
    cargo
        .args(["build", "--quiet", "--release", "--target", &host])
        .args(["--manifest-path", "fuzz/Cargo.toml", "--target-dir"])
        .arg(target)
        .env("RUSTFLAGS", INSTRUMENTATION);
    let built = step::run(&mut cargo, BUILD_BOUND)?;
    Ok(built.then(|| target.join(host).join("release")))
}

fn fuzz(name: &str, seconds: u32, binary: &Path, target: &Path) -> Result<Outcome> {
    let corpus = target.join("corpus").join(name);
    let findings = target.join("findings");
    let seeds = tree::root().join("fuzz/seeds").join(name);
    for dir in [&corpus, &findings] {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    }
    let log = target.join(format!("{name}.log"));
    let mut command = Command::new(binary);
    command
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-timeout={INPUT_SECONDS}"))
        .arg(format!("-artifact_prefix={}/{name}-", findings.display()))
        .args(["-max_len=2048", "-print_final_stats=1"])
        .arg(&corpus)
        .args(seeds.is_dir().then_some(&seeds))
        // A directory of its own for the process that is attacked.
        .env(
            "ADVERB_UDP_PORT",
            (20_000 + std::process::id() % 20_000).to_string(),
        );
    let mut job = Job::start(&mut command, Some(&log))?;
    let until = Instant::now() + Duration::from_secs(seconds.into()) + MARGIN;
    let Some(status) = job.wait_until(until)? else {
        return Ok(Outcome::Failed(format!("does not end; {}", log.display())));
    };
    let output = job.output();
    if !status.success() {
        return Ok(Outcome::Failed(format!(
            "{status}; the input is in {}\n{}",
            findings.display(),
            tail(&output, 40)
        )));
    }
    let executions = output
        .lines()
        .find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
    println!(
        "{name}: {} executions, {}",
        executions.unwrap_or(" ?").trim(),
        coverage(&output)
    );
    Ok(Outcome::Passed)
}

/// "cov: 277 ft: 367 corp: 125/27Kb" of the last line that has it.
fn coverage(output: &str) -> &str {
    let line = output.lines().rfind(|line| line.contains(" cov: "));
    line.and_then(|line| {
        let from = line.find("cov: ")?;
        let to = line.find(" lim:").or_else(|| line.find(" exec/s"))?;
        line.get(from..to)
    })
    .unwrap_or("no coverage told")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coverage_is_taken_from_the_last_line_that_has_it() {
        let output = "#1 INITED cov: 1 ft: 2 corp: 1/1b exec/s: 0\n#9 DONE   cov: 128 ft: 543 corp: 196/7510b lim: 191 exec/s: 7881\nDone";
        assert_eq!(coverage(output), "cov: 128 ft: 543 corp: 196/7510b");
        assert_eq!(coverage("nothing"), "no coverage told");
    }
}
