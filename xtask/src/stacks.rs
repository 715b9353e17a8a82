//! Where a hanging process hangs: per thread its state, the kernel function it waits in, its kernel stack where we may
//! read it, and its user stack where gdb is installed. Where a crashed process crashed: its user stacks.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::tree;

/// Describes every living process of a group.
pub(crate) fn of_group(group: i32) -> String {
    let mut text = String::new();
    for pid in members(group) {
        of_process(pid, &mut text);
    }
    if text.is_empty() {
        text.push_str("no process of the group is left\n");
    }
    text
}

fn members(group: i32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let mut pids: Vec<u32> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| group_of(*pid) == Some(group))
        .collect();
    pids.sort_unstable();
    pids
}

fn group_of(pid: u32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command in parentheses may hold anything; the fields that count stand behind the last one: state, parent, group.
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split_whitespace().nth(2)?.parse().ok()
}

fn of_process(pid: u32, text: &mut String) {
    let command = fs::read_to_string(format!("/proc/{pid}/cmdline"))
        .unwrap_or_default()
        .replace('\0', " ");
    let _ = writeln!(text, "process {pid}: {command}");
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return;
    };
    for task in tasks.flatten() {
        let path = task.path();
        let read = |name: &str| fs::read_to_string(path.join(name)).unwrap_or_default();
        let status = read("status");
        let state = status
            .lines()
            .find(|line| line.starts_with("State:"))
            .unwrap_or("State: ?");
        let name = read("comm");
        let _ = writeln!(
            text,
            "  thread {} {}: {}, waits in {}",
            task.file_name().to_string_lossy(),
            name.trim(),
            state.trim_start_matches("State:").trim(),
            read("wchan"),
        );
        for line in read("stack").lines() {
            let _ = writeln!(text, "    {line}");
        }
    }
    if !tree::on_path("gdb") {
        text.push_str("  (no gdb here: no user stacks)\n");
        return;
    }
    user_stacks(&["-p", &pid.to_string()], text);
}

/// Describes the core files in a directory, and removes them.
pub(crate) fn of_cores(dir: &Path) -> String {
    let mut text = String::new();
    for core in cores(dir) {
        if tree::on_path("gdb") {
            of_core(&core, &mut text);
        } else {
            text.push_str("it dumped core (no gdb here: no stacks)\n");
        }
        // It is large, and the next run may be of another build.
        let _ = fs::remove_file(core);
    }
    text
}

fn cores(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new();
    };
    let is_core = |path: &PathBuf| {
        path.file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name == "core" || name.starts_with("core."))
    };
    entries
        .flatten()
        .map(|entry| entry.path())
        .filter(is_core)
        .collect()
}

fn of_core(core: &Path, text: &mut String) {
    let core = core.to_string_lossy();
    // The kernel has put down what was executed, by its path.
    let vector = gdb(&["-c", &core, "-ex", "info auxv"]);
    let program = vector
        .lines()
        .find(|line| line.contains("File name of executable"))
        .and_then(|line| line.split('"').nth(1))
        .unwrap_or_default();
    let _ = writeln!(text, "{program} dumped core:");
    user_stacks(&[program, &core], text);
}

/// The stacks of all threads of a process or a core, as gdb sees them.
fn user_stacks(of: &[&str], text: &mut String) {
    let mut args = of.to_vec();
    args.extend(["-ex", "set pagination off", "-ex", "thread apply all bt 20"]);
    // The frames of the standard library and of system-call wrappers say nothing that ours do not.
    let ours = |line: &str| !line.contains("/rustc/") && !line.contains("/rustix-");
    let wanted = |line: &&str| {
        (line.starts_with('#') && ours(line))
            || line.starts_with("Thread ")
            || line.starts_with("Program terminated")
    };
    for line in gdb(&args).lines().filter(wanted) {
        let _ = writeln!(text, "  {line}");
    }
}

/// What gdb prints. It may hang on a process in a bad state itself, hence the timeout around it.
fn gdb(args: &[&str]) -> String {
    Command::new("timeout")
        .args(["30", "gdb", "-nx", "-batch"])
        .args(args)
        .output()
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default()
}
