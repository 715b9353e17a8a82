//! Futures that are dropped at random, ten thousand times, with nothing lost and nothing invented.

use std::env;
use std::future::Future;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use adverb::Wait;
use adverb::transport::Rc;
use tokio::time::timeout;

use super::{Pair, runtime, soon};

const CANCELLED: usize = 10_000;
/// The last number that is sent.
const LAST: u64 = u64::MAX;
const SEED: &str = "ADVERB_TEST_SEED";

/// Xorshift (Marsaglia 2003).
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

fn seed() -> u64 {
    let given = env::var(SEED).ok().and_then(|s| s.parse().ok());
    given.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.unwrap().as_nanos() as u64 | 1
    })
}

/// Polls a future so many times at most, with turns for others in between; `None` if it is to be dropped then.
async fn some_polls<F: Future + Unpin>(future: &mut F, polls: u64) -> Option<F::Output> {
    for _ in 0..polls {
        let polled = std::future::poll_fn(|cx| {
            Poll::Ready(match std::pin::Pin::new(&mut *future).poll(cx) {
                Poll::Ready(output) => Some(output),
                Poll::Pending => None,
            })
        });
        if let Some(output) = polled.await {
            return Some(output);
        }
        tokio::task::yield_now().await;
    }
    None
}

/// A task sends numbers and drops many of its sends; another receives them and drops many of its receives.
async fn cancel_at_random(how: Wait, seed: u64) {
    let pair = Arc::new(Pair::<Rc>::new());
    pair.a_queue.set_wait(how);
    pair.b_queue.set_wait(how);
    for _ in 0..16 {
        pair.b.post_recv(pair.pd.alloc_buf(8).unwrap()).unwrap();
    }
    let cancelled = Arc::<AtomicUsize>::default();
    let sender = tokio::spawn(send(
        Arc::clone(&pair),
        Arc::clone(&cancelled),
        Random(seed),
    ));
    let random = Random(seed.rotate_left(32) | 1);
    let receiver = tokio::spawn(receive(pair, Arc::clone(&cancelled), random));
    let (posted, received) = (soon(sender).await.unwrap(), soon(receiver).await.unwrap());
    assert_eq!(posted, received);
    assert!(cancelled.load(Ordering::Relaxed) >= CANCELLED);
}

/// What the device got, in order.
async fn send(pair: Arc<Pair<Rc>>, cancelled: Arc<AtomicUsize>, mut random: Random) -> Vec<u64> {
    let mut posted = Vec::new();
    let mut number = 0;
    while cancelled.load(Ordering::Relaxed) < CANCELLED {
        number += 1;
        let mut send = pair.a.send(pair.buf(&u64::to_ne_bytes(number)));
        let polls = match random.below(4) {
            0 => u64::MAX,
            _ => random.below(4),
        };
        match some_polls(&mut send, polls).await {
            Some(sent) => {
                sent.unwrap();
                posted.push(number);
            }
            None => {
                cancelled.fetch_add(1, Ordering::Relaxed);
                posted.extend(send.is_posted().then_some(number));
            }
        }
    }
    pair.a.send(pair.buf(&LAST.to_ne_bytes())).await.unwrap();
    posted.push(LAST);
    posted
}

/// What came, in order.
async fn receive(pair: Arc<Pair<Rc>>, cancelled: Arc<AtomicUsize>, mut random: Random) -> Vec<u64> {
    let mut received = Vec::new();
    let mut spare = None;
    while received.last() != Some(&LAST) {
        let patience = Duration::from_micros(random.below(100));
        let polls = match random.below(4) {
            0 => u64::MAX,
            _ => random.below(3),
        };
        let message = match (random.below(32), spare.take()) {
            (0, buf) => {
                spare = buf;
                timeout(patience, pair.b.inbox().next()).await.ok()
            }
            (1..14, Some(buf)) => {
                let mut recv = pair.b.recv(buf);
                // One that was never polled takes its buffer with it.
                some_polls(&mut recv, polls.max(1)).await
            }
            (_, buf) => {
                if let Some(buf) = buf {
                    pair.b.post_recv(buf).unwrap();
                }
                some_polls(&mut pair.b.inbox().next(), polls).await
            }
        };
        let Some(message) = message else {
            cancelled.fetch_add(1, Ordering::Relaxed);
            continue;
        };
        let message = message.unwrap();
        let number = message.payload().unwrap().try_into().unwrap();
        received.push(u64::from_ne_bytes(number));
        if let Some(buf) = spare.replace(message.into_buf().unwrap()) {
            pair.b.post_recv(buf).unwrap();
        }
    }
    received
}

#[test]
fn ten_thousand_random_cancellations_lose_nothing() {
    let seed = seed();
    println!("{SEED}={seed}");
    for how in [Wait::Event, Wait::default()] {
        runtime().block_on(cancel_at_random(how, seed));
    }
    assert_eq!(adverb::leaked_bytes(), 0);
}

/// This and each operation again, in a process of its own that knows no other link.
#[test]
fn the_same_over_udp() {
    let tests = [
        "cancelling::ten_thousand_random_cancellations_lose_nothing",
        "operations::each_operation_works_under_each_watcher_and_each_way_to_wait",
    ];
    let run = Command::new(env::current_exe().unwrap())
        .args(tests)
        .args(["--exact", "--nocapture"])
        .env("ADVERB_LINKS", "udp")
        .output()
        .unwrap();
    let (out, err) = (run.stdout.escape_ascii(), run.stderr.escape_ascii());
    assert!(run.status.success(), "{out} {err}");
    assert!(out.to_string().contains("2 passed"), "{out}");
}
