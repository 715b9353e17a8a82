//! The control path through the sized slots of `verbs_context`.
//!
//! Four of these verbs fall back on an exported function where the slot is missing or the request
//! is one the older call can carry; those take the table of exported functions as well.

use std::ffi::{c_int, c_uint, c_void};

use super::{fail, slot};
use crate::table::Verbs;
use crate::types::*;

/// Queries a port, with all fields the library knows; the rest is zero.
///
/// The exported function is for old programs and writes only the first 48 bytes, so it serves
/// only where the library has no sized slot.
pub unsafe fn ibv_query_port(
    verbs: &Verbs,
    context: *mut ibv_context,
    port_num: u8,
    attr: *mut ibv_port_attr,
) -> c_int {
    // SAFETY: the module's contract; the size handed over is that of `*attr`.
    unsafe {
        match slot!(context, query_port) {
            Some(query) => query(context, port_num, attr, size_of::<ibv_port_attr>()),
            None => {
                attr.write(Zeroed::zeroed());
                (verbs.query_port)(context, port_num, attr)
            }
        }
    }
}

/// Queries a device with its extended attributes; an older provider fills only `orig_attr`.
///
/// `input` may be NULL; no bit of it is defined, so any is EINVAL.
pub unsafe fn ibv_query_device_ex(
    verbs: &Verbs,
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    attr: *mut ibv_device_attr_ex,
) -> c_int {
    // SAFETY: the module's contract; the size handed over is that of `*attr`.
    unsafe {
        if !input.is_null() && (*input).comp_mask != 0 {
            return libc::EINVAL;
        }
        if let Some(query) = slot!(context, query_device_ex) {
            let status = query(context, input, attr, size_of::<ibv_device_attr_ex>());
            if status != libc::EOPNOTSUPP && status != libc::ENOSYS {
                return status;
            }
        }
        attr.write(Zeroed::zeroed());
        (verbs.query_device)(context, &raw mut (*attr).orig_attr)
    }
}

/// Creates a QP with extended attributes.
///
/// A request that names nothing but its PD goes to `ibv_create_qp`, which every provider has.
pub unsafe fn ibv_create_qp_ex(
    verbs: &Verbs,
    context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    // SAFETY: the module's contract; the extended attributes start with the plain ones.
    unsafe {
        if (*attr).comp_mask == IBV_QP_INIT_ATTR_PD {
            return (verbs.create_qp)((*attr).pd, attr.cast());
        }
        match slot!(context, create_qp_ex) {
            Some(create) => create(context, attr),
            None => fail(libc::EOPNOTSUPP),
        }
    }
}

/// Creates an SRQ with extended attributes; a basic one goes to `ibv_create_srq`.
pub unsafe fn ibv_create_srq_ex(
    verbs: &Verbs,
    context: *mut ibv_context,
    attr: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    const BASIC_MASK: u32 = IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE;
    // SAFETY: the module's contract; the extended attributes start with the plain ones.
    unsafe {
        let mask = (*attr).comp_mask;
        let basic_type = mask & IBV_SRQ_INIT_ATTR_TYPE == 0 || (*attr).srq_type == IBV_SRQT_BASIC;
        if mask & !BASIC_MASK == 0 && mask & IBV_SRQ_INIT_ATTR_PD != 0 && basic_type {
            return (verbs.create_srq)((*attr).pd, attr.cast());
        }
        match slot!(context, create_srq_ex) {
            Some(create) => create(context, attr),
            None => fail(libc::EOPNOTSUPP),
        }
    }
}

/// Registers memory by the call its access flags need.
///
/// Hints (the optional range) need `ibv_reg_mr_iova2`. A library without it gets the request
/// without the hints, which is what ignoring a hint means.
pub unsafe fn ibv_reg_mr(
    verbs: &Verbs,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_uint,
) -> *mut ibv_mr {
    let plain = access & !IBV_ACCESS_OPTIONAL_RANGE;
    // SAFETY: the module's contract; whether the memory is mapped is the provider's to check.
    unsafe {
        match verbs.reg_mr_iova2 {
            Some(reg) if plain != access => reg(pd, addr, length, addr.addr() as u64, access),
            _ => (verbs.reg_mr)(pd, addr, length, plain as c_int),
        }
    }
}

/// Reads one GID table entry with its type and network interface.
pub unsafe fn ibv_query_gid_ex(
    verbs: &Verbs,
    context: *mut ibv_context,
    port_num: u32,
    gid_index: u32,
    entry: *mut ibv_gid_entry,
    flags: u32,
) -> c_int {
    let Some(query) = verbs.query_gid_ex else {
        return libc::EOPNOTSUPP;
    };
    // SAFETY: the module's contract; the size handed over is that of `*entry`.
    unsafe {
        query(
            context,
            port_num,
            gid_index,
            entry,
            flags,
            size_of::<ibv_gid_entry>(),
        )
    }
}

/// Reads the GID tables of all ports into room for `max_entries`; a negative result is an errno.
pub unsafe fn ibv_query_gid_table(
    verbs: &Verbs,
    context: *mut ibv_context,
    entries: *mut ibv_gid_entry,
    max_entries: usize,
    flags: u32,
) -> isize {
    let Some(query) = verbs.query_gid_table else {
        return -(libc::EOPNOTSUPP as isize);
    };
    // SAFETY: the module's contract; the size handed over is that of one entry.
    unsafe {
        query(
            context,
            entries,
            max_entries,
            flags,
            size_of::<ibv_gid_entry>(),
        )
    }
}

/// Copies into device memory. The function is in the object itself.
pub unsafe fn ibv_memcpy_to_dm(
    dm: *mut ibv_dm,
    dm_offset: u64,
    host_addr: *const c_void,
    length: usize,
) -> c_int {
    // SAFETY: the module's contract.
    unsafe {
        match (*dm).memcpy_to_dm {
            Some(copy) => copy(dm, dm_offset, host_addr, length),
            None => libc::EOPNOTSUPP,
        }
    }
}

/// Copies out of device memory.
pub unsafe fn ibv_memcpy_from_dm(
    host_addr: *mut c_void,
    dm: *mut ibv_dm,
    dm_offset: u64,
    length: usize,
) -> c_int {
    // SAFETY: the module's contract.
    unsafe {
        match (*dm).memcpy_from_dm {
            Some(copy) => copy(host_addr, dm, dm_offset, length),
            None => libc::EOPNOTSUPP,
        }
    }
}

/// The UDP source port a flow label stands for (annex A17 leaves the choice to the sender; this
/// is the mapping of the C headers, which keeps it in the dynamic range).
pub fn ibv_flow_label_to_udp_sport(flow_label: u32) -> u16 {
    let folded = (flow_label & 0x3fff) ^ ((flow_label & 0xf_c000) >> 14);
    0xc000 | folded as u16
}

/// Verbs that consist of nothing but the jump.
macro_rules! jumps {
    // The pattern of a function that returns a pointer: NULL and errno without the slot.
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty),*) -> *mut $ret:ty
        = $slot:ident of $context:expr;)*) => {
        $($(#[$doc])*
        pub unsafe fn $name($($arg: $ty),*) -> *mut $ret {
            // SAFETY: the module's contract.
            unsafe {
                match slot!($context, $slot) {
                    Some(function) => function($($arg),*),
                    None => fail(libc::EOPNOTSUPP),
                }
            }
        })*
    };
    // The pattern of a function that returns an errno value.
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty),*) -> c_int
        = $slot:ident of $context:expr;)*) => {
        $($(#[$doc])*
        pub unsafe fn $name($($arg: $ty),*) -> c_int {
            // SAFETY: the module's contract.
            unsafe {
                match slot!($context, $slot) {
                    Some(function) => function($($arg),*),
                    None => libc::EOPNOTSUPP,
                }
            }
        })*
    };
}

jumps! {
    /// Creates a CQ that is read in place.
    ibv_create_cq_ex(context: *mut ibv_context, attr: *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex
        = create_cq_ex of context;
    /// Opens a QP another process shares through an XRC domain.
    ibv_open_qp(context: *mut ibv_context, attr: *mut ibv_qp_open_attr) -> *mut ibv_qp
        = open_qp of context;
    /// Opens an XRC domain.
    ibv_open_xrcd(context: *mut ibv_context, attr: *mut ibv_xrcd_init_attr) -> *mut ibv_xrcd
        = open_xrcd of context;
    /// Allocates a thread domain.
    ibv_alloc_td(context: *mut ibv_context, attr: *mut ibv_td_init_attr) -> *mut ibv_td
        = alloc_td of context;
    /// Allocates a parent domain; it is used and freed like a PD.
    ibv_alloc_parent_domain(context: *mut ibv_context, attr: *mut ibv_parent_domain_init_attr) -> *mut ibv_pd
        = alloc_parent_domain of context;
    /// Allocates device memory.
    ibv_alloc_dm(context: *mut ibv_context, attr: *mut ibv_alloc_dm_attr) -> *mut ibv_dm
        = alloc_dm of context;
    /// Registers device memory.
    ibv_reg_dm_mr(pd: *mut ibv_pd, dm: *mut ibv_dm, dm_offset: u64, length: usize, access: c_uint) -> *mut ibv_mr
        = reg_dm_mr of (*pd).context;
    /// Allocates a region whose reads are zero and whose writes vanish.
    ibv_alloc_null_mr(pd: *mut ibv_pd) -> *mut ibv_mr
        = alloc_null_mr of (*pd).context;
    /// Creates a receive work queue.
    ibv_create_wq(context: *mut ibv_context, attr: *mut ibv_wq_init_attr) -> *mut ibv_wq
        = create_wq of context;
    /// Creates a receive indirection table.
    ibv_create_rwq_ind_table(context: *mut ibv_context, attr: *mut ibv_rwq_ind_table_init_attr) -> *mut ibv_rwq_ind_table
        = create_rwq_ind_table of context;
    /// Puts a flow rule in force.
    ibv_create_flow(qp: *mut ibv_qp, attr: *mut ibv_flow_attr) -> *mut ibv_flow
        = ibv_create_flow of (*qp).context;
    /// Creates an ESP flow action.
    ibv_create_flow_action_esp(context: *mut ibv_context, attr: *mut ibv_flow_action_esp_attr) -> *mut ibv_flow_action
        = create_flow_action_esp of context;
    /// Creates a set of flow counters.
    ibv_create_counters(context: *mut ibv_context, attr: *mut ibv_counters_init_attr) -> *mut ibv_counters
        = create_counters of context;
}

jumps! {
    /// Closes an XRC domain.
    ibv_close_xrcd(xrcd: *mut ibv_xrcd) -> c_int
        = close_xrcd of (*xrcd).context;
    /// Frees a thread domain.
    ibv_dealloc_td(td: *mut ibv_td) -> c_int
        = dealloc_td of (*td).context;
    /// Frees device memory.
    ibv_free_dm(dm: *mut ibv_dm) -> c_int
        = free_dm of (*dm).context;
    /// The number by which XRC senders name an SRQ.
    ibv_get_srq_num(srq: *mut ibv_srq, srq_num: *mut u32) -> c_int
        = get_srq_num of (*srq).context;
    /// Posts tag list operations. On failure `*bad_op` is the first one not posted.
    ibv_post_srq_ops(srq: *mut ibv_srq, op: *mut ibv_ops_wr, bad_op: *mut *mut ibv_ops_wr) -> c_int
        = post_srq_ops of (*srq).context;
    /// Changes the event moderation of a CQ.
    ibv_modify_cq(cq: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) -> c_int
        = modify_cq of (*cq).context;
    /// Changes the rate limit of a QP.
    ibv_modify_qp_rate_limit(qp: *mut ibv_qp, attr: *mut ibv_qp_rate_limit_attr) -> c_int
        = modify_qp_rate_limit of (*qp).context;
    /// Gives advice about ranges of memory regions.
    ibv_advise_mr(pd: *mut ibv_pd, advice: ibv_advise_mr_advice, flags: u32, sg_list: *mut ibv_sge, num_sge: u32) -> c_int
        = advise_mr of (*pd).context;
    /// Reads the device's clock.
    ibv_query_rt_values_ex(context: *mut ibv_context, values: *mut ibv_values_ex) -> c_int
        = query_rt_values of context;
    /// Changes a receive work queue.
    ibv_modify_wq(wq: *mut ibv_wq, attr: *mut ibv_wq_attr) -> c_int
        = modify_wq of (*wq).context;
    /// Destroys a receive work queue.
    ibv_destroy_wq(wq: *mut ibv_wq) -> c_int
        = destroy_wq of (*wq).context;
    /// Destroys a receive indirection table.
    ibv_destroy_rwq_ind_table(table: *mut ibv_rwq_ind_table) -> c_int
        = destroy_rwq_ind_table of (*table).context;
    /// Withdraws a flow rule.
    ibv_destroy_flow(flow: *mut ibv_flow) -> c_int
        = ibv_destroy_flow of (*flow).context;
    /// Changes an ESP flow action.
    ibv_modify_flow_action_esp(action: *mut ibv_flow_action, attr: *mut ibv_flow_action_esp_attr) -> c_int
        = modify_flow_action_esp of (*action).context;
    /// Destroys a flow action.
    ibv_destroy_flow_action(action: *mut ibv_flow_action) -> c_int
        = destroy_flow_action of (*action).context;
    /// Attaches counters to a flow rule.
    ibv_attach_counters_point_flow(counters: *mut ibv_counters, attr: *mut ibv_counter_attach_attr, flow: *mut ibv_flow) -> c_int
        = attach_counters_point_flow of (*counters).context;
    /// Reads flow counters into room for `count` values.
    ibv_read_counters(counters: *mut ibv_counters, values: *mut u64, count: u32, flags: u32) -> c_int
        = read_counters of (*counters).context;
    /// Destroys a set of flow counters.
    ibv_destroy_counters(counters: *mut ibv_counters) -> c_int
        = destroy_counters of (*counters).context;
}
