//! One end of a connection: a queue pair, its completion queue and its buffers, with the few
//! operations that the measurements need.
//!
//! All memory is registered at the start, and buffers go round between here and the device.

use std::collections::VecDeque;

use adverb::transport::Rc;
use adverb::{
    AccessFlags, Buf, Completion, CompletionQueue, Endpoint, Exposed, Info, Notify, OpId, OpKind,
    PostFlags, QueuePair, RemoteRegion, Repolled, Wait,
};
use anyhow::{Context as _, Result, bail};

use super::control::{Card, Opening, StreamOp};

/// Most requests in flight at fixed gaps.
pub(crate) const WINDOW: usize = 256;
/// Most READs and atomics in flight; common devices serve 16.
pub(crate) const MAX_READS: usize = 16;

/// How many operations of `size` bytes a stream keeps in flight: enough to fill the longest
/// pipe, bounded in bytes.
pub(crate) fn stream_window(size: usize) -> usize {
    (STREAM_BYTES / size.max(1)).clamp(2, 64)
}

/// A message without content, which begins or ends what is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    Start,
    Stop,
}

/// What was received.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) mark: Option<Mark>,
    /// Number of the message, as far as its bytes have room for it.
    pub(crate) sequence: u64,
    bytes: usize,
}

impl Arrival {
    pub(crate) fn new(mark: Option<Mark>, sequence: u64, bytes: usize) -> Self {
        Self {
            mark,
            sequence,
            bytes,
        }
    }

    /// Whether it is the message of this number.
    pub(crate) fn sequence_matches(&self, expected: u64) -> bool {
        let kept = self.bytes.min(8);
        self.sequence.to_le_bytes()[..kept] == expected.to_le_bytes()[..kept]
    }
}

/// What one poll found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Polled {
    received: usize,
    /// Operations of a stream that are over.
    pub(crate) finished: usize,
}

impl Polled {
    pub(crate) fn is_empty(self) -> bool {
        self.received + self.finished == 0
    }
}

pub(crate) struct Session {
    // Fields drop in this order: the queue pair lets go of the buffers first.
    qp: QueuePair<Rc>,
    cq: CompletionQueue,
    exposed: Exposed,
    device: String,
    /// Largest message in bytes.
    size: usize,
    remote: Option<RemoteRegion>,
    /// Buffers for operations of ours, and how many there are in all.
    pool: Vec<Buf>,
    pool_size: usize,
    /// Operations since the last one that announces its end.
    unsignaled: usize,
    /// Marks whose sending is not over yet, so that they do not count as finished operations.
    marks: Vec<OpId>,
    done: Vec<Completion>,
    arrived: VecDeque<Arrival>,
    finished: usize,
}

impl Session {
    pub(crate) fn open(opening: &Opening) -> Result<Self> {
        let context = match &opening.device {
            Some(name) => adverb::open(name)?,
            None => adverb::open_default()?,
        };
        let size = opening.size.max(1);
        let stride = size.max(8).next_multiple_of(8);
        let pool_size = (POOL_BYTES / stride).clamp(stream_window(size).max(4), QUEUE);
        let receives = (POOL_BYTES / stride).clamp(stream_window(size) * 4, QUEUE);
        let pd = context.alloc_pd()?;
        let cq = context.create_cq((QUEUE + receives) as u32).build()?;
        let qp = pd
            .create_qp::<Rc>(&cq)
            .max_send_wr(QUEUE as u32)
            .max_recv_wr(receives as u32)
            .max_inline(INLINE)
            .build()?;
        let access =
            AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
        for buf in cut(pd.alloc_buf(receives * stride)?, stride, receives) {
            qp.post_recv(buf)?;
        }
        Ok(Self {
            qp,
            exposed: pd.expose(stride, access)?,
            device: context.device().name().to_owned(),
            size,
            remote: None,
            pool: cut(pd.alloc_buf(pool_size * stride)?, stride, pool_size),
            pool_size,
            unsignaled: 0,
            marks: Vec::new(),
            done: Vec::with_capacity(2 * QUEUE),
            arrived: VecDeque::with_capacity(QUEUE),
            finished: 0,
            cq,
        })
    }

    /// Largest message in bytes.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    pub(crate) fn card(&self) -> Result<Card> {
        Ok(Card {
            device: self.device.clone(),
            endpoint: self.qp.endpoint().to_string(),
            region: self.exposed.remote().to_string(),
            sockets: None,
        })
    }

    pub(crate) fn connect(&mut self, peer: &Card) -> Result<()> {
        let endpoint: Endpoint = peer.endpoint.parse()?;
        self.remote = Some(peer.region.parse()?);
        self.qp
            .connect(&endpoint)
            .with_context(|| format!("cannot connect {} to {endpoint}", self.device))
    }

    /// Sends one message with a number in it.
    pub(crate) fn send(&mut self, sequence: u64, size: usize) -> Result<()> {
        let buf = self.numbered(sequence, size)?;
        let flags = self.flags(size);
        self.qp.with(flags).send(buf)?;
        Ok(())
    }

    /// Sends several messages and tells the device about all of them at once.
    pub(crate) fn send_all(&mut self, sequences: &[u64], size: usize) -> Result<()> {
        for few in sequences.chunks(self.pool_size / 4 + 1) {
            let mut staged = Vec::with_capacity(few.len());
            for &sequence in few {
                staged.push((self.numbered(sequence, size)?, self.flags(size)));
            }
            let mut batch = self.qp.batch();
            for (buf, flags) in staged {
                batch.with(flags).send(buf)?;
            }
            batch.post()?;
        }
        Ok(())
    }

    pub(crate) fn send_mark(&mut self, mark: Mark) -> Result<()> {
        let mut buf = self.buffer()?;
        buf.set_len(0)?;
        let imm = match mark {
            Mark::Start => START,
            Mark::Stop => STOP,
        };
        let id = self.qp.post_send_imm(buf, imm)?;
        self.marks.push(id);
        Ok(())
    }

    /// Starts an operation of a stream; its end counts as finished.
    pub(crate) fn post(&mut self, op: StreamOp, size: usize) -> Result<()> {
        let mut buf = self.buffer()?;
        buf.set_len(size)?;
        let near = self.remote.context("not connected")?;
        let remote = near.slice(..size as u64)?;
        match op {
            StreamOp::Send => self.qp.post_send(buf)?,
            StreamOp::Write => self.qp.post_write(buf, remote)?,
            StreamOp::Read => self.qp.post_read(buf, remote)?,
            StreamOp::FetchAdd => self.qp.post_fetch_add(buf, remote, 1)?,
        };
        Ok(())
    }

    /// Writes `size` bytes that end with a number at the end of the peer's memory; with immediate
    /// data the peer gets a completion too.
    pub(crate) fn write_round(&mut self, round: u64, size: usize, immediate: bool) -> Result<()> {
        let mut buf = self.buffer()?;
        buf.set_len(size)?;
        let kept = size.min(8);
        buf[size - kept..].copy_from_slice(&round.to_le_bytes()[..kept]);
        let remote = self.remote.context("not connected")?;
        let to = remote.slice(remote.len - size as u64..)?;
        let flags = self.flags(size);
        let poster = self.qp.with(flags);
        if immediate {
            poster.write_imm(buf, to, round as u32)?;
        } else {
            poster.write(buf, to)?;
        }
        Ok(())
    }

    /// Whether the peer has written this number.
    pub(crate) fn last_word_is(&self, round: u64, size: usize) -> Result<bool> {
        let at = self.exposed.len() - 8;
        let word = self
            .exposed
            .load_u64(at, std::sync::atomic::Ordering::Acquire)?;
        let kept = size.min(8);
        Ok(word.to_ne_bytes()[8 - kept..] == round.to_le_bytes()[..kept])
    }

    /// Takes what has completed; arrivals are appended. Never waits.
    pub(crate) fn poll(&mut self, arrivals: &mut Vec<Arrival>) -> Result<Polled> {
        // What a wait has found already needs no other look.
        if self.arrived.is_empty() && self.finished == 0 {
            self.collect()?;
        }
        let polled = Polled {
            received: self.arrived.len(),
            finished: std::mem::take(&mut self.finished),
        };
        arrivals.extend(self.arrived.drain(..));
        Ok(polled)
    }

    /// Arms the completion queue, polls it once more, and sleeps until its event if that found
    /// nothing; otherwise the next poll returns at once. Whether it slept.
    pub(crate) fn arm_and_sleep(&mut self) -> Result<bool> {
        match self.cq.arm(Notify::Any)?.repoll(&mut self.done)? {
            Repolled::Found(_) => {
                self.sort()?;
                Ok(false)
            }
            Repolled::Empty(sleep) => {
                sleep.wait(None)?;
                Ok(true)
            }
        }
    }

    /// Waits until something has completed, for the next poll to take.
    pub(crate) fn wait(&mut self, how: Wait) -> Result<()> {
        self.cq.wait(&mut self.done, how, None)?;
        self.sort()
    }

    /// How often adaptive waiting has gone to sleep.
    pub(crate) fn sleeps_by_policy(&self) -> u64 {
        self.cq.wait_counters().map_or(0, |counters| counters.arms)
    }

    fn collect(&mut self) -> Result<()> {
        if self.cq.poll(&mut self.done)? > 0 {
            self.sort()?;
        }
        Ok(())
    }

    /// Buffers back to where they came from, receives into `arrived`.
    fn sort(&mut self) -> Result<()> {
        for completion in self.done.drain(..) {
            let Completion {
                id, kind, result, ..
            } = &completion;
            let info = match result {
                Ok(info) => *info,
                Err(error) => bail!("{kind:?} failed: {error}"),
            };
            let (id, kind) = (*id, *kind);
            let buf = completion.into_buf();
            if kind == OpKind::Recv {
                let buf = buf.context("a receive came back without its buffer")?;
                self.arrived.push_back(arrival(&info, &buf)?);
                self.qp.post_recv(buf)?;
                continue;
            }
            self.pool.extend(buf);
            match self.marks.iter().position(|mark| *mark == id) {
                Some(mark) => {
                    self.marks.swap_remove(mark);
                }
                None => self.finished += 1,
            }
        }
        Ok(())
    }

    fn numbered(&mut self, sequence: u64, size: usize) -> Result<Buf> {
        let mut buf = self.buffer()?;
        buf.set_len(size)?;
        let kept = size.min(8);
        buf[..kept].copy_from_slice(&sequence.to_le_bytes()[..kept]);
        Ok(buf)
    }

    /// A free buffer; waits for operations to end when there is none, as their number is bounded
    /// by what the peer has acknowledged.
    fn buffer(&mut self) -> Result<Buf> {
        let mut looks = 0_u32;
        loop {
            if let Some(buf) = self.pool.pop() {
                return Ok(buf);
            }
            self.collect()?;
            looks += 1;
            if looks.is_multiple_of(LOOKS_PER_YIELD) {
                std::thread::yield_now();
            }
        }
    }

    /// Small messages go inline, and only now and then one announces that it and those before
    /// it are over.
    fn flags(&mut self, size: usize) -> PostFlags {
        let mut flags = PostFlags::empty();
        if size <= self.qp.max_inline() as usize {
            flags |= PostFlags::INLINE;
        }
        self.unsignaled += 1;
        if self.unsignaled < self.pool_size / 4 {
            flags |= PostFlags::UNSIGNALED;
        } else {
            self.unsignaled = 0;
        }
        flags
    }
}

fn arrival(info: &Info, buf: &Buf) -> Result<Arrival> {
    let mark = match info.imm {
        _ if info.by_write => None,
        None => None,
        Some(START) => Some(Mark::Start),
        Some(STOP) => Some(Mark::Stop),
        Some(other) => bail!("the other side sent immediate data {other:#x}, which means nothing"),
    };
    let mut number = [0; 8];
    let kept = buf.len().min(8);
    number[..kept].copy_from_slice(&buf[..kept]);
    Ok(Arrival {
        mark,
        sequence: u64::from_le_bytes(number),
        bytes: buf.len(),
    })
}

/// `count` pieces of `stride` bytes.
fn cut(mut whole: Buf, stride: usize, count: usize) -> Vec<Buf> {
    let mut pieces = Vec::with_capacity(count);
    for index in (1..count).rev() {
        pieces.push(whole.split_off(index * stride));
    }
    pieces.push(whole);
    pieces
}

/// Entries of a queue.
const QUEUE: usize = 512;
/// Bytes for messages in each direction, unless a window of them needs more.
const POOL_BYTES: usize = 32 << 20;
/// Bytes of a stream in flight.
const STREAM_BYTES: usize = 16 << 20;
/// Bytes that are asked to go inline.
const INLINE: u32 = 64;
const LOOKS_PER_YIELD: u32 = 64;
const START: u32 = 1;
const STOP: u32 = 2;
