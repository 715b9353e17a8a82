//! A ring between two real processes: content, order, back-pressure.
#![cfg(not(loom))]

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use adverb_mem::ring::{self, PushError};

const COUNT: u64 = 200_000;
const BOUND: Duration = Duration::from_secs(60);

/// Record `n` has a length and a content that both follow from `n`.
fn fill(n: u64, buffer: &mut [u8; 2048]) -> usize {
    let len = 8 + (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % 500;
    buffer[..8].copy_from_slice(&n.to_ne_bytes());
    buffer[8..len].fill(n as u8);
    len
}

/// Starts this test binary again as the process that runs `role`.
fn start(role: &str, path: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_other_process", "--nocapture"])
        .env("RING_ROLE", role)
        .env("RING_PATH", path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Not a test by itself: what the child runs.
#[test]
fn the_other_process() {
    let (Ok(role), Ok(path)) = (std::env::var("RING_ROLE"), std::env::var("RING_PATH")) else {
        return;
    };
    let fd = File::options().read(true).write(true).open(path).unwrap();
    let mut consumer = ring::open(&fd).unwrap();
    let started = Instant::now();
    let (mut got, mut expected) = ([0; 2048], [0; 2048]);
    println!("\nready {role}");
    let mut n = 0;
    while n < COUNT {
        match consumer.pop(&mut got).unwrap() {
            Some(len) => {
                assert_eq!(fill(n, &mut expected), len, "record {n}");
                assert_eq!(got[..len], expected[..len], "record {n}");
                n += 1;
            }
            None => {
                assert!(started.elapsed() < BOUND, "stuck at {n}");
                std::thread::yield_now();
            }
        }
    }
}

#[test]
fn every_record_crosses_unchanged_and_in_order() {
    let (mut producer, fd) = ring::create(1 << 14).unwrap();
    let path = format!("/proc/{}/fd/{}", std::process::id(), fd.as_raw_fd());
    let mut child = start("consumer", &path);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    while !lines
        .next()
        .expect("the child ended early")
        .unwrap()
        .starts_with("ready")
    {}
    let started = Instant::now();
    let mut buffer = [0; 2048];
    for n in 0..COUNT {
        let len = fill(n, &mut buffer);
        let (head, tail) = buffer[..len].split_at(len / 3);
        loop {
            match producer.push(&[head, tail]) {
                Ok(()) => break,
                Err(PushError::Full) => std::thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
            assert!(started.elapsed() < BOUND, "stuck at {n}");
        }
    }
    assert!(child.wait().unwrap().success());
}
