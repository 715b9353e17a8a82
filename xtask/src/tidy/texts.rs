//! Texts that repeat a file must repeat it as it is.

use std::fs;

use anyhow::{Context, Result};

use crate::tree;

/// The program that README.md shows, which the workspace compiles as an example.
const FIRST: &str = "crates/adverb/examples/first.rs";

pub(super) fn complaints() -> Result<Vec<String>> {
    let read = |file: &str| {
        fs::read_to_string(tree::root().join(file)).with_context(|| format!("cannot read {file}"))
    };
    let shown = format!("```rust\n{}\n```", read(FIRST)?.trim_end());
    let mut complaints = Vec::new();
    if !read("README.md")?.contains(&shown) {
        complaints.push(format!(
            "README.md shows a first program that is not {FIRST}"
        ));
    }
    Ok(complaints)
}
