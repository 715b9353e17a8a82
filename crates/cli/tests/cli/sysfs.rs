//! `adverb run --sysfs`: what the program sees below /sys/class and /dev, and that nobody else sees it.
//!
//! A system may forbid all of it to those who are not root. Then the tests want to be told so.

use std::path::Path;
use std::process::{Command, Output};

use super::common::{adverb, finish, text};

/// Nobody in particular.
const SOMEBODY: &str = "65534";

fn is_root() -> bool {
    std::fs::read_to_string("/proc/self/status")
        .expect("a status")
        .lines()
        .find_map(|line| line.strip_prefix("Uid:"))
        .is_some_and(|ids| ids.split_whitespace().nth(1) == Some("0"))
}

fn script(script: &str) -> Vec<String> {
    let words = [
        "run", "--sysfs", "--netdev", "lo", "--", "/bin/sh", "-c", script,
    ];
    words.map(str::to_owned).to_vec()
}

/// Runs a shell script with the view; None where the system forbids it, in words that help.
fn run(command: Command) -> Option<Output> {
    let libraries = tempfile::tempdir().expect("a directory");
    std::fs::write(libraries.path().join("libibverbs.so.1"), "").expect("a file");
    set_readable(libraries.path());
    let mut command = command;
    command.env("ADVERB_LIBDIR", libraries.path());
    let output = finish(command);
    let stderr = text(&output.stderr);
    if output.status.code() == Some(125) && !is_root() {
        assert!(stderr.contains("Without it everything works"), "{stderr}");
        eprintln!("not tested: {stderr}");
        return None;
    }
    Some(output)
}

fn set_readable(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    let all = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(path, all).expect("our own directory");
}

fn seen(shell: &str) -> Option<String> {
    let words = script(shell);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let output = run(adverb(&words))?;
    assert!(output.status.success(), "{}", text(&output.stderr));
    Some(text(&output.stdout))
}

#[test]
fn the_program_sees_the_device_and_its_network_interface() {
    let Some(text) = seen(
        "cd /sys/class/infiniband/adverb0 && ls device/net && cat ports/1/state ports/1/link_layer ports/1/gids/1 \
         ports/1/gid_attrs/types/1 ports/1/gid_attrs/ndevs/1 /sys/class/infiniband_verbs/uverbs0/ibdev \
         && cat device/net/lo/ifindex && ls /sys/class/infiniband_verbs/uverbs0/device/infiniband",
    ) else {
        return;
    };
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines,
        [
            "lo",
            "4: ACTIVE",
            "Ethernet",
            "0000:0000:0000:0000:0000:ffff:7f00:0001",
            "RoCE v2",
            "lo",
            "adverb0",
            "1",
            "adverb0"
        ]
    );
}

#[test]
fn the_program_may_read_and_write_the_device_file_that_sysfs_names() {
    let Some(text) = seen(
        "cd /dev/infiniband && ls && test -c uverbs0 -a -r uverbs0 -a -w uverbs0 && : >uverbs0 \
         && printf '%d:%d\\n' 0x$(stat -c %t uverbs0) 0x$(stat -c %T uverbs0) && cat /sys/class/infiniband_verbs/uverbs0/dev \
         && echo >/dev/null && test ! -e /dev/infiniband/file",
    ) else {
        return;
    };
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.contains(&"uverbs0"), "{text}");
    let [.., number, told] = lines.as_slice() else {
        panic!("{text}")
    };
    assert_eq!(number, told);
}

#[test]
fn the_other_device_files_are_still_there() {
    let Some(text) =
        seen("ls /dev; echo written >/dev/shm/adverb-test.$$ && rm /dev/shm/adverb-test.$$")
    else {
        return;
    };
    for file in std::fs::read_dir("/dev").expect("devices") {
        let name = file.expect("an entry").file_name();
        let name = name.to_str().expect("text");
        assert!(text.lines().any(|line| line == name), "{name}: {text}");
    }
}

#[test]
fn what_the_host_has_is_still_there() {
    let Some(text) =
        seen("cd /sys/class && ls && echo; cat net/lo/operstate; cat /sys/class/net/lo/mtu")
    else {
        return;
    };
    for class in std::fs::read_dir("/sys/class").expect("sysfs") {
        let name = class.expect("an entry").file_name();
        let name = name.to_str().expect("text");
        assert!(text.lines().any(|line| line == name), "{name}: {text}");
    }
    let mtu = std::fs::read_to_string("/sys/class/net/lo/mtu").expect("lo has an MTU");
    assert!(text.ends_with(&mtu), "{text}");
}

#[test]
fn nobody_else_sees_it() {
    let mounts = || std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    let before = mounts();
    let Some(inside) =
        seen("cat /proc/self/mountinfo; touch /sys/class/file 2>/dev/null || echo refused")
    else {
        return;
    };
    assert!(inside.contains(" /sys/class "), "{inside}");
    assert!(inside.contains("/dev/infiniband/uverbs0 "), "{inside}");
    assert!(inside.ends_with("refused\n"), "{inside}");
    assert_eq!(mounts(), before);
}

#[test]
fn the_user_and_the_exit_status_stay() {
    let words = script("id -u; id -g; exit 42");
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let Some(output) = run(adverb(&words)) else {
        return;
    };
    assert_eq!(output.status.code(), Some(42), "{}", text(&output.stderr));
    let mine = Command::new("/bin/sh")
        .args(["-c", "id -u; id -g"])
        .output()
        .expect("sh");
    assert_eq!(text(&output.stdout), text(&mine.stdout));
}

#[test]
fn root_is_not_needed_where_users_may_have_namespaces() {
    if !is_root() {
        // The other tests are this one then.
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    set_readable(dir.path());
    let program = dir.path().join("adverb");
    std::fs::copy(env!("CARGO_BIN_EXE_adverb"), &program).expect("a copy");
    let mut command = Command::new("setpriv");
    command
        .args([
            "--reuid",
            SOMEBODY,
            "--regid",
            SOMEBODY,
            "--clear-groups",
            "--",
        ])
        .arg(&program)
        .args(script(
            "id -u; ls /sys/class/infiniband/adverb0/device/net; grep CapEff /proc/self/status",
        ))
        .env_remove("ADVERB_LINKS");
    let Some(output) = run(command) else { return };
    let stderr = text(&output.stderr);
    if output.status.code() == Some(125) {
        assert!(stderr.contains("Without it everything works"), "{stderr}");
        return;
    }
    assert!(output.status.success(), "{stderr}");
    let out = text(&output.stdout);
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines, [SOMEBODY, "lo", "CapEff:\t0000000000000000"]);
}

#[test]
fn without_a_device_there_is_nothing_to_show() {
    let mut command = adverb(&["run", "--sysfs", "--", "true"]);
    command.env("ADVERB_NETDEV", "no-such-interface");
    let libraries = tempfile::tempdir().expect("a directory");
    std::fs::write(libraries.path().join("libibverbs.so.1"), "").expect("a file");
    command.env("ADVERB_LIBDIR", libraries.path());
    let output = finish(command);
    assert_eq!(output.status.code(), Some(125));
    assert!(
        text(&output.stderr).contains("--sysfs"),
        "{}",
        text(&output.stderr)
    );
}
