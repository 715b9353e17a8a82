//! Whoever starts a set-user-ID program does not configure it: `ADVERB_*` is ignored there.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use adverb_nic::Config;

/// Whether a copy of this test program finds out that it was given links that do not exist.
fn refuses_a_bad_setting(program: &Path) -> bool {
    let output = Command::new(program)
        .args(["--exact", "the_other_side", "--nocapture"])
        .env("ADVERB_LINKS", "none such")
        .env("SET_USER_ID_TEST", "1")
        .current_dir("/")
        .output()
        .expect("the copy starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    match (text.contains("refused"), text.contains("ignored it")) {
        (true, false) => true,
        (false, true) => false,
        _ => panic!("{text}"),
    }
}

#[test]
fn the_other_side() {
    if std::env::var_os("SET_USER_ID_TEST").is_some() {
        match Config::from_env() {
            Ok(_) => println!("ignored it"),
            Err(error) => println!("refused: {error}"),
        }
    }
}

#[test]
fn the_environment_does_not_configure_a_set_user_id_program() {
    let dir = tempfile::tempdir().expect("a directory");
    let copy = dir.path().join("copy");
    let own = std::env::current_exe().expect("its own path");
    fs::copy(own, &copy).expect("a copy");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("ours");
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).expect("ours");
    assert!(refuses_a_bad_setting(&copy), "an ordinary program reads it");
    // Another user's, who is nobody: only root can give a file away.
    if chown(&copy, Some(65_534), Some(65_534)).is_err() {
        println!("SKIPPED: only root can make a program of another user");
        return;
    }
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o4755)).expect("ours");
    if rustix::fs::statvfs(&copy)
        .is_ok_and(|fs| fs.f_flag.contains(rustix::fs::StatVfsMountFlags::NOSUID))
    {
        println!("SKIPPED: the temporary directory is mounted nosuid");
        return;
    }
    assert!(!refuses_a_bad_setting(&copy));
}
