//! Instructions of the hot calls, counted by callgrind, against tests/counts.txt.
//!
//! Times wander on a shared machine, instructions hardly do. `tests/c/counts.c` makes the calls through the system's
//! verbs.h on the release build; what a call does is counted on the thread that makes it, inside one process. The kernel,
//! the NIC's own thread and links between processes are not in the figures.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::args::Args;
use crate::clients::{hang_report, under_adverb};
use crate::ctests;
use crate::process::{Job, tail};
use crate::tally::{Outcome, Tally};
use crate::tree::{self, Release};

/// The program under callgrind, in tests/c.
pub(crate) const PROGRAM: &str = "counts";

/// It takes some seconds, and has an alarm of 60 s of its own.
const BOUND: Duration = Duration::from_secs(75);

/// How far a count may be from the file's, in percent: alignment and an alarm that falls into a round move it by less
/// than one.
const TOLERANCE: f64 = 3.0;

/// How often the program runs. It dumps each call many times in each run; the median of all counts.
const RUNS: usize = 2;

const HEADER: &str = "\
# Instructions of each hot call over loopback, 8 bytes unless named: `cargo xtask counts` compares (3 %), `--bless` writes.
# post_send: one SEND to its receive, delivered. poll_*: until the completion. send, write, read: from the first post to the
# last completion, send with its receive. Counted on the calling thread in user space, release build, x86-64.
";

pub(crate) fn command(mut args: Args) -> Result<bool> {
    let bless = args.flag("--bless");
    args.finish()?;
    run(&Release::built()?, bless)
}

/// Counts, and compares with the file or writes it.
pub(crate) fn run(release: &Release, bless: bool) -> Result<bool> {
    let mut tally = Tally::new("counts");
    if let Some(why) = missing() {
        tally.add("all calls", 0.0, Outcome::Skipped(why.to_owned()));
        return Ok(tally.finish());
    }
    let started = Instant::now();
    let found = median_of_runs(release)?;
    let took = started.elapsed().as_secs_f64() / found.len().max(1) as f64;
    let file = tree::root().join("tests/counts.txt");
    if bless {
        fs::write(&file, text(&found))
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    let known = fs::read_to_string(&file)
        .with_context(|| format!("cannot read {}; --bless writes it", file.display()))?;
    let mut known = parse(&known)?;
    for (call, now) in &found {
        let name = format!("{call:14} {now:8.0}");
        tally.add(&name, took, judge(known.remove(call), *now));
    }
    for call in known.into_keys() {
        let why = "it is in the file, and was not counted".to_owned();
        tally.add(&call, 0.0, Outcome::Failed(why));
    }
    Ok(tally.finish())
}

fn missing() -> Option<&'static str> {
    if !cfg!(target_arch = "x86_64") {
        Some("the file has the counts of x86-64")
    } else if !ctests::possible() {
        Some("no cc, or no infiniband/verbs.h")
    } else if !tree::on_path("valgrind") || !Path::new("/usr/include/valgrind/callgrind.h").exists()
    {
        Some("valgrind is not installed")
    } else {
        None
    }
}

fn judge(before: Option<f64>, now: f64) -> Outcome {
    let Some(before) = before else {
        return Outcome::Failed("not in tests/counts.txt; --bless adds it".to_owned());
    };
    let change = 100.0 * (now - before) / before;
    if change.abs() <= TOLERANCE {
        Outcome::Passed
    } else {
        Outcome::Failed(format!(
            "{before:.0} before, {change:+.1} %: if that is meant, `cargo xtask counts --bless`, and the commit says why"
        ))
    }
}

/// In some dumps the NIC's own thread has taken part, which changes what is left for the caller: it may have polled for
/// the whole turn that valgrind gives a thread. Therefore the median, over short dumps.
fn median_of_runs(release: &Release) -> Result<BTreeMap<String, f64>> {
    let mut dumps: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for _ in 0..RUNS {
        for (call, instructions) in count(release)? {
            dumps.entry(call).or_default().push(instructions);
        }
    }
    Ok(dumps
        .into_iter()
        .filter_map(|(call, counts)| Some((call, median(counts)?)))
        .collect())
}

fn median(mut counts: Vec<f64>) -> Option<f64> {
    counts.sort_by(f64::total_cmp);
    counts.get(counts.len() / 2).copied()
}

/// Instructions per operation of each call, of each dump.
fn count(release: &Release) -> Result<Vec<(String, f64)>> {
    let logs = release.logs("counts")?;
    let binary = ctests::compile(release, PROGRAM)?;
    let out = logs.join("callgrind");
    let mut command = under_adverb(release, "loopback", "valgrind");
    // Fair turns for the NIC's thread, as in memcheck.rs.
    command
        .args([
            "-q",
            "--tool=callgrind",
            "--fair-sched=yes",
            "--collect-atstart=no",
        ])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(binary);
    let mut job = Job::start(&mut command, Some(&logs.join("log")))?;
    match job.wait_until(Instant::now() + BOUND)? {
        None => bail!("callgrind did not end\n{}", hang_report(&job)),
        Some(status) if !status.success() => bail!("{status}\n{}", tail(&job.output(), 30)),
        Some(_) => {}
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(&logs)? {
        let path = entry?.path();
        if is_dump(&path)
            && let Some((call, instructions)) = per_operation(&fs::read_to_string(&path)?)
                .with_context(|| format!("cannot read {}", path.display()))?
        {
            found.push((call, instructions));
        }
    }
    if found.is_empty() {
        bail!("callgrind left no counts in {}", logs.display());
    }
    Ok(found)
}

fn is_dump(path: &Path) -> bool {
    path.file_name()
        .and_then(|name| name.to_str())
        .is_some_and(|name| name.starts_with("callgrind."))
}

/// The call of one dump and its instructions per operation; none for the dump at the program's end.
fn per_operation(dump: &str) -> Result<Option<(String, f64)>> {
    let Some(label) = field(dump, "desc: Trigger: Client Request: ") else {
        return Ok(None);
    };
    let (call, rounds) = label
        .split_once(' ')
        .with_context(|| format!("{label:?} is not a call and its rounds"))?;
    let rounds: f64 = rounds.parse().context("its rounds are not a number")?;
    let total: f64 = field(dump, "totals: ")
        .context("it has no totals")?
        .parse()
        .context("its totals are not one number")?;
    Ok(Some((call.to_owned(), total / rounds)))
}

fn field<'a>(dump: &'a str, key: &str) -> Option<&'a str> {
    dump.lines().find_map(|line| line.strip_prefix(key))
}

fn text(counts: &BTreeMap<String, f64>) -> String {
    let lines = counts
        .iter()
        .map(|(call, count)| format!("{call:14} {count:8.0}\n"));
    HEADER.to_owned() + &lines.collect::<String>()
}

fn parse(text: &str) -> Result<BTreeMap<String, f64>> {
    text.lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
        .map(|line| {
            let (call, count) = line
                .split_once(' ')
                .with_context(|| format!("tests/counts.txt: {line:?} is not a call and a count"))?;
            let count = count
                .trim()
                .parse()
                .with_context(|| format!("tests/counts.txt: {line:?} has no count"))?;
            Ok((call.to_owned(), count))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUMP: &str = "\
version: 1
desc: Trigger: Client Request: post_send 2000
events: Ir
totals: 5000000
";

    #[test]
    fn a_dump_is_divided_by_its_rounds() {
        let found = per_operation(DUMP).expect("it is whole");
        assert_eq!(found, Some(("post_send".to_owned(), 2500.0)));
        let last = "desc: Trigger: Program termination\ntotals: 7\n";
        assert_eq!(per_operation(last).expect("nothing is wrong"), None);
        assert!(per_operation("desc: Trigger: Client Request: post_send 2000\n").is_err());
    }

    #[test]
    fn a_dump_in_which_another_thread_took_part_does_not_count() {
        assert_eq!(
            median(vec![240.0, 5300.0, 240.0, 240.0, 893.0]),
            Some(240.0)
        );
        assert_eq!(median(Vec::new()), None);
    }

    #[test]
    fn what_is_written_is_read_again() {
        let counts = BTreeMap::from([("poll_empty".to_owned(), 40.0), ("send".to_owned(), 1e5)]);
        assert_eq!(parse(&text(&counts)).expect("it is whole"), counts);
    }

    #[test]
    fn more_and_fewer_instructions_are_both_told() {
        assert!(matches!(judge(Some(100.0), 103.0), Outcome::Passed));
        assert!(matches!(judge(Some(100.0), 103.1), Outcome::Failed(_)));
        assert!(matches!(judge(Some(100.0), 96.0), Outcome::Failed(_)));
        assert!(matches!(judge(None, 1.0), Outcome::Failed(_)));
    }
}
