//! The `adverb` program.
//!
//! `args.rs` is what was typed, `plan.rs` what it means, `shape.rs` and `way.rs` what `compare` sets
//! side by side, `cmd/` one file per command. `traffic/`
//! are the two processes of a measurement, `measure/` clocks, counters and the machine's own
//! limits, `report/` turns results into text and JSON, `sysfs/` is what `run --sysfs` shows,
//! `learn/` are the programs of the book.
#![forbid(unsafe_code)]

mod args;
mod cmd;
mod learn;
mod measure;
mod plan;
mod report;
mod shape;
mod sysfs;
mod traffic;
mod way;

use std::io;
use std::process::ExitCode;

use clap::Parser as _;

use args::{Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::parse();
    // `run` reports its own failures with 125 to 127, as env(1) does, so that they are hard to
    // mistake for a status of the program.
    let failure = match &cli.command {
        Command::Run(_) => cmd::run::OWN_FAILURE,
        _ => 1,
    };
    let result = match cli.command {
        Command::Compare(args) => plan::compare(args).and_then(cmd::compare::execute),
        Command::Bench(args) if args.targets => plan::targets(args).and_then(cmd::targets::execute),
        Command::Bench(args) => plan::bench(args).and_then(cmd::bench::execute),
        Command::Run(args) => match plan::run(args).and_then(cmd::run::execute) {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
        Command::Libdir => cmd::libdir::execute(),
        Command::Devices(args) => cmd::devices::execute(&args),
        Command::Learn(args) => cmd::learn::execute(&args),
        Command::Lesson { chapter } => cmd::learn::inside(&chapter),
        Command::Peer => cmd::peer(),
        Command::Sysfs => cmd::sysfs::execute(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("adverb: {error:#}");
            ExitCode::from(failure)
        }
    }
}

/// The reader of our output has seen enough (`adverb devices | head -1`).
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}
