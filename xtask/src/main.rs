//! `cargo xtask`: everything that is done to this repository by a machine.
//!
//! `test` is the gate and runs all the others; each of them can be run alone. This crate depends on none of ours, so
//! that it can judge them, and on nothing that takes long to build.
#![forbid(unsafe_code)]

mod age;
mod apt;
mod args;
mod asan;
mod book;
mod clients;
mod counts;
mod ctests;
mod dist;
mod fuzz;
mod interop;
mod kill;
mod kill_manager;
mod leftovers;
mod memcheck;
mod mutants;
mod process;
mod pyverbs;
mod quiet;
mod soak;
mod stacks;
mod step;
mod tally;
mod test;
mod tidy;
mod tree;
mod tshark;

use std::process::ExitCode;

use args::Args;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  age [--minutes N]          processes come and go by the thousand; the one that stays must not grow (default 5)
      [--links A,B]            on these links only: shm, udp
  asan                       the Rust API's tests on memory under AddressSanitizer
  test                       all set-up and all tests; what CI runs
  tidy                       arrows between crates, forbidden unsafe, exported symbols
  dist [--out DIR]           an installable prefix: bin/adverb, lib/adverb/*.so*   (default target/dist)
  book [WORD..]              the book's texts, and its programs in Rust and C; only programs whose names contain each WORD
       [--dev]                 on the build of `cargo build`, which is made sooner
  clients [WORD..]           unmodified verbs programs against the release build; only rows that contain each WORD
          [--links A,B]        on these links only: shm, udp
          [--list]             print the rows, run nothing
  interop [WORD..]           against the kernel's software RoCE in a virtual machine (root, Debian 12; 15 minutes)
          [--suite]            only the Rust API's tests on it
          [--list]             print the rows, run nothing
  counts                     instructions of the hot calls, by callgrind, against tests/counts.txt (3 %)
          [--bless]            write that file
  ctests [WORD..]            the C programs of tests/c, through `adverb run`
  memcheck [WORD..]          the same programs under valgrind, and built with AddressSanitizer
  kill [--count N]           kill -9 one side of a running pair N times (default 20)
       [--seed N]              repeat the moments of an earlier run
  perftest-matrix [WORD..]   perftest's options one at a time, per test and transport; only cells with each WORD
          [--links A,B]        on these links only: shm, udp
  pyverbs [WORD..]           rdma-core's conformance suite against tests/pyverbs/expected.txt; only modules with each WORD
          [--links A,B]        on these links only: loopback, udp
          [--bless]            write that file
  mutants [WORD..]           broken code that tests must notice; only mutants whose name or file has each WORD
          [--list]             print them, run nothing
  fuzz [--seconds N] [TARGET..]  each fuzz target for N seconds (default 60); fuzz/README.md
  quiet                      two polling processes keep two threads busy, no more
  soak [--runs N] [WORD..]   each client that sleeps on events, N times on each link (default 100)
  tshark [WORD..]            our packets on a cable, as tshark sees them (root); only rows that contain each WORD
";

fn main() -> ExitCode {
    let mut args = Args::from_env();
    let outcome = match args.command().as_deref() {
        Some("age") => age::command(args),
        Some("test") => args.finish().and_then(|()| test::run()),
        Some("tidy") => args.finish().and_then(|()| tidy::run()),
        Some("dist") => dist::command(args),
        Some("book") => book::command(args),
        Some("clients") => clients::command(args),
        Some("interop") => interop::command(args),
        Some("counts") => counts::command(args),
        Some("ctests") => ctests::command(args),
        Some("asan") => asan::command(args),
        Some("fuzz") => fuzz::command(args),
        Some("memcheck") => memcheck::command(args),
        Some("kill") => kill::command(args),
        Some("perftest-matrix") => clients::options::command(args),
        Some("pyverbs") => pyverbs::command(args),
        Some("mutants") => mutants::command(args),
        Some("quiet") => args
            .finish()
            .and_then(|()| quiet::run(&tree::Release::built()?)),
        Some("soak") => soak::command(args),
        Some("tshark") => tshark::command(args),
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
