//! One NIC: what its queue pairs share (memory, completion queues, a receive queue) and how each of
//! them sees it. The queue pairs themselves are kept with the oracle, in `oracle.rs`.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};

use adverb_engine::{
    Access, Completion, Cq, Host, Instant, Key, KeyError, MemAccess, MwBind, PdId, Push, Qp,
    QpEvent, QpNum, QpState, RecvWqe, Side, Srq, WcStatus,
};
use adverb_wire::Gid;

use crate::memory::{Memory, RegionId};

pub const PD: PdId = PdId(7);

/// The address of node `n`.
pub const fn ip_of(n: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, n as u8 + 1))
}

pub const fn gid_of(n: usize) -> Gid {
    Gid::from_ipv4(Ipv4Addr::new(10, 0, 0, n as u8 + 1))
}

/// A completion queue and the program that reads it.
#[derive(Debug)]
pub struct Queue {
    pub cq: Cq,
    /// The program waits for events and never looks without one.
    pub waits: bool,
    /// An event was raised and not taken.
    pub fired: bool,
    /// The program has read everything after an event, and has yet to arm again.
    pub drained: bool,
    /// It was full when one more came; nothing is added any more.
    pub broken: bool,
}

/// A shared receive queue with its buffers, all of one size.
#[derive(Debug)]
pub struct Shared {
    pub srq: Srq,
    /// Of an XRC domain: its number, and the protection domain it brings along.
    pub xrc: Option<(u32, PdId)>,
    /// XRC: where its receives complete.
    pub cq: usize,
    pub buffers: RegionId,
    pub free: Vec<u16>,
    /// Posted and not completed, by buffer.
    pub posted: Vec<Option<u64>>,
    pub serial: u64,
}

/// What a queue pair's completions and events go through.
#[derive(Debug, Default)]
pub struct Port {
    pub num: QpNum,
    pub send_cq: usize,
    pub recv_cq: usize,
    pub srq: bool,
    /// XRC: it receives into whichever SRQ of its domain a request names.
    pub target: bool,
    /// Completion queues of the node that this queue pair's completions cannot reach any more.
    pub lost: [bool; 2],
    /// One of them was needed just now.
    pub failing: bool,
    /// Entries taken from an SRQ and not completed; the number is that of an XRC SRQ.
    pub taken: VecDeque<(Option<u32>, u64)>,
    /// Receives that ended well, whether polled or not.
    pub received: u64,
    pub comm_est: u32,
    pub drained: u32,
    pub last_wqe: u32,
    /// Refusals of what the peer asked for, and ends that no completion tells of.
    pub refused: u32,
}

/// A queue pair in its place.
#[derive(Debug)]
pub struct Cell {
    pub qp: Qp,
    pub port: Port,
    /// Node of the peer; not looked at for datagrams.
    pub peer_node: usize,
    /// When the timer that is set goes off.
    pub registered: Option<u64>,
    pub listed: bool,
}

/// What queue pairs of a node share.
#[derive(Debug)]
pub struct Common {
    pub memory: Memory,
    pub queues: Vec<Queue>,
    pub shared: Vec<Shared>,
}

impl Common {
    /// Entries of the SRQ that a queue pair had taken are gone with it; their buffers are free.
    pub fn forget_taken(&mut self, port: &mut Port) {
        for (number, id) in port.taken.drain(..) {
            if let Some(shared) = self.shared_of(number) {
                let buffer = id as u16;
                shared.posted[usize::from(buffer)] = None;
                shared.free.push(buffer);
            }
        }
    }

    /// The XRC SRQ of this number, or the ordinary one.
    pub fn shared_of(&mut self, number: Option<u32>) -> Option<&mut Shared> {
        let of = |s: &&mut Shared| s.xrc.map(|(number, _)| number) == number;
        self.shared.iter_mut().find(of)
    }
}

#[derive(Debug)]
pub struct Node {
    pub common: Common,
    /// Nothing is taken from the wire and no timer is looked at before then.
    pub stalled_until: u64,
    /// Sources of SEND and WRITE and of READs by others; never changes.
    pub source: RegionId,
    /// One word that everybody adds to.
    pub counter: RegionId,
}

/// A node as one of its queue pairs sees it.
pub struct View<'a> {
    pub common: &'a mut Common,
    pub port: &'a mut Port,
}

impl Queue {
    /// Adds a completion; false when there was no room, now or before.
    fn add(&mut self, c: &Completion) -> bool {
        let full = self.broken || self.cq.len() >= self.cq.capacity();
        let pushed = self.cq.push(c);
        assert_eq!(
            pushed == Push::Overrun,
            full,
            "{} of {} are used, but {c:?} is {pushed:?}",
            self.cq.len(),
            self.cq.capacity()
        );
        self.broken = full;
        self.fired |= pushed == Push::Queued { fire: true };
        assert_eq!(self.cq.has_overrun(), full);
        !full
    }
}

impl Cell {
    /// A queue pair whose completion found no room fails; whether that is so.
    pub fn settle(&mut self, common: &mut Common, now: Instant) -> bool {
        if !std::mem::take(&mut self.port.failing) {
            return false;
        }
        let dead = |qp: &Qp| matches!(qp.state(), QpState::Reset | QpState::Err);
        let news = u32::from(!dead(&self.qp));
        let told = self.port.refused;
        let (qp, mut view) = self.split(common);
        qp.fail(now, &mut view);
        // What is flushed is lost as well, and that is no news.
        self.port.failing = false;
        assert!(dead(&self.qp));
        assert_eq!(
            self.port.refused - told,
            news,
            "{:?}: the end is told once",
            self.port.num
        );
        true
    }

    /// The queue pair, and what it sees.
    pub const fn split<'a>(&'a mut self, common: &'a mut Common) -> (&'a mut Qp, View<'a>) {
        (
            &mut self.qp,
            View {
                common,
                port: &mut self.port,
            },
        )
    }
}

impl View<'_> {
    fn take(&mut self, number: Option<u32>, into: &mut RecvWqe) -> bool {
        let Some(shared) = self.common.shared_of(number) else {
            return false;
        };
        if shared.srq.take(into).is_none() {
            return false;
        }
        self.port.taken.push_back((number, into.wr_id));
        true
    }

    /// Where a receive is reported: an XRC SRQ has a completion queue of its own.
    fn receive_cq(&mut self, side: Side, c: &Completion) -> usize {
        let Side::XrcSrq(number) = side else {
            assert!(!self.port.target, "{c:?} belongs to an SRQ");
            return self.port.recv_cq;
        };
        let newest = self.port.taken.back();
        assert_eq!(newest, Some(&(Some(number), c.wr_id)), "{c:?}");
        let shared = self.common.shared_of(Some(number));
        shared.expect("an entry of it was taken").cq
    }
}

impl Host for View<'_> {
    fn check(&mut self, a: &MemAccess) -> Result<(), KeyError> {
        self.common.memory.check(a)
    }

    fn write(&mut self, a: &MemAccess, data: &[u8]) -> Result<(), KeyError> {
        self.common.memory.write(a, data)
    }

    fn read(&mut self, a: &MemAccess, out: &mut [u8]) -> Result<(), KeyError> {
        self.common.memory.read(a, out)
    }

    fn compare_swap(&mut self, a: &MemAccess, compare: u64, swap: u64) -> Result<u64, KeyError> {
        self.common
            .memory
            .word(a, |old| if old == compare { swap } else { old })
    }

    fn fetch_add(&mut self, a: &MemAccess, add: u64) -> Result<u64, KeyError> {
        self.common.memory.word(a, |old| old.wrapping_add(add))
    }

    fn invalidate(&mut self, key: Key, pd: PdId, qp: QpNum) -> Result<(), KeyError> {
        self.common.memory.invalidate(key, pd, qp)
    }

    fn bind(&mut self, bind: &MwBind, pd: PdId, qp: QpNum) -> Result<(), KeyError> {
        self.common.memory.bind(bind, pd, qp)
    }

    fn take_srq(&mut self, into: &mut RecvWqe) -> bool {
        assert!(self.port.srq, "{:?} has a queue of its own", self.port.num);
        self.take(None, into)
    }

    fn xrc_srq(&mut self, number: u32) -> Option<PdId> {
        assert!(self.port.target, "{:?} is no target", self.port.num);
        let shared = self.common.shared_of(Some(number))?;
        shared.xrc.map(|(_, pd)| pd)
    }

    fn take_xrc_srq(&mut self, number: u32, into: &mut RecvWqe) -> bool {
        assert!(self.port.target, "{:?} is no target", self.port.num);
        self.take(Some(number), into)
    }

    fn complete(&mut self, queue: Side, c: &Completion) {
        assert_eq!(c.qp_num, self.port.num);
        let index = match queue {
            Side::Send => self.port.send_cq,
            Side::Recv | Side::XrcSrq(_) => {
                assert_eq!(
                    self.port.last_wqe, 0,
                    "a receive after the last one was announced"
                );
                if c.status == WcStatus::Success {
                    self.port.received += 1;
                }
                self.receive_cq(queue, c)
            }
        };
        if !self.port.lost[index] && self.common.queues[index].add(c) {
            return;
        }
        self.port.lost[index] = true;
        self.port.failing = true;
    }

    fn event(&mut self, e: QpEvent) {
        let port = &mut *self.port;
        match e {
            QpEvent::CommEst => port.comm_est += 1,
            QpEvent::SqDrained => port.drained += 1,
            QpEvent::LastWqeReached => port.last_wqe += 1,
            QpEvent::Fatal | QpEvent::RequestError | QpEvent::AccessError => port.refused += 1,
        }
    }
}

/// Rights of memory that peers use in every way.
pub const OPEN: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC)
    .union(Access::FLUSH_GLOBAL);
