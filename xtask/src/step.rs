//! One step of `cargo xtask test`: a command with its output on ours, a bound, and a line about how it went.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::process::Job;
use crate::stacks;

/// Runs a command to its end or its bound; whether it succeeded.
pub(crate) fn run(command: &mut Command, bound: Duration) -> Result<bool> {
    let started = Instant::now();
    let mut job = Job::start(command, None)?;
    let Some(status) = job.wait_until(started + bound)? else {
        println!(
            "no end within {} s; where its processes are:",
            bound.as_secs()
        );
        print!("{}", stacks::of_group(job.group()));
        job.end();
        return Ok(false);
    };
    Ok(status.success())
}

/// The outcomes of all steps, in order.
pub(crate) struct Steps {
    done: Vec<(String, Result<bool>, f64)>,
}

impl Steps {
    pub(crate) fn new() -> Self {
        Self { done: Vec::new() }
    }

    /// Runs one step and keeps its outcome; whether it succeeded. A failure does not stop the steps after it.
    pub(crate) fn step(&mut self, name: &str, body: impl FnOnce() -> Result<bool>) -> bool {
        println!("\n==== {name}");
        let started = Instant::now();
        let outcome = body();
        if let Err(error) = &outcome {
            println!("{name}: {error:#}");
        }
        let good = matches!(outcome, Ok(true));
        self.done
            .push((name.to_owned(), outcome, started.elapsed().as_secs_f64()));
        good
    }

    /// Prints the table of outcomes; whether every step succeeded.
    pub(crate) fn finish(self) -> bool {
        println!("\n==== summary");
        let mut failed = 0;
        for (name, outcome, took) in &self.done {
            let word = match outcome {
                Ok(true) => "ok",
                _ => {
                    failed += 1;
                    "FAIL"
                }
            };
            println!("{word:5} {took:7.1} s  {name}");
        }
        println!(
            "steps: {} passed, {failed} failed",
            self.done.len() - failed
        );
        failed == 0
    }
}
