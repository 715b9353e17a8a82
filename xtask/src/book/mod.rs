//! `cargo xtask book`: the book says what is so. Its texts fit together, its C programs compile and run on the drop-in
//! libraries, its Rust programs run in `adverb learn`, and both print what the chapters show.
//!
//! mdBook builds it where mdBook is installed; Debian 12 has no package of it, and it takes minutes to compile, so
//! elsewhere our own look at links, includes and anchors has to do.

mod programs;
mod shown;
mod texts;

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::args::Args;
use crate::tree::{self, Release};

const MDBOOK: &str = "mdbook";
const MDBOOK_BOUND: Duration = Duration::from_secs(60);

/// A numbered chapter of SUMMARY.md.
struct Chapter {
    /// The name of its file without `.md`, and of its programs.
    name: String,
    title: String,
}

pub(crate) fn command(mut args: Args) -> Result<bool> {
    let release = if args.flag("--dev") {
        Release::dev()?
    } else {
        Release::built()?
    };
    run(&release, &args.words()?)
}

/// All of it, or with words only the programs of chapters whose names contain each of them.
pub(crate) fn run(release: &Release, words: &[String]) -> Result<bool> {
    let chapters = texts::chapters()?;
    let mut complaints = texts::complaints(&chapters)?;
    complaints.extend(programs::list_complaints(release, &chapters)?);
    for complaint in &complaints {
        println!("book: {complaint}");
    }
    let built = build(release)?;
    let ran = programs::run(release, &chapters, words)?;
    println!("book: {} complaints", complaints.len());
    Ok(complaints.is_empty() && built && ran)
}

fn root() -> PathBuf {
    tree::root().join("docs/book")
}

fn read(path: &str) -> Result<String> {
    let path = root().join(path);
    fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// Builds it into the target directory; a warning is a failure.
fn build(release: &Release) -> Result<bool> {
    if !tree::on_path(MDBOOK) {
        println!(
            "SKIPPED: building the book, because mdbook is not installed (cargo install mdbook)"
        );
        return Ok(true);
    }
    let log = release.logs("book")?.join("mdbook.log");
    let mut command = Command::new(MDBOOK);
    command
        .arg("build")
        .arg("--dest-dir")
        .arg(release.target.join("book"))
        .arg(root());
    let mut job = crate::process::Job::start(&mut command, Some(&log))?;
    let Some(status) = job.wait_until(std::time::Instant::now() + MDBOOK_BOUND)? else {
        bail!("mdbook did not end");
    };
    let output = job.output();
    let good = status.success() && !output.contains("WARN") && !output.contains("ERROR");
    if !good {
        print!("{output}");
    }
    Ok(good)
}
