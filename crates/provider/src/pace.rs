//! How a thread in `ibv_get_cq_event` waits when `ADVERB_WAIT` asks for another way than sleeping at once.

use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use adverb_nic::{Channel, Sleep, Step, Waiter};
use adverb_wait::{Costs, Policy, Step as Next};

use crate::errno::Error;
use crate::setting::Events;

/// How the threads wait that wait on one channel.
#[derive(Debug)]
pub(crate) enum Pace {
    Event,
    Busy,
    /// One thread at a time is awake and knows how messages come. Others sleep: two that spin would only be in each
    /// other's way.
    Adaptive(Box<Mutex<Policy>>),
}

impl Pace {
    pub(crate) fn new(events: Events) -> Self {
        match events {
            Events::Event => Self::Event,
            Events::Busy => Self::Busy,
            Events::Adaptive(limits) => {
                let wake_ns = adverb_wait::measure::wake_ns();
                Self::Adaptive(Box::new(Mutex::new(Policy::new(Costs { wake_ns }, limits))))
            }
        }
    }

    /// Looks for an event, or says what to sleep on before the next look.
    pub(crate) fn look(&self, channel: &Channel, waiter: &mut Waiter) -> Result<Step<u64>, Error> {
        match self {
            Self::Event => Ok(channel.next_event(waiter)?),
            Self::Busy => look_busily(channel, waiter),
            Self::Adaptive(policy) => match policy.try_lock() {
                Ok(mut policy) => look_adaptively(&mut policy, channel, waiter),
                Err(_) => Ok(channel.next_event(waiter)?),
            },
        }
    }
}

/// Looks between two chances to be cancelled.
const LOOKS: u32 = 1024;
/// Looks between two offers of the core to others.
const LOOKS_PER_YIELD: u32 = 256;

fn look_busily(channel: &Channel, waiter: &mut Waiter) -> Result<Step<u64>, Error> {
    for look in 1..=LOOKS {
        if let Some(token) = channel.next_event_awake(waiter)? {
            return Ok(Step::Got(token));
        }
        if look % LOOKS_PER_YIELD == 0 {
            thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
    Ok(Step::Sleep(Sleep::moment(Duration::ZERO)))
}

fn look_adaptively(
    policy: &mut Policy,
    channel: &Channel,
    waiter: &mut Waiter,
) -> Result<Step<u64>, Error> {
    let until = loop {
        let event = channel.next_event_awake(waiter)?;
        let now = adverb_nic::now().as_nanos();
        // If this is the first look after a sleep.
        policy.woke(now, event.is_some());
        if let Some(token) = event {
            policy.found(now);
            return Ok(Step::Got(token));
        }
        match policy.empty(now) {
            Next::Spin => std::hint::spin_loop(),
            Next::Yield => thread::yield_now(),
            Next::Sleep { until } => break until,
        }
    };
    let step = channel.next_event(waiter)?;
    let now = adverb_nic::now().as_nanos();
    Ok(match step {
        Step::Got(token) => {
            policy.found(now);
            Step::Got(token)
        }
        Step::Sleep(sleep) => Step::Sleep(match until {
            None => sleep,
            Some(at) => sleep.at_most(Duration::from_nanos(at.saturating_sub(now)).min(LONGEST)),
        }),
    })
}

/// A sleep with an end is below a second; whoever wakes up from a shorter one than asked for sleeps on.
pub(crate) const LONGEST: Duration = Duration::from_millis(900);
