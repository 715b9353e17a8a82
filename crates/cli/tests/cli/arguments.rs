//! What is refused, with which words and which exit code.

use super::common::{adverb, finish, run, text};

#[test]
fn bad_arguments_end_with_2_and_name_the_way_out() {
    for (arguments, hint) in [
        (&["compare", "--seconds", "0"][..], "0.1 to 3600"),
        (&["compare", "--gaps", "10"], "\"10\" is no gap"),
        (
            &["compare", "--shapes", "gap-1ms,square"],
            "\"square\" is no shape",
        ),
        (
            &["compare", "--ways", "adaptive:0%"],
            "\"adaptive:0%\" is no way to wait",
        ),
        (&["bench"], "TEST"),
        (
            &["bench", "send-lat", "--link", "carrier-pigeon"],
            "loopback, shm, udp",
        ),
        (
            &["bench", "send-lat", "--wait", "never"],
            "busy, event, adaptive",
        ),
        (&["bench", "send-lat", "--size", "1G"], "4096, 4K or 1M"),
        (&["run"], "CMD"),
        (
            &["run", "--links", "shm,tcp", "--", "true"],
            "loopback, shm, udp",
        ),
        (&["dance"], "unrecognized subcommand"),
    ] {
        let output = run(arguments);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(hint), "{arguments:?}: {stderr}");
    }
}

#[test]
fn conflicts_are_found_before_anything_starts() {
    let output = run(&["bench", "atomic-bw", "--size", "64"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("8 bytes"));

    let mut command = adverb(&["bench", "send-lat", "--link", "loopback"]);
    command.env("ADVERB_LINKS", "udp");
    let output = finish(command);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("unset ADVERB_LINKS"));

    let output = run(&["compare", "--json", "/nowhere/at/all.json"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("/nowhere/at/all.json"));
}

#[test]
fn help_names_every_command() {
    let help = text(&run(&["--help"]).stdout);
    for command in ["compare", "bench", "run", "libdir", "devices"] {
        assert!(help.contains(command), "{command} is missing: {help}");
    }
    assert!(!help.contains("peer"), "the hidden command shows: {help}");
}
