//! Counting and printing the outcomes of a matrix of ours.

use std::time::Instant;

pub(crate) enum Outcome {
    Passed,
    Failed(String),
    Skipped(String),
}

pub(crate) struct Tally {
    title: &'static str,
    started: Instant,
    passed: usize,
    failed: Vec<String>,
    skipped: usize,
}

impl Tally {
    pub(crate) fn new(title: &'static str) -> Self {
        println!("\n== {title}");
        Self {
            title,
            started: Instant::now(),
            passed: 0,
            failed: Vec::new(),
            skipped: 0,
        }
    }

    pub(crate) fn add(&mut self, name: &str, took: f64, outcome: Outcome) {
        match outcome {
            Outcome::Passed => {
                self.passed += 1;
                println!("ok    {took:6.2} s  {name}");
            }
            Outcome::Failed(why) => {
                println!("FAIL  {took:6.2} s  {name}");
                for line in why.lines() {
                    println!("      | {line}");
                }
                self.failed.push(name.to_owned());
            }
            Outcome::Skipped(why) => {
                self.skipped += 1;
                println!("SKIPPED         {name}: {why}");
            }
        }
    }

    pub(crate) fn failures(&self) -> usize {
        self.failed.len()
    }

    /// Prints the sum; whether nothing failed.
    pub(crate) fn finish(self) -> bool {
        for name in &self.failed {
            println!("failed: {name}");
        }
        println!(
            "{}: {} passed, {} failed, {} skipped ({:.0} s)",
            self.title,
            self.passed,
            self.failed.len(),
            self.skipped,
            self.started.elapsed().as_secs_f64(),
        );
        self.failed.is_empty()
    }
}
