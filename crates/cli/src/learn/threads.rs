//! Two threads on one completion queue: who is woken finds that another has taken what there was.

use std::error::Error;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use adverb::transport::Rc;
use adverb::{Completion, CompletionQueue, Notify, Repolled, Wait};

const LONG: Option<Duration> = Some(Duration::from_secs(10));
const MESSAGES: u32 = 300;

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let ctx = adverb::open_default()?;
    let pd = ctx.alloc_pd()?;
    let send_cq = ctx.create_cq(64).build()?;
    let cq = ctx.create_cq(64).build()?;
    let a = pd.create_qp::<Rc>(&send_cq).build()?;
    let b = pd.create_qp::<Rc>(&send_cq).recv_cq(&cq).build()?;
    a.connect(&b.endpoint())?;
    b.connect(&a.endpoint())?;
    b.post_recv(pd.alloc_buf(64)?)?;
    b.post_recv(pd.alloc_buf(64)?)?;

    // ANCHOR: stolen
    let (armed, woken, stolen) = (Barrier::new(2), Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        let sleeper = scope.spawn(|| -> adverb::Result<()> {
            let mut done = Vec::new();
            let sleep = arm_empty(&cq, &mut done)?;
            armed.wait();
            println!("sleeper             woken: {}", sleep.wait(LONG)?);
            woken.wait();
            stolen.wait();
            println!("sleeper             finds {}", cq.poll(&mut done)?);
            // Woken for nothing. That is no error: arm, look, sleep again.
            let sleep = arm_empty(&cq, &mut done)?;
            armed.wait();
            println!("sleeper             woken: {}", sleep.wait(LONG)?);
            println!("sleeper             finds {}", cq.poll(&mut done)?);
            Ok(())
        });
        armed.wait();
        a.post_send(pd.reg_mr(b"first".to_vec())?)?;
        woken.wait();
        let mut done: Vec<Completion> = Vec::new();
        println!("thief               finds {}", cq.poll(&mut done)?);
        stolen.wait();
        armed.wait();
        a.post_send(pd.reg_mr(b"second".to_vec())?)?;
        sleeper.join().expect("the sleeper does not panic")?;
        Ok(())
    })?;
    // ANCHOR_END: stolen

    // ANCHOR: share
    // Without choreography: two threads wait as they like, and each message goes to one of them.
    let taken = AtomicU32::new(0);
    thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        let worker = || -> adverb::Result<()> {
            let mut done: Vec<Completion> = Vec::new();
            while taken.load(Ordering::Relaxed) < MESSAGES {
                // The timeout is for the end: whoever did not take the last one must look up.
                cq.wait(&mut done, Wait::Event, Some(Duration::from_millis(20)))?;
                for completion in done.drain(..) {
                    completion.result?;
                    taken.fetch_add(1, Ordering::Relaxed);
                    b.post_recv(completion.into_buf().map_or_else(|| pd.alloc_buf(64), Ok)?)?;
                }
            }
            Ok(())
        };
        for _ in 0..8 {
            b.post_recv(pd.alloc_buf(64)?)?;
        }
        let workers = [scope.spawn(worker), scope.spawn(worker)];
        let mut sent: Vec<Completion> = Vec::new();
        for _ in 0..MESSAGES {
            a.post_send(pd.reg_mr(b"work".to_vec())?)?;
            send_cq.wait(&mut sent, Wait::Busy, LONG)?;
        }
        for worker in workers {
            worker.join().expect("a worker does not panic")?;
        }
        Ok(())
    })?;
    println!(
        "two workers         {} of {MESSAGES} messages taken",
        taken.load(Ordering::Relaxed)
    );
    // ANCHOR_END: share
    Ok(())
}

/// Arms a queue that nobody else takes from at the moment.
fn arm_empty<'a>(
    cq: &'a CompletionQueue,
    done: &mut Vec<Completion>,
) -> adverb::Result<adverb::Sleep<'a>> {
    loop {
        if let Repolled::Empty(sleep) = cq.arm(Notify::Any)?.repoll(done)? {
            return Ok(sleep);
        }
    }
}
