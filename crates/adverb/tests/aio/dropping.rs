//! What becomes of an operation or a message whose future is dropped.

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use adverb::aio::{Queue, Thread, block_on};
use adverb::transport::Rc;
use adverb::{Error, Wait};

use super::{Count, Pair, ends, on_one_queue, runtime, soon};

#[test]
fn a_posted_operation_that_is_dropped_still_happens() {
    runtime().block_on(soon(async {
        let pair = Pair::<Rc>::new();
        let task = Arc::<Count>::default();
        pair.b.post_recv(pair.pd.alloc_buf(64).unwrap()).unwrap();
        // The buffer moves into it, and is the device's when the future is gone.
        let mut send = pair.a.send(pair.buf(&[3; 64]));
        assert!(!send.is_posted());
        let _ = task.poll(&mut send);
        drop(send);
        let message = pair.b.inbox().next().await.unwrap();
        assert_eq!(message.payload(), Some(&[3; 64][..]));
        // Its slot is free again, once the queue has been looked into.
        pair.b.post_recv(pair.pd.alloc_buf(64).unwrap()).unwrap();
        pair.a.send(pair.buf(b"next")).await.unwrap();
        assert_eq!(pair.a.sends_outstanding(), 0);
    }));
    assert_eq!(adverb::leaked_bytes(), 0);
}

#[test]
fn what_was_not_polled_or_found_no_room_is_not_posted() {
    runtime().block_on(soon(async {
        let pair = Pair::<Rc>::new();
        let task = Arc::<Count>::default();
        drop(pair.a.send(pair.buf(b"never")));
        // Nobody receives: the queue, of four places, stays full.
        let mut held: Vec<_> = (0..4u8).map(|i| pair.a.send(pair.buf(&[i]))).collect();
        for send in &mut held {
            assert!(task.poll(send).is_pending());
            assert!(send.is_posted());
        }
        let mut fifth = pair.a.send(pair.buf(&[99]));
        assert!(task.poll(&mut fifth).is_pending());
        assert!(!fifth.is_posted());
        drop(fifth);
        for i in 0..4u8 {
            let message = pair.b.recv(pair.pd.alloc_buf(8).unwrap()).await.unwrap();
            assert_eq!(message.payload(), Some(&[i][..]));
        }
        for send in held {
            send.await.unwrap();
        }
        pair.b.post_recv(pair.pd.alloc_buf(8).unwrap()).unwrap();
        pair.a.send(pair.buf(b"last")).await.unwrap();
        let message = pair.b.inbox().next().await.unwrap();
        assert_eq!(message.payload(), Some(&b"last"[..]));
    }));
}

#[test]
fn a_dropped_receive_gives_its_message_to_the_next_receiver() {
    let pair = Pair::<Rc>::of(&|cq| Queue::with(cq, Thread::new));
    pair.b_queue.set_wait(Wait::Event);
    for _ in 0..4 {
        pair.b.post_recv(pair.pd.alloc_buf(8).unwrap()).unwrap();
    }
    let (first, second) = (Arc::<Count>::default(), Arc::<Count>::default());
    let mut one = pair.b.inbox().next();
    let mut two = pair.b.inbox().next();
    assert!(first.poll(&mut one).is_pending());
    assert!(second.poll(&mut two).is_pending());
    block_on(pair.a.send(pair.buf(b"m"))).unwrap();
    // The message is promised to the first, which is dropped before it takes it.
    first.wait();
    assert!(!second.is_woken());
    drop(one);
    assert!(second.is_woken(), "nobody told the second receiver");
    let Poll::Ready(message) = second.poll(&mut two) else {
        panic!("the message is gone");
    };
    assert_eq!(message.unwrap().payload(), Some(&b"m"[..]));

    // A receive that had not been woken leaves nothing behind either.
    let mut three = pair.b.inbox().next();
    assert!(first.poll(&mut three).is_pending());
    drop(three);
    block_on(pair.a.send(pair.buf(b"n"))).unwrap();
    let message = block_on(pair.b.inbox().next()).unwrap();
    assert_eq!(message.payload(), Some(&b"n"[..]));
}

#[test]
fn a_receive_that_times_out_loses_nothing() {
    runtime().block_on(soon(async {
        let pair = Pair::<Rc>::new();
        let moment = Duration::from_millis(2);
        for round in 0..20u8 {
            let waited = pair.b.recv(pair.pd.alloc_buf(8).unwrap());
            assert!(tokio::time::timeout(moment, waited).await.is_err());
            pair.a.send(pair.buf(&[round])).await.unwrap();
            // It was received into the buffer of the receive that is gone.
            tokio::select! {
                message = pair.b.inbox().next() => {
                    assert_eq!(message.unwrap().payload(), Some(&[round][..]));
                }
                () = tokio::time::sleep(super::LONG) => panic!("round {round}"),
            }
        }
    }));
}

#[test]
fn a_driven_queue_is_for_futures_only_and_keeps_what_they_leave() {
    let pair = Pair::<Rc>::of(&|cq| Queue::with(cq, Thread::new));
    let cq = pair.b_queue.cq().clone();
    let mut done = Vec::new();
    assert!(matches!(cq.poll(&mut done), Err(Error::Driven)));
    let waited = cq.wait(&mut done, Wait::Event, Some(Duration::ZERO));
    assert!(matches!(waited, Err(Error::Driven)));
    assert!(matches!(cq.arm(adverb::Notify::Any), Err(Error::Driven)));
    assert!(matches!(cq.take_events(), Err(Error::Driven)));
    assert!(matches!(Queue::new(cq.clone()), Err(Error::Driven)));

    // What was posted without a future is for whoever asks.
    for _ in 0..3 {
        pair.b.post_recv(pair.pd.alloc_buf(8).unwrap()).unwrap();
    }
    let asked = pair.a.post_send(pair.buf(b"x")).unwrap();
    assert_eq!(block_on(pair.a_queue.rest().next()).unwrap().id, asked);
    let left = pair.a.post_send(pair.buf(b"y")).unwrap();
    block_on(pair.a.send(pair.buf(b"z"))).unwrap();
    let cq = pair.a_queue.cq().clone();
    drop(pair.a_queue);
    assert!(matches!(cq.poll(&mut done), Err(Error::Driven)));
    drop(pair.a);
    assert_eq!(cq.poll(&mut done).unwrap(), 1);
    assert_eq!(done[0].id, left);
}

#[test]
fn a_dropped_queue_pair_leaves_its_messages_and_none_of_its_waiters() {
    let pair = Pair::<Rc>::of(&|cq| Queue::with(cq, Thread::new));
    let (a, b) = on_one_queue(&pair.pd, &pair.b_queue);
    b.post_recv(pair.pd.alloc_buf(8).unwrap()).unwrap();
    block_on(a.send(pair.buf(b"kept"))).unwrap();
    let inbox = b.inbox().clone();
    drop(b);
    let message = block_on(inbox.next()).unwrap();
    assert_eq!(message.payload(), Some(&b"kept"[..]));
    // One that is in flight and dropped, then the queue pair: nothing is left that could be waited for.
    let task = Arc::<Count>::default();
    let mut hopeless = a.send(pair.buf(b"nobody"));
    let _ = task.poll(&mut hopeless);
    drop(hopeless);
    assert!(a.close().unwrap().len() <= 1);
    assert_eq!(adverb::leaked_bytes(), 0);
}

/// A task as simple executors have it: it goes with its last waker, and its future with it.
struct Owner(Mutex<Option<Box<dyn Any + Send>>>);

impl Wake for Owner {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn the_last_waker_of_a_task_may_take_its_futures_along() {
    // Where a waker is dropped under the lock that its future takes, the thread waits for itself.
    ends(drop_last_wakers);
}

fn drop_last_wakers() {
    let pair: &'static Pair<Rc> = Box::leak(Box::new(Pair::of(&|cq| Queue::with(cq, Thread::new))));
    pair.a_queue.set_wait(Wait::Event);
    let owner = Arc::new(Owner(Mutex::default()));
    let waker = Waker::from(Arc::clone(&owner));
    let other = Count::default();
    // The future is polled by a task that owns another one, and then by a second task: the first one's waker is the last
    // to hold the other future.
    let mut next = pair.a.inbox().next();
    assert!(
        Pin::new(&mut next)
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    let mut owned = pair.a.inbox().next();
    assert!(
        Pin::new(&mut owned)
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_pending()
    );
    *owner.0.lock().unwrap() = Some(Box::new(owned));
    drop((waker, owner));
    assert!(Arc::new(other).poll(&mut next).is_pending());
    drop(next);
    let mut send = pair.a.send(pair.buf(b"to nobody"));
    let owner = Arc::new(Owner(Mutex::default()));
    let waker = Waker::from(Arc::clone(&owner));
    assert!(
        Pin::new(&mut send)
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    let mut owned = pair.a.inbox().next();
    assert!(
        Pin::new(&mut owned)
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_pending()
    );
    *owner.0.lock().unwrap() = Some(Box::new(owned));
    drop((waker, owner));
    drop(send);
}

#[test]
fn one_that_is_not_polled_any_more_keeps_nobody_from_an_empty_queue() {
    runtime().block_on(soon(async {
        let pair = Pair::<Rc>::new();
        let task = Arc::<Count>::default();
        let mut held: Vec<_> = (0..4u8).map(|i| pair.a.send(pair.buf(&[i]))).collect();
        for send in &mut held {
            assert!(task.poll(send).is_pending());
        }
        // Its turn comes, but it is never polled again.
        let mut idle = pair.a.send(pair.buf(b"idle"));
        assert!(task.poll(&mut idle).is_pending());
        for _ in 0..5 {
            pair.b.post_recv(pair.pd.alloc_buf(8).unwrap()).unwrap();
        }
        pair.a.send(pair.buf(b"on")).await.unwrap();
        assert!(!idle.is_posted());
    }));
}
