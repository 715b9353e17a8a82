//! Bugs that random worlds found, each as small as it gets.

use adverb_engine::*;

use crate::harness::*;

/// It is complete the moment it starts, and then there is no entry at the cursor to look at: the
/// search for one went round for ever.
#[test]
fn local_work_that_completes_at_once_leaves_nothing_to_send() {
    let mut p = Pair::rc();
    let key = p.a.world.register(vec![0; 8]).key;
    p.a.world.invalidatable.push(key);
    p.a.send(1, SendOp::LocalInv(key), &[]);
    p.drive();
    assert_eq!(p.a.world.send_statuses(), [(1, WcStatus::Success)]);
    assert!(p.a.world.keys.get(key).is_none());
}
