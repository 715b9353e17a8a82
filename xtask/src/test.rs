//! `cargo xtask test`: all set-up and all tests, in the order in which a failure is cheapest to learn of.
//!
//! A failing step does not stop the later ones, except that nothing can run without the release build.

use std::time::Duration;

use anyhow::Result;

use crate::clients::{self, LINKS};
use crate::step::{self, Steps};
use crate::tree::{self, Release};
use crate::{
    age, apt, asan, book, counts, ctests, dist, fuzz, kill, memcheck, mutants, pyverbs, quiet,
    soak, tidy, tshark,
};

/// Bounds of the steps that run cargo; each takes a few minutes at most on two cores.
const BUILD_BOUND: Duration = Duration::from_secs(15 * 60);
const TEST_BOUND: Duration = Duration::from_secs(20 * 60);

/// How long the simulation runs, some 50 million messages; `sim --seconds` does more.
const SIM_SECONDS: u32 = 60;

/// How many pairs are killed, and how often each sleeping client runs; `kill --count` and `soak --runs` do more.
const KILLS: u32 = 20;
/// For each fuzz target; `fuzz --seconds` does more.
const FUZZ_SECONDS: u32 = 4;
const SOAK_RUNS: u32 = 5;
/// How long processes come and go; `age --minutes` does more.
const AGE: Duration = Duration::from_secs(15);

pub(crate) fn run() -> Result<bool> {
    let mut steps = Steps::new();
    steps.step("Debian packages", apt::install_missing);
    steps.step("rustfmt", || {
        cargo(&["fmt", "--all", "--", "--check"], &[], BUILD_BOUND)
    });
    let built = steps.step("cargo build --release", || {
        cargo(&["build", "--release"], &[], BUILD_BOUND)
    });
    steps.step("tidy", tidy::run);
    steps.step("clippy", || {
        cargo(
            &[
                "clippy",
                "--workspace",
                "--all-targets",
                "--",
                "-D",
                "warnings",
            ],
            &[],
            BUILD_BOUND,
        )
    });
    // What would be uploaded is put together, not built again: the build above is of the same files.
    steps.step("packages", || {
        cargo(
            &[
                "package",
                "--workspace",
                "--no-verify",
                "--allow-dirty",
                "--quiet",
            ],
            &[],
            BUILD_BOUND,
        )
    });
    steps.step("documentation", || {
        cargo(
            &["doc", "--workspace", "--no-deps"],
            &[("RUSTDOCFLAGS", "-D warnings")],
            BUILD_BOUND,
        )
    });
    // --no-fail-fast: one run should tell all that is wrong. Without a target option, the doc tests are part of it.
    steps.step("cargo test", || {
        cargo(&["test", "--workspace", "--no-fail-fast"], &[], TEST_BOUND)
    });
    steps.step("asan", asan::run);
    steps.step("loom", loom);
    steps.step("simulation", simulation);
    steps.step("mutants", mutants::run_all);
    steps.step("fuzz", || fuzz::run(FUZZ_SECONDS, &[]));
    if built {
        with_release_build(&mut steps)?;
    } else {
        println!("\nSKIPPED: all programs on the release build, because there is none");
    }
    Ok(steps.finish())
}

fn with_release_build(steps: &mut Steps) -> Result<()> {
    let release = Release::locate()?;
    let links = LINKS.map(str::to_owned);
    steps.step("dist", || {
        let out = release.target.join("dist");
        dist::lay_out(&release, &out)?;
        dist::check(&out)
    });
    steps.step("C programs", || ctests::run(&release, &[]));
    steps.step("book", || book::run(&release, &[]));
    steps.step("memcheck", || memcheck::run(&release, &[]));
    steps.step("counts", || counts::run(&release, false));
    steps.step("pyverbs", || pyverbs::run_all(&release));
    steps.step("clients", || clients::run(&release, &links, &[]));
    steps.step("perftest options", || clients::options::run_some(&release));
    steps.step("tshark", || tshark::run(&release, &[]));
    steps.step("soak", || soak::run_all(&release, SOAK_RUNS));
    steps.step("quiet", || quiet::run(&release));
    steps.step("kill", || kill::run(&release, KILLS, None));
    steps.step("age", || age::run_all(&release, AGE));
    Ok(())
}

fn cargo(args: &[&str], environment: &[(&str, &str)], bound: Duration) -> Result<bool> {
    let mut command = tree::cargo();
    command.args(args).envs(environment.iter().copied());
    step::run(&mut command, bound)
}

/// A minute of worlds nobody has lived in before; the seed of one that goes wrong is printed.
fn simulation() -> Result<bool> {
    let seconds = SIM_SECONDS.to_string();
    let args = [
        "run",
        "--release",
        "--quiet",
        "--package",
        "adverb-sim",
        "--bin",
        "sim",
        "--",
        "--jobs",
        "2",
        "--seconds",
        &seconds,
    ];
    cargo(&args, &[], BUILD_BOUND)
}

/// Every interleaving, at small sizes, of the rings, the sleep and wake protocol, the hand-over of the watch between
/// threads, and of arming a CQ while completions are added. A directory of its own, because the flag would otherwise
/// rebuild everything twice per run.
fn loom() -> Result<bool> {
    let target = tree::target_dir()?.join("loom");
    let parts: [&[&str]; 2] = [
        &["--package", "adverb-mem", "--lib", "loom"],
        &["--package", "adverb-engine", "--test", "loom_arm"],
    ];
    for part in parts {
        let mut command = tree::cargo();
        command
            .args(["test", "--release", "--target-dir"])
            .arg(&target)
            .args(part)
            .env("RUSTFLAGS", "--cfg loom")
            // What a user's build takes its time for is nothing to loom.
            .env("CARGO_PROFILE_RELEASE_LTO", "off")
            .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
            .env("LOOM_MAX_PREEMPTIONS", "3");
        if !step::run(&mut command, TEST_BOUND)? {
            return Ok(false);
        }
    }
    Ok(true)
}
