//! The verbs ABI in Rust: C layouts, the inline calls that jump through their tables, and the
//! exported functions as one table that a library or our own software NIC fills.
//!
//! - [`types`]: the structures and constants of `verbs.h` and `rdma_cma.h` under their C names,
//!   in the newest layout we know. Structures only grow, so it serves older libraries too.
//! - [`layout`]: every size and offset, asserted at compile time.
//! - [`flags`]: the same bits as sets with names.
//! - [`inline`]: what C programs get from `static inline` functions and no library exports.
//! - [`table`]: [`Verbs`] and [`Rdmacm`], the exported functions, found in the system's libraries by `dlopen`.
//!
//! Nothing here knows which provider is behind a pointer.

pub mod flags;
pub mod inline;
#[cfg(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64"))]
pub mod layout;
pub mod table;
pub mod types;

pub use table::{LoadError, Rdmacm, Verbs};
