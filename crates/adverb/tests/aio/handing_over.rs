//! Tasks on one queue do not depend on each other.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use std::{future, io};

use adverb::Wait;
use adverb::aio::{Descriptor, Queue, Readiness, Thread, block_on};
use adverb::transport::Rc;

use super::{Count, context, on_one_queue, runtime, soon};

#[test]
fn whoever_armed_the_queue_may_go_and_the_other_is_woken() {
    let ctx = context();
    let pd = ctx.alloc_pd().unwrap();
    let queue = Queue::with(ctx.create_cq(128).build().unwrap(), Thread::new).unwrap();
    queue.set_wait(Wait::Event);
    let (a, b) = on_one_queue(&pd, &queue);
    let (c, d) = on_one_queue(&pd, &queue);
    let sender = Queue::with(ctx.create_cq(128).build().unwrap(), Thread::new).unwrap();
    let (e, f): (adverb::aio::QueuePair<Rc>, adverb::aio::QueuePair<Rc>) = {
        let (e, f) = (
            super::connectable(&pd, &sender),
            super::connectable::<Rc>(&pd, &queue),
        );
        e.connect(&f.endpoint()).unwrap();
        f.connect(&e.endpoint()).unwrap();
        (e, f)
    };
    let (first, second) = (Arc::<Count>::default(), Arc::<Count>::default());
    for qp in [&a, &b, &c, &d, &f] {
        qp.post_recv(pd.alloc_buf(8).unwrap()).unwrap();
    }
    // The first arms and has the descriptor watched, the second finds that done.
    let mut one = b.inbox().next();
    let mut two = f.inbox().next();
    assert!(first.poll(&mut one).is_pending());
    assert!(second.poll(&mut two).is_pending());
    drop(one);
    block_on(e.send(pd.reg_mr(b"to two".to_vec()).unwrap())).unwrap();
    second.wait();
    assert!(second.poll(&mut two).is_ready());
    drop(two);

    // And a task that is woken and never comes again keeps nobody from their completion.
    let (idle, busy) = (Arc::<Count>::default(), Arc::<Count>::default());
    let mut never_again = d.inbox().next();
    assert!(idle.poll(&mut never_again).is_pending());
    f.post_recv(pd.alloc_buf(8).unwrap()).unwrap();
    let mut two = f.inbox().next();
    assert!(busy.poll(&mut two).is_pending());
    c.post_send(pd.alloc_buf(8).unwrap()).unwrap();
    idle.wait();
    block_on(e.send(pd.alloc_buf(8).unwrap())).unwrap();
    busy.wait();
    assert!(busy.poll(&mut two).is_ready());
    assert!(idle.poll(&mut never_again).is_ready());
    drop(a);
}

#[test]
fn two_tasks_on_one_queue_take_turns_at_being_cancelled() {
    runtime().block_on(soon(async {
        let ctx = context();
        let pd = ctx.alloc_pd().unwrap();
        let queue = Queue::new(ctx.create_cq(128).build().unwrap()).unwrap();
        queue.set_wait(Wait::Event);
        let other = Queue::new(ctx.create_cq(128).build().unwrap()).unwrap();
        let mut ends = Vec::new();
        for _ in 0..2 {
            let (far, near) = (
                super::connectable::<Rc>(&pd, &other),
                super::connectable::<Rc>(&pd, &queue),
            );
            far.connect(&near.endpoint()).unwrap();
            near.connect(&far.endpoint()).unwrap();
            ends.push((far, near));
        }
        for round in 0..50u8 {
            // One gives up in the middle of its wait; the other one's message comes then.
            let (quitter, stayer) = match round % 2 {
                0 => (&ends[0], &ends[1]),
                _ => (&ends[1], &ends[0]),
            };
            let quit = tokio::time::timeout(Duration::from_micros(200), quitter.1.inbox().next());
            let stay = stayer.1.recv(pd.alloc_buf(8).unwrap());
            let send = async {
                tokio::time::sleep(Duration::from_millis(2)).await;
                stayer.0.send(pd.reg_mr(vec![round]).unwrap()).await
            };
            let (quit, message, sent) = tokio::join!(quit, stay, send);
            assert!(quit.is_err());
            sent.unwrap();
            assert_eq!(message.unwrap().payload(), Some(&[round][..]));
        }
    }));
}

/// The worst watcher that is allowed: whatever it is asked, it wakes at once. (As tokio's does when a task has used up
/// its budget.)
struct Nervous(Descriptor);

impl Readiness for Nervous {
    fn poll_io(
        &self,
        cx: &mut Context<'_>,
        attempt: &mut dyn FnMut() -> io::Result<()>,
    ) -> Poll<io::Result<()>> {
        let _ = &self.0;
        match attempt() {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            result => Poll::Ready(result),
        }
    }
}

#[test]
fn a_watcher_that_wakes_at_once_costs_time_but_hangs_nobody() {
    let ctx = context();
    let pd = ctx.alloc_pd().unwrap();
    let nervous = |fd| Ok(Nervous(fd));
    let queue = Queue::with(ctx.create_cq(128).build().unwrap(), nervous).unwrap();
    queue.set_wait(Wait::Event);
    let (a, b) = on_one_queue(&pd, &queue);
    block_on(async {
        for _ in 0..100 {
            b.post_recv(pd.alloc_buf(8).unwrap()).unwrap();
            let mut message = b.inbox().next();
            let mut send = a.send(pd.alloc_buf(8).unwrap());
            let mut open = (true, true);
            future::poll_fn(|cx| {
                use std::pin::Pin;
                open.0 = open.0 && Future::poll(Pin::new(&mut message), cx).is_pending();
                open.1 = open.1 && Future::poll(Pin::new(&mut send), cx).is_pending();
                match open {
                    (false, false) => Poll::Ready(()),
                    _ => Poll::Pending,
                }
            })
            .await;
        }
    });
}
