//! Packets that come close enough to what a queue pair expects to get past its first checks.

use adverb_wire::{
    Aeth, AtomicEth, Bth, Deth, Feth, Headers, Opcode, Operation, Packet, Placement, Psn, Reth,
    Selectivity, Syndrome, Transport,
};
use arbitrary::{Arbitrary, Result, Unstructured};

/// What is known about the queue pair that is aimed at.
pub(crate) struct Aim<'a> {
    pub(crate) transport: Transport,
    pub(crate) qp: u32,
    /// Sequence numbers to be near to.
    pub(crate) psns: &'a [u32],
    /// Keys and addresses that exist.
    pub(crate) targets: &'a [(u32, u64)],
    pub(crate) srqn: u32,
    pub(crate) qkey: u32,
}

/// The opcodes, by the number that stands for each in an input.
fn opcode(u: &mut Unstructured<'_>, transport: Transport) -> Result<Opcode> {
    let byte = u8::arbitrary(u)?;
    // Mostly the transport of the queue pair: the others are refused at once.
    let code = if byte < 0xE0 {
        transport as u8 | byte & 0x1F
    } else {
        u8::arbitrary(u)?
    };
    Ok(Opcode::from_u8(code).unwrap_or(Opcode::Roce(transport, Operation::SendOnly)))
}

fn near(u: &mut Unstructured<'_>, values: &[u32]) -> Result<u32> {
    if values.is_empty() || u.ratio(1, 16)? {
        return u32::arbitrary(u);
    }
    let value = *u.choose(values)?;
    Ok(if u.ratio(3, 4)? {
        value
    } else {
        value.wrapping_add_signed(i32::from(i8::arbitrary(u)?))
    })
}

/// A length: often a special one.
pub(crate) fn length(u: &mut Unstructured<'_>) -> Result<u32> {
    Ok(match u8::arbitrary(u)? {
        0..64 => *u.choose(&[0, 1, 4, 8, 255, 256, 257, 512, 1024, 2048, 4096, 4097, 8192])?,
        64..250 => u32::from(u16::arbitrary(u)?) % 1200,
        _ => u32::arbitrary(u)?,
    })
}

pub(crate) fn target(u: &mut Unstructured<'_>, targets: &[(u32, u64)]) -> Result<(u32, u64)> {
    if targets.is_empty() || u.ratio(1, 16)? {
        return Ok((u32::arbitrary(u)?, u64::arbitrary(u)?));
    }
    let (key, base) = *u.choose(targets)?;
    Ok(match u8::arbitrary(u)? {
        0..128 => (key, base),
        128..240 => (
            key,
            base.wrapping_add(u64::from(u16::arbitrary(u)? & 0x1FF8)),
        ),
        240..250 => (key, base.wrapping_add_signed(i64::from(i16::arbitrary(u)?))),
        _ => (key ^ u32::from(u8::arbitrary(u)?), base),
    })
}

/// Writes one packet into `out`; gives its length.
pub(crate) fn packet(u: &mut Unstructured<'_>, aim: &Aim<'_>, out: &mut Vec<u8>) -> Result<()> {
    let opcode = opcode(u, aim.transport)?;
    let psn = Psn::new(near(u, aim.psns)?);
    let mut packet = Packet::new(Bth::new(opcode, aim.qp, psn));
    let bits = u8::arbitrary(u)?;
    packet.bth.ack_req = bits & 1 != 0;
    packet.bth.solicited = bits & 2 != 0;
    packet.bth.fecn = bits & 4 != 0;
    packet.bth.becn = bits & 8 != 0;
    if bits & 0xF0 == 0xF0 {
        packet.bth.pkey = u16::arbitrary(u)?;
    }
    let headers = opcode.headers();
    if headers.contains(Headers::XRCETH) {
        packet.xrc_srqn = Some(if u.ratio(7, 8)? {
            aim.srqn
        } else {
            u32::arbitrary(u)? & 0xFF_FFFF
        });
    }
    if headers.contains(Headers::DETH) {
        let qkey = if u.ratio(7, 8)? {
            aim.qkey
        } else {
            u32::arbitrary(u)?
        };
        packet.deth = Some(Deth {
            qkey,
            src_qp: u32::arbitrary(u)? & 0xFF_FFFF,
        });
    }
    if headers.contains(Headers::FETH) {
        let bits = u8::arbitrary(u)?;
        packet.feth = Some(Feth {
            placement: Placement::from_bits_truncate(bits),
            selectivity: if bits & 0x10 == 0 {
                Selectivity::Range
            } else {
                Selectivity::MemoryRegion
            },
        });
    }
    if headers.contains(Headers::RETH) {
        let (rkey, va) = target(u, aim.targets)?;
        packet.reth = Some(Reth {
            va,
            rkey,
            len: length(u)?,
        });
    }
    if headers.contains(Headers::ATOMIC_ETH) {
        let (rkey, va) = target(u, aim.targets)?;
        packet.atomic = Some(AtomicEth {
            va,
            rkey,
            swap_or_add: u64::arbitrary(u)?,
            compare: 0,
        });
    }
    if headers.contains(Headers::AETH) {
        packet.aeth = Some(Aeth {
            syndrome: Syndrome::from_u8(u8::arbitrary(u)?),
            msn: u32::from(u8::arbitrary(u)?),
        });
    }
    if headers.contains(Headers::ATOMIC_ACK_ETH) {
        packet.atomic_ack = Some(u64::arbitrary(u)?);
    }
    if headers.contains(Headers::IMM_DT) {
        packet.imm = Some(*b"imm!");
    }
    if headers.contains(Headers::IETH) {
        packet.ieth = Some(target(u, aim.targets)?.0);
    }
    // Often the length that the header announces, which is what an honest packet has.
    let announced = packet.reth.map_or(256, |r| r.len as usize);
    let len = if u.ratio(1, 2)? {
        announced
    } else {
        length(u)? as usize
    };
    packet.payload = &PAYLOAD[..len.min(PAYLOAD.len())];
    out.resize(packet.emitted_len(), 0);
    packet.emit(out);
    Ok(())
}

static PAYLOAD: [u8; 4096 + 8] = [0xA5; 4096 + 8];

/// A train that begins with the headers of a packet, or nearly one: its head, and its payload.
pub(crate) fn train(u: &mut Unstructured<'_>, packet: &Packet<'_>) -> Result<(Vec<u8>, Vec<u8>)> {
    let first = packet.without_payload();
    let packets = 1 + u16::from(u8::arbitrary(u)?) % 20;
    let piece = *u.choose(&[256u16, 512, 512, 1024, 4096, 300])?;
    let piece = if packets == 1 {
        packet.payload.len() as u16
    } else {
        piece
    };
    let mut last = first;
    let more = u32::from(packets - 1) + u32::from(u.ratio(1, 32)?);
    last.bth.psn = first.bth.psn.add(more);
    last.bth.ack_req = u.arbitrary()?;
    if let Opcode::Roce(transport, op) = first.bth.opcode {
        // The operations of a family follow each other: first, middle, last, and last with more.
        let later = (op as u8).wrapping_add(u8::arbitrary(u)? % 4);
        let code = transport as u8 | later & 0x1F;
        last.bth.opcode = Opcode::from_u8(code).unwrap_or(first.bth.opcode);
    }
    last.imm = Some(*b"last");
    last.ieth = Some(u32::arbitrary(u)?);
    last.aeth = last.aeth.or(Some(Aeth {
        syndrome: Syndrome::ACK,
        msn: 0,
    }));
    let mut head = [packets.to_ne_bytes(), piece.to_ne_bytes()].concat();
    let mut buf = [0; 128];
    let complete = |packet: &Packet<'_>| {
        let headers = packet.bth.opcode.headers();
        let missing = [
            (Headers::RETH, packet.reth.is_none()),
            (Headers::ATOMIC_ETH, packet.atomic.is_none()),
            (Headers::ATOMIC_ACK_ETH, packet.atomic_ack.is_none()),
            (Headers::FETH, packet.feth.is_none()),
            (Headers::DETH, packet.deth.is_none()),
            (Headers::XRCETH, packet.xrc_srqn.is_none()),
        ];
        missing
            .iter()
            .all(|(header, missing)| !missing || !headers.contains(*header))
    };
    for packet in [Some(&first), (packets > 1).then_some(&last)]
        .into_iter()
        .flatten()
        .filter(|packet| complete(packet))
    {
        let len = packet.emit_header(0, &mut buf);
        head.extend_from_slice(&buf[..len]);
    }
    if u.ratio(1, 16)? {
        let at = usize::from(u8::arbitrary(u)?) % head.len();
        head[at] ^= u8::arbitrary(u)?;
    }
    let whole = usize::from(packets) * usize::from(piece);
    let less = usize::from(u16::arbitrary(u)?) % (usize::from(piece) + 2);
    Ok((head, vec![0x3C; whole.saturating_sub(less)]))
}
