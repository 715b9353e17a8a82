//! The longest messages there are, on memory that is not really there.

use adverb_engine::*;
use adverb_wire::Packet;

use crate::harness::{Pair, Setup, gid};

/// Accepts everything and remembers where the end was.
#[derive(Default)]
struct Endless {
    highest: u64,
    completions: Vec<Completion>,
}

impl Endless {
    fn touch(&mut self, a: &MemAccess) -> Result<(), KeyError> {
        self.highest = self.highest.max(a.va + a.len);
        Ok(())
    }
}

impl Host for Endless {
    fn check(&mut self, _: &MemAccess) -> Result<(), KeyError> {
        Ok(())
    }
    fn write(&mut self, a: &MemAccess, _: &[u8]) -> Result<(), KeyError> {
        self.touch(a)
    }
    fn read(&mut self, a: &MemAccess, _: &mut [u8]) -> Result<(), KeyError> {
        self.touch(a)
    }
    fn compare_swap(&mut self, _: &MemAccess, _: u64, _: u64) -> Result<u64, KeyError> {
        Ok(0)
    }
    fn fetch_add(&mut self, _: &MemAccess, _: u64) -> Result<u64, KeyError> {
        Ok(0)
    }
    fn invalidate(&mut self, _: Key, _: PdId, _: QpNum) -> Result<(), KeyError> {
        Ok(())
    }
    fn bind(&mut self, _: &MwBind, _: PdId, _: QpNum) -> Result<(), KeyError> {
        Ok(())
    }
    fn take_srq(&mut self, _: &mut RecvWqe) -> bool {
        false
    }
    fn complete(&mut self, _: Side, c: &Completion) {
        self.completions.push(*c);
    }
    fn event(&mut self, _: QpEvent) {}
}

#[test]
fn messages_of_two_gibibytes_have_no_sign() {
    let mut setup = Setup::rc();
    setup.attr.path_mtu = 5;
    setup.attr.timeout = 0;
    setup.window = Some(1000);
    let mut p = Pair::new(setup);
    let half = Sge {
        addr: 0,
        len: 1 << 30,
        lkey: Key(1),
    };
    let sges = [
        half,
        Sge {
            addr: 1 << 30,
            ..half
        },
    ];
    let (remote_addr, rkey) = (1 << 40, Key(2));
    p.b.recv(3, &sges);
    p.a.send(1, SendOp::Write { remote_addr, rkey }, &sges);
    p.a.send(2, SendOp::Read { remote_addr, rkey }, &sges);
    p.a.send(3, SendOp::Send, &sges);

    // From here on the queue pairs see other memory than the pair's own.
    let (mut a, mut b) = (p.a.qp, p.b.qp);
    let (mut ha, mut hb) = (Endless::default(), Endless::default());
    let now = Instant::ZERO;
    let meta = PacketMeta {
        src: gid(1).to_ip(),
        dst: gid(2).to_ip(),
        traffic_class: 0,
        hop_limit: 64,
    };
    let mut buf = [0; 4200];
    let mut packets = 0;
    loop {
        let before = packets;
        while let Some(t) = a.poll_transmit(now, &mut ha, &mut buf) {
            let packet = Packet::parse(&buf[..t.len]).unwrap();
            b.handle_packet(now, &meta, &packet, &mut hb).unwrap();
            packets += 1;
        }
        while let Some(t) = b.poll_transmit(now, &mut hb, &mut buf) {
            let packet = Packet::parse(&buf[..t.len]).unwrap();
            a.handle_packet(now, &meta, &packet, &mut ha).unwrap();
            packets += 1;
        }
        if packets == before {
            break;
        }
    }
    let done: Vec<_> = ha.completions.iter().map(|c| (c.wr_id, c.status)).collect();
    assert_eq!(done, [1, 2, 3].map(|id| (id, WcStatus::Success)));
    assert_eq!(ha.completions[1].byte_len, 1 << 31);
    assert_eq!(hb.completions[0].byte_len, 1 << 31);
    assert_eq!(ha.highest, 1 << 31);
    assert_eq!(hb.highest, (1 << 40) + (1 << 31));
}
