//! Randomness for numbers that strangers must not guess: QPNs, PSNs, keys.

use rustix::rand::{GetRandomFlags, getrandom};

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
