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
    use super::super::{Cell, Figure, Limit};
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
        let cell = Cell {
            shape: "closed-1".to_owned(),
            model: Model::Adaptive,
            p50_ns: 1.0,
            p99_ns: 2.0,
            p999_ns: 3.0,
            mean_ns: 1.5,
            max_ns: 4.0,
            added_mean_ns: 0.0,
            cpu_percent: 100.0,
            pair_cpu_percent: 200.0,
            ops_per_s: 1e6,
            cpu_us_per_op: 1.0,
            sleeps_per_op: 0.0,
            samples: 10.0,
        };
        let value = serde_json::to_value(cell).unwrap();
        for key in [
            "shape",
            "model",
            "p50_ns",
            "p99_ns",
            "p999_ns",
            "mean_ns",
            "added_mean_ns",
            "cpu_percent",
            "pair_cpu_percent",
            "ops_per_s",
            "cpu_us_per_op",
        ] {
            assert!(keys(&value).contains(&key), "{key} is missing");
        }
        assert_eq!(value["model"], "adaptive");
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
