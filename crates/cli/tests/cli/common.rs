//! Starts the program, and does not wait for it for ever.

use std::process::{Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

/// The program, without what the environment of the test might say to it.
pub(crate) fn adverb(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_adverb"));
    command.args(arguments).stdin(Stdio::null());
    for name in [
        "ADVERB_LIBDIR",
        "ADVERB_LINKS",
        "ADVERB_NETDEV",
        "ADVERB_UDP_PORT",
    ] {
        command.env_remove(name);
    }
    command
}

/// Output and status; the process is killed and the test fails when it takes longer than a minute.
pub(crate) fn finish(mut command: Command) -> Output {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stdout = child.stdout.take().expect("a pipe");
    let mut stderr = child.stderr.take().expect("a pipe");
    let drain = |pipe: &mut dyn std::io::Read| {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).map(|_| bytes)
    };
    std::thread::scope(|scope| {
        let out = scope.spawn(move || drain(&mut stdout));
        let err = scope.spawn(move || drain(&mut stderr));
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut late = false;
        let status: ExitStatus = loop {
            if let Some(status) = child.try_wait().expect("a child") {
                break status;
            }
            if Instant::now() > deadline && !late {
                late = true;
                child.kill().expect("a child");
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let stdout = out.join().expect("no panic").expect("readable");
        let stderr = err.join().expect("no panic").expect("readable");
        assert!(
            !late,
            "{command:?} took over a minute: {}",
            String::from_utf8_lossy(&stderr)
        );
        Output {
            status,
            stdout,
            stderr,
        }
    })
}

pub(crate) fn run(arguments: &[&str]) -> Output {
    finish(adverb(arguments))
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
