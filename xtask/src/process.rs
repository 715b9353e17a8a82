//! Children that cannot outlive us: each has a process group of its own, a bound on its time, and a log file. If one
//! crashes, its stacks stand at the end of its log.
//!
//! A group is killed as a whole when its `Job` is dropped. Against our own sudden death (Ctrl-C, kill) each child is
//! started through `setpriv --pdeathsig`, where that exists; it execs the program, so the process id stays.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{
    Pid, Resource, Signal, getrlimit, kill_process_group, setrlimit, test_kill_process_group,
};

use crate::{leftovers, stacks, tree};

/// How often a waiting parent looks. Short against the shortest program run here.
const LOOK: Duration = Duration::from_millis(3);

pub(crate) struct Job {
    child: Child,
    group: Pid,
    log: Option<PathBuf>,
    /// Where it runs and may dump core.
    scratch: Option<PathBuf>,
    status: Option<ExitStatus>,
}

/// A command that dies with us, and says that it is ours.
pub(crate) fn command(program: &Path) -> Command {
    let mut command = if tree::on_path("setpriv") {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(program);
        command
    } else {
        Command::new(program)
    };
    command.env(leftovers::MARK, leftovers::mark());
    command
}

impl Job {
    /// Starts `command` in a group of its own, with its output in `log`, or on our own where there is none. Beside the
    /// log it has a directory to run in, unless the command names another.
    pub(crate) fn start(command: &mut Command, log: Option<&Path>) -> Result<Self> {
        command.stdin(Stdio::null());
        Self::start_as_is(command, log)
    }

    /// The same, with an input that is written from here.
    pub(crate) fn start_with_input(
        command: &mut Command,
        log: &Path,
    ) -> Result<(Self, ChildStdin)> {
        command.stdin(Stdio::piped());
        let mut job = Self::start_as_is(command, Some(log))?;
        let input = job.child.stdin.take().context("the input was asked for")?;
        Ok((job, input))
    }

    fn start_as_is(command: &mut Command, log: Option<&Path>) -> Result<Self> {
        command.process_group(0);
        let mut scratch = None;
        if let Some(path) = log {
            let file =
                File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
            command.stderr(file.try_clone()?).stdout(file);
            if command.get_current_dir().is_none() {
                scratch = Some(scratch_of(path)?);
            }
        }
        let child = match &scratch {
            Some(dir) => with_cores(|| command.current_dir(dir).spawn()),
            None => command.spawn(),
        }
        .with_context(|| format!("cannot start {:?}", command.get_program()))?;
        let group = Pid::from_child(&child);
        Ok(Self {
            child,
            group,
            log: log.map(Path::to_owned),
            scratch,
            status: None,
        })
    }

    pub(crate) fn poll(&mut self) -> Result<Option<ExitStatus>> {
        if self.status.is_none() {
            self.status = self.child.try_wait()?;
            if self.status.is_some() {
                self.tell_crash();
            }
        }
        Ok(self.status)
    }

    /// Adds to the log where it crashed, or a child of it did.
    fn tell_crash(&self) {
        let (Some(scratch), Some(log)) = (&self.scratch, &self.log) else {
            return;
        };
        let text = stacks::of_cores(scratch);
        if !text.is_empty()
            && let Ok(mut file) = File::options().append(true).open(log)
        {
            // A log that cannot be written is no worse than one without stacks.
            let _ = file.write_all(text.as_bytes());
        }
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
            Some(path) => String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned(),
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

/// An empty directory beside a log.
fn scratch_of(log: &Path) -> Result<PathBuf> {
    let dir = log.with_extension("dir");
    // It may be there from an earlier run, or not.
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    Ok(dir)
}

/// What is started meanwhile may dump core.
fn with_cores<T>(start: impl FnOnce() -> T) -> T {
    let before = getrlimit(Resource::Core);
    let mut most = before;
    most.current = most.maximum;
    // Without the permission there are no stacks, and that is all.
    let _ = setrlimit(Resource::Core, most);
    let started = start();
    let _ = setrlimit(Resource::Core, before);
    started
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
    fn a_crash_is_told_in_the_log_with_its_stacks() {
        let log = std::env::temp_dir().join(format!("xtask-crash-{}.log", std::process::id()));
        let mut command = Command::new("sh");
        command.args(["-c", "echo before; kill -SEGV $$"]);
        let mut job = Job::start(&mut command, Some(&log)).expect("sh starts");
        let status = job
            .wait_until(Instant::now() + Duration::from_secs(60))
            .expect("it can be waited for")
            .expect("it ends");
        let text = job.output();
        // Where core files go is the system's choice.
        let here = fs::read_to_string("/proc/sys/kernel/core_pattern")
            .is_ok_and(|pattern| pattern.starts_with("core"));
        assert!(text.starts_with("before\n"), "{text}");
        assert!(
            !here || !core_dumped(status) || text.contains("sh dumped core"),
            "{text}"
        );
        let _ = fs::remove_file(&log);
        let _ = fs::remove_dir_all(log.with_extension("dir"));
    }

    fn core_dumped(status: ExitStatus) -> bool {
        use std::os::unix::process::ExitStatusExt;
        status.core_dumped()
    }

    #[test]
    fn the_tail_of_a_short_text_is_all_of_it() {
        assert_eq!(tail("a\nb", 5), "a\nb");
        assert_eq!(tail("a\nb\nc", 2), "b\nc");
    }
}
