//! Fuzz targets: each module takes bytes, does with them what a stranger could make us do, and panics when something
//! is not as it must be. `cargo xtask fuzz` builds and runs them; `fuzz/README.md` says how.
//!
//! | target | what the bytes are |
//! |---|---|
//! | [`packet`] | a packet from its base transport header on, and the addresses around it |
//! | [`engine`] | calls to one queue pair: packets near what it expects, work requests, states, time |
//! | [`mad`] | a message of the connection manager, and a stranger's and a user's doings with a connection |
//! | [`ring`] | calls to both ends of a shared-memory ring, and what a hostile peer writes into it |
//! | [`shm`] | what a hostile process puts into a ring it hands over: the records of the shared-memory link |
//! | [`nic`] | packets from another process to a whole NIC with queue pairs of every kind |

pub mod engine;
pub mod mad;
pub mod nic;
pub mod packet;
pub mod ring;
pub mod shm;

mod crafted;
mod host;

/// Whether the calls that an input stands for are to be printed: for whoever looks into a finding.
fn traced() -> bool {
    static TRACED: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *TRACED.get_or_init(|| std::env::var_os("FUZZ_TRACE").is_some())
}
