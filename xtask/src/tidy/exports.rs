//! What the built drop-in library exports, compared with the list of names that programs take from it.
//!
//! The list is kept apart from the table that the library is made from, so that a name lost there is noticed here.

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::tree::{self, Release};

const WANTED: &str = include_str!("exports.txt");

/// Nodes must exist even where we know no name in them: the loader looks for the node first.
const NODES: &[(&str, &[&str])] = &[
    (
        "IBVERBS",
        &[
            "1.0", "1.1", "1.5", "1.6", "1.7", "1.8", "1.9", "1.10", "1.11", "1.12", "1.13",
            "1.14", "1.15", "1.16", "1.17", "1.18",
        ],
    ),
    ("IBVERBS_PRIVATE", &["34", "57", "59", "64", "65"]),
    ("RDMACM", &["1.0", "1.1", "1.2", "1.3", "1.4", "1.5"]),
    (
        "MLX5",
        &[
            "1.0", "1.3", "1.7", "1.10", "1.21", "1.24", "1.25.1", "1.27",
        ],
    ),
    ("EFA", &["1.0", "1.1", "1.2", "1.7"]),
];

pub(super) fn complaints() -> Result<Vec<String>> {
    let library = Release::locate()?.libraries.join("libibverbs.so.1");
    if !library.exists() {
        println!("SKIPPED: exported symbols (no release build yet)");
        return Ok(Vec::new());
    }
    if !tree::on_path("readelf") {
        println!("SKIPPED: exported symbols (no readelf; package binutils)");
        return Ok(Vec::new());
    }
    let library = library
        .to_str()
        .context("the target directory's name is not UTF-8")?;
    let symbols = exported(&readelf(&["-W", "--dyn-syms", library])?);
    let versions = readelf(&["-W", "-V", library])?;
    let defined = nodes(&versions);
    let mut complaints: Vec<String> = wanted()
        .filter(|(name, node)| !symbols.contains(&(name.to_string(), node.to_string())))
        .map(|(name, node)| format!("the drop-in library does not export {name}@{node}"))
        .collect();
    for (prefix, numbers) in NODES {
        for number in *numbers {
            let node = format!("{prefix}_{number}");
            if !defined.contains(&node) {
                complaints.push(format!(
                    "the drop-in library does not define the version node {node}"
                ));
            }
        }
    }
    Ok(complaints)
}

fn wanted() -> impl Iterator<Item = (&'static str, &'static str)> {
    WANTED
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(' '))
}

fn readelf(args: &[&str]) -> Result<String> {
    let output = Command::new("readelf")
        .args(args)
        .output()
        .context("cannot run readelf")?;
    if !output.status.success() {
        bail!(
            "readelf {}: {}",
            args.join(" "),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Name and node of each defined versioned symbol. The columns: number, value, size, type, binding, visibility,
/// section, name@node or name@@node.
fn exported(text: &str) -> BTreeSet<(String, String)> {
    text.lines()
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let (section, symbol) = (fields.get(6)?, fields.get(7)?);
            let (name, node) = symbol.split_once('@')?;
            (*section != "UND").then(|| (name.to_owned(), node.trim_start_matches('@').to_owned()))
        })
        .collect()
}

/// The nodes in the library's own definitions, which stand before those it needs of others.
fn nodes(text: &str) -> BTreeSet<String> {
    text.lines()
        .skip_while(|line| !line.starts_with("Version definition"))
        .take_while(|line| !line.starts_with("Version needs"))
        .filter_map(|line| line.split_once("Name: "))
        .map(|(_, name)| name.trim().to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_a_version_are_read_and_imports_are_not() {
        let text = "\
   7: 0000000000001000     5 FUNC    GLOBAL DEFAULT   12 ibv_open_device@@IBVERBS_1.1
   8: 0000000000001000     5 FUNC    GLOBAL DEFAULT   12 ibv_old@IBVERBS_1.0
   9: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND memcpy@GLIBC_2.14 (3)
";
        let found = exported(text);
        assert_eq!(found.len(), 2);
        assert!(found.contains(&("ibv_open_device".to_owned(), "IBVERBS_1.1".to_owned())));
        assert!(found.contains(&("ibv_old".to_owned(), "IBVERBS_1.0".to_owned())));
    }

    #[test]
    fn every_line_of_the_list_has_a_name_and_a_known_node() {
        let known: BTreeSet<String> = NODES
            .iter()
            .flat_map(|(prefix, numbers)| {
                numbers
                    .iter()
                    .map(move |number| format!("{prefix}_{number}"))
            })
            .collect();
        assert!(wanted().count() > 150);
        for (name, node) in wanted() {
            assert!(
                known.contains(node) || node.starts_with("MLX5_"),
                "{name} {node}"
            );
        }
    }
}
