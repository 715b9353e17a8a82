//! Packet sequence numbers: 24 bits that wrap. All arithmetic on them is here.

use std::fmt;

/// A packet sequence number.
///
/// Numbers wrap at 2^24, so there is no total order; [`Psn::diff`] compares two that are less than
/// 2^23 apart, which the protocol guarantees for everything outstanding.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Psn(u32);

impl Psn {
    /// The bits a PSN has.
    pub const MASK: u32 = 0x00FF_FFFF;

    /// Keeps the low 24 bits.
    #[inline]
    #[must_use]
    pub const fn new(value: u32) -> Self {
        Self(value & Self::MASK)
    }

    #[inline]
    #[must_use]
    pub const fn value(self) -> u32 {
        self.0
    }

    #[inline]
    #[must_use]
    pub const fn add(self, count: u32) -> Self {
        Self::new(self.0.wrapping_add(count))
    }

    #[inline]
    #[must_use]
    pub const fn sub(self, count: u32) -> Self {
        Self::new(self.0.wrapping_sub(count))
    }

    #[inline]
    #[must_use]
    pub const fn next(self) -> Self {
        self.add(1)
    }

    /// How far `self` is ahead of `other`: a 24-bit signed number, negative when it is behind.
    #[inline]
    #[must_use]
    pub const fn diff(self, other: Self) -> i32 {
        // The shift drops what is above 24 bits; the shift back copies the sign down.
        (self.0.wrapping_sub(other.0) << 8).cast_signed() >> 8
    }

    #[inline]
    #[must_use]
    pub const fn before(self, other: Self) -> bool {
        self.diff(other) < 0
    }

    #[inline]
    #[must_use]
    pub const fn after(self, other: Self) -> bool {
        self.diff(other) > 0
    }
}

impl fmt::Debug for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Psn({:#08x})", self.0)
    }
}

impl fmt::Display for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_wrap_at_24_bits() {
        assert_eq!(Psn::new(0x0100_0005), Psn::new(5));
        assert_eq!(Psn::new(0xFF_FFFF).next(), Psn::new(0));
        assert_eq!(Psn::new(0xFF_FFFE).add(3), Psn::new(1));
        assert_eq!(Psn::new(1).sub(3), Psn::new(0xFF_FFFE));
        assert_eq!(Psn::new(1).add(u32::MAX), Psn::new(0));
    }

    #[test]
    fn difference_crosses_the_wrap_in_both_directions() {
        assert_eq!(Psn::new(1).diff(Psn::new(0xFF_FFFF)), 2);
        assert_eq!(Psn::new(0xFF_FFFF).diff(Psn::new(1)), -2);
        assert_eq!(Psn::new(9).diff(Psn::new(9)), 0);
    }

    #[test]
    fn half_the_circle_counts_as_behind() {
        assert_eq!(Psn::new(0x7F_FFFF).diff(Psn::new(0)), 0x7F_FFFF);
        assert_eq!(Psn::new(0x80_0000).diff(Psn::new(0)), -0x80_0000);
    }

    #[test]
    fn before_and_after_exclude_equality() {
        let psn = Psn::new(0xFF_FFFF);
        assert!(psn.before(psn.next()) && psn.next().after(psn));
        assert!(!psn.before(psn) && !psn.after(psn));
    }
}
