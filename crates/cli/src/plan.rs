//! What the typed words mean: environment, defaults and conflicts are settled here, before
//! anything starts.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::args::{BenchArgs, CompareArgs, Link, Model, RunArgs, Test};

/// A program, and the environment in which it finds the drop-in libraries.
#[derive(Debug)]
pub(crate) struct RunPlan {
    pub(crate) program: OsString,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) environment: Vec<(&'static str, OsString)>,
    /// Whether the program sees the devices in sysfs.
    pub(crate) sysfs: bool,
}

/// When requests are sent.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) name: String,
    /// None: the next request follows the reply (closed loop with one request in flight).
    pub(crate) gap: Option<Duration>,
    /// Measured time of one round.
    pub(crate) round: Duration,
}

#[derive(Debug)]
pub(crate) struct ComparePlan {
    pub(crate) device: Option<String>,
    pub(crate) shapes: Vec<Shape>,
    /// Each cell is measured so often, with the other cells in between; the median counts.
    pub(crate) rounds: usize,
    pub(crate) json: Option<PathBuf>,
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
    check_writable(args.json.as_deref())?;
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
    check_writable(args.json.as_deref())?;
    let rounds = if args.seconds >= 6.0 { 3 } else { 1 };
    let gaps = args
        .gaps
        .iter()
        .map(|gap| (format!("gap-{}", gap.text), Some(gap.duration)));
    let shapes: Vec<_> = std::iter::once(("closed-1".to_owned(), None))
        .chain(gaps)
        .collect();
    // Rare requests need more time for as many samples.
    let weight = |gap: Option<Duration>| {
        if gap >= Some(Duration::from_millis(1)) {
            2.0
        } else {
            1.0
        }
    };
    let weights: f64 = shapes.iter().map(|(_, gap)| weight(*gap)).sum();
    let unit = args.seconds / (weights * MODELS.len() as f64 * rounds as f64);
    Ok(ComparePlan {
        device: args.device,
        shapes: shapes
            .into_iter()
            .map(|(name, gap)| Shape {
                name,
                gap,
                round: Duration::from_secs_f64(unit * weight(gap)),
            })
            .collect(),
        rounds,
        json: args.json,
    })
}

/// The models of `compare`, in the order in which they are measured and shown.
pub(crate) const MODELS: [Model; 3] = [Model::Busy, Model::Event, Model::Adaptive];

pub(crate) fn bench(args: BenchArgs) -> Result<BenchPlan> {
    check_writable(args.json.as_deref())?;
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

/// Found out before the measurement rather than after it.
fn check_writable(json: Option<&Path>) -> Result<()> {
    if let Some(path) = json {
        std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .with_context(|| format!("--json: cannot write {}", path.display()))?;
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

    #[test]
    fn all_rounds_of_a_comparison_fill_the_seconds() {
        let Command::Compare(args) = parsed(&["compare", "--seconds", "24"]) else {
            panic!()
        };
        let plan = compare(args).unwrap();
        let names: Vec<_> = plan.shapes.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["closed-1", "gap-10us", "gap-100us", "gap-1ms"]);
        let round: f64 = plan.shapes.iter().map(|s| s.round.as_secs_f64()).sum();
        assert!((round * (plan.rounds * MODELS.len()) as f64 - 24.0).abs() < 1e-3);
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
