//! How long to look before going to sleep.
//!
//! A thread that waits for completions pays one of two prices: the time that it spins, or the wake-up that a sleeper costs
//! its message. [`Policy`] decides, wait by wait. It reads no clock and does no IO: whoever waits tells it the time and what
//! came of each poll, and it says what to do next. [`sim`] runs it in virtual time; [`measure`] finds out what a wake-up costs.
//!
//! **Cost.** Everything here is measured in one currency: nanoseconds spun, plus [`Costs::wake_ns`] (W) for each sleep that
//! a message ends. Who knew the future would pay min(wait, W) for each wait. The policy pays at most twice that plus
//! [`SLACK`] × W, over every stretch of every trace, whatever arrives; `account.rs` has the argument.
//!
//! ```
//! use adverb_wait::{Costs, Limits, Policy, Step};
//! let mut policy = Policy::new(Costs { wake_ns: 40_000 }, Limits::default());
//! let mut now = 0;
//! // Nothing there: it looks for about two wake-ups' worth of time, then it wants to sleep.
//! while policy.empty(now) != (Step::Sleep { until: None }) {
//!     now += 200;
//! }
//! assert!((80_000..81_000).contains(&now));
//! policy.woke(2_000_000, true);
//! policy.found(2_000_100);
//! assert_eq!(policy.counters().wakes, 1);
//! ```
#![forbid(unsafe_code)]

mod account;
mod bucket;
mod counters;
mod limits;
pub mod measure;
mod policy;
mod rhythm;
pub mod sim;
mod threshold;
mod wake;

pub use account::SLACK;
pub use counters::Counters;
pub use limits::{Costs, Limits};
pub use policy::{Policy, Step};
