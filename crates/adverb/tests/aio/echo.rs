//! The example `tokio_echo`, in two processes: the server is this very test program, started again.

use std::env;
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

#[path = "../../examples/tokio_echo.rs"]
#[allow(dead_code, reason = "its main")]
mod tokio_echo;

use super::LONG;

const ADDRESS: &str = "ADVERB_TEST_ECHO";

#[test]
fn server() {
    // Without the variable this is an ordinary run, and there is nobody to serve.
    if let Ok(address) = env::var(ADDRESS) {
        let served = tokio_echo::run(&["listen".to_owned(), address]).unwrap();
        assert_eq!(served, "served 50");
    }
}

#[test]
fn an_echo_with_timeouts_loses_nothing_between_two_processes() {
    let address = {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap().to_string()
    };
    let mut server = Command::new(env::current_exe().unwrap())
        .args(["echo::server", "--exact"])
        .env(ADDRESS, &address)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + LONG;
    let asked = loop {
        // Refused until the server listens.
        match tokio_echo::run(&["connect".to_owned(), address.clone()]) {
            Ok(asked) => break asked,
            Err(e) => assert!(Instant::now() < deadline, "{e}"),
        }
        thread::sleep(Duration::from_millis(10));
    };
    assert!(asked.ends_with("none lost"), "{asked}");
    assert!(server.wait().unwrap().success());
}
