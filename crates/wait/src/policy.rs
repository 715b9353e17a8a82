//! The policy: what to do after each empty poll.

use crate::account::Account;
use crate::bucket::Bucket;
use crate::counters::Counters;
use crate::limits::{Costs, Limits};
use crate::rhythm::{Alarm, Rhythm};
use crate::threshold::Threshold;
use crate::wake::Wake;

/// What to do after an empty poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Poll again.
    Spin,
    /// Give the core away, then poll again: somebody else wants it.
    Yield,
    /// Arm the queue, poll once more, and sleep until its event, or until this time if there is one. Then say
    /// [`Policy::woke`], and poll.
    Sleep {
        /// When to wake up without an event.
        until: Option<u64>,
    },
}

/// How one queue is waited on. Times are in ns from any start; one that goes backwards counts as standing still.
#[derive(Clone, Debug)]
pub struct Policy {
    /// What a wake-up costs, as far as is known by now.
    wake: u64,
    learned: Wake,
    limits: Limits,
    account: Account,
    bucket: Bucket,
    threshold: Threshold,
    rhythm: Rhythm,
    counters: Counters,
    now: u64,
    wait: Option<Wait>,
    /// The core is given away with each poll until then.
    polite_until: u64,
    polls: u32,
    /// What sleeping has added to messages of late, on average, times 64.
    added: u64,
}

/// A wait that has begun and not ended.
#[derive(Clone, Copy, Debug)]
struct Wait {
    since: u64,
    state: State,
    spun: u64,
    /// It went to sleep before it had spun for a W.
    early: bool,
    /// It is looked through, to learn what a wake-up costs.
    probe: bool,
    /// It had an alarm.
    napped: bool,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Since `from`, at most until `until`; an alarm may be set afterwards.
    Spinning { from: u64, until: u64, alarm: bool },
    /// Asleep since then, with an alarm perhaps.
    Asleep { alarm: Option<Alarm>, since: u64 },
    /// The event came; whether there is a message is seen by the next poll.
    Woken,
}

impl Policy {
    /// A policy that has seen nothing yet: it spins for twice W, and learns, among other things what W is.
    #[must_use]
    pub fn new(costs: Costs, limits: Limits) -> Self {
        let wake = costs.wake();
        Self {
            wake,
            learned: Wake::new(wake),
            limits,
            account: Account::new(wake),
            bucket: Bucket::new(limits.cpu_percent),
            threshold: Threshold::new(wake),
            rhythm: Rhythm::new(wake),
            counters: Counters::default(),
            now: 0,
            wait: None,
            polite_until: 0,
            polls: 0,
            added: 0,
        }
    }

    /// What has been done so far.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// What a wake-up costs, in ns: what was told at first, then what was learned.
    #[must_use]
    pub const fn wake_ns(&self) -> u64 {
        self.wake
    }

    /// Other limits from now on. The same ones again change nothing.
    pub fn limit(&mut self, limits: Limits) {
        if limits.cpu_percent != self.limits.cpu_percent {
            self.bucket = Bucket::new(limits.cpu_percent);
        }
        self.limits = limits;
    }

    /// Nobody waits any longer, and no message came.
    pub fn gave_up(&mut self, now: u64) {
        let now = self.tick(now);
        let Some(mut wait) = self.wait.take() else {
            return;
        };
        if let State::Spinning { from, .. } = wait.state {
            self.spend(&mut wait, now - from);
        }
        self.learned.other();
    }

    /// A poll found nothing.
    pub fn empty(&mut self, now: u64) -> Step {
        let before = self.now;
        let now = self.tick(now);
        let Some(mut wait) = self.wait else {
            return self.begin(now);
        };
        match wait.state {
            State::Spinning { from, until, alarm } => {
                // Two polls so far apart: the core was somebody else's meanwhile.
                if now - before > self.wake / 2 {
                    self.polite_until = now.saturating_add(POLITE_NS);
                }
                let share_left = self.bucket.left(now);
                if now < until && now - from < share_left {
                    return self.spin(now);
                }
                self.spend(&mut wait, now - from);
                self.sleep(wait, now, alarm)
            }
            // Whoever forgets to say that they woke up is believed to have been woken for nothing.
            State::Asleep { .. } | State::Woken => {
                self.counters.empty_wakes += 1;
                self.sleep(wait, now, true)
            }
        }
    }

    /// A sleep is over: by the queue's event, or else by the timer or a signal.
    pub fn woke(&mut self, now: u64, by_event: bool) {
        let now = self.tick(now);
        let most = self.most_spin();
        let Some(wait) = &mut self.wait else { return };
        let State::Asleep { alarm, since } = wait.state else {
            return;
        };
        if by_event {
            self.learned.woken(now - since);
        }
        wait.state = match alarm {
            Some(alarm) if !by_event && now >= alarm.at => {
                self.rhythm.rang(alarm.at, now);
                // A timer that rings late does not shorten the looking to nothing.
                let until = alarm.look_until.max(now.saturating_add(self.wake / 8));
                let most = most.saturating_sub(wait.spun);
                State::Spinning {
                    from: now,
                    until: until.min(now.saturating_add(most)),
                    alarm: false,
                }
            }
            _ => State::Woken,
        };
    }

    /// A poll found something.
    pub fn found(&mut self, now: u64) {
        let now = self.tick(now);
        let Some(mut wait) = self.wait.take() else {
            self.late_by(0);
            return;
        };
        let (arrived, woken) = match wait.state {
            State::Spinning { from, .. } => {
                self.spend(&mut wait, now - from);
                self.counters.hits += u64::from(wait.spun > 0);
                (now, false)
            }
            // The poll after arming found it: nobody has slept.
            State::Asleep { .. } => (now, false),
            // It came a wake-up ago.
            State::Woken => {
                self.counters.wakes += 1;
                (now.saturating_sub(self.wake).max(wait.since), true)
            }
        };
        self.late_by(if woken { self.wake } else { 0 });
        let length = arrived - wait.since;
        let cost = wait.spun.saturating_add(if woken { self.wake } else { 0 });
        self.account.settle(cost, length.min(self.wake));
        self.threshold.learn(length);
        self.learn_wake(&wait, woken, now);
        if length > self.wake {
            self.rhythm.head(arrived);
        }
        if wait.early && length > self.wake {
            self.counters.early_right += 1;
        } else if wait.early {
            self.counters.early_wrong += 1;
        }
    }

    fn begin(&mut self, now: u64) -> Step {
        self.counters.waits += 1;
        let mut length = self.threshold.best();
        // Going to sleep too early costs at worst what is left of a wake-up, where spinning on would have found the message
        // at once; too late, what was spun beyond W.
        let off = self.account.allowance();
        length = length.clamp(self.wake.saturating_sub(off), self.wake.saturating_add(off));
        if self
            .limits
            .goal_ns
            .is_some_and(|goal| self.added / 64 > goal)
        {
            length = u64::MAX;
        }
        length = length.min(self.most_spin()).min(self.bucket.left(now));
        let probe = self.probe(now).filter(|probe| *probe > length);
        length = probe.unwrap_or(length);
        self.counters.probes += u64::from(probe.is_some());
        let wait = Wait {
            since: now,
            state: State::Spinning {
                from: now,
                until: now.saturating_add(length),
                alarm: true,
            },
            spun: 0,
            early: false,
            probe: probe.is_some(),
            napped: false,
        };
        if length == 0 {
            return self.sleep(wait, now, true);
        }
        self.counters.spins += 1;
        self.wait = Some(wait);
        self.spin(now)
    }

    /// Compares waits that were slept through with such that were not.
    fn learn_wake(&mut self, wait: &Wait, woken: bool, now: u64) {
        let length = now - wait.since;
        match (wait.probe, woken) {
            (true, false) => self.learned.probed(Some(length)),
            (true, true) => self.learned.probed(None),
            (false, true) if !wait.napped => self.learned.slept(length, now),
            (false, _) => self.learned.other(),
        }
        let wake = self.learned.ns();
        if wake != self.wake {
            self.wake = wake;
            self.account.reprice(wake);
            self.threshold = Threshold::new(wake);
            self.rhythm.reprice(wake);
        }
    }

    /// How long to look instead, to learn what a wake-up costs, if it is time for that and nothing is against it.
    fn probe(&mut self, now: u64) -> Option<u64> {
        let wanted = self.learned.probe()?;
        let length = wanted
            .min(self.wake.saturating_add(self.account.spare()))
            .min(self.most_spin());
        // Of two sides that sleep, each finds the answer after half of the time.
        (length > wanted * 5 / 8 && length <= self.bucket.left(now)).then_some(length)
    }

    fn sleep(&mut self, mut wait: Wait, now: u64, may_set_alarm: bool) -> Step {
        let alarm = self
            .rhythm
            .alarm(now)
            .filter(|alarm| may_set_alarm && self.affords(&wait, alarm, now));
        wait.early |= now - wait.since < self.wake;
        wait.napped |= alarm.is_some();
        wait.state = State::Asleep { alarm, since: now };
        self.wait = Some(wait);
        self.counters.arms += 1;
        self.counters.naps += u64::from(alarm.is_some());
        Step::Sleep {
            until: alarm.map(|alarm| alarm.at),
        }
    }

    /// Whether an alarm is within the limits. At worst its window is spun in full and a wake-up follows. (The best pays a
    /// W by then: the wait has lasted for longer.)
    fn affords(&mut self, wait: &Wait, alarm: &Alarm, now: u64) -> bool {
        // The timer may ring at once, in spite of its average.
        let longest = alarm.look_until - alarm.at;
        let worst = wait.spun.saturating_add(longest.max(self.wake / 8));
        let within_goal = self
            .limits
            .goal_ns
            .is_some_and(|goal| self.added / 64 > goal);
        let bound = worst.saturating_sub(self.wake) <= self.account.spare()
            && alarm.window <= 4 * self.wake;
        (bound || within_goal)
            && wait.spun.saturating_add(alarm.window) <= self.most_spin()
            && alarm.window <= self.bucket.left(now)
    }

    fn spin(&mut self, now: u64) -> Step {
        self.polls = self.polls.wrapping_add(1);
        if now < self.polite_until || self.polls.is_multiple_of(POLLS_PER_YIELD) {
            Step::Yield
        } else {
            Step::Spin
        }
    }

    fn spend(&mut self, wait: &mut Wait, spun: u64) {
        wait.spun = wait.spun.saturating_add(spun);
        self.counters.spun_ns = self.counters.spun_ns.saturating_add(spun);
        self.bucket.spend(spun);
    }

    fn most_spin(&self) -> u64 {
        self.limits.most_spin_ns.unwrap_or(u64::MAX)
    }

    fn late_by(&mut self, ns: u64) {
        self.added = self.added - self.added / 64 + ns;
    }

    fn tick(&mut self, now: u64) -> u64 {
        self.now = self.now.max(now);
        self.now
    }
}

/// Somebody who wanted the core once wants it again soon.
const POLITE_NS: u64 = 10_000_000;
/// A yield takes as long as two polls; often enough that a spinner never costs others a whole time slice.
const POLLS_PER_YIELD: u32 = 256;
