//! The Rust API's tests under AddressSanitizer: no byte of a buffer is touched by the software NIC after safe code has it
//! back, or has freed it.

use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::args::Args;
use crate::{step, tree};

const BUILD_BOUND: Duration = Duration::from_secs(10 * 60);
const TEST_BOUND: Duration = Duration::from_secs(120);

/// The modules of `crates/adverb/tests/loopback` that are about memory; the others wait.
const TESTS: [&str; 9] = [
    "closing::",
    "datagrams::",
    "events::",
    "lists::",
    "memory::",
    "operations::",
    "shared::",
    "windows::",
    "world::",
];

pub(crate) fn command(args: Args) -> Result<bool> {
    args.finish()?;
    run()
}

/// Within the process, and over UDP.
pub(crate) fn run() -> Result<bool> {
    let mut build = test()?;
    build.arg("--no-run");
    if !step::run(&mut build, BUILD_BOUND)? {
        return Ok(false);
    }
    for links in [None, Some("udp")] {
        let mut tests = test()?;
        tests.arg("--").args(TESTS);
        // Buffers that are forgotten on purpose are no findings.
        tests.env("ASAN_OPTIONS", "detect_leaks=0");
        if let Some(links) = links {
            tests.env("ADVERB_LINKS", links);
            tests.env("ADVERB_UDP_PORT", "19094");
        }
        if !step::run(&mut tests, TEST_BOUND)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// In a directory of its own, and for the host by its name, so that build scripts are built without it.
fn test() -> Result<Command> {
    let mut cargo = tree::cargo();
    cargo
        .args(["test", "--quiet", "--package", "adverb"])
        .args(["--test", "loopback", "--features", "soft", "--target"])
        .arg(tree::host()?)
        .arg("--target-dir")
        .arg(tree::target_dir()?.join("asan"))
        // The stable compiler has the sanitizer, behind a flag that it calls unstable.
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTFLAGS", "-Zsanitizer=address");
    Ok(cargo)
}
