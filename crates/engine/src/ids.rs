//! Numbers that must not be mistaken for each other.

/// A queue pair number, 24 bits on the wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct QpNum(pub u32);

/// A protection domain, as the NIC numbers them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PdId(pub u32);

/// A memory key (L_Key or R_Key): 24 bits of index above an 8-bit tag.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Key(pub u32);
