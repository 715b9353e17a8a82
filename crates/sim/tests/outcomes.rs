//! Each operation, each packet of its exchange, and each thing that a wire can do to that packet: the
//! exact packets that follow and how the work ends, kept as text in `outcomes/`, a file per operation.
//!
//! A SEND of four bytes is posted right behind the operation, so that a gap can be noticed. After a
//! change that is meant: `ADVERB_BLESS=1 cargo test -p adverb-sim --test outcomes`, and read the diff.

use std::fmt::Write as _;
use std::path::Path;

use adverb_engine::SendOp;
use adverb_sim::duet::{Duet, Fault};

/// Name of the file, the operation, and its length. Packets hold 256 bytes.
const CASES: &[(&str, Kind, usize)] = &[
    ("send", Kind::Send, 10),
    ("send_3_packets", Kind::Send, 600),
    ("send_imm", Kind::SendImm, 10),
    ("send_imm_3_packets", Kind::SendImm, 600),
    ("write", Kind::Write, 10),
    ("write_3_packets", Kind::Write, 600),
    ("write_imm", Kind::WriteImm, 10),
    ("write_imm_3_packets", Kind::WriteImm, 600),
    ("read", Kind::Read, 10),
    ("read_3_packets", Kind::Read, 600),
    ("read_twice", Kind::ReadTwice, 300),
    ("compare_swap", Kind::CompareSwap, 8),
    ("fetch_add", Kind::FetchAdd, 8),
    ("atomic_write", Kind::AtomicWrite, 8),
    ("nothing_to_receive_into", Kind::NotReady, 300),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Send,
    SendImm,
    Write,
    WriteImm,
    Read,
    ReadTwice,
    CompareSwap,
    FetchAdd,
    AtomicWrite,
    NotReady,
}

/// Where things are in the 4096 bytes of each side.
const FROM: usize = 64;
const TO: usize = 2048;
const ANSWER: usize = 1024;
const BEHIND: usize = 4000;

fn play(kind: Kind, len: usize, fault: Option<(usize, Fault)>, batch: bool) -> Duet {
    let mut d = Duet::new(fault, batch);
    let (remote_addr, rkey) = d.target(1, TO);
    let source = d.sge(0, FROM, len);
    let answer = d.sge(0, ANSWER, len);
    let imm = [0xaa, 0xbb, 0xcc, 0xdd];
    d.data_mut(1)[TO..TO + len].fill(0x11);
    if matches!(kind, Kind::Send | Kind::SendImm | Kind::WriteImm) {
        let to = d.sge(1, TO, if kind == Kind::WriteImm { 0 } else { len });
        d.recv(1, 11, &[to]);
    }
    let behind = d.sge(1, BEHIND, 4);
    if kind != Kind::NotReady {
        d.recv(1, 12, &[behind]);
    }
    let (op, sge) = match kind {
        Kind::Send => (SendOp::Send, source),
        Kind::SendImm => (SendOp::SendImm(imm), source),
        Kind::Write => (SendOp::Write { remote_addr, rkey }, source),
        Kind::WriteImm => (
            SendOp::WriteImm {
                remote_addr,
                rkey,
                imm,
            },
            source,
        ),
        Kind::Read | Kind::ReadTwice => (SendOp::Read { remote_addr, rkey }, answer),
        Kind::CompareSwap => (
            SendOp::CompareSwap {
                remote_addr,
                rkey,
                compare: 0x1111_1111_1111_1111,
                swap: 5,
            },
            answer,
        ),
        Kind::FetchAdd => (
            SendOp::FetchAdd {
                remote_addr,
                rkey,
                add: 1,
            },
            answer,
        ),
        Kind::AtomicWrite => (SendOp::AtomicWrite { remote_addr, rkey }, source),
        Kind::NotReady => (SendOp::Send, source),
    };
    d.send(0, 1, op, &[sge]);
    if kind == Kind::ReadTwice {
        let again = d.sge(0, ANSWER + len, len);
        d.send(0, 2, op, &[again]);
    }
    if kind == Kind::NotReady {
        // The receives come after the first answer says that there are none.
        d.run_for(4_000);
        let to = d.sge(1, TO, len);
        d.recv(1, 11, &[to]);
        d.recv(1, 12, &[behind]);
        return finish(d, kind, len);
    }
    finish(d, kind, len)
}

fn finish(mut d: Duet, kind: Kind, len: usize) -> Duet {
    let behind = d.sge(0, BEHIND, 4);
    if kind != Kind::NotReady {
        d.send(0, 3, SendOp::Send, &[behind]);
    }
    d.run();
    let (a, b) = (d.data(0).to_vec(), d.data(1).to_vec());
    let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
    match kind {
        Kind::Read => assert!(a[ANSWER..ANSWER + len].iter().all(|b| *b == 0x11)),
        Kind::ReadTwice => assert!(a[ANSWER..ANSWER + 2 * len].iter().all(|b| *b == 0x11)),
        Kind::CompareSwap | Kind::FetchAdd => {
            let old = 0x1111_1111_1111_1111;
            assert_eq!(word(&a[ANSWER..ANSWER + 8]), old);
            let new = if kind == Kind::FetchAdd { old + 1 } else { 5 };
            assert_eq!(word(&b[TO..TO + 8]), new, "executed exactly once");
        }
        _ => assert_eq!(a[FROM..FROM + len], b[TO..TO + len]),
    }
    if kind != Kind::NotReady {
        assert_eq!(a[BEHIND..BEHIND + 4], b[BEHIND..BEHIND + 4]);
    }
    d
}

fn all_outcomes(kind: Kind, len: usize) -> String {
    let mut text = String::new();
    let mut plain = play(kind, len, None, false);
    let _ = write!(text, "== undisturbed\n{}\n", plain.story());
    let batch = play(kind, len, None, true).story();
    let _ = write!(text, "== undisturbed, handled in batches\n{batch}\n");
    for (n, opcode) in plain.opcodes.clone().into_iter().enumerate() {
        let of = plain.opcodes.len();
        let dropped = play(kind, len, Some((n, Fault::Drop)), false).story();
        for fault in Fault::ALL {
            let word = match fault {
                Fault::Drop => "dropped",
                Fault::Corrupt => "corrupted",
                Fault::Duplicate => "duplicated",
                Fault::Reorder => "reordered",
                Fault::Delay => "delayed past the timeout",
            };
            let _ = writeln!(text, "== packet {} of {of}, {opcode}, {word}", n + 1);
            let story = play(kind, len, Some((n, fault)), false).story();
            if fault == Fault::Corrupt && story.replace("corrupted", "dropped") == dropped {
                let _ = writeln!(text, "            as if dropped\n");
            } else {
                let _ = writeln!(text, "{story}");
            }
        }
    }
    text
}

#[test]
fn every_fault_of_every_packet_has_the_outcome_on_file() {
    let bless = std::env::var_os("ADVERB_BLESS").is_some();
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/outcomes");
    let mut wrong = Vec::new();
    for (name, kind, len) in CASES {
        let path = dir.join(format!("{name}.txt"));
        let text = all_outcomes(*kind, *len);
        if bless {
            std::fs::write(&path, &text).expect("the file can be written");
            continue;
        }
        let expected = std::fs::read_to_string(&path).unwrap_or_default();
        if text != expected {
            let (n, (new, old)) = text
                .lines()
                .zip(expected.lines())
                .enumerate()
                .find(|(_, (new, old))| new != old)
                .unwrap_or((0, ("(the end)", "(another end)")));
            wrong.push(format!(
                "{name}.txt line {}:\n  on file {old}\n  now     {new}",
                n + 1
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "outcomes have changed; ADVERB_BLESS=1 accepts them:\n{}",
        wrong.join("\n")
    );
}
