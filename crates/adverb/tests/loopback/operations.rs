//! Sends, writes, reads and atomics on connections.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use adverb::transport::{Rc, Uc};
use adverb::{AccessFlags, Buffer, Error, OpKind, PostFlags, WcStatus, ffi};

use crate::{Pair, completions, context, pattern, success};

#[test]
fn messages_of_every_size_arrive_as_they_were() {
    let pair = Pair::<Rc>::new();
    for size in [0, 1, 7, 8, 4095, 4096, 4097, 1 << 20] {
        let bytes = pattern(size);
        let recv = pair
            .b
            .post_recv(pair.pd.alloc_buf(size.max(8)).unwrap())
            .unwrap();
        let send = pair
            .a
            .post_send(pair.pd.reg_mr(bytes.clone()).unwrap())
            .unwrap();
        let sent = success(&pair.a_cq, send);
        assert_eq!((sent.kind, sent.qp_num), (OpKind::Send, pair.a.num()));
        let received = success(&pair.b_cq, recv);
        assert_eq!(
            (received.kind, received.qp_num),
            (OpKind::Recv, pair.b.num())
        );
        assert_eq!(received.result.unwrap().byte_len as usize, size);
        assert!(received.payload().unwrap() == bytes, "{size} bytes differ");
        assert_eq!(received.into_buf().unwrap().len(), size);
    }
}

#[test]
fn immediate_data_arrives_as_the_number_that_was_sent() {
    let pair = Pair::<Rc>::new();
    let recv = pair.b.post_recv(pair.pd.alloc_buf(8).unwrap()).unwrap();
    let send = pair
        .a
        .post_send_imm(pair.pd.alloc_buf(8).unwrap(), 0x0102_0304)
        .unwrap();
    success(&pair.a_cq, send).ok().unwrap();
    let info = success(&pair.b_cq, recv).result.unwrap();
    assert_eq!(info.imm, Some(0x0102_0304));
    assert!(!info.by_write);
}

#[test]
fn inline_messages_need_no_registered_memory() {
    let pair = Pair::<Rc>::new();
    assert!(pair.a.max_inline() >= 32);
    let recv = pair.b.post_recv(pair.pd.alloc_buf(64).unwrap()).unwrap();
    let send = pair.a.post_send_inline(b"short").unwrap();
    assert!(success(&pair.a_cq, send).buffer.is_none());
    assert_eq!(success(&pair.b_cq, recv).payload().unwrap(), b"short");

    let window = pair.pd.expose(16, AccessFlags::REMOTE_WRITE).unwrap();
    let write = pair
        .a
        .post_write_inline(b"12345678", window.remote())
        .unwrap();
    success(&pair.a_cq, write).ok().unwrap();
    let mut seen = [0; 8];
    window.read_at(0, &mut seen).unwrap();
    assert_eq!(&seen, b"12345678");

    let too_long = vec![0; pair.a.max_inline() as usize + 1];
    assert!(matches!(
        pair.a.post_send_inline(&too_long),
        Err(Error::InlineTooLong { .. })
    ));
}

#[test]
fn writes_land_where_the_descriptor_says() {
    let pair = Pair::<Rc>::new();
    let window = pair.pd.expose(10_000, AccessFlags::REMOTE_WRITE).unwrap();
    let bytes = pattern(5000);
    let to = window.remote().slice(1234..).unwrap();
    let write = pair
        .a
        .post_write(pair.pd.reg_mr(bytes.clone()).unwrap(), to)
        .unwrap();
    success(&pair.a_cq, write).ok().unwrap();
    let mut seen = vec![1; 10_000];
    window.read_at(0, &mut seen).unwrap();
    assert!(seen[1234..6234] == bytes && seen[..1234].iter().chain(&seen[6234..]).all(|b| *b == 0));
}

#[test]
fn a_write_with_immediate_uses_up_a_receive_and_leaves_its_buffer_alone() {
    let pair = Pair::<Rc>::new();
    let window = pair.pd.expose(64, AccessFlags::REMOTE_WRITE).unwrap();
    let mut untouched = pair.pd.alloc_buf(16).unwrap();
    untouched.fill(9);
    let recv = pair.b.post_recv(untouched).unwrap();
    let source = pair.pd.reg_mr(pattern(64)).unwrap();
    let write = pair.a.post_write_imm(source, window.remote(), 77).unwrap();
    success(&pair.a_cq, write).ok().unwrap();
    let told = success(&pair.b_cq, recv);
    let info = told.result.unwrap();
    assert_eq!(
        (info.imm, info.byte_len, info.by_write),
        (Some(77), 64, true)
    );
    let mut buf = told.into_buf().unwrap();
    assert_eq!(buf.len(), 0);
    buf.set_len(16).unwrap();
    assert_eq!(&buf[..], [9; 16]);
}

#[test]
fn reads_fetch_all_of_the_region_they_name() {
    let pair = Pair::<Rc>::new();
    let bytes = pattern(9000);
    let window = pair
        .pd
        .expose_bytes(bytes.clone(), AccessFlags::REMOTE_READ)
        .unwrap();
    let from = window.remote().slice(1000..7000).unwrap();
    let read = pair
        .a
        .post_read(pair.pd.alloc_buf(6000).unwrap(), from)
        .unwrap();
    let done = success(&pair.a_cq, read);
    assert_eq!(done.result.as_ref().unwrap().byte_len, 6000);
    assert!(done.into_buf().unwrap()[..] == bytes[1000..7000]);
}

#[test]
fn atomics_return_what_was_there() {
    let pair = Pair::<Rc>::new();
    let counter = pair.pd.expose(16, AccessFlags::REMOTE_ATOMIC).unwrap();
    counter.store_u64(8, 40, Ordering::SeqCst).unwrap();
    let word = counter.remote().slice(8..16).unwrap();
    let before = |id| {
        let buf = success(&pair.a_cq, id).into_buf().unwrap();
        u64::from_ne_bytes(buf[..8].try_into().unwrap())
    };
    let result = || pair.pd.alloc_buf(8).unwrap();
    assert_eq!(
        before(pair.a.post_fetch_add(result(), word, 2).unwrap()),
        40
    );
    assert_eq!(
        before(pair.a.post_compare_swap(result(), word, 1, 99).unwrap()),
        42
    );
    assert_eq!(
        before(pair.a.post_compare_swap(result(), word, 42, 7).unwrap()),
        42
    );
    assert_eq!(counter.load_u64(8, Ordering::Acquire).unwrap(), 7);
    assert_eq!(counter.load_u64(0, Ordering::Acquire).unwrap(), 0);

    let rejected = pair
        .a
        .post_fetch_add(result(), counter.remote().slice(4..12).unwrap(), 1);
    assert!(matches!(
        rejected.unwrap_err().error,
        Error::Misaligned { .. }
    ));
}

#[test]
fn exposed_memory_can_be_source_and_target() {
    let pair = Pair::<Rc>::new();
    let from = pair
        .pd
        .expose_bytes(pattern(300), AccessFlags::REMOTE_READ)
        .unwrap();
    let into = pair.pd.expose(300, AccessFlags::REMOTE_WRITE).unwrap();
    let recv = pair.b.post_recv(into.slice(100..).unwrap()).unwrap();
    let send = pair.a.post_send(from.slice(..50).unwrap()).unwrap();
    assert!(matches!(
        success(&pair.a_cq, send).buffer,
        Some(Buffer::Exposed(_))
    ));
    success(&pair.b_cq, recv).ok().unwrap();
    let mut seen = [0; 50];
    into.read_at(100, &mut seen).unwrap();
    assert!(seen[..] == pattern(300)[..50]);
}

#[test]
fn one_shared_buffer_serves_several_sends_at_once() {
    let pair = Pair::<Rc>::new();
    let shared = Arc::new(pair.pd.reg_mr(b"to everybody".to_vec()).unwrap());
    for _ in 0..4 {
        pair.b.post_recv(pair.pd.alloc_buf(32).unwrap()).unwrap();
    }
    for _ in 0..4 {
        pair.a.post_send(Arc::clone(&shared)).unwrap();
    }
    assert!(
        completions(&pair.b_cq, 4)
            .iter()
            .all(|c| c.payload() == Some(b"to everybody"))
    );
    drop(completions(&pair.a_cq, 4));
    assert_eq!(Arc::strong_count(&shared), 1);
}

#[test]
fn the_parts_of_a_buffer_travel_on_their_own() {
    let pair = Pair::<Rc>::new();
    let mut whole = pair.pd.reg_mr(pattern(100)).unwrap();
    let tail = whole.split_off(60);
    pair.b.post_recv(pair.pd.alloc_buf(100).unwrap()).unwrap();
    pair.b.post_recv(pair.pd.alloc_buf(100).unwrap()).unwrap();
    pair.a.post_send(tail).unwrap();
    pair.a.post_send(whole).unwrap();
    let mut sent = completions(&pair.a_cq, 2);
    let mut whole = sent.pop().unwrap().into_buf().unwrap();
    whole
        .unsplit(sent.pop().unwrap().into_buf().unwrap())
        .unwrap();
    assert!(whole[..] == pattern(100));
    let received = completions(&pair.b_cq, 2);
    assert!(received[0].payload().unwrap() == &pattern(100)[60..]);
    assert!(received[1].payload().unwrap() == &pattern(100)[..60]);
}

#[test]
fn unsignaled_operations_end_with_the_next_signaled_one_in_order() {
    let pair = Pair::<Rc>::new();
    let window = pair.pd.expose(64, AccessFlags::REMOTE_WRITE).unwrap();
    let post = |flags, byte: u8| {
        let source = pair.pd.reg_mr(vec![byte; 8]).unwrap();
        pair.a.with(flags).write(source, window.remote()).unwrap()
    };
    let ids: Vec<_> = (0..3).map(|i| post(PostFlags::UNSIGNALED, i)).collect();
    let last = post(PostFlags::empty(), 3);
    let done = completions(&pair.a_cq, 4);
    assert_eq!(
        done.iter().map(|c| c.id).collect::<Vec<_>>(),
        [&ids[..], &[last]].concat()
    );
    for (i, c) in done.into_iter().enumerate() {
        assert_eq!(c.into_buf().unwrap()[0], i as u8);
    }
    assert_eq!(pair.a.sends_outstanding(), 0);
}

#[test]
fn a_queue_of_nothing_but_unsignaled_operations_never_sticks() {
    let pair = Pair::<Rc>::new();
    let window = pair.pd.expose(8, AccessFlags::REMOTE_WRITE).unwrap();
    let mut done = Vec::new();
    let mut source = pair.pd.alloc_buf(8).unwrap();
    for _ in 0..100 {
        loop {
            match pair
                .a
                .with(PostFlags::UNSIGNALED)
                .write(source, window.remote())
            {
                Ok(_) => break,
                Err(refused) => {
                    assert!(refused.is_would_block(), "{refused}");
                    source = refused.into_buf().unwrap();
                    assert!(
                        pair.a_cq
                            .wait(&mut done, Default::default(), Some(crate::LONG))
                            .unwrap()
                            > 0
                    );
                }
            }
        }
        source = pair.pd.alloc_buf(8).unwrap();
    }
    assert!(done.iter().all(|c| c.result.is_ok()));
}

#[test]
fn a_full_queue_gives_the_buffer_back() {
    let pair = Pair::<Rc>::new();
    for _ in 0..16 {
        pair.b.post_recv(pair.pd.alloc_buf(8).unwrap()).unwrap();
    }
    let mut marked = pair.pd.alloc_buf(8).unwrap();
    marked.fill(5);
    let refused = pair.b.post_recv(marked).unwrap_err();
    assert!(
        matches!(
            refused.error,
            Error::QueueFull {
                queue: "receive",
                capacity: 16
            }
        ),
        "{refused}"
    );
    assert_eq!(&refused.into_buf().unwrap()[..], [5; 8]);
    assert_eq!(pair.b.recvs_outstanding(), 16);
}

#[test]
fn a_batch_is_posted_whole_and_a_dropped_one_not_at_all() {
    let mut pair = Pair::<Rc>::new();
    for _ in 0..8 {
        pair.b.post_recv(pair.pd.alloc_buf(8).unwrap()).unwrap();
    }
    let mut batch = pair.a.batch();
    batch
        .with(PostFlags::empty())
        .send(pair.pd.alloc_buf(8).unwrap())
        .unwrap();
    drop(batch);
    assert_eq!(pair.a.sends_outstanding(), 0);

    let mut batch = pair.a.batch();
    assert!(batch.is_empty());
    let mut ids = Vec::new();
    for i in 0..8u8 {
        let flags = if i == 7 {
            PostFlags::empty()
        } else {
            PostFlags::UNSIGNALED
        };
        ids.push(
            batch
                .with(flags)
                .send(pair.pd.reg_mr(vec![i; 8]).unwrap())
                .unwrap(),
        );
    }
    assert_eq!(batch.len(), 8);
    assert_eq!(batch.post().unwrap(), 8);
    let received = completions(&pair.b_cq, 8);
    assert!(
        received
            .iter()
            .enumerate()
            .all(|(i, c)| c.payload() == Some(&[i as u8; 8]))
    );
    let sent = completions(&pair.a_cq, 8);
    assert_eq!(sent.iter().map(|c| c.id).collect::<Vec<_>>(), ids);
}

#[test]
fn a_forgotten_batch_is_never_posted() {
    let mut pair = Pair::<Rc>::new();
    let mut batch = pair.a.batch();
    batch
        .with(PostFlags::empty())
        .send(pair.pd.reg_mr(b"forgotten".to_vec()).unwrap())
        .unwrap();
    std::mem::forget(batch);
    pair.b.post_recv(pair.pd.alloc_buf(16).unwrap()).unwrap();
    let mut batch = pair.a.batch();
    assert!(batch.is_empty());
    let sent = batch
        .with(PostFlags::empty())
        .send(pair.pd.reg_mr(b"meant".to_vec()).unwrap())
        .unwrap();
    assert_eq!(batch.post().unwrap(), 1);
    assert_eq!(completions(&pair.a_cq, 1)[0].id, sent);
    assert_eq!(completions(&pair.b_cq, 1)[0].payload(), Some(&b"meant"[..]));
}

#[test]
fn a_batch_that_the_device_refuses_gives_its_buffers_back() {
    let ctx = context();
    let pd = ctx.alloc_pd().unwrap();
    let cq = ctx.create_cq(32).build().unwrap();
    let mut unconnected = pd.create_qp::<Rc>(&cq).build().unwrap();
    let mut batch = unconnected.batch();
    for i in 0..3u8 {
        batch
            .with(PostFlags::empty())
            .send(pd.reg_mr(vec![i; 8]).unwrap())
            .unwrap();
    }
    let refused = batch.post().unwrap_err();
    assert_eq!(refused.accepted, 0, "{refused}");
    let firsts: Vec<_> = refused
        .buffers
        .into_iter()
        .map(|b| b.into_buf().unwrap()[0])
        .collect();
    assert_eq!(firsts, [0, 1, 2]);
    assert_eq!(unconnected.sends_outstanding(), 0);
}

#[test]
fn posting_in_the_wrong_state_gives_the_buffer_back() {
    let ctx = context();
    let pd = ctx.alloc_pd().unwrap();
    let cq = ctx.create_cq(32).build().unwrap();
    let qp = pd.create_qp::<Rc>(&cq).build().unwrap();
    let refused = qp
        .post_send(pd.reg_mr(b"early".to_vec()).unwrap())
        .unwrap_err();
    assert!(
        matches!(
            refused.error,
            Error::Verb {
                verb: "ibv_post_send",
                ..
            }
        ),
        "{refused}"
    );
    assert_eq!(&refused.into_buf().unwrap()[..], b"early");
    assert_eq!(qp.sends_outstanding(), 0);
}

#[test]
fn memory_of_another_domain_is_refused_at_once() {
    let pair = Pair::<Rc>::new();
    let other = context().alloc_pd().unwrap();
    let refused = pair.a.post_send(other.alloc_buf(8).unwrap()).unwrap_err();
    assert!(matches!(refused.error, Error::Foreign { .. }), "{refused}");
    assert!(pair.b.post_recv(other.alloc_buf(8).unwrap()).is_err());
}

#[test]
fn forbidden_and_outdated_remote_memory_is_an_error_completion() {
    let pair = Pair::<Rc>::new();
    let read_only = pair.pd.expose(64, AccessFlags::REMOTE_READ).unwrap();
    let write = pair
        .a
        .post_write(pair.pd.alloc_buf(8).unwrap(), read_only.remote())
        .unwrap();
    let done = completions(&pair.a_cq, 1).pop().unwrap();
    assert_eq!(done.id, write);
    let error = done.result.unwrap_err();
    assert_eq!(error.status, WcStatus::REM_ACCESS_ERR);
    assert!(error.to_string().contains("remote key"), "{error}");
    assert!(done.buffer.is_some());
    assert_eq!(pair.a.state().unwrap(), adverb::QpState::Error);

    let pair = Pair::<Rc>::new();
    let gone = pair
        .pd
        .expose(64, AccessFlags::REMOTE_WRITE)
        .unwrap()
        .remote();
    pair.a
        .post_write(pair.pd.alloc_buf(8).unwrap(), gone)
        .unwrap();
    let error = completions(&pair.a_cq, 1)
        .pop()
        .unwrap()
        .result
        .unwrap_err();
    assert_eq!(error.status, WcStatus::REM_ACCESS_ERR);
}

#[test]
fn a_message_longer_than_the_receive_fails_on_both_sides() {
    let pair = Pair::<Rc>::new();
    pair.b.post_recv(pair.pd.alloc_buf(8).unwrap()).unwrap();
    pair.a.post_send(pair.pd.alloc_buf(9).unwrap()).unwrap();
    let status = |cq| completions(cq, 1).pop().unwrap().result.unwrap_err().status;
    assert_eq!(status(&pair.a_cq), WcStatus::REM_INV_REQ_ERR);
    assert_eq!(status(&pair.b_cq), WcStatus::LOC_LEN_ERR);
}

#[test]
fn remote_ranges_are_checked_before_anything_is_posted() {
    let pair = Pair::<Rc>::new();
    let window = pair
        .pd
        .expose(64, AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ)
        .unwrap();
    let refused = pair
        .a
        .post_write(pair.pd.alloc_buf(65).unwrap(), window.remote())
        .unwrap_err();
    assert!(
        matches!(refused.error, Error::OutOfRange { .. }),
        "{refused}"
    );
    assert!(
        pair.a
            .post_read(pair.pd.alloc_buf(63).unwrap(), window.remote())
            .is_err()
    );
    assert_eq!(pair.a.sends_outstanding(), 0);
}

#[test]
fn a_raw_request_gathers_several_pieces() {
    use ffi::types::{self as c, Zeroed};
    let ctx = context();
    let pd = ctx.alloc_pd().unwrap();
    let cq = ctx.create_cq(64).build().unwrap();
    let a = pd.create_qp::<Rc>(&cq).max_send_sge(2).build().unwrap();
    let b = pd.create_qp::<Rc>(&cq).build().unwrap();
    a.connect(&b.endpoint()).unwrap();
    b.connect(&a.endpoint()).unwrap();
    b.post_recv(pd.alloc_buf(16).unwrap()).unwrap();
    let words = pd.reg_mr(b"verb--ad".to_vec()).unwrap();
    let (base, lkey) = (words.as_ptr() as u64, words.region().lkey().0);
    let mut pieces = [(6, 2), (0, 4)].map(|(at, length)| c::ibv_sge {
        addr: base + at,
        length,
        lkey,
    });
    let mut wr = c::ibv_send_wr::zeroed();
    wr.opcode = c::IBV_WR_SEND;
    wr.sg_list = pieces.as_mut_ptr();
    wr.num_sge = 2;
    // SAFETY: `words` outlives the completion, which is awaited below.
    let id = unsafe { a.post_raw(&wr) }.unwrap();
    let done = completions(&cq, 2);
    assert!(
        done.iter()
            .any(|c| c.id == id && c.kind == OpKind::Raw && c.result.is_ok())
    );
    assert!(done.iter().any(|c| c.payload() == Some(b"adverb")));
    drop(words);
}

#[test]
fn invalidating_sends_close_the_key() {
    let pair = Pair::<Rc>::new();
    let recv = pair.b.post_recv(pair.pd.alloc_buf(8).unwrap()).unwrap();
    let window = pair.pd.expose(64, AccessFlags::REMOTE_WRITE).unwrap();
    let key = window.remote().rkey;
    let send = pair
        .a
        .with(PostFlags::empty())
        .send_invalidate(pair.pd.alloc_buf(8).unwrap(), key);
    // Only windows and fast registrations may be invalidated, and a device may say so with an
    // error on either side; what must not happen is that the key works afterwards by luck.
    send.unwrap();
    let sent = completions(&pair.a_cq, 1).pop().unwrap();
    let told = completions(&pair.b_cq, 1).pop().unwrap();
    assert_eq!(told.id, recv);
    if let Ok(info) = &told.result {
        assert!(sent.result.is_ok());
        assert_eq!(info.invalidated, Some(key));
        pair.a
            .post_write(pair.pd.alloc_buf(8).unwrap(), window.remote())
            .unwrap();
        assert!(completions(&pair.a_cq, 1).pop().unwrap().result.is_err());
    }
}

#[test]
fn unreliable_connections_send_and_write() {
    let pair = Pair::<Uc>::new();
    let recv = pair
        .b
        .post_recv(pair.pd.alloc_buf(10_000).unwrap())
        .unwrap();
    let send = pair
        .a
        .post_send(pair.pd.reg_mr(pattern(9000)).unwrap())
        .unwrap();
    success(&pair.a_cq, send).ok().unwrap();
    assert!(success(&pair.b_cq, recv).payload().unwrap() == pattern(9000));

    let window = pair.pd.expose(64, AccessFlags::REMOTE_WRITE).unwrap();
    let recv = pair.b.post_recv(pair.pd.alloc_buf(8).unwrap()).unwrap();
    let source = pair.pd.reg_mr(pattern(64)).unwrap();
    let write = pair.a.post_write_imm(source, window.remote(), 3).unwrap();
    success(&pair.a_cq, write).ok().unwrap();
    assert_eq!(success(&pair.b_cq, recv).result.unwrap().imm, Some(3));
    let mut seen = [0; 64];
    window.read_at(0, &mut seen).unwrap();
    assert!(seen[..] == pattern(64));
}

#[test]
fn a_refused_verb_says_what_the_device_says() {
    if std::env::var_os("ADVERB_TEST_DEVICE").is_some() {
        // Only the software device has words.
        return;
    }
    let refused = context().create_cq(16).comp_vector(1000).build();
    let text = refused.err().map(|error| error.to_string());
    let text = text.expect("there are not as many vectors");
    assert!(text.contains("comp_vector is 1000, the limit is"), "{text}");
}
