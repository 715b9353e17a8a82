//! Options: `rdma_set_option(3)`, and the vendors' options of `rdma_set_local_ece(3)`.

use std::ffi::{c_int, c_void};
use std::mem::size_of;

use adverb_abi::types::*;

use super::id::{Id, Phase};
use crate::call;
use crate::errno::Error;
use crate::handle::{find, not_null};

/// Reads an option's value, which has to be as long as its type.
///
/// # Safety
/// `from` is NULL or good for `length` bytes.
unsafe fn value<T: Copy>(from: *const c_void, length: usize) -> Result<T, Error> {
    not_null(from, "value")?;
    if length != size_of::<T>() {
        return Err(Error::Value {
            what: "optlen",
            value: length as u64,
            limit: size_of::<T>() as u64,
        });
    }
    // SAFETY: as long as the type, says the caller; integers may hold any bytes.
    Ok(unsafe { from.cast::<T>().read_unaligned() })
}

/// `rdma_set_option(3)`. A path record cannot be given: paths are a matter of IP here.
///
/// # Safety
/// `id` is NULL or an id, `optval` is NULL or good for `optlen` bytes.
pub unsafe extern "C" fn rdma_set_option(
    id: *mut rdma_cm_id,
    level: c_int,
    optname: c_int,
    optval: *mut c_void,
    optlen: usize,
) -> c_int {
    let set = || -> Result<c_int, Error> {
        // SAFETY: as our caller promises, here and below.
        let id = unsafe { find::<Id>(id) }?;
        let mut state = id.state();
        match (level, optname) {
            (RDMA_OPTION_ID, RDMA_OPTION_ID_TOS) => {
                // SAFETY: as above.
                state.options.tos = unsafe { value::<u8>(optval, optlen) }?;
            }
            (RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR) => {
                // SAFETY: as above.
                let on = unsafe { value::<c_int>(optval, optlen) }? != 0;
                state.expect(
                    &[Phase::Idle],
                    "RDMA_OPTION_ID_REUSEADDR is for an id that is not bound yet",
                )?;
                state.options.reuse = on;
            }
            (RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY) => {
                // SAFETY: as above.
                let on = unsafe { value::<c_int>(optval, optlen) }? != 0;
                state.expect(
                    &[Phase::Idle],
                    "RDMA_OPTION_ID_AFONLY is for an id that is not bound yet",
                )?;
                state.options.one_family = on;
            }
            (RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT) => {
                // SAFETY: as above.
                let code = unsafe { value::<u8>(optval, optlen) }?;
                if code > MAX_TIMER {
                    return Err(Error::Value {
                        what: "RDMA_OPTION_ID_ACK_TIMEOUT",
                        value: code.into(),
                        limit: MAX_TIMER.into(),
                    });
                }
                state.options.ack_timeout = Some(code);
                if let Some(conn) = &mut state.conn {
                    conn.timeout = code;
                }
            }
            _ => return Err(Error::Unsupported("this option of rdma_set_option")),
        }
        Ok(0)
    };
    call::minus_one("rdma_set_option", set)
}

/// Longest timer code, 5 bits.
const MAX_TIMER: u8 = 31;

/// `rdma_set_local_ece(3)`: none may be set, which a vendor id of zero says.
///
/// # Safety
/// `id` is NULL or an id, `ece` is NULL or can be read.
pub unsafe extern "C" fn rdma_set_local_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int {
    let set = || -> Result<c_int, Error> {
        // SAFETY: as our caller promises.
        let id = unsafe { find::<Id>(id) }?;
        not_null(ece, "options")?;
        // SAFETY: the id is alive, and the options can be read.
        unsafe {
            if !(*id.public()).qp.is_null() {
                return Err(Error::Argument(OWN_PAIR));
            }
            match (*ece).vendor_id {
                0 => Ok(0),
                _ => Err(Error::Unsupported("ECE of another vendor")),
            }
        }
    };
    call::minus_one("rdma_set_local_ece", set)
}

/// `rdma_get_remote_ece(3)`: none. A peer may have offered some, but no queue pair here could take them.
///
/// # Safety
/// `id` is NULL or an id, `ece` is NULL or can be written.
pub unsafe extern "C" fn rdma_get_remote_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int {
    let get = || -> Result<c_int, Error> {
        // SAFETY: as our caller promises.
        let id = unsafe { find::<Id>(id) }?;
        not_null(ece, "place for the options")?;
        // SAFETY: the id is alive, and the options can be written.
        unsafe {
            if !(*id.public()).qp.is_null() {
                return Err(Error::Argument(OWN_PAIR));
            }
            ece.write(ibv_ece::zeroed());
        }
        Ok(0)
    };
    call::minus_one("rdma_get_remote_ece", get)
}

const OWN_PAIR: &str =
    "the id has a queue pair of rdma_create_qp; ECE is for programs that bring their own";
