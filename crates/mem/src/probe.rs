//! Does this memory exist, and may we do with it what a registration asks for?
//!
//! A program may register any address. The kernel answers for real cards with EFAULT; here `madvise` does: populating
//! a range fails where nothing is mapped or the protection forbids the access, and touches every page on the way, so
//! that no fault happens on the data path. Kernels before 5.14 and special mappings (device memory) do not know this
//! advice; for those the table in `/proc/self/maps` decides.

use std::io;

use rustix::io::Errno;
use rustix::mm::{Advice, madvise};

/// Why memory cannot be registered. All of these are EFAULT to a C program, except the last.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// Part of the range is not mapped, or does not allow the access.
    #[error("{len} bytes at {addr:#x} are not all mapped {}", if *.writable { "and writable" } else { "and readable" })]
    Inaccessible {
        /// First address of the range.
        addr: u64,
        /// Length of the range.
        len: u64,
        /// Whether writing was asked for.
        writable: bool,
    },
    /// The range ends beyond the last address.
    #[error("{len} bytes at {addr:#x} reach beyond the last address")]
    Wraps {
        /// First address of the range.
        addr: u64,
        /// Length of the range.
        len: u64,
    },
    /// The kernel had no memory or refused for another reason.
    #[error("{len} bytes at {addr:#x} could not be touched")]
    Io {
        /// First address of the range.
        addr: u64,
        /// Length of the range.
        len: u64,
        /// What the kernel said.
        source: io::Error,
    },
}

/// Checks that `len` bytes at `addr` are mapped and readable (and writable), and brings their pages in.
///
/// The content does not change, and other threads may use the memory meanwhile.
pub fn probe(addr: u64, len: u64, writable: bool) -> Result<(), ProbeError> {
    if len == 0 {
        return Ok(());
    }
    let page = rustix::param::page_size() as u64;
    let end = addr
        .checked_add(len)
        .and_then(|end| end.checked_next_multiple_of(page))
        .ok_or(ProbeError::Wraps { addr, len })?;
    let start = addr - addr % page;
    let advice = if writable {
        Advice::LinuxPopulateWrite
    } else {
        Advice::LinuxPopulateRead
    };
    loop {
        // SAFETY: these two kinds of advice read, or write without changing anything, what is mapped; they never
        // unmap or discard. For addresses that are not mapped the kernel answers with an error.
        let result = unsafe {
            madvise(
                std::ptr::without_provenance_mut(start as usize),
                (end - start) as usize,
                advice,
            )
        };
        return match result {
            Ok(()) => Ok(()),
            Err(Errno::INTR | Errno::AGAIN) => continue,
            Err(Errno::NOMEM | Errno::FAULT) => Err(ProbeError::Inaccessible {
                addr,
                len,
                writable,
            }),
            Err(Errno::INVAL) => by_table(addr, len, writable),
            Err(error) => Err(ProbeError::Io {
                addr,
                len,
                source: error.into(),
            }),
        };
    }
}

/// Looks the range up in the process's own table of mappings.
fn by_table(addr: u64, len: u64, writable: bool) -> Result<(), ProbeError> {
    let table = std::fs::read_to_string("/proc/self/maps").map_err(|source| ProbeError::Io {
        addr,
        len,
        source,
    })?;
    if covers(&table, addr, addr + len, writable) {
        Ok(())
    } else {
        Err(ProbeError::Inaccessible {
            addr,
            len,
            writable,
        })
    }
}

/// Whether the lines of `table`, which the kernel sorts by address, cover `from..to` with the rights asked for.
fn covers(table: &str, from: u64, to: u64, writable: bool) -> bool {
    let mut reached = from;
    for line in table.lines() {
        let Some((range, rest)) = line.split_once(' ') else {
            continue;
        };
        let Some((start, end)) = range.split_once('-') else {
            continue;
        };
        let (Ok(start), Ok(end)) = (u64::from_str_radix(start, 16), u64::from_str_radix(end, 16))
        else {
            continue;
        };
        if end <= reached {
            continue;
        }
        let allowed = rest.starts_with('r') && (!writable || rest.as_bytes().get(1) == Some(&b'w'));
        if start > reached || !allowed {
            return false;
        }
        reached = end;
        if reached >= to {
            return true;
        }
    }
    false
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, mprotect, munmap};

    fn anonymous(pages: usize, rights: ProtFlags) -> u64 {
        // Where the kernel puts nothing by itself: the tests that run beside would fill a hole elsewhere.
        // SAFETY: no address is demanded.
        let at = unsafe {
            mmap_anonymous(
                pointer(0x11_0000_0000),
                pages * 4096,
                rights,
                MapFlags::PRIVATE,
            )
            .unwrap()
        };
        at as u64
    }

    fn pointer(addr: u64) -> *mut std::ffi::c_void {
        std::ptr::with_exposed_provenance_mut(addr as usize)
    }

    #[test]
    fn mapped_memory_of_every_kind_is_found() {
        let heap = vec![0u8; 100_000];
        probe(heap.as_ptr() as u64, heap.len() as u64, true).unwrap();
        let stack = [0u8; 100];
        probe(stack.as_ptr() as u64, 100, true).unwrap();
        static CONSTANT: [u8; 16] = [7; 16];
        probe(CONSTANT.as_ptr() as u64, 16, false).unwrap();
        probe(0, 0, true).unwrap();

        let file = crate::memfd::create_sealed("probe", 8192).unwrap();
        // SAFETY: no address is demanded.
        let shared = unsafe {
            mmap(
                std::ptr::null_mut(),
                8192,
                ProtFlags::READ,
                MapFlags::SHARED,
                &file,
                0,
            )
            .unwrap()
        } as u64;
        probe(shared, 8192, false).unwrap();
        probe(shared, 8192, true).unwrap_err();
    }

    #[test]
    fn holes_and_missing_rights_are_errors_not_signals() {
        let at = anonymous(4, ProtFlags::READ | ProtFlags::WRITE);
        probe(at + 5, 4 * 4096 - 5, true).unwrap();
        // SAFETY: the pages are ours and nobody uses them.
        unsafe { mprotect(pointer(at + 4096), 4096, rustix::mm::MprotectFlags::READ).unwrap() };
        probe(at, 4 * 4096, false).unwrap();
        assert!(matches!(
            probe(at, 4 * 4096, true),
            Err(ProbeError::Inaccessible { .. })
        ));
        probe(at + 8192, 8192, true).unwrap();
        // SAFETY: as above.
        unsafe { munmap(pointer(at + 8192), 4096).unwrap() };
        assert!(matches!(
            probe(at, 4 * 4096, false),
            Err(ProbeError::Inaccessible { .. })
        ));
        probe(at + 3 * 4096, 1, true).unwrap();
        assert!(matches!(
            probe(8, 8, false),
            Err(ProbeError::Inaccessible { .. })
        ));
        assert!(matches!(
            probe(u64::MAX - 4, 8, false),
            Err(ProbeError::Wraps { .. })
        ));
        probe(1 << 63, 4096, false).unwrap_err();

        let none = anonymous(1, ProtFlags::empty());
        assert!(matches!(
            probe(none, 1, false),
            Err(ProbeError::Inaccessible { .. })
        ));
    }

    #[test]
    fn the_table_gives_the_same_answers() {
        let table = "1000-3000 r--p 0 0 0\n3000-5000 rw-p 0 0 0 [heap]\n6000-7000 rw-p 0 0 0\n7000-8000 ---p 0 0 0\n";
        assert!(covers(table, 0x1000, 0x5000, false));
        assert!(!covers(table, 0x1000, 0x5000, true));
        assert!(covers(table, 0x3001, 0x4fff, true));
        assert!(!covers(table, 0x4fff, 0x6001, false), "a hole");
        assert!(!covers(table, 0x6fff, 0x7001, false), "no rights");
        assert!(!covers(table, 0x9000, 0x9001, false), "behind the last");
        let heap = vec![0u8; 10_000];
        by_table(heap.as_ptr() as u64, 10_000, true).unwrap();
        by_table(8, 8, false).unwrap_err();
    }
}
