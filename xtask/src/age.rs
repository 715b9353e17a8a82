//! Ageing: processes come and go by the thousand, and the one that stays must be as young as before.
//!
//! The one that stays and those that come are tests/c/age.c. It is asked what it holds when a first crowd has gone, and again
//! at the end; what it has more then than the budgets allow is a failure. Budgets are for growth: what a first crowd needs is
//! the program's own business.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{ChildStdin, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::args::Args;
use crate::clients::{LINKS, hang_report, links, under_adverb, wait_until};
use crate::ctests;
use crate::kill_manager;
use crate::leftovers::Before;
use crate::process::{Job, tail};
use crate::tally::{Outcome, Tally};
use crate::tree::{self, Release};

/// The program.
pub(crate) const PROGRAM: &str = "age";

/// How they talk, and how they end.
const KINDS: [&str; 3] = ["ud", "rc", "cm"];
const ENDS: [&str; 3] = ["clean", "exit", "kill"];

/// Of each kind and end, before the first report and then in each round.
const FIRST: u32 = 12;
const ROUND: u32 = 12;
/// Of these, so many at a time: one by one, and in a crowd.
const CROWDS: [u32; 2] = [2, 12];

/// A crowd that takes longer than this hangs.
const BOUND: Duration = Duration::from_secs(120);
/// A roll of all peers is called a second after somebody was met.
const A_ROLL: Duration = Duration::from_millis(1300);
/// By then everybody who has ended is to be forgotten.
const FORGOTTEN_WITHIN: Duration = Duration::from_secs(20);

/// What the one that stays may hold more at the end than at the first report.
struct Budget {
    private_kib: u64,
    descriptors: u64,
    mappings: u64,
    /// An empty poll may cost so many times what it did, and this besides.
    poll_factor: f64,
    poll_ns: f64,
}

const BUDGET: Budget = Budget {
    private_kib: 1024,
    descriptors: 2,
    mappings: 8,
    poll_factor: 2.0,
    poll_ns: 50.0,
};

pub(crate) fn command(mut args: Args) -> Result<bool> {
    let minutes: f64 = args.value("--minutes")?.unwrap_or(5.0);
    let links = links(&mut args)?;
    args.finish()?;
    run(
        &Release::built()?,
        Duration::from_secs_f64(minutes * 60.0),
        &links,
    )
}

/// On all links: the form in which `cargo xtask test` runs it.
pub(crate) fn run_all(release: &Release, lasting: Duration) -> Result<bool> {
    run(release, lasting, &LINKS.map(str::to_owned))
}

fn run(release: &Release, lasting: Duration, links: &[String]) -> Result<bool> {
    let mut tally = Tally::new("age");
    if !ctests::possible() {
        tally.add(
            "all",
            0.0,
            Outcome::Skipped("no cc, or no infiniband/verbs.h".to_owned()),
        );
        return Ok(tally.finish());
    }
    let program = ctests::compile(release, PROGRAM)?;
    let logs = release.logs(PROGRAM)?;
    for link in links {
        let started = Instant::now();
        let life = Life {
            release,
            program: &program,
            link,
            logs: &logs,
            until: started + lasting / links.len() as u32,
        };
        let outcome = match life.live()? {
            None => Outcome::Passed,
            Some(why) => Outcome::Failed(why),
        };
        tally.add(link, started.elapsed().as_secs_f64(), outcome);
    }
    Ok(tally.finish())
}

struct Life<'a> {
    release: &'a Release,
    program: &'a Path,
    link: &'a str,
    logs: &'a Path,
    until: Instant,
}

impl Life<'_> {
    /// From the birth of the one that stays to the end: what is wrong, if anything is.
    fn live(&self) -> Result<Option<String>> {
        let before = Before::look();
        let card = self.logs.join(format!("card-{}", self.link));
        let mut elder = Elder::start(self, &card)?;
        let mut peers = 0;
        let mut crowd = |count: u32| -> Result<Option<String>> {
            for kind in KINDS {
                for end in ENDS {
                    for jobs in CROWDS {
                        peers += count / 2;
                        if let Some(why) = self.crowd(&card, kind, end, count / 2, jobs)? {
                            return Ok(Some(why));
                        }
                    }
                }
            }
            Ok(None)
        };
        if let Some(why) = crowd(FIRST)? {
            return Ok(Some(why));
        }
        let young = elder.settle()?;
        println!("{:5} young: {young}", self.link);
        loop {
            if let Some(why) = crowd(ROUND)? {
                return Ok(Some(format!(
                    "{why}\n-- who stays\n{}",
                    tail(&elder.job.output(), 5)
                )));
            }
            if Instant::now() >= self.until {
                break;
            }
        }
        let old = elder.settle()?;
        let mut wrong = BUDGET.exceeded(&young, &old);
        println!("{:5} old:   {old}, after {peers} processes", self.link);
        drop(elder);
        wrong.extend(self.left_over(&before)?);
        Ok((!wrong.is_empty()).then(|| wrong.join("\n")))
    }

    fn crowd(
        &self,
        card: &Path,
        kind: &str,
        end: &str,
        count: u32,
        jobs: u32,
    ) -> Result<Option<String>> {
        let mut command = self.command();
        command
            .arg("come")
            .arg(card)
            .args([kind, end, &count.to_string(), &jobs.to_string()]);
        let log = self
            .logs
            .join(format!("come-{}-{kind}-{end}-{jobs}.log", self.link));
        let mut job = Job::start(&mut command, Some(&log))?;
        Ok(match job.wait_until(Instant::now() + BOUND)? {
            Some(status) if status.success() => None,
            Some(status) => Some(format!(
                "a crowd ({kind}, {end}, {jobs} at a time): {status}\n{}",
                tail(&job.output(), 12)
            )),
            None => Some(format!(
                "a crowd ({kind}, {end}, {jobs} at a time) hangs\n{}",
                hang_report(&job)
            )),
        })
    }

    fn command(&self) -> Command {
        let path = self.program.to_str().unwrap_or_default();
        under_adverb(self.release, self.link, path)
    }

    /// While somebody is there who came after all of them.
    fn left_over(&self, before: &Before) -> Result<Vec<String>> {
        if !tree::on_path(kill_manager::MANAGED) {
            return Ok(before.processes_left_over());
        }
        let port = crate::clients::Ports::new().take();
        let _visitor = kill_manager::visitor(self.release, self.logs, port)?;
        let mut left = before.left_over();
        left.retain(|line| !line.contains(&format!("-p {port}")));
        Ok(left
            .into_iter()
            .map(|line| format!("left over: {line}"))
            .collect())
    }
}

/// The one that stays.
struct Elder {
    job: Job,
    input: ChildStdin,
    reports: usize,
}

impl Elder {
    fn start(life: &Life<'_>, card: &Path) -> Result<Self> {
        // It may be there from an earlier run.
        let _ = fs::remove_file(card);
        let mut command = life.command();
        command.arg("serve").arg(card);
        let log = life.logs.join(format!("stays-{}.log", life.link));
        let (mut job, input) = Job::start_with_input(&mut command, &log)?;
        match wait_until(&mut job, "said who it is", |_| card.exists())? {
            None => Ok(Self {
                job,
                input,
                reports: 0,
            }),
            Some(why) => bail!("{why}"),
        }
    }

    fn report(&mut self) -> Result<Report> {
        self.input.write_all(b"report\n")?;
        self.reports += 1;
        let wanted = self.reports;
        let lines = |job: &Job| -> Vec<String> {
            let text = job.output();
            let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
            whole
                .lines()
                .filter(|line| line.starts_with("served "))
                .map(str::to_owned)
                .collect()
        };
        if let Some(why) = wait_until(&mut self.job, "reported", |job| lines(job).len() >= wanted)?
        {
            bail!("{why}");
        }
        let lines = lines(&self.job);
        Report::parse(lines.last().context("there is a report")?)
    }

    /// What it holds when all have gone and it has forgotten them, which it does within a while and not at once.
    fn settle(&mut self) -> Result<Report> {
        let until = Instant::now() + FORGOTTEN_WITHIN;
        let mut last = self.report()?;
        loop {
            std::thread::sleep(A_ROLL);
            let report = self.report()?;
            let same = ["connected", "descriptors", "mappings"]
                .iter()
                .all(|name| report.get(name).ok() == last.get(name).ok());
            if same && report.get("connected")? == 0.0 || Instant::now() > until {
                return Ok(report);
            }
            last = report;
        }
    }
}

/// Names and numbers, in the order in which they were said.
#[derive(Debug, Clone)]
struct Report(Vec<(String, f64)>);

impl Report {
    fn parse(line: &str) -> Result<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let pairs: Option<Vec<(String, f64)>> = words
            .chunks(2)
            .map(|pair| Some((pair.first()?.to_string(), pair.get(1)?.parse().ok()?)))
            .collect();
        pairs
            .map(Self)
            .with_context(|| format!("{line:?} is no report"))
    }

    fn get(&self, name: &str) -> Result<f64> {
        let found = self.0.iter().find(|(n, _)| n == name);
        found
            .map(|(_, value)| *value)
            .with_context(|| format!("the report has no {name}"))
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let words: Vec<String> = self.0.iter().map(|(n, v)| format!("{n} {v}")).collect();
        f.write_str(&words.join(", "))
    }
}

impl Budget {
    /// A line for each thing of which there is too much.
    fn exceeded(&self, young: &Report, old: &Report) -> Vec<String> {
        let value = |report: &Report, name: &str| report.get(name).unwrap_or(f64::MAX);
        let mut wrong = Vec::new();
        let mut check = |name: &str, most: f64| {
            let (was, is) = (value(young, name), value(old, name));
            if is > most {
                wrong.push(format!(
                    "{name}: {is} at the end, {was} at first; at most {most:.0}"
                ));
            }
        };
        for (name, more) in [
            ("private_kib", self.private_kib),
            ("descriptors", self.descriptors),
            ("mappings", self.mappings),
            ("threads", 0),
            ("connected", 0),
        ] {
            check(name, value(young, name) + more as f64);
        }
        check(
            "poll_ns",
            value(young, "poll_ns") * self.poll_factor + self.poll_ns,
        );
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(line: &str) -> Report {
        Report::parse(line).expect("it is one")
    }

    #[test]
    fn growth_beyond_a_budget_is_told_and_within_it_is_not() {
        let young =
            report("connected 0 private_kib 4000 descriptors 20 mappings 90 threads 2 poll_ns 50");
        let same =
            report("connected 0 private_kib 5000 descriptors 22 mappings 95 threads 2 poll_ns 140");
        assert!(BUDGET.exceeded(&young, &same).is_empty());
        let old =
            report("connected 1 private_kib 9000 descriptors 23 mappings 99 threads 3 poll_ns 151");
        assert_eq!(BUDGET.exceeded(&young, &old).len(), 6);
        let silent = report("connected 0");
        assert!(
            !BUDGET.exceeded(&young, &silent).is_empty(),
            "what is not said is too much"
        );
    }

    #[test]
    fn a_line_that_is_no_report_is_an_error() {
        assert!(Report::parse("served many").is_err());
        assert!(Report::parse("served").is_err());
    }
}
