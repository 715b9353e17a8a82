//! The same messages received in four ways: what each adds to a message, and what it takes of a core.

use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

use adverb::transport::Rc;
use adverb::{Completion, CompletionQueue, Notify, Repolled, Wait};
use rustix::time::{ClockId, clock_gettime};

const MESSAGES: usize = 200;
const GAP: Duration = Duration::from_micros(300);
/// About what a wake-up costs.
const SPIN: Duration = Duration::from_micros(40);

type WaitFor = fn(&CompletionQueue, &mut Vec<Completion>) -> adverb::Result<()>;

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let ways: [(&str, WaitFor); 4] = [
        ("busy", |cq, done| cq.wait(done, Wait::Busy, None).map(drop)),
        ("event", |cq, done| {
            cq.wait(done, Wait::Event, None).map(drop)
        }),
        ("spin, then sleep", hybrid),
        ("adaptive", |cq, done| {
            cq.wait(done, Wait::default(), None).map(drop)
        }),
    ];
    println!("{MESSAGES} messages, one every {} µs", GAP.as_micros());
    for (name, wait) in ways {
        let (latency, share) = measure(wait)?;
        println!(
            "{name:<20}median {:.1} µs, {share:.0} % of a core",
            latency.as_secs_f64() * 1e6
        );
    }
    Ok(())
}

// ANCHOR: hybrid
/// Spins for as long as a sleep would cost, then sleeps: never worse than twice the better of the two.
fn hybrid(cq: &CompletionQueue, done: &mut Vec<Completion>) -> adverb::Result<()> {
    let until = Instant::now() + SPIN;
    while Instant::now() < until {
        if cq.poll(done)? > 0 {
            return Ok(());
        }
    }
    while let Repolled::Empty(sleep) = cq.arm(Notify::Any)?.repoll(done)? {
        sleep.wait(None)?;
        if cq.poll(done)? > 0 {
            break;
        }
    }
    Ok(())
}
// ANCHOR_END: hybrid

// ANCHOR: measure
/// The median time from the post to its being seen, and the share of a core that the receiver used.
fn measure(wait: WaitFor) -> Result<(Duration, f64), Box<dyn Error>> {
    let ctx = adverb::open_default()?;
    let pd = ctx.alloc_pd()?;
    let send_cq = ctx.create_cq(64).build()?;
    let cq = ctx.create_cq(64).build()?;
    let a = pd.create_qp::<Rc>(&send_cq).max_inline(8).build()?;
    let b = pd.create_qp::<Rc>(&send_cq).recv_cq(&cq).build()?;
    a.connect(&b.endpoint())?;
    b.connect(&a.endpoint())?;
    for _ in 0..16 {
        b.post_recv(pd.alloc_buf(8)?)?;
    }
    let epoch = Instant::now();
    let mut latencies = Vec::new();
    let (wall, cpu) = thread::scope(|scope| -> Result<_, Box<dyn Error>> {
        let sender = scope.spawn(|| -> adverb::Result<()> {
            let mut sent: Vec<Completion> = Vec::new();
            for _ in 0..MESSAGES {
                thread::sleep(GAP);
                let now = u64::try_from(epoch.elapsed().as_nanos()).unwrap_or(u64::MAX);
                a.post_send_inline(&now.to_ne_bytes())?;
                send_cq.wait(&mut sent, Wait::Busy, None)?;
                sent.clear();
            }
            Ok(())
        });
        let (started, cpu) = (Instant::now(), thread_cpu());
        let mut done: Vec<Completion> = Vec::new();
        while latencies.len() < MESSAGES {
            wait(&cq, &mut done)?;
            let seen = epoch.elapsed();
            for completion in done.drain(..) {
                completion.result?;
                let sent = completion
                    .payload()
                    .and_then(|bytes| bytes.try_into().ok())
                    .map(u64::from_ne_bytes);
                latencies
                    .push(seen.saturating_sub(Duration::from_nanos(sent.ok_or("not a time")?)));
                b.post_recv(completion.into_buf().ok_or("no buffer")?)?;
            }
        }
        let used = (started.elapsed(), thread_cpu().saturating_sub(cpu));
        sender.join().expect("the sender does not panic")?;
        Ok(used)
    })?;
    latencies.sort_unstable();
    Ok((
        latencies[MESSAGES / 2],
        100.0 * cpu.as_secs_f64() / wall.as_secs_f64(),
    ))
}
// ANCHOR_END: measure

fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}
