//! `cargo xtask interop`: Adverb against the kernel's software RoCE, in a virtual machine.
//!
//! `matrix` says what is run, `machine` builds and boots the machine and hands files over, `verdict` judges what the
//! programs left, `manager` those of the connection manager, `suite` compares the Rust API's tests on both devices. docs/interop.md explains what differs.

mod machine;
mod manager;
mod matrix;
mod suite;
mod verdict;

use anyhow::{Result, bail};

use crate::args::Args;
use crate::process;
use crate::tree::Release;
use machine::Machine;
use matrix::Row;
use verdict::Verdict;

pub(crate) fn command(mut args: Args) -> Result<bool> {
    let list = args.flag("--list");
    let only_suite = args.flag("--suite");
    let words = args.words()?;
    let rows: Vec<Row> = matrix::rows()
        .into_iter()
        .filter(|row| words.iter().all(|word| row.name().contains(word)))
        .collect();
    if list {
        for row in &rows {
            println!("{}", row.name());
        }
        return Ok(true);
    }
    if rows.is_empty() {
        bail!("no row contains {}", words.join(" and "));
    }
    let release = Release::built()?;
    let dir = release.logs("interop")?;
    let machine = Machine::prepare(&release, &dir)?;
    let mut good = true;
    if !only_suite {
        good &= run_rows(&machine, &rows)?;
    }
    if words.is_empty() || only_suite {
        good &= suite::run(&machine)?;
    }
    println!("everything that was printed: {}", dir.display());
    Ok(good)
}

/// Groups of rows take turns in fresh machines: one that dies takes only its group with it.
fn run_rows(machine: &Machine, rows: &[Row]) -> Result<bool> {
    println!(
        "\n== kernel software RoCE and Adverb: {} rows, each on the role that Adverb has",
        rows.len()
    );
    let mut table = verdict::Table::new();
    let mut again = Vec::new();
    for (index, group) in rows.chunks(GROUP).enumerate() {
        for (row, verdict) in run_group(machine, &format!("rows{index}"), group)? {
            match verdict {
                Verdict::LastWordLost(why) => {
                    println!(
                        "AGAIN            {}: note 11 of docs/interop.md",
                        row.name()
                    );
                    println!("      | {}", why.replace('\n', "\n      | "));
                    again.push(row.clone());
                }
                verdict => table.add(row, &verdict),
            }
        }
    }
    if !again.is_empty() {
        for (row, verdict) in run_group(machine, "again", &again)? {
            table.add(row, &verdict);
        }
    }
    table.print();
    Ok(table.is_green())
}

fn run_group<'a>(
    machine: &Machine,
    name: &str,
    group: &'a [Row],
) -> Result<Vec<(&'a Row, Verdict)>> {
    let share = machine.share(name)?;
    let lines: String = group
        .iter()
        .enumerate()
        .map(|(number, row)| row.line(number))
        .collect();
    std::fs::write(share.join("rows.tsv"), lines)?;
    // Emulated and on a busy machine a row takes seconds; the bound of each row holds in the guest.
    let bound = 120 + group.len() as u64 * 40;
    let ended = machine.boot(&share, "guest/rows.sh", bound)?;
    if let Err(why) = &ended {
        println!("the machine failed: {why}");
    }
    let judged = group.iter().enumerate();
    Ok(judged
        .map(|(number, row)| (row, verdict::judge(row, &share, number)))
        .collect())
}

const GROUP: usize = 60;

fn last_lines(text: &str) -> String {
    process::tail(text, 12)
}
