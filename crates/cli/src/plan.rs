//! What the typed words mean: environment, defaults and conflicts are settled here, before
//! anything starts.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::args::{BenchArgs, CompareArgs, Link, Model, RunArgs, Test};
use crate::shape::{self, Shape};
use crate::way::{self, Way};

/// A program, and the environment in which it finds the drop-in libraries.
#[derive(Debug)]
pub(crate) struct RunPlan {
    pub(crate) program: OsString,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) environment: Vec<(&'static str, OsString)>,
    /// Whether the program sees the devices in sysfs.
    pub(crate) sysfs: bool,
}

#[derive(Debug)]
pub(crate) struct ComparePlan {
    pub(crate) device: Option<String>,
    pub(crate) links: Vec<Link>,
    pub(crate) shapes: Vec<Shape>,
    pub(crate) ways: Vec<Way>,
    /// Each cell is measured so often, with the other cells in between.
    pub(crate) rounds: usize,
    /// Measured time of one round of a cell for each unit of its shape's weight.
    pub(crate) unit: Duration,
    pub(crate) json: Option<PathBuf>,
    pub(crate) html: Option<PathBuf>,
}

#[derive(Debug)]
pub(crate) struct BenchPlan {
    pub(crate) device: Option<String>,
    pub(crate) runs: Vec<BenchRun>,
    pub(crate) time: Duration,
    pub(crate) json: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct BenchRun {
    pub(crate) test: Test,
    pub(crate) link: Link,
    pub(crate) wait: Model,
    pub(crate) size: usize,
}

/// `bench --targets`.
#[derive(Debug)]
pub(crate) struct TargetsPlan {
    pub(crate) device: Option<String>,
    /// Of each measurement of ours.
    pub(crate) time: Duration,
    pub(crate) json: Option<PathBuf>,
}

pub(crate) fn targets(args: BenchArgs) -> Result<TargetsPlan> {
    check_writable("--json", args.json.as_deref())?;
    Ok(TargetsPlan {
        device: args.device,
        time: Duration::from_secs_f64(args.seconds),
        json: args.json,
    })
}

pub(crate) fn run(args: RunArgs) -> Result<RunPlan> {
    let mut path = libdir()?.into_os_string();
    // An empty entry would mean the current directory to the loader.
    if let Some(old) = env::var_os("LD_LIBRARY_PATH").filter(|old| !old.is_empty()) {
        path.push(":");
        path.push(old);
    }
    let mut environment = vec![("LD_LIBRARY_PATH", path)];
    if let Some(netdev) = args.netdev {
        check_netdev(&netdev)?;
        environment.push(("ADVERB_NETDEV", netdev.into()));
    }
    if !args.links.is_empty() {
        environment.push(("ADVERB_LINKS", names(&args.links).into()));
    }
    let mut words = args.command.into_iter();
    Ok(RunPlan {
        program: words.next().context("no command was given")?,
        arguments: words.collect(),
        environment,
        sysfs: args.sysfs,
    })
}

/// The directory of the drop-in libraries: `ADVERB_LIBDIR`, or where a build tree or an installed
/// prefix has it, seen from the program.
pub(crate) fn libdir() -> Result<PathBuf> {
    if let Some(dir) = env::var_os("ADVERB_LIBDIR") {
        let dir = PathBuf::from(dir);
        if !has_libraries(&dir) {
            bail!(
                "ADVERB_LIBDIR is {}, but {LIBRARY} is not there; unset it, or point it to a directory that `adverb libdir` prints",
                dir.display()
            );
        }
        return dir.canonicalize().context("ADVERB_LIBDIR");
    }
    let program =
        env::current_exe().context("cannot tell where this program is; set ADVERB_LIBDIR")?;
    let beside = program.parent().unwrap_or_else(|| Path::new("/"));
    let places = [beside.join("lib/adverb"), beside.join("../lib/adverb")];
    match places.iter().find(|dir| has_libraries(dir)) {
        Some(dir) => dir
            .canonicalize()
            .with_context(|| format!("cannot resolve {}", dir.display())),
        None => bail!(
            "the drop-in libraries are neither in {} nor in {}; build them with `cargo build --release`, or set ADVERB_LIBDIR",
            places[0].display(),
            places[1].display()
        ),
    }
}

pub(crate) fn compare(args: CompareArgs) -> Result<ComparePlan> {
    let mut shapes = args.shapes;
    if !args.gaps.is_empty() {
        if shapes.is_empty() {
            shapes.extend(known_shape("closed-1"));
        }
        shapes.extend(args.gaps);
    }
    for path in &args.trace {
        shapes.push(shape::read_trace(path)?);
    }
    let (usual_shapes, usual_ways): (&[&str], &[&str]) = match args.thorough {
        true => (&ALL_SHAPES, &ALL_WAYS),
        false => (&SHAPES, &WAYS),
    };
    if shapes.is_empty() {
        shapes = usual_shapes
            .iter()
            .filter_map(|name| known_shape(name))
            .collect();
    }
    let mut ways = args.ways;
    if ways.is_empty() {
        ways = usual_ways
            .iter()
            .filter_map(|name| way::parse(name).ok())
            .collect();
    }
    twice("--shapes", shapes.iter().map(|shape| shape.name.clone()))?;
    twice("--ways", ways.iter().map(Way::to_string))?;
    if !ways.iter().any(|way| way.is_verbs()) {
        bail!("--ways: sockets are for comparison; name a way over verbs, too");
    }
    if args.links.contains(&Link::Loopback) {
        bail!(
            "--links: loopback is within a process, and compare has two; shm and udp are between them"
        );
    }
    check_writable("--json", args.json.as_deref())?;
    check_writable("--html", args.html.as_deref())?;
    if args.json.is_some() && args.json == args.html {
        bail!("--html and --json name the same file");
    }
    let seconds = args
        .seconds
        .unwrap_or(if args.thorough { 570.0 } else { 45.0 });
    let rounds = match args.thorough {
        true if seconds >= 60.0 => 5,
        _ if seconds >= 6.0 => 3,
        _ => 1,
    };
    let weights: f64 = shapes.iter().map(|shape| shape.schedule.weight()).sum();
    // The machine's own stalls are looked for as long as a way is.
    let unit = seconds / (weights * (ways.len() + 1) as f64 * rounds as f64);
    Ok(ComparePlan {
        device: args.device,
        links: args.links,
        shapes,
        ways,
        rounds,
        unit: Duration::from_secs_f64(unit),
        json: args.json,
        html: args.html,
    })
}

/// A shape of ours.
fn known_shape(name: &str) -> Option<Shape> {
    shape::parse(name).ok()
}

/// The same thing twice would stand twice in the table under one name.
fn twice(option: &str, names: impl Iterator<Item = String>) -> Result<()> {
    let mut seen = Vec::new();
    for name in names {
        if seen.contains(&name) {
            bail!("{option}: {name} is there twice");
        }
        seen.push(name);
    }
    Ok(())
}

/// What is compared in under a minute, and what `--thorough` compares.
const SHAPES: [&str; 8] = [
    "closed-1",
    "closed-64",
    "gap-100us",
    "gap-1ms",
    "jitter-1ms",
    "poisson-1ms",
    "burst-16",
    "burst-256",
];
const ALL_SHAPES: [&str; 13] = [
    "closed-1",
    "closed-64",
    "gap-10us",
    "gap-100us",
    "gap-500us",
    "gap-1ms",
    "gap-10ms",
    "jitter-1ms",
    "poisson-20us",
    "poisson-100us",
    "poisson-1ms",
    "burst-16",
    "burst-256",
];
const WAYS: [&str; 7] = [
    "busy",
    "event",
    "event-batch",
    "adaptive",
    "adaptive:30%",
    "tcp",
    "unix",
];
const ALL_WAYS: [&str; 9] = [
    "busy",
    "event",
    "event-batch",
    "adaptive",
    "adaptive:30%",
    "adaptive:10%",
    "adaptive:20us",
    "tcp",
    "unix",
];

pub(crate) fn bench(args: BenchArgs) -> Result<BenchPlan> {
    check_writable("--json", args.json.as_deref())?;
    let mut runs = Vec::new();
    for &test in &args.tests {
        let size = match (test, args.size) {
            (Test::AtomicLat | Test::AtomicBw, Some(size)) if size != 8 => {
                bail!("{test} moves 8 bytes and nothing else: leave out --size {size}")
            }
            (_, Some(size)) => size,
            (Test::SendBw | Test::WriteBw | Test::ReadBw, None) => 64 << 10,
            (_, None) => 8,
        };
        for &link in &args.link {
            for &wait in &args.wait {
                runs.push(BenchRun {
                    test,
                    link,
                    wait,
                    size,
                });
            }
        }
    }
    // The loopback run happens inside this process, whose links were chosen before it started.
    if args.link.contains(&Link::Loopback)
        && let Ok(links) = env::var("ADVERB_LINKS")
        && !links.split(',').any(|link| link == "loopback")
    {
        bail!("ADVERB_LINKS is {links}, which rules out --link loopback: unset ADVERB_LINKS");
    }
    Ok(BenchPlan {
        device: args.device,
        runs,
        time: Duration::from_secs_f64(args.seconds),
        json: args.json,
    })
}

/// Link names as `ADVERB_LINKS` takes them.
pub(crate) fn names(links: &[Link]) -> String {
    links
        .iter()
        .map(|link| link.name())
        .collect::<Vec<_>>()
        .join(",")
}

fn has_libraries(dir: &Path) -> bool {
    dir.join(LIBRARY).exists()
}

/// A typing error should not end in "no devices" inside the program that is run.
fn check_netdev(list: &str) -> Result<()> {
    let known = Path::new("/sys/class/net");
    if list == "all" || !known.is_dir() {
        return Ok(());
    }
    for name in list.split(',') {
        if name.is_empty() || name.contains('/') || !known.join(name).exists() {
            let mut all: Vec<_> = known
                .read_dir()?
                .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
                .collect();
            all.sort();
            bail!(
                "--netdev: there is no network interface {name:?}; this machine has {}, or say `all`",
                all.join(", ")
            );
        }
    }
    Ok(())
}

/// Found out before the measurement rather than after it. Leaves nothing behind: a file that is there afterwards is whole.
fn check_writable(option: &str, path: Option<&Path>) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    let existed = path.exists();
    std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .with_context(|| format!("{option}: cannot write {}", path.display()))?;
    if !existed {
        // An error: somebody else was faster.
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

const LIBRARY: &str = "libibverbs.so.1";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser as _;

    fn parsed(words: &[&str]) -> Command {
        Cli::try_parse_from([&["adverb"], words].concat())
            .unwrap()
            .command
    }

    fn comparison(words: &[&str]) -> Result<ComparePlan> {
        match parsed(&[&["compare"], words].concat()) {
            Command::Compare(args) => compare(args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn all_rounds_of_a_comparison_fill_the_seconds() {
        for words in [&["--seconds", "24"][..], &["--thorough"], &[]] {
            let plan = comparison(words).unwrap();
            let weights: f64 = plan
                .shapes
                .iter()
                .map(|shape| shape.schedule.weight())
                .sum();
            let cells = weights * (plan.ways.len() + 1) as f64 * plan.rounds as f64;
            let seconds = plan.unit.as_secs_f64() * cells;
            let wanted = match words {
                [_, _] => 24.0,
                [_] => 570.0,
                _ => 45.0,
            };
            assert!((seconds - wanted).abs() < 1e-3, "{words:?}: {seconds}");
        }
    }

    #[test]
    fn what_is_usual_can_be_parsed() {
        let plan = comparison(&["--thorough"]).unwrap();
        assert_eq!(
            (plan.shapes.len(), plan.ways.len()),
            (ALL_SHAPES.len(), ALL_WAYS.len())
        );
        let plan = comparison(&[]).unwrap();
        assert_eq!(
            (plan.shapes.len(), plan.ways.len()),
            (SHAPES.len(), WAYS.len())
        );
        let plan = comparison(&["--gaps", "10us"]).unwrap();
        let names: Vec<_> = plan
            .shapes
            .iter()
            .map(|shape| shape.name.as_str())
            .collect();
        assert_eq!(names, ["closed-1", "gap-10us"]);
    }

    #[test]
    fn what_cannot_be_compared_is_named() {
        for (words, hint) in [
            (
                &["--shapes", "gap-1ms,gap-1ms"][..],
                "gap-1ms is there twice",
            ),
            (&["--ways", "busy,busy"], "busy is there twice"),
            (&["--ways", "tcp"], "over verbs"),
            (&["--links", "loopback"], "within a process"),
            (&["--json", "/tmp/x", "--html", "/tmp/x"], "the same file"),
            (&["--trace", "/nowhere/at/all"], "/nowhere/at/all"),
        ] {
            let error = format!("{:#}", comparison(words).unwrap_err());
            assert!(error.contains(hint), "{words:?}: {error}");
        }
    }

    #[test]
    fn bench_runs_every_combination_with_a_fitting_size() {
        let words = [
            "bench",
            "send-lat",
            "read-bw",
            "--link",
            "shm,udp",
            "--wait",
            "busy,event",
        ];
        let Command::Bench(args) = parsed(&words) else {
            panic!()
        };
        let plan = bench(args).unwrap();
        assert_eq!(plan.runs.len(), 8);
        assert_eq!(plan.runs[0].size, 8);
        assert_eq!(plan.runs[7].size, 65536);
    }

    #[test]
    fn atomics_have_one_size() {
        let Command::Bench(args) = parsed(&["bench", "atomic-lat", "--size", "16"]) else {
            panic!()
        };
        let error = bench(args).unwrap_err().to_string();
        assert!(error.contains("8 bytes"), "{error}");
    }
}
