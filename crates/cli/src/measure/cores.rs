//! Which cores the two sides use, and pinning to them.
//!
//! More spinners than cores cost milliseconds per message, so each side keeps to a core of its
//! own, threads of the NIC included (they inherit the mask of the thread that opens the device).

use std::fs;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};

/// A core for each side. Both are the same one where only one core may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cores {
    pub(crate) client: usize,
    pub(crate) server: usize,
}

impl Cores {
    /// The first core this process may use, and the next one that does not share its execution
    /// units with it (or simply the next one).
    pub(crate) fn choose() -> Self {
        let allowed = allowed();
        let client = allowed.first().copied().unwrap_or(0);
        let siblings = siblings(client);
        let others = || allowed.iter().copied().filter(|&core| core != client);
        let server = others()
            .find(|core| !siblings.contains(core))
            .or_else(|| others().next())
            .unwrap_or(client);
        Self { client, server }
    }

    pub(crate) fn are_distinct(self) -> bool {
        self.client != self.server
    }
}

/// How many cores this process may use.
pub(crate) fn count() -> usize {
    allowed().len().max(1)
}

/// Keeps the calling thread, and the threads it starts from now on, on one core. A refusal (some
/// sandboxes) costs accuracy and nothing else.
pub(crate) fn pin(core: usize) -> bool {
    let mut set = CpuSet::new();
    if core >= CpuSet::MAX_CPU {
        return false;
    }
    set.set(core);
    sched_setaffinity(None, &set).is_ok()
}

/// Whether threads may be bound to that core.
pub(crate) fn can_pin(core: usize) -> bool {
    // On a thread of its own, which ends with that.
    std::thread::spawn(move || pin(core))
        .join()
        .unwrap_or(false)
}

fn allowed() -> Vec<usize> {
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU)
            .filter(|&core| set.is_set(core))
            .collect(),
        Err(_) => vec![0],
    }
}

/// Cores that share execution units with `core`, as far as the kernel says.
fn siblings(core: usize) -> Vec<usize> {
    let path = format!("/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list");
    parse_list(fs::read_to_string(path).unwrap_or_default().trim())
}

/// A list such as `0-1,8`.
fn parse_list(text: &str) -> Vec<usize> {
    text.split(',')
        .filter_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            Some(first.parse().ok()?..=last.parse::<usize>().ok()?)
        })
        .flatten()
        .take(CpuSet::MAX_CPU)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_lists_are_read() {
        assert_eq!(parse_list("0-2,8"), [0, 1, 2, 8]);
        assert_eq!(parse_list("3"), [3]);
        assert!(parse_list("").is_empty());
    }

    #[test]
    fn both_sides_get_a_core_of_their_own_where_there_are_two() {
        assert_eq!(Cores::choose().are_distinct(), count() > 1);
    }
}
