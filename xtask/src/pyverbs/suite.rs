//! Unpacks the suite and runs its modules, each in a process of its own.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::clients::{hang_report, sysfs_refusal, with_options};
use crate::process::{Job, tail};
use crate::tree::{self, Release};

/// Where Debian's package rdma-core has the tests, the larger files compressed.
const SHIPPED: &str = "/usr/share/doc/rdma-core/tests";
/// Debian's bindings are for Debian's interpreter, not for whichever comes first on the path.
const PYTHON: &str = "/usr/bin/python3";
const BINDINGS: &str = "/usr/lib/python3/dist-packages/pyverbs";

/// A whole module takes a second or two when it is well.
const BOUND: Duration = Duration::from_secs(60);

/// The mark of the lines that tests/pyverbs/module.py prints for us.
const MARK: &str = "@@adverb";

pub(super) enum Outcome {
    Pass,
    Skip(String),
    Fail(String),
}

pub(super) struct Ran {
    /// Module, class and function: `test_mr.MRTest.test_reg_mr`.
    pub(super) name: String,
    pub(super) outcome: Outcome,
}

pub(super) struct Suite {
    tests: PathBuf,
    logs: PathBuf,
    modules: Vec<String>,
    /// Whether this system lets programs see our devices in sysfs.
    pub(super) sysfs: bool,
}

impl Suite {
    /// None where the packages are not installed.
    pub(super) fn unpack(release: &Release) -> Result<Option<Self>> {
        let shipped = Path::new(SHIPPED);
        if !shipped.is_dir() || !Path::new(BINDINGS).is_dir() {
            return Ok(None);
        }
        let logs = release.logs("pyverbs")?;
        let tests = logs.join("tests");
        fs::create_dir(&tests)?;
        let mut modules = Vec::new();
        for entry in fs::read_dir(shipped)? {
            let from = entry?.path();
            let Some(name) = from.file_name().and_then(|name| name.to_str()) else {
                continue;
            };
            let plain = name.strip_suffix(".gz").unwrap_or(name);
            let to = tests.join(plain);
            if plain == name {
                fs::copy(&from, &to)?;
            } else {
                gunzip(&from, &to)?;
            }
            if let Some(module) = plain.strip_suffix(".py")
                && module.starts_with("test_")
            {
                modules.push(module.to_owned());
            }
        }
        modules.sort();
        Ok(Some(Self {
            tests,
            logs,
            modules,
            sysfs: can_show_sysfs(release),
        }))
    }

    pub(super) fn modules(&self) -> &[String] {
        &self.modules
    }

    /// Runs every test of a module. One that hangs or kills the process is a failure, and those behind it are run in
    /// the next process.
    pub(super) fn run(&self, release: &Release, link: &str, module: &str) -> Result<Vec<Ran>> {
        let mut done: HashMap<String, Outcome> = HashMap::new();
        let mut order: Vec<String> = Vec::new();
        let mut left: Vec<String> = Vec::new();
        for attempt in 0.. {
            let log = self.logs.join(format!("{module}-{link}-{attempt}.log"));
            let end = self.run_once(release, link, module, &left, &log)?;
            let said = Said::read(&fs::read_to_string(&log).unwrap_or_default());
            if attempt == 0 {
                order.clone_from(&said.has);
            }
            done.extend(said.ended);
            let Some(why) = end else { break };
            match said.running {
                Some(name) => done.insert(name, Outcome::Fail(why)),
                // It did not get as far as a test, so it will not next time.
                None => {
                    order.push(format!("{module}.(loading)"));
                    done.insert(format!("{module}.(loading)"), Outcome::Fail(why));
                    break;
                }
            };
            left = order
                .iter()
                .filter(|name| !done.contains_key(*name))
                .cloned()
                .collect();
            if left.is_empty() {
                break;
            }
        }
        let mut seen: BTreeSet<String> = order.iter().cloned().collect();
        for name in done.keys() {
            if seen.insert(name.clone()) {
                order.push(name.clone());
            }
        }
        Ok(order
            .into_iter()
            .map(|name| {
                let outcome = done
                    .remove(&name)
                    .unwrap_or_else(|| Outcome::Fail("it was not run".to_owned()));
                Ran { name, outcome }
            })
            .collect())
    }

    /// None when the process went through all its tests, otherwise how it ended.
    fn run_once(
        &self,
        release: &Release,
        link: &str,
        module: &str,
        only: &[String],
        log: &Path,
    ) -> Result<Option<String>> {
        let mut options = vec!["--links", link];
        if self.sysfs {
            options.push("--sysfs");
        }
        let mut command = with_options(release, &options, PYTHON);
        command
            .arg(tree::root().join("tests/pyverbs/module.py"))
            .arg(&self.tests)
            .arg(module)
            .args(only)
            .current_dir(&self.tests);
        let mut job = Job::start(&mut command, Some(log))?;
        Ok(match job.wait_until(Instant::now() + BOUND)? {
            None => Some(format!("it hangs\n{}", hang_report(&job))),
            Some(status) if status.success() => None,
            Some(status) => Some(format!("{status}\n{}", tail(&job.output(), 12))),
        })
    }
}

fn can_show_sysfs(release: &Release) -> bool {
    match sysfs_refusal(release) {
        Ok(None) => true,
        Ok(Some(why)) => {
            println!("{why}\nthe tests that read sysfs may be skipped");
            false
        }
        Err(_) => false,
    }
}

/// What a log says about its tests.
#[derive(Default)]
struct Said {
    has: Vec<String>,
    ended: HashMap<String, Outcome>,
    /// Begun and not ended.
    running: Option<String>,
}

impl Said {
    fn read(log: &str) -> Self {
        let mut said = Self::default();
        for line in log.lines() {
            // A test may have left a line of its own unfinished in front of ours.
            let Some((_, line)) = line.split_once(MARK) else {
                continue;
            };
            let fields: Vec<&str> = line.split('\t').skip(1).collect();
            match fields.as_slice() {
                ["has", name] => said.has.push((*name).to_owned()),
                ["begin", name] => said.running = Some((*name).to_owned()),
                ["end", name, outcome, reason] => {
                    said.running = None;
                    let outcome = match *outcome {
                        "pass" => Outcome::Pass,
                        "skip" => Outcome::Skip((*reason).to_owned()),
                        _ => Outcome::Fail(reason.replace(" | ", "\n")),
                    };
                    let worse = matches!(outcome, Outcome::Fail(_));
                    if worse || !said.ended.contains_key(*name) {
                        said.ended.insert((*name).to_owned(), outcome);
                    }
                }
                _ => {}
            }
        }
        said
    }
}

fn gunzip(from: &Path, to: &Path) -> Result<()> {
    let output = Command::new("gzip")
        .arg("-dc")
        .arg(from)
        .output()
        .context("cannot run gzip")?;
    if !output.status.success() {
        bail!("gzip -dc {}: {}", from.display(), output.status);
    }
    fs::write(to, output.stdout).with_context(|| format!("cannot write {}", to.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_has_begun_and_not_ended_is_the_one_that_hangs() {
        let said = Said::read(
            "@@adverb\thas\tm.A.x\n@@adverb\thas\tm.A.y\n@@adverb\tbegin\tm.A.x\nnoise@@adverb\tend\tm.A.x\tpass\t\n\
             @@adverb\tbegin\tm.A.y\n",
        );
        assert_eq!(said.has.len(), 2);
        assert!(matches!(said.ended.get("m.A.x"), Some(Outcome::Pass)));
        assert_eq!(said.running.as_deref(), Some("m.A.y"));
    }

    #[test]
    fn a_failure_in_the_teardown_outweighs_a_pass() {
        let said =
            Said::read("@@adverb\tend\tm.A.x\tpass\t\n@@adverb\tend\tm.A.x\tfail\tError | busy\n");
        assert!(
            matches!(said.ended.get("m.A.x"), Some(Outcome::Fail(why)) if why == "Error\nbusy")
        );
    }
}
