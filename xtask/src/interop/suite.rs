//! The Rust API's own tests, on kernel software RoCE through the system's libibverbs.
//!
//! `tests/interop/differences.txt` names the tests that may fail there, each with the number of its explanation in
//! docs/interop.md. A test that is named and passes is a complaint, too: then the explanation is wrong.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result};

use super::machine::Machine;
use crate::tally::{Outcome, Tally};
use crate::tree;

pub(super) fn run(machine: &Machine) -> Result<bool> {
    let mut tally = Tally::new("the Rust API's tests on kernel software RoCE");
    let share = machine.share("suite-run")?;
    if let Err(why) = machine.boot(&share, "guest/suite.sh", 1500)? {
        println!("the machine failed: {why}");
    }
    let text = fs::read_to_string(tree::root().join("tests/interop/differences.txt"))
        .context("tests/interop/differences.txt")?;
    let differences = differences(&text);
    let results = fs::read_to_string(share.join("suite.tsv")).unwrap_or_default();
    let mut seen = 0;
    for line in results.lines() {
        let [program, test, code] = line.split('\t').collect::<Vec<_>>()[..] else {
            continue;
        };
        seen += 1;
        let name = format!("{program} {test}");
        let log = share.join(format!("out/{program}.{}", test.replace("::", ".")));
        let outcome = match (code, differences.get(name.as_str())) {
            ("0", None) => Outcome::Passed,
            ("0", Some(_)) => {
                Outcome::Failed("tests/interop/differences.txt says it fails".to_owned())
            }
            (_, Some(why)) => Outcome::Skipped(format!("differs, {why}")),
            (code, None) => Outcome::Failed(format!(
                "exit code {code}\n{}",
                super::last_lines(&fs::read_to_string(log).unwrap_or_default())
            )),
        };
        tally.add(&name, 0.0, outcome);
    }
    if seen == 0 {
        tally.add("all of them", 0.0, Outcome::Failed("none ran".to_owned()));
    }
    Ok(tally.finish())
}

/// Lines `PROGRAM TEST: why`; the rest after a `#` is for readers.
fn differences(text: &str) -> BTreeMap<&str, &str> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(": "))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_found_by_program_and_test() {
        let list = differences("# why\nloopback a::b: note 3\n\n");
        assert_eq!(list.get("loopback a::b"), Some(&"note 3"));
        assert_eq!(list.len(), 1);
    }
}
