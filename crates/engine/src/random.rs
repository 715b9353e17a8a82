//! Numbers that nobody can guess who has seen others of them: ChaCha20 (RFC 8439) with a key from outside.
//!
//! Memory keys are drawn from it. Peers see many of them, and none may tell them the next.

/// A stream of numbers. The same seed gives the same ones.
#[derive(Debug, Clone)]
pub(crate) struct Random {
    key: [u32; 8],
    block: u64,
    words: [u32; 16],
    used: usize,
}

impl Random {
    pub(crate) fn new(seed: Seed) -> Self {
        let mut key = [0; 8];
        for (at, word) in seed.0.iter().enumerate() {
            key[2 * at] = *word as u32;
            key[2 * at + 1] = (*word >> 32) as u32;
        }
        Self {
            key,
            block: 0,
            words: [0; 16],
            used: 16,
        }
    }

    pub(crate) fn next_u32(&mut self) -> u32 {
        if self.used == self.words.len() {
            self.words = block(&self.key, self.block);
            self.block += 1;
            self.used = 0;
        }
        let word = self.words[self.used];
        self.used += 1;
        word
    }
}

/// What a stream begins from: 256 bits. A single number is for tests.
#[derive(Clone, Copy)]
pub struct Seed(pub [u64; 4]);

impl From<u64> for Seed {
    fn from(number: u64) -> Self {
        Self([number, 0, 0, 0])
    }
}

/// A block of the key stream; the counter has 64 bits and the nonce is zero.
fn block(key: &[u32; 8], counter: u64) -> [u32; 16] {
    let mut start = [0; 16];
    start[..4].copy_from_slice(&[0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574]);
    start[4..12].copy_from_slice(key);
    start[12] = counter as u32;
    start[13] = (counter >> 32) as u32;
    rounds(&start)
}

fn rounds(start: &[u32; 16]) -> [u32; 16] {
    let mut x = *start;
    for _ in 0..10 {
        for [a, b, c, d] in [
            [0, 4, 8, 12],
            [1, 5, 9, 13],
            [2, 6, 10, 14],
            [3, 7, 11, 15],
            [0, 5, 10, 15],
            [1, 6, 11, 12],
            [2, 7, 8, 13],
            [3, 4, 9, 14],
        ] {
            for (one, two, three, by) in [(a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)]
            {
                x[one] = x[one].wrapping_add(x[two]);
                x[three] = (x[three] ^ x[one]).rotate_left(by);
            }
        }
    }
    std::array::from_fn(|i| x[i].wrapping_add(start[i]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_that_of_the_standard() {
        // RFC 8439, 2.3.2.
        let mut start = [0; 16];
        start[..4].copy_from_slice(&[0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574]);
        for (at, word) in start[4..12].iter_mut().enumerate() {
            let first = at as u32 * 4;
            *word = first | (first + 1) << 8 | (first + 2) << 16 | (first + 3) << 24;
        }
        start[12..].copy_from_slice(&[1, 0x0900_0000, 0x4a00_0000, 0]);
        let out = rounds(&start);
        assert_eq!(
            out[..4],
            [0xe4e7_f110, 0x1559_3bd1, 0x1fdd_0f50, 0xc471_20a3]
        );
        assert_eq!(
            out[12..],
            [0xd19c_12b5, 0xb94e_16de, 0xe883_d0cb, 0x4e3c_50a2]
        );
    }

    #[test]
    fn every_bit_of_the_seed_counts_and_blocks_differ() {
        let stream = |seed: Seed| {
            let mut random = Random::new(seed);
            std::array::from_fn::<u32, 40, _>(|_| random.next_u32())
        };
        let zero = stream(Seed([0; 4]));
        assert_ne!(zero[..16], zero[16..32]);
        for bit in 0..256 {
            let mut seed = [0; 4];
            seed[bit / 64] = 1 << (bit % 64);
            assert_ne!(stream(Seed(seed)), zero, "bit {bit}");
        }
    }
}
