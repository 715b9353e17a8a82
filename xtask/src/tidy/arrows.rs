//! Arrows between our crates point down only.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use serde_json::Value;

/// Each crate and what of ours it may use, from the bottom up. A crate may only name crates that stand before it, so
/// there can be no circle; `arrows_point_down` below holds this table to that.
const ALLOWED: &[(&str, &[&str])] = &[
    ("adverb-wait", &[]),
    ("adverb-wire", &[]),
    ("adverb-mem", &[]),
    ("adverb-abi", &[]),
    ("adverb-engine", &["adverb-wire"]),
    ("adverb-link", &["adverb-wire", "adverb-mem"]),
    (
        "adverb-nic",
        &["adverb-engine", "adverb-link", "adverb-mem", "adverb-wire"],
    ),
    (
        "adverb-provider",
        &[
            "adverb-nic",
            "adverb-abi",
            "adverb-engine",
            "adverb-wait",
            "adverb-wire",
        ],
    ),
    ("adverb-dropin", &["adverb-provider", "adverb-abi"]),
    ("adverb", &["adverb-abi", "adverb-provider", "adverb-wait"]),
    ("adverb-cli", &["adverb"]),
    (
        "adverb-sim",
        &["adverb-engine", "adverb-link", "adverb-wire", "adverb-mem"],
    ),
    ("xtask", &[]),
];

/// Says which dependencies break the table. Tests of a crate may in addition use all that lies below it.
pub(super) fn complaints(metadata: &Value) -> Result<Vec<String>> {
    let packages = metadata["packages"]
        .as_array()
        .context("cargo metadata lists no packages")?;
    let ours: BTreeSet<&str> = packages
        .iter()
        .filter_map(|package| package["name"].as_str())
        .collect();
    let mut complaints = Vec::new();
    for package in packages {
        let name = package["name"]
            .as_str()
            .context("a package without a name")?;
        let Some(allowed) = allowed(name) else {
            complaints.push(format!(
                "{name}: a crate that the table in xtask/src/tidy/arrows.rs does not know"
            ));
            continue;
        };
        let below = below(name);
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let to = dependency["name"].as_str().unwrap_or_default();
            if !ours.contains(to) {
                continue;
            }
            let good = if dependency["kind"].as_str() == Some("dev") {
                // Of itself a crate may ask for features, for its tests.
                to == name || below.contains(to)
            } else {
                allowed.contains(&to)
            };
            if !good {
                complaints.push(format!(
                    "{name} uses {to}: that arrow does not point down (ARCHITECTURE.md)"
                ));
            }
        }
    }
    Ok(complaints)
}

fn allowed(name: &str) -> Option<&'static [&'static str]> {
    ALLOWED
        .iter()
        .find(|(from, _)| *from == name)
        .map(|(_, to)| *to)
}

/// Everything that can be reached from a crate.
fn below(name: &str) -> BTreeSet<&'static str> {
    let mut found = BTreeSet::new();
    for to in allowed(name).unwrap_or_default() {
        found.insert(*to);
        found.extend(below(to));
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arrows_point_down() {
        for (at, (from, to)) in ALLOWED.iter().enumerate() {
            for name in *to {
                assert!(
                    ALLOWED[..at].iter().any(|(lower, _)| lower == name),
                    "{from} uses {name}"
                );
            }
        }
    }

    fn workspace(kind: Option<&str>) -> Value {
        json!({"packages": [
            {"name": "adverb-wire", "dependencies": [{"name": "adverb-nic", "kind": kind}]},
            {"name": "adverb-nic", "dependencies": [{"name": "adverb-wire", "kind": null}, {"name": "libc", "kind": null}]},
        ]})
    }

    #[test]
    fn an_arrow_that_points_up_is_named() {
        for kind in [None, Some("dev"), Some("build")] {
            let complaints = complaints(&workspace(kind)).expect("it has packages");
            assert_eq!(complaints.len(), 1, "{complaints:?}");
            assert!(
                complaints[0].starts_with("adverb-wire uses adverb-nic"),
                "{complaints:?}"
            );
        }
    }

    #[test]
    fn tests_may_reach_further_down_than_code() {
        let metadata = json!({"packages": [
            {"name": "adverb-cli", "dependencies": [{"name": "adverb-nic", "kind": "dev"}]},
            {"name": "adverb-nic", "dependencies": []},
        ]});
        assert_eq!(
            complaints(&metadata).expect("it has packages"),
            Vec::<String>::new()
        );
    }
}
