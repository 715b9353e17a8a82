//! What a `fork` does to this process's NIC: the child starts afresh.
//!
//! A forked child has none of our threads, and mutexes that were held at the fork stay held for
//! ever, so every entry point compares the generation its object was made in with the current
//! one before it touches anything. Inherited objects then fail with [`NicError::Forked`].
//!
//! [`NicError::Forked`]: crate::NicError::Forked

use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

static GENERATION: AtomicU64 = AtomicU64::new(0);

/// The descriptor whose lock tells others that this process lives; the child must not keep it
/// open, or the lock would outlive the parent.
static LIFE_LOCK: AtomicI32 = AtomicI32::new(-1);

/// Counts the forks between the first process and this one.
pub(crate) fn generation() -> u64 {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        // SAFETY: `child` is async-signal-safe (atomics and closes), which is all that a
        // handler may be that runs in the child of a multi-threaded process.
        unsafe { libc::pthread_atfork(None, None, Some(child)) };
    });
    GENERATION.load(Ordering::Relaxed)
}

pub(crate) fn guard_life_lock(fd: i32) {
    LIFE_LOCK.store(fd, Ordering::Relaxed);
}

/// Sockets on a port that is shared: the kernel would go on giving packets to the child's copies,
/// which nobody reads, when the parent has ended.
static SOCKETS: [AtomicI32; 128] = [const { AtomicI32::new(-1) }; 128];

/// Has a socket closed in forked children. Beyond the room for them a socket stays open there.
pub(crate) fn guard_socket(fd: i32) {
    let free = |slot: &AtomicI32| {
        slot.compare_exchange(-1, fd, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    };
    let _ = SOCKETS.iter().any(free);
}

/// The descriptor is about to be closed, and may then be somebody else's.
pub(crate) fn release_socket(fd: i32) {
    for slot in &SOCKETS {
        let _ = slot.compare_exchange(fd, -1, Ordering::Relaxed, Ordering::Relaxed);
    }
}

extern "C" fn child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    for slot in SOCKETS.iter().chain([&LIFE_LOCK]) {
        let fd = slot.swap(-1, Ordering::Relaxed);
        if fd >= 0 {
            // SAFETY: the child owns its copy of the descriptor, and the object that holds it is
            // never used or dropped there (its generation is over).
            unsafe { libc::close(fd) };
        }
    }
}
