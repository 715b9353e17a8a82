//! Objects that C holds pointers to, and the only casts between the two views of them.
//!
//! An [`Object`] is what C may read, followed by a mark and by what is ours. C's pointer is that of the whole. [`find`]
//! goes back: NULL, a misaligned pointer, an object of another kind, one that was destroyed (as long as its memory has
//! not been used again) or one of another library fail with an error instead of doing harm. That is a net for mistakes,
//! not a proof: C can always hand over a pointer to nowhere.

use std::cell::UnsafeCell;
use std::mem::offset_of;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};

use adverb_abi::types::{ibv_context, verbs_context};

use crate::context::Context;
use crate::errno::Error;

/// The private part of an object that C can hold.
pub(crate) trait Kind: Sized {
    /// The part that C may read and, for a few fields, write.
    type Public;
    /// What the object is called in messages.
    const NAME: &'static str;
    /// Distinguishes the kinds; no number that a pointer or a small count could be.
    const MARK: u64;

    /// The number in the public part by which a kernel would find the object. A program may have overwritten it.
    ///
    /// # Safety
    /// The public part can be read.
    unsafe fn handle(_public: *const Self::Public) -> u32 {
        0
    }

    /// The context in the public part, through which a kernel would look for the number; NULL if there is none.
    ///
    /// # Safety
    /// The public part can be read.
    unsafe fn context(_public: *const Self::Public) -> *mut ibv_context {
        std::ptr::null_mut()
    }
}

/// A public part, a mark, a private part.
#[repr(C)]
pub(crate) struct Object<K: Kind> {
    public: UnsafeCell<K::Public>,
    mark: AtomicU64,
    /// Handle and address of the context as they were at creation.
    handle: u32,
    context: usize,
    own: K,
}

/// The mark of an object that is being freed.
const DEAD: u64 = 0xdead_0bad_c0de_dead;

impl<K: Kind> Object<K> {
    /// Puts an object on the heap, where it stays until [`Object::free`].
    pub(crate) fn create(public: K::Public, own: K) -> &'static Self {
        Box::leak(Box::new(Self {
            // SAFETY: it is in hand.
            handle: unsafe { K::handle(&raw const public) },
            // SAFETY: likewise.
            context: unsafe { K::context(&raw const public) }.addr(),
            public: UnsafeCell::new(public),
            mark: AtomicU64::new(K::MARK),
            own,
        }))
    }

    /// As [`Object::create`], for objects whose private part has to know C's pointer: as the token that comes back in
    /// their events.
    pub(crate) fn create_with(
        make: impl FnOnce(*mut K::Public) -> Result<(K::Public, K), Error>,
    ) -> Result<&'static Self, Error> {
        let place = Box::leak(Box::<Self>::new_uninit());
        match make(place.as_mut_ptr().cast()) {
            Ok((public, own)) => Ok(place.write(Self {
                // SAFETY: it is in hand.
                handle: unsafe { K::handle(&raw const public) },
                // SAFETY: likewise.
                context: unsafe { K::context(&raw const public) }.addr(),
                public: UnsafeCell::new(public),
                mark: AtomicU64::new(K::MARK),
                own,
            })),
            Err(error) => {
                // SAFETY: leaked above, and nothing has kept the pointer of an object that was not made.
                drop(unsafe { Box::from_raw(place) });
                Err(error)
            }
        }
    }

    /// The pointer that C gets. Fields behind it are read and written as C would: through the pointer.
    pub(crate) fn public(&self) -> *mut K::Public {
        self.public.get()
    }

    /// Frees the object. Only the first of several calls does.
    ///
    /// # Safety
    /// The caller uses neither the object nor C's pointer afterwards; that C does neither is the manual's demand.
    pub(crate) unsafe fn free(&self) {
        if self
            .mark
            .compare_exchange(K::MARK, DEAD, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
        {
            let pointer = std::ptr::from_ref(self).cast_mut();
            // SAFETY: `create` made every object from a box, and the mark lets one caller through.
            drop(unsafe { Box::from_raw(pointer) });
        }
    }
}

impl<K: Kind> Deref for Object<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.own
    }
}

/// The object behind a pointer of C, for control verbs: a kernel would look for it by its number and its context, so
/// both must be as they were.
///
/// # Safety
/// As [`find_for_work`].
pub(crate) unsafe fn find<'a, K: Kind>(pointer: *mut K::Public) -> Result<&'a Object<K>, Error> {
    // SAFETY: as our caller promises.
    let object = unsafe { find_for_work::<K>(pointer) }?;
    // SAFETY: the object is alive, so its public part can be read.
    let (handle, context) = unsafe { (K::handle(object.public()), K::context(object.public())) };
    if handle != object.handle {
        return Err(Error::NoSuch {
            what: K::NAME,
            handle,
        });
    }
    if context.addr() != object.context {
        return Err(Error::OtherContext(K::NAME));
    }
    Ok(object)
}

/// The object behind a pointer of C, for the data path, which reads neither number nor context, as on cards.
///
/// # Safety
/// A pointer that is not NULL must point to readable memory as large as the object. The result is used no longer than
/// the call that asked, in which C must not destroy the object.
pub(crate) unsafe fn find_for_work<'a, K: Kind>(
    pointer: *mut K::Public,
) -> Result<&'a Object<K>, Error> {
    if pointer.is_null() {
        return Err(Error::Null(K::NAME));
    }
    let object = pointer.cast::<Object<K>>();
    if !object.is_aligned() {
        return Err(Error::Foreign(K::NAME));
    }
    // SAFETY: the caller vouches for the memory; the mark is read as an atomic, in place.
    let mark = unsafe { &(*object).mark };
    if mark.load(Ordering::Acquire) != K::MARK {
        return Err(Error::Foreign(K::NAME));
    }
    // SAFETY: the mark says that `create` made it and nobody has freed it.
    Ok(unsafe { &*object })
}

/// As [`find`], for a pointer that may be NULL.
///
/// # Safety
/// As [`find`].
pub(crate) unsafe fn find_if_any<'a, K: Kind>(
    pointer: *mut K::Public,
) -> Result<Option<&'a Object<K>>, Error> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: as our caller promises.
    unsafe { find(pointer) }.map(Some)
}

/// The context behind its C pointer, which is not at the front: the table of functions is.
///
/// # Safety
/// As [`find`].
pub(crate) unsafe fn find_context<'a>(
    pointer: *mut ibv_context,
) -> Result<&'a Object<Context>, Error> {
    if pointer.is_null() {
        return Err(Error::Null(Context::NAME));
    }
    // SAFETY: `ibv_context` is the last member of a `verbs_context`; the caller vouches for the rest.
    unsafe {
        find(
            pointer
                .wrapping_byte_sub(offset_of!(verbs_context, context))
                .cast::<verbs_context>(),
        )
    }
}

/// The C pointer of a context.
pub(crate) fn context_pointer(context: &Object<Context>) -> *mut ibv_context {
    context
        .public()
        .wrapping_byte_add(offset_of!(verbs_context, context))
        .cast()
}

/// Fails with the name of a pointer argument that is NULL.
pub(crate) fn not_null<T>(pointer: *const T, name: &'static str) -> Result<(), Error> {
    if pointer.is_null() {
        Err(Error::Null(name))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Apple(u32);
    impl Kind for Apple {
        type Public = [u64; 4];
        const NAME: &'static str = "apple";
        const MARK: u64 = 0xa991_e000_0000_0001;
        unsafe fn handle(public: *const Self::Public) -> u32 {
            // SAFETY: as our caller promises.
            unsafe { (*public)[1] as u32 }
        }
    }
    struct Pear;
    impl Kind for Pear {
        type Public = [u64; 4];
        const NAME: &'static str = "pear";
        const MARK: u64 = 0x9ea2_0000_0000_0001;
    }

    #[test]
    fn a_pointer_finds_its_own_kind_only() {
        let apple = Object::create([0; 4], Apple(7));
        // SAFETY: all pointers are NULL or lie in objects that live through the test.
        unsafe {
            assert_eq!(find::<Apple>(apple.public()).map(|a| a.0).ok(), Some(7));
            assert!(matches!(
                find::<Pear>(apple.public()),
                Err(Error::Foreign("pear"))
            ));
            assert!(matches!(
                find::<Apple>(std::ptr::null_mut()),
                Err(Error::Null("apple"))
            ));
            let askew = apple.public().wrapping_byte_add(1);
            assert!(matches!(find::<Apple>(askew), Err(Error::Foreign("apple"))));
            apple.free();
        }
    }
}
