//! The examples that connect through the connection manager, each in two processes and more.
//!
//! The other process is this very test program, started again with the example's arguments in its environment.

#[path = "../../examples/copy.rs"]
mod copy;
#[path = "../../examples/kv.rs"]
mod kv;

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::{env, fs};

const ARGUMENTS: &str = "ADVERB_TEST_ARGUMENTS";

#[test]
fn other() {
    let Ok(line) = env::var(ARGUMENTS) else {
        return;
    };
    let words: Vec<&str> = line.split(' ').collect();
    let answer = match words[0] {
        "kv" => kv::run(&words[1..]),
        _ => copy::run(&words[1..]),
    };
    println!("answer {}", answer.unwrap());
}

struct Other {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Other {
    fn start(arguments: &str) -> Self {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["other", "--exact", "--nocapture"])
            .env(ARGUMENTS, arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    /// What follows this word in its output.
    fn says(&mut self, word: &str) -> String {
        let mut line = String::new();
        while self.output.read_line(&mut line).unwrap() > 0 {
            // With one test thread the harness prints the test's name on the same line.
            if let Some((_, rest)) = line.split_once(word) {
                return rest.trim().to_owned();
            }
            line.clear();
        }
        panic!("the other process never says {word:?}");
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_key_that_one_client_stores_another_reads() {
    let mut server = Other::start("kv serve 127.0.0.1:0");
    let address = server.says("listening ");
    assert!(kv::run(&["get", &address, "fruit"]).is_err());
    for value in ["apple", "a pear and a plum"] {
        assert_eq!(
            kv::run(&["put", &address, "fruit", value]).unwrap(),
            "stored"
        );
        let mut client = Other::start(&format!("kv get {address} fruit"));
        assert_eq!(client.says("answer "), value);
    }
    assert!(kv::run(&["get", &address, "tool"]).is_err());
    assert!(kv::run(&["put", &address, "fruit", &"x".repeat(97)]).is_err());
}

#[test]
fn a_copied_file_is_the_same() {
    let dir = env::temp_dir().join(format!("adverb-examples-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let (from, to) = (dir.join("from"), dir.join("to"));
    for len in [0, 1, 64 << 10, 3_000_001] {
        let bytes: Vec<u8> = (0..len).map(|i: u32| (i * 31 + i / 251) as u8).collect();
        fs::write(&from, &bytes).unwrap();
        let mut receiver = Other::start(&format!("copy receive 127.0.0.1:0 {}", to.display()));
        let address = receiver.says("listening ");
        let sent = copy::run(&["send", &address, from.to_str().unwrap()]).unwrap();
        assert_eq!(sent, format!("{len} bytes sent"));
        assert_eq!(receiver.says("answer "), format!("{len} bytes received"));
        assert!(fs::read(&to).unwrap() == bytes, "{len} bytes");
    }
    fs::remove_dir_all(&dir).unwrap();
}
