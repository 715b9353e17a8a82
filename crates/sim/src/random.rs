//! Chance, from a seed: the same seed is the same world, on every machine and for ever.

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is not zero.
    pub const fn below(&mut self, n: u64) -> u64 {
        // The bias of this is far below what any test here could see.
        ((self.next() as u128 * n as u128) >> 64) as u64
    }

    pub const fn index(&mut self, n: usize) -> usize {
        self.below(n as u64) as usize
    }

    /// Between `low` and `high`, both included.
    pub const fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True once in ten thousand over `n` times.
    pub const fn chance(&mut self, n: u32) -> bool {
        n > 0 && self.below(10_000) < n as u64
    }

    pub const fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())]
    }

    pub fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            let bytes = self.next().to_le_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
    }
}
