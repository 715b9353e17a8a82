//! Loading the system's library: each case in a process of its own, because the environment and
//! what the loader has already loaded belong to the whole process.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

use std::path::Path;
use std::process::Command;

use adverb_abi::{LoadError, Rdmacm, Verbs};

/// Set in the process that does the loading, to the variable that names the library.
const CHILD: &str = "ADVERB_ABI_TEST_CHILD";
const VERBS: &str = "ADVERB_SYSTEM_LIBIBVERBS";
const RDMACM: &str = "ADVERB_SYSTEM_LIBRDMACM";

/// Loads libibverbs in a child process and returns what came of it.
fn load(path: Option<&Path>) -> String {
    load_as(VERBS, path)
}

fn load_as(variable: &str, path: Option<&Path>) -> String {
    let mut child = Command::new(std::env::current_exe().expect("this test has a path"));
    child.args(["--exact", "child_reports_what_loading_gives", "--nocapture"]);
    child.env(CHILD, variable).env_remove(variable);
    if let Some(path) = path {
        child.env(variable, path);
    }
    let output = child.output().expect("the test binary runs");
    let text = String::from_utf8_lossy(&output.stdout);
    // With one test thread the harness prints the test's name on the same line.
    let (_, outcome) = text
        .split_once("outcome ")
        .expect("the child reports an outcome");
    outcome.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn child_reports_what_loading_gives() {
    let text = match std::env::var(CHILD).as_deref() {
        // SAFETY: the function takes a number and returns a static string.
        Ok(VERBS) => Verbs::load_system().map(|v| v.map(|v| unsafe { (v.wc_status_str)(0) })),
        // SAFETY: likewise.
        Ok(RDMACM) => Rdmacm::load_system().map(|r| r.map(|r| unsafe { (r.event_str)(9) })),
        _ => return,
    };
    match text {
        Ok(Some(text)) => {
            // SAFETY: a static string.
            let text = unsafe { std::ffi::CStr::from_ptr(text) };
            println!("outcome loaded: {text:?}");
        }
        Ok(None) => println!("outcome none"),
        Err(LoadError::Open { reason, .. }) => println!("outcome open: {reason}"),
        Err(error @ LoadError::MissingSymbol { .. }) => println!("outcome missing: {error}"),
    }
}

/// What loading, as libibverbs, a shared library of the given C source and version nodes gives; `None` without a C compiler.
fn load_compiled(source: &str, nodes: &str) -> Option<String> {
    load_compiled_as(VERBS, source, nodes)
}

fn load_compiled_as(variable: &str, source: &str, nodes: &str) -> Option<String> {
    let dir = tempfile::tempdir().expect("the temporary directory is writable");
    let (c, so) = (dir.path().join("library.c"), dir.path().join("library.so"));
    let script = dir.path().join("nodes.map");
    std::fs::write(&c, source).expect("the directory is ours");
    std::fs::write(&script, nodes).expect("the directory is ours");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(&so).arg(&c);
    if !nodes.is_empty() {
        compiler.arg(format!("-Wl,--version-script={}", script.display()));
    }
    let built = compiler.status();
    if !built.is_ok_and(|status| status.success()) {
        eprintln!("skipped: no C compiler");
        return None;
    }
    Some(load_as(variable, Some(&so)))
}

#[test]
fn an_empty_path_means_no_system_library() {
    assert_eq!(load(Some(Path::new(""))), "none");
}

#[test]
fn a_named_file_that_is_missing_is_an_error() {
    let outcome = load(Some(Path::new("/nonexistent/libibverbs.so.1")));
    assert!(
        outcome.starts_with("open: /nonexistent/libibverbs.so.1"),
        "{outcome}"
    );
}

#[test]
fn a_library_with_our_marker_is_not_hardware() {
    let marker = "int adverb_dropin_marker = 1;\n";
    let beside = format!("{marker}int something = 1;\n");
    // As in our library, where the marker alone has no version.
    for (source, nodes) in [(marker, ""), (&beside, "IBVERBS_1.0 { something; };\n")] {
        if let Some(outcome) = load_compiled(source, nodes) {
            assert_eq!(outcome, "none", "{nodes}");
        }
    }
}

#[test]
fn a_library_that_is_not_libibverbs_is_refused_by_its_first_missing_symbol() {
    if let Some(outcome) = load_compiled("int something = 1;\n", "") {
        assert!(outcome.starts_with("missing: "), "{outcome}");
        assert!(
            outcome.contains("ibv_get_device_list (version IBVERBS_1.1)"),
            "{outcome}"
        );
    }
}

#[test]
fn the_default_is_the_installed_library_or_nothing() {
    let outcome = load(None);
    if outcome == "none" {
        eprintln!("skipped: no libibverbs.so.1 on this machine");
        return;
    }
    assert_eq!(outcome, "loaded: \"success\"");
}

#[test]
fn the_connection_manager_is_found_and_refused_in_the_same_way() {
    match load_as(RDMACM, None).as_str() {
        "none" => eprintln!("skipped: no librdmacm.so.1 on this machine"),
        outcome => assert_eq!(outcome, "loaded: \"RDMA_CM_EVENT_ESTABLISHED\""),
    }
    assert_eq!(load_as(RDMACM, Some(Path::new(""))), "none");
    if let Some(outcome) = load_compiled_as(RDMACM, "int something = 1;\n", "") {
        assert!(
            outcome.contains("rdma_create_event_channel (version RDMACM_1.0)"),
            "{outcome}"
        );
    }
}

#[test]
fn every_symbol_is_listed_once_under_a_public_version_node() {
    for (symbols, prefix, node, newest) in [
        (Verbs::SYMBOLS, "ibv_", "IBVERBS_1.", 18),
        (Rdmacm::SYMBOLS, "rdma_", "RDMACM_1.", 5),
    ] {
        let mut names: Vec<_> = symbols.iter().map(|(name, _)| name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        for (name, version) in symbols {
            assert!(name.trim_start_matches('_').starts_with(prefix), "{name}");
            let minor = version.strip_prefix(node).expect("a public node");
            assert!(
                minor.parse::<u32>().is_ok_and(|minor| minor <= newest),
                "{version}"
            );
        }
    }
}
