//! What programs read below /sys/class/infiniband, where a software device has no directory.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::{fs, io, ptr};

use crate::call;
use crate::device;
use crate::errno::Error;
use crate::handle::not_null;

const CLASS: &str = "/sys/class/infiniband/";

/// `ibv_get_sysfs_path`: where sysfs is mounted.
///
/// # Safety
/// Always safe to call.
pub unsafe extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    c"/sys".as_ptr()
}

/// What a file says, without the end of its last line.
fn content(path: &str) -> io::Result<String> {
    if let Some((name, file)) = path
        .strip_prefix(CLASS)
        .and_then(|rest| rest.split_once('/'))
        && let Some(device) = device::by_name(name)
    {
        return answer(&device, file).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT));
    }
    let bytes = fs::read(path)?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.trim_end_matches('\n').to_owned())
}

/// A file of one of our devices.
fn answer(device: &adverb_nic::Device, file: &str) -> Option<String> {
    let [a, b, c, d, e, f, g, h] = device.guid.to_be_bytes();
    let guid = || format!("{a:02x}{b:02x}:{c:02x}{d:02x}:{e:02x}{f:02x}:{g:02x}{h:02x}");
    let port = |file: &str| -> Option<String> {
        let index = |prefix: &str| file.strip_prefix(prefix)?.parse::<usize>().ok();
        if let Some(index) = index("gid_attrs/types/") {
            return device.gids().get(index).map(|_| "RoCE v2".to_owned());
        }
        if let Some(index) = index("gid_attrs/ndevs/") {
            return device.gids().get(index).map(|_| device.netdev.clone());
        }
        (file == "link_layer").then(|| "Ethernet".to_owned())
    };
    match file {
        "board_id" => Some("Adverb".to_owned()),
        "fw_ver" => Some(env!("CARGO_PKG_VERSION").to_owned()),
        "hw_rev" => Some("0".to_owned()),
        "hca_type" => Some("software".to_owned()),
        "node_type" => Some("1: CA".to_owned()),
        "node_desc" => Some(device.netdev.clone()),
        "node_guid" | "sys_image_guid" => Some(guid()),
        _ => file.strip_prefix("ports/1/").and_then(port),
    }
}

/// Copies text into a buffer of C and ends it with a zero where there is room; returns the length without the zero.
///
/// # Safety
/// `buffer` is good for `size` bytes.
unsafe fn hand_over(text: &str, buffer: *mut c_char, size: usize) -> c_int {
    let length = text.len().min(size);
    // SAFETY: `length` is within both.
    unsafe {
        ptr::copy_nonoverlapping(text.as_ptr(), buffer.cast(), length);
        if length < size {
            *buffer.add(length) = 0;
        }
    }
    length as c_int
}

/// `ibv_read_sysfs_file`: the length of what `dir/file` holds.
///
/// # Safety
/// `dir` and `file` are NULL or C strings, `buffer` is NULL or good for `size` bytes.
pub unsafe extern "C" fn ibv_read_sysfs_file(
    dir: *const c_char,
    file: *const c_char,
    buffer: *mut c_char,
    size: usize,
) -> c_int {
    let read = || -> Result<c_int, Error> {
        not_null(dir, "directory")?;
        not_null(file, "file name")?;
        not_null(buffer, "buffer")?;
        // SAFETY: not NULL, so the caller says that they are C strings.
        let (dir, file) = unsafe { (CStr::from_ptr(dir), CStr::from_ptr(file)) };
        let text = content(&format!(
            "{}/{}",
            dir.to_string_lossy(),
            file.to_string_lossy()
        ))?;
        // SAFETY: the caller says that the buffer has this size.
        Ok(unsafe { hand_over(&text, buffer, size) })
    };
    call::minus_one("ibv_read_sysfs_file", read)
}

/// What `ibv_devinfo` uses from version 57 on. In C the file name is a format with arguments; it is taken as it is,
/// which serves names without any.
///
/// # Safety
/// `file` is NULL or a C string, `buffer` is NULL or good for `size` bytes. The device is not looked at.
pub unsafe extern "C" fn ibv_read_ibdev_sysfs_file(
    buffer: *mut c_char,
    size: usize,
    _sysfs_device: *mut c_void,
    file: *const c_char,
) -> c_int {
    let read = || -> Result<c_int, Error> {
        not_null(file, "file name")?;
        not_null(buffer, "buffer")?;
        // SAFETY: not NULL, so the caller says that it is a C string.
        let file = unsafe { CStr::from_ptr(file) }.to_string_lossy();
        let text = device::any().and_then(|device| answer(&device, &file));
        let text = text.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))?;
        // SAFETY: the caller says that the buffer has this size.
        Ok(unsafe { hand_over(&text, buffer, size) })
    };
    call::minus_one("ibv_read_ibdev_sysfs_file", read)
}
