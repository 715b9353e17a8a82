//! The floors of a crate: what stands below knows nothing of what stands above.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::tree;

/// A floor's name and its modules.
type Floor = (&'static str, &'static [&'static str]);

/// The floors that are closed, from the bottom up: each names modules of its own floor and of those below it. All other
/// modules of the crate stand above them and may name each other.
const FLOORS: &[(&str, &[Floor])] = &[("crates/adverb/src", ADVERB), ("crates/nic/src", NIC)];

const ADVERB: &[Floor] = &[
    (
        "base",
        &[
            "by_number",
            "error",
            "failure",
            "grh",
            "registrable",
            "state",
            "status",
            "sync",
            "sys",
            "values",
        ],
    ),
    (
        "facts",
        &["endpoint", "pace", "remote", "transitions", "transport"],
    ),
    ("device", &["device"]),
    ("context", &["context"]),
    ("context's own", &["event", "pd"]),
    (
        "memory",
        &[
            "ah", "attr", "buffer", "exposed", "mapping", "mr", "raw", "source", "window",
        ],
    ),
    ("completion", &["wc"]),
    ("slab", &["slab"]),
    ("request", &["request"]),
    ("receive", &["receive"]),
    // A channel says whose its events are, and a queue holds its channel.
    ("queues", &["channel", "cq"]),
    ("what waits and shares", &["srq", "wait"]),
    ("queue pair", &["qp"]),
    ("builder", &["builder"]),
    ("poster", &["poster"]),
];

const NIC: &[Floor] = &[
    (
        "base",
        &[
            "async_events",
            "backing",
            "clock",
            "config",
            "device",
            "error",
            "event_queue",
            "fork",
            "ledger",
            "quota",
            "random",
            "sync",
        ],
    ),
    ("fabric", &["fabric"]),
];

pub(super) fn complaints() -> Result<Vec<String>> {
    let mut complaints = Vec::new();
    for (krate, floors) in FLOORS {
        complaints.extend(complaints_of(krate, floors)?);
    }
    Ok(complaints)
}

fn complaints_of(krate: &str, floors: &[Floor]) -> Result<Vec<String>> {
    let root = tree::root().join(krate);
    let mut complaints = Vec::new();
    for (height, (floor, modules)) in floors.iter().enumerate() {
        for module in *modules {
            let files = files_of(&root, module)?;
            if files.is_empty() {
                complaints.push(format!(
                    "{krate}: the floor `{floor}` has no module `{module}` (xtask/src/tidy/floors.rs)"
                ));
            }
            for file in files {
                let text = fs::read_to_string(&file)
                    .with_context(|| format!("cannot read {}", file.display()))?;
                for above in climbs(&text, floors, height) {
                    complaints.push(format!(
                        "{}: `{above}` stands above the floor `{floor}` (xtask/src/tidy/floors.rs)",
                        file.strip_prefix(tree::root()).unwrap_or(&file).display()
                    ));
                }
            }
        }
    }
    Ok(complaints)
}

fn files_of(root: &Path, module: &str) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let file = root.join(format!("{module}.rs"));
    if file.is_file() {
        files.push(file);
    }
    let folder = root.join(module);
    if folder.is_dir() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|e| e == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

/// The modules that `text` names and that stand above floor `height`. Tests at a file's end may name anything, and so may
/// comments.
fn climbs(text: &str, floors: &[Floor], height: usize) -> BTreeSet<String> {
    let allowed = || floors.iter().take(height + 1).flat_map(|(_, m)| m.iter());
    named(text)
        .into_iter()
        .filter(|name| !allowed().any(|module| module == name))
        .collect()
}

/// What follows `crate::`, each name of a list in braces.
fn named(text: &str) -> BTreeSet<String> {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = code
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    let code = lines.collect::<Vec<_>>().join("\n");
    let mut names = BTreeSet::new();
    for rest in code.split("crate::").skip(1) {
        match rest.strip_prefix('{') {
            Some(list) => names.extend(heads(list)),
            None => names.extend(head(rest)),
        }
    }
    names
}

/// The first segment of each path in a list, up to the brace that closes it.
fn heads(list: &str) -> Vec<String> {
    let mut depth = 0_u32;
    let mut names = Vec::new();
    let mut path = String::new();
    for c in list.chars() {
        match c {
            '}' if depth == 0 => break,
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => names.extend(head(std::mem::take(&mut path).trim())),
            c if depth == 0 => path.push(c),
            _ => {}
        }
    }
    names.extend(head(path.trim()));
    names
}

fn head(path: &str) -> Option<String> {
    let end = path
        .find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(path.len());
    let name = path.get(..end)?;
    (!name.is_empty()).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_module_that_is_named_is_found_and_those_below_may_be() {
        let text = "use crate::clock;\nuse crate::{error::NicError, fabric::{self, Way}, nic};\n\
                    // crate::cm\nfn f() { crate::qp::g() }\n#[cfg(test)]\nuse crate::cq;\n";
        let all = ["clock", "error", "fabric", "nic", "qp"];
        assert_eq!(named(text), all.map(str::to_owned).into());
        assert_eq!(
            climbs(text, NIC, 0),
            ["fabric", "nic", "qp"].map(str::to_owned).into()
        );
        assert_eq!(
            climbs(text, NIC, 1),
            ["nic", "qp"].map(str::to_owned).into()
        );
    }

    #[test]
    fn the_floors_of_this_tree_are_closed() {
        assert_eq!(complaints().unwrap(), Vec::<String>::new());
    }
}
