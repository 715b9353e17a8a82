//! Names: `rdma_getaddrinfo(3)`. The host's resolver finds addresses; which kind of queue pair goes with them is a matter
//! of the hints.
//!
//! Programs replace parts of the result by what they have allocated themselves, so everything in it is malloc's.

use std::ffi::{c_char, c_int, c_void};
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::ptr;

use adverb_abi::types::*;
use libc::{addrinfo, sockaddr, socklen_t};

use crate::call;
use crate::errno::Error;
use crate::handle::not_null;

/// Why there is no result: an answer of the resolver is passed on as it is.
enum Failure {
    Resolver(c_int),
    Ours(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Ours(error)
    }
}

fn out_of_memory() -> Error {
    io::Error::from_raw_os_error(libc::ENOMEM).into()
}

/// A copy in malloc's memory.
///
/// # Safety
/// `from` is good for `length` bytes.
unsafe fn copy(from: *const c_void, length: usize) -> Result<*mut c_void, Error> {
    // SAFETY: plain allocation.
    let to = unsafe { libc::malloc(length.max(1)) };
    if to.is_null() {
        return Err(out_of_memory());
    }
    // SAFETY: both are good for as many bytes.
    unsafe { ptr::copy_nonoverlapping(from.cast::<u8>(), to.cast::<u8>(), length) };
    Ok(to)
}

/// # Safety
/// `from` is NULL or good for `length` bytes.
unsafe fn copy_address(
    from: *const sockaddr,
    length: socklen_t,
    to: &mut *mut sockaddr,
    to_length: &mut socklen_t,
) -> Result<(), Error> {
    if !from.is_null() && length > 0 {
        // SAFETY: as our caller promises.
        *to = unsafe { copy(from.cast(), length as usize) }?.cast();
        *to_length = length;
    }
    Ok(())
}

/// What the resolver is asked, given the hints.
fn question(hints: Option<&rdma_addrinfo>) -> addrinfo {
    // SAFETY: zeros are what C programs start such a structure with: numbers, and pointers that are NULL.
    let mut ask: addrinfo = unsafe { MaybeUninit::zeroed().assume_init() };
    ask.ai_socktype = libc::SOCK_STREAM;
    let Some(hints) = hints else {
        return ask;
    };
    if hints.ai_flags & RAI_PASSIVE != 0 {
        ask.ai_flags |= libc::AI_PASSIVE;
    }
    if hints.ai_flags & RAI_NUMERICHOST != 0 {
        ask.ai_flags |= libc::AI_NUMERICHOST;
    }
    if hints.ai_family != super::address::AF_IB {
        ask.ai_family = hints.ai_family;
    }
    if is_datagram(hints) {
        ask.ai_socktype = libc::SOCK_DGRAM;
    }
    ask
}

/// Whether hints describe datagrams. The type of queue pair decides before the port space does.
fn is_datagram(hints: &rdma_addrinfo) -> bool {
    match hints.ai_qp_type as ibv_qp_type {
        0 => matches!(
            hints.ai_port_space as rdma_port_space,
            RDMA_PS_UDP | RDMA_PS_IPOIB
        ),
        kind => kind == IBV_QPT_UD,
    }
}

/// Type of queue pair and port space of a result.
fn kind(hints: Option<&rdma_addrinfo>) -> (c_int, c_int) {
    let datagram = hints.is_some_and(is_datagram);
    let given = |value: c_int, default: u32| match value {
        0 => default as c_int,
        value => value,
    };
    let (kind, space) = match datagram {
        true => (IBV_QPT_UD, RDMA_PS_UDP),
        false => (IBV_QPT_RC, RDMA_PS_TCP),
    };
    (
        given(hints.map_or(0, |h| h.ai_qp_type), kind),
        given(hints.map_or(0, |h| h.ai_port_space), space),
    )
}

/// Fills a result that is zeroed, which is freed by the caller if that fails.
///
/// # Safety
/// The names are NULL or C strings, what the hints point to can be read.
unsafe fn fill(
    to: &mut rdma_addrinfo,
    node: *const c_char,
    service: *const c_char,
    hints: Option<&rdma_addrinfo>,
) -> Result<(), Failure> {
    to.ai_flags = hints.map_or(0, |h| h.ai_flags);
    (to.ai_qp_type, to.ai_port_space) = kind(hints);
    let passive = to.ai_flags & RAI_PASSIVE != 0;
    if !node.is_null() || !service.is_null() {
        let ask = question(hints);
        let mut found: *mut addrinfo = ptr::null_mut();
        // SAFETY: as our caller promises.
        let status = unsafe { libc::getaddrinfo(node, service, &raw const ask, &raw mut found) };
        if status != 0 || found.is_null() {
            return Err(Failure::Resolver(status));
        }
        // SAFETY: the call has succeeded, so there is a first result, which is alive until freed below.
        let copied = unsafe { take(to, &*found, passive) };
        // SAFETY: came from getaddrinfo.
        unsafe { libc::freeaddrinfo(found) };
        copied?;
    }
    if let Some(hints) = hints {
        // SAFETY: as our caller promises.
        unsafe {
            if to.ai_src_addr.is_null() {
                copy_address(
                    hints.ai_src_addr,
                    hints.ai_src_len,
                    &mut to.ai_src_addr,
                    &mut to.ai_src_len,
                )?;
            }
            if to.ai_dst_addr.is_null() {
                copy_address(
                    hints.ai_dst_addr,
                    hints.ai_dst_len,
                    &mut to.ai_dst_addr,
                    &mut to.ai_dst_len,
                )?;
            }
        }
        if to.ai_family == 0 {
            to.ai_family = hints.ai_family;
        }
    }
    Ok(())
}

/// Takes over the first of the resolver's results.
///
/// # Safety
/// `found` is one.
unsafe fn take(to: &mut rdma_addrinfo, found: &addrinfo, passive: bool) -> Result<(), Error> {
    to.ai_family = found.ai_family;
    let (address, length, name) = match passive {
        true => (
            &mut to.ai_src_addr,
            &mut to.ai_src_len,
            &mut to.ai_src_canonname,
        ),
        false => (
            &mut to.ai_dst_addr,
            &mut to.ai_dst_len,
            &mut to.ai_dst_canonname,
        ),
    };
    // SAFETY: as our caller promises.
    unsafe {
        copy_address(found.ai_addr, found.ai_addrlen, address, length)?;
        if !found.ai_canonname.is_null() {
            *name = libc::strdup(found.ai_canonname);
        }
    }
    Ok(())
}

/// `rdma_getaddrinfo(3)`: one result. Returns 0, or -1 with errno, or what `getaddrinfo(3)` has returned.
///
/// # Safety
/// The names are NULL or C strings, `hints` is NULL or can be read with what it points to, `res` is NULL or can be
/// written.
pub unsafe extern "C" fn rdma_getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
    res: *mut *mut rdma_addrinfo,
) -> c_int {
    let get = || -> Result<(), Failure> {
        not_null(res, "place for the result")?;
        if node.is_null() && service.is_null() && hints.is_null() {
            return Err(
                Error::Argument("neither a name, nor a service, nor hints are given").into(),
            );
        }
        // SAFETY: plain allocation, zeroed.
        let made = unsafe { libc::calloc(1, size_of::<rdma_addrinfo>()) }.cast::<rdma_addrinfo>();
        if made.is_null() {
            return Err(out_of_memory().into());
        }
        // SAFETY: as our caller promises; zeros are a valid value, and the result is nobody else's yet.
        let filled = unsafe { fill(&mut *made, node, service, hints.as_ref()) };
        match filled {
            Ok(()) => {
                // SAFETY: not NULL, so the caller says that it can be written.
                unsafe { *res = made };
                Ok(())
            }
            Err(failure) => {
                // SAFETY: made above.
                unsafe { rdma_freeaddrinfo(made) };
                Err(failure)
            }
        }
    };
    call::minus_one("rdma_getaddrinfo", || match get() {
        Ok(()) => Ok(0),
        Err(Failure::Resolver(status)) => Ok(status),
        Err(Failure::Ours(error)) => Err(error),
    })
}

/// `rdma_freeaddrinfo(3)`. NULL is allowed.
///
/// # Safety
/// `res` is NULL or came from [`rdma_getaddrinfo`], its parts from malloc.
pub unsafe extern "C" fn rdma_freeaddrinfo(res: *mut rdma_addrinfo) {
    let mut next = res;
    while !next.is_null() {
        // SAFETY: as our caller promises; all parts are malloc's.
        unsafe {
            let info = next.read();
            for part in [
                info.ai_src_addr.cast::<c_void>(),
                info.ai_dst_addr.cast(),
                info.ai_src_canonname.cast(),
                info.ai_dst_canonname.cast(),
                info.ai_route,
                info.ai_connect,
            ] {
                libc::free(part);
            }
            libc::free(next.cast());
            next = info.ai_next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result for a name, with what it is looked at by the test.
    fn look(
        node: &std::ffi::CStr,
        service: &std::ffi::CStr,
        hints: &rdma_addrinfo,
        check: impl FnOnce(&rdma_addrinfo),
    ) -> c_int {
        let mut res = ptr::null_mut();
        // SAFETY: C strings, and a place to write.
        unsafe {
            let status = rdma_getaddrinfo(node.as_ptr(), service.as_ptr(), hints, &raw mut res);
            if status == 0 {
                check(&*res);
                rdma_freeaddrinfo(res);
            }
            status
        }
    }

    #[test]
    fn a_name_is_a_destination_or_with_the_flag_a_source() {
        let mut hints = rdma_addrinfo::zeroed();
        hints.ai_port_space = RDMA_PS_TCP as c_int;
        let status = look(c"127.0.0.1", c"7471", &hints, |info| {
            assert!(info.ai_src_addr.is_null() && !info.ai_dst_addr.is_null());
            assert_eq!((info.ai_family, info.ai_dst_len), (libc::AF_INET, 16));
            assert_eq!(info.ai_qp_type, IBV_QPT_RC as c_int);
            // SAFETY: an address of the resolver.
            let address = unsafe { super::super::address::read_ip(info.ai_dst_addr) };
            assert_eq!(address.ok(), "127.0.0.1:7471".parse().ok());
        });
        assert_eq!(status, 0);
        hints.ai_flags = RAI_PASSIVE;
        let status = look(c"127.0.0.1", c"7471", &hints, |info| {
            assert!(!info.ai_src_addr.is_null() && info.ai_dst_addr.is_null());
        });
        assert_eq!(status, 0);
    }

    #[test]
    fn datagrams_by_port_space_or_by_type() {
        let mut hints = rdma_addrinfo::zeroed();
        assert_eq!(kind(None), (IBV_QPT_RC as c_int, RDMA_PS_TCP as c_int));
        hints.ai_port_space = RDMA_PS_UDP as c_int;
        assert_eq!(
            kind(Some(&hints)),
            (IBV_QPT_UD as c_int, RDMA_PS_UDP as c_int)
        );
        hints.ai_port_space = 0;
        hints.ai_qp_type = IBV_QPT_UD as c_int;
        assert_eq!(
            kind(Some(&hints)),
            (IBV_QPT_UD as c_int, RDMA_PS_UDP as c_int)
        );
        hints.ai_qp_type = IBV_QPT_UC as c_int;
        assert_eq!(
            kind(Some(&hints)),
            (IBV_QPT_UC as c_int, RDMA_PS_TCP as c_int)
        );
    }

    #[test]
    fn what_the_resolver_does_not_know_is_its_answer() {
        let mut hints = rdma_addrinfo::zeroed();
        hints.ai_flags = RAI_NUMERICHOST;
        let status = look(c"not an address", c"1", &hints, |_| ());
        assert_eq!(status, libc::EAI_NONAME);
    }
}
