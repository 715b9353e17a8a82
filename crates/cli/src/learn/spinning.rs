//! Two threads that spin on their completion queues and play ping-pong.

use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

use adverb::transport::Rc;
use adverb::{Completion, CompletionQueue, ProtectionDomain, QueuePair};

const ROUNDS: u32 = 1000;

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let ctx = adverb::open_default()?;
    let pd = ctx.alloc_pd()?;
    // One queue per thread: two that poll the same one would take turns at its lock.
    let ping_cq = ctx.create_cq(64).build()?;
    let pong_cq = ctx.create_cq(64).build()?;
    let ping = pd.create_qp::<Rc>(&ping_cq).max_inline(8).build()?;
    let pong = pd.create_qp::<Rc>(&pong_cq).max_inline(8).build()?;
    ping.connect(&pong.endpoint())?;
    pong.connect(&ping.endpoint())?;
    ping.post_recv(pd.alloc_buf(8)?)?;
    pong.post_recv(pd.alloc_buf(8)?)?;

    let mut times = Vec::new();
    let mut empty = 0;
    thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        let other = scope.spawn(|| -> adverb::Result<()> {
            for _ in 0..ROUNDS {
                let ball = next_message(&pd, &pong, &pong_cq, &mut 0)?;
                pong.post_send_inline(&ball)?;
            }
            Ok(())
        });
        // ANCHOR: rounds
        for round in 0..u64::from(ROUNDS) {
            let started = Instant::now();
            ping.post_send_inline(&round.to_ne_bytes())?;
            let ball = next_message(&pd, &ping, &ping_cq, &mut empty)?;
            times.push(started.elapsed());
            if ball != round.to_ne_bytes() {
                return Err(format!("round {round} came back as {ball:?}").into());
            }
        }
        // ANCHOR_END: rounds
        other.join().expect("the other side does not panic")?;
        Ok(())
    })?;
    times.sort_unstable();
    let at = |share: f64| micros(times[(f64::from(ROUNDS - 1) * share) as usize]);
    println!("{ROUNDS} round trips, every ball came back");
    println!(
        "half of them within {:.1} µs, 99 % within {:.1} µs",
        at(0.5),
        at(0.99)
    );
    println!("{empty} polls found nothing");
    Ok(())
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

// ANCHOR: spin
/// Spins until a message is there, and posts its buffer again. Completions of sends come on the way.
fn next_message(
    pd: &ProtectionDomain,
    qp: &QueuePair<Rc>,
    cq: &CompletionQueue,
    empty: &mut u64,
) -> adverb::Result<[u8; 8]> {
    let mut done: Vec<Completion> = Vec::new();
    let mut spins = 0_u32;
    loop {
        if cq.poll(&mut done)? == 0 {
            *empty += 1;
            spins += 1;
            // Where there are fewer cores than spinners, the other one must get a turn.
            if spins.is_multiple_of(1000) {
                thread::yield_now();
            }
        }
        for completion in done.drain(..) {
            completion.result?;
            let ball = completion.payload().and_then(|bytes| bytes.try_into().ok());
            if let Some(ball) = ball {
                qp.post_recv(completion.into_buf().map_or_else(|| pd.alloc_buf(8), Ok)?)?;
                return Ok(ball);
            }
        }
    }
}
// ANCHOR_END: spin
