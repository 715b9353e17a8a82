//! Two queue pairs, a virtual clock and a wire with faults: what the engine does as seen from outside.

mod completion_queue;
mod datagram;
mod duplicates;
mod flushing;
mod found_by_simulation;
mod harness;
mod keys;
mod large;
mod modify;
mod operations;
mod programs;
mod recovery;
mod refusals;
mod shared_receive;
mod trains;
mod unreliable;
mod windows;
mod world;
mod xrc;
