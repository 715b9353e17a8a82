//! A completion queue in an event loop, beside another descriptor.

use std::error::Error;
use std::io::{PipeReader, PipeWriter, Write as _, pipe};

use adverb::transport::Rc;
use adverb::{Completion, CompletionQueue, Notify, aio};
use rustix::event::epoll;

const QUEUE: u64 = 1;
const STOP: u64 = 2;

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let ctx = adverb::open_default()?;
    let pd = ctx.alloc_pd()?;
    let send_cq = ctx.create_cq(64).build()?;
    let cq = ctx.create_cq(64).build()?;
    let a = pd.create_qp::<Rc>(&send_cq).build()?;
    let b = pd.create_qp::<Rc>(&send_cq).recv_cq(&cq).build()?;
    a.connect(&b.endpoint())?;
    b.connect(&a.endpoint())?;
    for _ in 0..3 {
        b.post_recv(pd.alloc_buf(64)?)?;
    }
    let (stop, mut stopper): (PipeReader, PipeWriter) = pipe()?;

    // ANCHOR: watch
    let loop_fd = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let watch = |fd, name| {
        epoll::add(
            &loop_fd,
            fd,
            epoll::EventData::new_u64(name),
            epoll::EventFlags::IN,
        )
    };
    watch(cq.event_fd().ok_or("no channel")?, QUEUE)?;
    watch(std::os::fd::AsFd::as_fd(&stop), STOP)?;
    println!("nothing yet         {} events", cq.take_events()?);
    // ANCHOR_END: watch

    // ANCHOR: loop
    let mut left = 3;
    let mut done: Vec<Completion> = Vec::new();
    arm_and_look(&cq, &mut done)?;
    a.post_send(pd.reg_mr(b"to the loop".to_vec())?)?;
    'events: loop {
        let mut ready = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; 2];
        let count = epoll::wait(&loop_fd, &mut ready, None)?;
        for event in &ready[..count] {
            match event.data.u64() {
                QUEUE => {
                    println!(
                        "epoll_wait          the channel is readable, {} event taken",
                        cq.take_events()?
                    );
                    arm_and_look(&cq, &mut done)?;
                }
                STOP => break 'events,
                _ => {}
            }
        }
        // Handled after arming, so that nothing is in the queue while the loop sleeps.
        for completion in done.drain(..) {
            completion.result?;
            println!("ibv_poll_cq         a message");
            left -= 1;
            if left > 0 {
                a.post_send(pd.reg_mr(b"to the loop".to_vec())?)?;
            } else {
                stopper.write_all(b"!")?;
            }
        }
    }
    println!("epoll_wait          the other descriptor is readable: stop");
    // ANCHOR_END: loop

    // ANCHOR: futures
    let queue = aio::Queue::new(ctx.create_cq(64).build()?)?;
    let c = queue.attach(pd.create_qp::<Rc>(queue.cq()).build()?)?;
    let d = queue.attach(pd.create_qp::<Rc>(queue.cq()).build()?)?;
    c.connect(&d.endpoint())?;
    d.connect(&c.endpoint())?;
    let text = aio::block_on(async {
        d.post_recv(pd.alloc_buf(64)?)?;
        c.send(pd.reg_mr(b"to a future".to_vec())?).await?;
        let message = d.inbox().next().await?;
        Ok::<_, adverb::Error>(
            String::from_utf8_lossy(message.payload().unwrap_or_default()).into_owned(),
        )
    })?;
    println!("await               {text}");
    // ANCHOR_END: futures
    Ok(())
}

// ANCHOR: arm
/// Arms, and polls until nothing is left.
fn arm_and_look(cq: &CompletionQueue, done: &mut Vec<Completion>) -> adverb::Result<()> {
    let _ = cq.arm(Notify::Any)?.repoll(done)?;
    while cq.poll(done)? > 0 {}
    Ok(())
}
// ANCHOR_END: arm
