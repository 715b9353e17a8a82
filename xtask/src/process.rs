//! Children that cannot outlive us: each has a process group of its own, a bound on its time, and a log file.
//!
//! A group is killed as a whole when its `Job` is dropped. Against our own sudden death (Ctrl-C, kill) each child is
//! started through `setpriv --pdeathsig`, where that exists; it execs the program, so the process id stays.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

use crate::tree;

/// How often a waiting parent looks. Short against the shortest program run here.
const LOOK: Duration = Duration::from_millis(3);

pub(crate) struct Job {
    child: Child,
    group: Pid,
    log: Option<PathBuf>,
    status: Option<ExitStatus>,
}

/// A command that dies with us.
pub(crate) fn command(program: &Path) -> Command {
    if tree::on_path("setpriv") {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(program);
        command
    } else {
        Command::new(program)
    }
}

impl Job {
    /// Starts `command` in a group of its own, with its output in `log`, or on our own where there is none.
    pub(crate) fn start(command: &mut Command, log: Option<&Path>) -> Result<Self> {
        command.process_group(0).stdin(Stdio::null());
        if let Some(path) = log {
            let file =
                File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
            command.stderr(file.try_clone()?).stdout(file);
        }
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {:?}", command.get_program()))?;
        let group = Pid::from_child(&child);
        Ok(Self {
            child,
            group,
            log: log.map(Path::to_owned),
            status: None,
        })
    }

    pub(crate) fn poll(&mut self) -> Result<Option<ExitStatus>> {
        if self.status.is_none() {
            self.status = self.child.try_wait()?;
        }
        Ok(self.status)
    }

    /// Waits for the end, at most until `until`.
    pub(crate) fn wait_until(&mut self, until: Instant) -> Result<Option<ExitStatus>> {
        loop {
            let status = self.poll()?;
            if status.is_some() || Instant::now() >= until {
                return Ok(status);
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Kills the program itself with SIGKILL, as `kill -9` does; its group stays to be looked at.
    pub(crate) fn kill_leader(&mut self) -> Result<()> {
        if self.poll()?.is_none() {
            rustix::process::kill_process(self.group, Signal::KILL)?;
        }
        Ok(())
    }

    /// Whether any process of the group is left (a zombie that we have not reaped counts, so reap first).
    pub(crate) fn group_is_gone(&self) -> bool {
        test_kill_process_group(self.group).is_err()
    }

    pub(crate) fn group(&self) -> i32 {
        self.group.as_raw_nonzero().get()
    }

    /// What it has printed so far.
    pub(crate) fn output(&self) -> String {
        match &self.log {
            Some(path) => {
                String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
            }
            None => String::new(),
        }
    }

    /// Ends the whole group and reaps the leader.
    pub(crate) fn end(&mut self) {
        // ESRCH here means that everything has ended already, which is what we want.
        let _ = kill_process_group(self.group, Signal::KILL);
        if self.status.is_none() {
            self.status = self.child.wait().ok();
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.end();
    }
}

/// The last lines of a text, for a report.
pub(crate) fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    let from = all.len().saturating_sub(lines);
    all[from..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stacks;

    fn shell(script: &str) -> Job {
        Job::start(Command::new("sh").args(["-c", script]), None).expect("sh starts")
    }

    #[test]
    fn a_bound_that_passes_leaves_the_program_to_be_looked_at() {
        let mut job = shell("sleep 100 & wait");
        let status = job
            .wait_until(Instant::now() + Duration::from_millis(100))
            .expect("it can be waited for");
        assert!(status.is_none());
        let text = stacks::of_group(job.group());
        assert!(text.contains("sleep"), "{text}");
        job.end();
        // The grandchild is reaped by init, which takes a moment.
        let until = Instant::now() + Duration::from_secs(10);
        while !job.group_is_gone() && Instant::now() < until {
            std::thread::sleep(LOOK);
        }
        assert!(job.group_is_gone());
    }

    #[test]
    fn a_failure_is_told_by_the_exit_status() {
        let mut job = shell("exit 3");
        let status = job
            .wait_until(Instant::now() + Duration::from_secs(10))
            .expect("it can be waited for");
        assert_eq!(status.and_then(|status| status.code()), Some(3));
    }

    #[test]
    fn the_tail_of_a_short_text_is_all_of_it() {
        assert_eq!(tail("a\nb", 5), "a\nb");
        assert_eq!(tail("a\nb\nc", 2), "b\nc");
    }
}
