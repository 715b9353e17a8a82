//! Memory windows: what peers may reach can be taken back.

use adverb::transport::Rc;
use adverb::{
    AccessFlags, Error, Inline, MemoryWindow, OpKind, PostFlags, RemoteRegion, Tagged, WcStatus,
};

use crate::{Pair, completions, context, success};

const NO_FLAGS: PostFlags = PostFlags::empty();
const WRITE: AccessFlags = AccessFlags::REMOTE_WRITE;

/// Memory of b's that only windows open.
fn bound(pair: &Pair<Rc>, window: &MemoryWindow) -> adverb::Exposed {
    let memory = pair.pd.expose(64, AccessFlags::MW_BIND).unwrap();
    let part = memory.slice(8..16).unwrap();
    let bind = pair.b.with(NO_FLAGS).bind(window, part, WRITE).unwrap();
    assert_eq!(success(&pair.b_cq, bind).kind, OpKind::Bind);
    memory
}

fn written(pair: &Pair<Rc>, to: RemoteRegion) -> Result<(), WcStatus> {
    pair.a.post_write(Inline(b"write"), to).unwrap();
    let done = completions(&pair.a_cq, 1).pop().unwrap();
    done.result.map(|_| ()).map_err(|e| e.status)
}

fn region(memory: &adverb::Exposed) -> RemoteRegion {
    RemoteRegion {
        addr: memory.remote().addr,
        len: 64,
        rkey: memory.remote().rkey,
    }
}

#[test]
fn a_window_opens_its_part_with_its_rights_and_no_more() {
    let pair = Pair::<Rc>::new();
    let window = pair.pd.alloc_mw().unwrap();
    assert_eq!(window.remote().len, 0);
    let memory = bound(&pair, &window);
    let to = window.remote();
    assert_eq!((to.addr, to.len), (memory.remote().addr + 8, 8));
    written(&pair, to).unwrap();
    let mut seen = [0; 16];
    memory.read_at(0, &mut seen).unwrap();
    assert_eq!(&seen, b"\0\0\0\0\0\0\0\0write\0\0\0");
    // A byte before it; its queue pair is in the error state after that.
    let before = RemoteRegion {
        addr: to.addr - 1,
        ..to
    };
    assert_eq!(written(&pair, before), Err(WcStatus::REM_ACCESS_ERR));

    let pair = Pair::<Rc>::new();
    let window = pair.pd.alloc_mw().unwrap();
    let memory = bound(&pair, &window);
    let read = pair.pd.alloc_buf(8).unwrap();
    pair.a.post_read(read, window.remote()).unwrap();
    let done = completions(&pair.a_cq, 1).pop().unwrap();
    assert_eq!(done.result.unwrap_err().status, WcStatus::REM_ACCESS_ERR);

    let pair = Pair::<Rc>::new();
    let window = pair.pd.alloc_mw().unwrap();
    let memory_of_another = bound(&pair, &window);
    assert_eq!(
        written(&pair, region(&memory_of_another)),
        Err(WcStatus::REM_ACCESS_ERR),
        "the memory below has no rights of its own"
    );
    drop(memory);
}

#[test]
fn a_key_that_was_taken_back_opens_nothing() {
    type Revoke = fn(&Pair<Rc>, MemoryWindow) -> Option<MemoryWindow>;
    let ways: [Revoke; 3] = [
        |pair, window| {
            let id = pair.b.with(NO_FLAGS).invalidate(&window).unwrap();
            assert_eq!(success(&pair.b_cq, id).kind, OpKind::Invalidate);
            Some(window)
        },
        |pair, window| {
            let key = window.remote().rkey;
            pair.b.post_recv(pair.pd.alloc_buf(8).unwrap()).unwrap();
            let message = Tagged(Inline(b"done"), 3);
            pair.a.with(NO_FLAGS).send_invalidate(message, key).unwrap();
            assert_eq!(completions(&pair.a_cq, 1)[0].tag, 3);
            let told = completions(&pair.b_cq, 1).pop().unwrap();
            assert_eq!(told.result.unwrap().invalidated, Some(key));
            Some(window)
        },
        |_, window| {
            drop(window);
            None
        },
    ];
    for (revoke, again) in ways.into_iter().flat_map(|way| [(way, false), (way, true)]) {
        let pair = Pair::<Rc>::new();
        let window = pair.pd.alloc_mw().unwrap();
        let memory = bound(&pair, &window);
        let old = window.remote();
        written(&pair, old).unwrap();
        let window = revoke(&pair, window);
        if let Some(window) = window.filter(|_| again) {
            // It can be bound again, under another key.
            let part = memory.slice(8..16).unwrap();
            let bind = pair.b.with(NO_FLAGS).bind(&window, part, WRITE).unwrap();
            success(&pair.b_cq, bind).ok().unwrap();
            assert_ne!(window.remote(), old);
            written(&pair, window.remote()).unwrap();
            assert_eq!(written(&pair, old), Err(WcStatus::REM_ACCESS_ERR));
        } else {
            assert_eq!(written(&pair, old), Err(WcStatus::REM_ACCESS_ERR));
        }
    }
}

#[test]
fn the_memory_outlives_its_handles_and_not_its_window() {
    let pair = Pair::<Rc>::new();
    let window = pair.pd.alloc_mw().unwrap();
    let memory = bound(&pair, &window);
    drop(memory);
    written(&pair, window.remote()).unwrap();
    // Dropped while an operation on it is under way: that ends first.
    pair.b.with(NO_FLAGS).invalidate(&window).unwrap();
    drop(window);
    assert!(completions(&pair.b_cq, 1)[0].result.is_ok());
    assert_eq!(adverb::leaked_bytes(), 0);
}

#[test]
fn windows_of_another_domain_are_refused() {
    let pair = Pair::<Rc>::new();
    let other = context().alloc_pd().unwrap();
    let (ours, theirs) = (pair.pd.alloc_mw().unwrap(), other.alloc_mw().unwrap());
    let memory = pair.pd.expose(8, AccessFlags::MW_BIND).unwrap();
    let foreign = other.expose(8, AccessFlags::MW_BIND).unwrap();
    for (window, memory) in [(&theirs, &foreign), (&ours, &foreign), (&theirs, &memory)] {
        let part = memory.slice(..).unwrap();
        let refused = pair.b.with(NO_FLAGS).bind(window, part, WRITE).unwrap_err();
        assert!(matches!(refused.error, Error::Foreign { .. }), "{refused}");
    }
    let refused = pair.b.with(NO_FLAGS).invalidate(&theirs).unwrap_err();
    assert!(matches!(refused.error, Error::Foreign { .. }));
}
