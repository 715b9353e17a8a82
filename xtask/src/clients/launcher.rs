//! A program that starts the processes itself which then talk to each other.

use std::path::Path;
use std::time::Instant;

use anyhow::Result;

use super::meeting::{Sign, complaint};
use super::pair::{BOUND, hang_report, sysfs_refusal, with_options};
use crate::process::{Job, tail};
use crate::tally::Outcome;
use crate::tree::Release;

pub(crate) struct Launcher {
    /// What must be there besides the program.
    pub(super) needs: &'static Path,
    pub(super) command: Vec<String>,
    /// Of all that the processes print; it counts as the client's.
    pub(super) signs: Vec<Sign>,
}

pub(super) fn run(
    release: &Release,
    launcher: &Launcher,
    link: &str,
    log: &Path,
) -> Result<Outcome> {
    if !launcher.needs.exists() {
        let what = format!("{} is not installed", launcher.needs.display());
        return Ok(Outcome::Skipped(what));
    }
    if let Some(why) = sysfs_refusal(release)? {
        return Ok(Outcome::Skipped(why));
    }
    let mut command = with_options(release, &["--links", link, "--sysfs"], "stdbuf");
    command.arg("-oL").args(&launcher.command);
    let mut job = Job::start(&mut command, Some(log))?;
    let Some(status) = job.wait_until(Instant::now() + BOUND)? else {
        return Ok(Outcome::Failed(format!(
            "did not end\n{}",
            hang_report(&job)
        )));
    };
    let output = job.output();
    let verdict = if status.success() {
        complaint(&launcher.signs, "", &output)
    } else {
        Some(status.to_string())
    };
    Ok(match verdict {
        None => Outcome::Passed,
        Some(why) => Outcome::Failed(format!("{why}\n{}", tail(&output, 40))),
    })
}
