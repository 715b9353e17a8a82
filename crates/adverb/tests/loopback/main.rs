//! Every operation of the API between two queue pairs of one process, on the software NIC.

mod closing;
mod datagrams;
mod events;
mod lists;
mod memory;
mod operations;
mod shared;
mod sound;
mod waiting;
mod windows;
mod world;

use std::env;
use std::process::{Command, Stdio};
use std::time::Duration;

use adverb::transport::Connected;
use adverb::{
    Completion, CompletionQueue, ConnectOptions, Context, OpId, ProtectionDomain, QueuePair, Wait,
};

/// How long a test waits for what must come. Never reached unless something is broken.
const LONG: Duration = Duration::from_secs(20);

/// The software NIC's first device, whatever else the machine has; or the device that
/// `ADVERB_TEST_DEVICE` names, which may be a card or the kernel's software RoCE.
fn context() -> Context {
    match env::var("ADVERB_TEST_DEVICE") {
        Ok(name) => adverb::open(&name).expect("ADVERB_TEST_DEVICE names a device"),
        Err(_) => adverb::open_default().expect("the software NIC is linked in"),
    }
}

#[test]
fn the_same_over_udp() {
    if ["ADVERB_LINKS", "ADVERB_TEST_DEVICE"]
        .iter()
        .any(|name| env::var_os(name).is_some())
    {
        return;
    }
    let output = Command::new(env::current_exe().unwrap())
        .args([
            "lists::",
            "memory::",
            "operations::",
            "datagrams::",
            "shared::",
            "windows::",
        ])
        .env("ADVERB_LINKS", "udp")
        .env("ADVERB_UDP_PORT", "19093")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
}

/// Two connected queue pairs, each with a completion queue of its own.
struct Pair<T: Connected> {
    pd: ProtectionDomain,
    a: QueuePair<T>,
    b: QueuePair<T>,
    a_cq: CompletionQueue,
    b_cq: CompletionQueue,
}

impl<T: Connected> Pair<T> {
    fn new() -> Self {
        Self::with(&ConnectOptions::default())
    }

    fn with(options: &ConnectOptions) -> Self {
        let ctx = context();
        let pd = ctx.alloc_pd().unwrap();
        let a_cq = ctx.create_cq(64).build().unwrap();
        let b_cq = ctx.create_cq(64).build().unwrap();
        let a = pd.create_qp::<T>(&a_cq).max_inline(32).build().unwrap();
        let b = pd.create_qp::<T>(&b_cq).max_inline(32).build().unwrap();
        a.connect_with(&b.endpoint(), options).unwrap();
        b.connect_with(&a.endpoint(), options).unwrap();
        Self {
            pd,
            a,
            b,
            a_cq,
            b_cq,
        }
    }
}

/// The next `count` completions of a queue.
fn completions(cq: &CompletionQueue, count: usize) -> Vec<Completion> {
    let mut done = Vec::new();
    while done.len() < count {
        let found = cq.wait(&mut done, Wait::default(), Some(LONG)).unwrap();
        assert!(found > 0, "{} of {count} completions came", done.len());
    }
    assert_eq!(done.len(), count);
    done
}

/// The only completion of an operation, which must have succeeded.
fn success(cq: &CompletionQueue, id: OpId) -> Completion {
    let done = completions(cq, 1).pop().unwrap();
    assert_eq!(done.id, id);
    assert!(done.result.is_ok(), "{:?}", done.result);
    done
}

/// Bytes that differ from place to place.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251) as u8).collect()
}
