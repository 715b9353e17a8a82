//! Objects by number: what `ibv_import_device(3)` and its family find.
//!
//! The kernel keeps the objects of a device file, and whoever holds a descriptor of the file may use them by their
//! numbers. Here the objects belong to the process, so the file is a name only: a descriptor, duplicated as often as one
//! likes, leads to the family of contexts that share it. A descriptor from another process leads nowhere.

use std::collections::HashMap;
use std::ffi::c_int;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::device::Device;
use crate::errno::Error;
use crate::handle::Object;
use crate::pd::Share;

/// The contexts of one device file, and their objects.
pub(crate) struct Family {
    file: (u64, u64),
    pub(crate) device: &'static Object<Device>,
    pub(crate) pds: Shelf<Share>,
    pub(crate) mrs: Shelf<adverb_nic::Mr>,
    pub(crate) dms: Shelf<adverb_nic::Dm>,
}

// SAFETY: what keeps a family from being shared by itself is the public part of its device, which C may read. It is
// written at creation only, and devices are never freed.
unsafe impl Send for Family {}
// SAFETY: as above.
unsafe impl Sync for Family {}

/// All families that have a context.
static FAMILIES: Mutex<Vec<Weak<Family>>> = Mutex::new(Vec::new());

impl Family {
    /// A family of its own for a newly opened device, and the descriptor that stands for it.
    pub(crate) fn found(device: &'static Object<Device>) -> Result<(Arc<Self>, OwnedFd), Error> {
        // SAFETY: the name is a C string.
        let fd = unsafe { libc::memfd_create(c"adverb-device".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error().into());
        }
        // SAFETY: just made, and nobody else's.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let family = Arc::new(Self {
            file: file_of(fd.as_raw_fd())?,
            device,
            pds: Shelf::new("protection domain"),
            mrs: Shelf::new("memory region"),
            dms: Shelf::new("device memory"),
        });
        let mut all = FAMILIES.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|known| known.strong_count() > 0);
        all.push(Arc::downgrade(&family));
        Ok((family, fd))
    }

    /// The family whose file a descriptor is open for.
    pub(crate) fn of_descriptor(fd: c_int) -> Result<Arc<Self>, Error> {
        let file = file_of(fd)?;
        let all = FAMILIES.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter()
            .filter_map(Weak::upgrade)
            .find(|family| family.file == file)
            .ok_or(Error::Unsupported(
                "a descriptor of another process, or of no device,",
            ))
    }
}

fn file_of(fd: c_int) -> Result<(u64, u64), Error> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the place can be written; a descriptor that is not open is answered with an error.
    if unsafe { libc::fstat(fd, stat.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error().into());
    }
    // SAFETY: the call has succeeded.
    let stat = unsafe { stat.assume_init() };
    Ok((stat.st_dev, stat.st_ino))
}

/// Objects of one kind by number.
pub(crate) struct Shelf<T> {
    what: &'static str,
    next: AtomicU32,
    places: Mutex<HashMap<u32, Weak<T>>>,
}

impl<T> Shelf<T> {
    fn new(what: &'static str) -> Self {
        Self {
            what,
            next: AtomicU32::new(1),
            places: Mutex::default(),
        }
    }

    /// Gives an object a number.
    pub(crate) fn put(&self, object: &Arc<T>) -> u32 {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let handle = self.next.fetch_add(1, Ordering::Relaxed);
            if handle != 0 && !places.contains_key(&handle) {
                places.insert(handle, Arc::downgrade(object));
                return handle;
            }
        }
    }

    pub(crate) fn get(&self, handle: u32) -> Result<Arc<T>, Error> {
        let places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places
            .get(&handle)
            .and_then(Weak::upgrade)
            .ok_or(Error::NoSuch {
                what: self.what,
                handle,
            })
    }

    /// The object has gone, for everybody.
    pub(crate) fn remove(&self, handle: u32) {
        self.places
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&handle);
    }
}
