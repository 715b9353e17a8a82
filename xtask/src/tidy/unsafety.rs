//! Where unsafe code may live, and where it does.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::tree;

/// Crates that forbid unsafe code by an attribute of their root, and that root.
const FORBIDDEN: &[&str] = &[
    "crates/wait/src/lib.rs",
    "crates/wait/src/bin/regret.rs",
    "crates/wire/src/lib.rs",
    "crates/engine/src/lib.rs",
    "crates/link/src/lib.rs",
    "crates/cli/src/main.rs",
    "crates/sim/src/lib.rs",
    "xtask/src/main.rs",
];

const ATTRIBUTE: &str = "#![forbid(unsafe_code)]";

pub(super) fn complaints() -> Result<Vec<String>> {
    let mut complaints = Vec::new();
    for file in FORBIDDEN {
        let path = tree::root().join(file);
        if !path.exists() && path.parent().is_some_and(|src| !src.exists()) {
            // A room of the house that is not built yet.
            continue;
        }
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        if !text.lines().any(|line| line.trim() == ATTRIBUTE) {
            complaints.push(format!("{file} has lost {ATTRIBUTE}"));
        }
    }
    Ok(complaints)
}

/// Prints the files with unsafe code and how many blocks, functions and impls of it.
pub(super) fn list() -> Result<()> {
    let mut files = Vec::new();
    rust_files(&tree::root().join("crates"), &mut files)?;
    files.sort();
    println!("files with unsafe code (uses):");
    for path in files {
        let count = uses(&fs::read_to_string(&path)?);
        if count > 0 {
            let shown = path.strip_prefix(tree::root()).unwrap_or(&path);
            println!("  {count:4}  {}", shown.display());
        }
    }
    Ok(())
}

/// Counts the word in code; comments do not count, strings are rare enough not to matter.
fn uses(text: &str) -> usize {
    text.lines()
        .map(|line| line.split_once("//").map_or(line, |(code, _)| code))
        .flat_map(|code| code.split(|c: char| !c.is_alphanumeric() && c != '_'))
        .filter(|word| *word == "unsafe")
        .count()
}

fn rust_files(dir: &Path, into: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "target") {
                rust_files(&path, into)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::uses;

    #[test]
    fn comments_and_lint_names_are_no_uses() {
        assert_eq!(
            uses("// unsafe\n#![forbid(unsafe_code)]\n/// unsafe too"),
            0
        );
        assert_eq!(
            uses("unsafe { f() } // unsafe\nunsafe impl Send for X {}"),
            2
        );
    }
}
