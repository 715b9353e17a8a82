//! Devices: the software NIC's and the system's, in one list.

use std::ffi::{CStr, CString};
use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use adverb_abi::table::Verbs;
use adverb_abi::types as c;

use crate::error::{Error, Result};
use crate::sys;
use crate::values::Guid;

/// Who is behind a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The software NIC linked into this program.
    Software,
    /// The system's libibverbs, usually with a card.
    System,
}

/// All devices: those of the software NIC first, then the system's.
///
/// No libibverbs, no RDMA support in the kernel, or no card is not an error: the list is shorter.
///
/// ```
/// for device in adverb::devices()? {
///     println!("{} {} {:?}", device.name(), device.guid(), device.origin());
/// }
/// # Ok::<(), adverb::Error>(())
/// ```
///
/// # Errors
/// A library that is there but fails for another reason.
#[doc(alias = "ibv_get_device_list")]
pub fn devices() -> Result<Vec<Device>> {
    let mut devices = Vec::new();
    #[cfg(feature = "soft")]
    list(adverb_provider::verbs(), Origin::Software, &mut devices)?;
    if let Some(verbs) = system()? {
        list(verbs, Origin::System, &mut devices)?;
    }
    Ok(devices)
}

/// The system's library, looked for once and never closed.
fn system() -> Result<Option<&'static Verbs>> {
    static SYSTEM: OnceLock<Result<Option<Verbs>, String>> = OnceLock::new();
    match SYSTEM.get_or_init(|| Verbs::load_system().map_err(|e| e.to_string())) {
        Ok(verbs) => Ok(verbs.as_ref()),
        Err(text) => Err(Error::Load(text.clone())),
    }
}

fn list(verbs: &'static Verbs, origin: Origin, into: &mut Vec<Device>) -> Result<()> {
    let mut count = 0;
    // SAFETY: `count` is a valid place for a number.
    let array = unsafe { (verbs.get_device_list)(&raw mut count) };
    let Some(array) = NonNull::new(array) else {
        // No RDMA in this kernel, no permission to look: there is no hardware for us.
        return match sys::last_errno() {
            libc::ENOSYS | libc::ENOENT | libc::ENODEV | libc::EPERM | libc::EACCES => Ok(()),
            errno => Err(sys::failure("ibv_get_device_list", "the system", errno)),
        };
    };
    let list = Arc::new(List { verbs, array });
    for index in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the array has `count` entries.
        let Some(raw) = NonNull::new(unsafe { *array.as_ptr().add(index) }) else {
            break;
        };
        // SAFETY: the device is alive while the list is.
        let (name, guid) = unsafe {
            let name = (verbs.get_device_name)(raw.as_ptr());
            (
                CStr::from_ptr(name).to_string_lossy().into_owned(),
                (verbs.get_device_guid)(raw.as_ptr()),
            )
        };
        into.push(Device {
            raw,
            name,
            guid: Guid(u64::from_be(guid)),
            origin,
            list: Arc::clone(&list),
        });
    }
    Ok(())
}

/// The array that keeps its devices alive.
struct List {
    verbs: &'static Verbs,
    array: NonNull<*mut c::ibv_device>,
}

// SAFETY: the array is only read, and freed once, by the last owner; libibverbs counts references
// to devices in a thread-safe way.
unsafe impl Send for List {}
// SAFETY: as above.
unsafe impl Sync for List {}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: the array came from get_device_list and no `Device` refers to it any more.
        unsafe { (self.verbs.free_device_list)(self.array.as_ptr()) };
    }
}

/// A device that can be opened.
#[derive(Clone)]
#[doc(alias = "ibv_device")]
pub struct Device {
    raw: NonNull<c::ibv_device>,
    name: String,
    guid: Guid,
    origin: Origin,
    list: Arc<List>,
}

// SAFETY: an ibv_device is read-only for its users; the list keeps it alive.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

impl Device {
    /// Its name, such as `adverb0` or `mlx5_0`.
    #[doc(alias = "ibv_get_device_name")]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its identity.
    #[doc(alias = "ibv_get_device_guid")]
    pub fn guid(&self) -> Guid {
        self.guid
    }

    /// Who is behind it.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// Its transport (`ibv_transport_type`): 0 for InfiniBand and RoCE, 1 for iWARP.
    pub fn transport_type(&self) -> i32 {
        // SAFETY: the device is alive while the list is.
        unsafe { (*self.raw.as_ptr()).transport_type }
    }

    /// The name of its character device, such as `uverbs0`.
    #[doc(alias = "dev_name")]
    pub fn uverbs_name(&self) -> String {
        // SAFETY: the device is alive while the list is, and its texts end with a zero.
        let name = unsafe { CStr::from_ptr((*self.raw.as_ptr()).dev_name.as_ptr()) };
        name.to_string_lossy().into_owned()
    }

    /// What its file in sysfs says, such as `board_id` or `node_desc`, without the end of the line. A software device
    /// answers too, although it has no directory there.
    #[doc(alias = "ibv_read_sysfs_file")]
    pub fn sysfs_attribute(&self, file: &str) -> Option<String> {
        let read = self.list.verbs.read_sysfs_file?;
        let file = CString::new(file).ok()?;
        let mut text = vec![0_u8; 4096];
        // SAFETY: the device is alive while the list is, its path and `file` end with a zero, and the buffer has the
        // size that is told.
        let length = unsafe {
            let dir = (*self.raw.as_ptr()).ibdev_path.as_ptr();
            read(dir, file.as_ptr(), text.as_mut_ptr().cast(), text.len())
        };
        text.truncate(usize::try_from(length).ok()?);
        Some(String::from_utf8_lossy(&text).into_owned())
    }

    pub(crate) fn verbs(&self) -> &'static Verbs {
        self.list.verbs
    }

    /// The C object; valid while this value or a clone of it lives.
    pub fn as_raw(&self) -> *mut c::ibv_device {
        self.raw.as_ptr()
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device")
            .field("name", &self.name)
            .field("guid", &self.guid)
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}
