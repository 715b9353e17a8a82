//! Each operation is a future, whoever watches and however it is waited.

use std::sync::atomic::Ordering;

use adverb::aio::{AsyncIo, Queue, Thread, Tokio, block_on};
use adverb::transport::{Rc, Uc, Ud};
use adverb::{AccessFlags, Error, GRH_LEN, Inline, PostFlags, Tagged, Wait, WcStatus};

use super::{Pair, context, runtime, soon};

fn ways() -> [Wait; 3] {
    [Wait::Busy, Wait::Event, Wait::default()]
}

async fn each_operation(pair: &Pair<Rc>) {
    let Pair { pd, a, b, .. } = pair;
    // Messages, into receives that are posted before or by the receiver.
    b.post_recv(pd.alloc_buf(64).unwrap()).unwrap();
    let sent = a.send(pair.buf(b"one")).await.unwrap();
    assert_eq!(&sent.into_buf().unwrap()[..], b"one");
    let message = b.inbox().next().await.unwrap();
    assert_eq!(message.payload(), Some(&b"one"[..]));
    let (sent, message) = tokio::join!(
        a.send_imm(pair.buf(b"two"), 7),
        b.recv(pd.alloc_buf(64).unwrap())
    );
    sent.unwrap();
    let message = message.unwrap();
    assert_eq!(message.payload(), Some(&b"two"[..]));
    assert_eq!(message.result.unwrap().imm, Some(7));
    let (sent, message) = tokio::join!(a.send_inline(b"three"), b.recv(pd.alloc_buf(64).unwrap()));
    sent.unwrap();
    assert_eq!(message.unwrap().payload(), Some(&b"three"[..]));

    // Bytes that are lent to the making of the future only, and a tag.
    let lent = String::from("four");
    let sending = a.send_imm(Tagged(Inline(lent.as_bytes()), 4), 4);
    drop(lent);
    let (sent, message) = tokio::join!(sending, b.recv(Tagged(pd.alloc_buf(8).unwrap(), 5)));
    let message = message.unwrap();
    assert_eq!((sent.unwrap().tag, message.tag), (4, 5));
    assert_eq!(message.payload(), Some(&b"four"[..]));

    // One-sided.
    let memory = pd
        .expose(
            64,
            AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC,
        )
        .unwrap();
    let remote = memory.remote();
    a.write(pair.buf(b"written"), remote).await.unwrap();
    let _ = a
        .write_inline(b"here", remote.slice(8..).unwrap())
        .await
        .unwrap();
    let got = a.read(pd.alloc_buf(12).unwrap(), remote.slice(..12).unwrap());
    assert_eq!(
        &got.await.unwrap().into_buf().unwrap()[..],
        b"written\0here"
    );
    let (written, told) = tokio::join!(
        a.with(PostFlags::FENCE | PostFlags::UNSIGNALED).write_imm(
            pair.buf(b"and told"),
            remote,
            9
        ),
        b.recv(pd.alloc_buf(0).unwrap())
    );
    written.unwrap();
    assert_eq!(told.unwrap().result.unwrap().imm, Some(9));
    memory.store_u64(16, 5, Ordering::SeqCst).unwrap();
    let word = remote.slice(16..24).unwrap();
    let before = a.fetch_add(pd.alloc_buf(8).unwrap(), word, 2).await;
    assert_eq!(before.unwrap().into_buf().unwrap()[..], 5u64.to_ne_bytes());
    let before = a.compare_swap(pd.alloc_buf(8).unwrap(), word, 7, 9).await;
    assert_eq!(before.unwrap().into_buf().unwrap()[..], 7u64.to_ne_bytes());
    assert_eq!(memory.load_u64(16, Ordering::SeqCst).unwrap(), 9);
}

#[test]
fn each_operation_works_under_each_watcher_and_each_way_to_wait() {
    let _guard = runtime();
    let runtime = runtime();
    let _inside = runtime.enter();
    let watchers: [&dyn Fn(adverb::CompletionQueue) -> adverb::Result<Queue>; 4] = [
        &|cq| Queue::new(cq),
        &|cq| Queue::with(cq, Tokio::new),
        &|cq| Queue::with(cq, AsyncIo::new),
        &|cq| Queue::with(cq, Thread::new),
    ];
    for watcher in watchers {
        for way in ways() {
            let pair = Pair::<Rc>::of(watcher);
            pair.a_queue.set_wait(way);
            pair.b_queue.set_wait(way);
            runtime.block_on(async {
                for _ in 0..3 {
                    soon(each_operation(&pair)).await;
                }
            });
        }
    }
    assert_eq!(adverb::leaked_bytes(), 0);
}

#[test]
fn a_program_without_a_runtime_needs_none() {
    let pair = Pair::<Rc>::of(&|cq| Queue::with(cq, Thread::new));
    for way in ways() {
        pair.a_queue.set_wait(way);
        pair.b_queue.set_wait(way);
        block_on(each_operation(&pair));
    }
}

#[test]
fn unreliable_connections_and_datagrams_have_futures_too() {
    runtime().block_on(soon(async {
        let pair = Pair::<Uc>::new();
        pair.b.post_recv(pair.pd.alloc_buf(16).unwrap()).unwrap();
        pair.a.send(pair.buf(b"uc")).await.unwrap();
        let message = pair.b.inbox().next().await.unwrap();
        assert_eq!(message.payload(), Some(&b"uc"[..]));

        let ctx = context();
        let pd = ctx.alloc_pd().unwrap();
        let queue = Queue::new(ctx.create_cq(64).build().unwrap()).unwrap();
        let end = || {
            let qp = pd.create_qp::<Ud>(queue.cq()).build().unwrap();
            qp.activate().unwrap();
            queue.attach(qp).unwrap()
        };
        let (a, b) = (end(), end());
        let ah = pd.create_ah(&a.address_of(&b.endpoint()).unwrap()).unwrap();
        let to = ah.to(b.num(), b.endpoint().qkey);
        b.post_recv(pd.alloc_buf(GRH_LEN + 16).unwrap()).unwrap();
        a.send_to(pd.reg_mr(b"ud".to_vec()).unwrap(), &to)
            .await
            .unwrap();
        let message = b.inbox().next().await.unwrap();
        assert_eq!(message.payload(), Some(&b"ud"[..]));
    }));
}

#[test]
fn more_operations_than_the_queue_holds_wait_for_room_and_keep_their_order() {
    runtime().block_on(soon(async {
        let pair = std::sync::Arc::new(Pair::<Rc>::new());
        for _ in 0..16 {
            pair.b.post_recv(pair.pd.alloc_buf(8).unwrap()).unwrap();
        }
        // The queue has 4 places. All are polled, one after the other, before any is over.
        let receiver = std::sync::Arc::clone(&pair);
        let receiver = tokio::spawn(async move {
            for i in 0..100u64 {
                let message = receiver.b.inbox().next().await.unwrap();
                assert_eq!(message.payload(), Some(&i.to_ne_bytes()[..]));
                receiver.b.post_recv(message.into_buf().unwrap()).unwrap();
            }
        });
        let mut sends: Vec<_> = (0..100u64)
            .map(|i| Some(pair.a.send(pair.buf(&i.to_ne_bytes()))))
            .collect();
        std::future::poll_fn(|cx| {
            for send in &mut sends {
                if let Some(future) = send
                    && let std::task::Poll::Ready(sent) =
                        Future::poll(std::pin::Pin::new(future), cx)
                {
                    sent.unwrap();
                    *send = None;
                }
            }
            match sends.iter().all(Option::is_none) {
                true => std::task::Poll::Ready(()),
                false => std::task::Poll::Pending,
            }
        })
        .await;
        receiver.await.unwrap();
    }));
}

#[test]
fn what_is_refused_or_fails_comes_with_its_reason_and_its_buffer() {
    fn through_a_question_mark(outcome: adverb::aio::Outcome) -> adverb::Result<()> {
        outcome?;
        Ok(())
    }
    runtime().block_on(soon(async {
        let pair = Pair::<Rc>::new();
        // Refused: longer than the peer's region.
        let remote = pair.pd.expose(4, AccessFlags::REMOTE_WRITE).unwrap();
        let refused = pair.a.write(pair.buf(b"12345"), remote.remote()).await;
        let refused = refused.unwrap_err();
        assert!(matches!(refused.error, Error::OutOfRange { .. }));
        assert_eq!(&refused.into_buf().unwrap()[..], b"12345");
        let long = pair.a.send_inline(&[0; 4096]).await;
        assert!(matches!(
            long.unwrap_err().error,
            Error::InlineTooLong { .. }
        ));
        // Failed: a key that opens nothing.
        let mut wrong = remote.remote();
        wrong.rkey.0 ^= 0x55;
        let failed = pair.a.write(pair.buf(b"1234"), wrong).await.unwrap_err();
        let Error::Completion(error) = &failed.error else {
            panic!("{failed:?}");
        };
        assert_eq!(error.status, WcStatus::REM_ACCESS_ERR);
        assert_eq!(failed.buffer.as_ref().unwrap().bytes(), Some(&b"1234"[..]));
        // Flushed: the queue pair is in the error state now.
        let flushed = pair.a.recv(pair.pd.alloc_buf(8).unwrap()).await;
        let error = through_a_question_mark(flushed).unwrap_err();
        assert!(matches!(error, Error::Completion(e) if e.status == WcStatus::WR_FLUSH_ERR));
    }));
}

#[test]
fn events_of_device_and_channel_are_futures() {
    runtime().block_on(soon(async {
        let ctx = context();
        let pd = ctx.alloc_pd().unwrap();
        let events = adverb::aio::Events::new(&ctx).unwrap();
        let cq = ctx.create_cq(64).build().unwrap();
        let [a, b] = [(); 2].map(|()| pd.create_qp::<Rc>(&cq).build().unwrap());
        a.connect(&b.endpoint()).unwrap();
        b.connect(&a.endpoint()).unwrap();
        let overstep = async {
            tokio::task::yield_now().await;
            let read_only = pd.expose(8, AccessFlags::REMOTE_READ).unwrap();
            a.post_write(pd.alloc_buf(8).unwrap(), read_only.remote())
                .unwrap();
        };
        let (event, ()) = tokio::join!(events.next(), overstep);
        let event = event.unwrap();
        assert_eq!(event.kind, adverb::AsyncEventKind::QP_ACCESS_ERR);
        assert_eq!(event.source, adverb::EventSource::QueuePair(b.num()));

        let channel = ctx.create_channel().unwrap();
        let cq = ctx.create_cq(8).channel(&channel).build().unwrap();
        let queues = adverb::aio::Channel::new(&channel).unwrap();
        let (a, b) = (
            pd.create_qp::<Rc>(&cq)
                .max_recv_wr(1)
                .max_send_wr(1)
                .build()
                .unwrap(),
            pd.create_qp::<Rc>(&cq)
                .max_recv_wr(1)
                .max_send_wr(1)
                .build()
                .unwrap(),
        );
        a.connect(&b.endpoint()).unwrap();
        b.connect(&a.endpoint()).unwrap();
        b.post_recv(pd.alloc_buf(8).unwrap()).unwrap();
        let _armed = cq.arm(adverb::Notify::Any).unwrap();
        let send = async {
            tokio::task::yield_now().await;
            a.post_send(pd.alloc_buf(8).unwrap()).unwrap();
        };
        let (who, ()) = tokio::join!(queues.next(), send);
        assert_eq!(who.unwrap().handle(), cq.handle());
    }));
}
