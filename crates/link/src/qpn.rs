//! Queue pair numbers name the process they live in: ten bits of slot, fourteen of chance.
//!
//! So a packet for any QP of this host can be handed to the right process without a host-wide table.

/// Bits of a QPN that belong to the process itself.
pub const LOCAL_BITS: u32 = 14;
/// The largest local part.
pub const LOCAL_MAX: u32 = (1 << LOCAL_BITS) - 1;
/// Slots run from 1 to this; 0 stays free, because QPN 0 and 1 are management QPs.
pub const SLOT_MAX: u16 = 1023;

/// The slot of the process that owns this QPN. Zero for the special QPNs, which no process owns by number.
#[must_use]
pub const fn slot_of(qpn: u32) -> u16 {
    ((qpn >> LOCAL_BITS) & SLOT_MAX as u32) as u16
}

/// The part of a QPN that its process chose.
#[must_use]
pub const fn local_of(qpn: u32) -> u32 {
    qpn & LOCAL_MAX
}

/// The QPN of `local` in the process at `slot`. Parts that are too large lose their upper bits.
#[must_use]
pub const fn compose(slot: u16, local: u32) -> u32 {
    ((slot & SLOT_MAX) as u32) << LOCAL_BITS | (local & LOCAL_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_qpn_gives_back_its_parts() {
        for slot in [1, 2, 511, SLOT_MAX] {
            for local in [0, 1, 0x2aaa, LOCAL_MAX] {
                let qpn = compose(slot, local);
                assert!(qpn < 1 << 24);
                assert_eq!((slot_of(qpn), local_of(qpn)), (slot, local));
            }
        }
        assert_eq!(slot_of(1), 0, "the special QPNs belong to no slot");
    }
}
