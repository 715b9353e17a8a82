//! The tables inside `ibv_qp_ex` and `ibv_cq_ex`: building work and reading completions in place.
//!
//! These tables are filled by what the program asked for at creation. Calling a function that
//! was not asked for is a jump to NULL in C. Here a sender says EOPNOTSUPP instead (0 says that
//! the call was made; errors of the request itself come from [`ibv_wr_complete`]), and a missing
//! reader reads as zero.

use std::ffi::{c_int, c_uint, c_void};

use crate::types::*;

/// Closes a batch and posts all of it, or nothing: an errno value then.
#[inline]
pub unsafe fn ibv_wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    // SAFETY: the module's contract.
    unsafe {
        match (*qp).wr_complete {
            Some(complete) => complete(qp),
            None => libc::EOPNOTSUPP,
        }
    }
}

macro_rules! senders {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty),*) = $slot:ident;)*) => {
        $($(#[$doc])*
        #[inline]
        pub unsafe fn $name(qp: *mut ibv_qp_ex $(, $arg: $ty)*) -> c_int {
            // SAFETY: the module's contract.
            unsafe {
                match (*qp).$slot {
                    Some(function) => {
                        function(qp $(, $arg)*);
                        0
                    }
                    None => libc::EOPNOTSUPP,
                }
            }
        })*
    };
}

senders! {
    /// Compares and swaps eight bytes of remote memory.
    ibv_wr_atomic_cmp_swp(rkey: u32, remote_addr: u64, compare: u64, swap: u64) = wr_atomic_cmp_swp;
    /// Adds to eight bytes of remote memory.
    ibv_wr_atomic_fetch_add(rkey: u32, remote_addr: u64, add: u64) = wr_atomic_fetch_add;
    /// Binds a type 2 memory window.
    ibv_wr_bind_mw(mw: *mut ibv_mw, rkey: u32, bind_info: *const ibv_mw_bind_info) = wr_bind_mw;
    /// Revokes a key of this side.
    ibv_wr_local_inv(invalidate_rkey: u32) = wr_local_inv;
    /// Reads remote memory.
    ibv_wr_rdma_read(rkey: u32, remote_addr: u64) = wr_rdma_read;
    /// Writes remote memory.
    ibv_wr_rdma_write(rkey: u32, remote_addr: u64) = wr_rdma_write;
    /// Writes remote memory and tells the peer; `imm_data` is big-endian.
    ibv_wr_rdma_write_imm(rkey: u32, remote_addr: u64, imm_data: u32) = wr_rdma_write_imm;
    /// Sends.
    ibv_wr_send() = wr_send;
    /// Sends with immediate data (big-endian).
    ibv_wr_send_imm(imm_data: u32) = wr_send_imm;
    /// Sends and revokes a key of the peer.
    ibv_wr_send_inv(invalidate_rkey: u32) = wr_send_inv;
    /// Sends segmented.
    ibv_wr_send_tso(hdr: *mut c_void, hdr_sz: u16, mss: u16) = wr_send_tso;
    /// Addresses the datagram.
    ibv_wr_set_ud_addr(ah: *mut ibv_ah, remote_qpn: u32, remote_qkey: u32) = wr_set_ud_addr;
    /// Names the SRQ of an XRC message.
    ibv_wr_set_xrc_srqn(remote_srqn: u32) = wr_set_xrc_srqn;
    /// Takes the payload now, from one piece of memory.
    ibv_wr_set_inline_data(addr: *mut c_void, length: usize) = wr_set_inline_data;
    /// Takes the payload now, from several pieces.
    ibv_wr_set_inline_data_list(num_buf: usize, buf_list: *const ibv_data_buf) = wr_set_inline_data_list;
    /// Names the payload, one piece.
    ibv_wr_set_sge(lkey: u32, addr: u64, length: u32) = wr_set_sge;
    /// Names the payload, several pieces.
    ibv_wr_set_sge_list(num_sge: usize, sg_list: *const ibv_sge) = wr_set_sge_list;
    /// Opens a batch; the QP is locked until it is completed or aborted.
    ibv_wr_start() = wr_start;
    /// Drops the batch.
    ibv_wr_abort() = wr_abort;
    /// Writes eight bytes of remote memory at once.
    ibv_wr_atomic_write(rkey: u32, remote_addr: u64, atomic_wr: *const c_void) = wr_atomic_write;
}

/// Makes earlier remote writes visible or persistent.
///
/// Only for a QP that was created with `IBV_QP_EX_WITH_FLUSH`: the slot is newer than rdma-core
/// 44, and behind a QP of such a library lie the provider's own fields. A library that granted
/// the bit has the slot.
#[inline]
pub unsafe fn ibv_wr_flush(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    remote_addr: u64,
    len: usize,
    placement: u8,
    level: u8,
) -> c_int {
    // SAFETY: the module's contract and the rule above.
    unsafe {
        match (*qp).wr_flush {
            Some(flush) => {
                flush(qp, rkey, remote_addr, len, placement, level);
                0
            }
            None => libc::EOPNOTSUPP,
        }
    }
}

/// Starts reading; ENOENT when the CQ is empty, and then `ibv_end_poll` must not be called.
#[inline]
pub unsafe fn ibv_start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    // SAFETY: the module's contract.
    unsafe {
        match (*cq).start_poll {
            Some(start) => start(cq, attr),
            None => libc::EOPNOTSUPP,
        }
    }
}

/// Moves to the next completion; ENOENT when there is none.
#[inline]
pub unsafe fn ibv_next_poll(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: the module's contract.
    unsafe {
        match (*cq).next_poll {
            Some(next) => next(cq),
            None => libc::EOPNOTSUPP,
        }
    }
}

/// Ends reading and gives the entries back to the CQ.
#[inline]
pub unsafe fn ibv_end_poll(cq: *mut ibv_cq_ex) {
    // SAFETY: the module's contract.
    unsafe {
        if let Some(end) = (*cq).end_poll {
            end(cq);
        }
    }
}

/// The tag of a matched message; `info` is untouched without a reader.
#[inline]
pub unsafe fn ibv_wc_read_tm_info(cq: *mut ibv_cq_ex, info: *mut ibv_wc_tm_info) {
    // SAFETY: the module's contract.
    unsafe {
        if let Some(read) = (*cq).read_tm_info {
            read(cq, info);
        }
    }
}

/// The plain CQ inside.
pub fn ibv_cq_ex_to_cq(cq: *mut ibv_cq_ex) -> *mut ibv_cq {
    cq.cast()
}

macro_rules! readers {
    ($($(#[$doc:meta])* $name:ident() -> $ty:ty = $slot:ident;)*) => {
        $($(#[$doc])*
        #[inline]
        pub unsafe fn $name(cq: *mut ibv_cq_ex) -> $ty {
            // SAFETY: the module's contract.
            unsafe {
                match (*cq).$slot {
                    Some(read) => read(cq),
                    None => 0,
                }
            }
        })*
    };
}

readers! {
    /// What the completion stands for.
    ibv_wc_read_opcode() -> ibv_wc_opcode = read_opcode;
    /// The vendor's error code.
    ibv_wc_read_vendor_err() -> u32 = read_vendor_err;
    /// How many bytes arrived.
    ibv_wc_read_byte_len() -> u32 = read_byte_len;
    /// Immediate data, big-endian.
    ibv_wc_read_imm_data() -> u32 = read_imm_data;
    /// The key the peer revoked: the same reader as the immediate data.
    ibv_wc_read_invalidated_rkey() -> u32 = read_imm_data;
    /// The QP.
    ibv_wc_read_qp_num() -> u32 = read_qp_num;
    /// The sender's QP.
    ibv_wc_read_src_qp() -> u32 = read_src_qp;
    /// Bits of `ibv_wc_flags`.
    ibv_wc_read_wc_flags() -> c_uint = read_wc_flags;
    /// The sender's LID.
    ibv_wc_read_slid() -> u32 = read_slid;
    /// The service level.
    ibv_wc_read_sl() -> u8 = read_sl;
    /// Path bits of the receiver's LID.
    ibv_wc_read_dlid_path_bits() -> u8 = read_dlid_path_bits;
    /// When it completed, in ticks of the device's clock.
    ibv_wc_read_completion_ts() -> u64 = read_completion_ts;
    /// When it completed, in nanoseconds of wall-clock time.
    ibv_wc_read_completion_wallclock_ns() -> u64 = read_completion_wallclock_ns;
    /// The VLAN tag.
    ibv_wc_read_cvlan() -> u16 = read_cvlan;
    /// The flow tag.
    ibv_wc_read_flow_tag() -> u32 = read_flow_tag;
}
