//! Lists of pieces, inline bytes, tags, and receives that are posted together.

use std::iter;
use std::sync::Arc;

use adverb::transport::{Rc, Transport, Ud};
use adverb::{
    AccessFlags, Buf, Buffer, CompletionQueue, Error, GRH_LEN, Inline, PostFlags, ProtectionDomain,
    QueuePair, Tagged,
};

use crate::{completions, context, pattern};

/// Two queue pairs with room for lists of `PIECES`.
struct Ends<T: Transport> {
    pd: ProtectionDomain,
    a: QueuePair<T>,
    b: QueuePair<T>,
    a_cq: CompletionQueue,
    b_cq: CompletionQueue,
}

const PIECES: u32 = 4;

fn ends<T: Transport>() -> Ends<T> {
    let ctx = context();
    let pd = ctx.alloc_pd().unwrap();
    let a_cq = ctx.create_cq(256).build().unwrap();
    let b_cq = ctx.create_cq(256).build().unwrap();
    let make = |cq| {
        pd.create_qp::<T>(cq)
            .max_send_sge(PIECES)
            .max_recv_sge(PIECES)
            .max_send_wr(100)
            .max_recv_wr(100)
            .max_inline(32)
            .build()
            .unwrap()
    };
    let (a, b) = (make(&a_cq), make(&b_cq));
    Ends {
        pd,
        a,
        b,
        a_cq,
        b_cq,
    }
}

fn connected() -> Ends<Rc> {
    let ends = ends::<Rc>();
    ends.a.connect(&ends.b.endpoint()).unwrap();
    ends.b.connect(&ends.a.endpoint()).unwrap();
    ends
}

impl<T: Transport> Ends<T> {
    fn bufs(&self, sizes: &[usize]) -> Vec<Buf> {
        let buf = |size: &usize| self.pd.alloc_buf(*size).unwrap();
        sizes.iter().map(buf).collect()
    }
}

fn bytes(buffer: &Buffer) -> Vec<u8> {
    let pieces = buffer.pieces().iter();
    pieces.flat_map(|p| p.bytes().unwrap()).copied().collect()
}

fn lens(buffer: &Buffer) -> Vec<usize> {
    let pieces = buffer.pieces().iter();
    pieces.map(|p| p.bytes().unwrap().len()).collect()
}

#[test]
fn pieces_make_one_message_and_are_filled_in_order() {
    let ends = connected();
    let message = pattern(9000);
    let (head, rest) = message.split_at(3);
    let (middle, tail) = rest.split_at(5000);
    // One of its own, one that is shared, an empty one, and one that peers reach.
    let shared = Arc::new(ends.pd.reg_mr(middle.to_vec()).unwrap());
    let exposed = ends.pd.expose_bytes(tail, AccessFlags::empty()).unwrap();
    let source: Vec<Buffer> = vec![
        ends.pd.reg_mr(head.to_vec()).unwrap().into(),
        Arc::clone(&shared).into(),
        ends.pd.alloc_buf(0).unwrap().into(),
        exposed.slice(..).unwrap().into(),
    ];
    let sizes = [4096, 1, 10_000, 64];
    ends.b
        .post_recv(Tagged(ends.bufs(&sizes), u64::MAX))
        .unwrap();
    ends.a.post_send(Tagged(source, 7)).unwrap();
    let sent = completions(&ends.a_cq, 1).pop().unwrap();
    assert_eq!((sent.tag, sent.result.is_ok()), (7, true));
    let source = sent.buffer.unwrap();
    assert_eq!(source.pieces().len(), 4);
    let received = completions(&ends.b_cq, 1).pop().unwrap();
    assert_eq!(received.tag, u64::MAX);
    assert_eq!(received.result.unwrap().byte_len, 9000);
    let target = received.buffer.unwrap();
    assert_eq!(lens(&target), [4096, 1, 4903, 0]);
    assert!(bytes(&target) == message);

    // What came back is posted again, whole: a list is a target with all of its room.
    ends.b.post_recv(target.into_pieces()).unwrap();
    ends.a.post_send(source).unwrap();
    assert!(completions(&ends.a_cq, 1)[0].result.is_ok());
    let again = completions(&ends.b_cq, 1).pop().unwrap();
    assert_eq!(again.tag, 0);
    assert!(bytes(&again.buffer.unwrap()) == message);
}

#[test]
fn lists_write_and_read() {
    let ends = connected();
    let message = pattern(300);
    let window = ends
        .pd
        .expose(300, AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ)
        .unwrap();
    let parts: Vec<Buf> = message
        .chunks(100)
        .map(|part| ends.pd.reg_mr(part.to_vec()).unwrap())
        .collect();
    ends.a.post_write(parts, window.remote()).unwrap();
    assert!(completions(&ends.a_cq, 1)[0].result.is_ok());
    let mut seen = vec![0; 300];
    window.read_at(0, &mut seen).unwrap();
    assert_eq!(seen, message);

    let from = window.remote().slice(10..270).unwrap();
    let targets = ends.bufs(&[200, 7, 1000]);
    ends.a.post_read(targets, from).unwrap();
    let read = completions(&ends.a_cq, 1).pop().unwrap().buffer.unwrap();
    assert_eq!(lens(&read), [200, 7, 53]);
    assert_eq!(bytes(&read), message[10..270]);
    let small = ends.a.post_read(ends.bufs(&[200, 7]), from).unwrap_err();
    assert!(matches!(small.error, Error::Value { limit: 207, .. }));
}

#[test]
fn lists_that_cannot_be_posted_come_back() {
    let ends = connected();
    let (limit, other) = (
        ends.a.max_send_sge() as usize,
        ends.b.max_recv_sge() as usize,
    );
    assert!(limit >= PIECES as usize && other >= PIECES as usize);
    let refused = ends
        .a
        .post_send(ends.bufs(&vec![1; limit + 1]))
        .unwrap_err();
    assert!(matches!(refused.error, Error::Value { .. }), "{refused}");
    assert_eq!(refused.buffer.unwrap().pieces().len(), limit + 1);
    let refused = ends
        .b
        .post_recv(ends.bufs(&vec![1; other + 1]))
        .unwrap_err();
    assert_eq!(refused.buffer.unwrap().pieces().len(), other + 1);

    // A list inside a list is one list.
    let inner = Buffer::Pieces(vec![ends.pd.reg_mr(*b"in").unwrap().into()]);
    let nested = Buffer::Pieces(vec![inner, ends.pd.reg_mr(*b"out").unwrap().into()]);
    let mut target: Vec<Buffer> = vec![ends.pd.alloc_buf(8).unwrap().into()];
    target.push(Arc::new(ends.pd.alloc_buf(8).unwrap()).into());
    let refused = ends.b.post_recv(target).unwrap_err();
    assert!(matches!(refused.error, Error::SharedTarget { index: 1 }));
    let mut target = refused.buffer.unwrap().into_pieces();
    target.pop();
    ends.b.post_recv(target).unwrap();
    ends.a.post_send(nested).unwrap();
    let sent = completions(&ends.a_cq, 1).pop().unwrap().buffer.unwrap();
    assert_eq!(lens(&sent), [2, 3]);
    let received = completions(&ends.b_cq, 1).pop().unwrap().buffer.unwrap();
    assert_eq!(bytes(&received), b"inout");

    let foreign = context().alloc_pd().unwrap().alloc_buf(8).unwrap();
    let mixed = vec![ends.pd.alloc_buf(8).unwrap(), foreign];
    let refused = ends.a.post_send(mixed).unwrap_err();
    assert!(matches!(refused.error, Error::Foreign { .. }));
    let window = ends.pd.expose(8, AccessFlags::REMOTE_ATOMIC).unwrap();
    let word = ends.a.post_fetch_add(ends.bufs(&[8]), window.remote(), 1);
    assert!(matches!(word.unwrap_err().error, Error::Misaligned { .. }));
}

#[test]
fn inline_bytes_go_with_immediates_flags_and_batches() {
    let mut ends = connected();
    let count = 6;
    assert_eq!(ends.b.post_recvs(ends.bufs(&[32; 6])).unwrap(), count);
    ends.a.post_send_imm(Inline(b"beside"), 5).unwrap();
    let window = ends.pd.expose(8, AccessFlags::REMOTE_WRITE).unwrap();
    let mut batch = ends.a.batch();
    for i in 0..4u8 {
        // What the bytes are when they are added counts, not what becomes of them.
        let mut bytes = vec![i; usize::from(i) + 1];
        let flags = match i {
            3 => PostFlags::empty(),
            _ => PostFlags::UNSIGNALED,
        };
        let tagged = Tagged(Inline(&bytes), i.into());
        batch.with(flags).send(tagged).unwrap();
        bytes.fill(0xff);
    }
    let long = vec![0; 4096];
    let refused = batch.with(PostFlags::empty()).send(Inline(&long));
    assert!(matches!(
        refused.unwrap_err().error,
        Error::InlineTooLong { len: 4096, .. }
    ));
    let list = ends.pd.reg_mr(*b"gathered").unwrap();
    let mut list = vec![list];
    list[0].set_len(6).unwrap();
    list.push(ends.pd.reg_mr(*b"ed").unwrap());
    batch.with(PostFlags::empty()).send(list).unwrap();
    batch
        .with(PostFlags::empty())
        .write(Inline(b"eight..."), window.remote())
        .unwrap();
    assert_eq!(batch.post().unwrap(), 6);
    let sent = completions(&ends.a_cq, 7);
    assert_eq!(
        sent.iter().map(|c| c.tag).collect::<Vec<_>>(),
        [0, 0, 1, 2, 3, 0, 0]
    );
    let received = completions(&ends.b_cq, count);
    let payloads: Vec<_> = received.iter().map(|c| c.payload().unwrap()).collect();
    let expected: [&[u8]; 6] = [b"beside", &[0], &[1; 2], &[2; 3], &[3; 4], b"gathereded"];
    assert_eq!(payloads[..5], expected[..5]);
    assert_eq!(payloads[5], b"gathered");
    assert_eq!(received[0].result.unwrap().imm, Some(5));
    let mut seen = [0; 8];
    window.read_at(0, &mut seen).unwrap();
    assert_eq!(&seen, b"eight...");
}

#[test]
fn datagrams_are_gathered_scattered_and_sent_inline() {
    let ends = ends::<Ud>();
    ends.a.activate().unwrap();
    ends.b.activate().unwrap();
    let peer = ends.b.endpoint();
    let way = ends.pd.create_ah(&ends.a.address_of(&peer).unwrap());
    let to = way.unwrap().to(peer.qpn, peer.qkey);
    // The header apart from the payload.
    ends.b.post_recv(ends.bufs(&[GRH_LEN, 64])).unwrap();
    ends.b.post_recv(ends.bufs(&[GRH_LEN, 64])).unwrap();
    ends.a.post_send_imm_to(Inline(b"inline"), &to, 9).unwrap();
    let parts = vec![
        ends.pd.reg_mr(*b"two").unwrap(),
        ends.pd.reg_mr(*b"parts").unwrap(),
    ];
    ends.a.post_send_to(parts, &to).unwrap();
    completions(&ends.a_cq, 2);
    let received = completions(&ends.b_cq, 2);
    let payload = |i: usize| bytes(&received[i].buffer.as_ref().unwrap().pieces()[1]);
    assert_eq!(received[0].result.unwrap().imm, Some(9));
    assert_eq!(
        (payload(0), payload(1)),
        (b"inline".to_vec(), b"twoparts".to_vec())
    );
}

#[test]
fn as_many_receives_are_posted_as_there_is_room_for() {
    let ends = connected();
    let mut left = (0..150).map(|tag| Tagged(ends.pd.alloc_buf(8).unwrap(), tag));
    let stopped = ends.b.post_recvs(left.by_ref()).unwrap_err();
    assert!(stopped.error.is_would_block(), "{stopped}");
    assert_eq!((stopped.accepted, ends.b.recvs_outstanding()), (100, 100));
    // Every buffer is somewhere: posted, returned, or still to come.
    assert_eq!(stopped.accepted + stopped.buffers.len() + left.count(), 150);
    for i in 0..100u8 {
        ends.a.post_send(Inline(&[i])).unwrap();
    }
    let received = completions(&ends.b_cq, 100);
    for (i, done) in received.iter().enumerate() {
        assert_eq!(
            (done.tag, done.payload().unwrap()),
            (i as u64, &[i as u8][..])
        );
    }
    assert_eq!(ends.b.post_recvs(Vec::<Buf>::new()).unwrap(), 0);
}

#[test]
fn a_shared_queue_takes_lists_and_many_at_once() {
    let ends = connected();
    let srq = ends.pd.create_srq_of_lists(40, 2).unwrap();
    let q = ends
        .pd
        .create_qp::<Rc>(&ends.b_cq)
        .max_send_wr(4)
        .srq(&srq)
        .build()
        .unwrap();
    let p = ends
        .pd
        .create_qp::<Rc>(&ends.a_cq)
        .max_send_wr(4)
        .max_recv_wr(0)
        .max_inline(16)
        .build()
        .unwrap();
    q.connect(&p.endpoint()).unwrap();
    p.connect(&q.endpoint()).unwrap();
    let lists = (0..40).map(|tag| Tagged(ends.bufs(&[1, 1]), tag));
    assert_eq!(srq.post_recvs(lists).unwrap(), 40);
    assert!(srq.max_sge() >= 2);
    p.post_send(Inline(b"ab")).unwrap();
    let done = completions(&ends.b_cq, 1).pop().unwrap();
    assert_eq!(
        (done.tag, lens(done.buffer.as_ref().unwrap())),
        (0, vec![1, 1])
    );
    assert_eq!(bytes(done.buffer.as_ref().unwrap()), b"ab");
}

#[test]
fn receives_may_come_from_an_iterator_that_uses_the_queue_itself() {
    let ends = connected();
    let mut done = Vec::new();
    let nosy = ends.bufs(&[8; 40]).into_iter().inspect(|_| {
        ends.b_cq.poll(&mut done).unwrap();
        assert!(ends.b.recvs_outstanding() <= 40);
    });
    assert_eq!(ends.b.post_recvs(nosy).unwrap(), 40);
}

#[test]
fn pieces_and_tags_survive_a_close() {
    let ends = connected();
    ends.b.post_recv(Tagged(ends.bufs(&[8, 8]), 3)).unwrap();
    let closed = ends.b.close().unwrap();
    assert_eq!((closed.len(), closed[0].tag), (1, 3));
    assert_eq!(closed[0].buffer.as_ref().unwrap().pieces().len(), 2);
}

#[test]
fn nothing_is_a_message_too() {
    let ends = connected();
    // No pieces, pieces without bytes (more of them than a list may have), no bytes at all.
    ends.b.post_recv(Vec::<Buf>::new()).unwrap();
    ends.b.post_recv(ends.bufs(&[0; 40])).unwrap();
    ends.b.post_recv(ends.bufs(&[0, 8, 0])).unwrap();
    ends.a.post_send(ends.bufs(&[0; 40])).unwrap();
    ends.a.post_send(Vec::<Buf>::new()).unwrap();
    ends.a.post_send(Inline(b"")).unwrap();
    for cq in [&ends.a_cq, &ends.b_cq] {
        for done in completions(cq, 3) {
            assert!(done.result.is_ok(), "{:?}", done.result);
            let buffer = done.buffer.unwrap_or(Buffer::Pieces(Vec::new()));
            assert!(bytes(&buffer).is_empty());
        }
    }
    // Receives without end stop where the queue does, and so do those of a closed one.
    let endless = iter::repeat_with(|| ends.pd.alloc_buf(8).unwrap());
    let stopped = ends.b.post_recvs(endless).unwrap_err();
    assert_eq!(
        (stopped.accepted, stopped.error.is_would_block()),
        (100, true)
    );
    let unbuilt = ends.pd.create_qp::<Rc>(&ends.a_cq).max_send_sge(1 << 20);
    assert!(unbuilt.max_send_wr(1).max_recv_wr(1).build().is_err());
}
