//! No wake-up is lost: every interleaving of a thread that adds completions and one that arms, polls and sleeps.
//!
//! The queue is the real one; around it stands what a NIC puts there: a lock, and a channel whose events are raised
//! under that lock. Run with `RUSTFLAGS="--cfg loom"` and `--release`; a lost wake-up is a deadlock, which loom reports.
#![cfg(loom)]

use adverb_engine::{Completion, Cq, Instant, Push, QpNum, WcOpcode};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// Completions added, by one thread.
const COUNT: u64 = 3;

#[derive(Default)]
struct Channel {
    events: Mutex<u32>,
    raised: Condvar,
}

impl Channel {
    fn raise(&self) {
        *self.events.lock().unwrap() += 1;
        self.raised.notify_one();
    }

    /// As `ibv_get_cq_event` in blocking mode.
    fn next(&self) {
        let mut events = self.events.lock().unwrap();
        while *events == 0 {
            events = self.raised.wait(events).unwrap();
        }
        *events -= 1;
    }
}

struct Cell {
    queue: Mutex<Cq>,
    channel: Channel,
}

impl Cell {
    fn new(strict: bool) -> Arc<Self> {
        let mut queue = Cq::new(8);
        queue.set_strict(strict);
        Arc::new(Self {
            queue: Mutex::new(queue),
            channel: Channel::default(),
        })
    }

    fn push(&self, wr_id: u64, solicited: bool) {
        let mut c = Completion::success(wr_id, WcOpcode::Recv, QpNum(1), Instant::ZERO);
        c.solicited = solicited;
        let mut queue = self.queue.lock().unwrap();
        match queue.push(&c) {
            Push::Queued { fire: true } => self.channel.raise(),
            Push::Queued { fire: false } => {}
            Push::Overrun => panic!("eight are room enough"),
        }
    }

    fn arm(&self, solicited_only: bool) {
        let mut queue = self.queue.lock().unwrap();
        if queue.arm(solicited_only) {
            self.channel.raise();
        }
    }

    /// Polls until empty; how many there were. Each comes once and in order.
    fn drain(&self, next: &mut u64) -> u64 {
        let before = *next;
        while let Some(c) = self.queue.lock().unwrap().pop() {
            assert_eq!(c.wr_id, *next);
            *next += 1;
        }
        *next - before
    }
}

fn model(strict: bool, wait: impl Fn(&Cell) + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let cell = Cell::new(strict);
        let adder = {
            let cell = cell.clone();
            thread::spawn(move || (0..COUNT).for_each(|n| cell.push(n, n + 1 == COUNT)))
        };
        wait(&cell);
        adder.join().unwrap();
    });
}

/// Arm, look once more, sleep: right under any rule.
fn textbook(cell: &Cell) {
    let mut next = 0;
    while next < COUNT {
        cell.arm(false);
        if cell.drain(&mut next) == 0 {
            cell.channel.next();
            cell.drain(&mut next);
        }
    }
}

#[test]
fn the_textbook_loop_loses_nothing() {
    model(false, textbook);
}

#[test]
fn the_textbook_loop_loses_nothing_under_the_strict_rule() {
    model(true, textbook);
}

/// Sleep, arm, poll: no look between arming and sleeping but the one that the previous event paid for.
#[test]
fn a_loop_that_arms_before_it_drains_loses_nothing() {
    model(false, |cell| {
        let mut next = 0;
        cell.arm(false);
        while next < COUNT {
            cell.channel.next();
            cell.arm(false);
            cell.drain(&mut next);
        }
    });
}

/// Arms late and does not look again: what is lost under the strict rule and not under ours.
#[test]
fn a_loop_that_arms_after_it_drained_loses_nothing_under_the_kind_rule() {
    model(false, |cell| {
        let mut next = 0;
        while next < COUNT {
            cell.drain(&mut next);
            if next < COUNT {
                cell.arm(false);
                cell.channel.next();
            }
        }
    });
}

/// Only the last completion is solicited; it must wake, and all before it are there by then.
#[test]
fn a_solicited_completion_wakes_who_waits_for_one() {
    model(false, |cell| {
        let mut next = 0;
        cell.arm(true);
        cell.channel.next();
        cell.drain(&mut next);
        assert_eq!(next, COUNT);
    });
}
