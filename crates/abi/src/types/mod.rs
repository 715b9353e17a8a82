//! The C structures and constants, under their C names.
//!
//! Numbers that come from C stay integers: a Rust enum would be undefined behaviour the moment a
//! newer library sends a value we do not know.
#![allow(non_camel_case_types, non_snake_case)]
// The signatures inside structures read as in C; `Self` among the other C names would not.
#![allow(clippy::use_self)]

mod ah;
mod cm;
mod context;
mod cq;
mod device;
mod event;
mod flow;
mod memory;
mod qp;
mod srq;
mod wr;
mod zeroed;

pub use ah::*;
pub use cm::*;
pub use context::*;
pub use cq::*;
pub use device::*;
pub use event::*;
pub use flow::*;
pub use memory::*;
pub use qp::*;
pub use srq::*;
pub use wr::*;
pub use zeroed::Zeroed;
