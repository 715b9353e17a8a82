//! Randomness for numbers that strangers must not guess: QPNs, IDs, and what keys are drawn from. Each is asked of the
//! kernel, which has the generator; sequence numbers are the applications' own choice.

use rustix::rand::{GetRandomFlags, getrandom};

/// 256 bits from the kernel.
pub(crate) fn seed_of_keys() -> adverb_engine::Seed {
    adverb_engine::Seed([seed(), seed(), seed(), seed()])
}

/// 64 bits from the kernel.
pub(crate) fn seed() -> u64 {
    let mut bytes = [0u8; 8];
    loop {
        match getrandom(&mut bytes, GetRandomFlags::empty()) {
            Ok(8) => return u64::from_ne_bytes(bytes),
            Ok(_) | Err(rustix::io::Errno::INTR) => continue,
            // Without the system call there is still the address space layout and the clock.
            Err(_) => return crate::clock::now().as_nanos() ^ (&raw const bytes as u64),
        }
    }
}
