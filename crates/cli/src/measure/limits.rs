//! What the machine can do at best, measured in the same run as the figures it stands beside:
//! the yardsticks of `bench`, and the cost of a wake-up, which sets the budget of the adaptive
//! model.
//!
//! All of them run between two threads on the two cores that the two processes use.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};

use super::cores::{Cores, pin};
use super::ns;
use super::summary::{Latencies, median};

/// Half of a round trip between two cores through two shared cache lines, in nanoseconds.
pub(crate) fn shared_line_hop_ns(cores: Cores) -> f64 {
    #[repr(align(128))]
    struct Line(AtomicU64);
    let (there, back) = (Line(AtomicU64::new(0)), Line(AtomicU64::new(0)));
    let await_value = |line: &Line, value: u64| {
        let mut looks = 0_u32;
        while line.0.load(Ordering::Acquire) != value {
            looks += 1;
            pause(cores, looks);
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            pin(cores.server);
            for round in 1..=HOP_BATCHES * HOP_BATCH {
                await_value(&there, round);
                back.0.store(round, Ordering::Release);
            }
        });
        let pinger = scope.spawn(|| {
            pin(cores.client);
            let mut round = 0;
            let batches = (0..HOP_BATCHES).map(|_| {
                let start = Instant::now();
                for _ in 0..HOP_BATCH {
                    round += 1;
                    there.0.store(round, Ordering::Release);
                    await_value(&back, round);
                }
                ns(start.elapsed()) as f64 / (2 * HOP_BATCH) as f64
            });
            median(batches.collect())
        });
        pinger.join().expect("the pinging thread does not panic")
    })
}

/// What it takes until a blocked thread on the other core runs: half of a round trip of two
/// eventfds in which both sides block, in nanoseconds (median).
pub(crate) fn wakeup_ns(cores: Cores) -> io::Result<f64> {
    let (there, back) = (
        eventfd(0, EventfdFlags::CLOEXEC)?,
        eventfd(0, EventfdFlags::CLOEXEC)?,
    );
    let ring = |fd| rustix::io::write(fd, &1_u64.to_ne_bytes());
    let sleep = |fd| rustix::io::read(fd, &mut [0_u8; 8]);
    thread::scope(|scope| {
        let echo = scope.spawn(|| {
            pin(cores.server);
            for _ in 0..WAKEUPS {
                sleep(&there)?;
                ring(&back)?;
            }
            io::Result::Ok(())
        });
        let pinger = scope.spawn(|| {
            pin(cores.client);
            let mut trips = Latencies::new();
            for round in 0..WAKEUPS {
                let start = Instant::now();
                ring(&there)?;
                sleep(&back)?;
                if round >= WAKEUPS / 10 {
                    trips.record(ns(start.elapsed()));
                }
            }
            io::Result::Ok(trips.summary().halved().p50_ns)
        });
        echo.join().expect("the echoing thread does not panic")?;
        pinger.join().expect("the pinging thread does not panic")
    })
}

/// Bytes per second of a stream that one core copies into chunks and the other out of them, in
/// GB/s: what any link without direct access to the peer's memory has to do.
pub(crate) fn two_copy_stream_gb_per_s(cores: Cores) -> f64 {
    let (full_in, full_out) = sync_channel::<Box<[u8]>>(CHUNKS);
    let (empty_in, empty_out) = sync_channel::<Box<[u8]>>(CHUNKS);
    for _ in 0..CHUNKS {
        empty_in
            .send(vec![1; CHUNK].into())
            .expect("the other end is here");
    }
    thread::scope(|scope| {
        scope.spawn(move || {
            pin(cores.server);
            let mut sink = vec![1_u8; STREAM_SET];
            for place in (0..STREAM_SET / CHUNK).cycle() {
                let Some(chunk) = spin_receive(cores, &full_out) else {
                    break;
                };
                sink[place * CHUNK..][..CHUNK].copy_from_slice(&chunk);
                // At the end nobody takes chunks back any more.
                if empty_in.try_send(chunk).is_err() {
                    break;
                }
            }
            std::hint::black_box(&sink);
        });
        let source = scope.spawn(move || copy_in(cores, &full_in, &empty_out));
        source.join().expect("the copying thread does not panic")
    })
}

fn copy_in(cores: Cores, full: &SyncSender<Box<[u8]>>, empty: &Receiver<Box<[u8]>>) -> f64 {
    pin(cores.client);
    let source = vec![2_u8; STREAM_SET];
    let begin = Instant::now();
    let mut lap = begin;
    let mut copied = 0;
    let mut best = 0.0;
    for place in (0..STREAM_SET / CHUNK).cycle() {
        let Some(mut chunk) = spin_receive(cores, empty) else {
            break;
        };
        chunk.copy_from_slice(&source[place * CHUNK..][..CHUNK]);
        if full.try_send(chunk).is_err() {
            break;
        }
        copied += CHUNK;
        if copied == STREAM_LAP {
            // A limit is what the machine can do when it is left alone: the best lap counts.
            best = f64::max(best, copied as f64 / ns(lap.elapsed()).max(1) as f64);
            (copied, lap) = (0, Instant::now());
            if begin.elapsed() >= STREAM_TIME {
                break;
            }
        }
    }
    best
}

/// Receives without a system call: a wake-up would cost more than the chunk.
fn spin_receive<T>(cores: Cores, from: &Receiver<T>) -> Option<T> {
    let mut looks = 0;
    loop {
        match from.try_recv() {
            Ok(value) => return Some(value),
            Err(TryRecvError::Disconnected) => return None,
            Err(TryRecvError::Empty) => {
                looks += 1;
                pause(cores, looks);
            }
        }
    }
}

/// Half of a round trip of 8 bytes between two busy UDP sockets on the loopback interface, in
/// nanoseconds (median): what the udp link cannot undercut.
pub(crate) fn udp_hop_ns(cores: Cores) -> io::Result<f64> {
    let here = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let there = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    here.connect(there.local_addr()?)?;
    there.connect(here.local_addr()?)?;
    here.set_nonblocking(true)?;
    there.set_nonblocking(true)?;
    // Of a machine so busy that each trip waits for its turn, and not of one that loses datagrams.
    let deadline = Instant::now() + Duration::from_secs(60);
    let receive = |socket: &UdpSocket| {
        let mut looks = 0;
        loop {
            match socket.recv(&mut [0_u8; 8]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    looks += 1;
                    pause(cores, looks);
                    if looks % 1024 == 0 && Instant::now() > deadline {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                other => return other,
            }
        }
    };
    thread::scope(|scope| {
        let echo = scope.spawn(|| {
            pin(cores.server);
            for _ in 0..UDP_TRIPS {
                receive(&there)?;
                there.send(&[0; 8])?;
            }
            io::Result::Ok(())
        });
        let pinger = scope.spawn(|| {
            pin(cores.client);
            let mut trips = Latencies::new();
            for _ in 0..UDP_TRIPS {
                let start = Instant::now();
                here.send(&[0; 8])?;
                receive(&here)?;
                trips.record(ns(start.elapsed()));
            }
            io::Result::Ok(trips.summary().halved().p50_ns)
        });
        echo.join().expect("the echoing thread does not panic")?;
        pinger.join().expect("the pinging thread does not panic")
    })
}

/// What one reading of the clock costs, in nanoseconds.
pub(crate) fn clock_ns() -> f64 {
    let start = Instant::now();
    for _ in 0..CLOCK_READS {
        std::hint::black_box(Instant::now());
    }
    ns(start.elapsed()) as f64 / f64::from(CLOCK_READS)
}

/// Between two looks of a spinning thread: the core is given away now and then, and always where
/// the other side needs the same one.
fn pause(cores: Cores, looks: u32) {
    if !cores.are_distinct() || looks.is_multiple_of(LOOKS_PER_YIELD) {
        thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
}

const HOP_BATCHES: u64 = 50;
const HOP_BATCH: u64 = 2_000;
const WAKEUPS: u32 = 1_500;
const UDP_TRIPS: u32 = 10_000;
const CLOCK_READS: u32 = 10_000;
/// A yield costs two hops, so it must be rare among looks that succeed.
const LOOKS_PER_YIELD: u32 = 4096;
const CHUNK: usize = 64 << 10;
const CHUNKS: usize = 16;
/// Larger than caches, on each side.
const STREAM_SET: usize = 64 << 20;
/// Far more than what fits into the chunks under way.
const STREAM_LAP: usize = 16 << 20;
const STREAM_TIME: Duration = Duration::from_millis(400);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_yardstick_ends_with_a_positive_figure() {
        let cores = Cores::choose();
        for value in [
            shared_line_hop_ns(cores),
            wakeup_ns(cores).unwrap(),
            two_copy_stream_gb_per_s(cores),
            udp_hop_ns(cores).unwrap(),
            clock_ns(),
        ] {
            assert!(value > 0.0 && value.is_finite(), "{value}");
        }
    }
}
