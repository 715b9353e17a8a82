//! `devices`, `compare` and `bench` from end to end, on the software NIC, two real processes.

use std::sync::Mutex;

use super::common::{run, text};
use serde_json::Value;

/// Two spinning processes need the machine for themselves.
static MACHINE: Mutex<()> = Mutex::new(());

fn machine() -> std::sync::MutexGuard<'static, ()> {
    MACHINE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn json_of(command: &[&str]) -> (String, Value) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("out.json");
    let mut arguments = command.to_vec();
    arguments.extend(["--json", path.to_str().expect("a name")]);
    let output = run(&arguments);
    assert!(
        output.status.success(),
        "{command:?}: {}",
        text(&output.stderr)
    );
    let json = std::fs::read_to_string(path).expect("the file");
    (
        text(&output.stdout),
        serde_json::from_str(&json).expect("JSON"),
    )
}

#[test]
fn compare_measures_every_model_under_every_shape() {
    let _machine = machine();
    let (table, json) = json_of(&["compare", "--seconds", "2"]);
    let cells = json["cells"].as_array().expect("cells");
    assert_eq!(cells.len(), 12);
    for shape in ["closed-1", "gap-10us", "gap-100us", "gap-1ms"] {
        for model in ["busy", "event", "adaptive"] {
            let cell = cells
                .iter()
                .find(|cell| cell["shape"] == shape && cell["model"] == model)
                .unwrap_or_else(|| panic!("{shape} {model} is missing"));
            let figure = |key: &str| {
                cell[key]
                    .as_f64()
                    .unwrap_or_else(|| panic!("{key} of {cell}"))
            };
            assert!(
                figure("p50_ns") > 0.0 && figure("p50_ns") <= figure("p99_ns"),
                "{cell}"
            );
            assert!(figure("p99_ns") <= figure("p999_ns"), "{cell}");
            assert!(
                figure("ops_per_s") > 0.0 && figure("mean_ns") > 0.0,
                "{cell}"
            );
            assert!(
                figure("cpu_percent") >= 0.0 && figure("pair_cpu_percent") >= 0.0,
                "{cell}"
            );
            assert!(figure("cpu_us_per_op") >= 0.0, "{cell}");
            assert_eq!(figure("added_mean_ns") == 0.0, model == "busy", "{cell}");
        }
        assert!(table.contains(shape), "{table}");
    }
    let advice = json["advice"].as_array().expect("advice");
    assert_eq!(advice.len(), 4);
    for sentence in advice {
        let why = sentence["why"].as_str().expect("a sentence");
        assert!(table.contains(why), "{table}");
    }
    assert!(json["machine"]["cores"].as_u64() > Some(0));
    assert!(json["machine"]["wakeup_ns"].as_f64() > Some(0.0));
    assert_eq!(json["device"], "adverb0");
}

#[test]
fn event_waiting_sleeps_and_busy_waiting_does_not() {
    let _machine = machine();
    let (_, json) = json_of(&["compare", "--seconds", "1", "--gaps", "2ms"]);
    let sleeps = |model: &str| {
        let cells = json["cells"].as_array().expect("cells");
        let cell = cells
            .iter()
            .find(|cell| cell["shape"] == "gap-2ms" && cell["model"] == model)
            .expect("the cell");
        cell["sleeps_per_op"].as_f64().expect("a number")
    };
    assert_eq!(sleeps("busy"), 0.0);
    // Not once for each request: on a loaded machine requests queue up and share a wake-up.
    assert!(sleeps("event") > 0.0);
}

#[test]
fn bench_measures_every_operation_over_every_link() {
    let _machine = machine();
    let tests = [
        "send-lat",
        "send-bw",
        "write-lat",
        "write-bw",
        "read-lat",
        "read-bw",
        "atomic-lat",
        "atomic-bw",
    ];
    let mut command = vec!["bench"];
    command.extend(tests);
    command.extend([
        "--link",
        "loopback,shm,udp",
        "--wait",
        "busy,event,adaptive",
        "--seconds",
        "0.1",
    ]);
    let (table, json) = json_of(&command);
    let results = json["results"].as_array().expect("results");
    assert_eq!(results.len(), tests.len() * 9);
    for result in results {
        let latency = result["test"].as_str().expect("a name").ends_with("-lat");
        for (key, applies) in [
            ("p50_ns", latency),
            ("p99_ns", latency),
            ("min_ns", latency),
            ("gb_per_s", !latency),
            ("msgs_per_s", !latency),
        ] {
            match result[key].as_f64() {
                Some(value) => assert!(applies && value > 0.0, "{key} of {result}"),
                None => assert!(!applies && result[key].is_null(), "{key} of {result}"),
            }
        }
        assert!(result["limit"]["value"].as_f64() > Some(0.0), "{result}");
        assert!(result["ratio"].as_f64() > Some(0.0), "{result}");
    }
    assert!(table.contains("shared line hop"), "{table}");
}

#[test]
fn large_messages_go_through_every_link() {
    let _machine = machine();
    let (_, json) = json_of(&[
        "bench",
        "send-lat",
        "write-lat",
        "send-bw",
        "write-bw",
        "read-bw",
        "--link",
        "loopback,shm,udp",
        "--size",
        "1M",
        "--seconds",
        "0.2",
    ]);
    assert_eq!(json["results"].as_array().expect("results").len(), 15);
}

#[test]
fn an_unknown_device_is_an_error_that_names_the_known_ones() {
    let output = run(&["compare", "--device", "nosuch0"]);
    assert_eq!(output.status.code(), Some(1));
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("nosuch0") && stderr.contains("adverb0"),
        "{stderr}"
    );
}

#[test]
fn the_software_device_is_listed() {
    let output = run(&["devices", "-v"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("adverb0"));

    let output = run(&["devices", "--json"]);
    let devices: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let device = &devices[0];
    assert_eq!(device["name"], "adverb0");
    assert_eq!(device["origin"], "software");
    assert_eq!(device["ports"][0]["active"], true, "{device}");
    assert!(
        device["ports"][0]["gids"]
            .as_array()
            .is_some_and(|gids| gids.len() >= 2),
        "{device}"
    );
}
