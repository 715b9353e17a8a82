//! Memory that may not be there yet, or no longer: regions registered for access on demand.
//!
//! Such a region is a range of addresses and no promise. Pages come and go under it, so a plain copy could end in a
//! signal. The kernel copies instead: between two buffers of this process it reports a missing page or a forbidden
//! access as an error, and brings in a page that is merely not present. That costs a system call for each access, as a
//! page fault would cost on a card.
//!
//! Atomic operations have no such call. They bring the page in first and then work on it in place; a program that
//! unmaps memory in the very moment in which a peer's atomic operation reaches it gets the signal.

use std::io;

use crate::probe::probe;
use crate::region::{Region, RegionError};
use crate::span::{Source, Target};

/// A range of addresses where memory may be.
#[derive(Debug, Clone, Copy)]
pub struct DemandRegion {
    place: Region,
}

/// What goes between a span and memory that may be absent is copied through a buffer of so many bytes: the kernel's call
/// is dear anyway.
const BOUNCE: usize = 4096;

/// An access that did not take place, or only in part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DemandError {
    /// Outside the range, or misaligned.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// Nothing is mapped there that allows the access.
    #[error("{len} bytes at {addr:#x} are not all mapped for this access")]
    Absent {
        /// First address of the access.
        addr: u64,
        /// Length of the access.
        len: u64,
    },
}

impl DemandRegion {
    /// Takes charge of `len` addresses from `addr` on.
    ///
    /// # Safety
    ///
    /// Whatever is mapped there when it is accessed may be read and changed: nothing in the process holds a Rust
    /// reference to it that forbids that.
    #[must_use]
    pub const unsafe fn new(addr: u64, len: u64) -> Self {
        Self {
            // SAFETY: that the range is mapped is made sure of before each direct access.
            place: unsafe { Region::new(addr, len) },
        }
    }

    /// Number of addresses.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.place.len()
    }

    /// Whether the range has no addresses at all.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.place.is_empty()
    }

    /// Copies `into.len()` bytes out of the range.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), DemandError> {
        let addr = self.at(offset, into.len())?;
        copy(
            Direction::Out,
            addr,
            into.as_mut_ptr().cast(),
            into.len(),
            &self.place,
            offset,
        )
    }

    /// Copies `bytes` into the range; the last (up to eight) bytes become visible last.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), DemandError> {
        let addr = self.at(offset, bytes.len())?;
        let Some(last) = bytes.len().checked_sub(1) else {
            return Ok(());
        };
        let tail = ((addr as usize + last) % 8 + 1).min(bytes.len());
        let bulk = bytes.len() - tail;
        for (from, to) in [(0, bulk), (bulk, bytes.len())] {
            let part = &bytes[from..to];
            if !part.is_empty() {
                copy(
                    Direction::In,
                    addr + from as u64,
                    part.as_ptr().cast_mut().cast(),
                    part.len(),
                    &self.place,
                    offset + from as u64,
                )?;
            }
        }
        Ok(())
    }

    /// Copies `len` bytes of the range to `to`, from byte `at` on.
    ///
    /// # Panics
    /// When they are not all in the target.
    pub fn read_to(
        &self,
        offset: u64,
        to: &mut Target<'_>,
        at: usize,
        len: usize,
    ) -> Result<(), DemandError> {
        let mut bounce = [0; BOUNCE];
        for done in (0..len).step_by(BOUNCE) {
            let part = &mut bounce[..BOUNCE.min(len - done)];
            self.read(offset.wrapping_add(done as u64), part)?;
            to.put(at + done, part);
        }
        Ok(())
    }

    /// Copies `len` bytes of `from` into the range, from byte `at` on; as with [`DemandRegion::write`], the last ones
    /// become visible last.
    ///
    /// # Panics
    /// When they are not all in the source.
    pub fn write_from(
        &self,
        offset: u64,
        from: &Source<'_>,
        at: usize,
        len: usize,
    ) -> Result<(), DemandError> {
        let mut bounce = [0; BOUNCE];
        for done in (0..len).step_by(BOUNCE) {
            let part = &mut bounce[..BOUNCE.min(len - done)];
            from.copy(at + done, part);
            self.write(offset.wrapping_add(done as u64), part)?;
        }
        Ok(())
    }

    /// Remote COMPARE & SWAP: gives back what was there.
    pub fn compare_swap(&self, offset: u64, compare: u64, swap: u64) -> Result<u64, DemandError> {
        self.bring(offset, 8, true)?;
        Ok(self.place.compare_swap(offset, compare, swap)?)
    }

    /// Remote FETCH & ADD (wrapping): gives back what was there.
    pub fn fetch_add(&self, offset: u64, add: u64) -> Result<u64, DemandError> {
        self.bring(offset, 8, true)?;
        Ok(self.place.fetch_add(offset, add)?)
    }

    /// Brings the pages of a part of the range in.
    pub fn bring(&self, offset: u64, len: u64, writable: bool) -> Result<(), DemandError> {
        let addr = self.at(offset, len as usize)?;
        probe(addr, len, writable).map_err(|_| DemandError::Absent { addr, len })
    }

    fn at(&self, offset: u64, len: usize) -> Result<u64, DemandError> {
        let error = RegionError::OutOfRange {
            offset,
            len: len as u64,
            region_len: self.place.len(),
        };
        let end = offset.checked_add(len as u64).ok_or(error)?;
        if end > self.place.len() {
            return Err(error.into());
        }
        Ok(self.place.addr().checked_add(offset).ok_or(error)?)
    }
}

enum Direction {
    /// From the range into our buffer.
    Out,
    /// From our buffer into the range.
    In,
}

/// Has the kernel copy between `buffer` and `addr`, which is `offset` in `place`.
fn copy(
    direction: Direction,
    addr: u64,
    buffer: *mut libc::c_void,
    len: usize,
    place: &Region,
    offset: u64,
) -> Result<(), DemandError> {
    let absent = DemandError::Absent {
        addr,
        len: len as u64,
    };
    let mut done = 0;
    while done < len {
        let ours = libc::iovec {
            iov_base: buffer.wrapping_byte_add(done),
            iov_len: len - done,
        };
        let theirs = libc::iovec {
            iov_base: std::ptr::with_exposed_provenance_mut((addr as usize).wrapping_add(done)),
            iov_len: len - done,
        };
        // SAFETY: the kernel checks every page on both sides. Ours is a live buffer of `len` bytes, only read from for
        // `In`; what is at the other side may be changed by the contract of `new`.
        let moved = unsafe {
            let me = libc::getpid();
            match direction {
                Direction::Out => libc::process_vm_readv(me, &ours, 1, &theirs, 1, 0),
                Direction::In => libc::process_vm_writev(me, &ours, 1, &theirs, 1, 0),
            }
        };
        match usize::try_from(moved) {
            Ok(0) => return Err(absent),
            // Less than asked for: a page is missing further on, and the next round says so.
            Ok(n) => done += n,
            Err(_) => match io::Error::last_os_error().raw_os_error() {
                Some(libc::EINTR) => {}
                // A sandbox forbids the call: looking first and copying then is the best there is.
                Some(libc::EPERM | libc::ENOSYS) => {
                    return directly(&direction, buffer, len, place, offset);
                }
                _ => return Err(absent),
            },
        }
    }
    Ok(())
}

fn directly(
    direction: &Direction,
    buffer: *mut libc::c_void,
    len: usize,
    place: &Region,
    offset: u64,
) -> Result<(), DemandError> {
    let (addr, count) = (place.addr().wrapping_add(offset), len as u64);
    let writable = matches!(direction, Direction::In);
    probe(addr, count, writable).map_err(|_| DemandError::Absent { addr, len: count })?;
    // SAFETY: `buffer` is the caller's live buffer of `len` bytes, not used otherwise meanwhile.
    unsafe {
        match direction {
            Direction::Out => {
                place.read(offset, std::slice::from_raw_parts_mut(buffer.cast(), len))?;
            }
            Direction::In => {
                place.write(
                    offset,
                    std::slice::from_raw_parts(buffer.cast_const().cast(), len),
                )?;
            }
        }
    }
    Ok(())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

    const PAGE: usize = 4096;

    fn pages(count: usize) -> u64 {
        pages_near(0, count)
    }

    /// Pages close to where the kernel puts nothing by itself, if that is free. A hole among others may be filled at
    /// once by the tests that run beside.
    fn pages_near(hint: usize, count: usize) -> u64 {
        // SAFETY: no address is demanded.
        let at = unsafe {
            mmap_anonymous(
                std::ptr::with_exposed_provenance_mut(hint),
                count * PAGE,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        };
        at.unwrap() as u64
    }

    fn unmap(addr: u64) {
        // SAFETY: a page of `pages` that nobody else uses.
        unsafe { munmap(std::ptr::with_exposed_provenance_mut(addr as usize), PAGE) }.unwrap();
    }

    fn everything() -> DemandRegion {
        // SAFETY: the tests access pages of their own only.
        unsafe { DemandRegion::new(0, u64::MAX) }
    }

    #[test]
    fn bytes_come_back_and_absent_pages_are_errors() {
        let at = pages_near(0x10_0000_0000, 3);
        let all = everything();
        let text: Vec<u8> = (0..5000).map(|n| n as u8).collect();
        all.write(at + 3, &text).unwrap();
        let mut back = vec![0; text.len()];
        all.read(at + 3, &mut back).unwrap();
        assert_eq!(back, text);
        all.write_from(at + 100, &Source::of(&text), 20, 4900)
            .unwrap();
        all.read_to(at + 100, &mut Target::of(&mut back), 20, 4900)
            .unwrap();
        assert_eq!(back, text);
        all.read(at + 100, &mut back[..4900]).unwrap();
        assert_eq!(back[..4900], text[20..4920]);
        unmap(at + PAGE as u64);
        let edge = at + PAGE as u64 - 4;
        assert!(matches!(
            all.read(edge, &mut [0; 8]),
            Err(DemandError::Absent { .. })
        ));
        assert!(all.write(edge, &[1; 8]).is_err());
        all.write(edge, &[1; 4]).unwrap();
        assert!(all.fetch_add(at + PAGE as u64, 1).is_err());
        assert!(all.read(0, &mut [0; 1]).is_err());
        assert!(all.read(u64::MAX - 20, &mut [0; 8]).is_err());
        all.read(at, &mut []).unwrap();
    }

    #[test]
    fn protection_counts() {
        let at = pages(1);
        let all = everything();
        all.write(at, &[7; 16]).unwrap();
        // SAFETY: the page is ours.
        unsafe {
            mprotect(
                std::ptr::with_exposed_provenance_mut(at as usize),
                PAGE,
                MprotectFlags::READ,
            )
        }
        .unwrap();
        assert!(all.write(at, &[1]).is_err());
        assert!(all.compare_swap(at, 0, 1).is_err());
        let mut byte = [0];
        all.read(at, &mut byte).unwrap();
        assert_eq!(byte, [7]);
    }

    #[test]
    fn atomics_work_in_pages_that_were_never_touched() {
        let at = pages(1);
        let all = everything();
        assert_eq!(all.fetch_add(at + 8, 5), Ok(0));
        assert_eq!(all.compare_swap(at + 8, 5, 9), Ok(5));
        assert_eq!(all.fetch_add(at + 8, 0), Ok(9));
        assert!(matches!(
            all.fetch_add(at + 4, 1),
            Err(DemandError::Region(RegionError::Misaligned { .. }))
        ));
    }

    #[test]
    fn the_range_ends_where_it_was_said_to() {
        let at = pages(1);
        // SAFETY: the page is ours.
        let part = unsafe { DemandRegion::new(at + 100, 50) };
        part.write(0, &[3; 50]).unwrap();
        assert!(matches!(
            part.write(1, &[0; 50]),
            Err(DemandError::Region(RegionError::OutOfRange { .. }))
        ));
        assert!(part.read(u64::MAX, &mut [0; 2]).is_err());
        let mut all = [0; 200];
        everything().read(at, &mut all).unwrap();
        assert_eq!(all.iter().filter(|b| **b == 3).count(), 50);
    }
}
