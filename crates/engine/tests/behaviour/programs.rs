//! Random programs of operations on a wire with faults, compared with what an oracle expects:
//! every work request completes once and in order, every byte is where it belongs and nowhere else.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use adverb_engine::*;

use crate::harness::*;

/// A message to be received: bytes in the buffer, immediate, solicited, reported length.
type Arrival = (Vec<u8>, Option<[u8; 4]>, bool, u32);

const AREA: usize = 4096;
const RECV: usize = 2000;

/// The memory of one side as the program uses it, and what the oracle thinks of it.
struct Side {
    /// Never changes: sources of SEND and WRITE.
    source: Mr,
    /// Never changes: what the peer READs.
    shown: Mr,
    /// What the peer WRITEs and adds to; fenced against the peer's reads by being another region.
    target: Mr,
    target_model: Vec<u8>,
    /// Where answers land, a slice per operation.
    answers: Mr,
    answers_model: Vec<u8>,
    next_answer: usize,
    buffers: Mr,
    free_buffers: Vec<usize>,
    next_recv: u64,
    posted: VecDeque<(u64, usize)>,
    /// What must be received, in order.
    arriving: VecDeque<Arrival>,
    /// Work requests posted and not seen complete.
    pending: VecDeque<u64>,
    next_send: u64,
    todo: u32,
    told: usize,
}

fn side(world: &mut World, seed: u64, todo: u32) -> Side {
    Side {
        source: world.register_with(pattern(AREA, seed), Access::empty(), PD),
        shown: world.register_with(pattern(AREA, seed + 1), Access::REMOTE_READ, PD),
        target: world.register(vec![0; AREA]),
        target_model: vec![0; AREA],
        answers: world.register_with(vec![0; AREA * 16], Access::LOCAL_WRITE, PD),
        answers_model: vec![0; AREA * 16],
        next_answer: 0,
        buffers: world.register_with(
            vec![0; RECV * 16],
            Access::LOCAL_WRITE,
            if world.srq.is_some() { SRQ_PD } else { PD },
        ),
        free_buffers: (0..16).collect(),
        next_recv: 0,
        posted: VecDeque::new(),
        arriving: VecDeque::new(),
        pending: VecDeque::new(),
        next_send: 0,
        todo,
        told: 0,
    }
}

fn cut(random: &mut Random, mr: Mr, offset: usize, len: usize) -> Vec<Sge> {
    let mut sges = Vec::new();
    let mut at = 0;
    while at < len {
        let n = (1 + random.below(600) as usize).min(len - at);
        sges.push(mr.sge((offset + at) as u64, n as u32));
        at += n;
        if random.chance(100) {
            sges.push(Sge::default());
        }
    }
    sges
}

/// Posts one random operation from `node` to the side `there`.
fn post(random: &mut Random, node: &mut Node, here: &mut Side, there: &mut Side) {
    let len = match random.below(4) {
        0 => random.below(10) as usize,
        1 => 256 * (1 + random.below(4) as usize),
        _ => random.below(1800) as usize,
    };
    let source_at = random.below((AREA - len) as u64) as usize;
    let source = node.world.bytes(here.source)[source_at..source_at + len].to_vec();
    let imm = [random.next() as u8; 4];
    // Words for atomics are the first 128 bytes of the target, the rest is for writes.
    let to = 128 + random.below((AREA - 128 - len) as u64) as usize;
    let (rkey, remote_addr) = (there.target.key, there.target.addr + to as u64);
    let word = random.below(16) as usize * 8;
    let mut flags = SendFlags::empty();
    if random.chance(200) {
        flags |= SendFlags::FENCE;
    }
    let solicited = random.chance(300);
    if solicited {
        flags |= SendFlags::SOLICITED;
    }
    let id = here.next_send;
    let mut sges = cut(random, here.source, source_at, len);
    let op = match random.below(7) {
        0 => SendOp::Send,
        1 => SendOp::SendImm(imm),
        2 => SendOp::Write { remote_addr, rkey },
        3 => SendOp::WriteImm {
            remote_addr,
            rkey,
            imm,
        },
        4 => {
            let from = random.below((AREA - len) as u64) as usize;
            sges = cut(random, here.answers, here.next_answer, len);
            SendOp::Read {
                remote_addr: there.shown.addr + from as u64,
                rkey: there.shown.key,
            }
        }
        5 => SendOp::FetchAdd {
            remote_addr: there.target.addr + word as u64,
            rkey,
            add: random.next(),
        },
        _ => SendOp::CompareSwap {
            remote_addr: there.target.addr + word as u64,
            rkey,
            compare: if random.chance(500) { 0 } else { random.next() },
            swap: random.next(),
        },
    };
    let answer = here.next_answer;
    let answer_len = match op {
        SendOp::Read { .. } => len,
        SendOp::FetchAdd { .. } | SendOp::CompareSwap { .. } => 8,
        _ => 0,
    };
    if answer + 2048 > here.answers_model.len() {
        return;
    }
    if answer_len == 8 && !matches!(op, SendOp::Read { .. }) {
        sges = vec![here.answers.sge(answer as u64, 8)];
    }
    let inline =
        matches!(op, SendOp::Send | SendOp::Write { .. }) && len <= 128 && random.chance(500);
    let data = if inline {
        SendData::Inline(&source)
    } else {
        SendData::Sges(&sges)
    };
    if node
        .try_send(&SendWr {
            wr_id: id,
            op,
            flags,
            data,
            ud: None,
            xrc_srqn: 0,
        })
        .is_err()
    {
        return;
    }
    here.next_send += 1;
    here.todo -= 1;
    here.pending.push_back(id);
    here.next_answer += answer_len;
    match op {
        SendOp::Send => there
            .arriving
            .push_back((source, None, solicited, len as u32)),
        SendOp::SendImm(imm) => {
            there
                .arriving
                .push_back((source, Some(imm), solicited, len as u32))
        }
        SendOp::Write { .. } => there.target_model[to..to + len].copy_from_slice(&source),
        SendOp::WriteImm { imm, .. } => {
            there.target_model[to..to + len].copy_from_slice(&source);
            there
                .arriving
                .push_back((Vec::new(), Some(imm), solicited, len as u32));
        }
        SendOp::Read { remote_addr, .. } => {
            here.answers_model[answer..answer + len].copy_from_slice(
                &pattern(AREA, shown_seed(node))[(remote_addr - there.shown.addr) as usize..]
                    [..len],
            );
        }
        SendOp::FetchAdd { add, .. } => {
            let old = swap_word(&mut there.target_model[word..word + 8], |v| {
                v.wrapping_add(add)
            });
            here.answers_model[answer..answer + 8].copy_from_slice(&old.to_ne_bytes());
        }
        SendOp::CompareSwap { compare, swap, .. } => {
            let old = swap_word(&mut there.target_model[word..word + 8], |v| {
                if v == compare { swap } else { v }
            });
            here.answers_model[answer..answer + 8].copy_from_slice(&old.to_ne_bytes());
        }
        _ => unreachable!("not among the operations above"),
    }
}

/// The seed of the region that the peer of `node` shows.
fn shown_seed(node: &Node) -> u64 {
    if node.qp.config().num.0 == 0x11 {
        2001
    } else {
        1001
    }
}

fn swap_word(cell: &mut [u8], change: impl FnOnce(u64) -> u64) -> u64 {
    let old = u64::from_ne_bytes(cell.try_into().unwrap());
    cell.copy_from_slice(&change(old).to_ne_bytes());
    old
}

fn post_receive(random: &mut Random, node: &mut Node, here: &mut Side) {
    if here.posted.len() >= 16 {
        return;
    }
    let Some(buffer) = here.free_buffers.pop() else {
        return;
    };
    let sges = cut(random, here.buffers, buffer * RECV, RECV);
    node.recv(here.next_recv, &sges);
    here.posted.push_back((here.next_recv, buffer));
    here.next_recv += 1;
}

/// Compares what the side was told with what was to come.
fn check(node: &Node, here: &mut Side) {
    let told = node.world.told[here.told..].to_vec();
    here.told += told.len();
    for t in told {
        match t {
            Told::Send(c) => {
                assert_eq!(c.status, WcStatus::Success, "{c:?}");
                assert_eq!(
                    Some(c.wr_id),
                    here.pending.pop_front(),
                    "completions come in order"
                );
            }
            Told::Recv(c) => {
                assert_eq!(c.status, WcStatus::Success, "{c:?}");
                let (id, buffer) = here.posted.pop_front().expect("something was posted");
                assert_eq!(c.wr_id, id);
                let (bytes, imm, solicited, byte_len) =
                    here.arriving.pop_front().expect("something was sent");
                assert_eq!(c.byte_len, byte_len);
                assert_eq!(c.flags.contains(WcFlags::WITH_IMM), imm.is_some());
                assert_eq!(c.imm, imm.unwrap_or_default());
                assert_eq!(c.solicited, solicited);
                // The bytes are there the moment the completion is.
                let placed = &node.world.bytes(here.buffers)[buffer * RECV..][..bytes.len()];
                assert!(placed == bytes, "receive {id} of {byte_len} bytes differs");
                here.free_buffers.insert(0, buffer);
            }
            Told::Event(e) => panic!("unexpected {e:?}"),
        }
    }
}

fn run(seed: u64) -> Result<(), String> {
    let mut random = Random(seed);
    let mut setup = Setup::rc();
    setup.window = [None, Some(1), Some(2), Some(5), Some(16)][random.below(5) as usize];
    setup.srq = random.chance(300);
    setup.attr.path_mtu = 1 + random.below(2) as u32;
    setup.attr.max_rd_atomic = 1 + random.below(4) as u8;
    setup.attr.max_dest_rd_atomic = setup.attr.max_rd_atomic;
    setup.attr.rq_psn = (0xff_ff00 + random.below(0x200) as u32) & 0xff_ffff;
    setup.attr.sq_psn = setup.attr.rq_psn;
    setup.attr.min_rnr_timer = 1;
    let mut pair = Pair::new(setup);
    pair.random = Random(seed ^ 0x5555);
    let hard = random.below(3);
    pair.faults = Faults {
        loss: 25 * hard,
        duplicate: 50 * hard,
        late: 100 * random.below(3),
    };
    let todo = 60;
    let mut a = side(&mut pair.a.world, 1000, todo);
    let mut b = side(&mut pair.b.world, 2000, todo * random.below(2) as u32);

    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let mut idle = 0;
        for step in 0.. {
            assert!(step < 100_000, "no end in sight");
            if a.todo > 0 && random.chance(400) {
                post(&mut random, &mut pair.a, &mut a, &mut b);
            }
            if b.todo > 0 && random.chance(400) {
                post(&mut random, &mut pair.b, &mut b, &mut a);
            }
            for (node, here) in [(&mut pair.a, &mut a), (&mut pair.b, &mut b)] {
                if random.chance(300) {
                    post_receive(&mut random, node, here);
                }
            }
            let moved = pair.step();
            check(&pair.a, &mut a);
            check(&pair.b, &mut b);
            let in_memory = a.next_answer + 2048 > a.answers_model.len()
                || b.next_answer + 2048 > b.answers_model.len();
            let done = (a.todo == 0 && b.todo == 0 || in_memory)
                && a.pending.is_empty()
                && b.pending.is_empty();
            idle = if moved || !done { 0 } else { idle + 1 };
            if idle > 2 {
                break;
            }
        }
        pair.drive();
        check(&pair.a, &mut a);
        check(&pair.b, &mut b);
        for (node, here) in [(&pair.a, &a), (&pair.b, &b)] {
            assert!(here.arriving.is_empty() && here.pending.is_empty());
            assert!(
                node.world.bytes(here.target) == here.target_model,
                "written memory differs"
            );
            assert!(
                node.world.bytes(here.answers) == here.answers_model,
                "answers differ"
            );
            assert_eq!(node.qp.state(), QpState::Rts);
            assert_eq!(node.qp.sends_pending(), 0);
        }
        let (qa, qb) = (pair.a.qp.attrs(), pair.b.qp.attrs());
        assert_eq!(
            (qa.sq_psn, qb.sq_psn),
            (qb.rq_psn, qa.rq_psn),
            "both sides count alike"
        );
    }));
    outcome.map_err(|cause| {
        let text = cause
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| cause.downcast_ref::<&str>().map(|s| (*s).into()));
        format!(
            "seed {seed}: {}\n{}",
            text.unwrap_or_default(),
            pair.tail(40)
        )
    })
}

#[test]
fn random_programs_end_as_the_oracle_says() {
    // One seed to look at, or a range for a long run.
    let number = |name: &str| std::env::var(name).ok().and_then(|s| s.parse::<u64>().ok());
    let (first, count) = match (number("SEED"), number("SEEDS")) {
        (Some(seed), _) => (seed, 1),
        (None, count) => (0, count.unwrap_or(300)),
    };
    for seed in first..first + count {
        if let Err(text) = run(seed) {
            panic!("{text}\nagain with SEED={seed}");
        }
    }
}
