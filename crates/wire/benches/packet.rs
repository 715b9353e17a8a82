//! A packet parsed and written, and its checksum: `cargo bench -p adverb-wire`.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};

use adverb_wire::icrc::{self, Addressing};
use adverb_wire::{Bth, Opcode, Operation, Packet, Psn, Reth, Transport};
use criterion::{Criterion, Throughput};

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let addressing = Addressing::new(
        IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V4(Ipv4Addr::LOCALHOST),
        50_000,
    )
    .expect("one family");
    for len in [8, 4096] {
        let payload = vec![7; len];
        let packet = write_only(&payload);
        let mut bytes = vec![0; packet.emitted_len()];
        packet.emit(&mut bytes);

        let mut group = criterion.benchmark_group(format!("write only, {len} bytes"));
        group.throughput(Throughput::Bytes(len as u64));
        group.bench_function("parse", |b| {
            b.iter(|| Packet::parse(black_box(&bytes)).expect("it is whole"));
        });
        let mut out = bytes.clone();
        group.bench_function("emit", |b| {
            b.iter(|| black_box(&packet).emit(black_box(&mut out)));
        });
        group.bench_function("headers alone", |b| {
            b.iter(|| black_box(&packet).emit_header(len, black_box(&mut out)));
        });
        group.bench_function("icrc", |b| {
            b.iter(|| icrc::compute(&addressing, black_box(&bytes)));
        });
        group.finish();
    }
    criterion.final_summary();
}

fn write_only(payload: &[u8]) -> Packet<'_> {
    let opcode = Opcode::Roce(Transport::Rc, Operation::WriteOnly);
    let mut packet = Packet::new(Bth::new(opcode, 0x11, Psn::new(5)));
    packet.reth = Some(Reth {
        va: 0x1000,
        rkey: 3,
        len: payload.len() as u32,
    });
    packet.payload = payload;
    packet
}
