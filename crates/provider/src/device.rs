//! The device list: `ibv_get_device_list(3)` and what can be asked of a device that is not open.
//!
//! A device object, once made, stays: programs keep pointers to devices longer than the list, and compare them. There
//! is one per network interface, so this is bounded.

use std::ffi::{c_char, c_int};
use std::mem::size_of;
use std::sync::{Arc, Mutex, PoisonError};

use adverb_abi::types::{IBV_NODE_CA, IBV_TRANSPORT_IB, Zeroed as _, ibv_device};

use crate::call;
use crate::errno::{self, Error};
use crate::handle::{Kind, Object, not_null};

/// A device of the software NIC.
pub(crate) struct Device {
    pub(crate) nic: Arc<adverb_nic::Device>,
    /// Libraries of hardware vendors read a pointer behind the public part to learn whether a device is theirs, some
    /// of them further on. They find the mark and zeros.
    _padding: [u64; 8],
}

impl Kind for Device {
    type Public = ibv_device;
    const NAME: &'static str = "device";
    const MARK: u64 = 0xadde_0000_0000_0001;
}

const _: () = assert!(size_of::<Object<Device>>() >= size_of::<ibv_device>() + 64);

struct Known(Vec<&'static Object<Device>>);

// SAFETY: after its creation nobody writes to a device object, public part included.
unsafe impl Send for Known {}

static KNOWN: Mutex<Known> = Mutex::new(Known(Vec::new()));

/// The object for a device, made at the first sight of it.
pub(crate) fn object_for(device: Arc<adverb_nic::Device>) -> &'static Object<Device> {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let same = |object: &&&'static Object<Device>| {
        object.nic.name == device.name
            && object.nic.guid == device.guid
            && object.nic.gids() == device.gids()
    };
    if let Some(object) = known.0.iter().find(same) {
        return object;
    }
    let mut public = ibv_device::zeroed();
    public.node_type = IBV_NODE_CA;
    public.transport_type = IBV_TRANSPORT_IB;
    copy_text(&mut public.name, &device.name);
    copy_text(&mut public.dev_name, &format!("uverbs{}", device.index));
    copy_text(
        &mut public.dev_path,
        &format!("/sys/class/infiniband_verbs/uverbs{}", device.index),
    );
    copy_text(
        &mut public.ibdev_path,
        &format!("/sys/class/infiniband/{}", device.name),
    );
    let object = Object::create(
        public,
        Device {
            nic: device,
            _padding: [0; 8],
        },
    );
    known.0.push(object);
    object
}

/// Writes text into a C array, cut if it is too long, and always ended by a zero.
pub(crate) fn copy_text(to: &mut [c_char], text: &str) {
    let room = to.len().saturating_sub(1);
    for (to, from) in to.iter_mut().take(room).zip(text.bytes()) {
        *to = from as c_char;
    }
}

/// The device that stands under a path of sysfs, for programs that look there.
pub(crate) fn by_name(name: &str) -> Option<Arc<adverb_nic::Device>> {
    let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known
        .0
        .iter()
        .rev()
        .find(|object| object.nic.name == name)
        .map(|object| Arc::clone(&object.nic))
}

/// A device that this process has seen; they hardly differ in what is asked of it.
pub(crate) fn any() -> Option<Arc<adverb_nic::Device>> {
    let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known.0.last().map(|object| Arc::clone(&object.nic))
}

/// `ibv_get_device_list(3)`. `count` may be NULL. Fails with what opening the network interfaces may fail with.
///
/// # Safety
/// `count` is NULL or can be written.
pub unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device {
    let list = || -> Result<*mut *mut ibv_device, Error> {
        let devices = adverb_nic::devices()?;
        // SAFETY: plain allocation; zeroed, so the last entry ends the list.
        let list = unsafe { libc::calloc(devices.len() + 1, size_of::<*mut ibv_device>()) }
            .cast::<*mut ibv_device>();
        if list.is_null() {
            return Err(Error::Io(std::io::Error::from_raw_os_error(libc::ENOMEM)));
        }
        let length = devices.len();
        for (index, device) in devices.into_iter().enumerate() {
            // SAFETY: `index` is below the number of entries allocated.
            unsafe { *list.add(index) = object_for(device).public() };
        }
        if !count.is_null() {
            // SAFETY: the caller says that it can be written.
            unsafe { *count = length as c_int };
        }
        Ok(list)
    };
    let list = call::pointer("ibv_get_device_list", list);
    if list.is_null() && !count.is_null() {
        // SAFETY: the caller says that it can be written.
        unsafe { *count = 0 };
    }
    list
}

/// `ibv_free_device_list(3)`. NULL is allowed.
///
/// # Safety
/// `list` is NULL or came from `ibv_get_device_list` and has not been freed.
pub unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    // SAFETY: `ibv_get_device_list` allocated it with calloc.
    unsafe { libc::free(list.cast()) };
}

/// `ibv_get_device_name(3)`: what the structure says, also in one that a program has built by hand.
///
/// # Safety
/// `device` is NULL or a device, ours or not.
pub unsafe extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    match not_null(device, Device::NAME) {
        // SAFETY: not NULL, so the caller says that it can be read.
        Ok(()) => unsafe { (&raw const (*device).name).cast() },
        Err(error) => errno::pointer::<c_char>("ibv_get_device_name", Err(error)),
    }
}

/// The device behind a structure: one of ours, or one that a program has built by hand with the name of one of ours.
/// What lies behind such a structure is not looked at.
///
/// # Safety
/// `device` is NULL or a device, ours or not.
unsafe fn look_up(device: *mut ibv_device) -> Result<&'static Object<Device>, Error> {
    not_null(device, Device::NAME)?;
    let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(object) = known.0.iter().find(|known| known.public() == device) {
        return Ok(object);
    }
    // SAFETY: not NULL, so the caller says that it can be read; the copy is looked at within its bounds.
    let name = unsafe { (&raw const (*device).name).read_unaligned() };
    let name = name.iter().take_while(|c| **c != 0).map(|c| *c as u8);
    // The newest of a name: an interface that went and came again is another device.
    let mut named = known.0.iter().rev();
    named
        .find(|known| name.clone().eq(known.nic.name.bytes()))
        .copied()
        .ok_or(Error::Foreign(Device::NAME))
}

/// `ibv_get_device_guid(3)`: big-endian, 0 for what is no device of ours.
///
/// # Safety
/// As [`ibv_get_device_name`].
pub unsafe extern "C" fn ibv_get_device_guid(device: *mut ibv_device) -> u64 {
    // SAFETY: as our caller promises.
    match unsafe { look_up(device) } {
        Ok(device) => device.nic.guid.to_be(),
        Err(error) => {
            errno::report("ibv_get_device_guid", &error);
            errno::set_errno(error.errno());
            0
        }
    }
}

/// `ibv_get_device_index(3)`: the number in the device's name.
///
/// # Safety
/// As [`ibv_get_device_name`].
pub unsafe extern "C" fn ibv_get_device_index(device: *mut ibv_device) -> c_int {
    // SAFETY: as our caller promises.
    let body = || unsafe { look_up(device) }.map(|device| device.nic.index as c_int);
    call::minus_one("ibv_get_device_index", body)
}
