//! Huge pages for the tests that want some: borrowed from the system and given back.

use std::fs;
use std::path::Path;

const COUNT: &str = "/proc/sys/vm/nr_hugepages";
/// More than the suite's tests use at a time.
const WANTED: u32 = 16;

/// While it lives, the system has huge pages if it can and lets us.
pub(super) struct HugePages {
    before: Option<u32>,
    there: bool,
}

impl HugePages {
    pub(super) fn borrow() -> Self {
        let before = read();
        let asks = before.is_some_and(|n| n < WANTED);
        if asks {
            // Who is not root gets none, and says so below.
            let _ = fs::write(COUNT, WANTED.to_string());
        }
        let there = read().is_some_and(|n| n >= WANTED);
        if !there {
            println!(
                "no huge pages ({COUNT} is below {WANTED}): the tests that want some may be skipped"
            );
        }
        Self {
            before: before.filter(|_| asks),
            there,
        }
    }

    pub(super) fn are_there(&self) -> bool {
        self.there
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            let _ = fs::write(COUNT, before.to_string());
        }
    }
}

fn read() -> Option<u32> {
    fs::read_to_string(Path::new(COUNT))
        .ok()?
        .trim()
        .parse()
        .ok()
}
