//! Timer codes in nanoseconds.

/// How long a requester waits after an RNR NAK with this timer code (low 5 bits).
#[must_use]
pub fn rnr_timer_ns(code: u8) -> u64 {
    // A mask of five bits cannot leave a table of 32.
    RNR_UNITS[usize::from(code & 0x1F)] * 10_000
}

/// The local ACK timeout for this code (low 5 bits): 4.096 µs times 2^code. 0 waits for ever.
#[must_use]
pub const fn ack_timeout_ns(code: u8) -> Option<u64> {
    match code & 0x1F {
        0 => None,
        exponent => Some(4096 << exponent),
    }
}

/// In units of 10 µs. Code 0 is the longest.
const RNR_UNITS: [u64; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rnr_codes_are_those_of_the_specification() {
        assert_eq!(rnr_timer_ns(0), 655_360_000);
        assert_eq!(rnr_timer_ns(1), 10_000);
        assert_eq!(rnr_timer_ns(12), 640_000);
        assert_eq!(rnr_timer_ns(31), 491_520_000);
        assert_eq!(rnr_timer_ns(32), rnr_timer_ns(0));
    }

    #[test]
    fn ack_timeout_doubles_and_zero_means_never() {
        assert_eq!(ack_timeout_ns(0), None);
        assert_eq!(ack_timeout_ns(1), Some(8_192));
        assert_eq!(ack_timeout_ns(14), Some(67_108_864));
        assert_eq!(ack_timeout_ns(31), Some(4096 << 31));
    }
}
