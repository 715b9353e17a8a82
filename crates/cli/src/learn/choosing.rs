//! What a wake-up costs on this machine, and what follows for each pace of messages.

use std::error::Error;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use adverb::transport::Rc;
use adverb::{Completion, Notify, Repolled};

const ROUNDS: usize = 100;

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let ctx = adverb::open_default()?;
    let pd = ctx.alloc_pd()?;
    let send_cq = ctx.create_cq(256).build()?;
    let cq = ctx.create_cq(64).build()?;
    let a = pd
        .create_qp::<Rc>(&send_cq)
        .max_send_wr(128)
        .max_inline(8)
        .build()?;
    let b = pd.create_qp::<Rc>(&send_cq).recv_cq(&cq).build()?;
    a.connect(&b.endpoint())?;
    b.connect(&a.endpoint())?;

    // ANCHOR: wake
    // A thread sleeps on the queue; how long after the post does it run?
    let armed = Barrier::new(2);
    let mut wakes = thread::scope(|scope| -> Result<Vec<Duration>, Box<dyn Error>> {
        let sender = scope.spawn(|| -> adverb::Result<Vec<Instant>> {
            let mut posts = Vec::new();
            for _ in 0..ROUNDS {
                armed.wait();
                // Long enough to fall asleep.
                thread::sleep(Duration::from_millis(1));
                posts.push(Instant::now());
                a.post_send_inline(b"wake up!")?;
            }
            Ok(posts)
        });
        let mut done: Vec<Completion> = Vec::new();
        let mut woken = Vec::new();
        for _ in 0..ROUNDS {
            b.post_recv(pd.alloc_buf(8)?)?;
            let Repolled::Empty(sleep) = cq.arm(Notify::Any)?.repoll(&mut done)? else {
                return Err("something came that nobody has sent".into());
            };
            armed.wait();
            sleep.wait(None)?;
            woken.push(Instant::now());
            while done.is_empty() {
                cq.poll(&mut done)?;
            }
            done.clear();
        }
        let posts = sender.join().expect("the sender does not panic")?;
        Ok(woken
            .iter()
            .zip(&posts)
            .map(|(woken, post)| *woken - *post)
            .collect())
    })?;
    wakes.sort_unstable();
    let wake = wakes[ROUNDS / 2];
    println!(
        "a wake-up costs     {:.1} µs here (the median of {ROUNDS})",
        micros(wake)
    );
    // ANCHOR_END: wake

    // ANCHOR: rule
    for gap in [1, 10, 100, 1_000, 10_000].map(Duration::from_micros) {
        // Polling costs the gap, sleeping a wake-up: whoever knew the gap would pay the lesser.
        let (which, price) = if gap <= wake {
            ("poll", gap)
        } else {
            ("sleep", wake)
        };
        println!(
            "a message each {:>5} µs: {which} costs {:.1} µs of a core per message, {:.0} %",
            gap.as_micros(),
            micros(price),
            100.0 * price.as_secs_f64() / gap.as_secs_f64()
        );
    }
    // ANCHOR_END: rule
    Ok(())
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
