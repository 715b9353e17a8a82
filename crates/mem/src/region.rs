//! Registered memory of the application as pointer and length.
//!
//! The application reads and writes this memory at any time, from any thread, while we copy. So it is never a slice.
//! Programs also watch it: they spin on the last byte of an expected WRITE, and they read counters that remote
//! atomics change. Hence two promises: aligned words of up to eight bytes move as one access, and the last bytes of
//! a longer write become visible after all bytes before them.

use crate::span::{Source, Target};
use std::ptr;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// A range of memory that belongs to somebody else and may change under us.
#[derive(Debug, Clone, Copy)]
pub struct Region {
    addr: u64,
    len: u64,
}

/// An access that does not fit the region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RegionError {
    /// Part of the range lies outside.
    #[error("{len} bytes at offset {offset} do not lie in a region of {region_len} bytes")]
    OutOfRange {
        /// First byte of the access, counted from the start of the region.
        offset: u64,
        /// Length of the access.
        len: u64,
        /// Length of the region.
        region_len: u64,
    },
    /// Remote atomics need an address that is a multiple of eight.
    #[error("address {addr:#x} of an atomic operation is not a multiple of 8")]
    Misaligned {
        /// The address that the operation named.
        addr: u64,
    },
}

// A Region is an address and a length, so it is Send and Sync by itself. That other threads touch the memory at the
// same time is what the type is for: every access below is an atomic operation or a raw copy of plain bytes whose
// value is never trusted to stay the same.

impl Region {
    /// Takes charge of `len` bytes at `addr`.
    ///
    /// # Safety
    ///
    /// The range must be mapped, readable and, if anything will be written to it, writable, as long as this value or
    /// a copy of it is used. Nothing in the process may hold a Rust reference to the range that forbids what is done
    /// through the region.
    #[must_use]
    pub const unsafe fn new(addr: u64, len: u64) -> Self {
        Self { addr, len }
    }

    /// The address at which the region begins.
    #[must_use]
    pub const fn addr(&self) -> u64 {
        self.addr
    }

    /// Length in bytes.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether the region has no bytes at all.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies `into.len()` bytes out of the region.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), RegionError> {
        let at = self.at(offset, into.len())?;
        // SAFETY: `at` checked the range against the region, which is readable by the contract of `new`; for the
        // single accesses the address has been found aligned. The bytes may change meanwhile; any value is fine.
        unsafe {
            match into.len() {
                8 if at.addr().is_multiple_of(8) => {
                    into.copy_from_slice(
                        &AtomicU64::from_ptr(at.cast())
                            .load(Ordering::Acquire)
                            .to_ne_bytes(),
                    );
                }
                4 if at.addr().is_multiple_of(4) => {
                    into.copy_from_slice(
                        &AtomicU32::from_ptr(at.cast())
                            .load(Ordering::Acquire)
                            .to_ne_bytes(),
                    );
                }
                2 if at.addr().is_multiple_of(2) => {
                    into.copy_from_slice(
                        &AtomicU16::from_ptr(at.cast())
                            .load(Ordering::Acquire)
                            .to_ne_bytes(),
                    );
                }
                len => ptr::copy_nonoverlapping(at, into.as_mut_ptr(), len),
            }
        }
        Ok(())
    }

    /// Copies `len` bytes of the region to `to`, from byte `at` on.
    ///
    /// # Panics
    /// When they are not all in the target.
    pub fn read_to(
        &self,
        offset: u64,
        to: &mut Target<'_>,
        at: usize,
        len: usize,
    ) -> Result<(), RegionError> {
        let from = self.at(offset, len)?;
        // SAFETY: `at` checked the range against the region, which is readable by the contract of `new`. That a program
        // registers memory of a ring of ours would take more than a mistake.
        unsafe { to.put_from(at, from, len) };
        Ok(())
    }

    /// Copies `bytes` into the region; the last (up to eight) bytes become visible last.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), RegionError> {
        let to = self.at(offset, bytes.len())?;
        let (bulk, tail) = bytes.split_at(bytes.len() - tail_of(to, bytes.len()));
        // SAFETY: the range was checked, the region is writable by the contract of `new`, and the tail is one.
        unsafe {
            ptr::copy_nonoverlapping(bulk.as_ptr(), to, bulk.len());
            store_tail(to.add(bulk.len()), tail);
        }
        Ok(())
    }

    /// Copies `len` bytes of `from` into the region, from byte `at` on; as with [`Region::write`], the last ones become
    /// visible last.
    ///
    /// # Panics
    /// When they are not all in the source.
    pub fn write_from(
        &self,
        offset: u64,
        from: &Source<'_>,
        at: usize,
        len: usize,
    ) -> Result<(), RegionError> {
        let to = self.at(offset, len)?;
        let mut tail = [0; 8];
        let tail = &mut tail[..tail_of(to, len)];
        let bulk = len - tail.len();
        from.copy(at + bulk, tail);
        // SAFETY: as in `write`. What is copied is no part of the region but by the program's own doing.
        unsafe {
            from.copy_to(at, to, bulk);
            store_tail(to.add(bulk), tail);
        }
        Ok(())
    }

    /// Remote COMPARE & SWAP: gives back what was there.
    pub fn compare_swap(&self, offset: u64, compare: u64, swap: u64) -> Result<u64, RegionError> {
        let word = self.atomic(offset)?;
        Ok(
            match word.compare_exchange(compare, swap, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(old) | Err(old) => old,
            },
        )
    }

    /// Remote FETCH & ADD (wrapping): gives back what was there.
    pub fn fetch_add(&self, offset: u64, add: u64) -> Result<u64, RegionError> {
        Ok(self.atomic(offset)?.fetch_add(add, Ordering::SeqCst))
    }

    fn atomic(&self, offset: u64) -> Result<&AtomicU64, RegionError> {
        let at = self.at(offset, 8)?;
        if !at.addr().is_multiple_of(8) {
            return Err(RegionError::Misaligned {
                addr: at.addr() as u64,
            });
        }
        // SAFETY: in range, aligned, mapped and writable by the contract of `new`. The reference does not leave this
        // module. The application may access the word without atomics; the hardware that this imitates lives with the same.
        Ok(unsafe { AtomicU64::from_ptr(at.cast()) })
    }

    /// The address of `offset`, if `len` bytes from there lie in the region.
    fn at(&self, offset: u64, len: usize) -> Result<*mut u8, RegionError> {
        let error = RegionError::OutOfRange {
            offset,
            len: len as u64,
            region_len: self.len,
        };
        let end = offset.checked_add(len as u64).ok_or(error)?;
        if end > self.len {
            return Err(error);
        }
        let addr = self.addr.checked_add(offset).ok_or(error)?;
        Ok(ptr::with_exposed_provenance_mut(addr as usize))
    }
}

/// How many of `len` bytes at `to` lie in the aligned word that holds the last one.
fn tail_of(to: *mut u8, len: usize) -> usize {
    match len.checked_sub(1) {
        Some(last) => ((to.addr() + last) % 8 + 1).min(len),
        None => 0,
    }
}

/// Writes bytes that end inside one aligned word, in as few accesses as their alignment allows, in order.
///
/// # Safety
///
/// `to` must be valid for writes of `tail.len()` bytes.
unsafe fn store_tail(mut to: *mut u8, mut tail: &[u8]) {
    while !tail.is_empty() {
        let step = aligned_step(to.addr(), tail.len());
        let (word, rest) = tail.split_at(step);
        // SAFETY: the range is the caller's promise. The address is aligned: each step leaves it at a multiple of the
        // size of the next one, because the tail ends inside one aligned word and sizes are chosen by `aligned_step`.
        unsafe {
            store_release(to, word);
            to = to.add(step);
        }
        tail = rest;
    }
}

/// The largest of 8, 4, 2, 1 that `len` bytes at `addr` can begin with as one aligned access.
fn aligned_step(addr: usize, len: usize) -> usize {
    let alignment = if addr == 0 {
        8
    } else {
        1 << addr.trailing_zeros().min(3)
    };
    let fits = 1 << len.min(8).ilog2();
    alignment.min(fits)
}

/// # Safety
///
/// `to` must be valid for a write of `word.len()` bytes and a multiple of that length, which is 1, 2, 4 or 8.
unsafe fn store_release(to: *mut u8, word: &[u8]) {
    // SAFETY: passed on from the caller.
    unsafe {
        match *word {
            [a] => AtomicU8::from_ptr(to).store(a, Ordering::Release),
            [a, b] => {
                AtomicU16::from_ptr(to.cast()).store(u16::from_ne_bytes([a, b]), Ordering::Release)
            }
            [a, b, c, d] => AtomicU32::from_ptr(to.cast())
                .store(u32::from_ne_bytes([a, b, c, d]), Ordering::Release),
            [a, b, c, d, e, f, g, h] => {
                AtomicU64::from_ptr(to.cast()).store(
                    u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
                    Ordering::Release,
                );
            }
            _ => unreachable!("aligned_step gives 1, 2, 4 or 8"),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cell::UnsafeCell;

    #[repr(align(64))]
    struct Memory(UnsafeCell<[u8; 256]>);

    impl Memory {
        fn zeroed() -> Self {
            Self(UnsafeCell::new([0; 256]))
        }
        fn region(&self, from: usize, len: usize) -> Region {
            assert!(from + len <= 256);
            // SAFETY: the cell outlives the region in every test, and no test holds a reference to its inside.
            unsafe { Region::new((self.0.get().expose_provenance() + from) as u64, len as u64) }
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back_and_nothing_beside_it(from in 0usize..64, offset in 0u64..64, bytes in prop::collection::vec(1u8.., 0..128)) {
            let memory = Memory::zeroed();
            let region = memory.region(from, 192);
            region.write(offset, &bytes).unwrap();
            let mut all = [0; 256];
            memory.region(0, 256).read(0, &mut all).unwrap();
            let mut expected = [0; 256];
            expected[from + offset as usize..][..bytes.len()].copy_from_slice(&bytes);
            prop_assert_eq!(all, expected);
            let mut back = vec![0; bytes.len()];
            region.read(offset, &mut back).unwrap();
            prop_assert_eq!(back, bytes);
        }

        #[test]
        fn a_span_is_copied_as_a_slice_would_be(from in 0usize..64, offset in 0u64..64, skip in 0usize..20, bytes in prop::collection::vec(1u8.., 20..128)) {
            let memory = Memory::zeroed();
            let region = memory.region(from, 192);
            region.write_from(offset, &Source::of(&bytes), skip, bytes.len() - skip).unwrap();
            let mut all = [0; 256];
            memory.region(0, 256).read(0, &mut all).unwrap();
            let mut expected = [0; 256];
            expected[from + offset as usize..][..bytes.len() - skip].copy_from_slice(&bytes[skip..]);
            prop_assert_eq!(all, expected);
            let mut back = vec![0; bytes.len()];
            region.read_to(offset, &mut Target::of(&mut back), skip, bytes.len() - skip).unwrap();
            prop_assert_eq!(&back[skip..], &bytes[skip..]);
            prop_assert_eq!(&back[..skip], vec![0; skip]);
        }

        #[test]
        fn no_offset_and_length_reach_outside(offset in prop_oneof![0u64..200, any::<u64>()], len in 0usize..200) {
            let memory = Memory::zeroed();
            let region = memory.region(64, 64);
            let inside = offset.checked_add(len as u64).is_some_and(|end| end <= 64);
            prop_assert_eq!(region.write(offset, &vec![1; len]).is_ok(), inside);
            prop_assert_eq!(region.read(offset, &mut vec![1; len]).is_ok(), inside);
            prop_assert_eq!(region.write_from(offset, &Source::of(&[1; 200]), 0, len).is_ok(), inside);
            prop_assert_eq!(region.read_to(offset, &mut Target::of(&mut [1; 200]), 0, len).is_ok(), inside);
            let mut around = [0; 64];
            memory.region(0, 64).read(0, &mut around).unwrap();
            prop_assert_eq!(around, [0; 64]);
            memory.region(128, 64).read(0, &mut around).unwrap();
            prop_assert_eq!(around, [0; 64]);
        }
    }

    #[test]
    fn atomics_give_back_what_was_there() {
        let memory = Memory::zeroed();
        let region = memory.region(0, 64);
        assert_eq!(region.fetch_add(8, 5), Ok(0));
        assert_eq!(region.fetch_add(8, u64::MAX), Ok(5));
        assert_eq!(region.compare_swap(8, 9, 1), Ok(4), "no match, no change");
        assert_eq!(region.compare_swap(8, 4, 77), Ok(4));
        assert_eq!(region.fetch_add(8, 0), Ok(77));
        assert!(matches!(
            region.fetch_add(4, 1),
            Err(RegionError::Misaligned { .. })
        ));
        assert!(matches!(
            region.fetch_add(60, 1),
            Err(RegionError::OutOfRange { .. })
        ));
        assert!(matches!(
            region.compare_swap(u64::MAX - 3, 0, 0),
            Err(RegionError::OutOfRange { .. })
        ));
    }

    /// The last byte of a message is the flag that programs spin on: once it is there, the rest is there too.
    #[test]
    fn the_last_byte_appears_last() {
        let memory = Memory::zeroed();
        let region = memory.region(3, 200);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=200u8 {
                    region.write(0, &[round; 100]).unwrap();
                    while region.read_byte(150) != round {
                        std::thread::yield_now();
                    }
                }
            });
            for round in 1..=200u8 {
                while region.read_byte(99) != round {
                    std::thread::yield_now();
                }
                std::sync::atomic::fence(Ordering::Acquire);
                let mut seen = [0; 100];
                region.read(0, &mut seen).unwrap();
                assert_eq!(seen, [round; 100]);
                region.write(150, &[round]).unwrap();
            }
        });
    }

    impl Region {
        fn read_byte(&self, offset: u64) -> u8 {
            let at = self.at(offset, 1).unwrap();
            // SAFETY: checked by `at`.
            unsafe { AtomicU8::from_ptr(at).load(Ordering::Acquire) }
        }
    }
}
