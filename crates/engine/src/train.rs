//! The payload of a train as the engine asks for it: it lies somewhere that only the caller knows.
//!
//! A train ([`adverb_wire::Train`]) keeps the payload of many packets in one piece, so that it is copied once where it
//! comes in and once where it goes out. The engine says which bytes and which memory; the caller moves them.
//!
//! Sending: [`crate::Qp::next_train`] instead of `poll_transmit`, then [`crate::Qp::depart`]. Receiving:
//! [`crate::Qp::handle_train`]. Both do what the packets of the train would do, one by one.

use crate::memory::{Host, KeyError, MemAccess};

/// Where the payload of a train goes.
pub trait Load {
    /// Copies memory to the payload, from its byte `at` on.
    fn load(&mut self, host: &mut dyn Host, from: &MemAccess, at: u64) -> Result<(), KeyError>;
}

/// Where the payload of a train that has arrived is.
///
/// Somebody else may be able to change it meanwhile; nothing is concluded from it.
pub trait Unload {
    /// Copies the payload from its byte `at` on to memory.
    fn unload(&mut self, host: &mut dyn Host, to: &MemAccess, at: u64) -> Result<(), KeyError>;

    /// Copies the payload from its byte `at` on to `out`.
    fn look(&mut self, at: u64, out: &mut [u8]);
}

/// A payload in memory of the caller's own.
impl Load for Vec<u8> {
    fn load(&mut self, host: &mut dyn Host, from: &MemAccess, at: u64) -> Result<(), KeyError> {
        let at = at as usize;
        host.read(from, &mut self[at..at + from.len as usize])
    }
}

impl Unload for Vec<u8> {
    fn unload(&mut self, host: &mut dyn Host, to: &MemAccess, at: u64) -> Result<(), KeyError> {
        let at = at as usize;
        host.write(to, &self[at..at + to.len as usize])
    }

    fn look(&mut self, at: u64, out: &mut [u8]) {
        let at = at as usize;
        out.copy_from_slice(&self[at..at + out.len()]);
    }
}
