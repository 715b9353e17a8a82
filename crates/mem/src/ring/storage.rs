//! The words and bytes of a ring: shared memory, or, under loom, atomics that loom can watch.

use std::sync::Arc;

use crate::primitive::AtomicU32;

/// What both ends hold. Clones share the memory.
#[derive(Debug, Clone)]
pub(crate) struct Storage {
    inner: Arc<Inner>,
    size: u32,
}

impl Storage {
    /// Bytes of records; a power of two.
    pub(crate) fn size(&self) -> u32 {
        self.size
    }
}

#[cfg(not(loom))]
mod shared {
    use super::*;
    use crate::map::Mapping;
    use crate::ring::{CONTROL_BYTES, LINE};
    use crate::span::{Source, Target};
    use std::ptr;

    type Inner = Mapping;
    pub(super) type SharedInner = Inner;

    // The two control words are written by different sides, so they do not share a cache line (or a pair of lines,
    // which some processors fetch together).
    const AT_WAITING: usize = 0;
    const AT_HEAD: usize = 128;

    impl Storage {
        /// `map` holds the control page and `size` bytes.
        pub(crate) fn new(map: Mapping, size: u32) -> Self {
            assert!(size.is_power_of_two() && map.len() == CONTROL_BYTES + size as usize);
            Self {
                inner: Arc::new(map),
                size,
            }
        }

        /// Written by the producer: it waits for space.
        pub(crate) fn waiting(&self) -> &AtomicU32 {
            self.word(AT_WAITING)
        }

        /// Written by the consumer: the position up to which space is free again.
        pub(crate) fn head(&self) -> &AtomicU32 {
            self.word(AT_HEAD)
        }

        /// The word at a position that is a multiple of the line size.
        pub(crate) fn header(&self, position: u32) -> &AtomicU32 {
            debug_assert!(position.is_multiple_of(LINE));
            self.word(CONTROL_BYTES + ((position & (self.size - 1)) & !3) as usize)
        }

        fn word(&self, at: usize) -> &AtomicU32 {
            debug_assert!(at.is_multiple_of(4) && at + 4 <= self.inner.len());
            // SAFETY: callers pass constants of the control page or a masked position behind it, all multiples of
            // four, so the word is aligned and inside the mapping, which lives as long as `self`. Control words and
            // headers are accessed with atomics by us; a peer that does otherwise can only make the value arbitrary.
            unsafe { AtomicU32::from_ptr(self.inner.as_ptr().add(at).cast()) }
        }

        /// Copies `bytes` to `position`, around the end if need be. At most the size of the ring.
        pub(crate) fn copy_in(&self, position: u32, bytes: &[u8]) {
            let (at, first) = self.place(position, bytes.len());
            // SAFETY: `place` gives an offset inside the ring and how many bytes fit up to its end; the rest fits from
            // the start because the whole is no longer than the ring. The mapping lives as long as `self`, and
            // `bytes` is private memory, so the ranges cannot overlap. The consumer does not read this space before
            // the header is published; a hostile one that does reads garbage that we wrote for it anyway.
            unsafe {
                ptr::copy_nonoverlapping(bytes.as_ptr(), at, first);
                if first < bytes.len() {
                    ptr::copy_nonoverlapping(
                        bytes.as_ptr().add(first),
                        self.records(),
                        bytes.len() - first,
                    );
                }
            }
        }

        /// Copies bytes from `position` out, around the end if need be. At most the size of the ring.
        pub(crate) fn copy_out(&self, position: u32, into: &mut [u8]) {
            let (at, first) = self.place(position, into.len());
            // SAFETY: as in `copy_in`. A hostile producer may write while we copy; then the bytes are arbitrary, and
            // whoever gets them treats them as such.
            unsafe {
                ptr::copy_nonoverlapping(at, into.as_mut_ptr(), first);
                if first < into.len() {
                    ptr::copy_nonoverlapping(
                        self.records(),
                        into.as_mut_ptr().add(first),
                        into.len() - first,
                    );
                }
            }
        }

        /// `len` bytes from `position` on, around the end if need be, to be filled. At most the size of the ring.
        pub(crate) fn target(&mut self, position: u32, len: usize) -> Target<'_> {
            let (at, first) = self.place(position, len);
            // SAFETY: as in `copy_in`; the target borrows `self`, which keeps the mapping.
            unsafe { Target::in_two(at, first, self.records(), len) }
        }

        /// `len` bytes from `position` on, around the end if need be. At most the size of the ring.
        pub(crate) fn source(&self, position: u32, len: usize) -> Source<'_> {
            let (at, first) = self.place(position, len);
            // SAFETY: as in `copy_out`; the source borrows `self`, which keeps the mapping.
            unsafe { Source::in_two(at, first, self.records(), len) }
        }

        /// Gives the memory of `len` bytes from `position` on back, as far as they are whole pages; they are zeros then.
        pub(crate) fn give_back(&self, position: u32, len: u32) {
            let size = self.size as usize;
            let (at, len) = ((position & (self.size - 1)) as usize, len as usize);
            let first = len.min(size - at);
            for (from, len) in [(at, first), (0, len - first)] {
                let from = CONTROL_BYTES + from;
                self.inner.give_back(from, from + len);
            }
        }

        fn place(&self, position: u32, len: usize) -> (*mut u8, usize) {
            let size = self.size as usize;
            assert!(len <= size);
            let offset = (position & (self.size - 1)) as usize;
            // SAFETY: `offset` is masked to less than `size`, and the records fill the mapping behind the control page.
            (
                unsafe { self.records().add(offset) },
                len.min(size - offset),
            )
        }

        fn records(&self) -> *mut u8 {
            // SAFETY: `new` checked that the mapping is longer than the control page.
            unsafe { self.inner.as_ptr().add(CONTROL_BYTES) }
        }
    }
}
#[cfg(not(loom))]
type Inner = shared::SharedInner;

#[cfg(loom)]
#[derive(Debug)]
struct Inner {
    waiting: AtomicU32,
    head: AtomicU32,
    words: Vec<AtomicU32>,
}

/// Every word is an atomic; bytes must come in whole words. The accesses to them are relaxed, so that a missing
/// release or acquire shows as a stale value.
#[cfg(loom)]
impl Storage {
    pub(crate) fn for_loom(size: u32) -> Self {
        let words = (0..size / 4).map(|_| AtomicU32::new(0)).collect();
        Self {
            inner: Arc::new(Inner {
                waiting: AtomicU32::new(0),
                head: AtomicU32::new(0),
                words,
            }),
            size,
        }
    }

    pub(crate) fn waiting(&self) -> &AtomicU32 {
        &self.inner.waiting
    }

    pub(crate) fn head(&self) -> &AtomicU32 {
        &self.inner.head
    }

    pub(crate) fn header(&self, position: u32) -> &AtomicU32 {
        &self.inner.words[((position & (self.size - 1)) / 4) as usize]
    }

    /// As when all of it is whole pages.
    pub(crate) fn give_back(&self, position: u32, len: u32) {
        for at in (position..position.wrapping_add(len)).step_by(4) {
            self.header(at)
                .store(0, crate::primitive::Ordering::Relaxed);
        }
    }

    pub(crate) fn copy_in(&self, position: u32, bytes: &[u8]) {
        for (word, at) in bytes.chunks_exact(4).zip((position..).step_by(4)) {
            let word = u32::from_ne_bytes(word.try_into().expect("chunks of four"));
            self.header(at)
                .store(word, crate::primitive::Ordering::Relaxed);
        }
    }

    pub(crate) fn copy_out(&self, position: u32, into: &mut [u8]) {
        for (word, at) in into.chunks_exact_mut(4).zip((position..).step_by(4)) {
            word.copy_from_slice(
                &self
                    .header(at)
                    .load(crate::primitive::Ordering::Relaxed)
                    .to_ne_bytes(),
            );
        }
    }
}
