//! Waiting in virtual time: [traces](trace) of arrivals, [ways](world) to wait for them, and a [table] of what each costs.
//!
//! [Two threads that wait for each other](facing) are a world of their own: there the way to wait makes the trace.
//!
//! The same seed gives the same run. Sleeping costs a message exactly W; timers ring between one and two W late, as on
//! the virtual machines that this was made on.

pub mod facing;
mod random;
pub mod table;
pub mod trace;
pub mod world;
