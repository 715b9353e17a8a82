//! Anonymous files for shared memory that neither side can shrink under the other.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};

/// A zeroed memfd of `len` bytes whose size is fixed for good.
pub fn create_sealed(name: &str, len: usize) -> io::Result<OwnedFd> {
    let fd = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&fd, len as u64)?;
    fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(fd)
}

/// The length of a file that came from somebody else, if it is sealed against shrinking.
///
/// Without the seal its owner could cut it while we read, and the access would raise SIGBUS.
pub fn sealed_len(fd: impl AsFd) -> io::Result<usize> {
    let fd = fd.as_fd();
    if !fcntl_get_seals(fd)?.contains(SealFlags::SHRINK) {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "the memfd of a peer is not sealed against shrinking",
        ));
    }
    usize::try_from(fstat(fd)?.st_size).map_err(|_| io::ErrorKind::InvalidData.into())
}
