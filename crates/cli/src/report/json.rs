//! JSON files.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Serialize;

/// Replaces the file.
pub(crate) fn write<T: Serialize>(path: &Path, what: &T) -> Result<()> {
    let mut text = serde_json::to_string_pretty(what)?;
    text.push('\n');
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::super::advice::tests::cell;
    use super::super::{Figure, Limit};
    use crate::args::{Link, Model, Test};

    fn keys(value: &serde_json::Value) -> Vec<&str> {
        value
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect()
    }

    #[test]
    fn a_cell_has_the_documented_keys() {
        let value = serde_json::to_value(cell("adaptive", 2.0, 50.0)).unwrap();
        let documented = include_str!("../../../../docs/json.md");
        for key in keys(&value) {
            assert!(
                documented.contains(&format!("`{key}`")),
                "{key} is not in docs/json.md"
            );
        }
        for key in [
            "shape",
            "model",
            "p50_ns",
            "p99_ns",
            "mean_ns",
            "added_mean_ns",
            "cpu_percent",
            "stall_p99_ns",
        ] {
            assert!(keys(&value).contains(&key), "{key} is missing");
        }
        assert_eq!(value["model"], "adaptive");
        assert!(value["p999_ns"].is_null());
    }

    #[test]
    fn a_figure_has_the_documented_keys_and_null_for_what_does_not_apply() {
        let figure = Figure {
            test: Test::SendLat,
            link: Link::Shm,
            wait: Model::Busy,
            size: 8,
            p50_ns: Some(900.0),
            p99_ns: Some(1500.0),
            min_ns: Some(700.0),
            gb_per_s: None,
            msgs_per_s: None,
            limit: Limit {
                name: "shared line hop",
                value: 150.0,
            },
            ratio: 6.0,
            client_cpu_percent: 100.0,
            server_cpu_percent: 100.0,
        };
        let value = serde_json::to_value(figure).unwrap();
        for key in [
            "test",
            "link",
            "wait",
            "size",
            "p50_ns",
            "p99_ns",
            "min_ns",
            "gb_per_s",
            "msgs_per_s",
            "limit",
            "ratio",
        ] {
            assert!(keys(&value).contains(&key), "{key} is missing");
        }
        assert_eq!(value["test"], "send-lat");
        assert_eq!(value["link"], "shm");
        assert!(value["gb_per_s"].is_null());
        assert_eq!(keys(&value["limit"]), ["name", "value"]);
    }
}
