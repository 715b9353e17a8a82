//! `adverb learn`: lists the chapters of the book, and runs their programs.
//!
//! A program runs in a process of its own, with the library's diagnosis switched on and stderr joined to stdout, so that
//! what the library says stands where it was said.

use std::io::{self, Write as _};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::args::LearnArgs;
use crate::learn::{LESSONS, Lesson, find};

/// The hidden command that is the program itself.
pub(crate) const COMMAND: &str = "lesson";

const LOG: &str = "ADVERB_LOG";

pub(crate) fn execute(args: &LearnArgs) -> Result<()> {
    match &args.chapter {
        None => list(),
        Some(chapter) => run(lesson(chapter)?),
    }
}

/// The program of a chapter, in this process.
pub(crate) fn inside(chapter: &str) -> Result<()> {
    let lesson = lesson(chapter)?;
    // Whoever reads what it prints may go at any time.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    (lesson.main)().map_err(|error| anyhow::anyhow!("{error}"))
}

fn lesson(chapter: &str) -> Result<&'static Lesson> {
    find(chapter).with_context(|| {
        format!(
            "no chapter {chapter}: `adverb learn` lists those there are, 1 to {}",
            LESSONS.len()
        )
    })
}

fn list() -> Result<()> {
    let mut out = io::stdout().lock();
    for (at, lesson) in LESSONS.iter().enumerate() {
        writeln!(out, "{:3}  {:14}  {}", at + 1, lesson.name, lesson.title)?;
    }
    Ok(())
}

fn run(lesson: &Lesson) -> Result<()> {
    let (mut reader, writer) = io::pipe().context("cannot make a pipe")?;
    let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
    command
        .args([COMMAND, lesson.name])
        .stdin(Stdio::null())
        .stderr(writer.try_clone()?)
        .stdout(writer);
    if std::env::var_os(LOG).is_none() {
        command.env(LOG, "warn");
    }
    let mut child = command.spawn().context("cannot start the program")?;
    // The writing end goes with it: the text ends when the program does.
    drop(command);
    let copied = io::copy(&mut reader, &mut io::stdout().lock());
    if copied.is_err() {
        // It may have ended already.
        let _ = child.kill();
    }
    let status = child.wait()?;
    copied?;
    if !status.success() {
        bail!("the program of chapter {} ended with {status}", lesson.name);
    }
    Ok(())
}
