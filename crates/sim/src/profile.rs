//! What kind of world a seed stands for.

use crate::fabric::Faults;
use crate::random::Random;

/// The shape of a world; chances in ten thousand.
#[derive(Clone, Debug)]
pub(crate) struct Profile {
    pub(crate) nodes: usize,
    /// RC, XRC and UC connections, and UD queue pairs in all.
    pub(crate) rc: usize,
    pub(crate) xrc: usize,
    pub(crate) uc: usize,
    pub(crate) ud: usize,
    /// Messages to be posted.
    pub(crate) messages: u64,
    pub(crate) max_len: usize,
    pub(crate) faults: Faults,
    /// Receive buffers of a queue.
    pub(crate) recv_slots: u16,
    /// Chance that a receive queue is not filled up when it could be.
    pub(crate) lazy: u32,
    /// Receive queues are shared on this many nodes.
    pub(crate) srq: u32,
    /// Requests that the peer must refuse.
    pub(crate) poison: u32,
    /// Queue pairs reset, destroyed or put into ERR, keys taken away, nodes restarted.
    pub(crate) kill: u32,
    pub(crate) stall: u32,
    /// A completion queue is made too small.
    pub(crate) overrun: u32,
    pub(crate) drain: u32,
    pub(crate) unsignaled: u32,
    pub(crate) fence: u32,
    pub(crate) inline: u32,
    /// Chance that a work request binds or unbinds a memory window; without it there are none.
    pub(crate) windows: u32,
    /// Chance that a NIC cannot send all it wants at once.
    pub(crate) choke: u32,
    /// The longest train, in bytes; 0 where the wire carries none.
    pub(crate) train: u32,
    /// Local ACK timeout of all connections.
    pub(crate) timeout: u8,
    /// RNR retries and retries are few, so that giving up is legal.
    pub(crate) impatient: bool,
}

impl Profile {
    pub(crate) fn of(random: &mut Random) -> Self {
        let kind = random.below(40);
        let mut p = match kind {
            0 => Self::large(random),
            1..10 => Self::packets(random),
            _ => Self::small(random),
        };
        p.faults = faults(random);
        if kind == 0 {
            let f = &mut p.faults;
            (f.loss, f.corrupt, f.late) = (f.loss.min(30), f.corrupt.min(30), f.late.min(30));
        }
        p.faults.lateness = 2 * p.timeout_ns();
        p.impatient = random.chance(1500);
        if p.impatient {
            p.faults.fair = false;
        }
        if random.chance(4000) {
            p.poison = random.pick(&[5, 20, 100]);
        }
        if random.chance(4000) {
            p.kill = random.pick(&[5, 20, 60]);
        }
        if random.chance(3000) {
            p.stall = random.pick(&[10, 50]);
        }
        if random.chance(1500) {
            p.overrun = random.pick(&[3, 10]);
        }
        if random.chance(3000) {
            p.drain = random.pick(&[20, 100]);
        }
        p
    }

    fn small(random: &mut Random) -> Self {
        let nodes = random.pick(&[2, 2, 2, 3, 4, 8, 16]);
        Self {
            nodes,
            rc: random.between(1, (nodes as u64 + 1).min(12)) as usize,
            xrc: if random.chance(3000) {
                random.between(1, (nodes as u64).min(4)) as usize
            } else {
                0
            },
            uc: usize::from(random.chance(2500)),
            ud: if random.chance(2500) { nodes.min(4) } else { 0 },
            messages: random.pick(&[2_000, 6_000, 12_000]),
            max_len: random.pick(&[64, 256, 700]),
            faults: Faults::default(),
            recv_slots: random.pick(&[4, 16, 32]),
            lazy: random.pick(&[0, 0, 3000, 8000]),
            srq: random.pick(&[0, 0, 5000]),
            poison: 0,
            kill: 0,
            stall: 0,
            overrun: 0,
            drain: 0,
            unsignaled: random.pick(&[0, 3000, 9000]),
            fence: random.pick(&[0, 500, 3000]),
            inline: random.pick(&[0, 3000, 9000]),
            windows: random.pick(&[0, 0, 200, 800]),
            choke: random.pick(&[0, 0, 1000]),
            train: random.pick(&[0, 1_500, 5_000, 65_536]),
            timeout: random.pick(&[5, 6, 8]),
            impatient: false,
        }
    }

    fn packets(random: &mut Random) -> Self {
        Self {
            nodes: random.between(2, 4) as usize,
            rc: random.between(1, 4) as usize,
            messages: random.pick(&[500, 1_500]),
            max_len: random.pick(&[3_000, 9_000, 20_000]),
            recv_slots: random.pick(&[4, 8]),
            ..Self::small(random)
        }
    }

    fn large(random: &mut Random) -> Self {
        Self {
            nodes: 2,
            rc: random.between(1, 2) as usize,
            xrc: usize::from(random.chance(3000)),
            uc: 0,
            ud: 0,
            messages: 40,
            max_len: random.pick(&[300_000, 1 << 20, 3 << 20]),
            recv_slots: 3,
            ..Self::small(random)
        }
    }

    pub(crate) fn timeout_ns(&self) -> u64 {
        adverb_wire::ack_timeout_ns(self.timeout).unwrap_or(u64::MAX)
    }

    /// How long a connection needs to get over the worst that the wire does in one go.
    pub(crate) fn recovery(&self) -> u64 {
        6 * self.timeout_ns()
    }
}

fn faults(random: &mut Random) -> Faults {
    let latency = random.pick(&[300, 1_000, 5_000]);
    let mut f = Faults {
        latency,
        jitter: random.pick(&[0, latency / 4, latency]),
        fair: random.chance(8000),
        ..Faults::default()
    };
    // A quarter of the worlds have a perfect wire, the rest are bad in one way or in all.
    match random.below(8) {
        0 | 1 => {}
        2 => f.loss = random.pick(&[10, 100, 500, 1500]),
        3 => f.corrupt = random.pick(&[10, 300]),
        4 => f.late = random.pick(&[10, 100, 500]),
        5 => f.duplicate = random.pick(&[100, 1000]),
        _ => {
            f.loss = random.pick(&[10, 100, 500]);
            f.corrupt = random.pick(&[0, 10, 100]);
            f.duplicate = random.pick(&[0, 100, 1000]);
            f.late = random.pick(&[0, 10, 300]);
        }
    }
    f
}
