//! `adverb run` and `adverb libdir`: finding the libraries, and stepping out of the way.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Output};

use super::common::{adverb, finish, text};

/// Runs a shell script below `adverb run` with made-up libraries.
fn run_script(options: &[&str], script: &str) -> Output {
    let libraries = libraries();
    let mut arguments = vec!["run"];
    arguments.extend(options);
    arguments.extend(["--", "/bin/sh", "-c", script]);
    let mut command = adverb(&arguments);
    command.env("ADVERB_LIBDIR", libraries.path());
    finish(command)
}

fn libraries() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("libibverbs.so.1"), "").expect("a file");
    dir
}

/// A copy of the program in a prefix of its own, so that nothing of the build tree is near.
fn installed(program: &str, libraries: Option<&str>) -> (tempfile::TempDir, Command) {
    let prefix = tempfile::tempdir().expect("a directory");
    let program = prefix.path().join(program);
    std::fs::create_dir_all(program.parent().expect("a parent")).expect("a directory");
    std::fs::copy(env!("CARGO_BIN_EXE_adverb"), &program).expect("a copy");
    if let Some(libraries) = libraries {
        let dir = prefix.path().join(libraries);
        std::fs::create_dir_all(&dir).expect("a directory");
        std::fs::write(dir.join("libibverbs.so.1"), "").expect("a file");
    }
    let mut command = Command::new(program);
    command.env_remove("ADVERB_LIBDIR");
    (prefix, command)
}

#[test]
fn the_exit_status_is_that_of_the_program() {
    for status in [0, 1, 42, 255] {
        let output = run_script(&[], &format!("exit {status}"));
        assert_eq!(
            output.status.code(),
            Some(status),
            "{}",
            text(&output.stderr)
        );
    }
}

#[test]
fn signals_are_those_of_the_program() {
    // SIGPIPE too: this program ignores it, and the one that is run must not inherit that.
    for (name, number) in [("TERM", 15), ("KILL", 9), ("PIPE", 13)] {
        let output = run_script(&[], &format!("kill -{name} $$; exit 3"));
        assert_eq!(
            output.status.signal(),
            Some(number),
            "{name}: {:?}",
            output.status
        );
    }
}

#[test]
fn the_program_gets_its_arguments_and_the_environment() {
    let script = "echo $ADVERB_LINKS $ADVERB_NETDEV $LD_LIBRARY_PATH";
    let output = run_script(&["--links", "shm,udp", "--netdev", "lo"], script);
    let stdout = text(&output.stdout);
    assert!(
        stdout.starts_with("shm,udp lo /"),
        "{stdout} {}",
        text(&output.stderr)
    );
}

#[test]
fn the_libraries_come_first_and_the_old_path_stays() {
    let libraries = libraries();
    let mut command = adverb(&["run", "--", "/bin/sh", "-c", "echo $LD_LIBRARY_PATH"]);
    command.env("ADVERB_LIBDIR", libraries.path());
    command.env("LD_LIBRARY_PATH", "/old/place");
    let real = libraries.path().canonicalize().expect("a real path");
    assert_eq!(
        text(&finish(command).stdout).trim(),
        format!("{}:/old/place", real.display())
    );
}

#[test]
fn a_program_that_is_not_there_ends_with_127_and_one_that_cannot_run_with_126() {
    let libraries = libraries();
    for (program, code) in [("adverb-test-no-such-program", 127), ("/dev/null", 126)] {
        let mut command = adverb(&["run", "--", program]);
        command.env("ADVERB_LIBDIR", libraries.path());
        let output = finish(command);
        assert_eq!(output.status.code(), Some(code));
        assert!(text(&output.stderr).contains(program));
    }
}

#[test]
fn a_network_interface_that_is_not_there_is_an_error_of_run() {
    let output = run_script(&["--netdev", "nosuchif0"], "true");
    assert_eq!(output.status.code(), Some(125));
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("nosuchif0") && stderr.contains("lo"),
        "{stderr}"
    );
}

#[test]
fn libraries_are_found_beside_the_program_and_in_its_prefix() {
    for (program, libraries) in [
        ("release/adverb", "release/lib/adverb"),
        ("bin/adverb", "lib/adverb"),
    ] {
        let (prefix, mut command) = installed(program, Some(libraries));
        command.arg("libdir");
        let output = finish(command);
        let wanted = prefix
            .path()
            .canonicalize()
            .expect("a real path")
            .join(libraries);
        assert_eq!(
            Path::new(text(&output.stdout).trim_end()),
            wanted,
            "{}",
            text(&output.stderr)
        );
    }
}

#[test]
fn missing_libraries_are_explained() {
    for (arguments, code) in [(&["libdir"][..], 1), (&["run", "--", "true"], 125)] {
        let (_prefix, mut command) = installed("bin/adverb", None);
        command.args(arguments);
        let output = finish(command);
        assert_eq!(output.status.code(), Some(code));
        let stderr = text(&output.stderr);
        assert!(stderr.contains("cargo build --release"), "{stderr}");
    }
    let mut command = adverb(&["libdir"]);
    command.env("ADVERB_LIBDIR", "/nowhere/at/all");
    let stderr = text(&finish(command).stderr);
    assert!(stderr.contains("/nowhere/at/all"), "{stderr}");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let libraries = libraries();
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let status = adverb(&["libdir"])
        .env("ADVERB_LIBDIR", libraries.path())
        .stdout(writer)
        .status()
        .expect("the program starts");
    assert!(status.success(), "{status}");
}
