//! Memory of the caller's: registered as it is, and given back.

use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};

use adverb::transport::Rc;
use adverb::{AccessFlags, Buf, Error, Inline, Mapping, Numbers, Registrable, leaked_bytes};

use crate::{Pair, completions, pattern, success};

/// What a peer sends into it arrives in the memory itself.
fn through<M: Registrable>(pair: &Pair<Rc>, memory: M, message: &[u8]) -> M {
    let buf = pair.pd.reg_mr(memory).unwrap();
    let recv = pair.b.post_recv(buf).unwrap();
    let send = pair.a.post_send(pair.pd.reg_mr(message.to_vec()).unwrap());
    success(&pair.a_cq, send.unwrap()).ok().unwrap();
    let buf = success(&pair.b_cq, recv).into_buf().unwrap();
    assert!(*buf == *message);
    buf.into_inner().unwrap()
}

#[test]
fn memory_is_registered_where_it_is_and_comes_back() {
    let pair = Pair::<Rc>::new();
    // Not the room behind it, and not a copy.
    let mut vector = Vec::with_capacity(1000);
    vector.resize(100, 1u8);
    let at = vector.as_ptr();
    let vector = through(&pair, vector, b"into a vector");
    assert_eq!(
        (vector.as_ptr(), vector.len(), vector.capacity()),
        (at, 100, 1000)
    );
    assert_eq!((&vector[..13], vector[13]), (&b"into a vector"[..], 1));

    let words = Numbers(vec![7u64; 3].into_boxed_slice());
    let Numbers(words) = through(&pair, words, &[1; 9]);
    assert_eq!(words[0], u64::from_ne_bytes([1; 8]));
    assert_eq!((words[1].to_ne_bytes()[0], words[2]), (1, 7));

    let Numbers(array) = through(&pair, Numbers([0.5f32; 4]), &1.25f32.to_ne_bytes());
    assert_eq!(array, [1.25, 0.5, 0.5, 0.5]);

    let forever: &'static mut [u8] = Box::leak(Box::new([0; 8]));
    let forever = through(&pair, forever, b"static");
    assert_eq!(forever, b"static\0\0");
    // SAFETY: it came from a box, and is nobody else's any more.
    drop(unsafe { Box::from_raw(forever) });
}

#[test]
fn mapped_memory_is_like_any_other() {
    let pair = Pair::<Rc>::new();
    let message = pattern(70_000);
    let mapping = through(&pair, Mapping::anonymous(100_000).unwrap(), &message);
    assert_eq!(mapping.len(), 100_000);

    // SAFETY: a plain call with a string that ends.
    let fd = unsafe { libc::memfd_create(c"adverb test".as_ptr(), libc::MFD_CLOEXEC) };
    assert!(fd >= 0);
    // SAFETY: the descriptor was just made.
    let file = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: a plain call.
    assert_eq!(unsafe { libc::ftruncate(fd, 8192) }, 0);
    // SAFETY: the file is this test's alone, and looked at when the mapping is gone.
    let map = |offset, len| unsafe { Mapping::file(file.as_fd(), offset, len) };
    drop(through(&pair, map(4096, 4096).unwrap(), b"into the file"));
    let mut seen = [0u8; 13];
    // SAFETY: the place is as long as it says.
    let n = unsafe { libc::pread(fd, seen.as_mut_ptr().cast(), seen.len(), 4096) };
    assert_eq!((n, &seen), (13, b"into the file"));
    assert!(matches!(
        map(4096, 4097),
        Err(Error::OutOfRange { len: 8192, .. })
    ));
    assert!(matches!(map(u64::MAX, 1), Err(Error::OutOfRange { .. })));
    assert!(matches!(map(100, 1), Err(Error::Misfit { value: 100, .. })));
    assert!(matches!(map(0, 0), Err(Error::TooSmall { .. })));

    for (len, page) in [(1 << 20, 2 << 20), (3, 3), (1, 0)] {
        assert!(matches!(
            Mapping::huge(len, page),
            Err(Error::Misfit { .. })
        ));
    }
    match Mapping::huge(2 << 20, 2 << 20) {
        Ok(huge) => assert_eq!(through(&pair, huge, &message).len(), 2 << 20),
        Err(e) => assert!(matches!(e, Error::Io(_)), "{e}"),
    }
    assert!(matches!(Mapping::anonymous(usize::MAX), Err(Error::Io(_))));
}

#[test]
fn only_the_whole_comes_back_and_only_as_what_it_was() {
    let pair = Pair::<Rc>::new();
    let buf = pair.pd.reg_mr(vec![3u8; 64]).unwrap();
    let buf = buf.into_inner::<Numbers<Vec<i8>>>().unwrap_err();
    let buf = buf.into_inner::<Box<[u8]>>().unwrap_err();
    let handle = buf.region();
    let mut buf = buf.into_inner::<Vec<u8>>().unwrap_err();
    drop(handle);
    let tail = buf.split_off(60);
    let buf = buf.into_inner::<Vec<u8>>().unwrap_err();
    // In flight a part is a part too.
    let recv = pair.b.post_recv(tail).unwrap();
    let buf = buf.into_inner::<Vec<u8>>().unwrap_err();
    assert_eq!(*buf, [3; 60]);
    pair.a.post_send(Inline(b"last")).unwrap();
    drop(success(&pair.b_cq, recv));
    let whole = buf.into_inner::<Vec<u8>>().unwrap();
    assert_eq!((&whole[..60], &whole[60..]), (&[3; 60][..], &b"last"[..]));

    let ours = pair.pd.alloc_buf(8).unwrap();
    assert!(ours.into_inner::<Vec<u8>>().is_err());
    let none = pair.pd.reg_mr(Vec::new()).unwrap();
    let recv = pair.b.post_recv(none).unwrap();
    pair.a.post_send(Inline(b"")).unwrap();
    let none = success(&pair.b_cq, recv).into_buf().unwrap();
    assert_eq!(none.into_inner::<Vec<u8>>().unwrap(), []);
}

static DROPPED: AtomicUsize = AtomicUsize::new(0);

struct Counted(Vec<u8>);

// SAFETY: as the vector in it.
unsafe impl Registrable for Counted {
    fn bytes(&mut self) -> *mut [u8] {
        self.0.bytes()
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        DROPPED.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn what_was_registered_is_dropped_once() {
    let pair = Pair::<Rc>::new();
    let dropped = || DROPPED.load(Ordering::Relaxed);
    let make = || pair.pd.reg_mr(Counted(vec![0; 16])).unwrap();
    let mut buf = make();
    let tail = buf.split_off(8);
    drop(buf);
    assert_eq!(dropped(), 0);
    drop(tail);
    assert_eq!(dropped(), 1);
    let back: Counted = make().into_inner().unwrap();
    assert_eq!(dropped(), 1);
    drop(back);
    assert_eq!(dropped(), 2);
    // A device that is not told about it, because its queue pair goes.
    pair.b.post_recv(make()).unwrap();
    drop(pair);
    assert_eq!((dropped(), leaked_bytes()), (3, 0));
}

#[test]
fn memory_of_others_receives_and_sends() {
    let pair = Pair::<Rc>::new();
    let theirs = Mapping::anonymous(4096).unwrap();
    let mut theirs = std::mem::ManuallyDrop::new(theirs);
    let at: *mut u8 = theirs.bytes().cast();
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_READ;
    // SAFETY: it is never unmapped, and looked at only while nothing is posted.
    let region = unsafe { pair.pd.reg_mr_raw(at, 4096, access) }.unwrap();
    let recv = pair.b.post_recv(region.slice(100..200).unwrap()).unwrap();
    let send = pair.a.post_send(Inline(b"received")).unwrap();
    success(&pair.a_cq, send).ok().unwrap();
    let done = success(&pair.b_cq, recv);
    assert_eq!(done.result.unwrap().byte_len, 8);
    assert!(done.buffer.as_ref().unwrap().bytes().is_none());
    drop(done);
    // SAFETY: nothing is posted.
    let bytes = unsafe { std::slice::from_raw_parts(at.add(100), 8) };
    assert_eq!(bytes, b"received");
    // As the source of a message, and as what a peer reads.
    pair.a.post_recv(pair.pd.alloc_buf(8).unwrap()).unwrap();
    pair.b.post_send(region.slice(100..108).unwrap()).unwrap();
    let read: Buf = pair.pd.alloc_buf(8).unwrap();
    pair.a
        .post_read(read, region.remote().slice(100..108).unwrap())
        .unwrap();
    for done in completions(&pair.a_cq, 2) {
        assert!(done.result.is_ok());
        assert_eq!(*done.into_buf().unwrap(), *b"received");
    }
    assert!(region.slice(4000..4097).is_err());
    // SAFETY: refused, so that nothing is promised.
    let refused = unsafe { pair.pd.reg_mr_raw(std::ptr::null_mut(), 8, access) };
    assert!(matches!(refused, Err(Error::Value { .. })));
}

#[test]
fn a_device_without_dma_buffers_says_so() {
    let pair = Pair::<Rc>::new();
    let file = std::fs::File::open("/dev/null").unwrap();
    // SAFETY: no memory comes of it.
    let made = unsafe {
        let access = AccessFlags::LOCAL_WRITE;
        pair.pd.reg_dmabuf_mr(file.as_fd(), 0, 4096, 0, access)
    };
    assert!(
        matches!(made, Err(Error::Unsupported { .. } | Error::Verb { .. })),
        "{made:?}"
    );
}
