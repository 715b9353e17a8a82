//! Unmodified verbs programs, server and client as two processes, on the drop-in libraries of the release build.
//!
//! `matrix` says what is run, `manager` what of it meets by the connection manager, `frameworks` what stands on libfabric,
//! UCX and their like, `options` what else perftest can be told, `pair`, `meeting` and `launcher` how several processes
//! are run against each other, `listening` how we see that one is ready.

mod frameworks;
mod launcher;
mod listening;
mod manager;
mod matrix;
mod meeting;
pub(crate) mod options;
mod pair;

use std::path::Path;

use anyhow::{Result, bail};

use crate::args::Args;
use crate::tally::{Outcome, Tally};
use crate::tree::{self, Release};

pub(crate) use listening::{Ports, Registry};
pub(crate) use matrix::{Row, Shape, rows, sleeping_rows};
pub(crate) use pair::{
    hang_report, run_row, sysfs_refusal, under_adverb, wait_for_listener, wait_until, with_options,
};

/// The links a row is run over. `shm` and `udp` both connect two processes of one host.
pub(crate) const LINKS: [&str; 2] = ["shm", "udp"];

/// After so many failures the rest is not run: if everything hangs, the bounds add up to hours.
const ENOUGH: usize = 10;

pub(crate) fn command(mut args: Args) -> Result<bool> {
    let list = args.flag("--list");
    let links = links(&mut args)?;
    let words = args.words()?;
    if list {
        for row in rows().iter().filter(|row| matches(row, &words)) {
            println!("{row}");
        }
        return Ok(true);
    }
    run(&Release::built()?, &links, &words)
}

/// `--links A,B`, or all of them.
pub(crate) fn links(args: &mut Args) -> Result<Vec<String>> {
    let Some(text) = args.value::<String>("--links")? else {
        return Ok(LINKS.map(str::to_owned).to_vec());
    };
    let links: Vec<String> = text.split(',').map(str::to_owned).collect();
    if let Some(unknown) = links.iter().find(|link| !LINKS.contains(&link.as_str())) {
        bail!(
            "--links {unknown}: two processes can meet over {}",
            LINKS.join(" and ")
        );
    }
    Ok(links)
}

pub(crate) fn matches(row: &Row, words: &[String]) -> bool {
    let text = row.to_string();
    words.iter().all(|word| text.contains(word.as_str()))
}

/// Every matching row on every link.
pub(crate) fn run(release: &Release, links: &[String], words: &[String]) -> Result<bool> {
    let mut tally = Tally::new("clients");
    let logs = release.logs("clients")?;
    let mut ports = Ports::new();
    for row in rows().iter().filter(|row| matches(row, words)) {
        if tally.failures() >= ENOUGH {
            tally.add(
                &row.to_string(),
                0.0,
                Outcome::Skipped(format!("{ENOUGH} rows have failed already")),
            );
            continue;
        }
        run_links(release, row, links, &logs, &mut ports, &mut tally)?;
    }
    Ok(tally.finish())
}

/// One row on each link it has; rows of one process know no link.
pub(crate) fn run_links(
    release: &Release,
    row: &Row,
    links: &[String],
    logs: &Path,
    ports: &mut Ports,
    tally: &mut Tally,
) -> Result<()> {
    let alone = [String::from("shm,udp")];
    let links = if matches!(
        row.shape,
        Shape::Pair(_) | Shape::Meeting(_) | Shape::Launcher(_)
    ) {
        links
    } else {
        &alone
    };
    for link in links {
        let name = format!("{link:8} {row}");
        if !tree::on_path(row.program) {
            tally.add(
                &name,
                0.0,
                Outcome::Skipped(format!("{} is not installed", row.program)),
            );
            continue;
        }
        let started = std::time::Instant::now();
        let mut outcome = run_row(release, row, link, logs, ports)?;
        if let Outcome::Failed(why) = &outcome
            && let Some(flaw) = frameworks::known_flaw(row, why)
        {
            println!("AGAIN           {name}: {flaw}");
            println!("      | {}", why.replace('\n', "\n      | "));
            outcome = run_row(release, row, link, logs, ports)?;
        }
        tally.add(&name, started.elapsed().as_secs_f64(), outcome);
    }
    Ok(())
}
