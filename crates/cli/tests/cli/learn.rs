//! `adverb learn`. What the programs print is compared with the book by `cargo xtask book`.

use std::process::Stdio;

use super::common::{adverb, run, text};

#[test]
fn chapters_are_listed_and_each_number_in_the_list_runs() {
    let listed = run(&["learn"]);
    assert!(listed.status.success());
    let listed = text(&listed.stdout);
    let first = listed.split_whitespace().next();
    assert_eq!(first, Some("1"), "{listed}");
    let output = run(&["learn", "1"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("ibv_post_send"));
}

#[test]
fn a_chapter_that_does_not_exist_is_named_in_one_line() {
    for wrong in ["0", "99", "Nonsense"] {
        let output = run(&["learn", wrong]);
        assert_eq!(output.status.code(), Some(1));
        let told = text(&output.stderr);
        assert!(told.contains(wrong) && told.lines().count() == 1, "{told}");
    }
}

#[test]
fn a_reader_that_goes_ends_it_without_a_word() {
    let mut child = adverb(&["learn", "1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
}
