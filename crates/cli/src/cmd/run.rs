//! `adverb run`: replaces this process by the program, so that status and signals are its own.

use std::io::ErrorKind;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::plan::RunPlan;
use crate::sysfs;

/// Exit code of failures of `run` itself, before there is a program.
pub(crate) const OWN_FAILURE: u8 = 125;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Returns only when the program could not be started.
pub(crate) fn execute(plan: RunPlan) -> Result<ExitCode> {
    if plan.sysfs {
        sysfs::show(&plan.environment)?;
    }
    // `exec` of the standard library restores the default action of SIGPIPE, which a Rust
    // program ignores and which the program would inherit otherwise.
    let error = Command::new(&plan.program)
        .args(&plan.arguments)
        .envs(plan.environment)
        .exec();
    eprintln!("adverb: cannot run {}: {error}", plan.program.display());
    Ok(ExitCode::from(match error.kind() {
        ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_EXECUTABLE,
    }))
}
