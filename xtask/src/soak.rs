//! Lost wake-ups are rare: each client that sleeps on events, many times on each link.

use anyhow::Result;

use crate::args::Args;
use crate::clients::{self, Ports, links, matches, run_links, sleeping_rows};
use crate::tally::Tally;
use crate::tree::Release;

pub(crate) fn command(mut args: Args) -> Result<bool> {
    let runs = args.value("--runs")?.unwrap_or(100);
    let links = links(&mut args)?;
    let words = args.words()?;
    run(&Release::built()?, runs, &links, &words)
}

pub(crate) fn run(
    release: &Release,
    runs: u32,
    links: &[String],
    words: &[String],
) -> Result<bool> {
    let mut tally = Tally::new("soak");
    let logs = release.logs("soak")?;
    let mut ports = Ports::new();
    // A round of everything at a time, so that an early end has tried everything.
    for _ in 0..runs {
        for row in sleeping_rows().iter().filter(|row| matches(row, words)) {
            run_links(release, row, links, &logs, &mut ports, &mut tally)?;
        }
    }
    Ok(tally.finish())
}

/// All links, no filter: the form in which `cargo xtask test` runs it.
pub(crate) fn run_all(release: &Release, runs: u32) -> Result<bool> {
    run(release, runs, &clients::LINKS.map(str::to_owned), &[])
}
