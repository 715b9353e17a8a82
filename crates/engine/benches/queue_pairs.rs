//! Two queue pairs without a link between them, and the table of keys: `cargo bench -p adverb-engine`.

#[allow(dead_code, reason = "the tests need more of it")]
#[path = "../tests/behaviour/harness.rs"]
mod harness;
#[allow(dead_code, reason = "the tests need more of it")]
#[path = "../tests/behaviour/world.rs"]
mod world;

use std::hint::black_box;

use adverb_engine::*;
use adverb_wire::Packet;
use criterion::{Criterion, Throughput};
use harness::{Node, Pair, gid};
use world::{PD, all_access};

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    messages(&mut criterion);
    keys(&mut criterion);
    criterion.final_summary();
}

/// Post a receive and a SEND, carry the packets over and the acknowledgement back.
fn messages(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("two queue pairs, path MTU 256");
    for len in [8, 4096] {
        let mut pair = Pair::rc();
        let from = pair.a.world.register(vec![7; len]);
        let to = pair.b.world.register(vec![0; len]);
        group.throughput(Throughput::Bytes(len as u64));
        group.bench_function(format!("send, {len} bytes"), |b| {
            b.iter(|| {
                pair.b.recv(1, &[to.sge(0, len as u32)]);
                pair.a.send(2, SendOp::Send, &[from.sge(0, len as u32)]);
                carry(&mut pair.a, &mut pair.b);
                carry(&mut pair.b, &mut pair.a);
                assert_eq!((told(&mut pair.a), told(&mut pair.b)), (1, 1));
            });
        });
        assert_eq!(pair.b.world.bytes(to), vec![7; len]);
    }
    group.finish();
}

/// Hands everything that one side has to say to the other.
fn carry(from: &mut Node, to: &mut Node) {
    let meta = PacketMeta {
        src: gid(1).to_ip(),
        dst: gid(2).to_ip(),
        traffic_class: 0,
        hop_limit: 64,
    };
    // Which side is which only shows in the addresses.
    let meta = if from.qp.config().num.0 == 0x11 {
        meta
    } else {
        PacketMeta {
            src: meta.dst,
            dst: meta.src,
            ..meta
        }
    };
    let mut bytes = [0; 8192];
    while let Some(sent) = from.qp.poll_transmit(from.now, &mut from.world, &mut bytes) {
        let packet = Packet::parse(&bytes[..sent.len]).expect("what we send can be parsed");
        to.qp
            .handle_packet(to.now, &meta, &packet, &mut to.world)
            .expect("nothing of it is dropped");
    }
}

/// How many completions a side was told of since the last look.
fn told(side: &mut Node) -> usize {
    side.world.told.drain(..).count()
}

fn keys(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("key look-up");
    for regions in [10_u64, 100_000] {
        let mut table = KeyTable::new(regions as usize, 1);
        let accesses: Vec<MemAccess> = (0..regions)
            .map(|at| {
                let spec = MrSpec {
                    pd: PD,
                    iova: at << 12,
                    len: 4096,
                    access: all_access(),
                };
                MemAccess {
                    key: table.insert(spec, at).expect("there is room"),
                    pd: PD,
                    qp: QpNum(1),
                    va: at << 12,
                    len: 8,
                    need: Access::REMOTE_WRITE,
                    remote: true,
                }
            })
            .collect();
        let mut next = accesses.iter().cycle();
        group.bench_function(format!("{regions} regions in turn"), |b| {
            b.iter(|| {
                let access = next.next().expect("a cycle has no end");
                black_box(table.resolve(black_box(access)).is_ok())
            });
        });
    }
    group.finish();
}
