//! Waiting in virtual time: [traces](trace) of arrivals, [ways](world) to wait for them, and a [table] of what each costs.
//!
//! The same seed gives the same run. Sleeping costs a message exactly W; timers ring between one and two W late, as on
//! the virtual machines that this was made on.

mod random;
pub mod table;
pub mod trace;
pub mod world;
