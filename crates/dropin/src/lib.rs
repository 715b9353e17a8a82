//! adverb-dropin: `libibverbs.so.1`, `librdmacm.so.1` and stand-ins for `libmlx5.so.1` and `libefa.so.1` in one file.
//!
//! Nothing but exports lives here; the functions are those of `adverb-provider`. rustc knows no symbol versions, so
//! each export is a jump with a private label, and the assembler's `.symver` gives that label its public name and node.
//! Label and `.symver` stand in one `global_asm!`, or codegen units would part them. rustc's own version script keeps
//! the labels themselves out of the dynamic table. `build.rs` has the linker's side, `table/` the names.

use std::ffi::c_int;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("the drop-in library has jump stubs for x86_64 and aarch64 only");

mod table;

/// Tells a program that looks for the system's libibverbs that it has found us instead.
#[unsafe(no_mangle)]
pub static adverb_dropin_marker: c_int = 1;

/// One instruction that goes to `$target`, known outside as each of the versions.
#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    () => {
        "jmp {target}"
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    () => {
        "b {target}"
    };
}

macro_rules! trampoline {
    ($name:ident, $target:path, $version:literal $(, $alias:literal)*) => {
        std::arch::global_asm!(
            concat!(".pushsection .text.__v_", stringify!($name), ",\"ax\",%progbits"),
            concat!(".globl __v_", stringify!($name)),
            concat!(".type __v_", stringify!($name), ", %function"),
            concat!("__v_", stringify!($name), ":"),
            jump!(),
            concat!(".size __v_", stringify!($name), ", . - __v_", stringify!($name)),
            concat!(".symver __v_", stringify!($name), ", ", stringify!($name), "@@", $version),
            $(concat!(".symver __v_", stringify!($name), ", ", stringify!($name), "@", $alias),)*
            ".popsection",
            target = sym $target,
        );
    };
}

/// A row of the table becomes an export.
macro_rules! export {
    ($name:ident, $kind:ident, private) => {
        export!($name, $kind, "IBVERBS_PRIVATE_34", "IBVERBS_PRIVATE_57", "IBVERBS_PRIVATE_59", "IBVERBS_PRIVATE_64", "IBVERBS_PRIVATE_65");
    };
    ($name:ident, code, $($version:literal),+) => {
        trampoline!($name, adverb_provider::calls::$name, $($version),+);
    };
    ($name:ident, pointer, $($version:literal),+) => {
        stub!($name, *mut std::ffi::c_void, adverb_provider::unsupported::pointer, $($version),+);
    };
    ($name:ident, minus_one, $($version:literal),+) => {
        // As wide as a register: some of them return an int, some a ssize_t or an off_t.
        stub!($name, isize, adverb_provider::unsupported::minus_one, $($version),+);
    };
    ($name:ident, errno, $($version:literal),+) => {
        stub!($name, std::ffi::c_int, adverb_provider::unsupported::errno, $($version),+);
    };
    ($name:ident, nothing, $($version:literal),+) => {
        stub!($name, usize, adverb_provider::unsupported::nothing, $($version),+);
    };
}

/// A function without parameters serves for any: in both calling conventions the caller passes and clears arguments.
macro_rules! stub {
    ($name:ident, $returns:ty, $answer:path, $($version:literal),+) => {
        mod $name {
            extern "C" fn stub() -> $returns {
                $answer(stringify!($name))
            }
            trampoline!($name, stub, $($version),+);
        }
    };
}

table::ibverbs!(export);
table::private!(export);
table::rdmacm!(export);
table::mlx5!(export);
table::efa!(export);

// The one exported object: drivers set it to say that their objects may outlive a device that is pulled out.
std::arch::global_asm!(
    ".pushsection .bss.__v_verbs_allow_disassociate_destroy,\"aw\",%nobits",
    ".globl __v_verbs_allow_disassociate_destroy",
    ".type __v_verbs_allow_disassociate_destroy, %object",
    ".size __v_verbs_allow_disassociate_destroy, 1",
    "__v_verbs_allow_disassociate_destroy:",
    ".zero 1",
    ".symver __v_verbs_allow_disassociate_destroy, verbs_allow_disassociate_destroy@@IBVERBS_PRIVATE_34",
    ".symver __v_verbs_allow_disassociate_destroy, verbs_allow_disassociate_destroy@IBVERBS_PRIVATE_57",
    ".symver __v_verbs_allow_disassociate_destroy, verbs_allow_disassociate_destroy@IBVERBS_PRIVATE_59",
    ".symver __v_verbs_allow_disassociate_destroy, verbs_allow_disassociate_destroy@IBVERBS_PRIVATE_64",
    ".symver __v_verbs_allow_disassociate_destroy, verbs_allow_disassociate_destroy@IBVERBS_PRIVATE_65",
    ".popsection",
);
