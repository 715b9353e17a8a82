//! What happened, as text, when somebody wants to read it.
//!
//! Worlds run without a trace, since writing one costs more than the world. A seed that failed is
//! run again with one, and fails again in the same place.

use std::collections::VecDeque;
use std::fmt::Arguments;

/// The last lines of a world's life.
#[derive(Debug, Default)]
pub struct Trace {
    lines: VecDeque<String>,
    keep: usize,
}

impl Trace {
    /// Keeps the last `keep` lines; none at all for 0.
    pub const fn keeping(keep: usize) -> Self {
        Self {
            lines: VecDeque::new(),
            keep,
        }
    }

    pub const fn is_on(&self) -> bool {
        self.keep > 0
    }

    pub fn note(&mut self, now: u64, text: Arguments<'_>) {
        if self.keep == 0 {
            return;
        }
        if self.lines.len() == self.keep {
            self.lines.pop_front();
        }
        self.lines
            .push_back(format!("{:>12.3} us  {text}", now as f64 / 1000.0));
    }

    pub fn text(&self) -> String {
        let mut out = String::new();
        for line in &self.lines {
            out.push_str(line);
            out.push('\n');
        }
        out
    }
}
