//! Payload on its way: bytes that lie in a ring, or in a buffer of our own, and are copied from there or to there.
//!
//! Those in a ring are somebody else's, too, and may change at any moment. So, like a [`crate::Region`], a span is where
//! bytes are and how many, and no slice; what lies there is copied and never looked at in place.

use std::marker::PhantomData;
use std::ptr;

/// Up to two pieces of memory, because a ring has an end.
#[derive(Debug, Clone, Copy)]
struct Pieces {
    first: *mut u8,
    split: usize,
    second: *mut u8,
    len: usize,
}

/// Where payload is taken from.
#[derive(Debug)]
pub struct Source<'a> {
    pieces: Pieces,
    lives: PhantomData<&'a [u8]>,
}

/// Where payload is put.
#[derive(Debug)]
pub struct Target<'a> {
    pieces: Pieces,
    lives: PhantomData<&'a mut [u8]>,
}

impl Pieces {
    const fn one(at: *mut u8, len: usize) -> Self {
        Self {
            first: at,
            split: len,
            second: at,
            len,
        }
    }

    /// Goes over bytes `at` to `at + len` in order: `visit` gets where some of them are, how many have been before them,
    /// and how many they are.
    ///
    /// # Panics
    /// When there are no such bytes.
    fn each(&self, at: usize, len: usize, mut visit: impl FnMut(*mut u8, usize, usize)) {
        let inside = at.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(inside, "{len} bytes at {at} of a span of {}", self.len);
        let before = self.split.saturating_sub(at).min(len);
        if before > 0 {
            visit(self.first.wrapping_add(at), 0, before);
        }
        if before < len {
            let skip = (at + before) - self.split;
            visit(self.second.wrapping_add(skip), before, len - before);
        }
    }
}

impl<'a> Source<'a> {
    /// The bytes of a buffer.
    #[must_use]
    pub const fn of(bytes: &'a [u8]) -> Self {
        Self {
            pieces: Pieces::one(bytes.as_ptr().cast_mut(), bytes.len()),
            lives: PhantomData,
        }
    }

    /// # Safety
    ///
    /// `split` bytes at `first` and `len - split` bytes at `second` can be read as long as `'a` lasts. They may change.
    #[cfg(not(loom))]
    pub(crate) const unsafe fn in_two(
        first: *mut u8,
        split: usize,
        second: *mut u8,
        len: usize,
    ) -> Self {
        Self {
            pieces: Pieces {
                first,
                split,
                second,
                len,
            },
            lives: PhantomData,
        }
    }

    /// Number of bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.pieces.len
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.pieces.len == 0
    }

    /// Copies bytes from `at` on.
    ///
    /// # Panics
    /// When there are fewer behind `at` than `into` takes.
    pub fn copy(&self, at: usize, into: &mut [u8]) {
        let len = into.len();
        // SAFETY: `len` bytes are there.
        unsafe { self.copy_to(at, into.as_mut_ptr(), len) };
    }

    /// Copies `len` bytes from `at` on to `to`.
    ///
    /// # Safety
    ///
    /// `to` is valid for writes of `len` bytes, which do not overlap the span.
    pub(crate) unsafe fn copy_to(&self, at: usize, to: *mut u8, len: usize) {
        self.pieces.each(at, len, |from, done, n| {
            // SAFETY: `each` stays inside the pieces, which are readable by the contract of the constructors; the other
            // side is the caller's promise. If the bytes change meanwhile, any value is fine.
            unsafe { ptr::copy_nonoverlapping(from.cast_const(), to.add(done), n) };
        });
    }
}

impl<'a> Target<'a> {
    /// The bytes of a buffer.
    #[must_use]
    pub const fn of(bytes: &'a mut [u8]) -> Self {
        Self {
            pieces: Pieces::one(bytes.as_mut_ptr(), bytes.len()),
            lives: PhantomData,
        }
    }

    /// # Safety
    ///
    /// `split` bytes at `first` and `len - split` bytes at `second` can be written as long as `'a` lasts.
    #[cfg(not(loom))]
    pub(crate) const unsafe fn in_two(
        first: *mut u8,
        split: usize,
        second: *mut u8,
        len: usize,
    ) -> Self {
        Self {
            pieces: Pieces {
                first,
                split,
                second,
                len,
            },
            lives: PhantomData,
        }
    }

    /// Number of bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.pieces.len
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.pieces.len == 0
    }

    /// Copies `bytes` to `at`.
    ///
    /// # Panics
    /// When there is no room for them behind `at`.
    pub fn put(&mut self, at: usize, bytes: &[u8]) {
        // SAFETY: the bytes are there, and a target is nobody's slice.
        unsafe { self.put_from(at, bytes.as_ptr(), bytes.len()) };
    }

    /// Zeroes `len` bytes from `at` on.
    ///
    /// # Panics
    /// When there are fewer behind `at`.
    pub fn zero(&mut self, at: usize, len: usize) {
        self.pieces.each(at, len, |to, _, n| {
            // SAFETY: `each` stays inside the pieces, which are writable by the contract of the constructors.
            unsafe { ptr::write_bytes(to, 0, n) };
        });
    }

    /// Copies `len` bytes from `from` to `at`.
    ///
    /// # Safety
    ///
    /// `from` is valid for reads of `len` bytes, which do not overlap the span. They may change meanwhile.
    pub(crate) unsafe fn put_from(&mut self, at: usize, from: *const u8, len: usize) {
        self.pieces.each(at, len, |to, done, n| {
            // SAFETY: as in `zero`; the other side is the caller's promise.
            unsafe { ptr::copy_nonoverlapping(from.add(done), to, n) };
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn two_pieces_are_as_one(bytes in prop::collection::vec(any::<u8>(), 0..60), split in 0usize..60, at in 0usize..60, len in 0usize..60) {
            let split = split.min(bytes.len());
            let at = at.min(bytes.len());
            let len = len.min(bytes.len() - at);
            let (mut a, mut b) = (bytes[..split].to_vec(), bytes[split..].to_vec());
            // SAFETY: the two vectors outlive the span.
            let source = unsafe { Source::in_two(a.as_mut_ptr(), split, b.as_mut_ptr(), bytes.len()) };
            let mut out = vec![0; len];
            source.copy(at, &mut out);
            prop_assert_eq!(&out, &bytes[at..at + len]);
            // SAFETY: as above.
            let mut target = unsafe { Target::in_two(a.as_mut_ptr(), split, b.as_mut_ptr(), bytes.len()) };
            target.put(at, &vec![0xa5; len]);
            target.zero(at, len / 2);
            let mut expected = bytes.clone();
            expected[at..at + len].fill(0xa5);
            expected[at..at + len / 2].fill(0);
            prop_assert_eq!([a, b].concat(), expected);
        }
    }

    #[test]
    #[should_panic(expected = "5 bytes at 4 of a span of 8")]
    fn nothing_beyond_the_end() {
        Source::of(&[0; 8]).copy(4, &mut [0; 5]);
    }
}
