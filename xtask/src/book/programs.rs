//! The programs of the book: those in Rust are `adverb learn`, those in C are compiled here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::{Chapter, root, shown};
use crate::clients::hang_report;
use crate::ctests;
use crate::process::{self, Job, tail};
use crate::tally::{Outcome, Tally};
use crate::tree::Release;

/// Each C program has an alarm of 20 s of its own.
const BOUND: Duration = Duration::from_secs(30);

/// Whether `adverb learn` lists the chapters as SUMMARY.md does.
pub(super) fn list_complaints(release: &Release, chapters: &[Chapter]) -> Result<Vec<String>> {
    let output = process::command(&release.adverb)
        .arg("learn")
        .output()
        .context("cannot run adverb learn")?;
    let listed = String::from_utf8_lossy(&output.stdout);
    let wanted: String = chapters
        .iter()
        .zip(1..)
        .map(|(chapter, number)| format!("{number:3}  {:14}  {}\n", chapter.name, chapter.title))
        .collect();
    Ok(shown::difference(&wanted, &listed)
        .map(|why| format!("`adverb learn` does not list what SUMMARY.md does: {why}"))
        .into_iter()
        .collect())
}

pub(super) fn run(release: &Release, chapters: &[Chapter], words: &[String]) -> Result<bool> {
    let mut tally = Tally::new("programs of the book");
    let logs = release.logs("book")?;
    for (chapter, number) in chapters.iter().zip(1..) {
        let name = &chapter.name;
        if !words.iter().all(|word| name.contains(word.as_str())) {
            continue;
        }
        let started = Instant::now();
        let mut learn = process::command(&release.adverb);
        learn.args(["learn", &format!("{number}")]);
        let outcome = compare(
            learn,
            &[format!("{name}.txt")],
            &logs.join(format!("{name}-rust.log")),
        )?;
        tally.add(
            &format!("adverb learn {number:2}  {name}"),
            started.elapsed().as_secs_f64(),
            outcome,
        );

        let label = format!("C                {name}");
        if !ctests::possible() {
            tally.add(
                &label,
                0.0,
                Outcome::Skipped("no cc, or no infiniband/verbs.h".to_owned()),
            );
            continue;
        }
        let started = Instant::now();
        let outcome = match compile(release, name) {
            Ok(binary) => {
                let mut command = process::command(&release.adverb);
                command
                    .args(["run", "--"])
                    .arg(binary)
                    .env("ADVERB_LOG", "warn");
                // What the Rust program prints, unless there is something of its own.
                let own = [format!("{name}.c.txt"), format!("{name}.txt")];
                compare(command, &own, &logs.join(format!("{name}-c.log")))?
            }
            Err(error) => Outcome::Failed(format!("{error:#}")),
        };
        tally.add(&label, started.elapsed().as_secs_f64(), outcome);
    }
    Ok(tally.finish())
}

/// Compiles a program as the book tells its readers to, with warnings as errors.
fn compile(release: &Release, name: &str) -> Result<PathBuf> {
    let dir = release.target.join("xtask/bin");
    fs::create_dir_all(&dir)?;
    let binary = dir.join(format!("book-{name}"));
    let output = Command::new("cc")
        .args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
        .arg(&binary)
        .arg(root().join(format!("c/{name}.c")))
        .arg("-libverbs")
        .output()
        .context("cannot run cc")?;
    if !output.status.success() {
        bail!("cc {name}.c:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(binary)
}

/// Runs a program and compares what it prints with the first of the files that exists.
fn compare(mut command: Command, files: &[String], log: &Path) -> Result<Outcome> {
    let path = files
        .iter()
        .map(|file| root().join("output").join(file))
        .find(|path| path.is_file())
        .with_context(|| format!("docs/book/output has no {}", files.join(" and no ")))?;
    let shown = fs::read_to_string(&path)?;
    let mut job = Job::start(&mut command, Some(log))?;
    let Some(status) = job.wait_until(Instant::now() + BOUND)? else {
        return Ok(Outcome::Failed(format!(
            "did not end\n{}",
            hang_report(&job)
        )));
    };
    let printed = job.output();
    if !status.success() {
        return Ok(Outcome::Failed(format!("{status}\n{}", tail(&printed, 30))));
    }
    Ok(match shown::difference(&shown, &printed) {
        None => Outcome::Passed,
        Some(why) => Outcome::Failed(format!(
            "not what {} says: {why}",
            path.strip_prefix(crate::tree::root())
                .unwrap_or(&path)
                .display()
        )),
    })
}
