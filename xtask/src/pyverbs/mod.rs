//! rdma-core's own conformance suite, as Debian ships it, through `adverb run --sysfs` on the drop-in libraries.
//!
//! Every outcome is compared with tests/pyverbs/expected.txt; whatever differs fails, better outcomes included, so that
//! the file stays true. `--bless` writes it anew. `expected` knows that file, `suite` unpacks and runs a module.

mod expected;
mod huge_pages;
mod suite;

use std::collections::BTreeMap;

use anyhow::{Result, bail};

use crate::args::Args;
use crate::tree::Release;
use expected::{Expected, NEEDS_HUGE_PAGES, NEEDS_SYSFS, Verdict};
use huge_pages::HugePages;
use suite::{Ran, Suite};

/// All links at once, as a program finds them, and every packet through the kernel's UDP. Most tests are both ends
/// in one process; those of the connection manager are two.
const LINKS: [&str; 2] = ["loopback,shm", "udp"];

pub(crate) fn command(mut args: Args) -> Result<bool> {
    let bless = args.flag("--bless");
    let links: Option<String> = args.value("--links")?;
    let words = args.words()?;
    if bless && !words.is_empty() {
        bail!("--bless writes the whole file, so it takes no words");
    }
    let links = links
        .as_deref()
        .map_or_else(|| LINKS.to_vec(), |links| vec![links]);
    run(&Release::built()?, &links, &words, bless)
}

/// The run of the gate.
pub(crate) fn run_all(release: &Release) -> Result<bool> {
    run(release, &LINKS, &[], false)
}

fn run(release: &Release, links: &[&str], words: &[String], bless: bool) -> Result<bool> {
    println!("\n== pyverbs");
    let Some(suite) = Suite::unpack(release)? else {
        println!(
            "SKIPPED: the conformance suite, because rdma-core's tests or python3-pyverbs are not here"
        );
        return Ok(true);
    };
    let huge_pages = HugePages::borrow();
    let mut lacks = Vec::new();
    if !huge_pages.are_there() {
        lacks.push(NEEDS_HUGE_PAGES);
    }
    if !suite.sysfs {
        lacks.push(NEEDS_SYSFS);
    }
    let mut good = true;
    for link in links {
        let mut ran = BTreeMap::new();
        for module in suite.modules() {
            if words.iter().all(|word| module.contains(word.as_str())) {
                ran.insert(module.clone(), suite.run(release, link, module)?);
            }
        }
        if bless {
            expected::bless(&ran)?;
        }
        good &= judge(link, &ran, words.is_empty(), &lacks)?;
    }
    Ok(good)
}

#[derive(Default)]
struct Row {
    passed: usize,
    failed: usize,
    skipped: usize,
}

/// Prints the table of modules and what is wrong; whether nothing is. `lacks` are the classes of tests for which this
/// system lacks something.
fn judge(
    link: &str,
    ran: &BTreeMap<String, Vec<Ran>>,
    whole: bool,
    lacks: &[&str],
) -> Result<bool> {
    let expected = Expected::read()?;
    let kernel = expected::kernel_passes()?;
    let mut wrong = Vec::new();
    let mut classes: BTreeMap<&str, usize> = BTreeMap::new();
    let mut sum = Row::default();
    println!("\n{link}:\n  module                 pass  fail  skip   kernel's soft-RoCE passes");
    for (module, tests) in ran {
        let mut row = Row::default();
        for test in tests {
            let verdict = Verdict::of(test);
            match &verdict {
                Verdict::Pass => row.passed += 1,
                Verdict::Skip(class) => {
                    row.skipped += 1;
                    *classes.entry(class).or_default() += 1;
                }
                Verdict::Fail(_) => row.failed += 1,
            }
            let excused = matches!(verdict, Verdict::Skip(class) if lacks.contains(&class));
            if !excused {
                wrong.extend(expected.differs(&test.name, &verdict));
            }
        }
        let theirs = kernel.get(module).copied().unwrap_or(0);
        println!(
            "  {module:22} {:4}  {:4}  {:4}   {theirs:4}",
            row.passed, row.failed, row.skipped
        );
        if row.passed < theirs {
            wrong.push(format!(
                "{module}: the kernel's device passes {theirs} tests of it"
            ));
        }
        sum.passed += row.passed;
        sum.failed += row.failed;
        sum.skipped += row.skipped;
    }
    if whole {
        let names = ran.values().flatten().map(|test| test.name.as_str());
        wrong.extend(expected.missing(names));
    }
    println!("\n  why skipped:");
    for (class, count) in classes {
        println!("  {count:4}  {class}");
    }
    for line in &wrong {
        println!("FAIL  {line}");
    }
    println!(
        "pyverbs {link}: {} passed, {} failed, {} skipped; the kernel's soft-RoCE passes {}; {} differ from tests/pyverbs/expected.txt",
        sum.passed,
        sum.failed,
        sum.skipped,
        kernel.values().sum::<usize>(),
        wrong.len()
    );
    Ok(wrong.is_empty())
}
