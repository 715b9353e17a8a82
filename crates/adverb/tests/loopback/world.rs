//! Two threads do whatever safe code may do, in an order that a number chooses: every operation that
//! was accepted ends once, as what it was; nothing is written that was lent to be read; messages are
//! whole. `cargo xtask asan` runs it under AddressSanitizer.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use adverb::transport::Rc;
use adverb::{
    AccessFlags, Batch, Buf, Buffer, Completion, CompletionQueue, Exposed, Inline, OpKind,
    PostFlags, ProtectionDomain, QpAttr, QpState, QueuePair, SharedReceiveQueue, Tagged,
};

use crate::context;

const STEPS: u32 = 3000;
const SIZE: usize = 3000;

/// A sequence that looks random (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % n
    }
}

/// An operation that somebody is waiting for.
struct Awaited {
    kind: OpKind,
    qp: u64,
}

/// What both threads know.
struct World {
    pd: ProtectionDomain,
    cq: CompletionQueue,
    srq: SharedReceiveQueue,
    window: Exposed,
    awaited: Mutex<HashMap<u64, Awaited>>,
    /// What has succeeded at least once.
    succeeded: Mutex<HashSet<OpKind>>,
    next: AtomicU64,
}

/// Of the shared receive queue.
const SHARED: u64 = 0;

impl World {
    fn tag(&self, kind: OpKind, qp: u64) -> u64 {
        let tag = self.next.fetch_add(1, Ordering::Relaxed);
        let awaited = Awaited { kind, qp };
        self.awaited.lock().unwrap().insert(tag, awaited);
        tag
    }

    fn forget(&self, tag: u64) {
        self.awaited.lock().unwrap().remove(&tag).unwrap();
    }

    fn buf(&self, random: &mut Random) -> Buf {
        let len = random.below(SIZE as u64) as usize;
        let fill = random.below(256) as u8;
        let mut buf = match random.below(4) {
            0 => self.pd.alloc_buf(len.max(8)).unwrap(),
            _ => self.pd.reg_mr(vec![fill; len.max(8)]).unwrap(),
        };
        buf.fill(fill);
        buf
    }

    fn source(&self, random: &mut Random) -> Buffer {
        let buf = self.buf(random);
        match random.below(4) {
            0 => {
                // A message of one value, in two pieces that may be of one registration.
                let mut head = buf;
                let tail = head.split_off(head.len() / 2);
                Buffer::Pieces(vec![head.into(), tail.into()])
            }
            1 => Arc::new(buf).into(),
            _ => buf.into(),
        }
    }

    /// Looks at what has ended; some of it is kept for longer, or for ever.
    fn settle(&self, done: Vec<Completion>, random: &mut Random) {
        let mut awaited = self.awaited.lock().unwrap();
        for completion in done {
            let ended = awaited.remove(&completion.tag);
            let ended = ended.expect("it ended twice, or was never posted");
            assert_eq!(ended.kind, completion.kind);
            if completion.result.is_ok() {
                self.succeeded.lock().unwrap().insert(ended.kind);
            }
            let sent = matches!(completion.kind, OpKind::Send | OpKind::Write);
            let received = completion.kind == OpKind::Recv && completion.result.is_ok();
            if let Some(buffer) = &completion.buffer
                && (sent || received)
            {
                let pieces = buffer.pieces().iter().filter_map(Buffer::bytes);
                let mut bytes = pieces.flatten();
                let first = bytes.next().copied();
                assert!(bytes.all(|b| Some(*b) == first), "bytes of two messages");
            }
            match (random.below(64), completion.buffer) {
                (0, Some(buffer)) => mem::forget(buffer),
                (1..8, Some(Buffer::Owned(buf))) => drop(buf.into_inner::<Vec<u8>>()),
                _ => {}
            }
        }
    }

    fn poll(&self, random: &mut Random) {
        let mut done = Vec::new();
        self.cq.poll(&mut done).unwrap();
        self.settle(done, random);
    }
}

/// One end of a connection.
struct End {
    qp: QueuePair<Rc>,
    number: u64,
    shared: bool,
}

fn ends(world: &World, random: &mut Random) -> [End; 2] {
    let mut end = || {
        let shared = random.below(2) == 0;
        let builder = world.pd.create_qp::<Rc>(&world.cq);
        let builder = builder.max_send_sge(2).max_recv_sge(2).max_inline(64);
        let builder = match shared {
            true => builder.srq(&world.srq),
            false => builder,
        };
        End {
            qp: builder.build().unwrap(),
            number: world.next.fetch_add(1, Ordering::Relaxed),
            shared,
        }
    };
    let (a, b) = (end(), end());
    a.qp.connect(&b.qp.endpoint()).unwrap();
    b.qp.connect(&a.qp.endpoint()).unwrap();
    [a, b]
}

impl End {
    fn receive(&self, world: &World, random: &mut Random) {
        let (qp, count) = match self.shared {
            true => (SHARED, 1),
            false => (self.number, random.below(5)),
        };
        let tags: Vec<_> = (0..count).map(|_| world.tag(OpKind::Recv, qp)).collect();
        let targets: Vec<_> = tags
            .iter()
            .map(|tag| {
                let mut head = world.pd.alloc_buf(SIZE).unwrap();
                let tail = head.split_off(1 + random.below(SIZE as u64 - 1) as usize);
                Tagged(vec![head, tail], *tag)
            })
            .collect();
        let taken = match self.shared {
            true => {
                let posted = targets
                    .into_iter()
                    .map(|target| world.srq.post_recv(target));
                posted.filter(Result::is_ok).count()
            }
            false => match self.qp.post_recvs(targets) {
                Ok(taken) => taken,
                Err(stopped) => {
                    assert_eq!(stopped.accepted + stopped.buffers.len(), tags.len());
                    stopped.accepted
                }
            },
        };
        tags[taken..].iter().for_each(|tag| world.forget(*tag));
    }

    fn post(&self, world: &World, random: &mut Random) {
        let flags = match random.below(3) {
            0 => PostFlags::UNSIGNALED,
            1 => PostFlags::FENCE,
            _ => PostFlags::empty(),
        };
        let post = self.qp.with(flags);
        let remote = world.window.remote();
        let (tag, posted) = match random.below(5) {
            0 => {
                let tag = world.tag(OpKind::Send, self.number);
                let bytes = [random.below(256) as u8; 33];
                (tag, post.send(Tagged(Inline(&bytes), tag)))
            }
            1 => {
                let tag = world.tag(OpKind::Write, self.number);
                (tag, post.write(Tagged(world.source(random), tag), remote))
            }
            2 => {
                let tag = world.tag(OpKind::Read, self.number);
                let target = world.pd.alloc_buf(SIZE).unwrap();
                (tag, post.read(Tagged(target, tag), remote))
            }
            3 => {
                let tag = world.tag(OpKind::FetchAdd, self.number);
                (
                    tag,
                    post.fetch_add(Tagged(world.buf(random), tag), remote, 1),
                )
            }
            _ => {
                let tag = world.tag(OpKind::Send, self.number);
                (tag, post.send_imm(Tagged(world.source(random), tag), 1))
            }
        };
        if posted.is_err() {
            world.forget(tag);
        }
    }

    fn batch(&mut self, world: &World, random: &mut Random) {
        let number = self.number;
        let mut batch: Batch<'_, Rc> = self.qp.batch();
        let mut tags = Vec::new();
        for _ in 0..random.below(6) {
            let tag = world.tag(OpKind::Send, number);
            let post = batch.with(PostFlags::UNSIGNALED);
            let added = match random.below(2) {
                0 => post.send(Tagged(world.source(random), tag)),
                _ => post.send(Tagged(Inline(&[7; 9]), tag)),
            };
            match added {
                Ok(_) => tags.push(tag),
                Err(_) => world.forget(tag),
            }
        }
        let taken = match random.below(4) {
            0 => {
                drop(batch);
                0
            }
            1 => {
                mem::forget(batch);
                0
            }
            _ => match batch.post() {
                Ok(taken) => taken,
                Err(stopped) => stopped.accepted,
            },
        };
        tags[taken..].iter().for_each(|tag| world.forget(*tag));
    }

    /// Ends it, in one of three ways.
    fn end(self, world: &World, random: &mut Random) {
        let number = self.number;
        if random.below(2) == 0 {
            // What was flushed goes with it, and what succeeded is still to come: these may.
            drop(self);
            let mut awaited = world.awaited.lock().unwrap();
            for operation in awaited.values_mut().filter(|o| o.qp == number) {
                operation.qp = SHARED;
            }
            return;
        }
        if random.below(2) == 0 {
            let reset = QpAttr {
                state: Some(QpState::Reset),
                ..QpAttr::default()
            };
            // Refused while something is outstanding.
            let _ = self.qp.abort().and_then(|()| self.qp.modify(&reset));
        }
        let done = self.qp.close().unwrap();
        world.settle(done, random);
    }
}

fn live(world: &World, seed: u64) {
    let mut random = Random(seed);
    let mut pairs: Vec<_> = (0..2).map(|_| ends(world, &mut random)).collect();
    for _ in 0..STEPS {
        let pair = random.below(2) as usize;
        let end = &mut pairs[pair][random.below(2) as usize];
        match random.below(100) {
            0..30 => end.receive(world, &mut random),
            30..65 => end.post(world, &mut random),
            65..75 => end.batch(world, &mut random),
            75..98 => world.poll(&mut random),
            _ => {
                let new = ends(world, &mut random);
                for end in mem::replace(&mut pairs[pair], new) {
                    end.end(world, &mut random);
                }
            }
        }
    }
    for end in pairs.into_iter().flatten() {
        end.end(world, &mut random);
    }
}

#[test]
fn whatever_safe_code_does_every_operation_ends_once() {
    for seed in 1..=4u64 {
        let ctx = context();
        let pd = ctx.alloc_pd().unwrap();
        let srq = pd.create_srq_of_lists(64, 2).unwrap();
        let access =
            AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
        let world = World {
            cq: ctx.create_cq(4096).build().unwrap(),
            srq,
            window: pd.expose(SIZE, access).unwrap(),
            pd,
            awaited: Mutex::default(),
            succeeded: Mutex::default(),
            next: AtomicU64::new(1),
        };
        thread::scope(|scope| {
            scope.spawn(|| live(&world, seed));
            scope.spawn(|| live(&world, seed << 32));
        });
        let mut random = Random(seed);
        loop {
            let mut done = Vec::new();
            if world.cq.poll(&mut done).unwrap() == 0 {
                break;
            }
            world.settle(done, &mut random);
        }
        // What is left is with the shared queue, or went with a queue pair that was dropped.
        let awaited = world.awaited.lock().unwrap();
        let left = awaited.values().filter(|o| o.qp != SHARED).count();
        assert_eq!(left, 0, "seed {seed}: operations that never ended");
        assert_eq!(adverb::leaked_bytes(), 0);
        // Sends, writes, reads, atomics and receives: it is a world in which things happen.
        assert_eq!(world.succeeded.lock().unwrap().len(), 5);
    }
}
