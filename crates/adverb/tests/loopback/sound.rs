//! What safe programs may do to queues, buffers and ids without getting wrong bytes, a stuck
//! queue or a panic.

use std::collections::HashSet;
use std::error::Error as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use adverb::transport::{Rc, Ud};
use adverb::{
    AccessFlags, Buffer, Completion, ConnectOptions, Error, GRH_LEN, Limits, Notify, PostFlags,
    QpAttr, QpState, QueuePair, SharedReceiveQueue, Wait, WcError, WcStatus,
};

use crate::{LONG, Pair, completions, context};

fn to(state: QpState) -> QpAttr {
    QpAttr {
        state: Some(state),
        ..QpAttr::default()
    }
}

fn lone_send(pair: &Pair<Rc>, bytes: &[u8]) {
    pair.a
        .post_send(pair.pd.reg_mr(bytes.to_vec()).unwrap())
        .unwrap();
}

#[test]
fn ids_of_two_queues_never_meet() {
    let ctx = context();
    let pd = ctx.alloc_pd().unwrap();
    let mut seen = HashSet::new();
    let mut keep = Vec::new();
    for _ in 0..200 {
        let cq = ctx.create_cq(4).without_channel().build().unwrap();
        let qp = pd
            .create_qp::<Rc>(&cq)
            .max_send_wr(1)
            .max_recv_wr(1)
            .build()
            .unwrap();
        let srq = pd.create_srq(1).unwrap();
        assert!(seen.insert(qp.post_recv(pd.alloc_buf(0).unwrap()).unwrap()));
        assert!(seen.insert(srq.post_recv(pd.alloc_buf(0).unwrap()).unwrap()));
        keep.push((qp, srq));
    }
}

#[test]
fn what_a_forgotten_batch_held_is_never_reported() {
    let mut pair = Pair::<Rc>::new();
    let access = AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE;
    let there = pair.pd.expose_bytes(b"the truth", access).unwrap();
    for _ in 0..40 {
        let mut batch = pair.a.batch();
        let id = batch
            .with(PostFlags::empty())
            .read(pair.pd.reg_mr(*b"nonsense!").unwrap(), there.remote())
            .unwrap();
        std::mem::forget(batch);
        assert_eq!(pair.a.sends_outstanding(), 0);
        let written = pair
            .a
            .post_write(pair.pd.alloc_buf(0).unwrap(), there.remote())
            .unwrap();
        let done = completions(&pair.a_cq, 1);
        assert_eq!(done[0].id, written);
        assert_ne!(done[0].id, id);
    }
    let mut left = pair.a.batch();
    let _ = left
        .with(PostFlags::empty())
        .send(pair.pd.alloc_buf(1).unwrap())
        .unwrap();
    std::mem::forget(left);
    assert!(pair.a.close().unwrap().is_empty());
}

#[test]
fn a_dropped_batch_does_not_hide_how_many_were_unsignaled() {
    let ctx = context();
    let pd = ctx.alloc_pd().unwrap();
    let cq = ctx.create_cq(64).build().unwrap();
    let mut a = pd.create_qp::<Rc>(&cq).max_send_wr(8).build().unwrap();
    let b = pd.create_qp::<Rc>(&cq).build().unwrap();
    a.connect(&b.endpoint()).unwrap();
    b.connect(&a.endpoint()).unwrap();
    let there = pd.expose(64, AccessFlags::REMOTE_WRITE).unwrap();
    for _ in 0..8 {
        let buf = pd.alloc_buf(8).unwrap();
        a.with(PostFlags::UNSIGNALED)
            .write(buf, there.remote())
            .unwrap();
        let mut batch = a.batch();
        // Refused when the queue is full, which is as good.
        let _ = batch
            .with(PostFlags::empty())
            .write(pd.alloc_buf(8).unwrap(), there.remote());
    }
    let mut done = Vec::new();
    assert!(cq.wait(&mut done, Wait::Event, Some(LONG)).unwrap() >= 4);
}

#[test]
fn reset_and_posts_of_another_thread_exclude_each_other() {
    for round in 0..200u32 {
        let pair = Pair::<Rc>::new();
        pair.b.post_recv(pair.pd.alloc_buf(16).unwrap()).unwrap();
        let (reset, accepted) = thread::scope(|scope| {
            let posting = scope.spawn(|| {
                for _ in 0..(round % 97) * 3 {
                    std::hint::spin_loop();
                }
                pair.a.post_send(pair.pd.reg_mr(*b"lost").unwrap()).is_ok()
            });
            let reset = pair.a.modify(&to(QpState::Reset)).is_ok();
            (reset, posting.join().unwrap())
        });
        assert!(
            !(reset && accepted),
            "round {round}: a send was taken, and forgotten"
        );
        if accepted {
            assert!(completions(&pair.a_cq, 1)[0].result.is_ok());
        }
    }
}

/// A connection whose receiving end takes from a shared queue of one receive.
struct Shared {
    pair: Pair<Rc>,
    srq: SharedReceiveQueue,
    q: QueuePair<Rc>,
    p: QueuePair<Rc>,
}

impl Shared {
    fn new(room: usize) -> Self {
        let pair = Pair::<Rc>::new();
        let srq = pair.pd.create_srq(1).unwrap();
        srq.post_recv(pair.pd.alloc_buf(room).unwrap()).unwrap();
        let q = pair.pd.create_qp::<Rc>(&pair.b_cq).srq(&srq);
        let q = q.max_send_wr(4).build().unwrap();
        let p = pair.pd.create_qp::<Rc>(&pair.a_cq).max_recv_wr(0);
        let p = p.build().unwrap();
        q.connect(&p.endpoint()).unwrap();
        p.connect_with(
            &q.endpoint(),
            &ConnectOptions {
                retry_count: 1,
                timeout: 8,
                ..ConnectOptions::default()
            },
        )
        .unwrap();
        Self { pair, srq, q, p }
    }
}

#[test]
fn reset_keeps_what_arrived_through_a_shared_queue() {
    let s = Shared::new(8);
    s.p.post_send(s.pair.pd.reg_mr(*b"arrived!").unwrap())
        .unwrap();
    assert!(completions(&s.pair.a_cq, 1)[0].result.is_ok());
    s.q.modify(&to(QpState::Reset)).unwrap();
    let done = completions(&s.pair.b_cq, 1);
    assert_eq!(done[0].payload().unwrap(), b"arrived!");
    assert_eq!(s.srq.outstanding(), 0);
}

#[test]
fn reset_in_the_middle_of_a_message_gives_the_shared_receive_back() {
    const LEN: usize = 8 << 20;
    for pause in 0..12 {
        let s = Shared::new(LEN);
        let message = s.pair.pd.alloc_buf(LEN).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| s.p.post_send(message).unwrap());
            thread::sleep(Duration::from_micros(pause * 200));
            s.q.modify(&to(QpState::Reset)).unwrap();
        });
        let mut done = Vec::new();
        s.pair.b_cq.poll(&mut done).unwrap();
        // Either nobody took it and it is there for another, or it is over.
        assert_eq!(done.len() as u32 + s.srq.outstanding(), 1);
        if s.srq.outstanding() == 1 {
            s.q.modify(&QpAttr {
                port: Some(1),
                pkey_index: Some(0),
                access: Some(AccessFlags::empty()),
                ..to(QpState::Init)
            })
            .unwrap();
            let p2 = s.pair.pd.create_qp::<Rc>(&s.pair.a_cq);
            let p2 = p2.max_send_wr(1).max_recv_wr(0).build().unwrap();
            s.q.connect(&p2.endpoint()).unwrap();
            p2.connect(&s.q.endpoint()).unwrap();
            p2.post_send(s.pair.pd.reg_mr(*b"next").unwrap()).unwrap();
            let done = completions(&s.pair.b_cq, 1);
            assert_eq!(done[0].payload().unwrap(), b"next");
        }
    }
}

#[test]
fn a_message_that_was_delivered_outlives_its_queue_pair() {
    let pair = Pair::<Rc>::new();
    for _ in 0..2 {
        pair.b.post_recv(pair.pd.alloc_buf(8).unwrap()).unwrap();
    }
    lone_send(&pair, b"unpolled");
    assert!(completions(&pair.a_cq, 1)[0].result.is_ok());
    let Pair { b, b_cq, .. } = pair;
    drop(b);
    let mut done = Vec::new();
    assert_eq!(b_cq.poll(&mut done).unwrap(), 1, "the other was flushed");
    assert_eq!(done[0].payload().unwrap(), b"unpolled");
}

#[test]
fn closing_knows_that_an_unsignaled_operation_is_over() {
    let pair = Pair::<Rc>::new();
    let there = pair.pd.expose(64, AccessFlags::REMOTE_WRITE).unwrap();
    let unsignaled = pair
        .a
        .with(PostFlags::UNSIGNALED)
        .write(pair.pd.reg_mr([8; 8]).unwrap(), there.remote())
        .unwrap();
    let begun = Instant::now();
    while there.load_u8(7, Ordering::Acquire).unwrap() != 8 {
        // Longer than any machine is busy.
        assert!(begun.elapsed() < Duration::from_secs(90), "never written");
        thread::yield_now();
    }
    // The acknowledgement may be on its way still, and nothing says when it has come.
    thread::sleep(Duration::from_millis(500));
    let done = pair.a.close().unwrap();
    assert_eq!(done.len(), 1);
    assert_eq!(done[0].id, unsignaled);
    assert!(done[0].result.is_ok(), "{:?}", done[0].result);
}

#[test]
fn the_advice_for_a_completion_queue_is_enough() {
    let ctx = context();
    let pd = ctx.alloc_pd().unwrap();
    let cq = ctx.create_cq(1).build().unwrap();
    let srq = pd.create_srq(100).unwrap();
    for shared in [false, true] {
        let build = |cq| {
            let builder = pd.create_qp::<Rc>(cq).max_send_wr(900).max_recv_wr(1200);
            if shared {
                builder.srq(&srq).build()
            } else {
                builder.build()
            }
        };
        let Err(Error::CompletionQueueTooSmall {
            needed, reserved, ..
        }) = build(&cq)
        else {
            panic!("one entry is not enough")
        };
        let cq = ctx.create_cq(needed + reserved).build().unwrap();
        build(&cq).unwrap();
    }
}

#[test]
fn the_longest_timeout_is_one() {
    let pair = Pair::<Rc>::new();
    let forever = Some(Duration::MAX);
    pair.a.post_recv(pair.pd.alloc_buf(1).unwrap()).unwrap();
    pair.b.post_recv(pair.pd.alloc_buf(1).unwrap()).unwrap();
    pair.a.abort().unwrap();
    pair.b.abort().unwrap();
    let mut done = Vec::new();
    assert_eq!(pair.a_cq.wait(&mut done, Wait::Event, forever).unwrap(), 1);
    let spin = Wait::Adaptive(Limits {
        most_spin: Some(Duration::MAX),
        ..Limits::default()
    });
    assert_eq!(pair.b_cq.wait(&mut done, spin, forever).unwrap(), 1);
    let soon = Some(Duration::from_millis(1));
    assert_eq!(pair.b_cq.wait(&mut done, spin, soon).unwrap(), 0);

    let ctx = context();
    let channel = ctx.create_channel().unwrap();
    let cq = ctx.create_cq(16).channel(&channel).build().unwrap();
    let pd = ctx.alloc_pd().unwrap();
    let qp = pd.create_qp::<Rc>(&cq).max_send_wr(1).max_recv_wr(1);
    let qp = qp.build().unwrap();
    qp.post_recv(pd.alloc_buf(1).unwrap()).unwrap();
    let _ = cq.arm(Notify::Any).unwrap();
    qp.abort().unwrap();
    assert!(channel.next_event(forever).unwrap().is_some());
}

#[test]
fn without_a_channel_sleeping_fails_whatever_lies_there() {
    let ctx = context();
    let cq = ctx.create_cq(64).without_channel().build().unwrap();
    let pd = ctx.alloc_pd().unwrap();
    let qp = pd.create_qp::<Rc>(&cq).build().unwrap();
    qp.post_recv(pd.alloc_buf(8).unwrap()).unwrap();
    qp.abort().unwrap();
    let mut done = Vec::new();
    for how in [Wait::default(), Wait::Event] {
        let error = cq.wait(&mut done, how, None).unwrap_err();
        assert!(matches!(error, Error::NoChannel), "{error}");
    }
    assert_eq!(cq.wait(&mut done, Wait::Busy, Some(LONG)).unwrap(), 1);
}

#[test]
fn memory_that_cannot_be_had_is_an_error() {
    let pd = context().alloc_pd().unwrap();
    let error = pd.alloc_buf(1 << 50).unwrap_err();
    assert_eq!(
        error.to_string(),
        "1125899906842624 bytes of memory are not to be had"
    );
    assert!(pd.alloc_buf(usize::MAX).is_err());
    assert!(pd.expose(1 << 50, AccessFlags::empty()).is_err());
}

#[test]
fn four_gigabytes_take_a_message() {
    let pair = Pair::<Rc>::new();
    let window = pair.pd.expose(1 << 32, AccessFlags::REMOTE_WRITE).unwrap();
    pair.b.post_recv(window.slice(..).unwrap()).unwrap();
    lone_send(&pair, b"x");
    let received = completions(&pair.b_cq, 1)[0].result.unwrap();
    assert_eq!(received.byte_len, 1);
    assert_eq!(window.load_u8(0, Ordering::Acquire).unwrap(), b'x');
}

#[test]
fn peers_reach_what_was_exposed_and_no_more() {
    for len in [0, 1, 9, 4096] {
        let pair = Pair::<Rc>::new();
        let window = pair.pd.expose(len, AccessFlags::REMOTE_WRITE).unwrap();
        let whole = pair.pd.alloc_buf(len).unwrap();
        pair.a.post_write(whole, window.remote()).unwrap();
        assert!(completions(&pair.a_cq, 1)[0].result.is_ok());
        let mut bytes = window.remote().to_bytes();
        // The length is for our own checks; a peer that lies is stopped by the device.
        bytes[8..16].fill(0x7f);
        let lie = adverb::RemoteRegion::from_bytes(&bytes).unwrap();
        let more = pair.pd.alloc_buf(len + 1).unwrap();
        pair.a.post_write(more, lie).unwrap();
        let error = completions(&pair.a_cq, 1)[0].result.unwrap_err();
        assert_eq!(error.status, WcStatus::REM_ACCESS_ERR, "{len} bytes");
    }
}

#[test]
fn bytes_and_words_of_exposed_memory_may_be_changed_at_once() {
    let memory = context().alloc_pd().unwrap();
    let memory = memory.expose(16, AccessFlags::empty()).unwrap();
    thread::scope(|scope| {
        for at in 0..4usize {
            let memory = &memory;
            scope.spawn(move || {
                for i in 0..20_000u32 {
                    memory.write_at(2 + at * 3, &[i as u8; 3]).unwrap();
                }
            });
        }
    });
    let last = 19_999u32 as u8;
    let mut all = [0; 16];
    memory.read_at(0, &mut all).unwrap();
    assert_eq!(all[..2], [0; 2]);
    assert_eq!(all[2..14], [last; 12], "no store undid another's");
    assert_eq!(all[14..], [0; 2]);
}

#[test]
fn orders_that_make_no_sense_are_errors() {
    let memory = context().alloc_pd().unwrap();
    let memory = memory.expose(64, AccessFlags::empty()).unwrap();
    use Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
    for order in [Relaxed, Acquire, Release, AcqRel, SeqCst] {
        let load = matches!(order, Relaxed | Acquire | SeqCst);
        let store = matches!(order, Relaxed | Release | SeqCst);
        let tried = catch_unwind(AssertUnwindSafe(|| {
            assert_eq!(memory.load_u64(0, order).is_ok(), load);
            assert_eq!(memory.load_u8(1, order).is_ok(), load);
            assert_eq!(memory.store_u64(0, 1, order).is_ok(), store);
            assert_eq!(memory.store_u8(1, 1, order).is_ok(), store);
            memory.fetch_add_u64(8, 1, order).unwrap();
        }));
        tried.unwrap();
    }
}

#[test]
fn a_reused_buffer_is_read_into_whole() {
    let pair = Pair::<Rc>::new();
    let there = pair
        .pd
        .expose_bytes([5; 4096], AccessFlags::REMOTE_READ)
        .unwrap();
    pair.b.post_recv(pair.pd.alloc_buf(4096).unwrap()).unwrap();
    lone_send(&pair, b"abc");
    let buf = completions(&pair.b_cq, 1)
        .pop()
        .unwrap()
        .into_buf()
        .unwrap();
    assert_eq!((buf.len(), buf.capacity()), (3, 4096));
    pair.b.post_read(buf, there.remote()).unwrap();
    let buf = completions(&pair.b_cq, 1)
        .pop()
        .unwrap()
        .into_buf()
        .unwrap();
    assert_eq!(&buf[..], [5; 4096]);
}

#[test]
fn a_datagram_is_no_longer_than_the_path_allows() {
    let ctx = context();
    let pd = ctx.alloc_pd().unwrap();
    let cq = ctx.create_cq(64).build().unwrap();
    let (a, b) = (
        pd.create_qp::<Ud>(&cq).build().unwrap(),
        pd.create_qp::<Ud>(&cq).build().unwrap(),
    );
    a.activate().unwrap();
    b.activate().unwrap();
    let mtu = ctx.query_port(1).unwrap().active_mtu().bytes();
    b.post_recv(pd.alloc_buf(GRH_LEN + mtu).unwrap()).unwrap();
    let there = b.endpoint();
    let ah = pd.create_ah(&a.address_of(&there).unwrap()).unwrap();
    let to = ah.to(there.qpn, there.qkey);
    let refused = a.post_send_to(pd.alloc_buf(mtu + 1).unwrap(), &to);
    let refused = refused.unwrap_err();
    assert_eq!(
        refused.to_string(),
        format!("length of a datagram is {}, the limit is {mtu}", mtu + 1)
    );
    a.post_send_to(refused.into_buf().unwrap().split_off(1), &to)
        .unwrap();
    let done = completions(&cq, 2);
    assert!(done.iter().all(|c| c.result.is_ok()));
    assert!(
        done.iter()
            .any(|c| c.payload().is_some_and(|p| p.len() == mtu))
    );
}

#[test]
fn the_errors_of_operations_pass_through_a_question_mark() {
    fn step(done: Vec<Completion>) -> adverb::Result<Vec<Buffer>> {
        let mut buffers = Vec::new();
        for completion in done {
            completion.result?;
            buffers.extend(completion.buffer);
        }
        Ok(buffers)
    }
    let pair = Pair::<Rc>::new();
    pair.a.post_recv(pair.pd.alloc_buf(8).unwrap()).unwrap();
    pair.a.abort().unwrap();
    let error = step(completions(&pair.a_cq, 1)).unwrap_err();
    assert!(error.to_string().starts_with("WR_FLUSH_ERR"), "{error}");
    let source = error.source().unwrap().downcast_ref::<WcError>().unwrap();
    assert_eq!(source.status, WcStatus::WR_FLUSH_ERR);
    let io = std::io::Error::from(error);
    assert!(io.to_string().starts_with("WR_FLUSH_ERR"), "{io}");
}

#[test]
fn every_error_becomes_ours_then_an_io_error_and_names_its_source() {
    fn refused(pair: &mut Pair<Rc>) -> adverb::Result<()> {
        pair.a.abort()?;
        let mut batch = pair.a.batch();
        batch.with(PostFlags::empty()).send(pair.pd.alloc_buf(8)?)?;
        batch.post()?;
        // Of a port that is not there.
        context().query_port(9)?;
        Ok(())
    }
    fn as_io(pair: &mut Pair<Rc>) -> std::io::Result<()> {
        Ok(refused(pair)?)
    }
    let mut pair = Pair::<Rc>::new();
    let io = as_io(&mut pair).unwrap_err();
    assert_eq!(io.kind(), std::io::ErrorKind::InvalidInput, "{io}");
    let ours = io.get_ref().unwrap().downcast_ref::<Error>().unwrap();
    assert!(
        matches!(
            ours,
            Error::Verb {
                errno: libc::EINVAL,
                ..
            }
        ),
        "{ours:?}"
    );
    let source = ours.source().unwrap().downcast_ref::<std::io::Error>();
    assert_eq!(source.unwrap().raw_os_error(), Some(libc::EINVAL));
}

#[test]
fn limits_and_minimums_read_as_sense() {
    let ctx = context();
    let pd = ctx.alloc_pd().unwrap();
    let cq = ctx.create_cq(64).build().unwrap();
    let error = pd.create_qp::<Rc>(&cq).max_send_wr(0).build().unwrap_err();
    assert_eq!(error.to_string(), "max_send_wr is 0, the least is 1");
}

#[test]
fn a_refused_post_says_why() {
    let ctx = context();
    let pd = ctx.alloc_pd().unwrap();
    let cq = ctx.create_cq(64).build().unwrap();
    let qp = pd.create_qp::<Rc>(&cq).build().unwrap();
    let refused = qp.post_send(pd.alloc_buf(8).unwrap()).unwrap_err();
    assert_eq!(refused.buffer.map(|b| b.into_buf().unwrap().len()), Some(8));
    let text = refused.error.to_string();
    if ctx.device().name().starts_with("adverb") {
        assert!(text.contains("INIT"), "names the state: {text}");
    }
}
