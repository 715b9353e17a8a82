//! Engines that are wrong in one known way, and whether the simulation finds out.
//!
//! A copy of the crates concerned is changed by one entry of `tests/mutants/` at a time, built, and run for a few
//! seconds. A mutant that the worlds let live is shown to the outcomes on file, and then to the engine's own tests; one
//! that survives all three is a hole in them. The connection manager has no part in those worlds: its mutants are for its
//! own tests. An entry whose text no longer occurs exactly once is an error: whoever changes the engine carries it along.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::args::Args;
use crate::process::{self, Job};
use crate::tree;

/// Crates that are copied.
const CRATES: [&str; 3] = ["wire", "engine", "sim"];

/// Worlds that a mutant has to survive, a few seconds' worth, and a bound for one that never ends.
const WORLDS: u32 = 200;
const BOUND: Duration = Duration::from_secs(90);
const BUILD_BOUND: Duration = Duration::from_secs(300);

/// Everybody lives through the same worlds, so that the score depends neither on luck nor on the machine.
const FIRST_SEED: u32 = 1;

/// What is to be broken. Below `tests/mutants/`.
const LISTS: [&str; 2] = ["engine.txt", "cm.txt"];
/// The connection manager's part of the engine.
const CM: &str = "engine/src/cm/";

struct Mutant {
    name: String,
    /// Below `crates/`.
    file: String,
    old: String,
    new: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Worlds,
    Endless,
    Outcomes,
    EngineTests,
    DoesNotBuild,
    Survived,
}

pub(crate) fn command(mut args: Args) -> Result<bool> {
    let list = args.flag("--list");
    let words = args.words()?;
    let mutants: Vec<Mutant> = all()?
        .into_iter()
        .filter(|m| words.iter().all(|w| m.name.contains(w.as_str())))
        .collect();
    for m in &mutants {
        apply(m)?;
    }
    if list {
        for m in &mutants {
            println!("{}  ({})", m.name, m.file);
        }
        return Ok(true);
    }
    run(&mutants)
}

pub(crate) fn run_all() -> Result<bool> {
    run(&all()?)
}

fn all() -> Result<Vec<Mutant>> {
    let mut mutants = Vec::new();
    for list in LISTS {
        mutants.extend(read(&tree::root().join("tests/mutants").join(list))?);
    }
    Ok(mutants)
}

fn run(mutants: &[Mutant]) -> Result<bool> {
    let place = tree::target_dir()?.join("mutants");
    copy_workspace(&place)?;
    // The right engine first: otherwise every mutant would look caught.
    for judge in [judge, judge_cm] {
        if judge(&place)? != End::Survived {
            bail!("the engine fails without any mutation");
        }
    }
    let mut caught = 0;
    for (n, m) in mutants.iter().enumerate() {
        let path = place.join("crates").join(&m.file);
        let original = std::fs::read_to_string(&path)?;
        let started = Instant::now();
        std::fs::write(&path, apply(m)?)?;
        let judge = if m.file.starts_with(CM) {
            judge_cm
        } else {
            judge
        };
        let end = judge(&place);
        std::fs::write(&path, original)?;
        let end = end?;
        let word = match end {
            End::Worlds => "caught",
            End::Endless => "caught (never ends)",
            End::Outcomes => "caught by the outcomes on file",
            End::EngineTests => "caught by the engine's own tests",
            End::DoesNotBuild => "DOES NOT BUILD",
            End::Survived => "SURVIVED",
        };
        if !matches!(end, End::DoesNotBuild | End::Survived) {
            caught += 1;
        }
        println!(
            "{:3} of {}  {:5.1} s  {word}: {}",
            n + 1,
            mutants.len(),
            started.elapsed().as_secs_f64(),
            m.name
        );
    }
    println!("mutants: {caught} caught of {}", mutants.len());
    Ok(caught == mutants.len())
}

/// Builds the copy and lets it live.
fn judge(place: &Path) -> Result<End> {
    if !bounded(
        cargo(place).args(["build", "--quiet", "--bin", "sim"]),
        BUILD_BOUND,
    )?
    .unwrap_or(false)
    {
        return Ok(End::DoesNotBuild);
    }
    let mut sim = process::command(&place.join("target/debug/sim"));
    sim.args(["--seconds", &BOUND.as_secs().to_string()])
        .args(["--worlds", &WORLDS.to_string()])
        .args(["--first", &FIRST_SEED.to_string()]);
    match bounded(&mut sim, BOUND)? {
        None => return Ok(End::Endless),
        Some(false) => return Ok(End::Worlds),
        Some(true) => {}
    }
    for (package, test, end) in [
        ("adverb-sim", "outcomes", End::Outcomes),
        ("adverb-engine", "behaviour", End::EngineTests),
    ] {
        let args = ["--package", package, "--test", test];
        match bounded(
            cargo(place).args(["test", "--quiet"]).args(args),
            BUILD_BOUND,
        )? {
            None => return Ok(End::Endless),
            Some(false) => return Ok(end),
            Some(true) => {}
        }
    }
    Ok(End::Survived)
}

/// The same for a mutant of the connection manager.
fn judge_cm(place: &Path) -> Result<End> {
    let args = ["--quiet", "--package", "adverb-engine"];
    let mut build = cargo(place);
    build.arg("build").args(args);
    if bounded(&mut build, BUILD_BOUND)? != Some(true) {
        return Ok(End::DoesNotBuild);
    }
    let mut test = cargo(place);
    // Some are noticed by the tests beside the code.
    test.arg("test").args(args).args(["--lib", "--test", "cm"]);
    Ok(match bounded(&mut test, BUILD_BOUND)? {
        None => End::Endless,
        Some(false) => End::EngineTests,
        Some(true) => End::Survived,
    })
}

fn cargo(place: &Path) -> Command {
    let mut command = tree::cargo();
    command
        .current_dir(place)
        .env("CARGO_TARGET_DIR", place.join("target"))
        // No debug information: what fails here is not looked at, and linking is what takes the time.
        .env("CARGO_PROFILE_DEV_DEBUG", "0");
    command
}

/// Runs without a word; `None` when it had to be ended.
fn bounded(command: &mut Command, bound: Duration) -> Result<Option<bool>> {
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut job = Job::start(command, None)?;
    let status = job.wait_until(Instant::now() + bound)?;
    job.end();
    Ok(status.map(|s| s.success()))
}

/// A workspace of the crates concerned, with the settings and the lock file of ours.
fn copy_workspace(place: &Path) -> Result<()> {
    let root = tree::root();
    let crates = place.join("crates");
    if crates.exists() {
        std::fs::remove_dir_all(&crates)?;
    }
    for name in CRATES {
        copy(&root.join("crates").join(name), &crates.join(name))?;
    }
    let mut manifest = String::new();
    for line in std::fs::read_to_string(root.join("Cargo.toml"))?.lines() {
        match line {
            l if l.starts_with("members") => manifest.push_str("members = [\"crates/*\"]"),
            l if l.starts_with("default-members") => {}
            l => manifest.push_str(l),
        }
        manifest.push('\n');
    }
    std::fs::write(place.join("Cargo.toml"), manifest)?;
    std::fs::copy(root.join("Cargo.lock"), place.join("Cargo.lock"))?;
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target: PathBuf = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// The changed text of the mutant's file.
fn apply(m: &Mutant) -> Result<String> {
    let path = tree::root().join("crates").join(&m.file);
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("{}: no file {}", m.name, m.file))?;
    match text.matches(&m.old).count() {
        1 => Ok(text.replacen(&m.old, &m.new, 1)),
        n => bail!(
            "{}: its text is {n} times in {}, not once; carry the mutant along with the code",
            m.name,
            m.file
        ),
    }
}

fn read(path: &Path) -> Result<Vec<Mutant>> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    parse(&text)
}

fn parse(text: &str) -> Result<Vec<Mutant>> {
    let mut mutants: Vec<Mutant> = Vec::new();
    for (n, line) in text.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.strip_prefix("== ") {
            mutants.push(Mutant {
                name: name.to_owned(),
                file: String::new(),
                old: String::new(),
                new: String::new(),
            });
            continue;
        }
        let Some(m) = mutants.last_mut() else {
            bail!("line {}: no mutant has begun", n + 1);
        };
        match line.split_at_checked(2) {
            Some(("@ ", file)) => file.clone_into(&mut m.file),
            Some(("- ", old)) => writeln!(m.old, "{old}")?,
            Some(("+ ", new)) => writeln!(m.new, "{new}")?,
            _ => bail!(
                "line {}: {line:?} is none of '== ', '@ ', '- ', '+ '",
                n + 1
            ),
        }
    }
    Ok(mutants)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mutant_still_has_something_to_change() {
        let mutants = all().expect("they can be read");
        assert!(mutants.len() >= 25);
        for m in &mutants {
            let text = apply(m).unwrap_or_else(|e| panic!("{e:#}"));
            assert!(text.contains(&m.new), "{}", m.name);
        }
    }

    #[test]
    fn a_line_that_is_nothing_is_refused() {
        assert!(parse("== a\nfoo").is_err());
        assert!(parse("- x").is_err());
    }
}
