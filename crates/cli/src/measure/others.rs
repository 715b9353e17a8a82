//! What else ran on the machine during a measurement: figures of a busy machine are not to be
//! trusted, and the reader should know.

use std::fs;
use std::time::Instant;

/// Readings at the start.
pub(crate) struct Others {
    ours: Vec<u32>,
    start: Instant,
    machine_ticks: u64,
    our_ticks: u64,
}

impl Others {
    /// `ours` are the processes that do not count as others; nor does this one. None where the
    /// kernel does not tell.
    pub(crate) fn watch(mut ours: Vec<u32>) -> Option<Self> {
        ours.push(std::process::id());
        Some(Self {
            machine_ticks: machine_ticks()?,
            our_ticks: ticks_of(&ours)?,
            start: Instant::now(),
            ours,
        })
    }

    /// CPU time of everybody else since the start, in percent of one core.
    pub(crate) fn cpu_percent(&self) -> Option<f64> {
        let machine = machine_ticks()?.saturating_sub(self.machine_ticks);
        let ours = ticks_of(&self.ours)?.saturating_sub(self.our_ticks);
        let seconds = self.start.elapsed().as_secs_f64().max(0.01);
        let per_second = rustix::param::clock_ticks_per_second() as f64;
        Some(100.0 * machine.saturating_sub(ours) as f64 / per_second / seconds)
    }
}

/// Busy time of all cores together. Fields of the `cpu` line of proc_stat(5): user, nice, system,
/// idle, iowait, irq, softirq, steal.
fn machine_ticks() -> Option<u64> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let fields = text
        .lines()
        .next()?
        .strip_prefix("cpu ")?
        .split_whitespace();
    let ticks: Vec<u64> = fields.map_while(|field| field.parse().ok()).collect();
    let idle = ticks.get(3)? + ticks.get(4)?;
    Some(ticks.iter().take(8).sum::<u64>() - idle)
}

fn ticks_of(processes: &[u32]) -> Option<u64> {
    processes
        .iter()
        .map(|&process| process_ticks(process))
        .sum()
}

/// utime and stime, fields 14 and 15 of proc_pid_stat(5); the name before them may hold anything.
fn process_ticks(process: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let mut fields = text.rsplit_once(')')?.1.split_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_work_is_not_that_of_others() {
        let before = process_ticks(std::process::id()).unwrap();
        while process_ticks(std::process::id()).unwrap() < before + 5 {
            std::hint::black_box(0);
        }
        assert!(machine_ticks().unwrap() >= 5);
        let others = Others::watch(Vec::new()).unwrap();
        assert!(others.cpu_percent().unwrap() >= 0.0);
    }
}
