//! The virtual machine: built once, booted for every group of rows.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::dist;
use crate::process::Job;
use crate::tree::{self, Release};

pub(super) struct Machine {
    scripts: PathBuf,
    /// Where each boot has a folder of its own.
    dir: PathBuf,
}

impl Machine {
    /// Builds the machine if it is missing, and everything that goes into it.
    pub(super) fn prepare(release: &Release, dir: &Path) -> Result<Self> {
        let scripts = tree::root().join("tests/interop");
        let status = Command::new(scripts.join("vm/build.sh"))
            .status()
            .context("cannot run tests/interop/vm/build.sh")?;
        if !status.success() {
            bail!("the virtual machine could not be built");
        }
        let files = dir.join("files");
        dist::lay_out(release, &files)?;
        fs::create_dir_all(files.join("suite"))?;
        for (name, built) in executables()? {
            let to = match name.as_str() {
                "interop" => files.join("bin/interop"),
                _ => files.join("suite").join(name),
            };
            strip(&built, &to)?;
        }
        // The guest reads them through an emulated folder, and debug information is most of them.
        for file in ["bin/adverb", "lib/adverb/libibverbs.so.1"] {
            let path = files.join(file);
            strip(&path, &path)?;
        }
        Ok(Self {
            scripts,
            dir: dir.to_owned(),
        })
    }

    /// A folder for one boot, with the scripts and programs in it.
    pub(super) fn share(&self, name: &str) -> Result<PathBuf> {
        let share = self.dir.join(name);
        fs::create_dir_all(&share)?;
        for from in [self.dir.join("files"), self.scripts.clone()] {
            copy_tree(&from, &share)?;
        }
        Ok(share)
    }

    /// Runs a script to its end; the inner error says what became of the machine.
    pub(super) fn boot(
        &self,
        share: &Path,
        script: &str,
        bound: u64,
    ) -> Result<Result<(), String>> {
        let mut command = Command::new("nice");
        command
            .args(["-n", "5"])
            .arg(self.scripts.join("vm/run.sh"))
            .arg(bound.to_string())
            .arg(share)
            .arg(script);
        let log = share.join("machine.log");
        let mut job = Job::start(&mut command, Some(&log))?;
        // run.sh bounds each of its three attempts.
        let until = Instant::now() + Duration::from_secs(bound * 3 + 60);
        Ok(match job.wait_until(until)? {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(format!("{status}\n{}", super::last_lines(&job.output()))),
            None => Err("it did not end".to_owned()),
        })
    }
}

/// The example and the tests of the Rust API, built now: name and file.
fn executables() -> Result<Vec<(String, PathBuf)>> {
    let mut found = built(&["build", "--example", "interop"])?;
    found.extend(built(&["test", "--no-run", "--test", "*"])?);
    if !found.iter().any(|(name, _)| name == "interop") {
        bail!("cargo did not say where the example interop is");
    }
    Ok(found)
}

/// Runs cargo on the Rust API's package; which executables it says it made.
fn built(words: &[&str]) -> Result<Vec<(String, PathBuf)>> {
    let output = tree::cargo()
        .args(words)
        .args(["--release", "--quiet", "-p", "adverb"])
        .arg("--message-format=json")
        .output()
        .context("cannot run cargo")?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter_map(|message| {
            let file = message["executable"].as_str()?;
            Some((message["target"]["name"].as_str()?.to_owned(), file.into()))
        })
        .collect())
}

fn strip(from: &Path, to: &Path) -> Result<()> {
    let status = Command::new("strip")
        .arg("-o")
        .arg(to)
        .arg(from)
        .status()
        .context("cannot run strip")?;
    if !status.success() {
        bail!("cannot strip {}", from.display());
    }
    Ok(())
}

fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    let status = Command::new("cp")
        .args(["-a", "--"])
        .arg(from.join("."))
        .arg(to)
        .status()
        .context("cannot run cp")?;
    if !status.success() {
        bail!("cannot copy {} to {}", from.display(), to.display());
    }
    Ok(())
}
