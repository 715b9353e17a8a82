//! Code that is wrong in one known way, and whether a test finds out.
//!
//! `list` reads `tests/mutants/`, `switch` makes one text of all mutants of a file, `workspace` builds a copy of the crates
//! with all of them in it, `trial` runs one mutant before one of those who should notice. A mutant is built and run, never
//! only built: one that does not compile is an error in the list, and one that makes its judges run for ever has to be
//! listed as such. So is one that nobody notices, with the reason; when somebody notices it after all, that is told, too.

mod list;
mod switch;
mod trial;
mod workspace;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::args::Args;
use crate::tree::Release;
use list::{Fate, Judge, Mutant};
use trial::{Ruling, UNBROKEN};
use workspace::{Binaries, Built, Workspace};

/// What became of a mutant.
enum End {
    Caught(String),
    Endless(String),
    DoesNotBuild(String),
    Survived,
}

pub(crate) fn command(mut args: Args) -> Result<bool> {
    let list = args.flag("--list");
    let words = args.words()?;
    let mutants: Vec<Mutant> = list::all()?
        .into_iter()
        .filter(|m| {
            words
                .iter()
                .all(|w| m.name.contains(w.as_str()) || m.file.contains(w.as_str()))
        })
        .collect();
    if list {
        for m in &mutants {
            println!("{}  ({})", m.name, m.file);
        }
        return Ok(true);
    }
    run(&mutants)
}

pub(crate) fn run_all() -> Result<bool> {
    run(&list::all()?)
}

fn run(mutants: &[Mutant]) -> Result<bool> {
    let numbered: Vec<(u32, &Mutant)> = (UNBROKEN + 1..).zip(mutants).collect();
    for (_, m) in &numbered {
        m.place_in(&m.source()?)?;
    }
    let logs = Release::locate()?.logs("mutants")?;
    let started = Instant::now();
    let workspace = Workspace::new(&numbered)?;
    let binaries = match workspace.build(&judges_of(&numbered))? {
        Built::Yes(binaries) => binaries,
        Built::No(why) => {
            tell_which(&workspace, &numbered, &why)?;
            return Ok(false);
        }
    };
    println!(
        "one build for {} of {} mutants: {:.0} s",
        numbered
            .iter()
            .filter(|(n, _)| !workspace.is_alone(*n))
            .count(),
        mutants.len(),
        started.elapsed().as_secs_f64()
    );
    let bounds = unbroken(&workspace, &binaries, &judges_of(&numbered), &logs)?;
    let court = Court {
        workspace: &workspace,
        bounds,
        logs: &logs,
        told: Mutex::new(Told::new(mutants.len())),
    };
    court.try_together(&binaries, &numbered)?;
    court.try_alone(&numbered)?;
    let told = court.told.into_inner().expect("no worker panics");
    Ok(told.finish())
}

fn judges_of<'a>(mutants: &[(u32, &'a Mutant)]) -> Vec<&'a Judge> {
    let mut judges: Vec<&Judge> = mutants.iter().flat_map(|(_, m)| &m.judges).collect();
    judges.sort();
    judges.dedup();
    judges
}

/// What is right has to be found right first: otherwise every mutant would look caught. How long each judge may take.
fn unbroken(
    workspace: &Workspace,
    binaries: &Binaries,
    judges: &[&Judge],
    logs: &Path,
) -> Result<BTreeMap<Judge, Duration>> {
    let mut bounds = BTreeMap::new();
    for judge in judges {
        let log = logs.join("unbroken.log");
        match trial::hold(workspace, binaries, judge, UNBROKEN, None, &log)? {
            Ruling::Right(took) => bounds.insert((*judge).clone(), trial::bound(took)),
            Ruling::Wrong(what) => bail!("{judge} fails without any mutant: {what}"),
            Ruling::Endless => bail!("{judge} does not end, without any mutant"),
        };
    }
    Ok(bounds)
}

struct Court<'a> {
    workspace: &'a Workspace,
    bounds: BTreeMap<Judge, Duration>,
    logs: &'a Path,
    told: Mutex<Told>,
}

impl Court<'_> {
    /// Those of the one build, two at a time.
    fn try_together(&self, binaries: &Binaries, mutants: &[(u32, &Mutant)]) -> Result<()> {
        let next = AtomicUsize::new(0);
        let work = || -> Result<()> {
            while let Some(&(number, m)) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
                if !self.workspace.is_alone(number) {
                    self.try_one(binaries, number, m)?;
                }
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let other = scope.spawn(work);
            let mine = work();
            other.join().expect("no worker panics").and(mine)
        })
    }

    /// Those that need a build of their own.
    fn try_alone(&self, mutants: &[(u32, &Mutant)]) -> Result<()> {
        for &(number, m) in mutants.iter().filter(|(n, _)| self.workspace.is_alone(*n)) {
            self.workspace.break_alone(m)?;
            let judges: Vec<&Judge> = m.judges.iter().collect();
            let built = self.workspace.build(&judges);
            let outcome = match built {
                Ok(Built::Yes(binaries)) => self.try_one(&binaries, number, m),
                Ok(Built::No(why)) => {
                    self.tell(m, &End::DoesNotBuild(why), Duration::ZERO);
                    Ok(())
                }
                Err(e) => Err(e),
            };
            self.workspace.restore(m)?;
            outcome?;
        }
        Ok(())
    }

    fn try_one(&self, binaries: &Binaries, number: u32, m: &Mutant) -> Result<()> {
        let started = Instant::now();
        let log = self.logs.join(format!("{number}.log"));
        let mut end = End::Survived;
        for judge in &m.judges {
            let bound = self.bounds.get(judge).copied();
            match trial::hold(self.workspace, binaries, judge, number, bound, &log)? {
                Ruling::Right(_) => continue,
                Ruling::Wrong(what) => end = End::Caught(format!("{judge}: {what}")),
                Ruling::Endless => end = End::Endless(judge.to_string()),
            }
            break;
        }
        self.tell(m, &end, started.elapsed());
        Ok(())
    }

    fn tell(&self, m: &Mutant, end: &End, took: Duration) {
        self.told
            .lock()
            .expect("no worker panics")
            .add(m, end, took);
    }
}

/// Without a mutant that compiles there is nothing to try: says which do not.
fn tell_which(workspace: &Workspace, mutants: &[(u32, &Mutant)], why: &str) -> Result<()> {
    println!("the mutants do not build together; each alone:");
    let mut guilty = 0;
    for (_, m) in mutants {
        if !why.contains(m.file.as_str()) {
            continue;
        }
        workspace.break_alone(m)?;
        if let Built::No(why) = workspace.build(&m.judges.iter().collect::<Vec<_>>())? {
            println!("DOES NOT BUILD: {}\n{why}", m.name);
            guilty += 1;
        }
        workspace.restore(m)?;
    }
    if guilty == 0 {
        println!("each of them builds; only together they do not:\n{why}");
    }
    Ok(())
}

/// The lines of the table and the sum below it.
struct Told {
    all: usize,
    done: usize,
    caught: usize,
    endless: usize,
    known: usize,
    wrong: Vec<String>,
    since: Instant,
}

impl Told {
    fn new(all: usize) -> Self {
        Self {
            all,
            done: 0,
            caught: 0,
            endless: 0,
            known: 0,
            wrong: Vec::new(),
            since: Instant::now(),
        }
    }

    fn add(&mut self, m: &Mutant, end: &End, took: Duration) {
        self.done += 1;
        let (word, good) = match (end, &m.fate) {
            (End::Caught(by), Fate::Caught | Fate::Endless) => {
                self.caught += 1;
                (format!("caught by {by}"), true)
            }
            (End::Endless(who), Fate::Endless) => {
                self.endless += 1;
                (format!("never ends, as it should: {who}"), true)
            }
            (End::Survived, Fate::Survives(why)) => {
                self.known += 1;
                (format!("survives, as is known: {why}"), true)
            }
            (End::Caught(by), Fate::Survives(_)) => (
                format!("CAUGHT by {by}, although listed as surviving"),
                false,
            ),
            (End::Endless(who), _) => (
                format!("NEVER ENDS and is not listed as such: {who}"),
                false,
            ),
            (End::DoesNotBuild(why), _) => (format!("DOES NOT BUILD:\n{why}"), false),
            (End::Survived, _) => ("SURVIVED".to_owned(), false),
        };
        println!(
            "{:3} of {}  {:5.1} s  {}: {word}",
            self.done,
            self.all,
            took.as_secs_f64(),
            m.name
        );
        if !good {
            self.wrong.push(m.name.clone());
        }
    }

    fn finish(self) -> bool {
        for name in &self.wrong {
            println!("failed: {name}");
        }
        println!(
            "mutants: {} caught, {} never end as expected, {} known to survive, {} failed, of {} ({:.0} s without the build)",
            self.caught,
            self.endless,
            self.known,
            self.wrong.len(),
            self.all,
            self.since.elapsed().as_secs_f64()
        );
        self.wrong.is_empty()
    }
}
