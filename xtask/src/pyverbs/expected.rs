//! The checked-in outcomes, tests/pyverbs/expected.txt, and the reasons for which a test may be skipped.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::suite::{Outcome, Ran};
use crate::tree;

const HEADER: &str = "\
# What each test of rdma-core's conformance suite (Debian's rdma-core 44) gives on adverb0: `pass`, or `skip` and the
# class of its reason. Any other outcome fails `cargo xtask pyverbs`, which also writes this file: `--bless`.
";

/// The class of the tests that look for the network interface of a device in sysfs, which not every system lets us show.
pub(super) const NEEDS_SYSFS: &str = "needs adverb run --sysfs";

/// The class of the tests that only a system with huge pages runs.
pub(super) const NEEDS_HUGE_PAGES: &str = "needs huge pages";

/// Why a test may be skipped: whose tests, a part of the reason it gives, and the class in which we file it. A reason
/// that is not here is a failure.
const CLASSES: &[(&str, &str, &str)] = &[
    ("", "non MLX5 device", "mlx5 only"),
    ("", "not an MLX5 device", "mlx5 only"),
    ("test_mlx5", "PCI device must be passed", "mlx5 only"),
    ("", "non EFA device", "efa only"),
    ("", "CUDA", "needs a GPU"),
    ("", "Allocating dmabuf is not supported", "dmabuf of a GPU"),
    ("", "Raw Packet", "raw packet, flow or RSS"),
    ("", "QP type 8 ", "raw packet, flow or RSS"),
    ("test_tag_matching", "not supported", "tag matching"),
    (
        "test_mlx5",
        "Converting timestamp to nanoseconds",
        "mlx5 only",
    ),
    ("", "second device", "needs a second device"),
    (
        "test_device",
        "All gid indices populated",
        "GID table without holes",
    ),
    ("", "huge pages", NEEDS_HUGE_PAGES),
    ("test_odp", "Huge", NEEDS_HUGE_PAGES),
    ("test_mlx5", "net interface", "mlx5 only"),
    ("test_rdmacm", "net interface", NEEDS_SYSFS),
];

/// An outcome as the file has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    Pass,
    /// The class of the reason.
    Skip(&'static str),
    Fail(String),
}

impl Verdict {
    pub(super) fn of(test: &Ran) -> Self {
        match &test.outcome {
            Outcome::Pass => Self::Pass,
            Outcome::Fail(why) => Self::Fail(why.clone()),
            Outcome::Skip(reason) => CLASSES
                .iter()
                .find(|(whose, part, _)| test.name.starts_with(whose) && reason.contains(part))
                .map_or_else(
                    || Self::Fail(format!("skipped for a reason of no class: {reason}")),
                    |(.., class)| Self::Skip(class),
                ),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pass => f.write_str("pass"),
            Self::Skip(class) => write!(f, "skip: {class}"),
            Self::Fail(why) => write!(f, "fail: {}", why.trim_end()),
        }
    }
}

pub(super) struct Expected(BTreeMap<String, String>);

impl Expected {
    pub(super) fn read() -> Result<Self> {
        let path = file("expected.txt");
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        Self(
            records(text)
                .map(|(name, outcome)| (name.to_owned(), outcome.to_owned()))
                .collect(),
        )
    }

    /// What is wrong with an outcome.
    pub(super) fn differs(&self, name: &str, verdict: &Verdict) -> Option<String> {
        match self.0.get(name) {
            Some(known) if *known == verdict.to_string() => None,
            Some(known) => Some(format!("{name}: expected {known}, got {verdict}")),
            None => Some(format!("{name}: not in the file, got {verdict}")),
        }
    }

    /// Tests of the file that were not run.
    pub(super) fn missing<'a>(&self, ran: impl Iterator<Item = &'a str>) -> Vec<String> {
        let ran: BTreeSet<&str> = ran.collect();
        self.0
            .keys()
            .filter(|name| !ran.contains(name.as_str()))
            .map(|name| format!("{name}: in the file, but the suite has no such test"))
            .collect()
    }
}

/// Writes the outcomes down. A failure cannot be made the expectation: it is written down as the pass it should be.
pub(super) fn bless(ran: &BTreeMap<String, Vec<Ran>>) -> Result<()> {
    let mut text = String::from(HEADER);
    for test in ran.values().flatten() {
        let verdict = match Verdict::of(test) {
            Verdict::Fail(_) => Verdict::Pass,
            other => other,
        };
        text.push_str(&format!("{} {verdict}\n", test.name));
    }
    let path = file("expected.txt");
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// How many tests of each module pass on the kernel's software device.
pub(super) fn kernel_passes() -> Result<BTreeMap<String, usize>> {
    let path = file("kernel.txt");
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    records(&text)
        .map(|(module, count)| Ok((module.to_owned(), count.parse()?)))
        .collect()
}

fn file(name: &str) -> PathBuf {
    tree::root().join("tests/pyverbs").join(name)
}

/// Lines of a name and the rest, without comments.
fn records(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.trim_end().split_once(' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skipped(name: &str, reason: &str) -> Verdict {
        Verdict::of(&Ran {
            name: name.to_owned(),
            outcome: Outcome::Skip(reason.to_owned()),
        })
    }

    #[test]
    fn a_skip_needs_a_reason_that_is_allowed() {
        assert_eq!(
            skipped("test_flow.A.x", "Create Raw Packet QP is not supported"),
            Verdict::Skip("raw packet, flow or RSS")
        );
        assert!(matches!(
            skipped("test_mr.A.x", "Device memory is not supported"),
            Verdict::Fail(_)
        ));
    }

    #[test]
    fn better_outcomes_differ_from_the_file_too() {
        let expected = Expected::parse("# a comment\nm.A.x skip: mlx5 only\nm.A.y pass\n");
        assert!(
            expected
                .differs("m.A.x", &Verdict::Skip("mlx5 only"))
                .is_none()
        );
        assert!(expected.differs("m.A.x", &Verdict::Pass).is_some());
        assert!(expected.differs("m.A.z", &Verdict::Pass).is_some());
        assert_eq!(expected.missing(["m.A.x"].into_iter()).len(), 1);
    }
}
