//! A record into a ring and out again, on one core: `cargo bench -p adverb-mem`.

use std::hint::black_box;

use adverb_mem::ring;
use criterion::{Criterion, Throughput};

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let (mut producer, fd) = ring::create(1 << 20).expect("a ring can be made");
    let mut consumer = ring::open(&fd).expect("and opened");
    let mut into = vec![0; 8192];
    let mut group = criterion.benchmark_group("ring");
    for len in [8, 56, 4096] {
        let record = vec![7; len];
        group.throughput(Throughput::Bytes(len as u64));
        group.bench_function(format!("push and pop, {len} bytes"), |b| {
            b.iter(|| {
                producer.push(&[black_box(&record)]).expect("there is room");
                let popped = consumer.pop(&mut into).expect("nobody lies");
                assert_eq!(popped, Some(len));
            });
        });
    }
    group.bench_function("pop, empty", |b| {
        b.iter(|| assert_eq!(consumer.pop(&mut into).expect("nobody lies"), None));
    });
    group.finish();
    criterion.final_summary();
}
