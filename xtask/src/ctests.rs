//! The C programs of tests/c: compiled against the system's headers and its libraries, run on the drop-in libraries.
//!
//! Each program checks itself, ends with 0, and says on stderr what went wrong otherwise.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::age;
use crate::args::Args;
use crate::clients::{hang_report, under_adverb};
use crate::counts;
use crate::process::{Job, tail};
use crate::tally::{Outcome, Tally};
use crate::tree::{self, Release};

/// Each program has an alarm of 60 s of its own.
const BOUND: Duration = Duration::from_secs(75);

/// Programs that other commands run: those of tests with several processes, one that leaks on purpose, and one that is
/// counted under callgrind.
const NOT_ALONE: &[&str] = &["survivor", age::PROGRAM, LEAK, counts::PROGRAM];

/// The program that leaks.
pub(crate) const LEAK: &str = "leak";

/// Both ends of most programs live in one process.
const LINKS: [&str; 2] = ["loopback", "udp"];

/// Others fork, and say so.
const LINKS_BETWEEN: [&str; 2] = ["shm", "udp"];

pub(crate) fn command(args: Args) -> Result<bool> {
    let words = args.words()?;
    run(&Release::built()?, &words)
}

/// Whether C programs can be built here.
pub(crate) fn possible() -> bool {
    tree::on_path("cc") && Path::new("/usr/include/infiniband/verbs.h").exists()
}

pub(crate) fn run(release: &Release, words: &[String]) -> Result<bool> {
    let mut tally = Tally::new("ctests");
    let logs = release.logs("ctests")?;
    for name in programs(words)? {
        if !possible() {
            tally.add(
                &name,
                0.0,
                Outcome::Skipped("no cc, or no infiniband/verbs.h".to_owned()),
            );
            continue;
        }
        let binary = compile(release, &name)?;
        for link in links_of(&name)? {
            for setting in settings(&name)? {
                let label = match setting {
                    None => format!("{link:8} {name}"),
                    Some((variable, value)) => format!("{link:8} {name} ({variable}={value})"),
                };
                let started = Instant::now();
                let outcome = run_one(
                    release,
                    &binary,
                    link,
                    setting,
                    &logs.join(format!("{name}-{link}.log")),
                )?;
                tally.add(&label, started.elapsed().as_secs_f64(), outcome);
            }
        }
    }
    Ok(tally.finish())
}

/// The programs that check themselves alone, and whose names contain each word.
pub(crate) fn programs(words: &[String]) -> Result<Vec<String>> {
    let mut programs = names()?;
    programs.retain(|name| {
        !NOT_ALONE.contains(&name.as_str()) && words.iter().all(|word| name.contains(word.as_str()))
    });
    Ok(programs)
}

/// Whether a program says that it closes what it has opened.
pub(crate) fn closes_everything(name: &str) -> Result<bool> {
    Ok(fs::read_to_string(sources().join(format!("{name}.c")))?.contains("ibv_close_device"))
}

fn sources() -> PathBuf {
    tree::root().join("tests/c")
}

fn names() -> Result<Vec<String>> {
    let dir = sources();
    let mut names = Vec::new();
    for entry in fs::read_dir(&dir).with_context(|| format!("cannot list {}", dir.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "c") {
            names.extend(
                path.file_stem()
                    .and_then(|stem| stem.to_str())
                    .map(str::to_owned),
            );
        }
    }
    names.sort();
    Ok(names)
}

/// Ways that packets take between the ends of a program.
pub(crate) fn links_of(name: &str) -> Result<[&'static str; 2]> {
    let text = fs::read_to_string(sources().join(format!("{name}.c")))?;
    Ok(match text.starts_with("/* Two processes") {
        true => LINKS_BETWEEN,
        false => LINKS,
    })
}

/// A variable of the environment and its value.
type Setting = Option<(&'static str, &'static str)>;

/// What a program runs under: nothing special, the bare arm rule of the specification if it knows of that, and each way to
/// wait if it waits for events.
fn settings(name: &str) -> Result<Vec<Setting>> {
    let text = fs::read_to_string(sources().join(format!("{name}.c")))?;
    let mut settings = vec![None];
    if text.contains("ADVERB_EVENTS") {
        settings.push(Some(("ADVERB_EVENTS", "strict")));
    }
    if text.contains("ibv_get_cq_event(") {
        settings.push(Some(("ADVERB_WAIT", "busy")));
        settings.push(Some(("ADVERB_WAIT", "adaptive,polite")));
    }
    Ok(settings)
}

/// Compiles one program with warnings as errors.
pub(crate) fn compile(release: &Release, name: &str) -> Result<PathBuf> {
    compile_with(release, name, name, &[])
}

/// As [`compile`], with further options and a name of its own for the binary.
pub(crate) fn compile_with(
    release: &Release,
    name: &str,
    binary: &str,
    options: &[&str],
) -> Result<PathBuf> {
    let dir = release.target.join("xtask/bin");
    fs::create_dir_all(&dir)?;
    let binary = dir.join(binary);
    let output = Command::new("cc")
        .args([
            "-std=gnu11",
            "-O2",
            "-g",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-pthread",
        ])
        .args(options)
        .arg("-o")
        .arg(&binary)
        .arg(sources().join(format!("{name}.c")))
        .args(["-libverbs", "-Wl,--as-needed", "-lrdmacm"])
        .output()
        .context("cannot run cc")?;
    if !output.status.success() {
        bail!("cc {name}.c:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(binary)
}

fn run_one(
    release: &Release,
    binary: &Path,
    link: &str,
    setting: Setting,
    log: &Path,
) -> Result<Outcome> {
    let program = binary
        .to_str()
        .context("the target directory's name is not UTF-8")?;
    let mut command = under_adverb(release, link, program);
    if let Some((variable, value)) = setting {
        command.env(variable, value);
    }
    let mut job = Job::start(&mut command, Some(log))?;
    let Some(status) = job.wait_until(Instant::now() + BOUND)? else {
        return Ok(Outcome::Failed(format!(
            "did not end\n{}",
            hang_report(&job)
        )));
    };
    Ok(if status.success() {
        Outcome::Passed
    } else {
        Outcome::Failed(format!("{status}\n{}", tail(&job.output(), 30)))
    })
}
