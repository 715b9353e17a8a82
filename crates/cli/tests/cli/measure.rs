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
fn compare_measures_every_way_under_every_shape() {
    let _machine = machine();
    let dir = tempfile::tempdir().expect("a directory");
    let page = dir.path().join("report.html");
    let page_name = page.to_str().expect("a name");
    let (table, json) = json_of(&["compare", "--seconds", "3", "--html", page_name]);
    assert_eq!(json["format"], 2);
    let cells = json["cells"].as_array().expect("cells");
    let shapes = [
        "closed-1",
        "closed-64",
        "gap-100us",
        "gap-1ms",
        "jitter-1ms",
        "poisson-1ms",
        "burst-16",
        "burst-256",
    ];
    let ways = [
        "busy",
        "event",
        "event-batch",
        "adaptive",
        "adaptive:30%",
        "tcp",
        "unix",
    ];
    assert_eq!(cells.len(), shapes.len() * ways.len());
    let html = std::fs::read_to_string(page).expect("the page");
    for shape in shapes {
        for way in ways {
            let cell = cells
                .iter()
                .find(|cell| cell["shape"] == shape && cell["model"] == way)
                .unwrap_or_else(|| panic!("{shape} {way} is missing"));
            let figure = |key: &str| {
                cell[key]
                    .as_f64()
                    .unwrap_or_else(|| panic!("{key} of {cell}"))
            };
            assert!(
                figure("mean_ns") > 0.0 && figure("ops_per_s") > 0.0,
                "{cell}"
            );
            assert!(
                figure("cpu_percent") >= 0.0 && figure("pair_cpu_percent") >= 0.0,
                "{cell}"
            );
            assert!(figure("cpu_us_per_op") >= 0.0, "{cell}");
            assert_eq!(figure("added_mean_ns") == 0.0, way == "busy", "{cell}");
            // Ten samples beyond, or nothing.
            for (key, needed) in [("p50_ns", 20.0), ("p99_ns", 1_000.0), ("p999_ns", 10_000.0)] {
                assert_eq!(
                    cell[key].is_null(),
                    figure("samples") < needed,
                    "{key} of {cell}"
                );
            }
        }
        assert!(table.contains(shape), "{table}");
        assert!(
            html.contains(&format!("id=\"shape-{shape}\"")),
            "{shape} is not in the page"
        );
    }
    let advice = json["advice"].as_array().expect("advice");
    assert_eq!(advice.len(), shapes.len());
    for sentence in advice {
        let why = sentence["why"].as_str().expect("a sentence");
        assert!(table.contains(why), "{table}");
        assert!(why.contains("1 us more than polling at 30 %"), "{why}");
    }
    // One page that needs nothing else.
    for outside in ["http:", "https:", "src=", "<script", "url("] {
        assert!(!html.contains(outside), "{outside}");
    }
    assert!(json["machine"]["cores"].as_u64() > Some(0));
    assert!(json["machine"]["wakeup_ns"].as_f64() > Some(0.0));
    assert!(json["stalls"]["percent"].as_f64() >= Some(0.0));
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
    assert!(sleeps("adaptive") > 0.0);
}

#[test]
fn a_recorded_trace_and_chosen_ways_over_udp_are_compared() {
    let _machine = machine();
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("mine.txt");
    std::fs::write(&path, "# recorded\n100us\n5us\n5000\n0\n").expect("the trace");
    let (table, json) = json_of(&[
        "compare",
        "--seconds",
        "1",
        "--links",
        "udp",
        "--ways",
        "adaptive:20us,event",
        "--trace",
        path.to_str().expect("a name"),
    ]);
    let cells = json["cells"].as_array().expect("cells");
    assert_eq!(cells.len(), 2, "{table}");
    assert!(
        cells
            .iter()
            .all(|cell| cell["shape"] == "trace-mine" && cell["added_mean_ns"].is_null())
    );
}

/// A peer that dies in the middle ends it all: with an error, and without half a report.
#[test]
fn a_peer_that_dies_leaves_no_report() {
    let _machine = machine();
    let dir = tempfile::tempdir().expect("a directory");
    let (json, html) = (dir.path().join("out.json"), dir.path().join("out.html"));
    let mut command = super::common::adverb(&["compare", "--seconds", "60", "--shapes", "gap-1ms"]);
    command.arg("--json").arg(&json).arg("--html").arg(&html);
    let mut child = command
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("the program starts");
    let peers = format!("/proc/{0}/task/{0}/children", child.id());
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    let victim = loop {
        let list = std::fs::read_to_string(&peers).unwrap_or_default();
        if let [_, server] = list.split_whitespace().collect::<Vec<_>>()[..] {
            break server.to_owned();
        }
        assert!(std::time::Instant::now() < deadline, "no peers");
        std::thread::sleep(std::time::Duration::from_millis(5));
    };
    std::thread::sleep(std::time::Duration::from_millis(1_500));
    let killed = std::process::Command::new("kill")
        .args(["-9", &victim])
        .status();
    assert!(killed.expect("kill").success());
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child") {
            break status;
        }
        if std::time::Instant::now() > deadline + std::time::Duration::from_secs(30) {
            child.kill().expect("a child");
            panic!("it went on without its peer");
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    };
    let output = child.wait_with_output().expect("a child");
    let stderr = text(&output.stderr);
    assert_eq!(status.code(), Some(1), "{stderr}");
    assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
    assert!(
        stderr.contains("gap-1ms") && stderr.contains("signal: 9"),
        "{stderr}"
    );
    assert!(!json.exists() && !html.exists());
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
