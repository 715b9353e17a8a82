//! Runtimes come and go; queues outlive them.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use adverb::Wait;
use adverb::aio::{Queue, block_on};
use adverb::transport::Rc;

use super::{Count, Pair, runtime, soon};

#[test]
fn a_runtime_that_is_shut_down_in_the_middle_loses_nothing() {
    let first = runtime();
    let pair = Arc::new(first.block_on(async { Pair::<Rc>::new() }));
    pair.a_queue.set_wait(Wait::Event);
    pair.b_queue.set_wait(Wait::Event);
    for _ in 0..4 {
        pair.b.post_recv(pair.pd.alloc_buf(8).unwrap()).unwrap();
    }
    // Tasks in the middle of a receive and of a send that has no receive to go to.
    for i in 0..4u8 {
        let theirs = Arc::clone(&pair);
        first.spawn(async move {
            let _ = theirs.a.recv(theirs.pd.alloc_buf(8).unwrap()).await;
        });
        let theirs = Arc::clone(&pair);
        first
            .block_on(soon(async move { theirs.a.send(theirs.buf(&[i])).await }))
            .unwrap();
    }
    // A future that does not live in the runtime, though its wake-up does.
    let task = Arc::<Count>::default();
    let mut outside = pair.a.inbox().next();
    assert!(task.poll(&mut outside).is_pending());
    first.shutdown_timeout(Duration::from_secs(5));

    // What had arrived is there, without a runtime.
    for i in 0..4u8 {
        let message = block_on(pair.b.inbox().next()).unwrap();
        assert_eq!(message.payload(), Some(&[i][..]));
    }
    // New messages are noticed, too: by the thread, since the reactor is gone.
    pair.a.post_recv(pair.pd.alloc_buf(8).unwrap()).unwrap();
    block_on(pair.b.send(pair.buf(b"after"))).unwrap();
    task.wait();
    let Poll::Ready(message) = task.poll(&mut outside) else {
        panic!("the message is not for the future that waits");
    };
    assert_eq!(message.unwrap().payload(), Some(&b"after"[..]));
    drop(outside);

    // And another runtime can go on with it.
    runtime().block_on(soon(async {
        pair.b.post_recv(pair.pd.alloc_buf(8).unwrap()).unwrap();
        pair.a.send(pair.buf(b"again")).await.unwrap();
        let message = pair.b.inbox().next().await.unwrap();
        assert_eq!(message.payload(), Some(&b"again"[..]));
    }));
    drop(pair);
    assert_eq!(adverb::leaked_bytes(), 0);
}

#[test]
fn futures_may_move_between_threads_and_runtimes() {
    fn assert_send<T: Send>(t: T) -> T {
        t
    }
    let pair = Arc::new(Pair::<Rc>::of(&|cq| Queue::new(cq)));
    let theirs = Arc::clone(&pair);
    let receiver = std::thread::spawn(move || {
        block_on(assert_send(async {
            let mut sum = 0u64;
            for _ in 0..200 {
                let message = theirs
                    .b
                    .recv(theirs.pd.alloc_buf(8).unwrap())
                    .await
                    .unwrap();
                sum += u64::from(message.payload().unwrap()[0]);
            }
            sum
        }))
    });
    let mut sum = 0;
    for i in 0..200u8 {
        let send = assert_send(pair.a.send(pair.buf(&[i])));
        block_on(send).unwrap();
        sum += u64::from(i);
    }
    assert_eq!(receiver.join().unwrap(), sum);
}
