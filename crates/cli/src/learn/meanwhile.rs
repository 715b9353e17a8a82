//! One thread that keeps a window of messages in flight and computes between two polls.

use std::error::Error;

use adverb::transport::Rc;
use adverb::{Completion, OpKind};

const MESSAGES: u32 = 200;
const WINDOW: u32 = 8;

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let ctx = adverb::open_default()?;
    let pd = ctx.alloc_pd()?;
    let cq = ctx.create_cq(64).build()?;
    let a = pd.create_qp::<Rc>(&cq).build()?;
    let b = pd.create_qp::<Rc>(&cq).build()?;
    a.connect(&b.endpoint())?;
    b.connect(&a.endpoint())?;
    for _ in 0..WINDOW {
        b.post_recv(pd.alloc_buf(4096)?)?;
    }
    let mut free: Vec<_> = (0..WINDOW)
        .map(|_| pd.alloc_buf(4096))
        .collect::<Result<_, _>>()?;

    let (mut posted, mut sent, mut received, mut most) = (0, 0, 0, 0);
    let (mut units, mut primes) = (0_u32, 0_u32);
    let mut done: Vec<Completion> = Vec::new();
    // ANCHOR: loop
    while sent < MESSAGES || received < MESSAGES {
        // Fill the window.
        while posted < MESSAGES
            && let Some(buffer) = free.pop()
        {
            a.post_send(buffer)?;
            posted += 1;
        }
        most = most.max(posted - sent);

        // Our own work, in pieces of a few microseconds.
        units += 1;
        primes += u32::from(is_prime(units));

        // What is over is over; nothing is no reason to wait.
        cq.poll(&mut done)?;
        for completion in done.drain(..) {
            let kind = completion.kind;
            match (kind, completion.ok()?.and_then(|buffer| buffer.into_buf())) {
                (OpKind::Recv, Some(buffer)) => {
                    received += 1;
                    b.post_recv(buffer)?;
                }
                (_, buffer) => {
                    sent += 1;
                    free.extend(buffer);
                }
            }
        }
    }
    // ANCHOR_END: loop
    println!("sent and received   {sent} and {received} messages");
    println!("in flight           {most} at most");
    println!("meanwhile           {units} numbers looked at, {primes} of them primes");
    Ok(())
}

fn is_prime(n: u32) -> bool {
    n > 1
        && (2..n)
            .take_while(|d| d * d <= n)
            .all(|d| !n.is_multiple_of(d))
}
